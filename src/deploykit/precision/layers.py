"""Which nodes of a graph can compute in INT8, and which tensors their inputs and outputs pass through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deploykit.base.errors import UsageError
from deploykit.precision.graph import Array, Graph, attribute

if TYPE_CHECKING:
    import onnx

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
POOLS = ("AveragePool", "GlobalAveragePool")

MOVEMENT = frozenset(
    ("DepthToSpace", "Dropout", "Flatten", "Identity", "MaxPool", "Reshape", "SpaceToDepth", "Squeeze", "Transpose",
     "Unsqueeze")
)  # fmt: skip
"""Operators of one tensor whose output holds the same range of values: both sides share one scale."""

_NEVER_NEGATIVE = frozenset(("Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt"))
_KEEPS_SIGN = MOVEMENT | frozenset(
    ("Add", "AveragePool", "Clip", "Concat", "GlobalAveragePool", "GlobalMaxPool", "Mul", "ReduceMean",
     "Slice", "Split")
)  # fmt: skip

_QUANTIZED = frozenset(
    ("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear", "MatMulNBits",
     "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
)  # fmt: skip

OLDEST_OPSET = 13
"""Per-channel QuantizeLinear and DequantizeLinear begin here."""


@dataclass(frozen=True)
class Layer:
    """A node with constant weights.

    Attributes:
        node: Its name.
        op_type: Conv, ConvTranspose, Gemm or MatMul.
        data: The activation it reads, input 0.
        weight: The initializer of input 1.
        axis: The weight's output-channel axis; None: one scale for all of it.
        bias: The initializer of input 2, where there is one.
        output: What it writes.
    """

    node: str
    op_type: str
    data: str
    weight: str
    axis: int | None
    bias: str | None
    output: str


def refuse_quantized(graph: Graph) -> None:
    """Refuse a graph that is quantized already, or too old for what we would write.

    Raises:
        UsageError: Names the nodes.
    """
    found = [
        f"{node.name} ({node.op_type})"
        for node in graph.nodes.values()
        if node.op_type in _QUANTIZED or node.op_type.startswith("QLinear")
    ]
    if found:
        more = f" and {len(found) - 6} more" if len(found) > 6 else ""
        raise UsageError(
            f"the model is already quantized: {', '.join(found[:6])}{more}; give the float model that it was made from"
        )
    if graph.opset < OLDEST_OPSET:
        raise UsageError(
            f"the graph has operator set {graph.opset}; INT8 needs {OLDEST_OPSET} or later: export it again with "
            f"--opset {OLDEST_OPSET}"
        )


def find_layers(graph: Graph) -> tuple[dict[str, Layer], dict[str, str]]:
    """Every Conv, ConvTranspose, Gemm and MatMul of the main graph.

    Returns:
        Node → layer for those that can be quantized; node → why not for the others.
    """
    layers: dict[str, Layer] = {}
    kept: dict[str, str] = {}
    for name, node in graph.nodes.items():
        if node.op_type not in WEIGHTED or node.domain not in ("", "ai.onnx"):
            continue
        reason = _why_not(graph, node)
        if reason is not None:
            kept[name] = reason
            continue
        bias = node.input[2] if len(node.input) > 2 and node.input[2] in graph.initializers else None
        layers[name] = Layer(
            name, node.op_type, node.input[0], node.input[1], _channel_axis(graph, node), bias, node.output[0]
        )
    return layers, kept


def _why_not(graph: Graph, node: onnx.NodeProto) -> str | None:
    from onnx import TensorProto

    data, weight = node.input[0], node.input[1]
    constant = graph.initializers.get(weight)
    if data in graph.initializers:
        return "its first input is a constant"
    if constant is None:
        return "both inputs are activations" if node.op_type == "MatMul" else "its weights are computed in the graph"
    if constant.data_type != TensorProto.FLOAT:
        return "its weights are not float32"
    if node.op_type in ("Gemm", "MatMul") and len(constant.dims) != 2:
        return f"its weights have {len(constant.dims)} dimensions"
    return None


def _channel_axis(graph: Graph, node: onnx.NodeProto) -> int | None:
    """Where the output channels stand in the weights (ONNX: Conv [M, C/g, …], ConvTranspose [C, M/g, …])."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        # With groups an index on axis 1 is a channel of every group, which one scale would have to serve.
        return 1 if attribute(node, "group", 1) == 1 else None
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return 1


def is_bare_gemm(node: onnx.NodeProto) -> bool:
    """Whether a Gemm multiplies and no more."""
    return len(node.input) == 2 and not attribute(node, "transA", 0)


def data_channel_axis(layer: Layer) -> int:
    """The axis of a layer's input that its weights run over."""
    return 1 if layer.op_type in ("Conv", "ConvTranspose") else -1


def weight_energy(graph: Graph, layer: Layer) -> Array:
    """Sum of squared weights that meet each input channel, float64 [C]."""
    weights = graph.constant(layer.weight)
    if weights is None:
        raise AssertionError(f"{layer.weight} is an initializer of a layer")
    squares = np.square(weights, dtype=np.float64)
    if layer.op_type == "Conv":
        group = attribute(graph.nodes[layer.node], "group", 1)
        grouped = squares.reshape(group, weights.shape[0] // group, weights.shape[1], -1)
        return np.asarray(grouped.sum(axis=(1, 3))).reshape(-1)
    if layer.op_type == "ConvTranspose":
        return np.asarray(squares.reshape(weights.shape[0], -1).sum(axis=1))
    return np.asarray(squares.sum(axis=layer.axis))


def residual_adds(graph: Graph, convolutions: frozenset[str]) -> list[str]:
    """Additions of two activations of one shape, at least one of them straight out of a convolution.

    Only these: a transformer's residual stream, which no convolution writes, passes a normalisation next and loses
    more in INT8 than an addition costs.

    Args:
        graph: The graph.
        convolutions: Nodes that will be quantized.
    """
    found = []
    for name, node in graph.nodes.items():
        if node.op_type != "Add" or any(tensor in graph.initializers for tensor in node.input):
            continue
        writers = [graph.producer.get(tensor) for tensor in node.input]
        shapes = [graph.shapes.get(tensor) for tensor in node.input]
        if shapes[0] == shapes[1] and any(w is not None and w.name in convolutions for w in writers):
            found.append(name)
    return found


def after_activation(graph: Graph, tensor: str) -> tuple[str, tuple[str, ...]]:
    """Follow a tensor through the Relu and Clip nodes that alone read it and let nothing negative pass.

    Returns:
        The last tensor, and the nodes on the way.
    """
    passed: list[str] = []
    while (reader := graph.only_reader(tensor)) is not None and is_rectifier(graph, reader):
        passed.append(reader.name)
        tensor = reader.output[0]
    return tensor, tuple(passed)


def is_rectifier(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether a node is Relu, or Clip with a constant lower bound of 0 and a constant upper bound or none."""
    if node.op_type == "Relu":
        return True
    if node.op_type != "Clip":
        return False
    low, high = clip_bounds(graph, node)
    return low == 0.0 and high is not None


def clip_bounds(graph: Graph, node: onnx.NodeProto) -> tuple[float | None, float | None]:
    """Lower and upper bound of a Clip; infinite where left out, None where computed in the graph."""
    bounds: list[float | None] = []
    for position, default in ((1, -np.inf), (2, np.inf)):
        name = node.input[position] if len(node.input) > position else ""
        value = graph.constant(name) if name else np.asarray(default)
        bounds.append(None if value is None else float(value.reshape(-1)[0]))
    return bounds[0], bounds[1]


def never_negative(graph: Graph) -> frozenset[str]:
    """Tensors that cannot be negative whatever the input, by the operators that they come from.

    What calibration has seen is no proof: the next image may hold what no sample did.
    """
    found: set[str] = set()
    for node in graph.model.graph.node:
        if _writes_no_negatives(graph, node, found):
            found.update(name for name in node.output if name)
    return frozenset(found)


def _writes_no_negatives(graph: Graph, node: onnx.NodeProto, known: set[str]) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type in _NEVER_NEGATIVE:
        return True
    if node.op_type == "Clip":
        low, _ = clip_bounds(graph, node)
        if low is not None and low >= 0.0:
            return True
    if node.op_type not in _KEEPS_SIGN:
        return False
    several = node.op_type in ("Add", "Concat", "Mul")
    return all(_is_nonnegative(graph, name, known) for name in (node.input if several else node.input[:1]))


def _is_nonnegative(graph: Graph, name: str, known: set[str]) -> bool:
    if name in known:
        return True
    value = graph.constant(name)
    return value is not None and value.size > 0 and bool((value >= 0).all())
