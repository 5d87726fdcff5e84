"""`--accuracy-floor`: every way to miss one, and what is no floor."""

from __future__ import annotations

import pytest

from deploykit.accuracy.floor import Floor, check_floors, parse_floors, refuse_floors
from deploykit.base.artifact import AccuracyReport, OutputAccuracy
from deploykit.base.errors import AccuracyBelowFloor, UsageError


def report(*, outputs=None, **changes):
    output = OutputAccuracy(name="y", cosine=0.99, sqnr_db=20.0, max_abs_error=0.1)
    base = {"data": "photos", "samples": 50, "cosine": 0.99, "sqnr_db": 20.0, "outputs": outputs or (output,)}
    return AccuracyReport(**{**base, **changes})


def output(**changes):
    return OutputAccuracy(**{"name": "y", "cosine": None, "sqnr_db": None, "max_abs_error": 0.0, **changes})


@pytest.mark.parametrize(
    ("text", "floor"),
    [
        ("cosine=0.99", Floor("cosine", 0.99)),
        ("sqnr_db=20", Floor("sqnr_db", 20.0)),
        ("top1_agreement=1", Floor("top1_agreement", 1.0)),
        ("top1_drop=1e-2", Floor("top1_drop", 0.01)),
    ],
)
def test_parse(text, floor):
    assert parse_floors([text]) == (floor,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cosin=0.99", "did you mean cosine"),
        ("top1_agrement=0.9", "top1_agreement"),
        ("mAP=0.3", "known are"),
        ("cosine", "METRIC=VALUE"),
        ("cosine=", "METRIC=VALUE"),
        ("cosine=high", "METRIC=VALUE"),
        ("cosine=99", "from 0 to 1"),
        ("cosine=nan", "from 0 to 1"),
        ("sqnr_db=inf", "in dB"),
        ("", "unknown accuracy metric"),
    ],
)
def test_what_is_no_floor(text, said):
    with pytest.raises(UsageError, match=said):
        parse_floors([text])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cosine=0.99", {}),
        ("sqnr_db=20", {}),
        ("sqnr_db=90", {"sqnr_db": None, "cosine": 1.0, "outputs": (output(cosine=1.0),)}),
        ("top1_agreement=0.98", {"top1_agreement": 0.98}),
        ("top1_drop=0.01", {"top1": 0.745, "top1_fp32": 0.75}),
        ("top1_drop=0.01", {"top1": 0.76, "top1_fp32": 0.75}),
        ("worst_part_db=15", {"outputs": (output(worst_part_db=15.0),)}),
    ],
)
def test_floors_that_hold(text, found):
    check_floors(report(**found), parse_floors([text]))


@pytest.mark.parametrize(
    ("text", "found", "said"),
    [
        pytest.param("cosine=0.991", {}, "cosine is 0.99", id="below"),
        pytest.param("top1_drop=0.01", {"top1": 0.70, "top1_fp32": 0.75}, "top1_drop is 0.05", id="a drop too large"),
        pytest.param("top1=0.7", {}, "could not be computed.*labels", id="no labels fail closed"),
        pytest.param("top1_agreement=0", {}, "could not be computed", id="no classes fail closed"),
        pytest.param("cosine=0", {"cosine": None}, "could not be computed", id="no cosine"),
        pytest.param("cosine=0.5", {"outputs": (output(not_finite=3),)}, "NaN or Inf in 3", id="NaN never passes"),
        pytest.param("cosine=0.5", {"outputs": (output(shape_differs=2),)}, "shape.* in 2", id="other shapes"),
        pytest.param(
            "sqnr_db=1",
            {"sqnr_db": None, "outputs": (output(shape_differs=50),)},
            "sqnr_db could not be computed",
            id="never compared is not equal",
        ),
        pytest.param("worst_part_db=10", {"outputs": (output(worst_part_db=0.1),)}, "worst_part_db", id="a dead part"),
    ],
)
def test_floors_that_are_missed(text, found, said):
    with pytest.raises(AccuracyBelowFloor, match=said) as caught:
        check_floors(report(**found), parse_floors([text]))
    assert caught.value.exit_code == 3


def test_all_misses_are_said_at_once():
    with pytest.raises(AccuracyBelowFloor, match=r"cosine.*sqnr_db"):
        check_floors(report(), parse_floors(["cosine=0.999", "sqnr_db=30"]))


def test_without_floors_nothing_is_missed():
    check_floors(report(outputs=(output(not_finite=3),)), ())


def test_a_floor_without_accuracy_is_a_usage_error():
    refuse_floors((), "random weights")
    with pytest.raises(UsageError, match=r"cosine=0\.9 .*random weights"):
        refuse_floors(parse_floors(["cosine=0.9"]), "random weights")
