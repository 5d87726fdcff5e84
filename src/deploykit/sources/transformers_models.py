"""Text models of the transformers package: architecture and settings from a card, weights from a file or the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deploykit.base.errors import MissingExtraError, UnknownNameError, UsageError
from deploykit.base.loaded import LoadedModel
from deploykit.base.tensors import TensorSpec
from deploykit.sources.modules import Origin, build_module, import_torch, loaded_module
from deploykit.sources.request import Request
from deploykit.sources.weights import OFFLINE_ADVICE, hub_is_offline, require_reachable

if TYPE_CHECKING:
    import torch

ARCHITECTURES = {"bert-question-answering": ("BertConfig", "BertForQuestionAnswering")}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def load(request: Request) -> LoadedModel:
    """Build a text model; it takes token ids, a mask and segment ids, all int64 `[N, sequence]`.

    Raises:
        UnknownNameError: It is no architecture of `ARCHITECTURES`.
        UsageError: The default weights are not here and cannot be fetched, or a weights file does not fit.
        MissingExtraError: transformers is not installed.
    """
    if request.target not in ARCHITECTURES:
        raise UnknownNameError("transformers architecture", request.target, ARCHITECTURES)
    transformers = _import_transformers()
    module = build_module(
        request, lambda: _untrained(transformers, request), lambda: _pretrained(transformers, request)
    )
    code = f"transformers {transformers.__version__} {request.target} {sorted(request.options.items())}"
    inputs = tuple(TensorSpec(name=name, dtype="int64", shape=("batch", "sequence")) for name in INPUTS)
    origin = Origin(name=request.target, source="transformers", inputs=inputs, task="question-answering", code=code)
    return loaded_module(request, module, origin)


def _import_transformers() -> Any:
    import_torch("a text model")
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtraError("transformers", "transformers", "a text model") from error
    return transformers


def _untrained(transformers: Any, request: Request) -> torch.nn.Module:
    config, architecture = (getattr(transformers, name) for name in ARCHITECTURES[request.target])
    # Attention written out: the fused operator's mask handling is traced with data-dependent branches.
    module: torch.nn.Module = architecture(config(attn_implementation="eager", **request.options))
    return module


def _pretrained(transformers: Any, request: Request) -> torch.nn.Module:
    name = request.card.weights.name if request.card else None
    if name is None:
        raise UsageError(f"{request.reference} names no weights: {OFFLINE_ADVICE}")
    _, architecture = (getattr(transformers, word) for word in ARCHITECTURES[request.target])
    if not hub_is_offline() and not _is_cached(name):
        from huggingface_hub import constants

        require_reachable(str(constants.ENDPOINT), request.reference)
    try:
        module: torch.nn.Module = architecture.from_pretrained(name, attn_implementation="eager", use_safetensors=True)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"the weights {name} could not be fetched ({reason}): {OFFLINE_ADVICE}") from error
    return module


def _is_cached(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "model.safetensors"), str)
