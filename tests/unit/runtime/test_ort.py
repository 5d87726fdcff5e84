"""onnxruntime itself on tiny graphs: what it refuses, and in which words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from deploykit.base.errors import ProviderUnavailable, UnknownNameError, UsageError
from deploykit.runtime import runtime
from deploykit.runtime.ort import full_provider_name

GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 8] x) => (float[batch, 8] y) { y = Relu(x) }
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(GRAPH), path)
    return path


def test_a_session_says_what_it_wants_and_what_ran(model: Path) -> None:
    with runtime("onnxruntime").open(model, threads=1) as session:
        outputs = session.infer({"x": np.array([[-1.0] * 4 + [2.0] * 4], np.float32)})
        assert session.provider == "CPUExecutionProvider"
        assert session.inputs[0].shape == ("batch", 8)
        assert session.inputs[0].dtype == "float32"
        assert session.settings["threads"] == 1
    assert outputs["y"].tolist() == [[0.0] * 4 + [2.0] * 4]


@pytest.mark.parametrize(("asked", "said"), [("cuda", "CUDA"), ("TensorrtExecutionProvider", "Tensorrt")])
def test_a_provider_that_would_not_run_is_an_error(model: Path, asked: str, said: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    if full_provider_name(asked, ort.get_all_providers()) in ort.get_available_providers():
        pytest.skip(f"{asked} is here")
    with pytest.raises(ProviderUnavailable, match=rf"{said}.* is not available"):
        runtime("onnxruntime").open(model, provider=asked)


def test_a_mistyped_provider_is_named_with_the_nearest(model: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'cudda'; did you mean cuda"):
        runtime("onnxruntime").open(model, provider="cudda")


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        ({"z": np.zeros((1, 8), np.float32)}, r"wants the inputs \['x'\], it was given \['z'\]"),
        ({"x": np.zeros((1, 8))}, "must be float32, it was given float64"),
        ({"x": np.zeros((1, 7), np.float32)}, r"x \(1, 7\), model \('batch', 8\)"),
    ],
)
def test_wrong_feeds_are_explained(model: Path, feeds: dict[str, np.ndarray], said: str) -> None:
    with runtime("onnxruntime").open(model, threads=1) as session, pytest.raises(UsageError, match=said):
        session.infer(feeds)


def test_files_that_are_no_models_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"<html>not found</html>")
    with pytest.raises(UsageError, match=r"does not load .*broken\.onnx"):
        runtime("onnxruntime").open(broken)
    with pytest.raises(UsageError, match="is not a file"):
        runtime("onnxruntime").open(tmp_path / "absent.onnx")


def test_no_threads_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="0 threads"):
        runtime("onnxruntime").open(model, threads=0)


def test_a_closed_session_says_so(model: Path) -> None:
    session = runtime("onnxruntime").open(model, threads=1)
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.infer({"x": np.zeros((1, 8), np.float32)})
