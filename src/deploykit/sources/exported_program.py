"""A `.pt2` file of `torch.export.save`: the graph with the shapes and ranges that it was exported with."""

from __future__ import annotations

import contextlib
import sys
import zipfile
from pathlib import Path
from typing import Any

from deploykit.base import files
from deploykit.base.artifact import ModelInfo
from deploykit.base.errors import UsageError
from deploykit.base.loaded import LoadedModel
from deploykit.base.tensors import DTYPES, TensorSpec
from deploykit.sources.modules import import_torch
from deploykit.sources.request import DEFAULT_WEIGHTS, Request
from deploykit.sources.sniff import sniff


def load(request: Request) -> LoadedModel:
    """Read an exported program.

    Raises:
        UsageError: The file is damaged or something else, or `--weights` or `--input` were given with it.
        MissingExtraError: torch is not installed.
    """
    path = Path(request.target)
    if request.weights != DEFAULT_WEIGHTS:
        raise UsageError(f"{path} carries its own weights: --weights {request.weights} has no meaning for a .pt2 file")
    if request.inputs:
        raise UsageError(f"{path} was exported with its own input shapes: --input has no meaning for a .pt2 file")
    import_torch("an exported program")
    program = _read(path)
    digest = files.sha256_file(path)
    info = ModelInfo(
        name=path.stem,
        reference=request.reference,
        source="exported-program",
        weights=path.name,
        weights_digest=digest,
        source_dtype=_dtype_of(program),
    )
    return LoadedModel(
        info=info,
        kind="exported-program",
        payload=program,
        inputs=input_specs(program, path),
        preprocessing=None,
        default_calibration=None,
        fingerprint=digest,
    )


def input_specs(program: Any, path: Path) -> tuple[TensorSpec, ...]:
    """The program's inputs in its own order; a symbolic first dimension is called `batch`.

    Raises:
        UsageError: An input is no tensor, or of a type that we have no word for.
    """
    names = program.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    return tuple(_spec(name, values.get(name), path) for name in names)


def _spec(name: str, value: Any, path: Path) -> TensorSpec:
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if dtype not in DTYPES:
        raise UsageError(f"{path}: input {name!r} is no tensor of a known type ({dtype or type(value).__name__})")
    shape: list[int | str] = [int(size) if str(size).isdigit() else str(size) for size in value.shape]
    if shape and isinstance(shape[0], str):
        shape[0] = "batch"
    return TensorSpec(name=name, dtype=dtype, shape=tuple(shape))


def _read(path: Path) -> Any:
    import torch

    kind = sniff(path).kind
    if kind not in ("exported program", "zip archive"):
        raise UsageError(f"{path} is not an exported program but {_described(path)}: give what torch.export.save wrote")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return torch.export.load(str(path))
    except (RuntimeError, ValueError, KeyError, AssertionError, OSError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"{path} is not an exported program that torch {torch.__version__} reads ({reason}): it is truncated, "
            "corrupt or of another torch; save it again with torch.export.save"
        ) from error


def _described(path: Path) -> str:
    return sniff(path).described


def _dtype_of(program: Any) -> str:
    found = {str(tensor.dtype).removeprefix("torch.") for tensor in program.state_dict.values()}
    half = sorted(found & {"float16", "bfloat16", "float64"})
    return "float32" if "float32" in found or not half else half[0]
