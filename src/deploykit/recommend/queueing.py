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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

MAX_UTILISATION = 0.9
"""Of what the largest batch can do. Above it a service time that is a few percent off moves the tail as much."""
MAX_BATCH = 32
"""Larger batches gain little rate and cost a lot of latency; the chain's state space grows with them."""
_UTILISATIONS = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9])
_EXTRA_STATES = 40
"""Gangs beyond twice the batch that are told apart: at utilisation 0.9 and batch 1 what lies beyond weighs < 1e-4."""


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
        """Service time of batches 1, 2, ... up to the largest usable one: ms [batch]. Never falls with the batch."""
        largest = max((b for b in self.batches if b <= MAX_BATCH), default=MAX_BATCH)
        times = np.interp(np.arange(1, largest + 1), self.batches, self.service_ms)
        rising: Floats = np.maximum.accumulate(times)
        return rising

    def largest_rate_ips(self) -> float:
        """Samples/s with the device always busy, at the batch size where that is highest."""
        times = self.times()
        return float(np.max(np.arange(1, len(times) + 1) / times) * 1000.0)


@dataclass(frozen=True)
class LoadedLatency:
    """One percentile of latency against the rate, for one device. Rises with the rate.

    Attributes:
        rates_ips: Samples/s offered, rising from 0.
        latency_ms: The percentile at each.
    """

    rates_ips: tuple[float, ...]
    latency_ms: tuple[float, ...]

    def at(self, rate_ips: float) -> float:
        """The percentile in ms at a rate; infinite above the highest that the model speaks of."""
        if rate_ips > self.rates_ips[-1] * (1 + 1e-9):
            return math.inf
        return float(np.interp(rate_ips, self.rates_ips, self.latency_ms))

    def highest_rate_ips(self, limit_ms: float) -> float:
        """The highest rate at which the percentile is within the limit; 0 where it never is."""
        if self.latency_ms[0] > limit_ms:
            return 0.0
        return float(np.interp(limit_ms, self.latency_ms, self.rates_ips))


def loaded_latency(curve: BatchCurve, percentile: float) -> LoadedLatency:
    """The latency percentile of Poisson arrivals at rates up to `MAX_UTILISATION`.

    Args:
        curve: Service time by batch size.
        percentile: As a share: 0.99.
    """
    times = curve.times()
    unit = float(times[0])
    normal = tuple(round(float(t) / unit, 4) for t in times)
    latencies = np.maximum.accumulate(_normal_table(normal, percentile))
    rates = _UTILISATIONS * curve.largest_rate_ips()
    return LoadedLatency(tuple(map(float, rates)), tuple(float(t) * unit for t in latencies))


@lru_cache(maxsize=512)
def _normal_table(times: tuple[float, ...], percentile: float) -> Floats:
    """The percentile at each of `_UTILISATIONS`, in units of the first service time.

    Curves of one shape share it: only rate × time counts.
    """
    chain = _Chain(np.array(times))
    largest_rate = float(np.max(np.arange(1, len(times) + 1) / chain.times))
    rates = _UTILISATIONS[1:] * largest_rate
    return np.concatenate([[times[0]], chain.percentile(rates, percentile)])


class _Chain:
    """The Markov chain of gang sizes 1..Q of one batch curve.

    Args:
        times: Service time of batches 1..B.
    """

    def __init__(self, times: Floats) -> None:
        self.times = times
        self.largest = len(times)
        self.states = 2 * self.largest + _EXTRA_STATES
        full, rest = np.divmod(np.arange(self.states + 1), self.largest)
        with_zero = np.concatenate([[0.0], times])
        self.gang_time = full * times[-1] + with_zero[rest]  # ms [0..Q], whole gang

    def percentile(self, rates: Floats, share: float) -> Floats:
        """Latency percentile at each rate (samples per unit of time)."""
        arrivals = self._arrivals(rates)
        weights = self._stationary(arrivals)
        return self._quantile(arrivals, weights, share)

    def _arrivals(self, rates: Floats) -> Floats:
        """P(k arrivals while a gang of n is served): [rate, n = 1..Q, k = 0..Q]; the rest of the tail sits at Q."""
        mean = rates[:, None, None] * self.gang_time[None, 1:, None]
        k = np.arange(self.states + 1)
        log_factorial = np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
        probability: Floats = np.exp(k * np.log(mean) - mean - log_factorial)
        probability[..., -1] += np.maximum(0.0, 1.0 - probability.sum(axis=-1))
        return probability

    def _stationary(self, arrivals: Floats) -> Floats:
        """Long-run share of gangs of each size: [rate, n]."""
        step = arrivals[..., 1:].copy()
        step[..., 0] += arrivals[..., 0]
        system = np.swapaxes(step, 1, 2) - np.eye(self.states)
        system[:, -1, :] = 1.0
        right = np.zeros((len(arrivals), self.states, 1))
        right[:, -1] = 1.0
        solved: Floats = np.linalg.solve(system, right)[..., 0]
        return np.asarray(np.maximum(solved, 0.0))

    def _quantile(self, arrivals: Floats, weights: Floats, share: float) -> Floats:
        """The percentile of the mixture of uniform distributions, one for each (gang served, batch of the next)."""
        gang, members, first, last, done = self._batches_of_next_gangs()
        served = self.gang_time[1:, None]
        low = served * (1.0 - last) + done
        width = served * np.maximum(last - first, 1e-6)
        mass = weights[:, :, None] * arrivals[:, :, gang] * members
        alone = (weights * arrivals[..., 0]).sum(axis=1)
        edges = np.concatenate([low.ravel(), (low + width).ravel()])
        order = np.argsort(edges)
        slope = (mass / width).reshape(len(weights), -1)
        rise = np.cumsum(np.concatenate([slope, -slope], axis=1)[:, order], axis=1)
        edges = edges[order]
        below = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(rise[:, :-1] * np.diff(edges), axis=1)], axis=1)
        below += np.where(edges >= self.times[0], alone[:, None], 0.0)
        below /= below[:, -1:]
        return np.array([_crossing(edges, row, share) for row in below])

    def _batches_of_next_gangs(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Each batch of each gang size: gang, members, its stretch of the arrivals (first, last), time when done."""
        found = [
            (gang, end - start, *_stretch(gang, start, end), self.gang_time[end])
            for gang in range(1, self.states + 1)
            for start in range(0, gang, self.largest)
            for end in [min(start + self.largest, gang)]
        ]
        gang, members, first, last, done = (np.array(column) for column in zip(*found, strict=True))
        return gang, members, first, last, done


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


def percentile_share(name: str) -> float:
    """`p99` → 0.99, `p99_9` → 0.999."""
    return float(name[1:].replace("_", ".")) / 100.0


def ordered_points(points: Sequence[tuple[int, float]]) -> BatchCurve:
    """A curve from (batch, ms) pairs in any order; the larger time where a batch stands twice."""
    longest: dict[int, float] = {}
    for batch, ms in points:
        longest[batch] = max(ms, longest.get(batch, 0.0))
    batches = tuple(sorted(longest))
    return BatchCurve(batches, tuple(longest[b] for b in batches))
