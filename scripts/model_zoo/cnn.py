"""Networks that are built in torch with random weights, to be exported and read like a user's graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from deploykit.predict.kernels import KernelGroup, Kind, ModelFeatures
from model_zoo import yolo


@dataclass(frozen=True)
class Entry:
    """How to build a network.

    Attributes:
        make: Builds the module.
        shape: One sample's input, without the batch.
        source: Where the architecture is from.
        times: Passes per sample (sliding windows).
        p90_size: Passes of a sample at the 90th percentile ÷ the mean.
        scores: Elements that the NMS behind the network sorts through; 0: none runs.
        input_bytes: Bytes an input element has in the published runs.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    source: str
    times: int = 1
    p90_size: float = 1.0
    scores: int = 0
    input_bytes: float = 1.0


def finished(features: ModelFeatures, entry: Entry) -> ModelFeatures:
    """Windows of a sample become rows of the same kernels: weights are read once for all of them."""
    n = entry.times
    groups = tuple(replace(g, m=g.m * n, inputs=g.inputs * n, outputs=g.outputs * n) for g in features.groups)
    if entry.scores:
        groups += (KernelGroup(Kind.SELECT, inputs=entry.scores, outputs=1000, ops="NMS"),)
    return replace(
        features,
        groups=groups,
        input_elements=features.input_elements * n,
        input_bytes=entry.input_bytes,
        dynamic=n > 1,
        p90_size=entry.p90_size,
    )


class Stack(nn.Module):
    """Several outputs of one backbone, as detectors have."""

    def __init__(self, body: nn.Module, heads: nn.Module) -> None:
        super().__init__()
        self.body, self.heads = body, heads

    def forward(self, x: Tensor) -> Any:
        return self.heads(self.body(x))


def conv_bn(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, act: type[nn.Module] = nn.ReLU
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs), act()
    )


def mobilenet_v1_layers() -> list[nn.Module]:
    plan = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), *[(512, 512, 1)] * 5,
            (512, 1024, 2), (1024, 1024, 1)]  # fmt: skip
    layers: list[nn.Module] = [conv_bn(3, 32, 3, 2)]
    for inputs, outputs, stride in plan:
        layers += [conv_bn(inputs, inputs, 3, stride, groups=inputs), conv_bn(inputs, outputs, 1)]
    return layers


def mobilenet_v1() -> nn.Module:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1001)]
    return nn.Sequential(*mobilenet_v1_layers(), *head)


class Multibox(nn.Module):
    """Box and class convolutions on each map, flattened and joined."""

    def __init__(self, channels: list[int], anchors: list[int], classes: int, size: int, strides: list[int]) -> None:
        super().__init__()

        def heads(width: int) -> nn.ModuleList:
            return nn.ModuleList(
                nn.Conv2d(c, a * width, size, s, size // 2) for c, a, s in zip(channels, anchors, strides, strict=True)
            )

        self.boxes, self.scores = heads(4), heads(classes)
        self.classes = classes

    def forward(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        boxes = [head(x).flatten(1) for head, x in zip(self.boxes, maps, strict=True)]
        scores = [head(x).flatten(1) for head, x in zip(self.scores, maps, strict=True)]
        return torch.cat(boxes, 1), torch.cat(scores, 1)


class Pyramid(nn.Module):
    """Runs blocks in a row and keeps what each of `keep` gives."""

    def __init__(self, blocks: list[nn.Module], keep: list[int]) -> None:
        super().__init__()
        self.blocks, self.keep = nn.ModuleList(blocks), set(keep)

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = []
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i in self.keep:
                maps.append(x)
        return maps


def ssd_mobilenet() -> nn.Module:
    layers = mobilenet_v1_layers()
    extras = [
        nn.Sequential(conv_bn(1024, 256, 1), conv_bn(256, 512, 3, 2)),
        nn.Sequential(conv_bn(512, 128, 1), conv_bn(128, 256, 3, 2)),
        nn.Sequential(conv_bn(256, 128, 1), conv_bn(128, 256, 3, 2)),
        nn.Sequential(conv_bn(256, 64, 1), conv_bn(64, 128, 3, 2)),
    ]  # fmt: skip
    blocks = [nn.Sequential(*layers[:23]), nn.Sequential(*layers[23:]), *extras]
    heads = Multibox([512, 1024, 512, 256, 256, 128], [3, 6, 6, 6, 6, 6], 91, 1, [1] * 6)
    return Stack(Pyramid(blocks, list(range(6))), heads)


def ssd_resnet34() -> nn.Module:
    base = torchvision.models.resnet34()
    for block in base.layer3:
        block.conv1.stride = (1, 1)
        if block.downsample is not None:
            block.downsample[0].stride = (1, 1)
    stem = nn.Sequential(base.conv1, base.bn1, base.relu, base.maxpool, base.layer1, base.layer2, base.layer3)

    def extra(inputs: int, middle: int, outputs: int, stride: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, middle, 1),
            nn.ReLU(),
            nn.Conv2d(middle, outputs, 3, stride, 1 if stride == 2 else 0),
            nn.ReLU(),
        )

    extras = [
        extra(256, 256, 512, 2),
        extra(512, 256, 512, 2),
        extra(512, 128, 256, 2),
        extra(256, 128, 256, 2),
        extra(256, 128, 256, 1),
    ]
    heads = Multibox([256, 512, 512, 256, 256, 256], [4, 6, 6, 6, 4, 4], 81, 3, [3, 3, 2, 2, 2, 2])
    return Stack(Pyramid([stem, *extras], list(range(6))), heads)


class RetinaHeads(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        from torchvision.models.detection.retinanet import RetinaNetHead

        self.head = RetinaNetHead(256, 9, classes)

    def forward(self, maps: dict[str, Tensor]) -> Any:
        out = self.head(list(maps.values()))
        return out["cls_logits"], out["bbox_regression"]


def retinanet(backbone: str, classes: int) -> nn.Module:
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    body = getattr(torchvision.models, backbone)(norm_layer=torchvision.ops.FrozenBatchNorm2d)
    fpn = _resnet_fpn_extractor(body, 3, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256))
    return Stack(fpn, RetinaHeads(classes))


class UNet3d(nn.Module):
    """Encoder and decoder of two convolutions a level, transposed convolutions upwards."""

    def __init__(self, inputs: int, outputs: int, widths: list[int], slope: float) -> None:
        super().__init__()

        def double(a: int, b: int, stride: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for i, o, s in ((a, b, stride), (b, b, 1)):
                layers += [nn.Conv3d(i, o, 3, s, 1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(slope)]
            return nn.Sequential(*layers)

        self.down = nn.ModuleList(
            double(a, b, 1 if i == 0 else 2)
            for i, (a, b) in enumerate(zip([inputs, *widths[:-1]], widths, strict=True))
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2) for a, b in pairs)
        self.merge = nn.ModuleList(double(2 * b, b, 1) for _, b in pairs)
        self.last = nn.Conv3d(widths[0], outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
        kept.pop()
        for up, block in zip(self.up, self.merge, strict=True):
            x = block(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


class UNetMedical(nn.Module):
    """Unpadded 3×3 convolutions in pairs, five levels from 64 to 1024 channels."""

    def __init__(self) -> None:
        super().__init__()
        widths = [64, 128, 256, 512, 1024]

        def pair(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(a, b, 3), nn.ReLU(), nn.Conv2d(b, b, 3), nn.ReLU())

        self.down = nn.ModuleList(pair(a, b) for a, b in zip([1, *widths[:-1]], widths, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.merge = nn.ModuleList(pair(2 * w, w) for w in widths[-2::-1])
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(64, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for i, block in enumerate(self.down):
            x = block(self.pool(x) if i else x)
            kept.append(x)
        kept.pop()
        for up, block in zip(self.up, self.merge, strict=True):
            x, side = up(x), kept.pop()
            margin = (side.shape[-1] - x.shape[-1]) // 2
            x = block(torch.cat([side[..., margin : margin + x.shape[-2], margin : margin + x.shape[-1]], x], 1))
        return self.last(x)


def unet_medical() -> nn.Module:
    return UNetMedical()


_TORCHVISION = [
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "wide_resnet50_2",
    "vgg11",
    "vgg13",
    "vgg16",
    "vgg19",
    "vgg11_bn",
    "vgg13_bn",
    "vgg16_bn",
    "vgg19_bn",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "squeezenet1_0",
    "squeezenet1_1",
    "alexnet",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "efficientnet_v2_m",
    "vit_b_16",
    "vit_l_16",
    "regnet_y_400mf",
    "regnet_y_800mf",
    "convnext_tiny",
    "swin_t",
    "shufflenet_v2_x1_0",
    "mnasnet1_0",
    "googlenet",
    "inception_v3",
]
_SIZES = {"efficientnet_v2_s": 384, "efficientnet_v2_m": 480, "inception_v3": 299}
_SEGMENTERS = ["deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large"]


def entries() -> dict[str, Entry]:
    """Name → how to build it."""
    made = {
        "mobilenet-v1": Entry(mobilenet_v1, (3, 224, 224), "MobileNet v1 1.0 224 (arXiv 1704.04861)"),
        "ssd-mobilenet": Entry(
            ssd_mobilenet,
            (3, 300, 300),
            "SSD MobileNet v1 300 of MLPerf Inference (TensorFlow object detection zoo), with NMS",
            scores=1917 * 91,
        ),
        "ssd-resnet34": Entry(
            ssd_resnet34, (3, 1200, 1200), "SSD ResNet-34 1200×1200 of MLPerf Inference, with NMS", scores=15130 * 81
        ),
        "retinanet": Entry(
            lambda: retinanet("resnext50_32x4d", 264),
            (3, 800, 800),
            "RetinaNet ResNeXt50 32x4d 800×800, 264 classes, of MLPerf Inference, with NMS",
            scores=120087 * 264,
        ),
        "ssd320-resnet50-fpn": Entry(
            lambda: retinanet("resnet50", 91),
            (3, 320, 320),
            "SSD320 with a ResNet-50 FPN (NVIDIA DeepLearningExamples, TensorFlow), NMS left out",
        ),
        "unet-medical": Entry(
            unet_medical,
            (1, 572, 572),
            "U-Net Medical 572×572 (NVIDIA DeepLearningExamples, TensorFlow; arXiv 1505.04597)",
        ),
        "3d-unet-brats": Entry(
            lambda: UNet3d(4, 4, [32, 64, 128, 256, 320], 0.01),
            (4, 224, 224, 160),
            "3D U-Net (nnU-Net BraTS 2019) of MLPerf Inference v0.7 to v1.1",
        ),
        "3d-unet-kits19": Entry(
            lambda: UNet3d(1, 3, [32, 64, 128, 256, 320], 0.01),
            (1, 128, 128, 128),
            "3D U-Net (KiTS19) of MLPerf Inference since v2.0; 128³ windows, overlap 50 %, about 50 a volume; "
            "p90 ÷ mean of SingleStream latencies: 1.95",
            times=50,
            p90_size=1.95,
        ),
    }
    for name in _TORCHVISION:
        size = _SIZES.get(name, 224)
        kwargs = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        made[name] = Entry(
            lambda n=name, k=kwargs: getattr(torchvision.models, n)(weights=None, **k),
            (3, size, size),
            f"torchvision {name}, {size}×{size}",
            input_bytes=4.0,
        )
    if yolo.available():
        for name in yolo.NAMES:
            made[name] = Entry(
                lambda n=name: yolo.Exported(n),
                (3, yolo.side(name), yolo.side(name)),
                f"Ultralytics {name}, {yolo.side(name)}×{yolo.side(name)}, NMS left out",
                input_bytes=4.0,
            )
    return made
