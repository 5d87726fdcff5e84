"""A small network trained on handwritten digits, through the whole pipeline: true top-1 of int8 by every method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deploykit.base.tensors import TensorSpec
from deploykit.base.vocab import CalibrationMethod, Precision
from deploykit.pipeline import ExportSettings, export

pytestmark = pytest.mark.slow

NETWORK = """
from torch import nn

def digits_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )
"""
PREPROCESSING = """
input: input
size: [8, 8]
resize: 8
mean: [0.5]
std: [0.5]
color: L
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Network, trained weights, preprocessing, and the last 300 digits, which training never sees, a folder a class."""
    import torch
    from PIL import Image
    from sklearn.datasets import load_digits

    root = tmp_path_factory.mktemp("digits")
    (root / "net.py").write_text(NETWORK)
    (root / "preprocessing.yaml").write_text(PREPROCESSING)
    data = load_digits()
    pixels = np.round(data.images * 255 / 16).astype(np.uint8)
    for index, (image, label) in enumerate(zip(pixels[-300:], data.target[-300:], strict=True)):
        (root / "photos" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / "photos" / str(label) / f"{index}.png")
    torch.save(_trained(pixels[:-300], data.target[:-300]), root / "weights.pt")
    return root


def _trained(pixels: np.ndarray, labels: np.ndarray) -> dict[str, object]:
    import torch

    scope: dict[str, object] = {}
    exec(compile(NETWORK, "net.py", "exec"), scope)
    torch.manual_seed(0)
    net = scope["digits_net"]()  # type: ignore[operator]
    x = torch.from_numpy((pixels[:, None].astype(np.float32) / 255 - 0.5) / 0.5)
    y = torch.from_numpy(labels)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(12):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    return dict(net.state_dict())


@pytest.mark.parametrize("method", list(CalibrationMethod))
def test_int8_is_within_a_point_of_fp32(method: CalibrationMethod, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    settings = ExportSettings(
        precision=Precision.INT8,
        weights="weights.pt",
        inputs=(TensorSpec(name="input", dtype="float32", shape=("batch", 1, 8, 8)),),
        preprocessing="preprocessing.yaml",
        calibration_data="photos",
        calibration_method=method,
        calibration_samples=64,
        eval_samples=200,
    )
    report = export("net.py:digits_net", settings).artifact.manifest.accuracy
    assert report is not None and report.samples == 200
    assert report.top1_fp32 > 0.9
    assert abs(report.top1 - report.top1_fp32) <= 0.01
    assert report.top1_agreement >= 0.985
