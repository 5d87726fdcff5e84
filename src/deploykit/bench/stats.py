"""Latency statistics. Pure: samples in, figures out.

Percentiles come from the samples, by the nearest rank: the smallest sample that at least that share of all samples does
not exceed. A percentile that too few samples stand behind is None: with 20 samples "p99" would be the maximum under
another name.

How many are needed, and the bound above a percentile, follow MLPerf's early stopping (inference_rules.adoc, "Early
Stopping Criterion"; LoadGen's early_stopping.cc): of n queries the t slowest may be discarded where the chance that t
or fewer of n lie above the true percentile, a binomial tail, is at most 1 %, and at least one must be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from deploykit.results.measurement import Latency

CONFIDENCE = 0.99
"""Of the bounds; what MLPerf asks."""

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
"""Field of `Latency` → percent."""

BLOCKS = 20
"""Stretches that a run is cut into, to see how it wandered."""
_LEAST_BLOCK = 5
"""Queries a block needs for its median to be one."""

Array = np.ndarray[Any, Any]


def latency_from_samples(latencies_ms: Array) -> Latency:
    """All figures of a run.

    Args:
        latencies_ms: float64 [queries], at least one.
    """
    ordered = np.sort(latencies_ms)
    figures = {name: percentile(ordered, percent) for name, percent in PERCENTILES.items()}
    return Latency(
        # The mean of equal samples may come out an ulp beyond them.
        mean=min(max(float(ordered.mean()), float(ordered[0])), float(ordered[-1])),
        std=float(ordered.std(ddof=1)) if len(ordered) > 1 else None,
        min=float(ordered[0]),
        max=float(ordered[-1]),
        p99_upper=upper_bound(ordered, 99.0),
        **figures,
    )


def percentile(ordered: Array, percent: float) -> float | None:
    """The nearest-rank percentile of sorted samples; None where there are fewer than `needed_samples`.

    Args:
        ordered: float64 [samples], rising.
        percent: Above 0 and below 100.
    """
    if len(ordered) < needed_samples(percent):
        return None
    # Rounded first: 0.99 × 700 is a little above 693 in binary and would ask for the 694th.
    rank = math.ceil(round(len(ordered) * percent / 100.0, 6))
    return float(ordered[rank - 1])


@lru_cache(maxsize=64)
def needed_samples(percent: float) -> int:
    """Fewest samples that a bound above the percentile can be had from: 11 for p50, 64 for p90, 662 for p99."""
    low, high = 1, 2
    while discarded(high, percent) < 1:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if discarded(middle, percent) < 1 else (low, middle)
    return high


def upper_bound(ordered: Array, percent: float) -> float | None:
    """A sample that the true percentile does not exceed, with `CONFIDENCE`; None where there are too few for one.

    One rank more careful than the binomial tail alone asks, as LoadGen's estimate is.
    """
    spare = discarded(len(ordered), percent)
    return float(ordered[len(ordered) - spare]) if spare >= 1 else None


@lru_cache(maxsize=256)
def discarded(count: int, percent: float) -> int:
    """Largest t with P(Binomial(count, 1 − percentile) ≤ t) ≤ 1 − confidence; 0 or less where not even one may go."""
    above = 1.0 - percent / 100.0
    t = np.arange(math.ceil(count * above) + 1)
    ratios = np.log((count - t[:-1]) / (t[:-1] + 1)) + math.log(above / (1.0 - above))
    log_terms = count * math.log1p(-above) + np.concatenate([[0.0], np.cumsum(ratios)])
    tail = np.cumsum(np.exp(log_terms))
    return int(np.searchsorted(tail, 1.0 - CONFIDENCE, side="right")) - 1


def block_medians(latencies_ms: Array, blocks: int = BLOCKS) -> tuple[float, ...]:
    """Median latency of consecutive equal stretches, in order; fewer stretches where the run is short, none below two.

    Args:
        latencies_ms: float64 [queries], in the order of the queries.
    """
    count = min(blocks, len(latencies_ms) // _LEAST_BLOCK)
    if count < 2:
        return ()
    return tuple(float(np.median(block)) for block in np.array_split(latencies_ms, count))


def wander(medians: Sequence[float]) -> float | None:
    """Slowest block over fastest, minus one; None without blocks."""
    return max(medians) / min(medians) - 1.0 if medians else None


def quantile_sketch(latencies_ms: Array, points: int = 101) -> list[float]:
    """Evenly spaced quantiles, 0 % to 100 %, of which a report draws the distribution."""
    return [round(float(value), 6) for value in np.quantile(latencies_ms, np.linspace(0.0, 1.0, points))]


def histogram_bars(quantiles_ms: Sequence[float], width: int = 40) -> str:
    """The shape of a run in one line of block characters, up to its 99th percentile.

    Args:
        quantiles_ms: What `quantile_sketch` gives.
        width: Characters.
    """
    low, top = quantiles_ms[0], quantiles_ms[-2]
    if top <= low:
        return "█"
    edges = np.linspace(low, top, width + 1)
    cumulative = np.interp(edges, quantiles_ms, np.linspace(0.0, 1.0, len(quantiles_ms)))
    cumulative[0] = 0.0  # where many samples are the smallest one, interpolation would leave them out
    shares = np.diff(cumulative)
    blocks = " ▁▂▃▄▅▆▇█"
    return "".join(blocks[math.ceil(share / shares.max() * (len(blocks) - 1))] for share in shares)
