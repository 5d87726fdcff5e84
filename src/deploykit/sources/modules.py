"""What every source that builds a `torch.nn.Module` does with it before it is handed on."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploykit.base import files
from deploykit.base.artifact import ModelInfo, Preprocessing
from deploykit.base.errors import MissingExtraError
from deploykit.base.loaded import LoadedModel
from deploykit.base.tensors import TensorSpec
from deploykit.sources.random_weights import enliven, seeded
from deploykit.sources.request import DEFAULT_WEIGHTS, NO_WEIGHTS, Request
from deploykit.sources.weights import digest_of_state, load_weights_file

if TYPE_CHECKING:
    import torch


OTHER_FLOATS = ("float16", "bfloat16", "float64")
"""Floating types that a module is taken out of: fp32 is exported first, and other precisions are made from that."""


@dataclass(frozen=True)
class Origin:
    """What a source knows of the module it built.

    Attributes:
        name: Short name for folders and tables.
        source: The source's name.
        inputs: Inputs, batch first, where the source knows them.
        preprocessing: How a photograph becomes the input, where the source knows it.
        task: What the outputs mean, where the source knows it.
        license: Of code and default weights, as the source states it.
        code: Digest or version of the code that computes.
    """

    name: str
    source: str
    inputs: tuple[TensorSpec, ...] = ()
    preprocessing: Preprocessing | None = None
    task: str | None = None
    license: str | None = None
    code: str = ""


def build_module(
    request: Request, untrained: Callable[[], torch.nn.Module], pretrained: Callable[[], torch.nn.Module]
) -> torch.nn.Module:
    """The module with the weights that the request asks for.

    Args:
        request: Says which weights.
        untrained: Builds the architecture with initial weights.
        pretrained: Builds it with the source's default weights.
    """
    with seeded(), contextlib.redirect_stdout(sys.stderr):
        module = pretrained() if request.weights == DEFAULT_WEIGHTS else untrained()
    if request.weights_file is not None:
        load_weights_file(module, Path(request.weights_file))
    return module


def loaded_module(request: Request, module: torch.nn.Module, origin: Origin) -> LoadedModel:
    """Hand a module on: in float32 and eval mode, with the card's words before the source's."""
    source_dtype = floating_dtype(module)
    module.float().eval()
    inputs = _inputs(request, origin)
    if request.weights == NO_WEIGHTS:
        enliven(module, inputs)
    card = request.card
    digest = digest_of_state(module)
    preprocessing = origin.preprocessing
    if card is not None:
        preprocessing = card.preprocessing.settings() if card.preprocessing else None
    preprocessing = preprocessing if preprocessing and _feeds(preprocessing, inputs) else None
    info = ModelInfo(
        name=card.name if card else origin.name,
        reference=request.reference,
        source=origin.source,
        task=card.task if card else origin.task,
        weights=Path(request.weights_file).name if request.weights_file else request.weights,
        weights_digest=digest,
        random_weights=request.weights == NO_WEIGHTS,
        license=card.license if card else origin.license,
        source_dtype=source_dtype,
    )
    return LoadedModel(
        info=info,
        kind="module",
        payload=module,
        inputs=inputs,
        preprocessing=preprocessing,
        default_calibration=_default_calibration(request, preprocessing),
        fingerprint=files.sha256_json({"code": origin.code, "weights": digest, "dtype": source_dtype,
                                       "structure": files.sha256_json(repr(module))}),
    )  # fmt: skip


def floating_dtype(module: torch.nn.Module) -> str:
    """Type of most floating weights, in NumPy's spelling; float32 where there are none."""
    counts: Counter[str] = Counter()
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            counts[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    other = {name: count for name, count in counts.items() if name != "float32"}
    if not other or counts["float32"] > max(other.values()):
        return "float32"
    return max(other, key=lambda name: other[name])


def import_torch(purpose: str) -> None:
    """Make sure that torch is there.

    Raises:
        MissingExtraError: It is not.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", "torch", purpose) from error


def image_input(name: str, size: Sequence[int]) -> TensorSpec:
    """`[batch, channels, height, width]` of float32."""
    return TensorSpec(name=name, dtype="float32", shape=("batch", *size))


def _inputs(request: Request, origin: Origin) -> tuple[TensorSpec, ...]:
    inputs = request.inputs
    if not inputs:
        inputs = tuple(entry.spec() for entry in request.card.inputs) if request.card else origin.inputs
    # They go through float32 with the module.
    return tuple(
        spec.model_copy(update={"dtype": "float32"}) if spec.dtype in OTHER_FLOATS else spec for spec in inputs
    )


def _feeds(preprocessing: Preprocessing, inputs: tuple[TensorSpec, ...]) -> bool:
    """Whether an input of the name and size that the preprocessing makes is there: `--input` may say otherwise."""
    return any(spec.name == preprocessing.input and spec.shape[-2:] == preprocessing.size for spec in inputs)


def _default_calibration(request: Request, preprocessing: Preprocessing | None) -> str | None:
    if preprocessing is None:
        return None
    return request.card.default_calibration if request.card else "builtin:photos"
