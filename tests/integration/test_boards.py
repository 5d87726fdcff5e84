"""Recorded boards through the command line: detected, checked against every mode, applied as a dry run, benched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deploykit.bench import watch
from deploykit.cli.app import run
from deploykit.probe.snapshot import opened
from deploykit.targets.catalog import load_catalog

pytestmark = pytest.mark.usefixtures("in_memory")

BOARDS = Path(__file__).resolve().parents[1] / "fixtures" / "boards"
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in BOARDS.glob("*.tar.gz"))
JETSONS = [name for name in NAMES if "." in name]

# Boards whose name is not the slug of their device. The original developer kit has 32 GB and the full chip.
DEVICES = {
    "orin-agx-64gb-jp5": "orin-agx-64gb",
    "orin-agx-64gb-jp6": "orin-agx-64gb",
    "orin-agx-devkit-32gb": "orin-agx-64gb",
    "orin-agx-devkit-32gb-jp50dp": "orin-agx-64gb",
}
CARDS = {
    "rtx-4090": "rtx-4090",
    "rtx-3060": "rtx-3060-12gb",
    "a100-80gb": "a100-sxm4-80gb",
    "a100-80gb-7x1g": "a100-sxm4-80gb:1g.10gb",
    "a100-80gb-mixed": "a100-sxm4-80gb:3g.40gb",
    "h100": "h100-sxm5-80gb",
    "t4": "t4",
    "no-driver": "host",
    "driver-no-permission": "host",
}
# What a stand-in run on the CPU, with a recorded board, is told whatever the board's state; how steady its time is
# depends on who else uses the machine that runs the tests.
STAND_IN = ["it ran on", "recorded tree", "last third of the run"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in an empty folder, with a store of their own, and nobody's choice of GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEPLOYKIT_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("CUDA_VISIBLE_DEVICES", "DEPLOYKIT_ROOT", "DEPLOYKIT_STORE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def board(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The folder of a recorded board, named by the test's parameter."""
    with opened(BOARDS / f"{request.param}.tar.gz") as root:
        yield root


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict:
    """The JSON document of a command that ends with the code."""
    capsys.readouterr()
    assert run([*arguments, "--json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def present(name: str) -> tuple[str, str]:
    """Device and the mode that it is in."""
    board, _, mode = name.partition(".")
    slug = DEVICES.get(board, board)
    modes = load_catalog().files[slug].power_modes
    return slug, next(key for key, listed in modes.items() if listed.nvpmodel_name == mode)


@pytest.mark.parametrize(("board", "name"), [(name, name) for name in JETSONS], indirect=["board"])
def test_a_board_is_detected_and_is_its_own_mode_and_no_other(
    board: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slug, mode = present(name)
    found = answer(capsys, "targets", "detect", "--root", str(board))
    assert (found["target"], found["devices"]) == (f"{slug}@{mode}", [slug])
    assert {t["power_mode"] for t in found["targets"]} == set(load_catalog().files[slug].power_modes)
    for target in found["targets"]:
        here = target["power_mode"] == mode
        assert target["fits"] == here
        assert any(d["what"] == "power mode" for d in target["differences"]) != here
    # `check` and `apply` speak for the mode that holds and for one that does not.
    other = next(t for t in found["targets"] if not t["fits"] and t["commands"])
    assert answer(capsys, "targets", "check", f"{slug}@{mode}", "--root", str(board))["fits"]
    assert answer(capsys, "targets", "check", other["target"], "--root", str(board), code=4)["differences"]
    assert_dry_run(answer(capsys, "targets", "apply", other["target"], "--root", str(board)), found)


def assert_dry_run(plan: dict, found: dict) -> None:
    """The switch by the board's own id; a change of power gating waits for the next boot, and nothing else is done."""
    modes = load_catalog().files[plan["device"]].power_modes
    ids = {own["name"]: own["id"] for own in found["state"]["jetson"]["modes"]}
    switch = ["nvpmodel", "-m", str(ids[modes[plan["power_mode"]].nvpmodel_name])]
    gated = any(difference["what"] == "TPCs" for difference in plan["differences"])
    assert plan["reboot"] == gated
    assert switch in plan["commands"]
    assert (plan["commands"] == [switch]) == gated
    assert (plan["restore"] == []) == gated


@pytest.mark.parametrize("board", ["orin-agx-64gb-jp6.MODE_50W", "jetson-tx2.MAXQ"], indirect=True)
def test_every_mode_is_checked_and_applied_as_a_dry_run(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "targets", "detect", "--root", str(board))
    for target in found["targets"]:
        ref, code = target["target"], 0 if target["fits"] else 4
        checked = answer(capsys, "targets", "check", ref, "--root", str(board), code=code)
        assert checked["differences"] == target["differences"]
        if target["commands"] is None:
            assert run(["targets", "apply", ref, "--root", str(board)]) == 4
        elif not target["fits"]:
            assert_dry_run(answer(capsys, "targets", "apply", ref, "--root", str(board)), found)


@pytest.mark.parametrize(("board", "name"), [(name, name) for name in CARDS], indirect=["board"])
def test_a_card_is_detected_and_checked(board: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "targets", "detect", "--root", str(board))
    assert found["target"] == CARDS[name]
    for target in found["targets"]:
        code = 0 if target["fits"] else 4
        checked = answer(capsys, "targets", "check", target["target"], "--root", str(board), code=code)
        assert checked["differences"] == target["differences"]
        answer(capsys, "targets", "apply", target["target"], "--root", str(board))
    assert run(["targets", "check", "orin-30w", "--root", str(board)]) == 4
    assert run(["doctor", "--root", str(board)]) == (3 if name == "driver-no-permission" else 0)


@pytest.mark.parametrize("name", ["orin-nx-16gb-super.25W", "xavier-nx.MODE_15W_2CORE", "a100-80gb-mixed"])
def test_a_snapshot_of_a_snapshot_replays_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "targets", "detect", "--root", str(BOARDS / f"{name}.tar.gz"), "--save", "again.tar.gz")
    assert answer(capsys, "targets", "detect", "--root", "again.tar.gz") == found


def test_a_snapshot_of_this_machine_replays_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    live = answer(capsys, "targets", "detect", "--save", "here.tar.gz")
    replayed = answer(capsys, "targets", "detect", "--root", "here.tar.gz")
    for part in ("target", "devices", "warnings"):
        assert replayed[part] == live[part]
    assert replayed["state"]["nvml"] == live["state"]["nvml"]
    assert replayed["state"]["cpu"]["model"] == live["state"]["cpu"]["model"]


def test_every_board_has_an_expectation() -> None:
    assert {name for name in NAMES if "." not in name} == set(CARDS)


@pytest.mark.parametrize("name", ["orin-agx-64gb-jp6.MODE_30W", "a100-80gb-mixed", "rtx-4090"])
def test_a_board_as_a_target_file_is_what_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(BOARDS / f"{name}.tar.gz")
    assert run(["targets", "export", "--root", root, "--out", "board.yaml"]) == 0
    suffix = {"a100-80gb-mixed": ":3g.40gb", "orin-agx-64gb-jp6.MODE_30W": "@30w"}.get(name, "")
    assert answer(capsys, "targets", "check", f"./board.yaml{suffix}", "--root", root)["fits"]


RTX = str(BOARDS / "rtx-4090.tar.gz")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("targets detect --root nowhere", "neither a folder nor a snapshot"),
        ("targets detect --root empty", "holds no machine"),
        ("targets detect --tegrastats nowhere.log", "cannot be read"),
        ("targets detect --tegrastats note.txt", "no line that tegrastats writes"),
        ("targets detect --save /proc/board.tar.gz", "cannot be written"),
        ("targets check orin-30", "did you mean orin-30w"),
        ("targets apply host --gpu-clock-mhz 900", "no card's clock"),
        (f"targets apply rtx-4090 --gpu-clock-mhz 9000 --root {RTX}", "3105 MHz at most"),
        (f"targets apply rtx-4090 --yes --root {RTX}", "leave one of them out"),
        (f"targets export --root {RTX} --out /proc/board.yaml", "cannot be written"),
        ("doctor --root note.txt", "neither a folder nor a snapshot"),
    ],
)
def test_what_people_mistype(command: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("hi\n")
    assert run(command.split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


TEGRASTATS = (
    "RAM 20642/62817MB (lfb 1x2MB) CPU [23%@2201] GR3D_FREQ 12%@[1300,1300] cpu@52.968C/52.968C "
    "VDD_GPU_SOC 5139mW/5139mW/5139mW VDD_CPU_CV 3268mW/3268mW/3268mW VIN_SYS_5V0 5500mW/5500mW/5500mW\n"
)


def test_a_log_of_tegrastats_is_read_by_the_rails_of_the_board(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tegra.log").write_text(TEGRASTATS * 3)
    command = [
        "targets",
        "detect",
        "--root",
        str(BOARDS / "orin-agx-64gb-jp6.MAXN.tar.gz"),
        "--tegrastats",
        "tegra.log",
    ]
    assert run(command) == 0
    assert "3 samples, 13.91 W, GPU 1300 MHz" in " ".join(capsys.readouterr().out.split())
    assert answer(capsys, *command)["tegrastats"]["power_w"] == pytest.approx(13.907)


# --- bench: the CPU runtime stands in for the engine


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a tiny ONNX file; the look at the device at rest is cut short."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    monkeypatch.setattr(watch, "REST_S", 0.2)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy")
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "tiny", [x], [y], [weight])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "tiny.onnx"
    )
    return str(tmp_path / "tiny.onnx")


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch):
    """Name of a recorded board → everything after it runs on that board."""

    def choose(name: str) -> None:
        monkeypatch.setenv("DEPLOYKIT_ROOT", str(BOARDS / f"{name}.tar.gz"))

    return choose


BENCH = ("--provider", "cpu", "--duration", "0.3", "--warmup-ms", "20", "--target")


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("orin-agx-64gb-jp6.MAXN", "orin-30w", ["orin-agx-64gb@30w", "MAXN (id 0)", "sudo nvpmodel -m 2", "reboot"]),
        ("orin-agx-64gb-jp5.MODE_50W", "orin-30w", ["MODE_50W (id 3) instead of MODE_30W", "nvpmodel -m 2"]),
        ("orin-agx-32gb.MODE_15W", "orin-30w", ["orin-agx-32gb@30w", "sudo nvpmodel -m 2"]),
        ("orin-nx-16gb.15W", "orin-30w", ["p3767-0000", "AGX Orin"]),
        ("a100-80gb", "a100-mig-1g.10gb", ["MIG: off", "-mig 1"]),
        ("a100-80gb-7x1g", "a100-sxm4-80gb:3g.40gb", ["slices of 1g.10gb", "-cgi 3g.40gb -C"]),
        ("rtx-3060", "rtx-4090", ["RTX 4090", "RTX 3060"]),
        ("no-driver", "rtx-4090", ["libnvidia-ml.so.1 is not there"]),
    ],
)  # fmt: skip
def test_a_bench_of_another_device_is_refused_and_told_the_way(
    name: str, target: str, said: list[str], model: str, on, capsys: pytest.CaptureFixture[str]
) -> None:
    on(name)
    assert run(["bench", model, *BENCH, target]) == 4
    error = capsys.readouterr().err
    assert [word for word in said if word not in error] == []
    assert answer(capsys, "results", "list")["measurements"] == []


@pytest.mark.parametrize(
    ("name", "target", "exact"),
    [
        ("orin-agx-64gb-jp6.MODE_30W", "orin-30w", "orin-agx-64gb@30w"),
        ("orin-agx-devkit-32gb.MODE_30W", "orin-30w", "orin-agx-64gb@30w"),
        ("orin-agx-32gb.MODE_30W", "orin-30w", "orin-agx-32gb@30w"),
        ("a100-80gb-7x1g", "a100-mig-1g.10gb", "a100-sxm4-80gb:1g.10gb"),
        ("rtx-4090", "rtx-4090", "rtx-4090"),
    ],
)
def test_a_bench_of_the_device_in_hand_is_accepted(
    name: str, target: str, exact: str, model: str, on, capsys: pytest.CaptureFixture[str]
) -> None:
    on(name)
    measured = answer(capsys, "bench", model, *BENCH, target)
    assert measured["target"] == exact
    assert_only_a_stand_in(measured)
    assert measured["power_w"] > 0
    assert measured["conditions"]["idle_power_w"] == pytest.approx(measured["power_w"])
    assert measured["energy_j_per_sample"] > 0
    assert ("means" in " ".join(measured["remarks"])) == (exact == "orin-agx-32gb@30w")


def test_allow_mismatch_measures_and_keeps_it_invalid(model: str, on, capsys: pytest.CaptureFixture[str]) -> None:
    on("orin-agx-64gb-jp6.MODE_50W")
    measured = answer(capsys, "bench", model, *BENCH, "orin-30w", "--allow-mismatch")
    assert measured["target"] == "orin-agx-64gb@30w"
    assert measured["conditions"]["power_mode"] == "MODE_50W"
    assert not measured["valid"]
    assert measured["invalid_reasons"][0] == "power mode: MODE_50W (id 3) instead of MODE_30W (id 2)"
    stored = answer(capsys, "results", "list")["measurements"]
    assert [(each["id"], each["valid"]) for each in stored] == [(measured["id"], False)]


def assert_only_a_stand_in(measured: dict) -> None:
    reasons = measured["invalid_reasons"]
    assert [reason for reason in reasons if not any(word in reason for word in STAND_IN)] == []
