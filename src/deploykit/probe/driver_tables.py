"""Which releases belong together. Each table names its source; what is not in one is not known, and nothing is said.

JETPACK_OF_L4T: rbonghi/jetson_stats jtop/core/jetson_variables.py (f41d5cadfeaf), and NVIDIA's JetPack archive.
SHIPPED_WITH_JETPACK: release notes of each JetPack, developer.nvidia.com/embedded/jetpack-archive; of 7.2
    straga/jetson-jp7-onnxruntime README.md (L4T r39.2, CUDA 13.2, TensorRT 10.16).
PYTHON_OF_JETPACK: the Ubuntu release that each is made of (20.04, 22.04, 24.04).
DRIVER_FOR_CUDA: docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1.
"""

from __future__ import annotations

import re

JETPACK_OF_L4T = {
    "32.6.1": "4.6",
    "32.7.1": "4.6.1",
    "32.7.2": "4.6.2",
    "32.7.3": "4.6.3",
    "32.7.4": "4.6.4",
    "32.7.5": "4.6.5",
    "34.1.0": "5.0 DP",
    "34.1.1": "5.0.1 DP",
    "35.1.0": "5.0.2",
    "35.2.1": "5.1",
    "35.3.1": "5.1.1",
    "35.4.1": "5.1.2",
    "35.5.0": "5.1.3",
    "35.6.0": "5.1.4",
    "35.6.1": "5.1.5",
    "36.2.0": "6.0 DP",
    "36.3.0": "6.0",
    "36.4.0": "6.1",
    "36.4.3": "6.2",
    "36.4.4": "6.2.1",
    "36.4.7": "6.2.1",
    "36.5.0": "6.2.2",
    "38.2.0": "7.0",
    "38.2.1": "7.0",
    "38.4.0": "7.1",
    "39.2.0": "7.2",
}

# First JetPack of each pair → (TensorRT, CUDA) that it installs; holds until the next row.
SHIPPED_WITH_JETPACK = (
    ("4.6", "8.0", "10.2"),
    ("4.6.1", "8.2", "10.2"),
    ("5.0 DP", "8.4", "11.4"),
    ("5.1", "8.5", "11.4"),
    ("6.0", "8.6", "12.2"),
    ("6.1", "10.3", "12.6"),
    ("7.0", "10.13", "13.0"),
    ("7.2", "10.16", "13.2"),
)

PYTHON_OF_JETPACK = {4: "3.6", 5: "3.8", 6: "3.10", 7: "3.12"}
"""JetPack major → the Python that its TensorRT bindings are built for."""

DRIVER_FOR_CUDA = {11: (450, 80, 2), 12: (525,), 13: (580,)}
"""CUDA major → the oldest driver that runs programs built with any minor version of it."""


def jetpack_of(l4t: str | None) -> str | None:
    """The JetPack release that carries a Jetson Linux version."""
    if l4t is None:
        return None
    return JETPACK_OF_L4T.get(l4t) or JETPACK_OF_L4T.get(f"{l4t}.0")


def shipped_with(jetpack: str) -> tuple[str, str] | None:
    """TensorRT and CUDA, `major.minor`, of a JetPack; None before the first row."""
    found = None
    for first, tensorrt, cuda in SHIPPED_WITH_JETPACK:
        if version_tuple(first) <= version_tuple(jetpack):
            found = (tensorrt, cuda)
    return found


def python_of(jetpack: str) -> str | None:
    """The Python, `major.minor`, that JetPack's own packages are for."""
    return PYTHON_OF_JETPACK.get(version_tuple(jetpack)[0]) if version_tuple(jetpack) else None


def driver_needed(cuda: str) -> tuple[int, ...] | None:
    """The oldest driver for programs built with this CUDA version."""
    return DRIVER_FOR_CUDA.get(version_tuple(cuda)[0]) if version_tuple(cuda) else None


def version_tuple(text: str) -> tuple[int, ...]:
    """`12.4.1` → (12, 4, 1); stops at the first part that is no number."""
    match = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
