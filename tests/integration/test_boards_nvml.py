"""Recorded cards through the real nvidia-ml-py: a small library with NVML's symbols, compiled here, answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploykit.probe.device import device_state
from deploykit.probe.snapshot import opened, unpacked

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
CARDS = ["rtx-4090", "rtx-3060", "a100-80gb", "a100-80gb-7x1g", "a100-80gb-mixed", "h100", "t4"]
FLAGS = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]

# Members of nvml.h's structures, in their order.
MEMBERS = (
    ("total", "free", "used"),
    ("gpu", "memory"),
    (
        "multiprocessorCount", "sharedCopyEngineCount", "sharedDecoderCount", "sharedEncoderCount", "sharedJpegCount",
        "sharedOfaCount", "gpuInstanceSliceCount", "computeInstanceSliceCount", "memorySizeMB",
    ),
)  # fmt: skip

# What runs in a process of its own, which finds the library where a driver would have put it. The answers are read at
# every question: one process asks all the cards in turn.
ASK_ALL = """
import json, os, sys
from pathlib import Path
from deploykit.probe.device import device_state

for name in sys.argv[1:]:
    os.environ["NVML_ANSWERS"] = name
    print(device_state(Path("/")).nvml.model_dump_json())
"""
WATCH_A_SLICE = """
import json, os, sys
from deploykit.bench import watch
from deploykit.probe.trace import Trace

watch.REST_S = 0.2
with watch.device_in_hand(sys.argv[1]) as device:
    inside = os.environ["CUDA_VISIBLE_DEVICES"]
    with device.watching() as seen:
        pass
    fields = device.fields(seen, samples=1, provider="CUDAExecutionProvider")
print(json.dumps({"inside": inside, "after": os.environ.get("CUDA_VISIBLE_DEVICES"), **fields}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled library."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: the stand-in for libnvidia-ml.so.1 cannot be built")
    folder = tmp_path_factory.mktemp("nvml")
    source = FIXTURES / "nvml" / "nvml.c"
    subprocess.run([compiler, *FLAGS, "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


@pytest.fixture(scope="module")
def answers(library: Path) -> dict[str, Path]:
    """Card → the file of its answers."""
    found = {}
    for name in [*CARDS, "driver-no-permission"]:
        record = json.loads(unpacked(FIXTURES / "boards" / f"{name}.tar.gz")["deploykit/nvml.json"])
        lines = [f"{question}\t{_spelled(entry)}\n" for question, entry in record.items()]
        found[name] = library / f"{name}.txt"
        found[name].write_text("".join(lines))
    # A driver that may not be talked to does not even start.
    found["driver-no-permission"].write_text("nvmlInit\t!4\n")
    return found


def _spelled(entry: dict[str, Any]) -> str:
    if "refused" in entry:
        return f"!{entry['refused']}"
    answer = entry["answer"]
    if isinstance(answer, dict):
        members = next((members for members in MEMBERS if set(members) == set(answer)), tuple(answer))
        return "=" + " ".join(str(answer[name]) for name in members)
    if isinstance(answer, list):
        return "=" + " ".join(str(item["pid"] if isinstance(item, dict) else item) for item in answer)
    return f"={answer}"


def python(library: Path, code: str, *arguments: str, **variables: str) -> str:
    """What a program prints that finds the library."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CUDA_VISIBLE_DEVICES", "DEPLOYKIT_ROOT")}
    environment = {**kept, "LD_LIBRARY_PATH": str(library), **variables}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_live_card_reads_as_its_record_replays(library: Path, answers: dict[str, Path]) -> None:
    names = list(answers)
    printed = python(library, ASK_ALL, *(str(answers[name]) for name in names)).splitlines()
    for name, line in zip(names, printed, strict=True):
        with opened(FIXTURES / "boards" / f"{name}.tar.gz") as root:
            assert json.loads(line) == device_state(root).nvml.model_dump(mode="json"), name


def test_what_nvml_refuses_is_not_available_and_never_zero(library: Path, answers: dict[str, Path]) -> None:
    gpu = json.loads(python(library, ASK_ALL, str(answers["a100-80gb-mixed"])))["gpus"][0]
    assert (gpu["utilization"], gpu["unavailable"]["utilization"]) == (None, "Not Supported")
    assert [item["profile"] for item in gpu["mig_devices"]] == ["3g.40gb", "2g.20gb", "1g.10gb"]
    card = json.loads(python(library, ASK_ALL, str(answers["rtx-4090"])))["gpus"][0]
    assert card["mig_enabled"] is card["ecc"] is None
    assert card["unavailable"]["mig_enabled"] == "Not Supported"


def test_a_run_sees_the_slice_that_was_checked_and_no_other(library: Path, answers: dict[str, Path]) -> None:
    done = json.loads(python(library, WATCH_A_SLICE, "a100-mig-1g.10gb", NVML_ANSWERS=str(answers["a100-80gb-mixed"])))
    assert done["inside"] == done["conditions"]["mig_device"] == "MIG-33333333-3333-3333-3333-333333333333"
    assert done["after"] is None
    assert (done["target"], done["valid"]) == ("a100-sxm4-80gb:1g.10gb", True)
    assert done["conditions"]["mig_neighbours"] == [
        {"profile": "3g.40gb", "state": "idle"},
        {"profile": "2g.20gb", "state": "busy"},
    ]
    assert (done["power_w"], done["power_scope"]) == (61.0, "board")


def test_a_slice_that_somebody_uses_makes_the_run_invalid(library: Path, answers: dict[str, Path]) -> None:
    done = json.loads(
        python(library, WATCH_A_SLICE, "a100-sxm4-80gb:2g.20gb", NVML_ANSWERS=str(answers["a100-80gb-mixed"]))
    )
    assert not done["valid"]
    assert "another process uses the slice" in done["invalid_reasons"][0]
