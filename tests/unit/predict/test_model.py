"""Answers, refusals and anchors of the predictor that ships."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploykit.base.errors import UnknownNameError
from deploykit.base.vocab import Confidence, Precision, Provenance, Scenario
from deploykit.predict.answer import Prediction, Refusal
from deploykit.predict.intervals import Rung
from deploykit.predict.kernels import ModelFeatures
from deploykit.predict.model import Predictor
from deploykit.predict.names import network_named
from deploykit.results.measurement import Latency, Measurement
from deploykit.targets.catalog import resolve

CARD = """
version: 1
device: nobodys-card
name: Nobody's card
kind: desktop
silicon:
  source: sheet
  architecture: Ada
  compute_capability: "8.9"
  sm_count: 40
  boost_mhz: 2400
  l2_mb: 36
memory: {source: sheet, size_gb: 12, bandwidth_gbs: 400}
power: {source: sheet, tdp_w: 150}
sources:
  sheet: {citation: a sheet, trust: medium}
"""


def answer(model: str | ModelFeatures, target: str, **asked: Any) -> Prediction:
    (found,) = Predictor.load().predict(model, [resolve(target)], **asked)
    assert isinstance(found, Prediction), found
    return found


def refusal(model: str | ModelFeatures, target: str, **asked: Any) -> Refusal:
    (found,) = Predictor.load().predict(model, [resolve(target)], **asked)
    assert isinstance(found, Refusal), found
    return found


def measured(target: str, ms: float, **rest: Any) -> Measurement:
    given: dict[str, Any] = {
        "id": "own:1", "model": "resnet50", "precision": Precision.INT8, "target": target, "runtime": "tensorrt",
        "scenario": Scenario.SINGLE_STREAM, "batch_size": 1, "latency_ms": Latency(p90=ms),
        "conditions": {"transfers": "host"}, "provenance": Provenance.MEASURED, "source": "this machine", **rest,
    }  # fmt: skip
    return Measurement(**given)


def test_a_published_point_comes_out_near_its_publication() -> None:
    """NVIDIA's ResNet-50 on the T4: 6,050 samples/s Offline and 0.834 ms SingleStream in v3.1."""
    assert answer("resnet50", "t4", scenario=Scenario.OFFLINE).throughput_ips.value == pytest.approx(6050, rel=0.15)
    single = answer("resnet50", "t4")
    assert single.latency_ms.low < 0.834 < single.latency_ms.high
    assert (single.rung, single.confidence) == (Rung.SAME, Confidence.HIGH)
    assert all(anchor.startswith("published:") for anchor in single.anchors)


def test_each_rung_is_reached() -> None:
    assert answer("resnet50", "h100-pcie-80gb").rung is Rung.SAME
    assert answer("resnet50", "rtx-4070").rung is Rung.SIBLING
    assert answer("resnet50", "b200-180gb").rung is Rung.ANCHORED
    assert answer("efficientnet_b4", "t4").rung is Rung.GRAPH
    assert answer("efficientnet_b4", "t4").confidence is Confidence.LOW


def test_refused_where_the_silicon_lacks_the_precision() -> None:
    said = refusal("resnet50", "a100-sxm4-80gb", precision=Precision.FP8)
    assert said.reason == "compute capability 8.0 has no fp8 units"
    assert said.next_measurement == "it has fp32, tf32, fp16, bf16, int8"


def test_refused_where_the_model_is_larger_than_the_memory() -> None:
    said = refusal("gptj-6b-99", "jetson-nano", precision=Precision.FP16)
    assert said.reason.startswith("it does not fit: 12.87 GB needed")
    assert "smaller" in said.next_measurement


def test_refused_where_a_batch_does_not_fit_but_offline_takes_a_smaller_one() -> None:
    huge = replace(network_named("resnet50").features, live_elements=10**9)
    assert refusal(huge, "t4", scenario=Scenario.FIXED_BATCH, batch_size=64).reason.startswith("it does not fit")
    assert answer(huge, "t4", scenario=Scenario.OFFLINE).batch_size < 64


def test_refused_where_operators_are_unknown() -> None:
    odd = replace(network_named("resnet50").features, unknown_ops=(("FancyOp", 30),))
    said = refusal(odd, "t4")
    assert "FancyOp ×30" in said.reason
    assert "deploykit bench" in said.next_measurement


def test_refused_where_there_is_no_gpu() -> None:
    assert refusal("resnet50", "host").reason == "it is no NVIDIA GPU, and the predictor knows no other kind"


def test_an_unknown_name_is_refused_with_near_misses() -> None:
    with pytest.raises(UnknownNameError, match="resnet50"):
        answer("resnet5", "t4")


def test_a_card_that_nobody_has_heard_of_gets_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "nobodys-card.yaml"
    path.write_text(CARD, encoding="utf-8")
    found = answer("resnet50", str(path))
    assert found.target == "nobodys-card"
    assert found.rung is Rung.SIBLING
    assert answer("resnet50", "rtx-4090").latency_ms.value < found.latency_ms.value < 2.0


def test_a_table_that_lacks_a_figure_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "nobodys-card.yaml"
    path.write_text(CARD.replace("  sm_count: 40\n", ""), encoding="utf-8")
    assert "sm_count" in refusal("resnet50", str(path)).reason


def test_a_wider_level_reaches_further_and_the_bounds_lie_within() -> None:
    wide, narrow = answer("resnet50", "rtx-4070", level=0.95), answer("resnet50", "rtx-4070", level=0.5)
    assert wide.latency_ms.low < narrow.latency_ms.low < narrow.latency_ms.high < wide.latency_ms.high
    assert wide.latency_ms.value == narrow.latency_ms.value < narrow.latency_at_most(0.9) < wide.latency_ms.high
    assert narrow.throughput_at_least(0.9) < narrow.throughput_ips.value


def test_an_own_run_pulls_its_target_and_its_siblings() -> None:
    before, after = (
        [answer("resnet50", target, own=own).latency_ms for target in ("rtx-4070", "rtx-4080")]
        for own in ([], [measured("rtx-4070", 0.8)])
    )
    assert after[0].value == pytest.approx(0.8, rel=0.15)
    assert abs(after[0].value - 0.8) < abs(before[0].value - 0.8)
    assert after[1].value > before[1].value
    assert after[0].high / after[0].low < before[0].high / before[0].low


def test_an_own_run_is_named_among_the_anchors() -> None:
    found = answer("resnet50", "rtx-4070", own=[measured("rtx-4070", 0.8)])
    assert "own:1" in found.anchors
    assert found.rung is Rung.SAME


def test_an_own_run_of_an_unlisted_model_anchors_it() -> None:
    mine = replace(network_named("resnet50").features, model="my-net")
    own = [measured("rtx-4070", 3.0, model="my-net")]
    assert answer(mine, "rtx-4080").rung is Rung.GRAPH
    assert answer(mine, "rtx-4080", own=own).rung is Rung.FEW
    assert answer(mine, "rtx-4080", own=own).latency_ms.value > 1.2 * answer(mine, "rtx-4080").latency_ms.value


@pytest.mark.parametrize(
    "change",
    [{"valid": False, "invalid_reasons": ("throttled",)}, {"streams": 2}, {"runtime": "onnxruntime"}],
    ids=["invalid", "several streams", "another runtime"],
)
def test_runs_that_do_not_compare_change_nothing(change: dict[str, Any]) -> None:
    own = [measured("rtx-4070", 5.0, **change)]
    assert answer("resnet50", "rtx-4070", own=own).latency_ms == answer("resnet50", "rtx-4070").latency_ms


def test_a_fixed_batch_of_one_is_a_single_stream() -> None:
    one = answer("resnet50", "rtx-4070", scenario=Scenario.FIXED_BATCH, batch_size=1)
    assert one.latency_ms == answer("resnet50", "rtx-4070").latency_ms
    assert one.scenario is Scenario.FIXED_BATCH


def test_a_server_rate_falls_with_its_limit_and_stays_under_offline() -> None:
    asked = [{"scenario": Scenario.SERVER, "limit_ms": limit} for limit in (3, 15, 100)]
    rates = [answer("resnet50", "l4", **each).throughput_ips.value for each in asked]
    assert rates == sorted(rates)
    assert rates[-1] < 1.1 * answer("resnet50", "l4", scenario=Scenario.OFFLINE).throughput_ips.value


def test_dlas_count_where_published_runs_use_them_and_can_be_left_out() -> None:
    both = answer("resnet50", "orin-agx-64gb@50w", scenario=Scenario.OFFLINE)
    gpu = answer("resnet50", "orin-agx-64gb@50w", scenario=Scenario.OFFLINE, dla=False)
    assert "GPU and DLAs" in both.why
    assert "DLA" not in gpu.why
    assert both.throughput_ips.value > 1.1 * gpu.throughput_ips.value


def test_the_json_has_the_promised_keys() -> None:
    document = answer("resnet50", "rtx-4070").to_json()
    promised = {"target", "model", "precision", "scenario", "batch_size", "latency_ms", "throughput_ips", "confidence",
                "provenance", "anchors"}  # fmt: skip
    assert promised <= document.keys()
    assert document["latency_ms"].keys() == {"value", "low", "high"}
    assert document["provenance"] == "predicted"
