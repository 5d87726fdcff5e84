"""What makes a measurement on a CPU comparable: the processor, what else it does, and the versions."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from deploykit import __version__
from deploykit.base.cpus import cgroup_cpus, usable_cpus
from deploykit.targets.host import cpu_model, memory_bytes

_ISA_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")
"""Extensions that decide how fast INT8 and FP32 run on a CPU, as /proc/cpuinfo spells them."""

_PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "mlcommons_loadgen")


def describe_host(root: Path = Path("/")) -> dict[str, Any]:
    """The machine, as far as its kernel tells.

    Args:
        root: Where `proc` and `sys` are looked for.
    """
    return {
        "cpu": cpu_model(root),
        "machine": platform.machine(),
        "cpus": usable_cpus(root),
        "cgroup_cpus": cgroup_cpus(root),
        "isa": isa(root),
        "governor": _line(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_gb": round(memory / 1e9, 1) if (memory := memory_bytes(root)) else None,
        "kernel": platform.release(),
    }


def isa(root: Path = Path("/")) -> list[str]:
    """Which of the extensions that matter the CPU has."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "").split()
    return [flag for flag in _ISA_FLAGS if flag in flags]


def versions() -> dict[str, str]:
    """Releases of everything that takes part."""
    found = {"deploykit": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def load_average() -> float:
    """Processes that wanted to run over the last minute."""
    return os.getloadavg()[0]


def _line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
