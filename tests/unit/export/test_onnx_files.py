"""ONNX files of others become artifacts: without torch, compared with the original under onnxruntime."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deploykit.base.artifact import Artifact, BatchRange
from deploykit.base.errors import UsageError
from deploykit.base.tensors import parse_tensor
from deploykit.runtime.ort import OnnxRuntime

Export = Callable[..., Artifact]


def write(path: Path, text: str, opset: int = 17, **weights: np.ndarray) -> str:
    """A model from ONNX's text form, with its initializers."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, path)
    return str(path)


def answer(artifact: Artifact, **feeds: np.ndarray) -> np.ndarray:
    with OnnxRuntime().open(artifact.onnx_path, threads=1) as session:
        return next(iter(session.infer(feeds).values()))


def test_an_open_batch_stays_open_and_is_called_batch(exported: Export, tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")
    artifact = exported(path)
    assert artifact.manifest.inputs[0].shape == ("batch", 4)
    assert artifact.manifest.outputs[0].shape == ("batch", 4)
    assert (artifact.manifest.batch.min, artifact.manifest.batch.max) == (1, 32)
    assert [check.max_abs_error for check in artifact.manifest.parity] == [0.0, 0.0]


def test_a_batch_of_one_stays_one(exported: Export, tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }")
    assert str(exported(path).manifest.batch) == "1"
    with pytest.raises(UsageError, match="takes batch 1 alone, so --batch 1:2:4"):
        exported(path, batch=BatchRange(min=1, opt=2, max=4))


def test_inner_shapes_are_filled_in(exported: Export, tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[N, 4] x) => (float[N, 4] y) { r = Relu(x) y = Neg(r) }")
    inner = onnx.load(exported(path).onnx_path).graph.value_info
    assert [value.name for value in inner] == ["r"]


def test_integer_and_byte_inputs_keep_their_types(exported: Export, tmp_path: Path) -> None:
    text = "g (uint8[N, 2] image, int64[N, L] ids) => (float[N, 2] y, int64[N, L] z)"
    path = write(tmp_path / "m.onnx", text + "{ y = Cast <to = 1> (image) z = Neg(ids) }")
    artifact = exported(path)
    assert [spec.dtype for spec in artifact.manifest.inputs] == ["uint8", "int64"]
    assert artifact.manifest.inputs[1].shape == ("batch", "L")


def test_open_height_and_width_stay_open(exported: Export, tmp_path: Path) -> None:
    conv = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>'
        "g (float[N, 1, H, W] x, float[N, 1, P, Q] mask) => (float[N, 1, P, Q] y) { c = Conv(x, w) y = Mul(c, mask) }"
    )
    conv.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w"))
    for dim, text in zip(conv.graph.input[1].type.tensor_type.shape.dim[2:], ("H - 2", "W - 2"), strict=True):
        dim.dim_param = text
    onnx.save(conv, tmp_path / "m.onnx")
    artifact = exported(str(tmp_path / "m.onnx"))
    assert artifact.manifest.inputs[0].shape == ("batch", 1, "H", "W")
    assert artifact.manifest.inputs[1].shape == ("batch", 1, "H - 2", "W - 2")


def test_sizes_from_the_command_line_close_open_dimensions(exported: Export, tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[N, H, W] x) => (float[N, H, W] y) { y = Relu(x) }")
    artifact = exported(path, inputs=[parse_tensor("x:1x48x64")])
    assert artifact.manifest.inputs[0].shape == ("batch", 48, 64)
    assert artifact.manifest.outputs[0].shape == ("batch", 48, 64)


def test_sizes_that_a_check_cannot_guess_are_asked_for(exported: Export, tmp_path: Path) -> None:
    text = "g (float[N, H] x) => (float[N, 5] y) { y = MatMul(x, w) }"
    path = write(tmp_path / "m.onnx", text, w=np.ones((7, 5), np.float32))
    with pytest.raises(UsageError, match=r"does not run on inputs of shape x 8x64.*--input"):
        exported(path)
    assert exported(path, inputs=[parse_tensor("x:Nx7")]).manifest.inputs[0].shape == ("batch", 7)


def test_an_old_operator_set_is_converted_for_real(exported: Export, tmp_path: Path) -> None:
    text = (
        "g (float[1, 2, 3, 3] x) => (float[1, 2, 6, 6] y) { c = Clip <min = -1.0, max = 1.0> (x) y = Upsample(c, s) }"
    )
    path = write(tmp_path / "m.onnx", text, opset=9, s=np.array([1, 1, 2, 2], np.float32))
    artifact = exported(path)
    model = onnx.load(artifact.onnx_path)
    assert artifact.manifest.opset == 13
    assert model.opset_import[0].version == 13
    assert "Upsample" not in {node.op_type for node in model.graph.node}
    assert not next(node for node in model.graph.node if node.op_type == "Clip").attribute
    assert "operators converted from set 9 to 13" in artifact.manifest.warnings


def test_an_operator_that_cannot_be_converted_is_told(exported: Export, tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=17)
    with pytest.raises(UsageError, match="cannot be converted to set 5"):
        exported(path, opset=5)


def test_a_branch_loads_and_its_output_gets_a_rank(exported: Export, tmp_path: Path) -> None:
    def branch(name: str, operator: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(operator, ["x"], [f"{name}_y"])], name, [], [out])

    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg")),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [1, 3]), ("y", None))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(np.float32(0), "zero")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    artifact = exported(str(tmp_path / "m.onnx"))
    assert len(artifact.manifest.outputs[0].shape) == 2
    assert answer(artifact, x=-np.ones((1, 3), np.float32)).tolist() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize(("dtype", "word"), [(np.float16, "float16"), (np.float64, "double")])
def test_other_floating_types_become_float32(exported: Export, tmp_path: Path, dtype: type, word: str) -> None:
    number = 10 if word == "float16" else 11
    nodes = f"{{ h = MatMul(x, w) c = Cast <to = {number}> (h) y = Mul(c, k) }}"
    text = f"g ({word}[N, 3] x) => ({word}[N, 2] y) {nodes}"
    path = write(tmp_path / "m.onnx", text, w=np.full((3, 2), 0.5, dtype), k=np.array(3.0, dtype))
    artifact = exported(path)
    assert artifact.manifest.inputs[0].dtype == artifact.manifest.outputs[0].dtype == "float32"
    assert artifact.manifest.model.source_dtype == np.dtype(dtype).name
    assert answer(artifact, x=np.ones((1, 3), np.float32)).tolist() == [[4.5, 4.5]]


def test_small_weights_from_beside_the_model_move_inside(exported: Export, tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = MatMul(x, w) }", w=np.eye(4, dtype=np.float32)
    )
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert set(exported(path).manifest.files) == {"model.onnx"}


def test_large_weights_stay_beside_the_model(exported: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(
        tmp_path / "m.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = MatMul(x, w) }", w=np.eye(4, dtype=np.float32)
    )
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    monkeypatch.setattr("deploykit.export.onnx_graph.SINGLE_FILE_BYTES", 10)
    artifact = exported(path)
    assert set(artifact.manifest.files) == {"model.onnx", "model.onnx.data"}
    assert answer(artifact, x=np.ones((1, 4), np.float32)).tolist() == [[1.0] * 4]


def test_changed_weights_beside_the_model_make_another_artifact(exported: Export, tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = MatMul(x, w) }", w=np.eye(4, dtype=np.float32)
    )
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    first = exported(path)
    (tmp_path / "w.bin").write_bytes(np.full((4, 4), 2.0, np.float32).tobytes())
    assert exported(path).path != first.path


def test_an_initializer_is_no_input(exported: Export, tmp_path: Path) -> None:
    text = "g (float[1, 2] x, float[2] b) => (float[1, 2] y) { y = Add(x, b) }"
    artifact = exported(write(tmp_path / "m.onnx", text, b=np.ones(2, np.float32)))
    assert [value.name for value in onnx.load(artifact.onnx_path).graph.input] == ["x"]


def test_no_torch_is_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")
    code = f"""
import sys
from pathlib import Path
from deploykit.export import export_fp32
from deploykit.runtime.ort import OnnxRuntime
from deploykit.sources import resolve
export_fp32(resolve({path!r}), root=Path({str(tmp_path)!r}) / "a", open_session=OnnxRuntime().open)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
