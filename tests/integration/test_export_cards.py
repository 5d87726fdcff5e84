"""Real cards through export, each kind of source once."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from deploykit.base.artifact import Artifact, BatchRange
from deploykit.export import export_fp32
from deploykit.runtime.ort import OnnxRuntime
from deploykit.sources import resolve

pytestmark = pytest.mark.slow


def export(tmp_path: Path, name: str, weights: str = "none") -> Artifact:
    artifact, reused = export_fp32(
        resolve(name, weights=weights),
        root=tmp_path,
        open_session=OnnxRuntime().open,
        batch=BatchRange(min=1, opt=2, max=4),
    )
    assert not reused
    return artifact


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "mobilenet_v3_large",
        "efficientnet_b0",
        "densenet121",
        "vit_b_16",
        "googlenet",
        "ssdlite320_mobilenet_v3_large",
        "timm:vit_tiny_patch16_224",
    ],
)
def test_a_model_without_weights_exports_with_a_live_output(tmp_path: Path, name: str) -> None:
    artifact = export(tmp_path, name)
    manifest = artifact.manifest
    assert manifest.model.random_weights
    assert manifest.inputs[0].shape[0] == "batch"
    # A check of an output that is zero, or the same everywhere, checks nothing.
    assert all(check.tolerance > 1e-7 and check.max_abs_error > 0 for check in manifest.parity)
    assert all(value.type.tensor_type.HasField("shape") for value in onnx.load(artifact.onnx_path).graph.value_info)


def test_efficientnet_lite0_exports_with_its_real_weights(tmp_path: Path) -> None:
    manifest = export(tmp_path, "efficientnet-lite0", weights="default").manifest
    assert not manifest.model.random_weights
    assert manifest.model.license == "Apache-2.0"
    assert manifest.preprocessing is not None
    assert manifest.preprocessing.scale_to == 255.0
    assert max(check.max_abs_error for check in manifest.parity) < 1e-3


def test_a_small_bert_takes_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = """
version: 1
name: bert-tiny
description: two layers
task: question-answering
source:
  kind: transformers
  model: bert-question-answering
  options: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 128}
weights: {source: none}
license: Apache-2.0
inputs:
  - {name: input_ids, dtype: int64, shape: [batch, sequence]}
  - {name: attention_mask, dtype: int64, shape: [batch, sequence]}
  - {name: token_type_ids, dtype: int64, shape: [batch, sequence]}
"""
    pytest.importorskip("transformers")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "bert-tiny.yaml").write_text(card)
    monkeypatch.chdir(tmp_path)
    artifact = export(tmp_path / "artifacts", "bert-tiny")
    assert [spec.name for spec in artifact.manifest.outputs] == ["start_logits", "end_logits"]
    assert any("'sequence' ends at 512" in warning for warning in artifact.manifest.warnings)
    ids = np.full((3, 9), 30000, np.int64)
    with OnnxRuntime().open(artifact.onnx_path) as session:
        outputs = session.infer({"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0})
    assert outputs["start_logits"].shape == (3, 9)
