"""`deploykit predict` as it is typed."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from deploykit.base.vocab import Precision, Provenance, Scenario
from deploykit.cli.app import run
from deploykit.results.measurement import Latency, Measurement
from deploykit.results.store import Store

NET = """<ir_version: 8, opset_import: ["" : 17]>
tiny (float[N,3,H,W] x) => (float[N,8,a,b] y) <float[8,3,3,3] w = {{{}}}> {{
    c = Conv <pads = [1,1,1,1]> (x, w)
    y = Relu (c)
}}""".format(",".join(["0"] * 216))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No checkout, no store of the person who runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("DEPLOYKIT_STORE", f"sqlite:///{tmp_path}/store.db")
    return tmp_path


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(["predict", *arguments, "--json"]) == code
    out = capsys.readouterr()
    assert out.err == ""
    found = json.loads(out.out)
    assert isinstance(found, dict)
    return found


def test_one_target_gives_an_answer_and_a_curve(capsys: pytest.CaptureFixture[str]) -> None:
    found = predicted(capsys, "resnet50", "--target", "orin-30w", "--precision", "int8")
    assert (found["target"], found["scenario"], found["batch_size"]) == ("orin-agx-64gb@30w", "SingleStream", 1)
    assert found["latency_ms"]["low"] < found["latency_ms"]["value"] < found["latency_ms"]["high"]
    assert [point["batch_size"] for point in found["curve"]] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert found["curve"][0]["latency_ms"] == pytest.approx(found["latency_ms"])


def test_all_targets_give_an_answer_or_a_reason_each(capsys: pytest.CaptureFixture[str]) -> None:
    rows = predicted(capsys, "resnet50", "--target", "all", "--scenario", "Offline")["predictions"]
    assert len(rows) > 140
    assert all(("throughput_ips" in row) != ("refused" in row) for row in rows)
    assert sum("refused" in row for row in rows) < 8


def test_a_refusal_is_an_answer_of_no(capsys: pytest.CaptureFixture[str]) -> None:
    found = predicted(capsys, "resnet50", "--target", "a100-sxm4-80gb", "--precision", "fp8", code=3)
    assert "fp8" in found["refused"]


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "resnet50", "-t", "t4", "-t", "host"]) == 0
    shown = capsys.readouterr().out
    assert "90% interval" in shown
    assert "host: no answer: it is no NVIDIA GPU" in " ".join(shown.split())


def test_an_onnx_file_is_read_with_the_shape_that_it_leaves_open(
    capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    onnx.save(onnx.parser.parse_model(NET), elsewhere / "tiny.onnx")
    found = predicted(capsys, "tiny.onnx", "--target", "t4", "--input", "x:1x3x640x640", "--batch", "4")
    assert (found["model"], found["rung"], found["confidence"]) == ("tiny", "graph", "low")
    assert run(["predict", "tiny.onnx", "--target", "t4"]) == 2
    assert "--input" in capsys.readouterr().err


def test_own_runs_in_the_store_anchor_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    before = predicted(capsys, "resnet50", "--target", "rtx-4070")
    own = Measurement(
        id="own:1", model="resnet50", precision=Precision.INT8, target="rtx-4070", runtime="tensorrt",
        scenario=Scenario.SINGLE_STREAM, batch_size=1, latency_ms=Latency(p90=0.8), conditions={"transfers": "host"},
        provenance=Provenance.MEASURED, source="this machine",
    )  # fmt: skip
    with Store() as store:
        store.append([own])
    after = predicted(capsys, "resnet50", "--target", "rtx-4070")
    assert "own:1" in after["anchors"]
    assert (before["rung"], after["rung"]) == ("sibling", "same")
    assert after["latency_ms"]["value"] == pytest.approx(0.8, rel=0.15)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnet5", "-t", "t4"], "did you mean resnet50"),
        (["resnet50", "-t", "t44"], "did you mean"),
        (["resnet50", "-t", "t4", "--scenario", "SingleStream", "--batch", "4"], "leave --batch out"),
        (["resnet50", "-t", "t4", "--latency-ms", "5"], "--scenario Server"),
        (["missing.onnx", "-t", "t4"], "missing.onnx"),
    ],
)
def test_bad_input_is_told_in_one_paragraph(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["predict", *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
