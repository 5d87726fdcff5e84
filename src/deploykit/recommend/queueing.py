"""Latency under load of one device that batches what waits. Pure: no clock, no random numbers.

The device takes waiting samples in batches of at most the best size, oldest first, as soon as it is free. Arrivals
are Poisson. How many wait when it falls free is a Markov chain (the bulk-service queue of Bailey 1954,
"On Queueing Processes with Bulk Service", with a service time of each batch size):

    next ~ waiting - batch + Poisson(rate × L(batch)),  and 1 where nobody waits (the device idles until somebody comes)

A sample that arrives a share `u` of the way through a batch's service waits `(1 - u) L`, then for full batches ahead
of it, then for its own batch, which those who came later fill up. So its latency is a mixture of uniform distributions
over cells of `u`, and its percentile is read off that mixture. At batch size 1 this is M/D/1, and is tested against its
textbook formula; with batches, against a simulation.

Between measured batch sizes service time is interpolated linearly: on GPUs it is flat first and then rises, so that the
chord lies above the curve.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Mixture = tuple[Floats, Floats, Floats]
"""Uniform distributions: where each begins, how wide it is, its weight."""

MAX_UTILISATION = 0.9
"""Of what the largest batch can do. Above it a service time that is a few percent off moves the tail as much."""
MAX_BATCH = 32
"""Larger batches gain little rate and cost a lot of latency; the chain's state space grows with them."""
UTILISATIONS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.875, MAX_UTILISATION)
"""Where the percentile is computed; between them it is interpolated."""
_SHAPE_STEP = 0.005
"""What times are rounded up to, as a share: see `loaded_latency`."""
_EXTRA_STATES = 50
"""Waiting samples beyond two batches that are told apart: at utilisation 0.9 and batch 1 more weigh < 1e-4."""
_CELLS = 8
"""Of the time that one batch takes: where in it a sample arrives."""
_SMALL_CHANCE = 1e-2
"""A batch size that a sample meets more rarely is left out."""
_NEGLIGIBLE = 1e-4
"""Share of the tail that one component of the mixture may have and be left out."""

_LOG_FACTORIAL = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 8 * MAX_BATCH + 4 * _EXTRA_STATES)))])
"""More counts than the chain of `MAX_BATCH` at `MAX_UTILISATION` looks at."""


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
        return _largest_rate(tuple(map(float, self.times()))) * 1000.0


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
    """The Markov chain of samples waiting when the device falls free, 1..Q, of one batch curve.

    Args:
        times: Service time of batches 1..B.
        utilisation: Of the load that it is asked for: the busier, the longer the queues that count.
    """

    def __init__(self, times: Floats, utilisation: float) -> None:
        self.times = times
        self.largest = len(times)
        self.states = math.ceil(2 * self.largest * utilisation + _EXTRA_STATES * utilisation**2) + 8
        waiting = np.arange(1, self.states + 1)
        batch = np.minimum(waiting, self.largest)
        self.left = waiting - batch
        self.served = times[batch - 1]

    def percentile(self, rate: float, share: float) -> float:
        """Latency percentile at a rate (samples per unit of time)."""
        step = self._step(rate)
        weights = self._stationary(step)
        return self._quantile(rate, weights, float(weights @ step[:, 0]), share)

    def _step(self, rate: float) -> Floats:
        """P(k wait when the device next falls free | n did): [n = 1..Q, k = 0..Q]; the rest of the tail sits at Q."""
        came = np.arange(self.states + 1) - self.left[:, None]
        probability = np.where(came >= 0, _poisson(np.maximum(came, 0), rate * self.served[:, None]), 0.0)
        probability[:, -1] += np.maximum(0.0, 1.0 - probability.sum(axis=1))
        return probability

    def _stationary(self, step: Floats) -> Floats:
        """Long-run share of each state: [n]. After none there is one: who comes next is served alone."""
        taken = step[:, 1:].copy()
        taken[:, 0] += step[:, 0]
        system = taken.T - np.eye(self.states)
        system[-1, :] = 1.0
        right = np.zeros(self.states)
        right[-1] = 1.0
        solved: Floats = np.linalg.solve(system, right)
        return np.asarray(np.maximum(solved, 0.0))

    def _quantile(self, rate: float, weights: Floats, idle: float, share: float) -> float:
        """The percentile of the mixture over what an arrival meets; the idle device answers first of all."""
        kinds = self._joining(rate, weights), self._filling(rate, weights), self._queueing(rate, weights)
        low, width, weight = (np.concatenate(of_kind) for of_kind in zip(*kinds, strict=True))
        total = float(weight.sum()) + idle
        counts = weight > _NEGLIGIBLE * (1 - share) * total
        low, width, weight = low[counts], width[counts], weight[counts]
        return _mixture_quantile(low, width, weight, share * (float(weight.sum()) + idle) - idle)

    def _joining(self, rate: float, weights: Floats) -> Mixture:
        """Arrivals during a service whose next batch takes all who wait: its size does not depend on who came when."""
        others = np.arange(self.largest)
        size = self.left[:, None] + others + 1
        chance = weights[:, None] * rate * self.served[:, None] * _poisson(others, rate * self.served[:, None])
        state, came = np.nonzero(size <= self.largest)
        return self.times[size[state, came] - 1], self.served[state], chance[state, came]

    def _filling(self, rate: float, weights: Floats) -> Mixture:
        """Arrivals that find a place in the next batch, which later ones fill up: by the cell of the arrival."""
        states = np.flatnonzero(self.left < self.largest)
        served, last = self.served[states, None], self.largest - 1 - self.left[states]
        mean = rate * served * np.append((np.arange(_CELLS) + 0.5) / _CELLS, 1.0)
        at_most = np.cumsum(_poisson(np.arange(self.largest), mean[:, :, None]), axis=2)
        found = np.take_along_axis(at_most, np.broadcast_to(last[:, None, None], (*mean.shape, 1)), axis=2)[:, :, 0]
        weight = weights[states, None] * rate * served / _CELLS * np.maximum(0.0, found[:, :-1] - found[:, -1:])
        width = np.broadcast_to(served / _CELLS, weight.shape)
        low = self.times[-1] + width * (_CELLS - 1 - np.arange(_CELLS))
        return low.ravel(), width.ravel(), weight.ravel()

    def _queueing(self, rate: float, weights: Floats) -> Mixture:
        """Arrivals with a full batch or more ahead of them."""
        mass = self._ahead(rate, weights)
        mass[:, :, : self.largest] = 0.0
        batch, at, ahead = np.nonzero(mass > _NEGLIGIBLE**2 * weights.sum())
        width = self.times[batch] / _CELLS
        end = width * (_CELLS - at) + ahead // self.largest * self.times[-1]
        found, size, part = self._own_batches(ahead % self.largest, rate * (end - width / 2))
        low = end[found] - width[found] + self.times[size - 1]
        return low, width[found], mass[batch, at, ahead][found] * part

    def _ahead(self, rate: float, weights: Floats) -> Floats:
        """Arrivals by what they meet: [size of the batch in service - 1, cell of its time, samples ahead].

        Ahead are those whom the batch in service left behind, and those who came since it started.
        """
        cell = ((np.arange(_CELLS) + 0.5) / _CELLS)[None, :, None]
        sizes = min(self.largest, self.states)
        served = self.times[:sizes, None, None]
        came = np.arange(math.ceil(_most_likely_below(rate * self.times[sizes - 1])) + 1)
        before = rate * served / _CELLS * _poisson(came, rate * served * cell)
        left = weights[sizes - 1 :]
        mass = np.zeros((sizes, _CELLS, len(came) + len(left) - 1))
        mass[:-1, :, : len(came)] = weights[: sizes - 1, None, None] * before[:-1]
        for k in range(_CELLS):
            mass[-1, k] = np.convolve(before[-1, k], left)
        return mass

    def _own_batches(self, older: Ints, mean: Floats) -> tuple[Ints, Ints, Floats]:
        """Who comes until a sample's batch starts fills that batch up: (which sample, batch size, chance).

        Args:
            older: Members of its batch that came before it.
            mean: Expected arrivals until the batch starts.
        """
        sizes = np.arange(1, self.largest + 1)
        younger = sizes - 1 - older[:, None]
        chance = np.where(younger >= 0, _poisson(np.maximum(younger, 0), mean[:, None]), 0.0)
        chance[:, -1] = np.maximum(0.0, 1.0 - chance[:, :-1].sum(axis=1))
        chance[chance < _SMALL_CHANCE] = 0.0
        chance /= chance.sum(axis=1, keepdims=True)
        found, size = np.nonzero(chance)
        return found, sizes[size], chance[found, size]


def _poisson(k: Ints, mean: Floats) -> Floats:
    """P(k) of Poisson distributions; broadcasts."""
    probability: Floats = np.exp(k * np.log(mean) - mean - _LOG_FACTORIAL[k])
    return probability


def _most_likely_below(mean: float) -> float:
    """A count that a Poisson variable exceeds with a chance far below what a percentile notices."""
    return mean + 6.0 * math.sqrt(mean) + 6.0


def _mixture_quantile(low: Floats, width: Floats, weight: Floats, mass: float) -> float:
    """Where uniform distributions over [low, low + width] have reached this much of their weights together."""
    slope = weight / width
    edges = np.concatenate([low, low + width])
    order = np.argsort(edges)
    edges = edges[order]
    rise = np.cumsum(np.concatenate([slope, -slope])[order])
    reached = np.concatenate([[0.0], np.cumsum(rise[:-1] * np.diff(edges))])
    return float(np.interp(mass, reached, edges))


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
