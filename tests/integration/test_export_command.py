"""`deploykit export` from the command line: a small model of one's own, in every precision."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

MODEL = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a model and data, shared so that fp32 is exported once."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "net.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=rng.standard_normal((48, 3, 16, 16), dtype=np.float32))
    return folder


def deploykit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from deploykit.cli.app import run; sys.exit(run(sys.argv[1:]))"
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def export(folder: Path, *arguments: str) -> dict:
    done = deploykit(
        folder, "export", "net.py:make", "--input", "x:batchx3x16x16", "--calibration-data", "data.npz",
        "--calibration-samples", "24", "--eval-samples", "16", "--json", *arguments,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("precision", "lowest_db"), [("fp16", 50), ("int8", 20)])
def test_an_artifact_holds_its_graph_manifest_and_accuracy(folder: Path, precision: str, lowest_db: float) -> None:
    answer = export(folder, "--precision", precision)
    artifact = folder / answer["artifact"]
    assert {"model.onnx", "manifest.json"} <= {path.name for path in artifact.iterdir()}
    assert answer["onnx"] == f"{answer['artifact']}/model.onnx"
    assert answer["accuracy"]["sqnr_db"] > lowest_db
    assert answer["accuracy"]["samples"] == 16
    assert answer["random_weights"] is False


def test_int8_has_the_dialect_of_its_target_from_one_calibration(folder: Path) -> None:
    host = export(folder, "--precision", "int8", "--target", "host")
    card = export(folder, "--precision", "int8", "--target", "rtx-4090")
    assert (host["dialect"], card["dialect"]) == ("ort-cpu", "tensorrt")
    ranges = [(folder / answer["artifact"] / "calibration.json").read_bytes() for answer in (host, card)]
    assert ranges[0] == ranges[1]
    assert host["calibration"]["seconds"] == card["calibration"]["seconds"]


@pytest.mark.parametrize("kept", ["fp16", "fp32"])
def test_what_int8_leaves_is_fp16_for_a_gpu_unless_told_otherwise(folder: Path, kept: str) -> None:
    asked = ["--high-precision-dtype", "fp32"] if kept == "fp32" else []
    answer = export(folder, "--precision", "int8", "--target", "rtx-4090", "--exclude-ops", "Gemm", *asked)
    graph = onnx.load(folder / answer["onnx"])
    assert answer["high_precision_dtype"] == kept
    assert answer["accuracy"]["sqnr_db"] > 20
    types = {tensor.name: tensor.data_type for tensor in graph.graph.initializer}
    gemm = next(node for node in graph.graph.node if node.op_type == "Gemm")
    assert types[gemm.input[1]] == (TensorProto.FLOAT16 if kept == "fp16" else TensorProto.FLOAT)
    scales = {types[node.input[1]] for node in graph.graph.node if node.op_type == "DequantizeLinear"}
    assert scales == {TensorProto.FLOAT16 if kept == "fp16" else TensorProto.FLOAT}
    assert graph.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    why = next(entry["why"] for entry in answer["kept_fp32"] if entry["node"] == gemm.name)
    assert why.endswith("; computes in fp16") == (kept == "fp16")


def test_a_cpu_has_no_fp16_for_the_rest(folder: Path) -> None:
    arguments = ["export", "net.py:make", "--input", "x:batchx3x16x16", "--calibration-data", "data.npz"]
    for value, said in (("fp16", "NVIDIA targets"), ("bf16", "neither fp16 nor fp32")):
        done = deploykit(folder, *arguments, "--precision", "int8", "--high-precision-dtype", value)
        assert done.returncode == 2
        assert said in done.stderr


def test_the_same_command_does_the_work_once_and_another_makes_another(folder: Path) -> None:
    first = export(folder, "--precision", "int8", "--calibration-method", "mse")
    again = export(folder, "--precision", "int8", "--calibration-method", "mse")
    other = export(folder, "--precision", "int8", "--calibration-method", "minmax")
    assert (again["reused"], again["artifact"]) == (True, first["artifact"])
    assert (other["reused"], other["artifact"] == first["artifact"]) == (False, False)


def test_a_changed_model_is_exported_anew(folder: Path) -> None:
    before = export(folder)
    (folder / "net.py").write_text(MODEL.replace("manual_seed(0)", "manual_seed(1)"))
    try:
        assert export(folder)["artifact"] != before["artifact"]
    finally:
        (folder / "net.py").write_text(MODEL)
    assert export(folder)["reused"] is True


def test_a_missed_floor_exits_3_and_keeps_the_artifact(folder: Path) -> None:
    arguments = ["export", "net.py:make", "--input", "x:batchx3x16x16", "--calibration-data", "data.npz"]
    floor = ["--calibration-samples", "24", "--eval-samples", "16", "--precision", "int8", "--accuracy-floor"]
    missed = deploykit(folder, *arguments, *floor, "cosine=1", "--json")
    held = deploykit(folder, *arguments, *floor, "cosine=0.5", "--json")
    assert missed.returncode == 3
    assert "accuracy below the floor" in missed.stderr
    assert (folder / json.loads(missed.stdout)["artifact"]).is_dir()
    assert held.returncode == 0


def test_an_output_folder_gets_a_copy_and_nothing_else_is_overwritten(folder: Path) -> None:
    answer = export(folder, "--output-dir", "out")
    assert answer["artifact"] == "out/make-fp32" or answer["artifact"].startswith("out/")
    assert (folder / answer["onnx"]).is_file()
    export(folder, "--output-dir", "out")
    blocked = folder / "mine" / Path(answer["artifact"]).name
    blocked.mkdir(parents=True)
    (blocked / "thesis.txt").write_text("x")
    done = deploykit(folder, "export", "net.py:make", "--input", "x:batchx3x16x16", "--output-dir", "mine")
    assert done.returncode == 2
    assert "is no artifact" in done.stderr
    assert [path.name for path in blocked.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["net.py:make"], "--input"),
        (["net.py:mkae", "--input", "x:batchx3x16x16"], "make"),
        (["nte.py:make"], "no file"),
        (["resnet5"], "resnet50"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--precision", "int8"], "--calibration-data"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--precision", "fp8"], "fp32"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--target", "orin-30"], "orin-30w"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--batch", "8:1"], "--batch"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--accuracy-floor", "cosin=1"], "cosine"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--accuracy-floor", "cosine=1"], "fp32 is what"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--keep-io-types", "maybe"], "yes nor no"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--preprocessing", "resnet5"], "resnet50"),
        (["net.py:make", "--input", "x:batchx3x16x16", "--calibration-data", "nowhere"], "nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_exits_2_with_a_word_that_helps(folder: Path, arguments: list[str], words: str) -> None:
    done = deploykit(folder, "export", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_random_weights_and_noise_claim_no_accuracy(folder: Path) -> None:
    done = deploykit(
        folder, "export", "net.py:make", "--input", "x:batchx3x16x16", "--precision", "int8", "--calibration-data",
        "random", "--calibration-samples", "8", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] is None


def test_pictures_can_feed_a_model_that_nobody_described(folder: Path) -> None:
    pytest.importorskip("skimage")
    (folder / "how.yaml").write_text("size: [16, 16]\nresize: 18\nmean: [0.5, 0.5, 0.5]\nstd: [0.5, 0.5, 0.5]\n")
    done = deploykit(
        folder, "export", "net.py:make", "--input", "x:batchx3x16x16", "--precision", "int8", "--preprocessing",
        "how.yaml", "--calibration-samples", "8", "--eval-samples", "8", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["calibration"]["data"] == "builtin:photos"
    assert answer["accuracy"]["sqnr_db"] > 15
