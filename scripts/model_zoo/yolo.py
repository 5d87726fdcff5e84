"""Ultralytics detectors, built from their configuration with random weights; needs the package `ultralytics`.

Only layer shapes are taken from it: what is shipped are counts of operations and bytes.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from torch import Tensor, nn

_PLAIN = (
    [f"yolov8{size}" for size in "nsmlx"]
    + [f"yolo11{size}" for size in "nsmlx"]
    + [f"yolo26{size}" for size in "nsmlx"]
)
_TASKS = [f"{name}-{task}" for name in _PLAIN if not name.startswith("yolo26") for task in ("seg", "pose", "cls")]
_OLDER = [f"yolov5{size}" for size in "nsmlx"]
NAMES = [*_PLAIN, *_TASKS, *_OLDER, "rtdetr-l"]


class Exported(nn.Module):
    """The raw network, with its heads in export form: boxes and scores in one tensor, no NMS."""

    def __init__(self, name: str) -> None:
        super().__init__()
        from ultralytics import RTDETR, YOLO

        config = f"{name}.yaml"
        self.net: Any = (RTDETR if name.startswith("rtdetr") else YOLO)(config).model
        self.net = self.net.fuse() if hasattr(self.net, "fuse") else self.net
        for module in self.net.modules():
            if hasattr(module, "export"):
                module.export = True
                module.format = "onnx"

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


def available() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec("ultralytics") is not None


def side(name: str) -> int:
    """Pixels of the square input."""
    return 224 if name.endswith("-cls") else 640
