"""What the FP16 cast reads off an ONNX graph: types, constants, readers, and which nodes ONNX defines in FP16."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from deploykit.base.errors import UsageError

if TYPE_CHECKING:
    import onnx

_DEFAULT_DOMAINS = ("", "ai.onnx")

COORDINATES = {
    "Resize": {1, 2}, "Upsample": {1}, "GridSample": {1}, "Range": {0, 1, 2}, "NonMaxSuppression": {0}, "RoiAlign": {1},
    "MaxRoiPool": {1}, "AffineGrid": {0},
}  # fmt: skip
"""Operator → inputs that hold sizes or coordinates: at 640 pixels FP16 has steps of half a pixel."""

_BY_ATTRIBUTE = "its type is set by an attribute"
_ON_COORDINATES = "it works on coordinates, and its features must have their type"
NEVER_CAST = {
    **dict.fromkeys(
        ("Bernoulli", "BlackmanWindow", "EyeLike", "HammingWindow", "HannWindow", "MelWeightMatrix", "Multinomial",
         "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _BY_ATTRIBUTE
    ),
    **dict.fromkeys(("AffineGrid", "MaxRoiPool", "RoiAlign"), _ON_COORDINATES),
    **dict.fromkeys(("If", "Loop", "Scan"), "branches and loop bodies compute in float32"),
    # Seen with onnxruntime 1.32, each time, where LayerNormalization is FP16 too. A GPU fuses the casts into it.
    "Gelu": "onnxruntime's CPU provider crashes while it loads a graph with this operator in FP16",
}  # fmt: skip
"""Operator → why it stays FP32 though ONNX may define it in FP16."""

MOVEMENT = frozenset((
    "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Slice",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
))  # fmt: skip
"""Operators that move values about without computing on them."""


@dataclass(frozen=True)
class HalfForm:
    """Which float32 inputs and outputs of a node become FP16, by position."""

    inputs: frozenset[int]
    outputs: frozenset[int]


def prepare(model: onnx.ModelProto) -> None:
    """Give each node of the main graph a name of its own, and make each of its constants an initializer, in place."""
    graph = model.graph
    _lift_constants(graph)
    constants = {tensor.name for tensor in graph.initializer}
    # Before IR version 4 an initializer had to be listed as an input too; it is no input.
    inputs = [value for value in graph.input if value.name not in constants]
    del graph.input[:]
    graph.input.extend(inputs)
    _name_nodes(graph)


def _lift_constants(graph: onnx.GraphProto) -> None:
    from onnx import numpy_helper

    stay = []
    for node in graph.node:
        value = _constant_value(node)
        if value is None:
            stay.append(node)
        else:
            graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    del graph.node[:]
    graph.node.extend(stay)


def _constant_value(node: onnx.NodeProto) -> np.ndarray[Any, Any] | None:
    from onnx import numpy_helper

    if node.op_type != "Constant" or node.domain not in _DEFAULT_DOMAINS or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        return np.asarray(numpy_helper.to_array(attribute.t))
    if attribute.name in ("value_float", "value_floats"):
        return np.asarray(attribute.f if attribute.name == "value_float" else attribute.floats, np.float32)
    if attribute.name in ("value_int", "value_ints"):
        return np.asarray(attribute.i if attribute.name == "value_int" else attribute.ints, np.int64)
    return None


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Names as they are where they are unique; else the operator and the first output, which is unique in a graph."""
    times = Counter(node.name for node in graph.node)
    for node in graph.node:
        if not node.name or times[node.name] > 1:
            node.name = f"{node.op_type}_{next(filter(None, node.output), 'nothing')}"


class Fp16Graph:
    """A prepared model and its look-up tables.

    Args:
        model: As `prepare` left it.
        skeleton: The same without the bytes of its weights, small enough for shape inference; None: `model`.

    Attributes:
        model: The model.
        opset: Of the default domain.
        shapes: Tensor → dimensions, None for an open one; absent where unknown.
    """

    def __init__(self, model: onnx.ModelProto, skeleton: onnx.ModelProto | None = None) -> None:
        self.model = model
        self.opset = opset_of(model)
        self._types, self.shapes = _infer(skeleton or model)
        self.nodes = {node.name: node for node in model.graph.node}

    @cached_property
    def constants(self) -> dict[str, np.ndarray[Any, Any]]:
        """float32 initializers by name."""
        from onnx import TensorProto, numpy_helper

        return {
            tensor.name: np.asarray(numpy_helper.to_array(tensor))
            for tensor in self.model.graph.initializer
            if tensor.data_type == TensorProto.FLOAT
        }

    @cached_property
    def readers(self) -> dict[str, list[tuple[onnx.NodeProto, int]]]:
        """Tensor → nodes and input positions that read it; −1 for a read from inside a branch or loop."""
        found: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        for node in self.model.graph.node:
            for position, name in enumerate(node.input):
                found[name].append((node, position))
            for name in captured(node):
                found[name].append((node, -1))
        return dict(found)

    @cached_property
    def producer(self) -> dict[str, onnx.NodeProto]:
        """Tensor → the node that computes it."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    @cached_property
    def outputs(self) -> frozenset[str]:
        """Names of the graph's outputs."""
        return frozenset(value.name for value in self.model.graph.output)

    def is_float(self, tensor: str) -> bool:
        """Whether a tensor is float32."""
        from onnx import TensorProto

        return bool(self._types.get(tensor) == TensorProto.FLOAT)

    def touches_float(self, node: onnx.NodeProto) -> bool:
        """Whether a node reads or writes float32."""
        return any(self.is_float(name) for name in (*node.input, *node.output, *captured(node)))

    def half_form(self, node: onnx.NodeProto) -> HalfForm | None:
        """What of a node can be FP16 by ONNX's own definition of it; None: nothing."""
        if node.domain not in _DEFAULT_DOMAINS or node.op_type in NEVER_CAST:
            return None
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            return None
        schema = _schema(node.op_type, self.opset)
        if schema is None or any(name and name not in self._types for name in node.output):
            return None
        skipped = COORDINATES.get(node.op_type, set())
        inputs = frozenset(
            position
            for position, name in enumerate(node.input)
            if self.is_float(name) and position not in skipped and _takes_half(schema, schema.inputs, position)
        )
        outputs = frozenset(
            position
            for position, name in enumerate(node.output)
            if self.is_float(name) and _takes_half(schema, schema.outputs, position)
        )
        return HalfForm(inputs, outputs) if inputs or outputs else None

    def reduction(self, node: onnx.NodeProto) -> int:
        """How many values of the input go into one of the output; open dimensions count as 1."""
        counts = [
            math.prod(size or 1 for size in self.shapes.get(name, ())) for name in (node.input[0], node.output[0])
        ]
        return max(1, counts[0] // max(1, counts[1]))


def opset_of(model: onnx.ModelProto) -> int:
    """Version of the default operator set.

    Raises:
        UsageError: The model does not name one.
    """
    for entry in model.opset_import:
        if entry.domain in _DEFAULT_DOMAINS:
            return int(entry.version)
    raise UsageError("the ONNX file imports no version of the standard operator set; export it again")


def captured(node: onnx.NodeProto) -> list[str]:
    """Outer tensors that a node's branches or loop bodies read."""
    names: list[str] = []
    for graph in subgraphs(node):
        inner = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        inner |= {name for child in graph.node for name in child.output}
        reads = [name for child in graph.node for name in (*child.input, *captured(child))]
        reads += [value.name for value in graph.output]
        names += [name for name in reads if name and name not in inner]
    return list(dict.fromkeys(names))


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Branches and loop bodies of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _schema(op_type: str, opset: int) -> Any | None:
    from onnx import defs

    try:
        return defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return None


def _takes_half(schema: Any, parameters: Any, position: int) -> bool:
    """Whether a formal parameter may be FP16; the last one stands for all that follow where it is variadic."""
    parameter = parameters[min(position, len(parameters) - 1)]
    for constraint in schema.type_constraints:
        if constraint.type_param_str == parameter.type_str:
            return "tensor(float16)" in constraint.allowed_type_strs
    return False


def _infer(model: onnx.ModelProto) -> tuple[dict[str, int], dict[str, tuple[int | None, ...]]]:
    """Element type and dimensions of each tensor of the main graph, as far as they can be known."""
    from onnx import shape_inference

    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    shapes: dict[str, tuple[int | None, ...]] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type:
            types[value.name] = kind.elem_type
        if kind.HasField("shape"):
            shapes[value.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
    return types, shapes
