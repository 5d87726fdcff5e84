"""What goes wrong between torch and ONNX, each kind on a tiny module, run under a real onnxruntime."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from deploykit.base.artifact import Artifact, BatchRange, read_artifact
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec, parse_tensor
from deploykit.runtime.ort import OnnxRuntime

Export = Callable[..., Artifact]
Write = Callable[[str], str]


def answer(artifact: Artifact, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    with OnnxRuntime().open(artifact.onnx_path, threads=1) as session:
        return session.infer(feeds)


LINEAR = """
def make():
    return nn.Linear(4, 2)

def example_inputs():
    return torch.zeros(1, 4)
"""


def test_an_example_of_one_gives_a_dynamic_batch(exported: Export, python_model: Write) -> None:
    artifact = exported(python_model(LINEAR))
    assert artifact.manifest.inputs == (TensorSpec(name="input", dtype="float32", shape=("batch", 4)),)
    assert artifact.manifest.outputs == (TensorSpec(name="output", dtype="float32", shape=("batch", 2)),)
    for size in (1, 3, 8):
        assert answer(artifact, input=np.ones((size, 4), np.float32))["output"].shape == (size, 2)


def test_parity_is_recorded_at_two_batch_sizes(exported: Export, python_model: Write) -> None:
    checks = exported(python_model(LINEAR)).manifest.parity
    assert [check.batch_size for check in checks] == [8, 1]
    assert all(check.max_abs_error <= check.tolerance for check in checks)
    assert all(check.cosine == pytest.approx(1.0) for check in checks)


def test_the_same_request_is_made_once_and_changed_code_is_made_anew(exported: Export, python_model: Write) -> None:
    first = exported(python_model(LINEAR))
    stamp = first.onnx_path.stat().st_mtime_ns
    assert exported(python_model(LINEAR)).onnx_path.stat().st_mtime_ns == stamp
    other = exported(python_model(LINEAR.replace("nn.Linear(4, 2)", "nn.Linear(4, 2, bias=False)")))
    assert other.path != first.path


def test_the_artifact_reads_back_whole(exported: Export, python_model: Write) -> None:
    artifact = exported(python_model(LINEAR))
    assert read_artifact(artifact.path, check_digests=True).digest == artifact.digest


BAKED = """
class Net(nn.Module):
    def forward(self, image):
        b = int(image.shape[0])
        return image.reshape(b, 2, 2) + torch.arange(b).reshape(b, 1, 1)

def make():
    return Net()

def example_inputs():
    return torch.zeros(1, 4)
"""


def test_a_batch_turned_into_a_number_is_refused_at_its_line(exported: Export, python_model: Write) -> None:
    with pytest.raises(
        UsageError, match=r"batch size into a constant.*net\.py:7 `b = int\(image\.shape\[0\]\)`.*--batch"
    ):
        exported(python_model(BAKED))


def test_a_batch_turned_into_a_number_exports_with_that_batch(exported: Export, python_model: Write) -> None:
    artifact = exported(python_model(BAKED), batch=BatchRange(min=3, opt=3, max=3))
    assert artifact.manifest.inputs[0].shape == (3, 4)
    assert artifact.manifest.batch.fixed
    assert answer(artifact, image=np.zeros((3, 4), np.float32))["output"][2, 0, 0] == 2.0


BRANCH = """
class Net(nn.Module):
    def forward(self, x):
        if x.mean() > 0:
            return x + 1
        return x - 1

def make():
    return Net()

def example_inputs():
    return torch.ones(1, 4)
"""


def test_a_branch_on_values_is_refused_at_its_line(
    exported: Export, python_model: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=r"net\.py:7 `if x\.mean\(\) > 0:`.*torch\.where") as caught:
        exported(python_model(BRANCH))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", ""), "torch's pages of graph must stay off the terminal"


def test_outputs_that_depend_on_the_data_keep_their_rows(exported: Export, python_model: Write) -> None:
    artifact = exported(
        python_model("""
class Net(nn.Module):
    def forward(self, x):
        return x[torch.nonzero(x > 0.5).squeeze(1)]

def make():
    return Net()

def example_inputs():
    return torch.ones(4)
""")
    )
    assert answer(artifact, x=np.array([0.1, 0.9, 0.2, 0.8], np.float32))["output"].tolist() == pytest.approx(
        [0.9, 0.8]
    )
    assert answer(artifact, x=np.zeros(4, np.float32))["output"].shape == (0,)


def test_outputs_are_named_after_keys(exported: Export, python_model: Write) -> None:
    artifact = exported(
        python_model("""
class Net(nn.Module):
    def forward(self, x):
        return {"zeros": x * 0, "x": x, "aux": (x.sum(-1), [x * 2])}

def make():
    return Net()

def example_inputs():
    return torch.ones(2, 3)
""")
    )
    outputs = answer(artifact, x=np.ones((2, 3), np.float32))
    assert list(outputs) == ["zeros", "x_out", "aux_0", "aux_1_0"]
    assert [spec.name for spec in artifact.manifest.outputs] == list(outputs)
    assert not outputs["zeros"].any()
    assert outputs["aux_0"].tolist() == [3.0, 3.0]
    assert outputs["aux_1_0"].max() == 2.0


def test_inputs_keep_their_names_and_one_handed_through_its_values(exported: Export, python_model: Write) -> None:
    artifact = exported(
        python_model("""
class Net(nn.Module):
    def forward(self, frame, stamp, unused):
        doubled = frame * 2
        return doubled, stamp, doubled

def make():
    return Net()

def example_inputs():
    return torch.ones(1, 3), torch.tensor([7]), torch.zeros(1, 2)
""")
    )
    assert [spec.name for spec in artifact.manifest.inputs] == ["frame", "stamp", "unused"]
    stamp = np.array([1234567890123], np.int64)
    outputs = answer(artifact, frame=np.ones((1, 3), np.float32), stamp=stamp, unused=np.zeros((1, 2), np.float32))
    assert outputs["output_1"].tolist() == stamp.tolist()
    assert (outputs["output_0"] == outputs["output_2"]).all()


def test_a_recurrent_state_follows_the_batch(exported: Export, python_model: Write) -> None:
    artifact = exported(
        python_model("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 4, batch_first=True)

    def forward(self, seq):
        return self.rnn(seq)[0]

def make():
    return Net()

def example_inputs():
    return torch.ones(2, 5, 3)
""")
    )
    for size in (1, 5):
        assert answer(artifact, seq=np.ones((size, 5, 3), np.float32))["output"].shape == (size, 5, 4)


def test_an_input_changed_in_place_and_a_counting_buffer_are_told(exported: Export, python_model: Write) -> None:
    artifact = exported(
        python_model("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        x.div_(255.0)
        self.calls.add_(1)
        return x * 2

def make():
    return Net()

def example_inputs():
    return torch.ones(1, 3)
""")
    )
    text = " ".join(artifact.manifest.warnings)
    assert "'calls' changes at every call" in text
    assert "'x' in place" in text
    fed = np.full((1, 3), 255.0, np.float32)
    assert answer(artifact, x=fed)["output"].tolist() == [[2.0, 2.0, 2.0]]


def test_a_random_module_is_refused_at_its_line(exported: Export, python_model: Write) -> None:
    code = """
class Net(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x)

def make():
    return Net()

def example_inputs():
    return torch.ones(2, 3)
"""
    with pytest.raises(UsageError, match=r"is random.*net\.py:7 `return nn\.functional\.dropout\(x\)`"):
        exported(python_model(code))


def test_a_module_left_in_training_mode_is_exported_in_eval_mode(exported: Export, python_model: Write) -> None:
    artifact = exported(
        python_model(LINEAR.replace("nn.Linear(4, 2)", "nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train()"))
    )
    assert "Dropout" not in {node.op_type for node in onnx.load(artifact.onnx_path).graph.node}


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double"])
def test_other_floating_types_go_through_float32(exported: Export, python_model: Write, cast: str) -> None:
    artifact = exported(python_model(LINEAR.replace("nn.Linear(4, 2)", f"nn.Linear(4, 2).{cast}()")))
    source = {"half": "float16", "bfloat16": "bfloat16", "double": "float64"}[cast]
    assert artifact.manifest.model.source_dtype == source
    assert any(source in warning for warning in artifact.manifest.warnings)
    assert {spec.dtype for spec in (*artifact.manifest.inputs, *artifact.manifest.outputs)} == {"float32"}


TOKENS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.places = nn.Parameter(torch.ones(1, 96, 4))

    def forward(self, ids, mask):
        places = self.places[:, : ids.shape[1]]
        return (self.words(ids) + places) * mask.unsqueeze(-1)

def make():
    return Net()
"""


def test_integer_inputs_and_an_open_length(exported: Export, python_model: Write) -> None:
    inputs = [parse_tensor("ids:1xlength:int64"), parse_tensor("mask:1xlength:int64")]
    artifact = exported(python_model(TOKENS), inputs=inputs)
    assert [(spec.dtype, spec.shape) for spec in artifact.manifest.inputs] == [("int64", ("batch", "length"))] * 2
    assert any("'length' ends at 96" in warning for warning in artifact.manifest.warnings)
    ids = np.full((2, 7), 9, np.int64)
    assert answer(artifact, ids=ids, mask=np.ones_like(ids))["output"].shape == (2, 7, 4)


def test_nobody_says_what_a_module_takes(exported: Export, python_model: Write) -> None:
    with pytest.raises(UsageError, match=r"--input NAME:.*\(ids, mask\)"):
        exported(python_model(TOKENS))


def test_an_input_that_is_no_argument_is_named(exported: Export, python_model: Write) -> None:
    inputs = [parse_tensor("ids:1x4:int64"), parse_tensor("masks:1x4:int64")]
    with pytest.raises(UsageError, match=r"'masks' is no argument.*ids, mask"):
        exported(python_model(TOKENS), inputs=inputs)


def test_shapes_that_do_not_fit_are_torchs_own_words_and_a_line(exported: Export, python_model: Write) -> None:
    with pytest.raises(UsageError, match=r"fails in torch on inputs of shape x 2x5.*RuntimeError.*--input"):
        exported(python_model(LINEAR), inputs=[parse_tensor("x:1x5")])


def test_names_given_by_place_are_kept(exported: Export, python_model: Write) -> None:
    artifact = exported(python_model(LINEAR), inputs=[parse_tensor("features:1x4")])
    assert [spec.name for spec in artifact.manifest.inputs] == ["features"]


def test_a_batch_that_must_be_even_is_refused(exported: Export, python_model: Write) -> None:
    code = """
class Net(nn.Module):
    def forward(self, x):
        return x.reshape(x.shape[0] // 2, 2, 4).sum(1).repeat(2, 1)[: x.shape[0]] + x.reshape(-1, 8).repeat(2, 1)[:, :4]

def make():
    return Net()

def example_inputs():
    return torch.ones(2, 4)
"""
    with pytest.raises(UsageError, match=r"batch|shape"):
        exported(python_model(code))


def test_nodes_are_called_after_modules_and_lines(exported: Export, python_model: Write) -> None:
    code = LINEAR.replace("nn.Linear(4, 2)", "nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))")
    model = onnx.load(exported(python_model(code)).onnx_path)
    assert [node.name for node in model.graph.node] == ["0/Gemm", "1/Relu", "2/Gemm"]
    assert str(Path(torch.__file__).parent) not in str(model), "paths of this machine do not travel"
    assert model.producer_name == "deploykit"


def test_the_operator_set_asked_for_is_written(exported: Export, python_model: Write) -> None:
    artifact = exported(python_model(LINEAR), opset=20)
    assert artifact.manifest.opset == 20
    assert onnx.load(artifact.onnx_path).opset_import[0].version == 20


def test_an_operator_set_that_torch_does_not_write_is_refused(exported: Export, python_model: Write) -> None:
    with pytest.raises(UsageError, match="--opset 11"):
        exported(python_model(LINEAR), opset=11)


def test_large_weights_stand_beside_the_graph(
    exported: Export, python_model: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploykit.export.write_onnx.SINGLE_FILE_BYTES", 1000)
    artifact = exported(python_model(LINEAR.replace("nn.Linear(4, 2)", "nn.Linear(4, 1000)")))
    assert set(artifact.manifest.files) == {"model.onnx", "model.onnx.data"}
    assert answer(artifact, input=np.ones((2, 4), np.float32))["output"].shape == (2, 1000)


def test_what_the_users_code_prints_stays_off_stdout(
    exported: Export, python_model: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    exported(python_model("print('hello')\n" + LINEAR))
    assert capfd.readouterr().out == ""


def test_a_failed_export_leaves_nothing(exported: Export, python_model: Write, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        exported(python_model(BRANCH))
    assert not [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file() and path.suffix != ".lock"]
