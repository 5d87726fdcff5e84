"""The machine at hand as a target: `host`."""

from __future__ import annotations

import platform
from pathlib import Path

from deploykit.base.cpus import usable_cpus
from deploykit.targets.spec import Memory, Silicon, Source, TargetFile

HOST = "host"
_KIB = 1024


def host_target(root: Path = Path("/")) -> TargetFile:
    """Describe this machine's CPU and memory, as its kernel does.

    Args:
        root: Where `proc` and `sys` are looked for.
    """
    kernel = Source(citation="/proc/cpuinfo and /proc/meminfo of this machine", trust="high")
    model = cpu_model(root)
    memory_gb = memory_bytes(root) / 1e9
    return TargetFile(
        version=1,
        device=HOST,
        name=f"this machine ({model}, {usable_cpus(root)} CPUs)",
        kind="host",
        silicon=Silicon(source="kernel", architecture=platform.machine()),
        memory=Memory(source="kernel", size_gb=round(memory_gb, 1), shared=True) if memory_gb else None,
        cpu=model,
        sources={"kernel": kernel},
    )


def cpu_model(root: Path = Path("/")) -> str:
    """The CPU's name: x86 gives a model name, Arm boards often only an implementer and part."""
    fields = _cpuinfo(root)
    for key in ("model name", "Model", "Hardware", "Processor"):
        if fields.get(key):
            return fields[key]
    if "CPU part" in fields:
        return f"Arm implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return platform.machine()


def memory_bytes(root: Path = Path("/")) -> int:
    """Memory of the machine; 0 where the kernel does not say."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    words = next((line.split() for line in lines if line.startswith("MemTotal:")), [])
    return int(words[1]) * _KIB if len(words) > 1 and words[1].isdigit() else 0


def _cpuinfo(root: Path) -> dict[str, str]:
    """Fields of the first processor, and those that stand once at the end."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields.setdefault(name.strip(), value.strip())
    return fields
