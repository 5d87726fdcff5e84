"""Write the FP16 graph that a choice describes: FP16 tensors, and one cast per tensor where the two types meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deploykit.precision.fp16_choice import LARGEST, MASK_VALUE, Fp16Choice
from deploykit.precision.fp16_graph import Fp16Graph, HalfForm, captured, subgraphs

if TYPE_CHECKING:
    import onnx

_NOTHING = HalfForm(frozenset(), frozenset())


def rewrite(graph: Fp16Graph, choice: Fp16Choice, *, keep_io_types: bool) -> None:
    """Cast the model of a graph in place.

    Args:
        graph: The FP32 graph. Its look-up tables no longer hold afterwards.
        choice: What stays FP32.
        keep_io_types: Inputs and outputs stay float32.
    """
    _Rewriter(graph, choice, keep_io_types).run()


class _Rewriter:
    """Each float32 tensor has up to two versions, one per type; the first one made is the native one.

    The native version keeps the tensor's name, except for a graph output of the other type: that name belongs to the
    output. Whoever reads the other type gets it from a cast, made once, before its first reader.
    """

    def __init__(self, graph: Fp16Graph, choice: Fp16Choice, keep_io_types: bool) -> None:
        self._graph = graph
        self._proto = graph.model.graph
        self._choice = choice
        self._io_half = not keep_io_types
        self._forms = {name: self._form(node) for name, node in graph.nodes.items()}
        self._names: dict[tuple[str, bool], str] = {}
        self._taken = _all_names(self._proto)
        self._nodes: list[onnx.NodeProto] = []

    def run(self) -> None:
        """Rewrite the graph."""
        self._cast_initializers()
        self._declare_inputs()
        for node in list(self._proto.node):
            self._rewrite_node(node)
        self._declare_outputs()
        del self._proto.node[:]
        self._proto.node.extend(self._nodes)
        self._retype_value_info()

    def _form(self, node: onnx.NodeProto) -> HalfForm:
        if node.name in self._choice.kept:
            return _NOTHING
        return self._graph.half_form(node) or _NOTHING

    def _cast_initializers(self) -> None:
        from onnx import numpy_helper

        kept = []
        for tensor in self._proto.initializer:
            if tensor.name not in self._graph.constants:
                kept.append(tensor)
                continue
            values = self._mended(tensor.name)
            for half in sorted(self._types_read(tensor.name)):
                name = self._version_name(tensor.name, half)
                kept.append(numpy_helper.from_array(_to_half(values) if half else values, name))
        del self._proto.initializer[:]
        self._proto.initializer.extend(kept)

    def _mended(self, tensor: str) -> np.ndarray[Any, Any]:
        values = self._graph.constants[tensor]
        if tensor not in self._choice.masks:
            return values
        return np.where(np.isfinite(values), np.maximum(values, np.float32(MASK_VALUE)), values)

    def _types_read(self, tensor: str) -> set[bool]:
        """In which types the readers of an initializer want it: float32 is False, FP16 is True."""
        reads = self._graph.readers.get(tensor, ())
        types = {position in self._forms[node.name].inputs for node, position in reads}
        return types | ({self._io_half} if tensor in self._graph.outputs else set())

    def _declare_inputs(self) -> None:
        for value in self._proto.input:
            if self._graph.is_float(value.name):
                self._names[value.name, self._io_half] = value.name
                self._retype(value, self._io_half)

    def _rewrite_node(self, node: onnx.NodeProto) -> None:
        form = self._forms[node.name]
        for position, name in enumerate(node.input):
            if self._graph.is_float(name):
                node.input[position] = self._read(name, position in form.inputs)
        self._rename_captured(node)
        for position, name in enumerate(node.output):
            if self._graph.is_float(name):
                half = position in form.outputs
                node.output[position] = self._version_name(name, half)
                if half:
                    _set_output_type(node)
        self._nodes.append(node)

    def _rename_captured(self, node: onnx.NodeProto) -> None:
        """Branches and loop bodies compute in float32, so what they read from outside must be that."""
        for name in filter(self._graph.is_float, captured(node)):
            renamed = self._read(name, False)
            for inner in subgraphs(node) if renamed != name else ():
                _rename_reads(inner, name, renamed)

    def _declare_outputs(self) -> None:
        for value in self._proto.output:
            if self._graph.is_float(value.name):
                self._read(value.name, self._io_half)
                self._retype(value, self._io_half)

    def _read(self, tensor: str, half: bool) -> str:
        """Name of a tensor in a type; casts it if nobody did before."""
        from onnx import TensorProto, helper

        if (tensor, half) not in self._names:
            source = self._names[tensor, not half]
            name = self._version_name(tensor, half)
            to = TensorProto.FLOAT16 if half else TensorProto.FLOAT
            self._nodes.append(helper.make_node("Cast", [source], [name], name=f"Cast_{name}", to=to))
        return self._names[tensor, half]

    def _version_name(self, tensor: str, half: bool) -> str:
        """Name a version that is made now. An output's own name belongs to the version that leaves the graph."""
        is_first = (tensor, not half) not in self._names
        leaves = tensor in self._graph.outputs
        name = tensor if (half == self._io_half if leaves else is_first) else self._fresh(tensor, half)
        self._names[tensor, half] = name
        return name

    def _fresh(self, tensor: str, half: bool) -> str:
        name = f"{tensor}_{'fp16' if half else 'fp32'}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _retype_value_info(self) -> None:
        halves = {name for (_, half), name in self._names.items() if half}
        for value in self._proto.value_info:
            if value.name in halves:
                self._retype(value, True)

    @staticmethod
    def _retype(value: onnx.ValueInfoProto, half: bool) -> None:
        from onnx import TensorProto

        value.type.tensor_type.elem_type = TensorProto.FLOAT16 if half else TensorProto.FLOAT


def _to_half(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounded to nearest; what is finite stays finite."""
    limited = np.where(np.isfinite(values), np.clip(values, -LARGEST, LARGEST), values)
    return limited.astype(np.float16)


def _set_output_type(node: onnx.NodeProto) -> None:
    """Operators whose attributes say what type they write."""
    from onnx import TensorProto, helper, numpy_helper

    if node.op_type == "Cast":
        _set_attribute(node, helper.make_attribute("to", TensorProto.FLOAT16))
    elif node.op_type == "ConstantOfShape":
        given = [attribute.t for attribute in node.attribute if attribute.name == "value"]
        value = numpy_helper.to_array(given[0]) if given else np.zeros(1, np.float32)
        _set_attribute(node, helper.make_attribute("value", numpy_helper.from_array(_to_half(value))))


def _set_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    others = [other for other in node.attribute if other.name != attribute.name]
    del node.attribute[:]
    node.attribute.extend([*others, attribute])


def _all_names(graph: onnx.GraphProto) -> set[str]:
    values = (*graph.input, *graph.output, *graph.initializer)
    names = {value.name for value in values} | {name for node in graph.node for name in (*node.input, *node.output)}
    for node in graph.node:
        for inner in subgraphs(node):
            names |= _all_names(inner)
    return names


def _rename_reads(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for position, name in enumerate(node.input):
            if name == old:
                node.input[position] = new
        for inner in subgraphs(node):
            _rename_reads(inner, old, new)
