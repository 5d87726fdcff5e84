"""Float graph → the same function in the forms that INT8 is written for, before anything is quantized.

Names of tensors that remain keep their values, so a calibration of the original file fits the simplified graph.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from deploykit.precision.graph import Array, Graph, attribute

if TYPE_CHECKING:
    import onnx


def simplify(graph: Graph) -> Graph:
    """Fold what stands between a convolution and its pair, and write mean pooling as pooling.

    Returns:
        A graph over the same model, which was changed in place.
    """
    for change in (_fold_batch_norms, _fold_pads, _pool_means):
        if change(graph):
            graph = graph.reread()
    return graph


def _fold_batch_norms(graph: Graph) -> bool:
    """Conv → BatchNormalization becomes Conv: a pair between them would cost accuracy and hinder fusion."""
    found = [
        (node, norm)
        for node in graph.nodes.values()
        if node.op_type == "Conv"
        and (norm := graph.only_reader(node.output[0])) is not None
        and norm.op_type == "BatchNormalization"
        and all(name in graph.initializers for name in (*node.input[1:], *norm.input[1:]) if name)
        and not attribute(norm, "training_mode", 0)
    ]
    for node, norm in found:
        _fold_batch_norm(graph, node, norm)
    _remove(graph, [norm for _, norm in found])
    return bool(found)


def _fold_batch_norm(graph: Graph, node: onnx.NodeProto, norm: onnx.NodeProto) -> None:
    """y = (x − mean)·scale/√(var + epsilon) + shift, per channel (ONNX BatchNormalization)."""
    scale, shift, mean, variance = (np.asarray(graph.constant(name), np.float64) for name in norm.input[1:5])
    weight = np.asarray(graph.constant(node.input[1]), np.float64)
    bias = graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(weight.shape[0])
    factor = scale / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
    folded = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
    names = [f"{norm.output[0]}_folded_weight", f"{norm.output[0]}_folded_bias"]
    for name, value in zip(names, (folded, (np.asarray(bias) - mean) * factor + shift), strict=True):
        _add_constant(graph, name, value.astype(np.float32))
    del node.input[1:]
    node.input.extend(names)
    node.output[0] = norm.output[0]


def _fold_pads(graph: Graph) -> bool:
    """Pad with zeros → Conv becomes Conv with those pads, as the framework's own unequal padding is written."""
    found = []
    for pad in graph.nodes.values():
        pads = _spatial_zero_pads(graph, pad)
        node = graph.only_reader(pad.output[0]) if pads is not None else None
        if pads is None or node is None or node.op_type != "Conv":
            continue
        if attribute(node, "auto_pad", b"NOTSET") == b"NOTSET":
            found.append(pad)
            _set_pads(node, pads)
            node.input[0] = pad.input[0]
    _remove(graph, found)
    return bool(found)


def _spatial_zero_pads(graph: Graph, pad: onnx.NodeProto) -> list[int] | None:
    """Begins and ends of the spatial axes; None where the node does something else."""
    if pad.op_type != "Pad" or attribute(pad, "mode", b"constant") != b"constant":
        return None
    amounts = graph.constant(pad.input[1]) if len(pad.input) > 1 else None
    value = graph.constant(pad.input[2]) if len(pad.input) > 2 and pad.input[2] else np.zeros(1)
    whole = len(pad.input) < 4 or not pad.input[3]
    if amounts is None or value is None or np.any(value != 0) or not whole:
        return None
    half = amounts.size // 2
    begins, ends = [int(n) for n in amounts[:half]], [int(n) for n in amounts[half:]]
    if begins[:2] + ends[:2] != [0, 0, 0, 0] or min(begins + ends) < 0:
        return None
    return begins[2:] + ends[2:]


def _set_pads(node: onnx.NodeProto, more: list[int]) -> None:
    from onnx import helper

    pads = [own + extra for own, extra in zip(attribute(node, "pads", [0] * len(more)), more, strict=True)]
    others = [entry for entry in node.attribute if entry.name != "pads"]
    del node.attribute[:]
    node.attribute.extend([*others, helper.make_attribute("pads", pads)])


def _pool_means(graph: Graph) -> bool:
    """ReduceMean over all spatial axes is GlobalAveragePool, which both runtimes have in INT8."""
    found = [node for node in graph.nodes.values() if node.op_type == "ReduceMean" and _is_pooling(graph, node)]
    if not found:
        # Writing the list anew would leave the graph's look-up tables with nodes that are no longer in the model.
        return False
    nodes: list[onnx.NodeProto] = []
    for node in graph.model.graph.node:
        nodes += _pooling_of(graph, node) if node in found else [node]
    del graph.model.graph.node[:]
    graph.model.graph.node.extend(nodes)
    return True


def _is_pooling(graph: Graph, node: onnx.NodeProto) -> bool:
    shape, axes = graph.shapes.get(node.input[0]), _axes(graph, node)
    if shape is None or axes is None or len(shape) < 3:
        return False
    return sorted(axis % len(shape) for axis in axes) == list(range(2, len(shape)))


def _axes(graph: Graph, node: onnx.NodeProto) -> list[int] | None:
    """Axes are an attribute before operator set 18 and an input from then on."""
    if len(node.input) > 1:
        value = graph.constant(node.input[1])
        return None if value is None else [int(axis) for axis in value.reshape(-1)]
    axes: list[int] | None = attribute(node, "axes", None)
    return axes


def _pooling_of(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    from onnx import helper

    if attribute(node, "keepdims", 1):
        return [helper.make_node("GlobalAveragePool", node.input[:1], node.output, node.name)]
    rank = len(graph.shapes[node.input[0]])
    pooled, axes = f"{node.output[0]}_pooled", f"{node.output[0]}_spatial_axes"
    _add_constant(graph, axes, np.arange(2, rank))
    return [
        helper.make_node("GlobalAveragePool", node.input[:1], [pooled], node.name),
        helper.make_node("Squeeze", [pooled, axes], node.output, f"{node.name}_squeeze"),
    ]


def bare_gemms(graph: Graph, left_out: Collection[str]) -> Graph:
    """Write matrix products of two dimensions as Gemm without a bias, and the bias as an Add behind it.

    onnxruntime wants an INT32 bias in its INT8 Gemm, and fuses MatMul and Add to a float Gemm before it looks for Q/DQ.

    Args:
        graph: Simplified; changed in place.
        left_out: Nodes to leave as they are.
    """
    nodes: list[onnx.NodeProto] = []
    for node in graph.model.graph.node:
        nodes.append(node)
        if node.name in left_out or node.input[1:2] == [] or node.input[1] not in graph.initializers:
            continue
        if node.op_type == "MatMul" and len(graph.shapes.get(node.input[0], ())) == 2:
            node.op_type = "Gemm"
        elif node.op_type == "Gemm" and (bias := _take_bias(graph, node)) is not None:
            nodes.append(bias)
    del graph.model.graph.node[:]
    graph.model.graph.node.extend(nodes)
    return graph.reread()


def _take_bias(graph: Graph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Turn Y = alpha·A·B + beta·C into a product and the Add that is returned; None where C is no constant."""
    from onnx import helper

    value = graph.constant(node.input[2]) if len(node.input) > 2 else None
    if value is None:
        return None
    output = node.output[0]
    bias = _add_constant(graph, f"{output}_bias", value * np.float32(attribute(node, "beta", 1.0)))
    del node.input[2:]
    node.output[0] = f"{output}_product"
    return helper.make_node("Add", [node.output[0], bias], [output], f"{node.name}_bias")


def _add_constant(graph: Graph, name: str, value: Array) -> str:
    from onnx import numpy_helper

    graph.model.graph.initializer.append(numpy_helper.from_array(value, name))
    return name


def _remove(graph: Graph, nodes: list[onnx.NodeProto]) -> None:
    for node in nodes:
        graph.model.graph.node.remove(node)
