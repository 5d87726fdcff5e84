"""`deploykit bench` as people type it, on a real session: what it prints, what it keeps, and what stops it."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from deploykit.cli.app import run

DEPLOYKIT = [sys.executable, "-c", "from deploykit.cli.app import main; main()"]


def save_network(path: Path, batch: str | int = "batch", weights: type[np.generic] = np.float32) -> None:
    """A convolution and a classifier: some tenths of a millisecond an image."""
    rng = np.random.default_rng(0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(weights))
    kernel = numpy_helper.from_array(rng.standard_normal((16, 3, 3, 3)).astype(weights), "kernel")
    matrix = numpy_helper.from_array(rng.standard_normal((16, 10)).astype(weights), "matrix")
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["features"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["scores"]),
    ]
    image = helper.make_tensor_value_info("image", kind, [batch, 3, 64, 64])
    scores = helper.make_tensor_value_info("scores", kind, [batch, 10])
    graph = helper.make_graph(nodes, "net", [image], [scores], [kernel, matrix])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("DEPLOYKIT_STORE", raising=False)
    save_network(tmp_path / "net.onnx")
    return tmp_path


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The document of a run that went well."""
    code = run(["bench", *arguments, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return dict(json.loads(printed.out))


def stored(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run(["results", "list", "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["measurements"])


def test_people_see_latency_its_tail_and_what_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "net.onnx", "--duration", "0.4", "--percentile", "97"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("net fp32 on host, onnxruntime CPUExecutionProvider")
    for part in ("SingleStream", "p50", "p97", "p99", "throughput", "id"):
        assert part in out


@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream", "Offline"])
def test_a_closed_scenario_is_measured_and_kept(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = bench(capsys, "net.onnx", "--scenario", scenario, "--duration", "0.4")
    each = {"SingleStream": 1, "MultiStream": 8, "Offline": 1}[scenario]
    assert (made["scenario"], made["batch_size"], made["target"]) == (scenario, each, "host")
    assert made["samples"] == made["queries"] * each
    assert made["throughput_ips"] == pytest.approx(made["samples"] / made["duration_s"])
    assert made["latency_ms"]["min"] <= made["latency_ms"]["p50"] <= made["latency_ms"]["max"]
    assert made["provider"] == "CPUExecutionProvider"
    assert made["device"]["cpu"]
    assert stored(capsys) == [made]


def test_offline_in_batches_and_streams(capsys: pytest.CaptureFixture[str]) -> None:
    made = bench(
        capsys, "net.onnx", "--scenario", "Offline", "--batch", "4", "--streams", "2", "--threads", "1",
        "--duration", "0.4",
    )  # fmt: skip
    assert (made["batch_size"], made["streams"], made["conditions"]["threads"]) == (4, 2, 1)
    assert made["conditions"]["latency_of"] == "batch"


def test_server_runs_at_the_rate_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    made = bench(capsys, "net.onnx", "--scenario", "Server", "--request-rate", "200", "--duration", "1")
    assert made["offered_ips"] == 200
    # 200 Poisson arrivals: four standard deviations of their number.
    assert made["throughput_ips"] == pytest.approx(200, abs=60)


def test_server_searches_the_highest_rate_under_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    alone = bench(capsys, "net.onnx", "--duration", "0.3")["latency_ms"]["p50"]
    made = bench(capsys, "net.onnx", "--scenario", "Server", "--latency-ms", "100", "--duration", "1")
    assert made["latency_bound_ms"] == 100
    assert 0 < made["offered_ips"] < 1.5e3 / alone
    missed = [remark for remark in made["remarks"] if "missed the limit" in remark]
    assert made["latency_ms"]["p50"] <= 100 or missed


def test_a_limit_below_a_lone_query_exits_with_3_and_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["bench", "net.onnx", "--scenario", "Server", "--latency-ms", "0.0001", "--duration", "0.3"])
    assert code == 3
    assert "no rate holds 0.0001 ms" in capsys.readouterr().err
    assert stored(capsys) == []


def test_all_scenarios_come_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    made = bench(capsys, "net.onnx", "--scenario", "all", "--request-rate", "100", "--duration", "0.3")["measurements"]
    assert [one["scenario"] for one in made] == ["SingleStream", "MultiStream", "Offline", "Server"]
    assert len(stored(capsys)) == 4


def test_results_of_a_bench_are_shown_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    first = bench(capsys, "net.onnx", "--duration", "0.4")
    second = bench(capsys, "net.onnx", "--duration", "0.4")
    assert run(["results", "show", first["id"][:8]]) == 0
    assert first["id"][:8] in capsys.readouterr().out
    assert run(["results", "compare", first["id"][:8], second["id"][:8], "--json"]) in (0, 3)
    compared = json.loads(capsys.readouterr().out)
    assert compared["comparison"]["outcome"] in ("faster", "slower", "same", "unclear")


def test_a_fixed_batch_is_kept_to(capsys: pytest.CaptureFixture[str]) -> None:
    save_network(Path("fixed.onnx"), batch=4)
    made = bench(capsys, "fixed.onnx", "--scenario", "Offline", "--batch", "4", "--duration", "0.3")
    assert made["batch_size"] == 4
    assert run(["bench", "fixed.onnx", "--scenario", "Offline", "--batch", "3", "--duration", "0.3"]) == 2
    assert "4" in capsys.readouterr().err


def test_fp16_on_the_cpu_is_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    save_network(Path("half.onnx"), weights=np.float16)
    made = bench(capsys, "half.onnx", "--duration", "0.3")
    assert made["precision"] == "fp16"
    assert any("computes FP16 graphs in FP32" in remark for remark in made["remarks"])


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["net.onnx", "--provider", "cuda"], 4, "CUDAExecutionProvider"),
        (["net.onnx", "--provider", "tpu"], 2, "tpu"),
        (["net.onnx", "--runtime", "onnx-runtime"], 2, "onnxruntime"),
        (["net.onnx", "--target", "orin-30w"], 4, "orin"),
        (["net.onnx", "--target", "orin-31w"], 2, "orin-30w"),
        (["none.onnx"], 2, "none.onnx"),
        (["text.onnx"], 2, "text.onnx"),
        (["empty"], 2, "empty"),
        (["net.onnx", "--precision", "int8"], 2, "--precision"),
        (["net.onnx", "--duration", "0"], 2, "duration"),
        (["net.onnx", "--duration", "nan"], 2, "duration"),
        (["net.onnx", "--batch", "0"], 2, "--batch"),
        (["net.onnx", "--batch", "8"], 2, "Offline"),
        (["net.onnx", "--streams", "2"], 2, "stream"),
        (["net.onnx", "--scenario", "Server"], 2, "--request-rate"),
        (["net.onnx", "--scenario", "Server", "--request-rate", "-3"], 2, "request rate"),
        (["net.onnx", "--scenario", "FixedBatch"], 2, "FixedBatch"),
        (["net.onnx", "--percentile", "99,x"], 2, "--percentile"),
        (["net.onnx", "--percentile", "100"], 2, "--percentile"),
        (["net.onnx", "--latency-ms", "5"], 2, "--latency-ms"),
        (["net.onnx", "--request-rate", "5"], 2, "--request-rate"),
    ],
)
def test_what_cannot_be_measured_is_named_and_nothing_is_kept(
    arguments: list[str], code: int, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("text.onnx").write_text("not a graph")
    Path("empty").mkdir()
    assert run(["bench", *arguments]) == code
    printed = capsys.readouterr()
    assert fault in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert stored(capsys) == []


def test_a_store_that_cannot_be_made_is_said_before_the_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("DEPLOYKIT_STORE", "sqlite:///file/results.db")
    start = time.monotonic()
    assert run(["bench", "net.onnx", "--duration", "20"]) == 1
    assert time.monotonic() - start < 10
    assert "result store" in capsys.readouterr().err


def test_a_store_that_fails_after_the_run_does_not_take_the_result_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench(capsys, "net.onnx", "--duration", "0.2")
    with sqlite3.connect(".deploykit/results.db") as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON measurements BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
    assert run(["bench", "net.onnx", "--duration", "0.2", "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["model"] == "net"
    assert "disk is full" in printed.err


@pytest.mark.parametrize(
    "scenario",
    [["SingleStream"], ["MultiStream"], ["Offline"], ["Server", "--request-rate", "50"]],
    ids=lambda words: words[0],
)
def test_ctrl_c_ends_a_run_at_once_and_cleanly(scenario: list[str], tmp_path: Path) -> None:
    words = [*DEPLOYKIT, "bench", "net.onnx", "--duration", "60", "--scenario", *scenario]
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background ignores SIGINT, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # LoadGen's folder shows that the run has begun.
    while not list((tmp_path / "tmp").glob("deploykit-loadgen-*")):
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert err.strip().endswith("interrupted")
    assert "terminate" not in err and "Traceback" not in err
    assert list((tmp_path / "tmp").glob("deploykit-loadgen-*")) == []


def test_two_at_once_share_a_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [*DEPLOYKIT, "bench", "net.onnx", "--duration", "0.5", "--json"]
    both = [subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    made = [json.loads(process.communicate(timeout=60)[0])["id"] for process in both]
    assert {one["id"] for one in stored(capsys)} == set(made)


def test_without_a_model_the_artifact_exported_last_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text("from torch import nn\n\ndef make():\n    return nn.Conv2d(3, 4, 3)\n")
    assert run(["export", "net.py:make", "--input", "x:batchx3x16x16", "--json"]) == 0
    exported = json.loads(capsys.readouterr().out)
    assert run(["bench", "--duration", "0.3", "--json"]) == 0
    printed = capsys.readouterr()
    assert "no MODEL given" in printed.err
    made = json.loads(printed.out)
    assert made["model"] == exported["model"]


@pytest.mark.slow
def test_without_model_or_artifact_it_is_resnet50(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--weights", "none", "--duration", "0.5", "--json"]) == 0
    printed = capsys.readouterr()
    assert "taking resnet50" in printed.err
    made = json.loads(printed.out)
    assert (made["model"], made["precision"]) == ("resnet50", "fp32")
    assert any("random weights" in remark for remark in made["remarks"])
