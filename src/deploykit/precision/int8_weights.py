"""Weights on a symmetric grid, one scale per output channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deploykit.precision.calibrators import STEPS
from deploykit.precision.graph import Graph
from deploykit.precision.layers import Layer

Array = np.ndarray[Any, Any]

_BIAS_STEPS = 2.0**30
"""onnxruntime writes a bias as INT32 with the step input scale × weight scale; half of INT32's range leaves room for
the sum that the bias is added to."""

SMALLEST_SCALE = 2.0**-60
"""Of weights with float32 scales: a product with an input scale stays a normal number."""
SMALLEST_HALF_SCALE = 2.0**-18
"""Of weights with FP16 scales: FP16 holds it, though subnormal, to 1 %."""


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight tensor in eight bits.

    Attributes:
        values: int8, within ±127.
        scales: float32: one a channel along `axis`, or a single one.
        axis: As in `Layer`.
    """

    values: Array
    scales: Array
    axis: int | None

    def dequantized(self) -> Array:
        """The weights that the integers stand for, float64."""
        return np.asarray(self.values * along(self.scales.astype(np.float64), self.axis, self.values.ndim))


def along(scales: Array, axis: int | None, dimensions: int) -> Array:
    """Scales shaped to multiply a tensor: `[C]` → `[1, C, 1, 1]` for axis 1 of 4."""
    return scales if axis is None else scales.reshape([-1 if i == axis else 1 for i in range(dimensions)])


def quantize_weights(
    graph: Graph, layers: Mapping[str, Layer], input_scales: Mapping[str, float], smallest_scale: float
) -> dict[tuple[str, int | None], QuantizedWeight]:
    """Quantize each weight tensor once, however many layers share it.

    Args:
        graph: The float graph.
        layers: Node → layer.
        input_scales: Node → step of its input.
        smallest_scale: What the type of the scales holds.

    Returns:
        By (weight, channel axis).
    """
    floors: dict[tuple[str, int | None], Array] = {}
    for name, layer in layers.items():
        key = (layer.weight, layer.axis)
        floor = np.maximum(_bias_floor(graph, layer, input_scales[name]), smallest_scale)
        floors[key] = np.maximum(floors[key], floor) if key in floors else floor
    return {key: quantize_weight(_required(graph, key[0]), key[1], floor) for key, floor in floors.items()}


def quantize_weight(weight: Array, axis: int | None, floor: Array) -> QuantizedWeight:
    """Round to the nearest step; the largest magnitude of a channel takes all 127.

    Args:
        weight: float32.
        axis: Channel axis; None: one scale for all.
        floor: Smallest scale allowed, broadcastable to the scales.
    """
    others = tuple(i for i in range(weight.ndim) if i != axis)
    largest = np.abs(weight).max(axis=None if axis is None else others).astype(np.float64)
    # A channel of zeros is exact at any step; with the widest one its bias fits INT32 as well as any other.
    scales = np.where(largest > 0, largest, largest.max()) / STEPS
    scales = np.maximum(scales, floor).astype(np.float32)
    values = np.clip(np.rint(weight / along(scales, axis, weight.ndim)), -STEPS, STEPS).astype(np.int8)
    return QuantizedWeight(values, scales, axis)


def _bias_floor(graph: Graph, layer: Layer, input_scale: float) -> Array:
    """Weight scale at which a channel's bias fits INT32; it matters only where the bias drowns the weights."""
    bias = graph.constant(layer.bias) if layer.bias is not None else None
    if bias is None:
        return np.zeros(())
    needed = np.abs(bias.astype(np.float64)).reshape(-1) / (input_scale * _BIAS_STEPS)
    channels = None if layer.axis is None else _required(graph, layer.weight).shape[layer.axis]
    # A bias that broadcasts, or that has no channel of its own here, bounds all channels alike.
    return needed if needed.size == channels else np.asarray(needed.max(initial=0.0))


def _required(graph: Graph, name: str) -> Array:
    value = graph.constant(name)
    if value is None:
        raise KeyError(name)
    return value
