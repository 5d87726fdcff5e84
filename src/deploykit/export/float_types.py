"""A graph in half precision → the same in float32: weights, casts, constants, inputs and outputs, in branches too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

_FLOAT, _FLOAT16, _BFLOAT16 = 1, 10, 16
_HALF = (_FLOAT16, _BFLOAT16)
# Attributes that hold an element type: Cast's `to`, and `dtype` of the operators that make tensors.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "stash_type")


def half_to_float32(model: onnx.ModelProto) -> bool:
    """Make every float16 and bfloat16 tensor of a graph float32, in place.

    Every value keeps its meaning: all halves are float32 numbers. Only the rounding after each operator goes.

    Returns:
        Whether anything was half.
    """
    changed = False
    for graph in _graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in _HALF:
                value.type.tensor_type.elem_type = _FLOAT
                changed = True
        changed |= sum(map(_widened, graph.initializer)) > 0
        changed |= sum(_widened_attribute(attribute) for node in graph.node for attribute in node.attribute) > 0
    return changed


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for branch in (attribute.g, *attribute.graphs):
                if branch.node or branch.output:
                    yield from _graphs(branch)


def _widened_attribute(attribute: onnx.AttributeProto) -> bool:
    if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _HALF:
        attribute.i = _FLOAT
        return True
    return sum(map(_widened, (attribute.t, *attribute.tensors))) > 0


def _widened(tensor: onnx.TensorProto) -> bool:
    from onnx import numpy_helper

    if tensor.data_type not in _HALF:
        return False
    values = numpy_helper.to_array(tensor).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return True
