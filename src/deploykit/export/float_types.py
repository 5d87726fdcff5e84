"""A graph in another floating type → the same in float32: weights, casts, constants, inputs, outputs, branches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

_FLOAT, _FLOAT16, _DOUBLE, _BFLOAT16 = 1, 10, 11, 16
HALF = (_FLOAT16, _BFLOAT16)
ALL = (_FLOAT16, _BFLOAT16, _DOUBLE)
# Attributes that hold an element type: Cast's `to`, and `dtype` of the operators that make tensors.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "stash_type")


def to_float32(model: onnx.ModelProto, types: tuple[int, ...]) -> bool:
    """Make every tensor of some floating types float32, in place.

    A half keeps its value; only the rounding after each operator goes. A double is rounded.

    Args:
        model: Changed in place; its weights are inside.
        types: `HALF`, or `ALL` for a graph whose weights are double. Doubles in a graph of float32 weights are there
            on purpose and stay.

    Returns:
        Whether there was anything of these types.
    """
    changed = False
    for graph in _graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in types:
                value.type.tensor_type.elem_type = _FLOAT
                changed = True
        changed |= sum(_converted(tensor, types) for tensor in graph.initializer) > 0
        changed |= (
            sum(_converted_attribute(attribute, types) for node in graph.node for attribute in node.attribute) > 0
        )
    return changed


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for branch in (attribute.g, *attribute.graphs):
                if branch.node or branch.output:
                    yield from _graphs(branch)


def _converted_attribute(attribute: onnx.AttributeProto, types: tuple[int, ...]) -> bool:
    if attribute.name in _TYPE_ATTRIBUTES and attribute.i in types:
        attribute.i = _FLOAT
        return True
    return sum(_converted(tensor, types) for tensor in (attribute.t, *attribute.tensors)) > 0


def _converted(tensor: onnx.TensorProto, types: tuple[int, ...]) -> bool:
    from onnx import numpy_helper

    if tensor.data_type not in types:
        return False
    values = numpy_helper.to_array(tensor).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return True
