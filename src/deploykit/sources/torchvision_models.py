"""`torchvision:NAME`: any model that torchvision registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import MissingExtraError, UnknownNameError, UsageError
from deploykit.base.loaded import LoadedModel
from deploykit.sources.modules import Origin, build_module, image_input, import_torch, loaded_module
from deploykit.sources.request import Request
from deploykit.sources.weights import OFFLINE_ADVICE, require_reachable

if TYPE_CHECKING:
    import torch

INPUT = "image"
# torchvision's code is BSD-3-Clause; its weights carry the terms of the data they were trained on, which it does not
# restate for each: what a card says goes before this.
LICENSE = "BSD-3-Clause"


def load(request: Request) -> LoadedModel:
    """Build a torchvision model.

    Raises:
        UnknownNameError: torchvision has no model of that name.
        UsageError: The default weights are not here and cannot be fetched, or a weights file does not fit.
        MissingExtraError: torchvision is not installed.
    """
    models = import_torchvision()
    if request.target not in models.list_models():
        raise UnknownNameError("torchvision model", request.target, models.list_models())
    weights = default_weights(request)
    module = build_module(request, lambda: untrained(request), lambda: pretrained(request, weights))
    return loaded_module(request, module, origin_of(request, weights))


def import_torchvision() -> Any:
    """`torchvision.models`, where it is installed.

    Raises:
        MissingExtraError: torchvision is not.
    """
    import_torch("a torchvision model")
    try:
        import torchvision
    except ModuleNotFoundError as error:
        raise MissingExtraError("torchvision", "torch", "a torchvision model") from error
    return torchvision.models


def untrained(request: Request) -> torch.nn.Module:
    """The architecture with initial weights, its backbone's too."""
    models = import_torchvision()
    backbone = {"weights_backbone": None} if _has_backbone(request.target) else {}
    module: torch.nn.Module = models.get_model(request.target, weights=None, **backbone, **_options(request))
    return module


def pretrained(request: Request, weights: Any) -> torch.nn.Module:
    """The architecture with the weights that torchvision publishes, from its cache or the network.

    Raises:
        UsageError: There are none, or they are not here and cannot be fetched.
    """
    if weights is None:
        raise UsageError(f"torchvision publishes no weights for {request.target}: {OFFLINE_ADVICE}")
    if not _is_cached(weights.url):
        require_reachable(weights.url, request.reference)
    try:
        module: torch.nn.Module = import_torchvision().get_model(
            request.target, weights=weights, progress=False, **_options(request)
        )
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"the weights of {request.reference} could not be fetched ({error}): {OFFLINE_ADVICE}"
        ) from error
    return module


def default_weights(request: Request) -> Any:
    """The weights entry that the card names, else torchvision's default; None where it publishes none."""
    known = import_torchvision().get_model_weights(request.target)
    name = request.card.weights.name if request.card else "DEFAULT"
    if name is None or name not in getattr(known, "__members__", {}):
        return None
    return known[name]


def origin_of(request: Request, weights: Any) -> Origin:
    """What torchvision says of a model: its weights' own transforms give size, crop, mean and standard deviation."""
    import torchvision

    preprocessing = preprocessing_of(weights.transforms()) if weights is not None else None
    inputs = (image_input(INPUT, (3, *preprocessing.size)),) if preprocessing else ()
    task = "classification" if weights is not None and len(weights.meta.get("categories", ())) == 1000 else None
    return Origin(
        name=request.target,
        source="torchvision",
        inputs=inputs,
        preprocessing=preprocessing,
        task=task,
        license=LICENSE,
        code=f"torchvision {torchvision.__version__} {request.target} {sorted(request.options.items())}",
    )


def preprocessing_of(transforms: Any) -> Preprocessing | None:
    """torchvision's classification transforms in our words; None for transforms of another kind."""
    if not hasattr(transforms, "crop_size") or not hasattr(transforms, "resize_size"):
        return None
    crop, resize = transforms.crop_size[0], transforms.resize_size[0]
    return Preprocessing(
        input=INPUT,
        size=(crop, crop),
        resize=resize,
        interpolation=transforms.interpolation.value,
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
    )


def _has_backbone(name: str) -> bool:
    """Whether the factory would fetch a backbone of its own accord: detection and segmentation models do."""
    import inspect

    return "weights_backbone" in inspect.signature(import_torchvision().get_model_builder(name)).parameters


def _options(request: Request) -> dict[str, Any]:
    # These two start with auxiliary heads that eval mode does not use, and spend seconds on initial weights that
    # published ones overwrite.
    slow_start = {"init_weights": False} if request.target in ("googlenet", "inception_v3") else {}
    return {**slow_start, **request.options}


def _is_cached(url: str) -> bool:
    from pathlib import Path

    import torch

    return (Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]).is_file()
