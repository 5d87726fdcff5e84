"""A small network trained on handwritten digits: true top-1 from a folder of pictures, for fp32 and fp16."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from deploykit.accuracy.compare import class_count, compare
from deploykit.accuracy.floor import check_floors, parse_floors
from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import AccuracyBelowFloor
from deploykit.precision.calib_data import open_samples, split
from deploykit.precision.cast import cast_model
from deploykit.precision.half_eval import write_rounding_model
from deploykit.precision.ranges import collect_ranges
from deploykit.runtime.ort import OnnxRuntime

pytestmark = pytest.mark.slow

HOW = Preprocessing(input="x", size=(8, 8), resize=8, mean=(0.5,), std=(0.5,), color="L")


def open_session(path):
    return OnnxRuntime().open(path, threads=1)


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    data = load_digits()
    return np.round(data.images * 255 / 16).astype(np.uint8), data.target


@pytest.fixture(scope="module")
def folder(digits, tmp_path_factory):
    """The last 300 digits, which training never sees, one folder a class."""
    root = tmp_path_factory.mktemp("digits")
    for index, (pixels, label) in enumerate(zip(digits[0][-300:], digits[1][-300:], strict=True)):
        (root / str(label)).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(root / str(label) / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def model(digits, tmp_path_factory):
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    x = torch.from_numpy((digits[0][:-300, None].astype(np.float32) / 255 - 0.5) / 0.5)
    y = torch.from_numpy(digits[1][:-300])
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(12):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    path = tmp_path_factory.mktemp("model") / "fp32.onnx"
    batch = {0: torch.export.Dim("batch")}
    torch.onnx.export(
        net.eval(), (x[:2],), input_names=["x"], output_names=["y"], dynamo=True, verbose=False, dynamic_shapes=(batch,)
    ).save(str(path))
    return path


def test_true_top1_of_fp16_is_within_a_point(folder, model, tmp_path):
    with open_session(model) as reference:
        classes = class_count(reference.outputs)
        source = open_samples(str(folder), inputs=reference.inputs, preprocessing=HOW, classes=classes)
        calibration, held_out = split(source, 64, 200)
        ranges = collect_ranges(model, calibration, 64, open_session)
        cast_model(model, tmp_path / "fp16.onnx", ranges=ranges)
        write_rounding_model(tmp_path / "fp16.onnx", tmp_path / "rounded.onnx")
        with open_session(tmp_path / "rounded.onnx") as candidate:
            report = compare(reference, candidate, held_out, task="classification", data=held_out.description)
    assert report.samples == 200
    assert report.top1_fp32 > 0.9
    assert abs(report.top1 - report.top1_fp32) <= 0.01
    assert report.top1_agreement >= 0.99
    check_floors(report, parse_floors(["top1=0.9", "top1_drop=0.01", "cosine=0.999"]))
    with pytest.raises(AccuracyBelowFloor, match="sqnr_db"):
        check_floors(report, parse_floors(["sqnr_db=120"]))
