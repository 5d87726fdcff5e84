"""An artifact against its fp32 ancestor on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deploykit.accuracy.sums import Array, ErrorSums
from deploykit.base.artifact import AccuracyReport, LayerAccuracy, ModelInfo, OutputAccuracy
from deploykit.base.errors import DeploykitError
from deploykit.base.progress import SILENT, Progress
from deploykit.base.protocols import Arrays, SampleSource, Session
from deploykit.base.tensors import TensorSpec
from deploykit.precision.random_data import is_random

CLASSIFICATION = "classification"


def why_not_claimed(model: ModelInfo, data: str | None) -> str | None:
    """Why no accuracy may be stated for a model and its data, or None where it may."""
    if model.random_weights:
        return f"{model.name} has random weights: its speed is real, its accuracy means nothing"
    if data is None:
        return f"there are no inputs to judge {model.name} on; give --calibration-data"
    if is_random(data):
        return "noise says nothing of accuracy; give real inputs by --calibration-data"
    return None


def compare(
    reference: Session,
    candidate: Session,
    source: SampleSource,
    *,
    task: str | None,
    data: str,
    worst_layers: Sequence[LayerAccuracy] = (),
    progress: Progress = SILENT,
) -> AccuracyReport:
    """Run both models on every sample and add up how far they are apart.

    Args:
        reference: The fp32 model.
        candidate: What is judged. For fp16, a session over `half_eval.write_rounding_model`'s form of it: ONNX
            Runtime's CPU provider hides what FP16 loses.
        source: Inputs that calibration has not seen.
        task: `classification` also counts top-1.
        data: What the inputs are, for the report.
        worst_layers: From `layers.worst_layers`, to stand in the report.
        progress: Told of each sample.

    Raises:
        DeploykitError: The two models do not have the same outputs.
    """
    sums = {spec.name: ErrorSums() for spec in reference.outputs}
    if missing := sorted(set(sums) - {spec.name for spec in candidate.outputs}):
        raise DeploykitError(f"the artifact lacks the output {missing[0]!r} of its fp32 ancestor: it cannot be judged")
    classes = _Top1(class_output(reference.outputs) if task == CLASSIFICATION else None)
    count = 0
    for feeds in progress.track(source.samples(), "accuracy", total=len(source)):
        count += 1
        wanted = reference.infer(as_inputs(feeds, reference.inputs))
        given = candidate.infer(as_inputs(feeds, candidate.inputs))
        for name, total in sums.items():
            total.add(np.asarray(wanted[name]), np.asarray(given[name]))
        classes.add(wanted, given)
    outputs = tuple(_output(name, total) for name, total in sums.items())
    labels = source.labels()
    return AccuracyReport(
        data=data,
        samples=count,
        cosine=min((output.cosine for output in outputs if output.cosine is not None), default=None),
        sqnr_db=min((output.sqnr_db for output in outputs if output.sqnr_db is not None), default=None),
        top1_agreement=classes.agreement(),
        top1=classes.share_right(classes.given, labels),
        top1_fp32=classes.share_right(classes.wanted, labels),
        outputs=outputs,
        worst_layers=tuple(worst_layers),
    )


def as_inputs(feeds: Arrays, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Feeds in the types that a model wants; an fp16 artifact may take float16."""
    return {spec.name: feeds[spec.name].astype(spec.dtype, copy=False) for spec in specs}


def class_output(outputs: Sequence[TensorSpec]) -> str | None:
    """The output that holds one score a class: the first of the form [batch, classes]."""
    return next((spec.name for spec in outputs if len(spec.shape) == 2 and spec.shape[1] != 1), None)


def class_count(outputs: Sequence[TensorSpec]) -> int | None:
    """How many classes a classifier tells apart, where its output's shape says so."""
    shapes = {spec.name: spec.shape for spec in outputs}
    name = class_output(outputs)
    size = shapes[name][1] if name is not None else None
    return size if isinstance(size, int) else None


def _output(name: str, total: ErrorSums) -> OutputAccuracy:
    return OutputAccuracy(
        name=name,
        cosine=total.cosine,
        sqnr_db=total.sqnr_db,
        max_abs_error=total.max_abs_error,
        worst_part_db=total.worst_part_db,
        not_finite=total.not_finite,
        shape_differs=total.shape_differs,
    )


@dataclass
class _Top1:
    """The class with the highest score, one whole number a sample; −1 where a score is NaN."""

    output: str | None
    wanted: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)

    def add(self, wanted: Mapping[str, Array], given: Mapping[str, Array]) -> None:
        if self.output is not None:
            self.wanted += _highest(np.asarray(wanted[self.output]))
            self.given += _highest(np.asarray(given[self.output]))

    def agreement(self) -> float | None:
        if not self.wanted:
            return None
        same = sum(a == b and b >= 0 for a, b in zip(self.wanted, self.given, strict=True))
        return same / len(self.wanted)

    def share_right(self, classes: list[int], labels: list[int] | None) -> float | None:
        if labels is None or not classes or len(labels) != len(classes):
            return None
        return sum(a == b for a, b in zip(classes, labels, strict=True)) / len(labels)


def _highest(scores: Array) -> list[int]:
    return [-1 if np.isnan(row).any() else int(row.argmax()) for row in scores.astype(np.float64)]
