"""The float part of an INT8 graph in FP16: an older operator set is refused, nothing but the model is left behind."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from deploykit.base.artifact import MODEL_FILE, Manifest
from deploykit.base.errors import UsageError
from deploykit.precision.cast import cast_rest

GRAPH = """
<ir_version: 8, opset_import: ["" : %d]>
net (float[N, 4] x) => (float[N, 4] y)
<float scale = {0.05}, int8 zero = {0}, float one = {1.0}> {
   q = QuantizeLinear (x, scale, zero)
   d = DequantizeLinear (q, scale, zero)
   y = Add (d, one)
}
"""
RANGES = {"x": (-3.0, 3.0), "d": (-3.0, 3.0), "y": (-2.0, 4.0)}


def manifest(opset: int) -> Manifest:
    return Manifest.model_validate({
        "key": "k", "model": {"name": "net", "reference": "net.onnx", "source": "onnx-file"},
        "precision": "int8", "dialect": "tensorrt", "opset": opset, "inputs": [], "outputs": [],
        "batch": {"min": 1, "opt": 1, "max": 1}, "kept_fp32": {"left": "a reason"}, "created": "2026-01-01T00:00:00Z",
    })  # fmt: skip


def test_the_model_is_replaced_and_the_manifest_says_what_it_became(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(GRAPH % 18), tmp_path / MODEL_FILE)
    made = cast_rest(manifest(18), tmp_path, RANGES)
    model = onnx.load(tmp_path / MODEL_FILE)
    onnx.checker.check_model(model, full_check=True)
    assert [path.name for path in tmp_path.iterdir()] == [MODEL_FILE]
    assert (made.opset, model.opset_import[0].version) == (19, 19)
    assert made.kept_fp32 == {"left": "a reason; computes in fp16"}
    scale = next(tensor for tensor in model.graph.initializer if tensor.name.startswith("scale"))
    assert scale.data_type == onnx.TensorProto.FLOAT16


def test_an_older_operator_set_is_refused(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(GRAPH % 13), tmp_path / MODEL_FILE)
    with pytest.raises(UsageError, match="--opset 18 or later"):
        cast_rest(manifest(13), tmp_path, RANGES)
