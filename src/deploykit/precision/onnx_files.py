"""Read and write ONNX files of any size: protobuf ends at 2 GB, weights beyond that go to a file beside the graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deploykit.base.errors import UsageError

if TYPE_CHECKING:
    import onnx

LARGEST_PROTOBUF = 1_900_000_000
"""Bytes; protobuf's own limit is 2^31 − 1, and graph and names need some of it."""
LARGEST_SHAPE = 4096
"""Bytes; shape inference reads the values of shapes and index lists, which are smaller than this."""


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


def load_linked(path: Path) -> onnx.ModelProto:
    """A model whose external weights stay in their files."""
    import onnx

    return onnx.load(str(path), load_external_data=False)


def load_skeleton(path: Path) -> onnx.ModelProto:
    """A model without the bytes of its weights: for shape inference, which copies a model and fails above 2 GB."""
    from onnx import TensorProto

    model = load_linked(path)
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > LARGEST_SHAPE:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
    return model


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
