"""An FP16 graph that really rounds: computed in float32, with each FP16 tensor rounded to FP16 as it is made.

ONNX Runtime's CPU provider computes FP16 graphs in float32 from end to end, so a value that overflows between two nodes
comes out right there and as Inf on a GPU. Here such a value becomes Inf. Sums inside one operator are float32, as in a
GPU's tensor cores. Fused kernels of a GPU round less often than this does: read the result as a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deploykit.precision import onnx_files

if TYPE_CHECKING:
    import onnx


def write_rounding_model(model: Path, target: Path) -> None:
    """Write the rounding form of an FP16 model. Inputs and outputs keep their names, types and shapes.

    Args:
        model: An ONNX file as `precision.cast` makes it: no FP16 inside branches and loops.
        target: Where to write, with a data file beside it where one protobuf cannot hold the weights.
    """
    loaded = onnx_files.load(model)
    add_rounding(loaded, onnx_files.load_skeleton(model))
    onnx_files.save(loaded, target)


def add_rounding(model: onnx.ModelProto, skeleton: onnx.ModelProto) -> None:
    """Turn an FP16 model into its rounding form in place.

    Args:
        model: The model.
        skeleton: The same, possibly without the bytes of its weights.
    """
    graph = model.graph
    halves = _half_tensors(skeleton)
    nodes = list(_widened_inputs(graph, halves))
    for node in graph.node:
        _rename(node.input, halves)
        _compute_in_float(node)
        rounded = [name for name in node.output if name in halves]
        _rename(node.output, {name: f"{name}__exact" for name in rounded})
        nodes.append(node)
        for name in rounded:
            nodes += _rounding(name, halves[name])
    nodes += _narrowed_outputs(graph, halves)
    del graph.node[:]
    graph.node.extend(nodes)
    _widen_initializers(graph)
    del graph.value_info[:]


def _half_tensors(model: onnx.ModelProto) -> dict[str, str]:
    """FP16 tensors of the main graph → the name of their float32 form.

    Inputs and outputs keep their own names for what crosses the border; constants are simply written wider.
    """
    from onnx import TensorProto, shape_inference

    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    half = {v.name for v in graph.value_info if v.type.tensor_type.elem_type == TensorProto.FLOAT16}
    border = {v.name for v in (*graph.input, *graph.output) if v.type.tensor_type.elem_type == TensorProto.FLOAT16}
    return {name: name for name in half - border} | {name: f"{name}__float" for name in border}


def _widened_inputs(graph: onnx.GraphProto, halves: dict[str, str]) -> Iterator[onnx.NodeProto]:
    for value in graph.input:
        if value.name in halves:
            yield _cast(value.name, halves[value.name], half=False)


def _narrowed_outputs(graph: onnx.GraphProto, halves: dict[str, str]) -> Iterator[onnx.NodeProto]:
    inputs = {value.name for value in graph.input}
    for value in graph.output:
        if value.name in halves and value.name not in inputs:
            yield _cast(halves[value.name], value.name, half=True)


def _rounding(name: str, target: str) -> list[onnx.NodeProto]:
    return [
        _cast(f"{name}__exact", f"{name}__rounded", half=True),
        _cast(f"{name}__rounded", target, half=False),
    ]


def _cast(source: str, target: str, *, half: bool) -> onnx.NodeProto:
    from onnx import TensorProto, helper

    to = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    return helper.make_node("Cast", [source], [target], name=f"round:{target}", to=to)


def _rename(names: MutableSequence[str], renamed: Mapping[str, str]) -> None:
    for position, name in enumerate(names):
        names[position] = renamed.get(name, name)


def _compute_in_float(node: onnx.NodeProto) -> None:
    """Attributes that ask for FP16 ask for float32; the rounding comes after the node."""
    from onnx import TensorProto, numpy_helper

    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT16:
            attribute.i = TensorProto.FLOAT
        elif attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT16:
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float32)))


def _widen_initializers(graph: onnx.GraphProto) -> None:
    from onnx import TensorProto, numpy_helper

    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
