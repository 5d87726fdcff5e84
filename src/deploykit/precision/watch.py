"""A model that shows its inner tensors: the same file with more outputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from deploykit.base.errors import UsageError
from deploykit.precision import onnx_files

if TYPE_CHECKING:
    import onnx


def write_watched(model: Path, names: Iterable[str], target: Path) -> None:
    """Write a model whose named float32 tensors are outputs too.

    Weights in files of their own are linked to, not read: a model of many gigabytes costs no memory here.

    Args:
        model: An ONNX file.
        names: Tensors of its main graph.
        target: In an empty folder, into which the weight files are linked.
    """
    from onnx import TensorProto, helper

    shown = onnx_files.load_linked(model)
    outputs = {value.name for value in shown.graph.output}
    for name in names:
        if name not in outputs:
            shown.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    target.write_bytes(shown.SerializeToString())
    for location in sorted(_locations(shown)):
        _link(model.parent, location, target.parent)


def _locations(model: onnx.ModelProto) -> set[str]:
    """Files of external weights, relative to the model's folder."""
    from onnx import TensorProto

    return {
        entry.value
        for tensor in model.graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _link(source: Path, location: str, target: Path) -> None:
    """A hard link where the file system has it, else a copy; runtimes refuse symbolic links that leave the folder."""
    if not (source / location).resolve().is_relative_to(source.resolve()):
        raise UsageError(f"the weights of {source} point out of its folder: {location!r}")
    place = target / location
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source / location, place)
    except OSError:
        shutil.copyfile(source / location, place)
