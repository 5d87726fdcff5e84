"""Read and write ONNX files of any size: protobuf ends at 2 GB, weights beyond that go to a file beside the graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deploykit.base.errors import UsageError

if TYPE_CHECKING:
    import onnx

LARGEST_PROTOBUF = 1_900_000_000
"""Bytes; protobuf's own limit is 2^31 − 1, and graph and names need some of it."""


def load(path: Path) -> onnx.ModelProto:
    """A model with all its weights in memory.

    Raises:
        UsageError: The file, or the file of weights beside it, cannot be read.
    """
    import onnx

    try:
        return onnx.load(str(path))
    # Protobuf's DecodeError has no base class but Exception; onnx raises its own for missing and outlying weight files.
    except Exception as error:
        raise UsageError(f"{path} cannot be read as an ONNX model ({error}); export it again") from error


def load_skeleton(path: Path) -> onnx.ModelProto:
    """A model without the bytes of external weights: small enough for shape inference, whatever the model's size."""
    import onnx

    return onnx.load(str(path), load_external_data=False)


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a model into a folder that is being filled; large weights go to `<name>.data` beside it."""
    import onnx

    external = model.ByteSize() > LARGEST_PROTOBUF
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=external,
        all_tensors_to_one_file=True,
        location=f"{path.name}.data",
    )


def fault(path: Path) -> str | None:
    """What ONNX's full check with strict shape inference objects to, or None. Works on files of any size."""
    from onnx import checker, shape_inference

    try:
        checker.check_model(str(path), full_check=True)
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        return str(error)
    return None
