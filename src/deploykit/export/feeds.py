"""Inputs for a check: random ones that fit any model, and real ones where there are some."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.base.errors import UsageError
from deploykit.base.protocols import SampleSource
from deploykit.base.tensors import TensorSpec
from deploykit.export.shapes import BATCH, concrete_shape

Feeds = dict[str, "np.ndarray[Any, Any]"]

_BYTES = ("uint8", "int8")


def random_feeds(inputs: Sequence[TensorSpec], batch_size: int, sizes: Mapping[str, int] | None = None) -> Feeds:
    """Random inputs, the same each time.

    `sizes` gives other open dimensions than the batch, where something is known of them.

    Floating inputs are standard normal and bytes use their whole range. Wider integers are 0 or 1: as token ids,
    masks, positions or class numbers both are inside every table that has two rows.
    """
    return {spec.name: _random(spec, concrete_shape(spec, {**(sizes or {}), BATCH: batch_size})) for spec in inputs}


def real_feeds(inputs: Sequence[TensorSpec], samples: SampleSource, batch_size: int) -> Feeds | None:
    """The first samples as one batch, begun again where there are fewer; None where none can be read.

    Raises:
        UsageError: The samples lack an input.
    """
    first = list(itertools.islice(samples.samples(), batch_size))
    if not first:
        return None
    if missing := [spec.name for spec in inputs if spec.name not in first[0]]:
        raise UsageError(
            f"{samples.description} has no values for the input {missing[0]!r}; it has {', '.join(first[0])}"
        )
    rows = list(itertools.islice(itertools.cycle(first), batch_size))
    return {spec.name: _stacked(spec, rows) for spec in inputs}


def _stacked(spec: TensorSpec, rows: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    arrays = [np.asarray(row[spec.name]) for row in rows]
    batched = bool(spec.shape) and spec.shape[0] in (BATCH, len(rows))
    joined = np.concatenate(arrays) if batched else arrays[0]
    return joined.astype(numpy_dtype(spec), copy=False)


def _random(spec: TensorSpec, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(zlib.crc32(spec.name.encode()))
    dtype = numpy_dtype(spec)
    if spec.dtype in _BYTES:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    if np.issubdtype(dtype, np.floating):
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def numpy_dtype(spec: TensorSpec) -> np.dtype[Any]:
    """The NumPy type of an input.

    Raises:
        UsageError: It is bfloat16, which NumPy does not have.
    """
    if spec.dtype == "bfloat16":
        raise UsageError(f"input {spec.name!r} is bfloat16, which cannot be fed from NumPy: make it float32")
    return np.dtype(spec.dtype)
