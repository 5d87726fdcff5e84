"""Which inner tensors lie farthest from fp32's."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from deploykit.accuracy.compare import as_inputs
from deploykit.accuracy.sums import ErrorSums
from deploykit.base.artifact import LayerAccuracy
from deploykit.base.protocols import OpenSession, SampleSource
from deploykit.precision import onnx_files
from deploykit.precision.fp16_graph import MOVEMENT
from deploykit.precision.ranges import write_watched

SAMPLES = 8
"""Enough to rank layers: each one already averages thousands of values."""


def worst_layers(
    reference: Path,
    candidate: Path,
    source: SampleSource,
    open_session: OpenSession,
    *,
    count: int = 5,
    samples: int = SAMPLES,
) -> tuple[LayerAccuracy, ...]:
    """Compare every inner tensor that both graphs know by the same name.

    Errors add up along the way, so a layer stands here for itself and for all before it. Tensors that are only moved
    about are left out, and so are those that are equal.

    Args:
        reference: The fp32 model's ONNX file.
        candidate: What is judged; for fp16 the form of `half_eval.write_rounding_model`.
        source: Inputs.
        open_session: Loads an ONNX file.
        count: How many to name.
        samples: How many inputs to use.

    Returns:
        Lowest SQNR first.
    """
    operators = _operators(reference)
    sums: dict[str, ErrorSums] = {}
    with TemporaryDirectory(prefix="deploykit-layers-") as folder:
        watched = Path(folder) / "reference.onnx", Path(folder) / "candidate.onnx"
        for graph, target in zip((reference, candidate), watched, strict=True):
            write_watched(graph, target)
        with open_session(watched[0]) as wanted, open_session(watched[1]) as given:
            for feeds in itertools.islice(source.samples(), samples):
                expected = wanted.infer(as_inputs(feeds, wanted.inputs))
                found = given.infer(as_inputs(feeds, given.inputs))
                for name in operators.keys() & expected.keys() & found.keys():
                    sums.setdefault(name, ErrorSums()).add(np.asarray(expected[name]), np.asarray(found[name]))
    ranked = sorted((total.sqnr_db, name) for name, total in sums.items() if total.sqnr_db is not None and total.signal)
    return tuple(LayerAccuracy(name=name, op_type=operators[name], sqnr_db=db) for db, name in ranked[:count])


def _operators(model: Path) -> dict[str, str]:
    """Inner tensor → the operator that computes it."""
    graph = onnx_files.load_skeleton(model).graph
    outer = {value.name for value in graph.output}
    return {
        name: node.op_type
        for node in graph.node
        if node.op_type not in MOVEMENT
        for name in node.output
        if name and name not in outer
    }
