"""What the CPU multiplies eight-bit integers with, which decides how the `ort-cpu` dialect writes weights.

x86 without VNNI multiplies U8 by S8 with VPMADDUBSW, which adds pairs of products in 16 bits and saturates there
(Intel 64 Software Developer's Manual, vol. 2, PMADDUBSW): 255·127 + 255·127 does not fit.
"""

from __future__ import annotations

import platform
from pathlib import Path

_EXACT = frozenset(("x86-amx", "x86-avx512-vnni", "x86-avx-vnni", "arm-i8mm", "arm-dotprod", "arm"))
"""Instruction sets that add products of U8 and S8 in 32 bits."""

_X86 = (("amx_int8", "x86-amx"), ("avx512_vnni", "x86-avx512-vnni"), ("avx_vnni", "x86-avx-vnni"),
        ("avx512bw", "x86-avx512"), ("avx2", "x86-avx2"))  # fmt: skip
"""Flag in /proc/cpuinfo → our word, best first."""

_ARM = (("i8mm", "arm-i8mm"), ("asimddp", "arm-dotprod"))

KNOWN = (*(word for _, word in _X86), "x86", *(word for _, word in _ARM), "arm")


def host_isa(root: Path = Path("/"), machine: str | None = None) -> str:
    """The instruction set of this machine.

    Args:
        root: Where `proc/cpuinfo` is looked for.
        machine: What `platform.machine` says; None: ask it.
    """
    name = (machine or platform.machine()).lower()
    flags = _flags(root / "proc/cpuinfo")
    if name in ("x86_64", "amd64", "i686"):
        return next((word for flag, word in _X86 if flag in flags), "x86")
    if name in ("aarch64", "arm64"):
        return next((word for flag, word in _ARM if flag in flags), "arm")
    return name


def saturates(isa: str | None) -> bool:
    """Whether the product of U8 and S8 may saturate; None, an artifact for any CPU, and what we do not know may."""
    return isa not in _EXACT


def _flags(path: Path) -> set[str]:
    """Flags of the first CPU: `flags` on x86, `Features` on Arm."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return set(value.split())
    return set()
