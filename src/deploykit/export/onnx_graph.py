"""Somebody's ONNX file → an artifact's graph: operators converted where they are old, types and shapes filled in."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.base.artifact import MODEL_FILE
from deploykit.base.errors import UsageError
from deploykit.base.onnx_specs import graph_outputs
from deploykit.base.protocols import Session
from deploykit.base.tensors import TensorSpec
from deploykit.export import parity
from deploykit.export.float_types import ALL, HALF, to_float32
from deploykit.export.write_onnx import SINGLE_FILE_BYTES, infer_and_check, opset_of

if TYPE_CHECKING:
    import numpy as np
    import onnx

OLDEST_OPSET = 13
"""Per-channel QuantizeLinear and DequantizeLinear begin here."""

OLDEST_IR = 4
"""Before this format an initializer was an input too, which anyone might overwrite: runtimes then fold nothing."""


def read_without_weights(path: Path) -> onnx.ModelProto:
    """Parse a file, leaving external weights where they are."""
    import onnx

    return onnx.load(path, load_external_data=False)


def batch_limits(inputs: Sequence[TensorSpec]) -> tuple[int, int | None]:
    """(1, None) where the first input's first dimension is open, else that size twice."""
    lead = inputs[0].shape[0] if inputs and inputs[0].shape else 1
    return (lead, lead) if isinstance(lead, int) else (1, None)


def normalise(
    path: Path, inputs: Sequence[TensorSpec], opset: int | None, folder: Path, source_dtype: str = "float32"
) -> tuple[str, ...]:
    """Write a file's graph as `model.onnx` into an artifact's folder.

    Args:
        path: The file; checked already for missing weights.
        inputs: Its inputs, with the sizes that the user gave and the batch called `batch`.
        opset: Operator set to convert to; None leaves it, or raises it to `OLDEST_OPSET`.
        folder: Gets `model.onnx`, and `model.onnx.data` where the weights are too large for one file.
        source_dtype: Floating type of most weights.

    Returns:
        What was changed, for the manifest.

    Raises:
        UsageError: An operator cannot be converted.
        DeploykitError: The file is not valid ONNX.
    """
    model = read_without_weights(path)
    large = external_bytes(path, model) > SINGLE_FILE_BYTES
    if not large:
        model = _with_weights(path)
    changes: list[str] = []
    wanted = opset or max(OLDEST_OPSET, opset_of(model))
    if wanted != opset_of(model):
        changes.append(f"operators converted from set {opset_of(model)} to {wanted}")
        model = _converted(model, wanted, path, large)
    if not large and to_float32(model, ALL if source_dtype == "float64" else HALF):
        changes.append("tensors of other floating types made float32")
    _drop_initializer_inputs(model)
    _size_inputs(model.graph, inputs)
    _save(model, path, folder)
    infer_and_check(folder / MODEL_FILE, strict=False)
    return tuple(changes)


def reference(source: Session, path: Path) -> parity.Reference:
    """The file itself under the runtime, as what the artifact is compared with."""
    dtypes = {spec.name: spec.dtype for spec in source.inputs}
    outputs = {spec.name: spec.dtype for spec in source.outputs}

    def answer(feeds: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        own = {name: array.astype(dtypes.get(name, array.dtype), copy=False) for name, array in feeds.items()}
        try:
            return {name: _as_float32(array, outputs.get(name)) for name, array in source.infer(own).items()}
        except Exception as error:
            # Each runtime has exceptions of its own for shapes that do not fit.
            shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in feeds.items())
            reason = " ".join(str(error).split())[:300]
            raise UsageError(
                f"{path} does not run on inputs of shape {shapes}: {reason}; give sizes that it takes for its "
                "open dimensions, with --input NAME:batchx3x480x640"
            ) from error

    return answer


def ranked_outputs(
    model: onnx.ModelProto, source: Session, feeds: dict[str, np.ndarray[Any, Any]]
) -> tuple[TensorSpec, ...]:
    """The outputs; one whose rank the file does not know, as after a branch, gets it from a run."""
    specs = graph_outputs(model.graph)
    unknown = {value.name for value in model.graph.output if not value.type.tensor_type.HasField("shape")}
    if not unknown:
        return specs
    ranks = {name: array.ndim for name, array in reference(source, Path())(feeds).items()}
    return tuple(
        spec.model_copy(update={"shape": tuple(f"{spec.name}_dim{axis}" for axis in range(ranks[spec.name]))})
        if spec.name in unknown
        else spec
        for spec in specs
    )


def external_bytes(path: Path, model: onnx.ModelProto) -> int:
    """Bytes of weights that stand in other files."""
    return sum((path.parent / location).stat().st_size for location in _locations(model))


def _with_weights(path: Path) -> onnx.ModelProto:
    import onnx

    return onnx.load(path)


def _locations(model: onnx.ModelProto) -> list[str]:
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    found = [entry.value for tensor in _get_all_tensors(model) if uses_external_data(tensor)
             for entry in tensor.external_data if entry.key == "location"]  # fmt: skip
    return list(dict.fromkeys(found))


def _converted(model: onnx.ModelProto, wanted: int, path: Path, large: bool) -> onnx.ModelProto:
    import onnx
    from onnx import version_converter

    if large:
        raise UsageError(
            f"{path} uses operator set {opset_of(model)} and holds more than 2 GB: ONNX's converter cannot load "
            f"it; export it again with set {OLDEST_OPSET} or later"
        )
    try:
        converted = version_converter.convert_version(model, wanted)
        onnx.checker.check_model(converted)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"{path} uses operator set {opset_of(model)}, and an operator of it cannot be converted to set "
            f"{wanted}: {reason}; export it again with --opset {OLDEST_OPSET} or later"
        ) from error
    return converted


def _drop_initializer_inputs(model: onnx.ModelProto) -> None:
    filled = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in filled]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, OLDEST_IR)


def _size_inputs(graph: onnx.GraphProto, inputs: Sequence[TensorSpec]) -> None:
    """Write the chosen sizes and the word `batch` in place of the file's own words, wherever these stand."""
    words: dict[str, int | str] = {}
    for value, spec in zip(graph.input, inputs, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, spec.shape, strict=True):
            if dim.dim_param and size != dim.dim_param:
                words[dim.dim_param] = size
            _set_size(dim, size)
    for value in (*graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in words:
                _set_size(dim, words[dim.dim_param])


def _set_size(dim: onnx.TensorShapeProto.Dimension, size: int | str) -> None:
    if isinstance(size, int):
        dim.dim_value = size
    else:
        dim.dim_param = size


def _save(model: onnx.ModelProto, path: Path, folder: Path) -> None:
    """Write the graph; external weights that are too large for it are copied beside it under our names."""
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    locations = _locations(model)
    names = {
        old: f"{MODEL_FILE}.data" if number == 0 else f"{MODEL_FILE}.{number}.data"
        for number, old in enumerate(locations)
    }
    for old, new in names.items():
        shutil.copyfile(path.parent / old, folder / new)
    for tensor in _get_all_tensors(model):
        if uses_external_data(tensor):
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = names[entry.value]
    onnx.save(model, folder / MODEL_FILE)


def _as_float32(array: np.ndarray[Any, Any], dtype: str | None) -> np.ndarray[Any, Any]:
    return array.astype("float32") if dtype in ("float16", "bfloat16", "float64") else array
