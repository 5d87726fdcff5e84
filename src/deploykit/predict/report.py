"""One question as the command line asks it: names and references in, answers and a batch curve out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.base.artifact import MODEL_FILE, read_artifact
from deploykit.base.errors import UsageError
from deploykit.base.tensors import parse_tensor
from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.answer import Prediction, Refusal
from deploykit.predict.curves import Curve, curves
from deploykit.predict.kernels import ModelFeatures
from deploykit.predict.model import Predictor
from deploykit.results.measurement import Measurement
from deploykit.results.store import stored
from deploykit.targets.catalog import load_catalog, resolve
from deploykit.targets.spec import TargetSpec

CURVE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
ALL = "all"


@dataclass(frozen=True)
class Answers:
    """What one question got.

    Attributes:
        rows: One answer or refusal a target.
        curve: Over batch sizes, where one target was asked for and gave an answer.
    """

    rows: list[Prediction | Refusal]
    curve: Curve | None


@dataclass(frozen=True)
class Subject:
    """What is to be predicted: a known name or the layers of a graph, and the precision its file has."""

    model: str | ModelFeatures
    precision: Precision | None


def answers(
    model: str,
    targets: Sequence[str],
    *,
    precision: Precision | None,
    scenario: Scenario,
    batch_size: int | None,
    limit_ms: float | None,
    level: float,
    shapes: Sequence[str] = (),
    curve: bool = True,
    own: Sequence[Measurement] | None = None,
) -> Answers:
    """Predict a model by name, artifact or ONNX file on targets by reference.

    Args:
        model: What `subject_of` reads.
        targets: References, paths of target files, or `all`.
        precision: Of the engine; None: of the artifact, else what the network's published runs use.
        scenario: MLPerf's meaning, or FixedBatch.
        batch_size: As of `Predictor.predict`.
        limit_ms: Latency limit of a Server rate.
        level: Two-sided level of the intervals.
        shapes: `NAME:1x3x480x640`, where a graph leaves more than the batch open.
        curve: Whether a single target gets a curve over batch sizes.
        own: The user's measurements; None: those in the result store.

    Raises:
        UsageError: Unknown model or target, a graph whose shapes are open, or an option that its scenario fixes.
        StoreError: The result store cannot be read.
    """
    _check(scenario, batch_size, limit_ms)
    subject = subject_of(model, shapes)
    specs = specs_of(targets)
    predictor = Predictor.load()
    # Other models' runs on a target tell of it too.
    own = stored(valid=True) if own is None else own
    asked = precision or subject.precision
    rows = predictor.predict(
        subject.model, specs, precision=asked, scenario=scenario, batch_size=batch_size, own=own, level=level,
        limit_ms=limit_ms,
    )  # fmt: skip
    answered = [row for row in rows if isinstance(row, Prediction)]
    if not curve or len(rows) != 1 or not answered:
        return Answers(rows, None)
    (made,) = curves(subject.model, specs, [answered[0].precision], batches=CURVE_BATCHES, own=own, level=level)
    return Answers(rows, made if isinstance(made, Curve) else None)


def _check(scenario: Scenario, batch_size: int | None, limit_ms: float | None) -> None:
    fixed = {Scenario.SINGLE_STREAM: 1, Scenario.MULTI_STREAM: 8}
    if batch_size is not None and fixed.get(scenario, batch_size) != batch_size:
        raise UsageError(f"{scenario} has {fixed[scenario]} samples a query by definition: leave --batch out")
    if limit_ms is not None and (scenario is not Scenario.SERVER or not limit_ms > 0):
        raise UsageError("--latency-ms is a positive limit in ms, and belongs to --scenario Server")


def specs_of(targets: Sequence[str]) -> list[TargetSpec]:
    """Targets by reference; `all` is every operating point of the catalogue but this machine's own."""
    specs: list[TargetSpec] = []
    for text in targets:
        if text == ALL:
            specs += [spec for spec in load_catalog().all_points() if spec.device.kind != "host"]
        else:
            specs.append(resolve(text))
    return specs


def subject_of(model: str, shapes: Sequence[str] = ()) -> Subject:
    """A model name, an artifact folder or an ONNX file.

    Raises:
        UsageError: The path holds no model.
    """
    path = Path(model)
    if path.is_dir():
        artifact = read_artifact(path)
        name = artifact.manifest.model.name
        return Subject(_features(artifact.path / MODEL_FILE, name, shapes), artifact.manifest.precision)
    if path.suffix == ".onnx":
        return Subject(_features(path, path.stem, shapes), None)
    return Subject(model, None)


def _features(path: Path, name: str, shapes: Sequence[str]) -> ModelFeatures:
    from deploykit.predict.features import features_of

    given = {spec.name: _sizes(spec.shape, text) for text in shapes if (spec := parse_tensor(text))}
    return features_of(path, name, given)


def _sizes(shape: tuple[int | str, ...], text: str) -> tuple[int, ...]:
    if any(isinstance(size, str) for size in shape):
        raise UsageError(f"--input {text!r}: every dimension must be a number here")
    return tuple(int(size) for size in shape)


def as_document(result: Answers) -> dict[str, Any]:
    """The JSON form: one prediction's keys at the top where one target was asked for, a list where several were."""
    rows = [row.to_json() for row in result.rows]
    if len(rows) != 1:
        return {"predictions": rows}
    service = result.curve.service_ms.items() if result.curve else ()
    return {**rows[0], "curve": [{"batch_size": batch, "latency_ms": vars(ms)} for batch, ms in service]}
