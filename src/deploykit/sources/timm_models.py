"""`timm:NAME`: any model that timm registers, with a tag of its weights (`resnet50.a1_in1k`) or without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import MissingExtraError, UnknownNameError, UsageError
from deploykit.base.loaded import LoadedModel
from deploykit.sources.modules import Origin, build_module, image_input, import_torch, loaded_module
from deploykit.sources.request import Request
from deploykit.sources.weights import OFFLINE_ADVICE, hub_is_offline, require_reachable

if TYPE_CHECKING:
    import torch

INPUT = "image"
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


def load(request: Request) -> LoadedModel:
    """Build a timm model.

    Raises:
        UnknownNameError: timm has no model of that name.
        UsageError: The default weights are not here and cannot be fetched, or a weights file does not fit.
        MissingExtraError: timm is not installed.
    """
    timm = import_timm()
    if not timm.is_model(request.target):
        raise UnknownNameError("timm model", request.target, timm.list_models())
    module = build_module(request, lambda: untrained(request), lambda: _pretrained(request))
    return loaded_module(request, module, _origin(request, module))


def import_timm() -> Any:
    """timm, where it is installed.

    Raises:
        MissingExtraError: It is not.
    """
    import_torch("a timm model")
    try:
        import timm
    except ModuleNotFoundError as error:
        raise MissingExtraError("timm", "timm", "a timm model") from error
    return timm


def untrained(request: Request) -> torch.nn.Module:
    """The architecture with initial weights."""
    module: torch.nn.Module = import_timm().create_model(request.target, pretrained=False, **request.options)
    return module


def _pretrained(request: Request) -> torch.nn.Module:
    timm = import_timm()
    config = timm.models.get_pretrained_cfg(request.target)
    if config is None or not config.has_weights:
        raise UsageError(f"timm publishes no weights for {request.target}: {OFFLINE_ADVICE}")
    if not _is_cached(config) and not hub_is_offline():
        # The hub's client retries for most of a minute where there is no network.
        require_reachable(_hub_url(config), request.reference)
    try:
        module: torch.nn.Module = timm.create_model(request.target, pretrained=True, **request.options)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"the weights of {request.reference} could not be fetched ({reason}): {OFFLINE_ADVICE}"
        ) from error
    return module


def _origin(request: Request, module: torch.nn.Module) -> Origin:
    config: dict[str, Any] = getattr(module, "pretrained_cfg", {})
    size = tuple(config.get("input_size") or ())
    return Origin(
        name=request.target,
        source="timm",
        inputs=(image_input(INPUT, size),) if len(size) == 3 else (),
        preprocessing=_preprocessing(config) if len(size) == 3 else None,
        task="classification" if config.get("num_classes") == 1000 else None,
        license=config.get("license"),
        code=f"timm {import_timm().__version__} {request.target} {sorted(request.options.items())}",
    )


def _preprocessing(config: dict[str, Any]) -> Preprocessing | None:
    """timm resizes the shorter side to the crop's size over `crop_pct`, rounded down."""
    _, height, width = config["input_size"]
    if config.get("interpolation") not in _INTERPOLATIONS or config.get("crop_mode", "center") != "center":
        return None
    return Preprocessing(
        input=INPUT,
        size=(height, width),
        resize=int(min(height, width) / config["crop_pct"]),
        interpolation=config["interpolation"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


def _hub_url(config: Any) -> str:
    if config.hf_hub_id:
        from huggingface_hub import constants

        return str(constants.ENDPOINT)
    return str(config.url)


def _is_cached(config: Any) -> bool:
    from huggingface_hub import try_to_load_from_cache

    if not config.hf_hub_id:
        return False
    names = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(config.hf_hub_id, name), str) for name in names)
