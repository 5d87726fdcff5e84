"""Samples to bench with, and batches of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from deploykit.base.errors import UsageError
from deploykit.base.protocols import Arrays, SampleSource
from deploykit.base.tensors import TensorSpec

MOST_SAMPLES = 64
"""Different samples: enough that no cache holds them all, few enough to stay in memory."""
_MOST_BYTES = 256 << 20
_FLOATS = ("float16", "float32", "float64")
# Token ids, token types, masks and class numbers: 0 and 1 are in the range of every one of them.
_WHOLE_RANGE = (0, 1)
_PIXELS = (0, 255)

Feeds = dict[str, np.ndarray[Any, Any]]


def random_feeds(inputs: Sequence[TensorSpec], seed: int = 0) -> list[Feeds]:
    """Noise of the right shape and type, for speed only: batches of one.

    Floats are standard normal, uint8 inputs pixels; other whole numbers are 0 or 1, which every table of ids, types and
    masks has.

    Raises:
        UsageError: A dimension beside the batch is open, or a type has no noise.
    """
    draw = np.random.default_rng(seed)
    first = {spec.name: _noise(spec, draw) for spec in inputs}
    size = sum(array.nbytes for array in first.values())
    count = max(1, min(MOST_SAMPLES, _MOST_BYTES // max(1, size)))
    return [first, *({spec.name: _noise(spec, draw) for spec in inputs} for _ in range(count - 1))]


def feeds_from(source: SampleSource) -> list[Feeds]:
    """The first samples of real data.

    Raises:
        UsageError: There are none.
    """
    found = [dict(feeds) for feeds in itertools.islice(source.samples(), MOST_SAMPLES)]
    if not found:
        raise UsageError(f"{source.description} holds no usable sample")
    return found


def stacked(samples: Sequence[Arrays]) -> Arrays:
    """One batch of several batches of one. A single one is not copied."""
    if len(samples) == 1:
        return samples[0]
    return {name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}


def fixed_batch(inputs: Sequence[TensorSpec]) -> int | None:
    """The batch size that the model is fixed to; None where it is open."""
    sizes = {spec.shape[0] for spec in inputs if spec.shape}
    fixed = {size for size in sizes if isinstance(size, int)}
    return max(fixed) if fixed else None


def _noise(spec: TensorSpec, draw: np.random.Generator) -> np.ndarray[Any, Any]:
    shape = spec.sized(1) if spec.shape else ()
    if spec.dtype in _FLOATS:
        return np.asarray(draw.standard_normal(shape, dtype=np.float32)).astype(spec.dtype)
    if spec.dtype == "bfloat16":
        raise UsageError(f"input {spec.name!r} is bfloat16, which NumPy has no type for: export with float32 inputs")
    low, high = _PIXELS if spec.dtype == "uint8" else _WHOLE_RANGE
    return np.asarray(draw.integers(low, high, shape, dtype=np.int64, endpoint=True)).astype(spec.dtype)
