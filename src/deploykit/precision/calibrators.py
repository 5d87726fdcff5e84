"""Histogram → threshold: the magnitude that INT8's 127 steps reach; what is larger is clipped to it.

All four are pure functions of magnitudes, since both dialects are symmetric around zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from deploykit.base.errors import MissingExtraError
from deploykit.base.vocab import CalibrationMethod
from deploykit.precision.histogram import OCTAVE_BINS, AbsHistogram

STEPS = 127
"""Positive steps of the grid; −128 is not used, so that the grid is symmetric."""

PERCENTILE = 99.95
"""Default of the percentile method: up to half a thousandth of the values may be outliers without setting the range."""

_CANDIDATES_AN_OCTAVE = 32
_MOST_CLIPPED = 0.001
"""Thresholds that clip more than this share of all values are not looked at. Outliers are rare. Where a tail is not, as
after Relu6 whose values pile up at 6, divergence alone clips it for the sake of many small values that matter less."""

_CELLS = 128
_CELL_BINS = 8

Array = np.ndarray[Any, Any]


def threshold(
    histogram: AbsHistogram, largest: float, method: CalibrationMethod, *, percentile: float = PERCENTILE
) -> float:
    """The clipping threshold of an activation.

    Args:
        histogram: Magnitudes seen.
        largest: The largest magnitude itself, which bins only bracket.
        method: How.
        percentile: Of the percentile method.

    Returns:
        At most `largest`; 0.0 where all values were zero.
    """
    if largest == 0.0 or histogram.counts.sum() == 0:
        return largest
    if method is CalibrationMethod.MINMAX:
        return largest
    if method is CalibrationMethod.PERCENTILE:
        return min(largest, percentile_threshold(histogram, percentile))
    candidates = _candidates(histogram, largest)
    loss = _losses(method)(histogram.edges, histogram.counts, candidates)
    return float(candidates[int(np.argmin(loss))])


def percentile_threshold(histogram: AbsHistogram, percentile: float) -> float:
    """The magnitude that `percentile` percent of the values do not exceed."""
    wanted = histogram.total * percentile / 100
    reached = histogram.small + np.concatenate([[0.0], np.cumsum(histogram.counts)])
    return float(np.interp(wanted, reached, histogram.edges))


def _candidates(histogram: AbsHistogram, largest: float) -> Array:
    """Thresholds to try: the largest value, then every few bin edges down to where too much would be clipped."""
    stride = OCTAVE_BINS // _CANDIDATES_AN_OCTAVE
    above = histogram.counts.sum() - np.concatenate([[0.0], np.cumsum(histogram.counts)])
    edges, clipped = histogram.edges[::stride], above[::stride]
    inside = edges[(edges < largest) & (clipped <= _MOST_CLIPPED * histogram.total)]
    # Largest first: of equally good thresholds argmin takes the one that clips least.
    return np.concatenate([[largest], inside[::-1]])


class _Compiled(NamedTuple):
    entropy: Callable[[Array, Array, Array], Array]
    mse: Callable[[Array, Array, Array], Array]


def _losses(method: CalibrationMethod) -> Callable[[Array, Array, Array], Array]:
    loops = _compiled()
    return loops.mse if method is CalibrationMethod.MSE else loops.entropy


@cache
def _compiled() -> _Compiled:
    try:
        import numba
    except ImportError as error:
        raise MissingExtraError("numba", "quantize", "INT8 calibration") from error
    signature = "f8[::1](f8[::1], f8[::1], f8[::1])"
    options: dict[str, bool] = {"nogil": True, "cache": True}
    rebinned = numba.njit("f8(f8[::1], f8[::1], f8, f8[::1])", **options)(_rebin)
    divergence = numba.njit("f8(f8[::1], f8)", **options)(_divergence)
    return _Compiled(
        numba.njit(signature, **options)(_entropy_losses(rebinned, divergence)),
        numba.njit(signature, **options)(_squared_errors),
    )


def _entropy_losses(
    rebin: Callable[[Array, Array, float, Array], float], divergence: Callable[[Array, float], float]
) -> Callable[[Array, Array, Array], Array]:
    bins = _CELLS * _CELL_BINS

    def entropy_losses(edges: Array, counts: Array, candidates: Array) -> Array:
        """Kullback–Leibler divergence of each threshold's grid from the distribution."""
        losses = np.empty(candidates.size)
        scratch = np.empty(bins)
        for i in range(candidates.size):
            beyond = rebin(edges, counts, candidates[i], scratch)
            losses[i] = divergence(scratch, beyond)
        return losses

    return entropy_losses


def _rebin(edges: Array, counts: Array, limit: float, out: Array) -> float:
    """Spread fine bins over equal bins on [0, limit]; returns what lies beyond."""
    out[:] = 0.0
    width = limit / out.size
    beyond = 0.0
    for i in range(counts.size):
        if counts[i] == 0.0:
            continue
        low, high = edges[i], edges[i + 1]
        if low >= limit:
            beyond += counts[i]
            continue
        first, last = int(low / width), int(high / width)
        if last == first:
            out[min(first, out.size - 1)] += counts[i]
            continue
        density = counts[i] / (high - low)
        for j in range(first, min(last, out.size - 1) + 1):
            out[j] += density * max(min(high, (j + 1) * width) - max(low, j * width), 0.0)
        if high > limit:
            beyond += density * (high - limit)
    return beyond


def _divergence(bins: Array, beyond: float) -> float:
    """KL(P ‖ Q): P the bins with what is clipped added to the last, Q each cell's share spread over its filled bins."""
    inside = bins.sum()
    if inside == 0.0:
        return np.inf
    width = bins.size // 128
    total = inside + beyond
    loss = 0.0
    for cell in range(128):
        share, filled = 0.0, 0
        for j in range(cell * width, (cell + 1) * width):
            share += bins[j]
            filled += bins[j] > 0.0
        for j in range(cell * width, (cell + 1) * width):
            p = bins[j] + (beyond if j == bins.size - 1 else 0.0)
            if p > 0.0:
                q = max(share / max(filled, 1) if bins[j] > 0.0 else 0.0, 1e-9 * total)
                loss += p / total * np.log(p / total / (q / inside))
    return loss


def _squared_errors(edges: Array, counts: Array, candidates: Array) -> Array:
    """Sum of squared errors of rounding and clipping at each threshold."""
    losses = np.zeros(candidates.size)
    for i in range(candidates.size):
        step = candidates[i] / 127
        for j in range(counts.size):
            if counts[j] == 0.0:
                continue
            width = edges[j + 1] - edges[j]
            centre = edges[j] + width / 2
            error = centre - min(np.rint(centre / step), 127.0) * step
            # A bin as wide as a step holds every rounding error alike, not the one of its centre.
            if width > step / 4 and centre < candidates[i]:
                losses[i] += counts[j] * step * step / 12
            else:
                losses[i] += counts[j] * error * error
    return losses
