"""Samples to bench with, and batches of them."""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
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
    draw, names = np.random.default_rng(seed), batched(inputs)

    def sample() -> Feeds:
        return {spec.name: _noise(spec, _shape_of_one(spec, spec.name in names), draw) for spec in inputs}

    first = sample()
    size = sum(array.nbytes for array in first.values())
    count = max(1, min(MOST_SAMPLES, _MOST_BYTES // max(1, size)))
    return [first, *(sample() for _ in range(count - 1))]


def feeds_from(source: SampleSource) -> list[Feeds]:
    """The first samples of real data.

    Raises:
        UsageError: There are none.
    """
    found = [dict(feeds) for feeds in itertools.islice(source.samples(), MOST_SAMPLES)]
    if not found:
        raise UsageError(f"{source.description} holds no usable sample")
    return found


def batched(inputs: Sequence[TensorSpec]) -> frozenset[str]:
    """Names of the inputs whose first dimension counts samples: the open ones, else all if they agree, else none."""
    if open_ones := {spec.name for spec in inputs if 0 in spec.dynamic_axes}:
        return frozenset(open_ones)
    agree = len({spec.shape[:1] for spec in inputs}) == 1
    return frozenset(spec.name for spec in inputs if agree and spec.shape)


def fixed_batch(inputs: Sequence[TensorSpec]) -> int | None:
    """The batch size that the model is fixed to; None where it is open. A model without batches runs one sample."""
    names = batched(inputs)
    sizes = {spec.shape[0] for spec in inputs if spec.name in names}
    if not sizes:
        return 1
    size = next(iter(sizes))
    return size if isinstance(size, int) else None


def stacked(samples: Sequence[Arrays], names: Container[str]) -> Arrays:
    """One batch of several batches of one; a single one is not copied. Inputs beside `names` are the first sample's."""
    first = samples[0]
    if len(samples) == 1:
        return first
    return {
        name: np.concatenate([sample[name] for sample in samples]) if name in names else first[name] for name in first
    }


def _shape_of_one(spec: TensorSpec, in_batch: bool) -> tuple[int, ...]:
    shape = spec.sized(1)
    return (1, *shape[1:]) if in_batch else shape


def _noise(spec: TensorSpec, shape: tuple[int, ...], draw: np.random.Generator) -> np.ndarray[Any, Any]:
    if spec.dtype in _FLOATS:
        return np.asarray(draw.standard_normal(shape, dtype=np.float32)).astype(spec.dtype)
    if spec.dtype == "bfloat16":
        raise UsageError(f"input {spec.name!r} is bfloat16, which NumPy has no type for: export with float32 inputs")
    low, high = _PIXELS if spec.dtype == "uint8" else _WHOLE_RANGE
    return np.asarray(draw.integers(low, high, shape, dtype=np.int64, endpoint=True)).astype(spec.dtype)
