"""How much `deploykit bench` adds: its p50 under LoadGen against a bare loop over the same session.

Both are run in one process on one session, in short turns, so that whatever else the machine does meets both alike;
what is compared is the median of the rounds' ratios. The budget is 2 % (docs/measuring.md).

    python benchmarks/bench_overhead.py [--model resnet18] [--rounds 30] [--seconds 1]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
from loops import bare_p50_ms

from deploykit import pipeline
from deploykit.base.vocab import Scenario
from deploykit.bench.inputs import random_feeds
from deploykit.bench.loadgen import Load, drive
from deploykit.runtime import runtime

BUDGET = 1.02


def loadgen_p50_ms(session, feeds, seconds: float, expected_ms: float) -> float:
    """The same samples, issued and timed by LoadGen."""
    load = Load(
        Scenario.SINGLE_STREAM,
        duration_s=seconds,
        longest_s=seconds,
        samples=len(feeds),
        expected_latency_ms=expected_ms,
    )
    result = drive(load, [lambda indices: session.infer(feeds[indices[0]])])
    return float(np.median(result.queries.latency_ms))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = pipeline.ExportSettings(weights="none", output_dir=Path(folder))
        artifact = pipeline.export(arguments.model, settings).artifact
        with runtime("onnxruntime").open(artifact.onnx_path, threads=arguments.threads) as session:
            feeds = random_feeds(session.inputs)
            expected = bare_p50_ms(session, feeds, 1.0)
            ratios = []
            for number in range(arguments.rounds):
                pair = {}
                for who in ("bare", "loadgen") if number % 2 else ("loadgen", "bare"):
                    pair[who] = (
                        bare_p50_ms(session, feeds, arguments.seconds)
                        if who == "bare"
                        else loadgen_p50_ms(session, feeds, arguments.seconds, expected)
                    )
                ratios.append(pair["loadgen"] / pair["bare"])
                print(f"round {number + 1}: {pair['bare']:.3f} and {pair['loadgen']:.3f} ms, ratio {ratios[-1]:.4f}")
    middle = statistics.median(ratios)
    print(f"median ratio {middle:.4f}, budget {BUDGET}")
    return 0 if middle <= BUDGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
