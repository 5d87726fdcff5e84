"""How much CPU this process may use: a container of 2 cores on a machine of 64 has 2."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs that this process may use: its affinity, and the cgroup's quota rounded up.

    Args:
        root: Where `sys/fs/cgroup` is looked for.
    """
    affinity = len(os.sched_getaffinity(0))
    quota = cgroup_cpus(root)
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota)))


def usable_cores(root: Path = Path("/")) -> int:
    """Physical cores that this process may use: of hyper-threads on one core, one counts.

    Two threads of one core share its arithmetic units, so that dense layers run no faster on both.

    Args:
        root: Where `sys` is looked for.
    """
    cores = {_core_of(root, cpu) for cpu in os.sched_getaffinity(0)}
    return min(len(cores), usable_cpus(root))


def _core_of(root: Path, cpu: int) -> tuple[str, ...]:
    """Package and core number; the CPU's own number where the kernel does not say."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    words = (*_words(folder / "physical_package_id"), *_words(folder / "core_id"))
    return words if len(words) == 2 else (str(cpu),)


def cgroup_cpus(root: Path = Path("/")) -> float | None:
    """The cgroup's CPU quota in CPUs; None where there is none.

    cgroup v2 keeps `<quota> <period>` in `cpu.max` ("max" for no limit), v1 two files (kernel documentation,
    admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst).
    """
    folder = root / "sys/fs/cgroup"
    words = _words(folder / "cpu.max") or [
        *_words(folder / "cpu/cpu.cfs_quota_us"),
        *_words(folder / "cpu/cpu.cfs_period_us"),
    ]
    try:
        quota, period = (float(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
