"""torchvision's single-shot detectors as a graph that batches: boxes and class scores for every anchor.

torchvision's own `forward` takes a list of images and ends in non-maximum suppression with one loop turn a class and a
branch on how many boxes are left, which `torch.export` refuses. The cut is where inference runtimes make it: everything
up to decoded boxes and class probabilities is in the graph; choosing among overlapping boxes is left to the application
or to the runtime's own operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deploykit.base.errors import UnknownNameError
from deploykit.base.loaded import LoadedModel
from deploykit.sources import torchvision_models
from deploykit.sources.modules import Origin, build_module, image_input, loaded_module
from deploykit.sources.request import Request

if TYPE_CHECKING:
    import torch

DETECTORS = ("ssdlite320_mobilenet_v3_large", "ssd300_vgg16")


def load(request: Request) -> LoadedModel:
    """Build a detector that returns `boxes` and `scores`.

    Raises:
        UnknownNameError: It is no single-shot detector of torchvision.
        UsageError: The default weights are not here and cannot be fetched, or a weights file does not fit.
        MissingExtraError: torchvision is not installed.
    """
    torchvision_models.import_torchvision()
    if request.target not in DETECTORS:
        raise UnknownNameError("torchvision detector", request.target, DETECTORS)
    weights = torchvision_models.default_weights(request)
    detector: Any = build_module(
        request,
        lambda: torchvision_models.untrained(request),
        lambda: torchvision_models.pretrained(request, weights),
    )
    inputs = (image_input(torchvision_models.INPUT, (3, *_size(detector))),)
    code = torchvision_models.origin_of(request, None).code
    origin = Origin(
        name=request.target, source="torchvision-detector", inputs=inputs, task="detection",
        license=torchvision_models.LICENSE, code=code,
    )  # fmt: skip
    return loaded_module(request, _with_decoded_boxes(detector), origin)


def _size(detector: Any) -> tuple[int, int]:
    # torchvision's transform keeps the fixed size as (width, height).
    width, height = detector.transform.fixed_size
    return int(height), int(width)


def _with_decoded_boxes(detector: Any) -> torch.nn.Module:
    """A module `images: float32 [N, 3, H, W]` → `boxes: [N, A, 4]` in pixels (x1, y1, x2, y2), `scores: [N, A, C]`."""
    import torch

    class DecodedDetector(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone = detector.backbone
            self.head = detector.head
            self.height, self.width = _size(detector)
            self.box_coder = detector.box_coder
            self.register_buffer("anchors", _anchors(detector), persistent=False)

        def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
            features = self.backbone(image)
            maps = [features] if isinstance(features, torch.Tensor) else list(features.values())
            heads = self.head(maps)
            boxes = _decode(heads["bbox_regression"], self.anchors, self.box_coder)
            limits = boxes.new_tensor([self.width, self.height, self.width, self.height])
            boxes = torch.minimum(boxes.clamp(min=0.0), limits)
            return {"boxes": boxes, "scores": heads["cls_logits"].softmax(-1)}

    return DecodedDetector()


def _anchors(detector: Any) -> Any:
    """Anchor boxes `[A, 4]` of one image, which depend on its size alone."""
    import torch
    from torchvision.models.detection.image_list import ImageList

    height, width = _size(detector)
    image = torch.zeros(1, 3, height, width)
    detector.eval()
    with torch.no_grad():
        features = list(detector.backbone(image).values())
    anchors: torch.Tensor = detector.anchor_generator(ImageList(image, [(height, width)]), features)[0]
    return anchors


def _decode(deltas: Any, anchors: Any, coder: Any) -> Any:
    """Offsets to anchors → corner boxes, as in SSD (arXiv:1512.02325, section 2.2), for a whole batch at once.

    Centres move by `delta ÷ weight` anchor sizes; sizes grow by `exp(delta ÷ weight)`, bounded as torchvision does.
    """
    import torch

    low, high = anchors[:, :2], anchors[:, 2:]
    size, centre = high - low, (low + high) / 2
    weights = deltas.new_tensor(coder.weights)
    scaled = deltas / weights
    centre = scaled[..., :2] * size + centre
    half = torch.exp(scaled[..., 2:].clamp(max=coder.bbox_xform_clip)) * size / 2
    return torch.cat([centre - half, centre + half], dim=-1)
