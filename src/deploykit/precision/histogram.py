"""Streaming histograms of fixed size: what calibration keeps of an activation, however many samples pass.

A bin is a prefix of the floating-point number itself: its exponent and the first nine bits of its fraction, so each
octave has 512 bins of equal width. The relative resolution is the same everywhere: one value a thousand times larger
than the rest takes nothing from the resolution of the rest, which is where histograms of equal bins over the whole
range lose a network whose activations have rare outliers. The bins cover the 24 octaves below the largest value seen;
when a larger one comes they move up by whole octaves and the lowest merge into the bin of what is too small to matter
(2^-24 of the range; an INT8 step is 2^-7 of it). Moving loses nothing else, so the result does not depend on the order
of the samples, and two histograms can be added.

Counts are 64-bit integers and edges double precision, whatever the model's type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from deploykit.base.errors import MissingExtraError

FRACTION_BITS = 9
OCTAVE_BINS = 1 << FRACTION_BITS
OCTAVES = 24
BINS = OCTAVES * OCTAVE_BINS
LANES = 8
"""Slots in front of the bins, which share what is too small for them."""
_STRETCH = 256
"""Values that are worked on at a time: they stay in the nearest cache."""

_SHIFT = 23 - FRACTION_BITS
_LARGEST_EXPONENT = 254
"""Exponent field of the largest finite float32; 255 is Inf and NaN."""

Array = np.ndarray[Any, Any]


class NotFinite(ValueError):
    """An activation holds NaN or Inf; the message says which and how many."""


class AbsHistogram(NamedTuple):
    """Magnitudes of an activation.

    Attributes:
        edges: float64 [BINS + 1], rising.
        counts: float64 [BINS].
        small: Values below `edges[0]`, exact zeros among them: INT8 writes them as zero at any sensible scale.
    """

    edges: Array
    counts: Array
    small: int

    @property
    def total(self) -> float:
        """All values."""
        return float(self.counts.sum()) + self.small


@dataclass
class Histogram:
    """All that is kept of one activation.

    Attributes:
        low: Lowest value; Inf before the first.
        high: Highest value; -Inf before the first.
        values: How many were added.
        sums: Sum of each channel, float64 [C]; None where no layer needs it.
        energy: Sum of squares of each channel, likewise.
    """

    low: float = float("inf")
    high: float = float("-inf")
    values: int = 0
    sums: Array | None = None
    energy: Array | None = None
    _top: int = 0
    _counts: Array = field(default_factory=lambda: np.zeros(LANES + BINS, np.int64))

    def add(self, values: Array, channel_axis: int | None = None) -> None:
        """Add an activation.

        Args:
            values: Of any shape, also none at all; taken as float32.
            channel_axis: Axis whose `sums` and `energy` are wanted.

        Raises:
            NotFinite: There is NaN or Inf among them; nothing was added.
        """
        if values.size == 0:
            return
        blocks = _blocks(np.ascontiguousarray(values, np.float32), channel_axis)
        low, high, sums, energy = compiled().survey(blocks)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise NotFinite(_what_is_not_finite(blocks))
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.values += values.size
        if channel_axis is not None:
            self.sums, self.energy = _total(self.sums, sums), _total(self.energy, energy)
        self._move_up_to(max(abs(low), abs(high)))
        compiled().fill(blocks.reshape(-1).view(np.int32), self._base(), self._counts)

    def merge(self, other: Histogram) -> None:
        """Add what another histogram has seen."""
        if other.values == 0:
            return
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.values += other.values
        self.sums, self.energy = _total(self.sums, other.sums), _total(self.energy, other.energy)
        top = max(self._top, other._top)
        self._counts = _moved(self._counts, top - self._top) + _moved(other._counts, top - other._top)
        self._top = top

    def magnitudes(self) -> AbsHistogram:
        """Counts of |x|."""
        bits = (self._base() + np.arange(1, BINS + 2, dtype=np.int64)) << _SHIFT
        edges = np.empty(BINS + 1, np.float64)
        # The upper edge of the largest exponent would be Inf in float32.
        edges[:-1] = np.maximum(bits[:-1], 0).astype(np.int32).view(np.float32)
        edges[-1] = edges[-2] * 2 - edges[-3]
        return AbsHistogram(edges, self._counts[LANES:].astype(np.float64), int(self._counts[:LANES].sum()))

    def _base(self) -> int:
        """Prefix of the value just below the first bin."""
        return ((self._top + 1 - OCTAVES) << FRACTION_BITS) - 1

    def _move_up_to(self, magnitude: float) -> None:
        exponent = (int(np.float32(magnitude).view(np.int32)) >> 23) & 0xFF
        # Windows start one range above zero: denormal numbers need no octaves of their own.
        top = max(exponent, OCTAVES)
        if top > self._top:
            self._counts = _moved(self._counts, top - self._top)
            self._top = top


def _total(one: Array | None, other: Array | None) -> Array | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


def _moved(counts: Array, octaves: int) -> Array:
    """Counts whose window has moved up by whole octaves."""
    if octaves == 0:
        return counts
    gone = min(octaves * OCTAVE_BINS, BINS)
    moved = np.zeros_like(counts)
    moved[0] = counts[: LANES + gone].sum()
    moved[LANES : LANES + BINS - gone] = counts[LANES + gone :]
    return moved


def _blocks(values: Array, channel_axis: int | None) -> Array:
    """`[outer, channels, inner]`, the channels being one where nobody asks for them."""
    if channel_axis is None:
        return values.reshape(1, 1, -1)
    axis = channel_axis % values.ndim
    return values.reshape(int(np.prod(values.shape[:axis])), values.shape[axis], -1)


def _what_is_not_finite(values: Array) -> str:
    nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    return " and ".join(f"{count} {word}" for count, word in ((nan, "NaN"), (inf, "Inf")) if count)


class Compiled(NamedTuple):
    """The loops, as machine code."""

    survey: Callable[[Array], tuple[float, float, Array, Array]]
    fill: Callable[[Array, int, Array], None]


@cache
def compiled() -> Compiled:
    """Compile the loops, or load them from numba's cache.

    Raises:
        MissingExtraError: numba is not installed.
    """
    try:
        import numba
    except ImportError as error:
        raise MissingExtraError("numba", "quantize", "INT8 calibration") from error
    # `fastmath` lets the sums be vectorised; the bits of the values are compared as integers and stay exact.
    survey = numba.njit("Tuple((f4, f4, f8[::1], f8[::1]))(f4[:,:,::1])", nogil=True, cache=True, fastmath=True)(
        _survey
    )
    fill = numba.njit("void(i4[::1], i8, i8[::1])", nogil=True, cache=True)(_fill)
    return Compiled(survey, fill)


def _survey(blocks: Array) -> tuple[float, float, Array, Array]:
    """Lowest and highest value, and the sum and the sum of squares of each channel, in one sweep.

    Floats are compared as integers: with the lower bits of negative numbers turned over, their bit patterns are in
    the order of their values (IEEE 754-2019, 5.10). Comparing integers is vectorised, minding NaN is not.
    """
    outer, channels, inner = blocks.shape
    bits = blocks.view(np.int32)
    sums, energy = np.zeros(channels, np.float64), np.zeros(channels, np.float64)
    low, high = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
    for i in range(outer):
        for j in range(channels):
            total, squares = np.float32(0), np.float32(0)
            for k in range(inner):
                pattern = bits[i, j, k]
                key = pattern ^ ((pattern >> np.int32(31)) & np.int32(0x7FFFFFFF))
                low, high = min(low, key), max(high, key)
                total += blocks[i, j, k]
                squares += blocks[i, j, k] * blocks[i, j, k]
            sums[j] += total
            energy[j] += squares
    ends = np.array([low, high], np.int32)
    for n in range(2):
        ends[n] ^= (ends[n] >> np.int32(31)) & np.int32(0x7FFFFFFF)
    values = ends.view(np.float32)
    return values[0], values[1], sums, energy


def _fill(bits: Array, base: int, counts: Array) -> None:
    """Count values given as bit patterns; the first slots take what lies below the window, each its share.

    Half the values of a network are zeros: in one slot each would wait for the one before to be written. Slots are
    worked out a stretch at a time, which is vectorised; counting is not.
    """
    below = np.int32(base + 1 - LANES)
    slots = np.empty(_STRETCH, np.uint32)
    for start in range(0, bits.size, _STRETCH):
        count = min(_STRETCH, bits.size - start)
        for k in range(count):
            slot = ((bits[start + k] & np.int32(0x7FFFFFFF)) >> np.int32(_SHIFT)) - below
            slots[k] = np.uint32(max(slot, np.int32(k & (LANES - 1))))
        for k in range(count):
            counts[slots[k]] += 1
