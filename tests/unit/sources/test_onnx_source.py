from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from deploykit.base.errors import UsageError
from deploykit.base.tensors import parse_tensor
from deploykit.sources import resolve


def save(path: Path, location: str = "", length: int = 64) -> Path:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4])
    if location:
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        weight.external_data.add(key="length", value=str(length))
    else:
        weight.raw_data = np.eye(4, dtype=np.float32).tobytes()
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


def test_inputs_are_read_from_the_file(tmp_path: Path) -> None:
    loaded = resolve(str(save(tmp_path / "net.onnx")))
    assert loaded.inputs == (parse_tensor("x:Nx4"),)
    assert (loaded.info.name, loaded.kind, loaded.info.source_dtype) == ("net", "onnx", "float32")


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("w.bin", r"tensor 'w' are in 'w\.bin', which is missing \(looked for .*w\.bin\)"),
        ("short.bin", "which has 10 bytes where 64 are needed"),
        ("../outside.bin", "outside the model's folder"),
        ("/etc/hostname", "an absolute path"),
    ],
)
def test_external_weights_must_stand_beside_the_model(tmp_path: Path, location: str, said: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "short.bin").write_bytes(b"0123456789")
    (tmp_path / "outside.bin").write_bytes(bytes(64))
    with pytest.raises(UsageError, match=rf"net\.onnx.*{said}"):
        resolve(str(save(folder / "net.onnx", location)))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    with pytest.raises(UsageError, match="outside the model's folder"):
        resolve(str(save(folder / "net.onnx", "link.bin")))


def test_the_working_folder_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    path = save(tmp_path / "net.onnx", "w.bin")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resolve("../net.onnx").fingerprint == resolve(str(path)).fingerprint


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty file"),
        (b"This is not a model.\n", "not an ONNX model but a text file"),
        (b"<!DOCTYPE html><html>", "not an ONNX model but an HTML page"),
        (b"\xff\xfe\x00\x01", "not an ONNX model"),
        (b"\x08\x08", "holds no graph"),
    ],
)
def test_what_is_no_onnx_model_is_told_for_what_it_is(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "net.onnx").write_bytes(data)
    with pytest.raises(UsageError, match=said):
        resolve(str(tmp_path / "net.onnx"))


def test_inputs_that_are_strings_are_refused(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path / "net.onnx"))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="'x' is no tensor of a numeric type"):
        resolve(str(tmp_path / "net.onnx"))


def test_options_that_do_not_fit_a_file_are_refused(tmp_path: Path) -> None:
    path = str(save(tmp_path / "net.onnx"))
    with pytest.raises(UsageError, match="carries its own weights"):
        resolve(path, weights="none")
    with pytest.raises(UsageError, match="has inputs x"):
        resolve(path, inputs=[parse_tensor("image:1x4")])
    with pytest.raises(UsageError, match="has it as float32 Nx4"):
        resolve(path, inputs=[parse_tensor("x:1x5")])
    assert resolve(path, inputs=[parse_tensor("x:1x4")]).inputs[0].shape == ("N", 4)
