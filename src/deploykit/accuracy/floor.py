"""`--accuracy-floor METRIC=VALUE`: read, and hold a report against it. A figure that is not there fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deploykit.base.artifact import AccuracyReport
from deploykit.base.errors import AccuracyBelowFloor, UnknownNameError, UsageError


@dataclass(frozen=True)
class _Metric:
    """A figure of a report.

    Attributes:
        read: The figure, or None where the report does not have it.
        absent: What it means that it is not there.
        share: It lies between 0 and 1 (cosine: −1 and 1).
        at_most: The value is a ceiling.
    """

    read: Callable[[AccuracyReport], float | None]
    absent: str
    share: bool = True
    at_most: bool = False


def _sqnr(report: AccuracyReport) -> float | None:
    """Equal outputs have no noise, so no finite SQNR: they pass any floor. Outputs that were never compared do not."""
    if report.sqnr_db is not None:
        return report.sqnr_db
    compared = report.outputs and all(output.shape_differs < report.samples for output in report.outputs)
    return math.inf if compared else None


def _worst_part(report: AccuracyReport) -> float | None:
    parts = [output.worst_part_db for output in report.outputs if output.worst_part_db is not None]
    return min(parts) if parts else _sqnr(report)


def _drop(report: AccuracyReport) -> float | None:
    return None if report.top1 is None or report.top1_fp32 is None else report.top1_fp32 - report.top1


_NO_LABELS = "the labels of the inputs are not known (a folder with one subfolder a class gives them)"
_METRICS = {
    "cosine": _Metric(lambda report: report.cosine, "no output could be compared"),
    "sqnr_db": _Metric(_sqnr, "no output could be compared", share=False),
    "worst_part_db": _Metric(_worst_part, "no output could be compared", share=False),
    "top1_agreement": _Metric(lambda report: report.top1_agreement, "the model is not known to be a classifier"),
    "top1": _Metric(lambda report: report.top1, _NO_LABELS),
    "top1_drop": _Metric(_drop, _NO_LABELS, at_most=True),
}

METRICS = tuple(_METRICS)


@dataclass(frozen=True)
class Floor:
    """A limit on one figure of the accuracy report; `top1_drop` is a ceiling, the rest are floors."""

    metric: str
    value: float

    def __str__(self) -> str:
        return f"{self.metric}={self.value:g}"


def parse_floors(texts: Iterable[str]) -> tuple[Floor, ...]:
    """Read `top1_agreement=0.98` and the like.

    Raises:
        UsageError: Not of that form, or a share that is not between 0 and 1.
        UnknownNameError: No such metric.
    """
    return tuple(_parse_floor(text) for text in texts)


def _parse_floor(text: str) -> Floor:
    name, _, number = text.partition("=")
    if name not in _METRICS:
        raise UnknownNameError("accuracy metric", name, METRICS, f"known are {', '.join(METRICS)}")
    try:
        value = float(number)
    except ValueError:
        raise UsageError(f"--accuracy-floor {text!r} is not of the form METRIC=VALUE, like cosine=0.99") from None
    if not math.isfinite(value) or (_METRICS[name].share and not -1.0 <= value <= 1.0):
        limits = "a share, from 0 to 1" if _METRICS[name].share else "in dB"
        raise UsageError(f"--accuracy-floor {text!r}: {name} is {limits}")
    return Floor(name, value)


def refuse_floors(floors: Sequence[Floor], reason: str) -> None:
    """Where no accuracy can be stated, a floor cannot be held: say so before the work is done.

    Raises:
        UsageError: There is a floor.
    """
    if floors:
        raise UsageError(f"--accuracy-floor {floors[0]} cannot be checked: {reason}")


def check_floors(report: AccuracyReport, floors: Sequence[Floor]) -> None:
    """Hold a report against all floors.

    Raises:
        AccuracyBelowFloor: One is missed, or its figure is not there, or an output holds NaN or Inf; says all of them.
    """
    misses = [miss for floor in floors if (miss := _miss(report, floor)) is not None]
    if floors:
        misses += _never_passes(report)
    if misses:
        raise AccuracyBelowFloor(
            f"accuracy below the floor on {report.samples} samples of {report.data}: {'; '.join(misses)}"
        )


def _miss(report: AccuracyReport, floor: Floor) -> str | None:
    metric = _METRICS[floor.metric]
    value = metric.read(report)
    if value is None:
        return f"{floor.metric} could not be computed: {metric.absent}"
    if metric.at_most:
        return f"{floor.metric} is {value:.4g}, at most {floor.value:g} is allowed" if value > floor.value else None
    return f"{floor.metric} is {value:.4g}, at least {floor.value:g} is asked for" if not value >= floor.value else None


def _never_passes(report: AccuracyReport) -> list[str]:
    said = [
        f"output {output.name!r} holds NaN or Inf in {output.not_finite} samples"
        for output in report.outputs
        if output.not_finite
    ]
    return said + [
        f"output {output.name!r} has another shape than fp32's in {output.shape_differs} samples"
        for output in report.outputs
        if output.shape_differs
    ]
