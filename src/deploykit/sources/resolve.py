"""One reference → one model: which source answers, and what is said where none does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from deploykit.base.errors import UsageError
from deploykit.base.loaded import LoadedModel
from deploykit.base.registry import Registry
from deploykit.base.tensors import TensorSpec
from deploykit.sources.catalog import find_card
from deploykit.sources.request import DEFAULT_WEIGHTS, ModelSource, Request
from deploykit.sources.sniff import Sniffed, sniff

SOURCES = Registry(
    "model source",
    "deploykit.sources",
    {
        "torchvision": "deploykit.sources.torchvision_models:load",
        "torchvision-detector": "deploykit.sources.torchvision_detectors:load",
        "transformers": "deploykit.sources.transformers_models:load",
        "timm": "deploykit.sources.timm_models:load",
        "efficientnet-lite": "deploykit.sources.efficientnet_lite:load",
        "python-file": "deploykit.sources.python_code:load_file",
        "python-module": "deploykit.sources.python_code:load_module",
        "onnx-file": "deploykit.sources.onnx_file:load",
        "exported-program": "deploykit.sources.exported_program:load",
    },
)

# These answer to the form of a reference, not to a scheme before a colon.
_BY_FORM = ("python-file", "python-module", "onnx-file", "exported-program")


def resolve(reference: str, *, weights: str = DEFAULT_WEIGHTS, inputs: Sequence[TensorSpec] = ()) -> LoadedModel:
    """Find, build or read a model.

    Args:
        reference: A card's name, `torchvision:NAME`, `timm:NAME`, `path/to/file.py:factory`,
            `package.module:factory`, the path of a `.onnx` or of a `.pt2` file.
        weights: `default`, `none` (random, from a fixed seed) or the path of a safetensors or state dict file.
        inputs: Shapes and types in place of what the card or source says.

    Raises:
        UnknownNameError: No card or model of that name; the near misses are named.
        UsageError: The file, the weights or the inputs are not what they must be.
        MissingExtraError: A package is needed that is not installed.
    """
    source, request = route(Request(reference=reference, target=reference, weights=weights, inputs=tuple(inputs)))
    load: ModelSource = SOURCES.get(source)
    return load(request)


def route(request: Request) -> tuple[str, Request]:
    """Which source answers a reference, and the request as that source takes it.

    Raises:
        UnknownNameError, UsageError: None does.
    """
    text = request.reference
    head, colon, tail = text.rpartition(":")
    if not text.strip():
        raise UsageError("the model reference is empty: give a card's name, such as resnet50, or a file")
    if (path := Path(text)).is_file():
        return _source_of_file(path), request
    if colon and head.endswith(".py"):
        return "python-file", request
    scheme, colon, rest = text.partition(":")
    if colon and scheme in SOURCES.names() and scheme not in _BY_FORM:
        return scheme, replace(request, target=rest)
    if colon and all(part.isidentifier() for part in head.split(".")) and tail.isidentifier():
        return "python-module", request
    if _looks_like_a_path(text):
        raise UsageError(f"there is no file {text}: a model file ends in .onnx, .pt2 or .py:FUNCTION")
    card = find_card(text)
    return card.source.kind, replace(request, target=card.source.model, options=card.source.options, card=card)


def _source_of_file(path: Path) -> str:
    if path.suffix == ".onnx":
        return "onnx-file"
    if path.suffix == ".pt2":
        return "exported-program"
    if path.suffix == ".py":
        raise UsageError(f"{path} is Python code: name the function that returns the module, as {path}:FUNCTION")
    found = sniff(path)
    if found.kind == "exported program":
        return "exported-program"
    raise UsageError(f"{path} is {found.described}, which is no model that can be exported: {_way_out(path, found)}")


def _way_out(path: Path, found: Sniffed) -> str:
    if found.kind == "pickle with code":
        return (
            f"loading this pickle would run code (it imports {found.imports[0]}), so it is refused. Where you trust "
            "it, load it yourself, and give file.py:function or package.module:function that returns the module, with "
            "--weights FILE of its state dict"
        )
    if found.kind in ("state dict", "safetensors file"):
        return (
            f"it holds weights without an architecture; give the architecture and these weights, for example "
            f"`torchvision:resnet50 --weights {path}` or `file.py:function --weights {path}`"
        )
    if found.kind == "TorchScript archive":
        return "export from the module it was made of (file.py:function), or save it with torch.export.save as .pt2"
    if found.kind in ("empty file", "damaged archive", "HTML page", "Git LFS pointer"):
        return "download or copy it again"
    return "give a .onnx file, a .pt2 file, or file.py:function that returns the module"


def _looks_like_a_path(text: str) -> bool:
    return "/" in text or Path(text).suffix in (".onnx", ".pt2", ".pt", ".pth", ".py", ".safetensors", ".bin", ".ckpt")
