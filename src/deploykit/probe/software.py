"""What is installed that must suit the device: releases, without importing any of it."""

from __future__ import annotations

import importlib.util
import json
import platform
import re
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from deploykit.probe.provider_check import loading_providers
from deploykit.probe.tree import Tree

RECORD_FILE = "deploykit/software.json"

_CUDA_VERSION_FILE = "usr/local/cuda/version.json"

_PACKAGES = (
    "deploykit",
    "numpy",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu11",
    "nvidia-cuda-runtime-cu12",
    "nvidia-ml-py",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "tensorrt",
    "tensorrt_cu12",
    "tensorrt_cu13",
    "tensorrt_rtx",
    "torch",
    "torch-tensorrt",
)


class Software(BaseModel):
    """Releases.

    Attributes:
        packages: Distribution → version, of those that matter here.
        torch_cuda: The CUDA that torch was built for; None for a CPU build or no torch.
        providers: Provider of onnxruntime → why it does not load, None where it does; None: no onnxruntime.
        system_tensorrt: Version of the system's libnvinfer, as JetPack installs it.
        system_cuda: Version of the CUDA toolkit in /usr/local/cuda.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    python: str
    packages: dict[str, str] = {}
    torch_cuda: str | None = None
    providers: dict[str, str | None] | None = None
    system_tensorrt: str | None = None
    system_cuda: str | None = None


def software_of(tree: Tree, root: Path) -> Software | None:
    """What is installed on the machine under a root: looked up here, or recorded in its snapshot."""
    return installed(tree) if root.resolve() == Path("/") else recorded(root)


def installed(tree: Tree) -> Software:
    """What this Python has, and the system's TensorRT."""
    packages = {name: version for name in _PACKAGES if (version := _version(name)) is not None}
    return Software(
        python=platform.python_version(),
        packages=packages,
        torch_cuda=_torch_cuda(),
        providers=loading_providers() if packages.keys() & {"onnxruntime", "onnxruntime-gpu"} else None,
        system_tensorrt=_system_tensorrt(tree),
        system_cuda=_system_cuda(tree),
    )


def recorded(root: Path) -> Software | None:
    """What a snapshot recorded; None where it holds none."""
    try:
        return Software.model_validate(json.loads((root / RECORD_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _torch_cuda() -> str | None:
    """From torch's version file: importing torch takes seconds, and a broken CUDA may stop it."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        try:
            text = (Path(folder) / "version.py").read_text(encoding="utf-8")
        except OSError:
            continue
        if match := re.search(r"^cuda\b[^=\n]*=\s*['\"]([0-9.]+)['\"]", text, re.MULTILINE):
            return match[1]
    return None


def _system_cuda(tree: Tree) -> str | None:
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([0-9.]{1,20})"', tree.text(_CUDA_VERSION_FILE) or "")
    return match[1] if match else None


def _system_tensorrt(tree: Tree) -> str | None:
    names = tree.paths("usr/lib/*-linux-gnu/libnvinfer.so.*.*.*")
    versions = [match[1] for name in names if (match := re.search(r"\.so\.([0-9]+\.[0-9]+\.[0-9]+)", name))]
    return versions[-1] if versions else None
