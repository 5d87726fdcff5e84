"""A `.onnx` file: read and checked without torch. Weights kept outside must stand beside it, whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from deploykit.base import files
from deploykit.base.artifact import ModelInfo
from deploykit.base.errors import UsageError
from deploykit.base.loaded import LoadedModel
from deploykit.base.onnx_specs import DTYPE_OF_ONNX, graph_inputs, graph_outputs
from deploykit.base.tensors import TensorSpec
from deploykit.sources.request import DEFAULT_WEIGHTS, Request
from deploykit.sources.sniff import sniff

if TYPE_CHECKING:
    import onnx

_FLOATS = ("float16", "bfloat16", "float64")


def load(request: Request) -> LoadedModel:
    """Read an ONNX file's inputs; the exporter gets its path.

    Raises:
        UsageError: It is no ONNX model, lacks its external weights, or `--weights` or `--input` do not fit it.
    """
    path = Path(request.target)
    if request.weights != DEFAULT_WEIGHTS:
        raise UsageError(f"{path} carries its own weights: --weights {request.weights} has no meaning for a .onnx file")
    model = read_graph(path)
    check_external_data(path, model.graph)
    graph_outputs(model.graph)
    digest = _digest(path, model.graph)
    inputs = merged_inputs(graph_inputs(model.graph), request.inputs, path)
    info = ModelInfo(
        name=path.stem,
        reference=request.reference,
        source="onnx-file",
        weights=path.name,
        weights_digest=digest,
        source_dtype=_weights_dtype(model.graph),
    )
    return LoadedModel(
        info=info,
        kind="onnx",
        payload=path,
        inputs=inputs,
        preprocessing=None,
        default_calibration=None,
        fingerprint=digest,
    )


def read_graph(path: Path) -> onnx.ModelProto:
    """Parse the file, leaving external weights where they are.

    Raises:
        UsageError: It is no ONNX model; the message says what it is.
    """
    import onnx
    from google.protobuf.message import DecodeError

    found = sniff(path)
    if found.kind != "binary file":
        # protobuf's text forms and empty files would parse as a model without nodes.
        raise UsageError(f"{path} is not an ONNX model but {found.described}: {_advice(found.kind)}")
    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise UsageError(
            f"{path} is not an ONNX model, or a truncated one ({error}): export or copy it again"
        ) from error
    if not model.graph.node and not model.graph.output:
        raise UsageError(f"{path} is not an ONNX model: it parses, but holds no graph; export or copy it again")
    return model


def check_external_data(path: Path, graph: onnx.GraphProto) -> None:
    """Find every external weight in the model's folder, in the size that its tensor needs.

    Raises:
        UsageError: A file is missing or too short, or its path leaves the folder.
    """
    for tensor in external_tensors(graph):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        where = f"{path}: the weights of tensor {tensor.name!r} are in {entries.get('location', '')!r}"
        _check_location(where, path, entries.get("location", ""))
        file = path.parent / entries["location"]
        if not file.is_file():
            raise UsageError(f"{where}, which is missing (looked for {file}): put it beside the model")
        offset = _whole_number(where, entries.get("offset") or "0")
        length = _whole_number(where, entries.get("length") or str(onnx_bytes(tensor)))
        if file.stat().st_size < offset + length:
            raise UsageError(
                f"{where}, which has {file.stat().st_size} bytes where {offset + length} are needed: "
                "it is cut short; copy it again"
            )


def external_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor, in branches too, whose bytes are in another file."""
    for tensor in graph.initializer:
        if tensor.data_location == tensor.EXTERNAL:
            yield tensor
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.t.data_location == attribute.t.EXTERNAL:
                yield attribute.t
            for branch in (attribute.g, *attribute.graphs):
                yield from external_tensors(branch)


def merged_inputs(found: tuple[TensorSpec, ...], asked: tuple[TensorSpec, ...], path: Path) -> tuple[TensorSpec, ...]:
    """The file's inputs, with sizes from `--input` in place of open dimensions.

    Raises:
        UsageError: `--input` names no input of the file, or contradicts a fixed size or the type.
    """
    by_name = {spec.name: spec for spec in asked}
    if foreign := sorted(set(by_name) - {spec.name for spec in found}):
        raise UsageError(f"--input {foreign[0]!r}: {path} has inputs {', '.join(spec.name for spec in found)}")
    return tuple(_merged(spec, by_name[spec.name], path) if spec.name in by_name else spec for spec in found)


def onnx_bytes(tensor: onnx.TensorProto) -> int:
    """Bytes that a tensor's shape and type need."""
    from math import prod

    from onnx import helper

    return int(prod(tensor.dims)) * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _merged(spec: TensorSpec, asked: TensorSpec, path: Path) -> TensorSpec:
    fits = len(spec.shape) == len(asked.shape) and all(
        isinstance(own, str) or own == want for own, want in zip(spec.shape, asked.shape, strict=False)
    )
    # The default type of --input is float32, so only another one is a statement.
    if not fits or (asked.dtype != "float32" and asked.dtype != spec.dtype):
        raise UsageError(
            f"--input {asked.name}: {path} has it as {spec.dtype} {_shape_text(spec)}; only its open dimensions "
            "(words) can be given a size"
        )
    # A number in place of an open batch is an example's, not a limit: --batch limits the batch.
    first = spec.shape[:1] if spec.shape and isinstance(spec.shape[0], str) else asked.shape[:1]
    return spec.model_copy(update={"shape": (*first, *asked.shape[1:])})


def _check_location(where: str, path: Path, location: str) -> None:
    if not location:
        raise UsageError(f"{where}: the file says nowhere where; export it again")
    if Path(location).is_absolute():
        raise UsageError(f"{where}, an absolute path: refused, since weights must stand in the model's folder")
    if not (path.parent / location).resolve().is_relative_to(path.parent.resolve()):
        raise UsageError(f"{where}, outside the model's folder: refused; put the weights beside the model")


def _whole_number(where: str, text: str) -> int:
    if not text.isdigit():
        raise UsageError(f"{where}, with {text!r} for offset or length: the file is damaged; export it again")
    return int(text)


def _weights_dtype(graph: onnx.GraphProto) -> str:
    """The floating type of most weights, by count of values; float32 where there are none."""
    from math import prod

    sizes: dict[str, int] = {}
    for tensor in graph.initializer:
        dtype = DTYPE_OF_ONNX.get(tensor.data_type, "")
        sizes[dtype] = sizes.get(dtype, 0) + prod(tensor.dims)
    other = max(_FLOATS, key=lambda name: sizes.get(name, 0))
    return other if sizes.get(other, 0) > sizes.get("float32", 0) else "float32"


def _digest(path: Path, graph: onnx.GraphProto) -> str:
    digest = hashlib.sha256(files.sha256_file(path).encode())
    locations = {entry.value for t in external_tensors(graph) for entry in t.external_data if entry.key == "location"}
    for location in sorted(locations):
        digest.update(files.sha256_file(path.parent / location).encode())
    return digest.hexdigest()


def _advice(kind: str) -> str:
    if kind == "Git LFS pointer":
        return "fetch the real file with `git lfs pull`"
    if kind == "HTML page":
        return "the download got a page (a sign-in, an error) in place of the file; download it again"
    if kind == "state dict":
        return "it holds weights; give the architecture, and this file with --weights"
    return "give a file that an ONNX exporter wrote"


def _shape_text(spec: TensorSpec) -> str:
    return "x".join(str(size) for size in spec.shape)
