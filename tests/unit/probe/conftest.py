"""Recorded boards for the tests of probes."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploykit.probe.device import device_state
from deploykit.probe.snapshot import opened
from deploykit.targets.state import DeviceState

BOARDS = Path(__file__).resolve().parents[2] / "fixtures" / "boards"


@pytest.fixture
def boards() -> Path:
    """The folder of the recorded snapshots."""
    return BOARDS


@pytest.fixture
def state_of(in_memory: None) -> Callable[[str], DeviceState]:
    """Name of a recorded snapshot → its state."""

    def read(name: str) -> DeviceState:
        with opened(BOARDS / f"{name}.tar.gz") as root:
            return device_state(root)

    return read


@pytest.fixture
def board_root(in_memory: None) -> Iterator[Callable[[str], Path]]:
    """Name of a recorded snapshot → a folder that it is unpacked in, to be changed at will."""
    with contextlib.ExitStack() as stack:
        yield lambda name: stack.enter_context(opened(BOARDS / f"{name}.tar.gz"))


@pytest.fixture
def tree_of(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Files by path → the folder that holds them."""

    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make
