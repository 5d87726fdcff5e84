"""`random`: noise of the right shape and type. Good for measuring speed; says nothing of accuracy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.precision.samples import Feeds, Samples

NAME = "random"

_SAMPLES = 100_000
_RANGE = re.compile(r"^(?P<name>[^=,]+)=(?P<low>-?\d+)\.\.(?P<high>-?\d+)$")
_NATURAL_RANGES = {"bool": (0, 1), "uint8": (0, 255), "int8": (-128, 127)}


def is_random(data: str) -> bool:
    """Whether `--calibration-data` asks for noise."""
    return data == NAME or data.startswith(f"{NAME}:")


def open_random(data: str, inputs: Sequence[TensorSpec], *, seed: int) -> Samples:
    """Noise for every input: standard normal for floats, uniform for whole numbers.

    Args:
        data: `random`, or `random:ids=0..30521,mask=0..1` with the lowest and highest value of whole-number inputs.
        inputs: What the model wants.
        seed: Of the noise.

    Raises:
        UsageError: A whole-number input has no range, a range is not understood, or a dimension is open.
    """
    ranges = _parse_ranges(data, inputs)
    for spec in inputs:
        if _is_whole(spec) and spec.name not in ranges:
            raise UsageError(
                f"input {spec.name!r} is {spec.dtype}: noise would be no valid ids. Give calibration data as FILE.npz, "
                f"or its lowest and highest value: --calibration-data random:{spec.name}=0..N"
            )
    shapes = {spec.name: _shape(spec) for spec in inputs}

    def load(item: int) -> Feeds:
        draw = np.random.default_rng([seed, item])
        return {spec.name: _noise(spec, shapes[spec.name], ranges, draw) for spec in inputs}

    return Samples(data, range(_SAMPLES), load, made_up=True)


def _parse_ranges(data: str, inputs: Sequence[TensorSpec]) -> dict[str, tuple[int, int]]:
    ranges = {spec.name: _NATURAL_RANGES[spec.dtype] for spec in inputs if spec.dtype in _NATURAL_RANGES}
    _, _, given = data.partition(":")
    for part in given.split(",") if given else []:
        match = _RANGE.match(part)
        if match is None or int(match["low"]) > int(match["high"]):
            raise UsageError(f"--calibration-data {data!r}: {part!r} is not NAME=LOW..HIGH, like ids=0..30521")
        if match["name"] not in {spec.name for spec in inputs}:
            raise UsageError(f"--calibration-data {data!r}: the model has no input {match['name']!r}")
        ranges[match["name"]] = int(match["low"]), int(match["high"])
    return ranges


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    return spec.sized(1) if spec.shape else ()


def _is_whole(spec: TensorSpec) -> bool:
    return not spec.dtype.endswith(("float16", "float32", "float64"))


def _noise(
    spec: TensorSpec, shape: tuple[int, ...], ranges: dict[str, tuple[int, int]], draw: np.random.Generator
) -> np.ndarray[Any, Any]:
    if not _is_whole(spec):
        return draw.standard_normal(shape, dtype=np.float32).astype(spec.dtype)
    low, high = ranges[spec.name]
    return draw.integers(low, high, shape, dtype=np.int64, endpoint=True).astype(spec.dtype)
