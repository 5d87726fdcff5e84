import json
from pathlib import Path

import pytest

from deploykit.base import files


def test_text_appears_under_its_final_name_only(tmp_path: Path) -> None:
    files.write_text(tmp_path / "deep" / "a.txt", "é\n")
    assert (tmp_path / "deep" / "a.txt").read_bytes() == b"\xc3\xa9\n"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.txt"]


def test_a_document_that_json_has_no_words_for_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"x": 1.5})
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(path, {"x": float("nan")})
    assert json.loads(path.read_text()) == {"x": 1.5}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_takes_its_name_when_it_is_full(tmp_path: Path) -> None:
    final = tmp_path / "artifact"
    with files.new_folder(final) as folder:
        (folder / "model.onnx").write_bytes(b"1")
        assert not final.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["artifact"]
    assert (final / "model.onnx").read_bytes() == b"1"


def test_a_folder_that_failed_leaves_nothing_and_keeps_the_old_one(tmp_path: Path) -> None:
    final = tmp_path / "artifact"
    with files.new_folder(final) as folder:
        (folder / "model.onnx").write_bytes(b"old")
    with pytest.raises(RuntimeError, match="half way"), files.new_folder(final) as folder:
        (folder / "model.onnx").write_bytes(b"new")
        raise RuntimeError("half way")
    assert (final / "model.onnx").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["artifact"]


def test_a_second_folder_replaces_the_first(tmp_path: Path) -> None:
    final = tmp_path / "artifact"
    for content in (b"old", b"new"):
        with files.new_folder(final) as folder:
            (folder / "model.onnx").write_bytes(content)
    assert (final / "model.onnx").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["artifact"]


def test_the_digest_of_json_ignores_order_and_spacing() -> None:
    assert files.sha256_json({"a": 1, "b": [1, 2]}) == files.sha256_json({"b": [1, 2], "a": 1})
    assert files.sha256_json({"a": 1}) != files.sha256_json({"a": 2})


def test_the_digest_of_a_file_is_sha256(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    # FIPS 180-2, appendix B.1.
    assert files.sha256_file(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
