"""`--weights default|none|FILE`: state dicts are read, code in a pickle never is."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.base.errors import MissingExtraError, UsageError
from deploykit.sources.sniff import sniff

if TYPE_CHECKING:
    import torch

OFFLINE_ADVICE = "give a weights file with --weights FILE, or --weights none for random weights (speed only)"

_CONNECT_SECONDS = 5.0
_WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "net", "weights")
_PREFIXES = ("module.", "_orig_mod.", "model.")
_NAMED = 4


def require_reachable(url: str, what: str) -> None:
    """Find out in seconds, not in retries, that a download cannot work. Honours proxy variables.

    Raises:
        UsageError: The host does not answer.
    """
    request = urllib.request.Request(url, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=_CONNECT_SECONDS).close()
    except urllib.error.HTTPError:
        return  # The host answered; whether it has the file is the downloader's to find out.
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the default weights of {what} are not here and {_host(url)} cannot be reached "
            f"({_reason(error)}): {OFFLINE_ADVICE}"
        ) from error


def hub_is_offline() -> bool:
    """Whether `HF_HUB_OFFLINE` forbids asking the Hugging Face hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def load_weights_file(module: torch.nn.Module, path: Path) -> None:
    """Put a weights file into a module, every key or none.

    Raises:
        UsageError: The file is no safetensors or state dict, holds code, or its keys or shapes do not fit.
    """
    state = unwrapped(read_state_dict(path), set(module.state_dict()))
    _refuse_misfits(module.state_dict(), state, path)
    module.load_state_dict(state, strict=False)  # `num_batches_tracked` may be missing; all else was checked.


def read_state_dict(path: Path) -> dict[str, Any]:
    """Tensor names → tensors, from safetensors or a file of `torch.save(model.state_dict(), …)`.

    Raises:
        UsageError: It is neither; the message says what it is.
    """
    if not path.is_file():
        raise UsageError(f"--weights {path}: no such file")
    found = sniff(path)
    if found.kind == "safetensors file":
        return _read_safetensors(path)
    if found.kind == "state dict":
        return _read_torch(path)
    if found.kind == "pickle with code":
        raise UsageError(
            f"--weights {path} is a pickle that runs code when it is loaded (it imports {found.imports[0]}): refused. "
            "Save the weights alone, with safetensors or torch.save(model.state_dict(), FILE)"
        )
    raise UsageError(
        f"--weights {path} is no weights file but {found.described}: give safetensors, or a file of "
        "torch.save(model.state_dict(), FILE)"
    )


def unwrapped(state: Mapping[str, Any], wanted: set[str]) -> dict[str, Any]:
    """Take a checkpoint's state dict out of its wrapper, and off a prefix that every key has.

    Args:
        state: What the file holds: tensors by name, or a training checkpoint around them.
        wanted: The module's own keys; a prefix is removed only where the keys fit without it.
    """
    for wrapper in _WRAPPERS:
        if isinstance(state.get(wrapper), Mapping):
            state = state[wrapper]
            break
    tensors = {key: value for key, value in state.items() if hasattr(value, "shape")}
    while not wanted & set(tensors) and (prefix := _shared_prefix(tensors)):
        tensors = {key[len(prefix) :]: value for key, value in tensors.items()}
    return tensors


def _shared_prefix(tensors: Mapping[str, Any]) -> str:
    """A prefix that training wrappers add, where every key has it."""
    found = (prefix for prefix in _PREFIXES if tensors and all(key.startswith(prefix) for key in tensors))
    return next(found, "")


def digest_of_state(module: torch.nn.Module) -> str:
    """SHA-256 over every parameter and buffer: name, type, shape and bytes."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise MissingExtraError("safetensors", "torch", "reading a safetensors file") from error
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise UsageError(f"--weights {path} is a damaged safetensors file ({error}): copy it again") from error


def _read_torch(path: Path) -> dict[str, Any]:
    import pickle

    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise UsageError(f"--weights {path} cannot be read as a state dict ({_first_line(error)})") from error
    if not isinstance(state, Mapping):
        raise UsageError(f"--weights {path} holds one {type(state).__name__}, not a state dict: tensors by name")
    return dict(state)


def _refuse_misfits(own: Mapping[str, Any], given: Mapping[str, Any], path: Path) -> None:
    # How many batches a BatchNorm has seen is for training only; old files lack it.
    missing = [key for key in own if key not in given and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in given if key not in own]
    shapes = [f"{key} is {tuple(given[key].shape)}, wanted {tuple(own[key].shape)}"
              for key in own if key in given and own[key].shape != given[key].shape]  # fmt: skip
    parts = [f"{len(names)} {what}: {_listed(names)}"
             for what, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
             if names]  # fmt: skip
    if parts:
        raise UsageError(f"--weights {path} does not fit the model; tensors {'; '.join(parts)}")


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200]


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error))


def _host(url: str) -> str:
    return url.split("/")[2] if url.count("/") >= 2 else url
