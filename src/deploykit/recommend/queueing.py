"""Latency under load of one device that batches what waits. Pure: no clock, no random numbers.

The device takes all waiting samples at once, in batches of at most the largest measured size, oldest first, and starts
as soon as it is free. Arrivals are Poisson. A *gang* is what waits when the device falls free; while a gang of `n` is
served, for `L(n)` ms, the next one gathers, so gang sizes are a Markov chain:

    next gang ~ Poisson(rate × L(n)),  and 1 where nobody came (the device idles until somebody does)

A sample that arrives a share `u` of the way through a gang's service waits `(1 - u) L(n)`, then until its own batch of
the next gang is done. `u` is uniform, and oldest first means that a batch's members come from their own stretch of it.
So the latency distribution is a mixture of uniform ones and its percentiles are exact, but for one pessimism: when a
gang is larger than the largest batch, its last batch leaves without samples that came later. At batch size 1 there is
none: the model is then M/D/1, and is tested against its textbook formula.

Between measured batch sizes service time is interpolated linearly: on GPUs it is flat first and then rises, so that the
chord lies above the curve.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

MAX_UTILISATION = 0.9
"""Of what the largest batch can do. Above it a service time that is a few percent off moves the tail as much."""
MAX_BATCH = 32
"""Larger batches gain little rate and cost a lot of latency; the chain's state space grows with them."""
UTILISATIONS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, MAX_UTILISATION)
"""Where the percentile is computed; between them it is interpolated."""
_SHAPE_STEP = 0.005
_EXTRA_STATES = 50
"""Gangs beyond twice the batch that are told apart: at utilisation 0.9 and batch 1 what lies beyond weighs < 1e-4."""
_NEGLIGIBLE = 1e-5
"""Share of the tail that one component of the mixture may have and be left out."""


@dataclass(frozen=True)
class BatchCurve:
    """How long one batch occupies the device.

    Attributes:
        batches: Batch sizes, rising, the first one 1 or the smallest known.
        service_ms: Time of each.
    """

    batches: tuple[int, ...]
    service_ms: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.batches or len(self.batches) != len(self.service_ms):
            raise ValueError("a batch curve needs a time for each batch size")
        if any(b <= a for a, b in zip(self.batches, self.batches[1:], strict=False)) or min(self.service_ms) <= 0:
            raise ValueError("batch sizes must rise and times be above 0")

    def times(self) -> Floats:
        """Service time of batches 1, 2, ... up to the one with the highest rate: ms [batch], never falling.

        A larger batch would cost latency and bring no rate.
        """
        largest = max((b for b in self.batches if b <= MAX_BATCH), default=MAX_BATCH)
        times = np.interp(np.arange(1, largest + 1), self.batches, self.service_ms)
        rising: Floats = np.maximum.accumulate(times)
        best = int(np.argmax(np.arange(1, largest + 1) / rising))
        return rising[: best + 1]

    def largest_rate_ips(self) -> float:
        """Samples/s with the device always busy, at the batch size where that is highest."""
        times = self.times()
        return float(np.max(np.arange(1, len(times) + 1) / times) * 1000.0)


@dataclass(frozen=True)
class LoadedLatency:
    """One percentile of latency against the rate, for one device: computed where it is looked at.

    Attributes:
        unit_ms: Service time of batch 1.
        shape: Service time of batches 1, 2, ... in units of it.
        percentile: As a share: 0.99.
    """

    unit_ms: float
    shape: tuple[float, ...]
    percentile: float

    @property
    def idle_ms(self) -> float:
        """Latency of a sample that finds the device idle."""
        return self.unit_ms * self.shape[0]

    @property
    def most_ips(self) -> float:
        """The highest rate that the model speaks of."""
        return self._rate(len(UTILISATIONS) - 1)

    def at(self, rate_ips: float) -> float:
        """The percentile in ms at a rate; infinite above the highest that the model speaks of."""
        if rate_ips > self.most_ips * (1 + 1e-9):
            return math.inf
        above = max(1, bisect.bisect_left([self._rate(k) for k in range(len(UTILISATIONS))], rate_ips * (1 - 1e-9)))
        ends = above - 1, above
        return float(np.interp(rate_ips, [self._rate(k) for k in ends], [self._latency(k) for k in ends]))

    def highest_rate_ips(self, limit_ms: float) -> float:
        """The highest rate at which the percentile is within the limit; 0 where it never is."""
        if self.idle_ms > limit_ms:
            return 0.0
        above = bisect.bisect_right(range(1, len(UTILISATIONS)), limit_ms, key=self._latency) + 1
        if above == len(UTILISATIONS):
            return self.most_ips
        ends = above - 1, above
        return float(np.interp(limit_ms, [self._latency(k) for k in ends], [self._rate(k) for k in ends]))

    def _rate(self, k: int) -> float:
        return UTILISATIONS[k] * _largest_rate(self.shape) / self.unit_ms * 1000.0

    def _latency(self, k: int) -> float:
        return max(_normal_latency(self.shape, self.percentile, k), self.shape[0]) * self.unit_ms


def loaded_latency(curve: BatchCurve, percentile: float) -> LoadedLatency:
    """The latency percentile of Poisson arrivals at rates up to `MAX_UTILISATION`.

    Args:
        curve: Service time by batch size.
        percentile: As a share: 0.99.
    """
    times = curve.times()
    # Times are rounded up by at most `_SHAPE_STEP`, so that curves of nearly one shape share the work.
    steps = np.ceil(np.log(times / times[0]) / math.log1p(_SHAPE_STEP) - 1e-9)
    return LoadedLatency(float(times[0]), tuple(map(float, (1 + _SHAPE_STEP) ** steps)), percentile)


@lru_cache(maxsize=4096)
def _largest_rate(shape: tuple[float, ...]) -> float:
    """Samples per unit of time with the device always busy, at the batch size where that is highest."""
    return float(np.max(np.arange(1, len(shape) + 1) / np.array(shape)))


@lru_cache(maxsize=65536)
def _normal_latency(shape: tuple[float, ...], percentile: float, k: int) -> float:
    """The percentile at one of `UTILISATIONS`, in units of the service time of batch 1."""
    if k == 0:
        return shape[0]
    chain = _Chain(np.array(shape), UTILISATIONS[k])
    return chain.percentile(UTILISATIONS[k] * _largest_rate(shape), percentile)


class _Chain:
    """The Markov chain of gang sizes 1..Q of one batch curve.

    Args:
        times: Service time of batches 1..B.
        utilisation: Of the load that it is asked for: the busier, the larger the gangs that count.
    """

    def __init__(self, times: Floats, utilisation: float) -> None:
        self.times = times
        self.largest = len(times)
        self.states = math.ceil(2 * self.largest * utilisation + _EXTRA_STATES * utilisation**2) + 8
        full, rest = np.divmod(np.arange(self.states + 1), self.largest)
        with_zero = np.concatenate([[0.0], times])
        self.gang_time = full * times[-1] + with_zero[rest]  # [0..Q], whole gang

    def percentile(self, rate: float, share: float) -> float:
        """Latency percentile at a rate (samples per unit of time)."""
        arrivals = self._arrivals(rate)
        weights = self._stationary(arrivals)
        return self._quantile(arrivals, weights, share)

    def _arrivals(self, rate: float) -> Floats:
        """P(k arrivals while a gang of n is served): [n = 1..Q, k = 0..Q]; the rest of the tail sits at Q."""
        mean = rate * self.gang_time[1:, None]
        k = np.arange(self.states + 1)
        log_factorial = np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
        probability: Floats = np.exp(k * np.log(mean) - mean - log_factorial)
        probability[:, -1] += np.maximum(0.0, 1.0 - probability.sum(axis=1))
        return probability

    def _stationary(self, arrivals: Floats) -> Floats:
        """Long-run share of gangs of each size: [n]."""
        step = arrivals[:, 1:].copy()
        step[:, 0] += arrivals[:, 0]
        system = step.T - np.eye(self.states)
        system[-1, :] = 1.0
        right = np.zeros(self.states)
        right[-1] = 1.0
        solved: Floats = np.linalg.solve(system, right)
        return np.asarray(np.maximum(solved, 0.0))

    def _quantile(self, arrivals: Floats, weights: Floats, share: float) -> float:
        """The percentile of the mixture of uniform distributions, one for each (gang served, batch of the next)."""
        next_gangs = _batches_of_gangs(self.states, self.largest)
        mass = weights[:, None] * arrivals[:, next_gangs.gang] * next_gangs.members
        served, batch = np.nonzero(mass > _NEGLIGIBLE * (1 - share) * mass.sum())
        period = self.gang_time[served + 1]
        low = period * (1.0 - next_gangs.last[batch]) + self.gang_time[next_gangs.end[batch]]
        width = period * np.maximum(next_gangs.last[batch] - next_gangs.first[batch], 1e-6)
        slope = mass[served, batch] / width
        edges = np.concatenate([low, low + width])
        order = np.argsort(edges)
        rise = np.cumsum(np.concatenate([slope, -slope])[order])
        edges = edges[order]
        below = np.concatenate([[0.0], np.cumsum(rise[:-1] * np.diff(edges))])
        # Who comes while the device idles is served alone, at once.
        below += np.where(edges >= self.times[0], (weights * arrivals[:, 0]).sum(), 0.0)
        return _crossing(edges, below / below[-1], share)


class _NextGangs(NamedTuple):
    """Each batch of each gang size: one entry a batch, gangs of one size follow each other.

    Attributes:
        gang: Size of the gang that the batch is of.
        members: Size of the batch.
        first: Where its members' stretch of the arrivals begins, as a share of the period.
        last: Where it ends.
        end: Members of the gang up to and with this batch.
    """

    gang: Ints
    members: Ints
    first: Floats
    last: Floats
    end: Ints


@lru_cache(maxsize=512)
def _batches_of_gangs(largest_gang: int, largest_batch: int) -> _NextGangs:
    found = [
        (gang, end - start, *_stretch(gang, start, end), end)
        for gang in range(1, largest_gang + 1)
        for start in range(0, gang, largest_batch)
        for end in [min(start + largest_batch, gang)]
    ]
    return _NextGangs(*(np.array(column) for column in zip(*found, strict=True)))


def _stretch(gang: int, start: int, end: int) -> tuple[float, float]:
    """When, as shares of the period, the members `start + 1 .. end` of a gang arrived: a uniform stretch.

    The k-th of n uniform arrivals is Beta(k, n - k + 1); the stretch has the mean and variance of the members'
    mixture of those. For a whole gang that is 0 to 1, exactly.
    """
    k = np.arange(start + 1, end + 1)
    mean = k / (gang + 1)
    variance = float(np.mean(mean * (1 - mean)) / (gang + 2) + np.var(mean))
    half, centre = math.sqrt(3.0 * variance), float(np.mean(mean))
    return centre - half, centre + half


def _crossing(edges: Floats, below: Floats, share: float) -> float:
    """Where a rising distribution function reaches a share."""
    at = int(np.searchsorted(below, share))
    if at == 0 or below[at] - below[at - 1] <= 0:
        return float(edges[at])
    part = (share - below[at - 1]) / (below[at] - below[at - 1])
    return float(edges[at - 1] + part * (edges[at] - edges[at - 1]))


def units_for(rate_ips: float, per_unit_ips: float) -> int:
    """Whole devices for a rate; a rate that is met exactly counts as met."""
    return max(1, math.ceil(rate_ips / per_unit_ips * (1 - 1e-9)))


def ordered_points(points: Sequence[tuple[int, float]]) -> BatchCurve:
    """A curve from (batch, ms) pairs in any order; the larger time where a batch stands twice."""
    longest: dict[int, float] = {}
    for batch, ms in points:
        longest[batch] = max(ms, longest.get(batch, 0.0))
    batches = tuple(sorted(longest))
    return BatchCurve(batches, tuple(longest[b] for b in batches))
