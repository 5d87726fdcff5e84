"""Which measurements are rows to learn from, and as what."""

from typing import Any

import pytest

from deploykit.base.vocab import Precision, Provenance, Scenario
from deploykit.predict.machine import Machine
from deploykit.predict.observe import era, observations, point_of, round_year, source_of, value_ms
from deploykit.predict.points import MLPERF, OWN, Point
from deploykit.results.measurement import Latency, Measurement

T4 = Machine("t4", "7.5", 40, 1590, 320, 4, 70, 16)


def row(**rest: Any) -> Measurement:
    given: dict[str, Any] = {
        "id": "published:1", "model": "resnet50", "precision": Precision.INT8, "target": "t4", "runtime": "tensorrt",
        "scenario": Scenario.OFFLINE, "throughput_ips": 6000.0, "provenance": Provenance.PUBLISHED,
        "source": "github:mlcommons/inference_results_v3.1", "round": "MLPerf Inference v3.1", **rest,
    }  # fmt: skip
    return Measurement(**given)


TABLE = {"source": "github:NVIDIA/TensorRT:demo/BERT/README.md", "round": None, "scenario": Scenario.FIXED_BATCH}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"valid": False, "invalid_reasons": ("MaxQ is no one mode",)}, "MaxQ"),
        ({"runtime": "pytorch"}, "runtime pytorch"),
        ({"conditions": {"harness": "Triton"}}, "Triton"),
        ({"streams": 4}, "several queries"),
        ({"model": "nobodys-net"}, "no layer features of nobodys-net"),
        ({"precision": Precision.FP8}, "t4 has no fp8"),
        ({**TABLE, "batch_size": None}, "batch is not stated"),
        ({**TABLE, "batch_size": 12}, "between two that are kept"),
    ],
)
def test_rows_that_do_not_compare_are_left_out_in_words(change: dict[str, Any], why: str) -> None:
    said = point_of(row(**change), T4)
    assert isinstance(said, str)
    assert why in said


def test_an_mlperf_row_includes_copies_unless_it_says_otherwise() -> None:
    plain = point_of(row(), T4)
    there = point_of(row(conditions={"transfers": "inputs already in device memory"}), T4)
    assert isinstance(plain, Point)
    assert isinstance(there, Point)
    assert (plain.source, plain.copies, there.copies) == (MLPERF, True, False)
    assert plain.batch == 512


def test_an_own_row_includes_copies_where_it_says_so() -> None:
    own = row(provenance=Provenance.MEASURED, round=None, source="this machine")
    from_host = own.model_copy(update={"conditions": {"transfers": "host"}})
    found = [point_of(each, T4) for each in (own, from_host)]
    assert [each.copies for each in found if isinstance(each, Point)] == [False, True]
    assert source_of(own) == OWN


def test_the_precision_that_a_row_leaves_out_is_the_networks_habit() -> None:
    found = point_of(row(precision=None), T4)
    assert isinstance(found, Point)
    assert found.precision is Precision.INT8


def test_rounds_become_years_and_years_two_eras() -> None:
    assert round_year(row()) == 2023.7
    assert era(2022.7) < 2022.9 < era(2023.27)


def test_each_scenario_is_read_as_its_time() -> None:
    single = row(scenario=Scenario.SINGLE_STREAM, throughput_ips=None, latency_ms=Latency(p90=0.8, p99=0.9))
    multi = row(scenario=Scenario.MULTI_STREAM, throughput_ips=None, latency_ms=Latency(p90=0.8, p99=0.9))
    fixed = row(**TABLE, throughput_ips=2000.0, batch_size=16)
    assert [value_ms(each) for each in (row(), single, multi, fixed)] == [1000 / 6000, 0.8, 0.9, 8.0]
    assert value_ms(single.model_copy(update={"latency_ms": Latency()})) is None


def test_rows_of_one_point_are_pooled_to_their_median() -> None:
    rows = [row(id=f"published:{i}", throughput_ips=rate) for i, rate in enumerate((5000.0, 6000.0, 10_000.0))]
    (found,), left_out = observations([*rows, row(runtime="pytorch")], lambda _: T4)
    assert found.count == 3
    assert found.log_ms == pytest.approx(-1.7918, abs=1e-3)  # ln(1000 / 6000)
    assert found.ids == ("published:0", "published:1", "published:2")
    assert left_out == {"runtime pytorch: the predictor knows TensorRT engines only": 1}


def test_a_target_without_a_machine_is_left_out_with_its_reason() -> None:
    assert observations([row()], lambda _: "no such board") == ([], {"no such board": 1})
