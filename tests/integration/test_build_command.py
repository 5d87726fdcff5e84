"""`deploykit build` and `engines` as people type them, with TensorRT-RTX building for real."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from deploykit.cli.app import run
from deploykit.engine.builder import EngineBuildError
from deploykit.engine.child import BuildTask, build_in_child
from deploykit.engine.options import BuildOptions

pytest.importorskip("tensorrt_rtx")

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(self.body(x) + x)
        return self.head(x.mean(dim=(2, 3)))


class Unbuildable(Net):
    def forward(self, x):
        return torch.linalg.det(x) + super().forward(x).sum()


def make():
    torch.manual_seed(0)
    return Net()


def make_unbuildable():
    return Unbuildable()
"""
EXPORT = ["export", "net.py:make", "--input", "x:batchx3x16x16", "--calibration-data", "data.npz"]
EXPORT += ["--calibration-samples", "8", "--eval-samples", "4", "--target", "rtx-4090"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "net.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=rng.standard_normal((16, 3, 16, 16), dtype=np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for precision in ("fp32", "fp16", "int8"):
            assert run([*EXPORT, "--precision", precision, "--output-dir", "out"]) == 0
        assert run([*EXPORT, "--precision", "int8", "--target", "host", "--output-dir", "out"]) == 0
    return folder


@pytest.fixture(autouse=True)
def folder(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The exports are shared, the engines are not."""
    monkeypatch.chdir(exported)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("DEPLOYKIT_CACHE_DIR", str(tmp_path / "cache"))
    return exported


def build(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    code = run(["build", *arguments, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return dict(json.loads(printed.out))


@pytest.mark.parametrize("target", ["a100-sxm4-80gb", "a100-sxm4-80gb:1g.10gb", "rtx-3090", "rtx-4090", "rtx-5090"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_an_engine_is_built_away_from_its_target(
    target: str, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = "out/net-make-int8-tensorrt" if precision == "int8" else f"out/net-make-{precision}"
    made = build(capsys, artifact, "--target", target, "--runtime", "tensorrt-rtx")
    assert made["target"] == target
    assert Path(made["engine"]).stat().st_size == made["size_bytes"]
    assert made["summary"]["compute"] == {precision: 3}
    assert [node["op_type"] for node in made["compute"]] == ["Conv", "Conv", "Gemm"]
    assert not any(node["lost"] for node in made["compute"])
    assert {"name", "type", "precision", "onnx_nodes"} <= set(made["layers"][0])
    assert made["shapes"] == [{"name": "x", "min": [1, 3, 16, 16], "opt": [8, 3, 16, 16], "max": [32, 3, 16, 16]}]


def test_the_same_build_is_found_and_another_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    artifact = "out/net-make-fp16"
    first = build(capsys, artifact, "--target", "rtx-4090")
    again = build(capsys, artifact, "--target", "rtx-4090")
    other = build(capsys, artifact, "--target", "rtx-4090", "--max-shapes", "x:64x3x16x16")
    tuned = build(capsys, artifact, "--target", "rtx-4090", "--workspace", "256", "--builder-optimization-level", "2")
    assert (first["reused"], again["reused"]) == (False, True)
    assert again["engine"] == first["engine"]
    assert len({one["engine"] for one in (first, other, tuned)}) == 3
    assert other["shapes"][0]["max"] == [64, 3, 16, 16]
    assert tuned["options"]["workspace_mib"] == 256


def test_engines_are_listed_shown_and_pruned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = build(capsys, "out/net-make-int8-tensorrt", "--target", "rtx-4090")
    assert run(["engines", "list"]) == 0
    assert "rtx-4090" in capsys.readouterr().out
    assert run(["engines", "show", made["engine"], "--layers"]) == 0
    shown = capsys.readouterr().out
    assert "3 convolutions and matrix products: 3 in int8" in shown
    assert "body/Conv" in shown
    Path(made["engine"]).write_bytes(b"cut")
    assert run(["engines", "show", made["engine"]]) == 2
    assert run(["engines", "list", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"engines": []}
    assert "damaged" in printed.err
    again = build(capsys, "out/net-make-int8-tensorrt", "--target", "rtx-4090")
    assert again["reused"] is False
    assert run(["engines", "prune", "--target", "rtx-4090", "--dry-run"]) == 0
    assert Path(again["engine"]).is_file()
    assert run(["engines", "prune", "--older-than-days", "1"]) == 0
    assert Path(again["engine"]).is_file()
    assert run(["engines", "prune", "--all"]) == 0
    assert not Path(again["engine"]).exists()
    assert run(["engines", "prune"]) == 2


def test_an_engine_without_its_manifest_is_a_stranger(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "engine.plan").write_bytes(b"anything")
    assert run(["engines", "show", str(tmp_path / "engine.plan")]) == 2
    assert "origin is unknown" in capsys.readouterr().err


def test_what_the_parser_refuses_is_named_with_its_line_of_code(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["build", "net.py:make_unbuildable", "--weights", "none", "--target", "rtx-4090"])
    assert code == 2  # the shape of the input is not known
    assert "--input" in capsys.readouterr().err
    assert run(["export", "net.py:make_unbuildable", "--input", "x:batchx3x16x16", "--output-dir", "out"]) == 0
    capsys.readouterr()
    assert run(["build", "out/net-make_unbuildable-fp32", "--target", "rtx-4090"]) == 2
    said = capsys.readouterr().err
    assert "Det" in said and "net.py:" in said


def test_a_build_that_failed_does_not_harm_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    """In one process TensorRT-RTX 1.7 builds quantized convolutions in float after a build that failed."""
    assert run(["build", "out/net-make-fp32", "--target", "t4", "--runtime", "tensorrt-rtx"]) == 1
    made = build(capsys, "out/net-make-int8-tensorrt", "--target", "rtx-4090")
    assert made["summary"]["compute"] == {"int8": 3}


def test_a_crash_of_tensorrt_is_a_failed_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorrt_rtx.py").write_text(
        "import os\n\nclass ILogger:\n    pass\n\ndef Builder(log):\n    os.abort()\n"
    )
    task = BuildTask(
        module="tensorrt_rtx", onnx_path=Path("out/net-make-fp32/model.onnx"), shapes=(), options=BuildOptions()
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EngineBuildError, match="ended with signal SIGABRT"):
        build_in_child(task)


def test_lost_fusion_is_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A quantized graph of a stranger's whose convolution reads a float input."""
    graph = onnx.load("out/net-make-int8-tensorrt/model.onnx")
    convolution = next(node for node in graph.graph.node if node.name == "body/Conv")
    dequantize = next(node for node in graph.graph.node if convolution.input[0] in node.output)
    quantize = next(node for node in graph.graph.node if dequantize.input[0] in node.output)
    convolution.input[0] = quantize.input[0]
    onnx.save(graph, tmp_path / "broken.onnx")
    made = build(capsys, str(tmp_path / "broken.onnx"), "--target", "rtx-4090")
    assert made["summary"]["compute"] == {"int8": 2, "fp32": 1}
    assert (
        "1 of 3 quantized convolutions and matrix products are not INT8: body/Conv runs in fp32" in made["warnings"][0]
    )


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["out/net-make-fp32"], 2, "--target"),
        (["out/net-make-fp32", "--target", "rtx-4091"], 2, "rtx-4090"),
        (["out/net-make-fp32", "--target", "host"], 2, "no CUDA GPU"),
        (["out/net-make-fp32", "--target", "orin-30w"], 4, "run this command there"),
        (["out/net-make-fp32", "--target", "orin-30w", "--runtime", "tensorrt-rtx"], 2, "compute capability 8.7"),
        (["out/net-make-fp32", "--target", "l4"], 4, "--runtime tensorrt-rtx"),
        (["out/net-make-fp32", "--target", "rtx-4090", "--runtime", "trt"], 2, "tensorrt-rtx"),
        (["out/net-make-fp32", "--target", "t4", "--runtime", "tensorrt-rtx"], 1, "FP32 GEMM is not supported"),
        (["out/net-make-int8-ort-cpu", "--target", "rtx-4090"], 2, "onnxruntime's CPU provider"),
        (["out/net-make-fp32", "--target", "rtx-4090", "--use-dla-core", "0"], 2, "no DLA"),
        (["out/net-make-fp32", "--target", "rtx-4090", "--strip-plan"], 2, "--strip-plan"),
        (["out/net-make-fp32", "--target", "rtx-4090", "--max-shapes", "y:1x3x16x16"], 2, "no such input"),
        (["out/net-make-fp32", "--target", "rtx-4090", "--max-shapes", "x:4x3x16x16"], 2, "must rise"),
        (["out/net-make-fp32", "--target", "rtx-4090", "--max-shapes", "x:64x3x32x32"], 2, "does not fit"),
        (["out/net-make-fp32", "--target", "rtx-4090", "--precision", "int8"], 2, "--precision"),
        (["nowhere", "--target", "rtx-4090"], 2, "nowhere"),
    ],
)
def test_what_cannot_be_built_is_said_and_leaves_nothing(
    arguments: list[str], code: int, fault: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["build", *arguments]) == code
    printed = capsys.readouterr()
    assert fault in printed.err
    assert "Traceback" not in printed.err and printed.out == ""
    assert list(tmp_path.rglob("engine.plan")) == []
