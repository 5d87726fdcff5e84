import io
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from deploykit.sources.sniff import sniff


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"open({str(self.path)!r}, 'w').write('x')",)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty file"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"\n  <html><body>403", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (b"This is not a model.\n", "text file"),
        (b"PK\x03\x04 cut short", "damaged archive"),
        (b"\x89HDF\r\n\x1a\n....", "Keras HDF5 file"),
        (b"\x1c\0\0\0TFL3....", "TensorFlow Lite file"),
        (b"GGUF\x03\0\0\0", "GGUF file"),
        (b"\x80\x02 no pickle", "damaged archive"),
        (b"\x08\x08\x12\x07pytorch", "binary file"),
    ],
)
def test_what_bytes_are(tmp_path: Path, data: bytes, kind: str) -> None:
    (tmp_path / "f").write_bytes(data)
    assert sniff(tmp_path / "f").kind == kind


def test_what_torch_saves(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).half()
    state = {"state_dict": net.state_dict(), "epoch": 3}
    torch.save(state, tmp_path / "new.pth")
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save(net, tmp_path / "whole.pt")
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.ones(1, 3),)), tmp_path / "net.pt2")
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    kinds = {path.name: sniff(path).kind for path in tmp_path.iterdir()}
    assert kinds == {
        "new.pth": "state dict",
        "old.pth": "state dict",
        "whole.pt": "pickle with code",
        "net.pt2": "exported program",
        "net.safetensors": "safetensors file",
    }


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_pickle_that_runs_code_is_told_and_not_run(tmp_path: Path, protocol: int, zipped: bool) -> None:
    ran = tmp_path / "ran.txt"
    data = pickle.dumps({"w": Hostile(ran)}, protocol=protocol)
    if zipped:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("model/data.pkl", data)
        data = buffer.getvalue()
    (tmp_path / "f").write_bytes(data)
    found = sniff(tmp_path / "f")
    assert found.kind == "pickle with code"
    assert found.imports[0].endswith("exec")
    assert not ran.exists()


@given(st.binary(max_size=300))
def test_any_bytes_are_something(data: bytes) -> None:
    path = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path()
    file = path / "deploykit-sniff-test"
    file.write_bytes(data)
    try:
        assert sniff(file).described
    finally:
        file.unlink()
