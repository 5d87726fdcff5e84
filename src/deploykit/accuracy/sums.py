"""How far a tensor is from its reference, added up sample by sample: memory does not depend on how many there are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LARGEST_AXIS = 4096
"""Axes longer than this hold places (anchors, pixels), not channels."""


@dataclass
class ErrorSums:
    """Sums over one tensor.

    Attributes:
        signal: Σ reference².
        noise: Σ (reference − candidate)².
        max_abs_error: Largest difference.
        samples: Compared.
        not_finite: Samples with NaN or Inf where the reference has a number.
        shape_differs: Samples of another shape than the reference's; not in the sums.
    """

    signal: float = 0.0
    noise: float = 0.0
    max_abs_error: float = 0.0
    samples: int = 0
    not_finite: int = 0
    shape_differs: int = 0
    _cosines: float = 0.0
    _cosine_samples: int = 0
    _parts: dict[int, _AxisSums | None] = field(default_factory=dict)

    def add(self, reference: Array, candidate: Array) -> None:
        """Add one sample.

        Where the reference itself is NaN or Inf there is nothing to compare. Where only the candidate is, it counts as
        if 0 had come out, and the sample is counted in `not_finite`.
        """
        if reference.shape != candidate.shape:
            self.shape_differs += 1
            return
        self.samples += 1
        wanted = reference.astype(np.float64)
        given = candidate.astype(np.float64)
        comparable = np.isfinite(wanted)
        broken = bool((comparable & ~np.isfinite(given)).any())
        self.not_finite += broken
        wanted = np.where(comparable, wanted, 0.0)
        given = np.where(comparable & np.isfinite(given), given, 0.0)
        error = wanted - given
        self.signal += float((wanted**2).sum())
        self.noise += float((error**2).sum())
        self.max_abs_error = max(self.max_abs_error, float(np.abs(error).max(initial=0.0)))
        self._add_cosine(wanted, given, broken)
        self._add_parts(wanted, error)

    @property
    def cosine(self) -> float | None:
        """Mean over samples of the cosine between the flattened tensors; None where both are 0 throughout."""
        return self._cosines / self._cosine_samples if self._cosine_samples else None

    @property
    def sqnr_db(self) -> float | None:
        """See `sqnr_db`."""
        return sqnr_db(self.signal, self.noise)

    @property
    def worst_part_db(self) -> float | None:
        """Lowest SQNR over groups of channels of one scale, along the first axis after the batch or the last one.

        A group is the channels whose root mean square lies in one decade below the loudest channel's. None where all
        channels are of one decade, so that the whole tensor's SQNR says it all.
        """
        found = [group for axis in self._parts.values() if axis is not None for group in axis.group_db()]
        return min(found, default=None)

    def _add_cosine(self, wanted: Array, given: Array, broken: bool) -> None:
        lengths = float(np.linalg.norm(wanted)), float(np.linalg.norm(given))
        if lengths == (0.0, 0.0) and not broken:
            return
        self._cosine_samples += 1
        if 0.0 not in lengths and not broken:
            # Rounding may carry equal tensors a hair beyond 1.
            self._cosines += min(1.0, float((wanted * given).sum()) / (lengths[0] * lengths[1]))

    def _add_parts(self, wanted: Array, error: Array) -> None:
        # [batch, classes] has no channels: its scales differ from class to class, and top-1 says more.
        for axis in {1, wanted.ndim - 1} if wanted.ndim > 2 else ():
            size = wanted.shape[axis]
            sums = self._parts.setdefault(axis, _AxisSums(size) if 1 < size <= LARGEST_AXIS else None)
            if sums is not None and len(sums.signal) == size:
                sums.add(wanted, error, axis)
            else:
                self._parts[axis] = None  # An axis whose length changes holds no channels.


class _AxisSums:
    """Σ per index of one axis."""

    def __init__(self, size: int) -> None:
        self.signal = np.zeros(size)
        self.noise = np.zeros(size)

    def add(self, wanted: Array, error: Array, axis: int) -> None:
        others = tuple(i for i in range(wanted.ndim) if i != axis)
        self.signal += (wanted**2).sum(axis=others)
        self.noise += (error**2).sum(axis=others)

    def group_db(self) -> list[float]:
        """SQNR of each group of channels of one scale; empty where there is but one group, or no error."""
        alive = self.signal > 0
        if not alive.any():
            return []
        # Powers are squared: two decades of them are one of the values.
        decade = np.floor(np.log10(self.signal[alive].max() / self.signal[alive]) / 2).astype(int)
        groups = [
            sqnr_db(float(self.signal[alive][decade == d].sum()), float(self.noise[alive][decade == d].sum()))
            for d in np.unique(decade)
        ]
        return [group for group in groups if group is not None] if len(groups) > 1 else []


def sqnr_db(signal: float, noise: float) -> float | None:
    """10·log10(signal ÷ noise); None where there is no noise. A signal of 0 counts as the smallest normal number."""
    if noise == 0.0:
        return None
    return 10.0 * math.log10(max(signal, 2.3e-308) / noise)
