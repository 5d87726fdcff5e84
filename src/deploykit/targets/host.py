"""The machine at hand as a target: `host`."""

from __future__ import annotations

import platform
from pathlib import Path

from deploykit.base.cpus import usable_cpus
from deploykit.targets.spec import Memory, Silicon, Source, TargetFile

HOST = "host"
_KIB = 1024


def host_target(root: Path = Path("/")) -> TargetFile:
    """Describe this machine's CPU and memory, as its kernel does and as far as this process may use them.

    Args:
        root: Where `proc` and `sys` are looked for.
    """
    kernel = Source(citation="/proc and /sys/fs/cgroup of this machine", trust="high")
    model = cpu_model(root)
    cpus = usable_cpus(root)
    memory = memory_bytes(root)
    return TargetFile(
        version=1,
        device=HOST,
        name=f"this machine ({model}, {cpus} CPU{'s' if cpus > 1 else ''})",
        kind="host",
        silicon=Silicon(source="kernel", architecture=platform.machine()),
        memory=Memory(source="kernel", size_gb=round(memory / 1e9, 1), shared=True) if memory else None,
        cpu=model,
        cpu_count=cpus,
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


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Memory that this process may use: the machine's, or the cgroup's limit where that is lower.

    cgroup v2 keeps the limit in `memory.max` ("max" for none), v1 in `memory/memory.limit_in_bytes` (a number beyond
    any machine for none; kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
    """
    words = next((line.split() for line in _lines(root / "proc/meminfo") if line.startswith("MemTotal:")), [])
    machine = [int(words[1]) * _KIB] if len(words) > 1 and words[1].isdigit() else []
    folder = root / "sys/fs/cgroup"
    limits = [*_lines(folder / "memory.max"), *_lines(folder / "memory/memory.limit_in_bytes")]
    return min([*machine, *(int(limit) for limit in limits if limit.isdigit())], default=None)


def _cpuinfo(root: Path) -> dict[str, str]:
    """Fields of the first processor, and those that stand once at the end."""
    fields: dict[str, str] = {}
    for line in _lines(root / "proc/cpuinfo"):
        name, separator, value = line.partition(":")
        if separator:
            fields.setdefault(name.strip(), value.strip())
    return fields


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
