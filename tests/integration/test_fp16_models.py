"""FP16 casts of whole networks as torch exports them, judged with FP16 really rounding."""

from __future__ import annotations

import onnx
import pytest

from deploykit.accuracy.compare import compare
from deploykit.accuracy.layers import worst_layers
from deploykit.base.artifact import Preprocessing
from deploykit.precision.calib_data import open_samples, split
from deploykit.precision.cast import cast_model
from deploykit.precision.half_eval import write_rounding_model
from deploykit.precision.ranges import collect_ranges
from deploykit.runtime.ort import OnnxRuntime

pytestmark = pytest.mark.slow


def open_session(path):
    return OnnxRuntime().open(path, threads=1)


def resnet18():
    import torchvision

    return torchvision.models.resnet18(weights=None)


def mobilenet():
    import torchvision

    return torchvision.models.mobilenet_v3_small(weights=None)


def vision_transformer():
    import torch
    import torchvision

    model = torchvision.models.VisionTransformer(64, 8, 2, 4, 64, 128, num_classes=10)
    # torchvision starts the head at zero: all outputs would be equal.
    torch.nn.init.normal_(model.heads.head.weight, std=0.2)
    return model


@pytest.fixture(params=[(resnet18, 96), (mobilenet, 96), (vision_transformer, 64)], ids=lambda pair: pair[0].__name__)
def exported(request, tmp_path):
    import torch

    make, size = request.param
    torch.manual_seed(0)
    program = torch.onnx.export(
        make().eval(),
        (torch.randn(2, 3, size, size),),
        input_names=["x"],
        output_names=["y"],
        dynamo=True,
        verbose=False,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
    program.save(str(tmp_path / "fp32.onnx"))
    return tmp_path / "fp32.onnx", size


def test_the_cast_is_valid_loads_and_is_close(exported, tmp_path):
    model, size = exported
    how = Preprocessing(input="x", size=(size, size), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    with open_session(model) as reference:
        calibration, held_out = split(open_samples("builtin:photos", inputs=reference.inputs, preprocessing=how), 8, 6)
        ranges = collect_ranges(model, calibration, 8, open_session)
        done = cast_model(model, tmp_path / "fp16.onnx", ranges=ranges)
        assert done.half_nodes > 10
        onnx.checker.check_model(str(tmp_path / "fp16.onnx"), full_check=True)
        write_rounding_model(tmp_path / "fp16.onnx", tmp_path / "rounded.onnx")
        layers = worst_layers(model, tmp_path / "rounded.onnx", held_out, open_session, samples=2)
        for candidate in ("rounded.onnx", "fp16.onnx"):
            with open_session(tmp_path / candidate) as session:
                report = compare(
                    reference, session, held_out, task="classification", data="photos", worst_layers=layers
                )
            assert report.cosine > 0.9999
            assert report.sqnr_db > 40
            assert report.top1_agreement == 1.0
            assert len(report.worst_layers) == 5
            assert report.worst_layers[0].sqnr_db > 35
