"""Latency statistics. Pure: samples in, figures out.

Percentiles come from the samples, by the nearest rank: the smallest sample that at least that share of all samples does
not exceed. A percentile that too few samples stand behind is None, with a bound above it where one can be had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deploykit.results.measurement import Latency

CONFIDENCE = 0.99
"""Of the bound above p99: MLPerf's early stopping uses the same (inference_rules.adoc, "Early Stopping Criterion")."""

TAIL_SAMPLES = 10
"""Samples that must lie beyond a percentile: p99 needs 1,000 samples, p50 needs 20. With fewer, one hiccup decides."""

_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}

Array = np.ndarray[Any, Any]


def latency_from_samples(latencies_ms: Array) -> Latency:
    """All figures of a run.

    Args:
        latencies_ms: float64 [queries], in the order of the queries; at least one.
    """
    ordered = np.sort(latencies_ms)
    figures = {name: percentile(ordered, share) for name, share in _PERCENTILES.items()}
    return Latency(
        # The mean of equal samples may come out an ulp beyond them.
        mean=min(max(float(ordered.mean()), float(ordered[0])), float(ordered[-1])),
        std=float(ordered.std(ddof=1)) if len(ordered) > 1 else None,
        min=float(ordered[0]),
        max=float(ordered[-1]),
        p99_upper=upper_bound(ordered, 99.0),
        **figures,
    )


def percentile(ordered: Array, share: float) -> float | None:
    """The nearest-rank percentile of sorted samples; None where fewer than `TAIL_SAMPLES` lie beyond it.

    Args:
        ordered: float64 [samples], rising.
        share: In percent, between 0 and 100.
    """
    if len(ordered) < needed_samples(share):
        return None
    return float(ordered[_rank(len(ordered), share) - 1])


def needed_samples(share: float) -> int:
    """How many samples a percentile needs so that `TAIL_SAMPLES` lie beyond it: 1,000 for p99."""
    # Rounded first: 1 − 0.9 in binary is a little below 0.1 and would ask for one sample more.
    return math.ceil(round(TAIL_SAMPLES / (1.0 - share / 100.0), 6))


def _rank(count: int, share: float) -> int:
    return min(count, max(1, math.ceil(round(count * share / 100.0, 6))))


def upper_bound(ordered: Array, share: float, confidence: float = CONFIDENCE) -> float | None:
    """A sample that the true percentile does not exceed with this confidence; None where there are too few for one.

    The r-th smallest of n samples is such a bound when the chance that r or more of n samples lie below the true
    percentile, a binomial tail, is at most 1 − confidence (David and Nagaraja, Order Statistics, section 7.1).
    """
    count = len(ordered)
    rank = _bound_rank(count, share / 100.0, confidence)
    return None if rank is None else float(ordered[rank - 1])


def _bound_rank(count: int, quantile: float, confidence: float) -> int | None:
    """Smallest r with P(Binomial(count, quantile) ≥ r) ≤ 1 − confidence; None where even r = count fails."""
    allowed = 1.0 - confidence
    odds = (1.0 - quantile) / quantile
    # From r = count downwards, each probability from the one before it: the tail has about count·(1 − q) terms.
    log_term = count * math.log(quantile)
    tail, best = 0.0, None
    for rank in range(count, 0, -1):
        tail += math.exp(log_term)
        if tail > allowed:
            break
        best = rank
        log_term += math.log(odds * rank / (count - rank + 1))
    return best


def drift(latencies_ms: Array) -> float:
    """Median of the last third over median of the first third, minus one: 0.1 is 10 % slower at the end."""
    third = len(latencies_ms) // 3
    if third == 0:
        return 0.0
    return float(np.median(latencies_ms[-third:]) / np.median(latencies_ms[:third]) - 1.0)


def spread(latencies_ms: Array) -> float:
    """Width of the middle half over the median: 0.1 means that half of the samples lie within ±5 %."""
    low, middle, high = np.percentile(latencies_ms, [25, 50, 75])
    return float((high - low) / middle)


def quantile_sketch(latencies_ms: Array, points: int = 101) -> list[float]:
    """Evenly spaced quantiles, 0 % to 100 %: what is stored of a run so that two can be compared by more than means."""
    return [round(float(value), 6) for value in np.quantile(latencies_ms, np.linspace(0.0, 1.0, points))]


def histogram_bars(latencies_ms: Sequence[float] | Array, width: int = 40) -> str:
    """The shape of a run in one line of block characters, up to its 99.5th percentile."""
    values = np.asarray(latencies_ms, dtype=np.float64)
    top = float(np.quantile(values, 0.995))
    low = float(values.min())
    counts, _ = np.histogram(values, bins=width, range=(low, top if top > low else low + 1e-6))
    blocks = " ▁▂▃▄▅▆▇█"
    peak = max(1, int(counts.max()))
    return "".join(blocks[math.ceil(count / peak * (len(blocks) - 1))] for count in counts)
