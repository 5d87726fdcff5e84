import datetime as dt
import json
import multiprocessing
from pathlib import Path

import pytest

from deploykit.base.artifact import BatchRange, Manifest, ModelInfo, parse_batch, read_artifact, seal
from deploykit.base.artifact_cache import find_or_make, newest_artifact
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.base.vocab import Precision


def manifest(key: str = "k1", **changes: object) -> Manifest:
    fields: dict[str, object] = {
        "key": key,
        "model": ModelInfo(name="net", reference="net.py:make", source="python-file"),
        "precision": Precision.FP32,
        "opset": 18,
        "inputs": (TensorSpec(name="x", dtype="float32", shape=("batch", 3)),),
        "outputs": (TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
        "batch": BatchRange(min=1, opt=8, max=32),
        "created": dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    }
    return Manifest.model_validate({**fields, **changes})


def fill(folder: Path, content: bytes = b"graph", key: str = "k1") -> Manifest:
    (folder / "model.onnx").write_bytes(content)
    return manifest(key)


def test_what_was_sealed_is_read_back(tmp_path: Path) -> None:
    sealed = seal(tmp_path, fill(tmp_path))
    artifact = read_artifact(tmp_path, check_digests=True)
    assert artifact.manifest == sealed
    assert artifact.manifest.files["model.onnx"].size_bytes == 5
    assert read_artifact(tmp_path / "model.onnx").digest == artifact.digest


def test_the_digest_says_what_it_computes_not_when_it_was_made(tmp_path: Path) -> None:
    first = seal(tmp_path, fill(tmp_path))
    later = first.model_copy(update={"created": dt.datetime(2027, 1, 1, tzinfo=dt.timezone.utc), "warnings": ("w",)})
    other = first.model_copy(update={"precision": Precision.FP16})
    assert later.digest == first.digest
    assert other.digest != first.digest


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "model.onnx").write_bytes(b"other"), "not the file that the manifest describes"),
        (lambda folder: (folder / "model.onnx").unlink(), "lacks its file 'model.onnx'"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "cannot be read as JSON"),
        (lambda folder: (folder / "manifest.json").write_text('{"version": 99}'), "manifest version 99"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "manifest version None"),
        (lambda folder: (folder / "manifest.json").unlink(), "has no manifest.json"),
    ],
)
def test_a_damaged_artifact_is_refused_with_what_is_wrong(tmp_path: Path, damage: object, words: str) -> None:
    seal(tmp_path, fill(tmp_path))
    damage(tmp_path)  # type: ignore[operator]
    with pytest.raises(UsageError, match=words):
        read_artifact(tmp_path, check_digests=True)


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    seal(tmp_path, fill(tmp_path))
    document = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**document, "precison": "int8"}))
    with pytest.raises(UsageError, match="precison"):
        read_artifact(tmp_path)


def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "artifact"
    folder.mkdir()
    (tmp_path / "secret").write_text("x")
    seal(folder, fill(folder))
    document = json.loads((folder / "manifest.json").read_text())
    document["files"]["../secret"] = {"sha256": "0" * 64, "size_bytes": 1}
    (folder / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match="outside its folder"):
        read_artifact(folder)


def test_the_same_key_does_the_work_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> Manifest:
        calls.append(folder)
        return fill(folder)

    first, reused_first = find_or_make(tmp_path, "net/a", "fp32", "k1", make)
    second, reused_second = find_or_make(tmp_path, "net/a", "fp32", "k1", make)
    assert (len(calls), reused_first, reused_second) == (1, False, True)
    assert first.path == second.path == tmp_path / "net-a" / "fp32-k1"


def test_a_damaged_artifact_is_made_anew(tmp_path: Path) -> None:
    artifact, _ = find_or_make(tmp_path, "net", "fp32", "k1", fill)
    artifact.onnx_path.write_bytes(b"cut")
    again, reused = find_or_make(tmp_path, "net", "fp32", "k1", fill)
    assert not reused
    assert again.onnx_path.read_bytes() == b"graph"


def test_the_newest_artifact_is_found_and_damaged_ones_are_passed_over(tmp_path: Path) -> None:
    assert newest_artifact(tmp_path / "nowhere") is None
    for day in (1, 3, 2):
        _make_on(tmp_path, day)
    newest = newest_artifact(tmp_path)
    assert newest is not None
    assert newest.manifest.key == "key3"
    newest.onnx_path.write_bytes(b"cut short")
    second = newest_artifact(tmp_path)
    assert second is not None
    assert second.manifest.key == "key2"


def _make_on(root: Path, day: int) -> None:
    created = dt.datetime(2026, 1, day, tzinfo=dt.timezone.utc)

    def make(folder: Path) -> Manifest:
        return fill(folder, key=f"key{day}").model_copy(update={"created": created})

    find_or_make(root, "net", "fp32", f"key{day}", make)


def _make_slowly(root: Path, log: Path) -> None:
    def make(folder: Path) -> Manifest:
        with log.open("a") as stream:
            stream.write("made\n")
        return fill(folder)

    find_or_make(root, "net", "fp32", "k1", make)


def test_two_processes_that_ask_at_once_share_the_work(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_make_slowly, args=(tmp_path / "root", log)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert log.read_text() == "made\n"


@pytest.mark.parametrize(("text", "expected"), [("1:8:32", (1, 8, 32)), ("4", (4, 4, 4)), ("2:2:2", (2, 2, 2))])
def test_batch_ranges(text: str, expected: tuple[int, int, int]) -> None:
    batch = parse_batch(text)
    assert (batch.min, batch.opt, batch.max) == expected
    assert batch.fixed == (expected[0] == expected[2])


@pytest.mark.parametrize("text", ["", "0", "1:2", "8:1:32", "1:64:32", "a", "1:8:32:64", "-1", "1.5", "²", "1:8:"])
def test_odd_batch_ranges_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--batch"):
        parse_batch(text)
