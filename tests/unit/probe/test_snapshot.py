"""Snapshots: what is saved replays to the same state; what a stranger packed is unpacked safely or not at all."""

import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deploykit.base.errors import UsageError
from deploykit.probe.device import device_state, look_at
from deploykit.probe.snapshot import opened, pack, save_snapshot, unpacked


@pytest.mark.parametrize("name", ["orin-agx-64gb-jp5.MODE_30W", "xavier-agx.MODE_15W", "thor-t5000.90W"])
def test_what_was_read_replays_to_the_same_state(name: str, board_root: Callable[[str], Path], tmp_path: Path) -> None:
    look = look_at(board_root(name))
    save_snapshot(look, tmp_path / "again.tar.gz", None)
    with opened(tmp_path / "again.tar.gz") as root:
        assert device_state(root) == look.state


def test_the_same_machine_packs_to_the_same_bytes() -> None:
    assert pack({"a": b"1", "b": b"2"}) == pack({"b": b"2", "a": b"1"})


def test_only_what_the_probes_read_is_in_it(board_root: Callable[[str], Path], tmp_path: Path) -> None:
    root = board_root("orin-nx-16gb.15W")
    (root / "etc/shadow").write_text("secret")
    (root / "proc/cpuinfo").write_text("processor : 0\nSerial\t\t: 1424021\nCPU part : 0xd42\n")
    save_snapshot(look_at(root), tmp_path / "board.tar.gz", None)
    contents = unpacked(tmp_path / "board.tar.gz")
    assert "etc/shadow" not in contents
    assert contents["proc/cpuinfo"] == b"processor : 0\nCPU part : 0xd42\n"


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../outside"),
        tarfile.TarInfo("proc/../../outside"),
        tarfile.TarInfo("/etc/passwd"),
        link("proc/model", "/etc/passwd", tarfile.SYMTYPE),
        link("proc/model", "/etc/passwd", tarfile.LNKTYPE),
        link("proc/model", "", tarfile.FIFOTYPE),
        link("proc/model", "", tarfile.CHRTYPE),
    ],
    ids=["climbs", "climbs-inside", "absolute", "symlink", "hardlink", "fifo", "device"],
)
def test_what_is_no_plain_file_below_the_root_is_refused(member: tarfile.TarInfo, tmp_path: Path) -> None:
    path = archive(tmp_path / "board.tar.gz", (tarfile.TarInfo("proc/good"), b"1"), (member, b""))
    with pytest.raises(UsageError, match="not unpacked"), opened(path):
        pass
    assert list(tmp_path.iterdir()) == [path]


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "bomb.tar.gz", (tarfile.TarInfo("proc/zeros"), bytes(65 << 20)))
    with pytest.raises(UsageError, match="larger than any machine"):
        unpacked(path)


def test_a_file_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "b.tar.gz", (tarfile.TarInfo("proc"), b"1"), (tarfile.TarInfo("proc/x"), b"1"))
    with pytest.raises(UsageError, match="below a file"):
        unpacked(path)


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_snapshot_is_said_to_be_none(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "board.tar.gz"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="neither a folder nor a snapshot"), opened(path):
        pass


def test_a_missing_file_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a folder nor a snapshot"), opened(tmp_path / "nothing.tar.gz"):
        pass


def test_the_recorded_boards_are_what_their_script_writes() -> None:
    script = Path(__file__).resolve().parents[3] / "scripts" / "make_boards"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run scripts/make_boards: {done.stderr}"
