"""What the power sampler costs: p50 of a 1 ms session with and without it, in turns.

The session is one matrix product of NumPy in one thread, sized to about 1 ms. Beside it runs the sampler as `bench`
uses it, ten looks a second, at the sensors of this machine and of a recorded AGX Orin (some thirty files a look).
Turns alternate, so that whatever else the machine does meets both alike; what is compared is the median of the rounds'
ratios. The budget is 1 % (docs/jetson.md).

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/sampling_overhead.py [--rounds 40] [--seconds 1]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from deploykit.probe.sampling import PowerSampler, sensors_of
from deploykit.probe.snapshot import opened

BUDGET = 1.01
ROOT = Path(__file__).resolve().parents[1]
ORIN = ROOT / "tests" / "fixtures" / "boards" / "orin-agx-64gb-jp6.MODE_30W.tar.gz"
_ASKED_MS = 1.0


def session_of(asked_ms: float) -> Callable[[], object]:
    """A call that takes about so long: a matrix product, as wide as it takes."""
    rng = np.random.default_rng(0)
    left = rng.standard_normal((256, 256), dtype=np.float32)
    right = rng.standard_normal((256, 64), dtype=np.float32)
    each_ms = p50_ms(lambda: left @ right, 0.3)
    wide = np.tile(right, (1, max(1, round(asked_ms / each_ms))))
    return lambda: left @ wide


def p50_ms(run: Callable[[], object], seconds: float) -> float:
    """Median time of a call, over and over."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e6


@contextlib.contextmanager
def sampled(root: Path) -> Iterator[PowerSampler]:
    """The sampler, running."""
    with opened(root) as tree, sensors_of(tree) as sensors, PowerSampler(sensors) as sampler:
        yield sampler


def ratio_of(run: Callable[[], object], root: Path, rounds: int, seconds: float) -> float:
    """Median over the rounds of p50 with the sampler ÷ p50 without it."""
    ratios = []
    for number in range(rounds):
        pair = {}
        for beside in (True, False) if number % 2 else (False, True):
            with sampled(root) if beside else contextlib.nullcontext():
                pair[beside] = p50_ms(run, seconds)
        ratios.append(pair[True] / pair[False])
    return statistics.median(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    run = session_of(_ASKED_MS)
    print(f"session: p50 {p50_ms(run, 1.0):.3f} ms")
    worst = 0.0
    for name, root in (("this machine", Path("/")), ("recorded AGX Orin", ORIN)):
        ratio = ratio_of(run, root, arguments.rounds, arguments.seconds)
        worst = max(worst, ratio)
        print(f"{name}: median ratio {ratio:.4f}, budget {BUDGET}")
    return 0 if worst <= BUDGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
