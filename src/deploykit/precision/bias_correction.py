"""What rounding weights shifts a layer's mean output by, taken back out of its bias.

Rounding errors of one output channel's weights do not average out where its inputs have a mean, and after Relu they
have. The expected shift, Σ (Ŵ − W)·E[x], is known from calibration, and the bias is float anyway (Nagel et al. 2019,
"Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.2). Pixels at the border, whose
padding is not of that mean, are taken like the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deploykit.precision.graph import Array, Graph, attribute
from deploykit.precision.int8_weights import QuantizedWeight
from deploykit.precision.layers import Layer

if TYPE_CHECKING:
    import onnx


class BiasSite(NamedTuple):
    """Where a layer's bias stands.

    Attributes:
        node: The node that adds it.
        position: Its input there.
        value: As it is, float32; zeros where a convolution has none yet.
        factor: What the node multiplies it by.
    """

    node: onnx.NodeProto
    position: int
    value: Array
    factor: float


def find_bias(graph: Graph, layer: Layer) -> BiasSite | None:
    """The constant bias of a layer: its own third input, or that of the Add that alone reads its product."""
    node = graph.nodes[layer.node]
    if layer.op_type == "ConvTranspose":
        return None
    if len(node.input) > 2 and node.input[2]:
        value = graph.constant(node.input[2])
        return None if value is None else BiasSite(node, 2, value, attribute(node, "beta", 1.0))
    if layer.op_type == "Conv":
        return BiasSite(node, 2, np.zeros(_outputs(graph, layer), np.float32), 1.0)
    return _bias_behind(graph, layer)


def _bias_behind(graph: Graph, layer: Layer) -> BiasSite | None:
    readers = graph.readers.get(layer.output, [])
    if len(readers) != 1 or layer.output in graph.outputs or readers[0][0].op_type != "Add":
        return None
    add, position = readers[0]
    value = graph.constant(add.input[1 - position])
    # More dimensions than the channels' own would be more than a bias.
    if value is None or value.size not in (1, *value.shape[-1:], _outputs(graph, layer)):
        return None
    return BiasSite(add, 1 - position, value, 1.0)


def corrected_bias(graph: Graph, layer: Layer, site: BiasSite, weight: QuantizedWeight, means: Array) -> Array | None:
    """The bias that makes up for the rounding of the weights.

    Args:
        graph: The float graph.
        layer: The layer.
        site: Its bias.
        weight: Its weights as rounded.
        means: Mean of each input channel, float64 [C].

    Returns:
        float32, broadcastable as the old one was; None where the means are not of this layer's channels.
    """
    error = np.asarray(graph.constant(layer.weight), np.float64) - weight.dequantized()
    shift = _conv_shift(error, means) if layer.op_type == "Conv" else _product_shift(graph, layer, error, means)
    if shift is None:
        return None
    return np.asarray((site.value + shift / site.factor).astype(np.float32))


def _conv_shift(error: Array, means: Array) -> Array | None:
    """error: [M, C/groups, …]. Output channel m reads the input channels of its group."""
    outputs, width = error.shape[:2]
    groups = means.size // width
    if groups * width != means.size or outputs % groups:
        return None
    by_group = error.reshape(groups, outputs // groups, width, -1).sum(axis=3)
    return np.asarray(np.einsum("gmc,gc->gm", by_group, means.reshape(groups, width))).reshape(-1)


def _product_shift(graph: Graph, layer: Layer, error: Array, means: Array) -> Array | None:
    by_output = error if layer.axis == 0 else error.T
    if by_output.shape[1] != means.size:
        return None
    return np.asarray(by_output @ means * attribute(graph.nodes[layer.node], "alpha", 1.0))


def _outputs(graph: Graph, layer: Layer) -> int:
    return int(graph.initializers[layer.weight].dims[layer.axis or 0])
