"""An ONNX file reduced to what costs time: compute nodes with shapes, constants and bookkeeping taken out.

The only module of the room that touches onnx, and only when called. Weights are never loaded: their shapes suffice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.base.errors import UsageError
from deploykit.predict.shapes import known_shapes, settle_shapes

if TYPE_CHECKING:
    import onnx

_ALIASES = frozenset(
    [
        "Identity",
        "Dropout",
        "Cast",
        "CastLike",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "QuantizeLinear",
        "DequantizeLinear",
    ]
)
"""Operators that cost nothing of their own: views, and the Q/DQ pairs and casts that a neighbour absorbs."""
_SHAPE_ONLY = frozenset({"Shape", "Size", "ConstantOfShape", "Range", "Constant"})
_ELEMENT_BYTES = {2: 1, 3: 1, 9: 1, 4: 2, 5: 2, 10: 2, 16: 2, 1: 4, 6: 4, 12: 4, 7: 8, 11: 8, 13: 8}
"""ONNX TensorProto.DataType → bytes."""


@dataclass(frozen=True)
class Node:
    """One operator that costs time.

    Attributes:
        op: ONNX operator type.
        name: As in the file.
        inputs: Activation inputs, constants left out, views followed to their root.
        shapes: Shape of each activation input as this node sees it.
        constants: Position → shape of the constant inputs.
        outputs: Names of the outputs.
        output_shape: Of the first output.
        attributes: Plain values.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    constants: Mapping[int, tuple[int, ...]]
    outputs: tuple[str, ...]
    output_shape: tuple[int, ...]
    attributes: Mapping[str, Any]

    @property
    def weights(self) -> int:
        """Elements of its constant inputs."""
        return sum(math.prod(shape) for shape in self.constants.values())


@dataclass(frozen=True)
class Graph:
    """Compute nodes in execution order.

    Attributes:
        nodes: See `Node`.
        batch: Samples the shapes are for.
        input_elements: Elements of all inputs at that batch.
        input_bytes: Mean bytes an input element has.
        parameters: Elements of all constants.
        outputs: Root tensors of the graph's outputs.
        unshaped: Operators left out since their shapes cannot be known without running, with how often.
    """

    nodes: tuple[Node, ...]
    batch: int
    input_elements: int
    input_bytes: float
    parameters: int
    outputs: frozenset[str]
    unshaped: tuple[tuple[str, int], ...] = ()


def read_graph(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """Read an ONNX file at batch 1 (or at the batch that is baked in).

    Args:
        path: The file; external weights need not be there.
        shapes: Input name → full shape, for inputs whose height, width or length the file leaves open.

    Raises:
        UsageError: No ONNX file, or an input has open dimensions besides the batch and `shapes` does not fix them.
    """
    model = _load(path)
    batch = _fix_inputs(model, path, shapes or {})
    constants = settle_shapes(model, path)
    return _Reader(model, known_shapes(model), constants).graph(batch)


def _load(path: Path) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import inliner

    try:
        model = onnx.load(path, load_external_data=False)
    except (OSError, DecodeError) as error:
        raise UsageError(f"{path} cannot be read as ONNX: {error}") from error
    return inliner.inline_local_functions(model) if model.functions else model


def _fix_inputs(model: onnx.ModelProto, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Write sizes into the open dimensions of the inputs. Returns the batch."""
    constants = {tensor.name for tensor in model.graph.initializer}
    batches = []
    for value in model.graph.input:
        if value.name in constants or not value.type.HasField("tensor_type"):
            continue
        dims = value.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            given = shapes.get(value.name)
            if given is not None:
                dim.dim_value = given[axis]
            elif not dim.HasField("dim_value") and axis == 0:
                dim.dim_value = 1
            elif not dim.HasField("dim_value"):
                raise UsageError(
                    f"{path}: input {value.name!r} leaves dimension {axis} ({dim.dim_param or '?'}) open, and the work "
                    f"depends on it; give the shape with --input {value.name}:1x…"
                )
        batches.append(dims[0].dim_value if dims else 1)
    if not batches:
        raise UsageError(f"{path}: the graph has no tensor input, so there is nothing to predict")
    return max(batches[0], 1)


@dataclass
class _Reader:
    """Walks one shape-inferred model."""

    model: onnx.ModelProto
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, tuple[int, ...]]
    roots: dict[str, str] = field(default_factory=dict)
    unshaped: dict[str, int] = field(default_factory=dict)

    def graph(self, batch: int) -> Graph:
        graph = self.model.graph
        parameters = sum(math.prod(shape) for shape in self.constants.values())
        inputs = [value for value in graph.input if value.name not in self.constants]
        nodes = tuple(node for proto in graph.node if (node := self._node(proto)) is not None)
        sizes = [math.prod(self.shapes.get(value.name, ())) for value in inputs]
        width = [_ELEMENT_BYTES.get(value.type.tensor_type.elem_type, 4) for value in inputs]
        return Graph(
            nodes=nodes,
            batch=batch,
            input_elements=sum(sizes),
            input_bytes=sum(s * w for s, w in zip(sizes, width, strict=True)) / max(sum(sizes), 1),
            parameters=parameters,
            outputs=frozenset(self._root(value.name) for value in graph.output),
            unshaped=tuple(sorted(self.unshaped.items())),
        )

    def _root(self, name: str) -> str:
        return self.roots.get(name, name)

    def _node(self, proto: onnx.NodeProto) -> Node | None:
        """The node, or None where it costs nothing or cannot be sized."""
        names = [name for name in proto.input if name]
        if proto.op_type in _SHAPE_ONLY or all(name in self.constants for name in names):
            self.constants.update({name: self.shapes.get(name, (1,)) for name in proto.output})
            return None
        if proto.op_type in _ALIASES:
            self.roots[proto.output[0]] = self._root(proto.input[0])
            return None
        return self._sized(proto)

    def _sized(self, proto: onnx.NodeProto) -> Node | None:
        activations = [name for name in proto.input if name and name not in self.constants]
        wanted = [*activations, proto.output[0]]
        if any(name not in self.shapes for name in wanted):
            self.unshaped[proto.op_type] = self.unshaped.get(proto.op_type, 0) + 1
            return None
        return Node(
            op=proto.op_type,
            name=proto.name,
            inputs=tuple(self._root(name) for name in activations),
            shapes=tuple(self.shapes[name] for name in activations),
            constants={i: self.constants[name] for i, name in enumerate(proto.input) if name in self.constants},
            outputs=tuple(proto.output),
            output_shape=self.shapes[proto.output[0]],
            attributes=dict(_attributes(proto)),
        )


def _attributes(proto: onnx.NodeProto) -> Iterator[tuple[str, Any]]:
    import onnx

    for attribute in proto.attribute:
        if attribute.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            yield attribute.name, onnx.helper.get_attribute_value(attribute)
