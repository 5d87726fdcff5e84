"""What INT8 quantization reads off an ONNX graph: who writes and reads a tensor, constants, types and shapes."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from deploykit.precision import onnx_files
from deploykit.precision.fp16_graph import captured, opset_of, prepare

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, Any]


class Tensors(NamedTuple):
    """What shape inference found of the activations of a main graph.

    Attributes:
        floats: Those that are float32.
        shapes: Dimensions, None for an open one; absent where unknown.
    """

    floats: frozenset[str]
    shapes: dict[str, tuple[int | None, ...]]


class Graph:
    """A model and its look-up tables. Names of nodes are unique and constants are initializers (`prepare`).

    Args:
        model: With its weights.
        known: What is known of its tensors.

    Attributes:
        model: The model.
        opset: Of the default domain.
        nodes: By name, in the order of execution.
    """

    def __init__(self, model: onnx.ModelProto, known: Tensors) -> None:
        prepare(model)
        self.model = model
        self.opset = opset_of(model)
        self.nodes = {node.name: node for node in model.graph.node}
        self._known = known

    def reread(self) -> Graph:
        """Look-up tables of the same model, after it was changed."""
        return Graph(self.model, self._known)

    @cached_property
    def initializers(self) -> dict[str, onnx.TensorProto]:
        """Constants by name."""
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def readers(self) -> dict[str, list[tuple[onnx.NodeProto, int]]]:
        """Tensor → nodes and input positions that read it; −1 for a read from inside a branch or loop."""
        found: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        for node in self.model.graph.node:
            for position, name in enumerate(node.input):
                if name:
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

    @cached_property
    def inputs(self) -> frozenset[str]:
        """Names of the graph's inputs."""
        return frozenset(value.name for value in self.model.graph.input)

    @property
    def float_tensors(self) -> frozenset[str]:
        """Activations that are float32, as far as shape inference knows."""
        return self._known.floats

    @property
    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Activation → dimensions, None for an open one; absent where unknown."""
        return self._known.shapes

    def constant(self, name: str) -> Array | None:
        """The value of an initializer; None where the name is no initializer."""
        from onnx import numpy_helper

        tensor = self.initializers.get(name)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def only_reader(self, tensor: str) -> onnx.NodeProto | None:
        """The node that alone reads a tensor, as its first input; None where others do or it is an output."""
        found = self.readers.get(tensor, [])
        if len(found) != 1 or found[0][1] != 0 or tensor in self.outputs:
            return None
        return found[0][0]


def load_graph(path: Path) -> Graph:
    """Read an ONNX file of any size, weights and all.

    Raises:
        UsageError: The file cannot be read.
    """
    return Graph(onnx_files.load(path), _infer(onnx_files.load_skeleton(path)))


def _infer(skeleton: onnx.ModelProto) -> Tensors:
    """What shape inference finds in a model, which may lack the bytes of its weights."""
    from onnx import TensorProto, shape_inference

    graph = shape_inference.infer_shapes(skeleton, data_prop=True).graph
    floats, shapes = set(), {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT:
            floats.add(value.name)
        if kind.HasField("shape"):
            shapes[value.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
    return Tensors(frozenset(floats), shapes)


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of an attribute, or what ONNX says it is where it is left out."""
    from onnx import helper

    for entry in node.attribute:
        if entry.name == name:
            return helper.get_attribute_value(entry)
    return default
