"""The host: CPU, memory, swap, temperatures, container."""

from __future__ import annotations

import math
import platform

from deploykit.base.cpus import cgroup_cpus
from deploykit.probe.jetson import cpu_clock
from deploykit.probe.tree import Tree, whole_number
from deploykit.targets.host import cpu_model
from deploykit.targets.state import CpuState, MemoryState

# Kernel's flag → the word that people know: what fast int8 and half kernels are chosen by.
_ISA = {
    "avx2": "AVX2",
    "avx512f": "AVX512",
    "avx_vnni": "AVX-VNNI",
    "avx512_vnni": "AVX512-VNNI",
    "avx512_bf16": "AVX512-BF16",
    "avx512_fp16": "AVX512-FP16",
    "amx_tile": "AMX",
    "amx_int8": "AMX-INT8",
    "amx_bf16": "AMX-BF16",
    "asimd": "NEON",
    "asimddp": "NEON dot product",
    "asimdhp": "NEON FP16",
    "i8mm": "I8MM",
    "bf16": "BF16",
    "sve": "SVE",
    "sve2": "SVE2",
}
_CGROUP_FILES = (
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us",
)
_MEMORY_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")
RAPL_ZONES = "sys/class/powercap/intel-rapl:[0-9]*"

# No silicon runs here: zones of parts that are switched off answer -256 °C (AGX Orin's CV zones).
_COLDEST_C = -100.0
_HOTTEST_C = 200.0
# cgroup v1 writes this instead of "no limit": the largest page-aligned 64-bit number.
_NO_LIMIT_BYTES = 1 << 60


def read_cpu(tree: Tree, affinity: int | None) -> CpuState:
    """Describe the CPU.

    Args:
        affinity: CPUs that this process may run on; None for a recorded machine, where nobody runs.
    """
    for file in _CGROUP_FILES:
        tree.data(file)
    info = tree.text("proc/cpuinfo") or ""
    cores = sum(1 for line in info.splitlines() if line.startswith("processor")) or None
    quota = cgroup_cpus(tree.root)
    limits = [limit for limit in (cores, affinity, math.ceil(quota) if quota else None) if limit]
    return CpuState(
        model=cpu_model(tree.root) if info else None,
        architecture=_architecture(tree, info),
        cores=cores,
        usable=min(limits) if limits else None,
        quota=quota,
        isa=isa_of(info),
        governor=tree.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clock=cpu_clock(tree, 0),
        energy_readable=bool(rapl_zones(tree)),
    )


def isa_of(cpuinfo: str) -> tuple[str, ...]:
    """The instruction sets of /proc/cpuinfo that matter to inference; x86 calls them flags, Arm features."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            flags = set(value.split())
            return tuple(word for flag, word in _ISA.items() if flag in flags)
    return ()


def rapl_zones(tree: Tree) -> list[str]:
    """Energy zones of whole CPU packages whose counters can be read (root only since Linux 5.10)."""
    return [
        zone
        for zone in tree.paths(RAPL_ZONES)
        if zone.count(":") == 1
        and (tree.text(f"{zone}/name") or "").startswith("package")
        and tree.number(f"{zone}/energy_uj") is not None
    ]


def read_memory(tree: Tree) -> MemoryState:
    """Host memory, the container's limit and what swap has done since boot."""
    sizes = _fields(tree.text("proc/meminfo"))
    moved = _fields(tree.text("proc/vmstat"))
    swap = (sizes.get("SwapTotal"), sizes.get("SwapFree"))
    return MemoryState(
        total_bytes=_kib(sizes.get("MemTotal")),
        available_bytes=_kib(sizes.get("MemAvailable")),
        limit_bytes=_memory_limit(tree),
        swap_used_bytes=_kib(swap[0] - swap[1]) if swap[0] is not None and swap[1] is not None else None,
        pages_swapped_in=moved.get("pswpin"),
        pages_swapped_out=moved.get("pswpout"),
    )


def thermal_files(tree: Tree) -> dict[str, str]:
    """Thermal zone → its file."""
    zones = tree.paths("sys/class/thermal/thermal_zone[0-9]*")
    return {tree.text(f"{zone}/type") or zone.rpartition("/")[2]: f"{zone}/temp" for zone in zones}


def read_temperatures(tree: Tree, files: dict[str, str]) -> dict[str, float]:
    """Zone → °C; what is no temperature (a part that is off) is left out."""
    readings = {zone: tree.number(file) for zone, file in files.items()}
    degrees = {zone: value / 1000 for zone, value in readings.items() if value is not None}
    return {zone: value for zone, value in degrees.items() if _COLDEST_C < value < _HOTTEST_C}


def container(tree: Tree) -> str | None:
    """How one sees that this is a container; None outside."""
    for file in (".dockerenv", "run/.containerenv"):
        if tree.data(file) is not None:
            return f"/{file} is there"
    groups = tree.text("proc/1/cgroup") or ""
    return next(
        (f"/proc/1/cgroup names {word}" for word in ("docker", "kubepods", "containerd", "lxc") if word in groups), None
    )


def _architecture(tree: Tree, cpuinfo: str) -> str | None:
    """Of the machine whose files these are; the running kernel's word only counts for the running machine."""
    if not cpuinfo:
        return None
    if "CPU implementer" in cpuinfo:
        return "aarch64"
    return "x86_64" if "vendor_id" in cpuinfo else platform.machine()


def _memory_limit(tree: Tree) -> int | None:
    limits = (tree.number(file) for file in _MEMORY_LIMITS)
    return next((limit for limit in limits if limit is not None and 0 < limit < _NO_LIMIT_BYTES), None)


def _fields(text: str | None) -> dict[str, int]:
    """`Name: 12 kB` and `name 12` lines."""
    fields: dict[str, int] = {}
    for line in (text or "").splitlines():
        words = line.replace(":", " ").split()
        number = whole_number(words[1]) if len(words) > 1 else None
        if number is not None:
            fields[words[0]] = number
    return fields


def _kib(value: int | None) -> int | None:
    return None if value is None else value * 1024
