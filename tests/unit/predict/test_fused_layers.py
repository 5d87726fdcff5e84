"""The grouping against the fused layer table that TensorRT-RTX prints while it builds on a CPU."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deploykit.engine.child import BuildTask, build_in_child
from deploykit.engine.options import BuildOptions, ShapeRange
from deploykit.predict.features import features_of
from deploykit.predict.kernels import PRODUCTS, Kind

pytest.importorskip("tensorrt_rtx")
SHAPE = (1, 3, 224, 224)


def exported(name: str, path: Path) -> None:
    import torch
    import torchvision

    module: Any = getattr(torchvision.models, name)(weights=None).eval().half()
    torch.onnx.export(
        module, (torch.zeros(SHAPE).half(),), str(path), dynamo=False, opset_version=17, input_names=["x"]
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the exporter's, of its own age
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v2"])
def test_kernels_are_those_that_tensorrt_fuses(name: str, tmp_path: Path) -> None:
    """Products one for one; in all one more, since it copies the input into its own layout first."""
    path = tmp_path / "net.onnx"
    exported(name, path)
    ranges = (ShapeRange(name="x", min=SHAPE, opt=SHAPE, max=SHAPE),)
    task = BuildTask(
        module="tensorrt_rtx", onnx_path=path, shapes=ranges, options=BuildOptions(), compute_capability="8.9"
    )
    built, _ = build_in_child(task)
    types = Counter(layer.type for layer in built.layers if layer.type not in ("signal", "wait"))
    features = features_of(path, name)
    products = sum(g.count for g in features.groups if g.kind in PRODUCTS or g.kind is Kind.DEPTHWISE)
    assert products == types["correlation"] + types["runtime_fusion"] + types["gemm"]
    assert features.kernels == sum(types.values()) - 1
