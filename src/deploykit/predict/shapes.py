"""Shapes of every tensor of a graph: ONNX's inference, helped over shape arithmetic.

Exporters write sizes as little programs (`Shape` → `Gather` → `Mul` → `Slice`), which ONNX's inference only follows in
part. Here such programs are run as soon as their inputs are known, and inference is asked again, until nothing new
comes. Weights are set aside first: only their shapes matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deploykit.base.errors import UsageError

if TYPE_CHECKING:
    import onnx

_SMALL_ELEMENTS = 4096
"""Constants up to this size may be part of shape arithmetic; larger ones are weights."""
_MOST_ROUNDS = 100


def settle_shapes(model: onnx.ModelProto, path: Path) -> dict[str, tuple[int, ...]]:
    """Infer every shape that can be known without running the network. Changes `model`: weights lose their values.

    Returns:
        Name → shape of the constants.

    Raises:
        UsageError: Inference finds the graph to be invalid.
    """
    constants = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    _set_weights_aside(model)
    _forget_inner_shapes(model)
    values = _small_values(model)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    for _ in range(_MOST_ROUNDS):
        _infer(model, path)
        if not _run_arithmetic(model, values, opsets):
            break
    constants.update({name: array.shape for name, array in values.items()})
    return constants


def known_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Name → shape of every tensor whose shape is fully known."""
    graph = model.graph
    return dict(_fixed((*graph.input, *graph.value_info, *graph.output)))


def _fixed(values: Iterable[onnx.ValueInfoProto]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for value in values:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            yield value.name, tuple(dim.dim_value for dim in tensor.shape.dim)


def _set_weights_aside(model: onnx.ModelProto) -> None:
    """Large initializers become inputs of the same type and shape."""
    import onnx

    graph = model.graph
    small = [tensor for tensor in graph.initializer if math.prod(tensor.dims) <= _SMALL_ELEMENTS and _inside(tensor)]
    names = {tensor.name for tensor in small}
    listed = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.name not in names and tensor.name not in listed:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    del graph.initializer[:]
    graph.initializer.extend(small)


def _inside(tensor: onnx.TensorProto) -> bool:
    import onnx

    return bool(tensor.data_location != onnx.TensorProto.EXTERNAL)


def _forget_inner_shapes(model: onnx.ModelProto) -> None:
    """What the file says of inner tensors was written for its own batch."""
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _infer(model: onnx.ModelProto, path: Path) -> None:
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise UsageError(f"{path}: ONNX cannot infer the shapes ({error}); is it a valid model?") from error
    model.CopyFrom(inferred)


def _small_values(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    import onnx

    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def _run_arithmetic(model: onnx.ModelProto, values: dict[str, np.ndarray[Any, Any]], opsets: dict[str, int]) -> bool:
    """Run every node whose inputs are known and whose result is not; known results become initializers."""
    import onnx

    shapes = known_shapes(model)
    fresh: dict[str, np.ndarray[Any, Any]] = {}
    for node in model.graph.node:
        if node.output[0] in values or node.output[0] in fresh:
            continue
        fresh.update(_results(node, shapes, {**values, **fresh} if _reads(node, fresh) else values, opsets))
    values.update(fresh)
    done = set(values)
    kept = [node for node in model.graph.node if node.output[0] not in done]
    if len(kept) < len(model.graph.node):
        del model.graph.node[:]
        model.graph.node.extend(kept)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in fresh.items())
    return bool(fresh)


def _reads(node: onnx.NodeProto, names: dict[str, np.ndarray[Any, Any]]) -> bool:
    return any(name in names for name in node.input)


def _results(
    node: onnx.NodeProto,
    shapes: dict[str, tuple[int, ...]],
    values: dict[str, np.ndarray[Any, Any]],
    opsets: dict[str, int],
) -> dict[str, np.ndarray[Any, Any]]:
    if node.op_type == "Shape" and node.input[0] in shapes and not node.attribute:
        return {node.output[0]: np.array(shapes[node.input[0]], dtype=np.int64)}
    if any(name and name not in values for name in node.input) or node.domain not in ("", "ai.onnx"):
        return {}
    return _evaluated(node, values, opsets)


def _evaluated(
    node: onnx.NodeProto, values: dict[str, np.ndarray[Any, Any]], opsets: dict[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    from onnx.reference import ReferenceEvaluator

    try:
        results = ReferenceEvaluator(node, opsets=opsets).run(None, {name: values[name] for name in node.input if name})
    except Exception:  # noqa: BLE001 - the evaluator raises whatever its operator raises; an unknown value is no fault
        return {}
    if any(not isinstance(result, np.ndarray) or result.size > _SMALL_ELEMENTS for result in results):
        return {}
    return dict(zip(node.output, results, strict=False))
