"""How far may a run be believed? Pure: what was seen before and after it, and its own figures → remarks.

A remark tells the reader that a measurement is shakier than it looks. Reasons that make one invalid come from the
device (`probe.run_conditions`) and are gathered by `watch`.
"""

from __future__ import annotations

import numpy as np

from deploykit.base.vocab import Scenario
from deploykit.bench.conditions import Moment
from deploykit.bench.loadgen import MOST_QUERIES, LoadResult
from deploykit.bench.stats import block_medians, needed_samples, wander
from deploykit.probe.trace import DRIFT, drift

SHORT_S = 1.0
"""A shorter run has seen neither the scheduler's nor the cooling's habits."""
NOISY = 0.10
"""Block medians that far apart: the machine's speed changed while it was measured."""
NEIGHBOURS = 0.25
"""CPUs that others kept busy. On a quiet machine the kernel's own work stays well below."""
CLOSED = (Scenario.SINGLE_STREAM, Scenario.MULTI_STREAM, Scenario.OFFLINE)
"""Scenarios without arrivals of their own: latency is service time, so that a change in it is the machine's."""


def remarks_on_host(before: Moment, after: Moment, cpus: int) -> tuple[str, ...]:
    """What else the host did.

    Args:
        before: Counters at the start of the run.
        after: Counters at its end.
        cpus: CPUs that this process may use.
    """
    found = []
    others = neighbours(before, after)
    if others is not None and others > NEIGHBOURS:
        found.append(f"other processes kept {others:.1f} CPUs busy during the run: stop them and measure again")
    elif others is None and before.load_average > cpus:
        found.append(f"the load average was {before.load_average:.1f} on {cpus} CPUs before the run")
    throttled = _difference(before.throttled_s, after.throttled_s)
    if throttled and throttled > 0.01 * (after.t_s - before.t_s):
        found.append(f"the container's CPU quota held the run back for {throttled:.2f} s: use fewer threads")
    if swapped := _difference(before.pages_swapped, after.pages_swapped):
        found.append(f"the machine swapped {swapped:.0f} pages during the run: memory was short")
    return tuple(found)


def neighbours(before: Moment, after: Moment) -> float | None:
    """CPUs that processes other than this one kept busy, on average; None where the kernel does not tell."""
    busy = _difference(before.busy_cpu_s, after.busy_cpu_s)
    seconds = after.t_s - before.t_s
    if busy is None or seconds <= 0:
        return None
    return max(0.0, (busy - (after.own_cpu_s - before.own_cpu_s)) / seconds)


def remarks_on_run(scenario: Scenario, result: LoadResult) -> tuple[str, ...]:
    """Too short, too few, cut off, drifting, noisy."""
    latencies = result.queries.latency_ms
    return (*_too_little(result), *(_unsteady(latencies) if scenario in CLOSED else ()))


def _too_little(result: LoadResult) -> list[str]:
    found, count, wall_s = [], len(result.queries.latency_ms), result.wall_s
    if wall_s < SHORT_S:
        found.append(f"the run took {wall_s:.2f} s: too short to trust")
    needed = needed_samples(99.0)
    if count < needed:
        seconds = np.ceil(wall_s * needed / count)
        found.append(
            f"{count} queries are too few for p99, which takes {needed}: about --duration {seconds:.0f} would do"
        )
    if count >= MOST_QUERIES:
        found.append(f"the run ended at {MOST_QUERIES:,} queries, before its time was up")
    return found


def _unsteady(latencies_ms: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[str]:
    drifted = drift(latencies_ms.tolist())
    if drifted is not None and abs(drifted) > DRIFT:
        way = "slower" if drifted > 0 else "faster"
        return [f"the last third of the run was {abs(drifted):.0%} {way} than the first: warm up or run longer"]
    wandered = wander(block_medians(latencies_ms))
    if wandered is not None and wandered > NOISY:
        return [f"noisy: the median wandered by {wandered:.0%} within the run"]
    return []


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
