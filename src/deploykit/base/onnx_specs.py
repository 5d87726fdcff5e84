"""What an ONNX graph wants and returns, in our words. The one border where ONNX's type numbers are translated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec

if TYPE_CHECKING:
    import onnx

SCOPE = "deploykit.scope"
LINE = "deploykit.line"
"""Metadata of a node: the module path and the line of code that it came from."""

# Numbers of onnx.TensorProto.DataType: fixed by the file format, so that reading them needs no import of onnx.
DTYPE_OF_ONNX = {
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    16: "bfloat16",
}


def graph_inputs(graph: onnx.GraphProto) -> tuple[TensorSpec, ...]:
    """What must be fed: the graph's inputs less those that an initializer already fills.

    Raises:
        UsageError: An input is no tensor, or of a type that we have no word for.
    """
    filled = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return tuple(_spec(value, "batch") for value in graph.input if value.name not in filled)


def graph_outputs(graph: onnx.GraphProto) -> tuple[TensorSpec, ...]:
    """What the graph returns; a dimension that the file does not know is a word.

    Raises:
        UsageError: As `graph_inputs`.
    """
    return tuple(_spec(value, f"{value.name}_dim0") for value in graph.output)


def _spec(value: onnx.ValueInfoProto, nameless_lead: str) -> TensorSpec:
    """Nameless open dimensions are called `<value>_dim<axis>`, the first one of an input `batch`."""
    tensor = value.type.tensor_type
    dtype = DTYPE_OF_ONNX.get(tensor.elem_type)
    if not value.type.HasField("tensor_type") or dtype is None:
        raise UsageError(
            f"{value.name!r} is no tensor of a numeric type (ONNX type {tensor.elem_type}): "
            "deploykit takes numeric tensors in and out; cut strings, sequences and maps off the graph"
        )
    shape = tuple(
        _size(dim, nameless_lead if axis == 0 else f"{value.name}_dim{axis}")
        for axis, dim in enumerate(tensor.shape.dim)
    )
    return TensorSpec(name=value.name, dtype=dtype, shape=shape)


def _size(dim: onnx.TensorShapeProto.Dimension, nameless: str) -> int | str:
    # A negative size is how some writers say "open".
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) or nameless
