"""Lowest and highest value of every float tensor of a graph over some samples."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from deploykit.base.progress import SILENT, Progress
from deploykit.base.protocols import OpenSession, SampleSource
from deploykit.precision import onnx_files

RANGES_VERSION = 1
"""Raised whenever the same graph and samples would give other ranges."""


def collect_ranges(
    model: Path,
    source: SampleSource,
    count: int,
    open_session: OpenSession,
    progress: Progress = SILENT,
) -> dict[str, tuple[float, float]]:
    """Run samples through a graph that shows all its float tensors, one at a time; only two numbers a tensor are kept.

    NaN and Inf are left out: what is not finite in float32 tells nothing of FP16.

    Args:
        model: An ONNX file.
        source: Inputs.
        count: Samples to use at most.
        open_session: Loads an ONNX file.
        progress: Told of each sample.

    Returns:
        Tensor → (lowest, highest); without the tensors that never held a finite value.
    """
    ranges: dict[str, tuple[float, float]] = {}
    with TemporaryDirectory(prefix="deploykit-ranges-") as folder:
        watched = Path(folder) / "watched.onnx"
        write_watched(model, watched)
        with open_session(watched) as session:
            feeds_used = itertools.islice(source.samples(), count)
            for feeds in progress.track(feeds_used, "ranges", total=min(count, len(source))):
                for name, values in (*feeds.items(), *session.infer(feeds).items()):
                    _widen(ranges, name, np.asarray(values))
    return ranges


def write_watched(model: Path, target: Path) -> None:
    """Write a model whose float tensors are all outputs."""
    from onnx import TensorProto, helper, shape_inference

    skeleton = onnx_files.load_skeleton(model)
    inferred = shape_inference.infer_shapes(skeleton, data_prop=True).graph
    types = {value.name: value.type.tensor_type.elem_type for value in inferred.value_info}
    loaded = onnx_files.load(model)
    shown = {value.name for value in loaded.graph.output}
    for name in (name for node in loaded.graph.node for name in node.output):
        if types.get(name) in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE) and name not in shown:
            loaded.graph.output.append(helper.make_tensor_value_info(name, types[name], None))
    onnx_files.save(loaded, target)


def _widen(ranges: dict[str, tuple[float, float]], name: str, values: np.ndarray[Any, Any]) -> None:
    if values.dtype.kind != "f" or values.size == 0:
        return
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        finite = values[np.isfinite(values)]
        if finite.size == 0:
            return
        low, high = float(finite.min()), float(finite.max())
    before = ranges.get(name, (low, high))
    ranges[name] = min(before[0], low), max(before[1], high)
