"""Batch curves of many targets at once."""

import subprocess
import sys

import pytest

from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.answer import Prediction, Refusal
from deploykit.predict.curves import BATCHES, Curve, curves
from deploykit.predict.model import Predictor
from deploykit.targets.catalog import load_catalog, resolve

TARGETS = ("t4", "jetson-nano", "a100-sxm4-80gb:1g.10gb", "orin-agx-64gb@15w", "rtx-4090", "b200-180gb", "host")


@pytest.mark.parametrize("model", ["resnet50", "bert-large-99", "3d-unet-kits19-99", "mobilenet_v2"])
def test_latency_rises_with_the_batch_and_no_batch_beats_the_full_device(model: str) -> None:
    made = curves(model, list(load_catalog().all_points()), [Precision.INT8, Precision.FP16])
    found = [curve for curve in made if isinstance(curve, Curve)]
    assert len(found) > 200
    for curve in found:
        times = [ms.value for ms in curve.service_ms.values()]
        assert times == sorted(times)
        assert curve.offline_ips.value >= max(1000 * b / ms.value for b, ms in curve.service_ms.items())
        for estimate in (*curve.service_ms.values(), curve.offline_ips):
            assert 0 < estimate.low < estimate.value < estimate.high


def test_one_answer_for_each_target_and_precision_in_order() -> None:
    made = curves("resnet50", [resolve(t) for t in TARGETS], [Precision.INT8, Precision.FP16])
    assert [each.target.partition("@")[0] for each in made[::2]] == [t.partition("@")[0] for t in TARGETS]
    assert [isinstance(each, Refusal) for each in made] == [False] * 2 + [True, False] + [False] * 8 + [True] * 2
    assert [each.precision for each in made if isinstance(each, Curve)][:2] == [Precision.INT8, Precision.FP16]


def test_it_agrees_with_single_predictions() -> None:
    spec = resolve("rtx-4070")
    (curve,) = curves("resnet50", [spec], [Precision.INT8])
    (single,) = Predictor.load().predict("resnet50", [spec], precision=Precision.INT8)
    (offline,) = Predictor.load().predict("resnet50", [spec], precision=Precision.INT8, scenario=Scenario.OFFLINE)
    assert isinstance(curve, Curve)
    assert isinstance(single, Prediction)
    assert isinstance(offline, Prediction)
    assert tuple(curve.service_ms) == BATCHES
    assert vars(curve.service_ms[1]) == pytest.approx(vars(single.latency_ms))
    assert vars(curve.offline_ips) == pytest.approx(vars(offline.throughput_ips))
    assert curve.offline_batch == offline.batch_size


def test_batches_that_do_not_fit_are_left_out() -> None:
    (curve,) = curves("ssd-resnet34", [resolve("jetson-nano")], [Precision.FP16], batches=(1, 4, 1024))
    assert isinstance(curve, Curve)
    assert 1024 not in curve.service_ms
    assert 1 in curve.service_ms


def test_it_says_where_a_rate_needs_more_than_the_gpu() -> None:
    made = curves("resnet50", [resolve("orin-agx-64gb@50w")], [Precision.INT8, Precision.FP16])
    assert [each.offline_needs for each in made if isinstance(each, Curve)] == ["GPU and both DLAs", None]


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys; from deploykit.predict.curves import curves; from deploykit.targets.catalog import resolve;"
        "from deploykit.base.vocab import Precision; curves('resnet50', [resolve('t4')], [Precision.INT8]);"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'scipy', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
