"""What makes a measurement comparable: the machine, the versions, and what else ran. Plain values for the record."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from deploykit import __version__
from deploykit.probe.mig import Chosen
from deploykit.targets.state import DeviceState

_PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "tensorrt", "mlcommons_loadgen")
_GB = 1e9


def device_record(state: DeviceState, chosen: Chosen | None) -> dict[str, Any]:
    """The machine, as far as it tells; what it does not tell is left out.

    Args:
        state: What it says of itself.
        chosen: The GPU or slice that runs; None on the host's CPU and on a Jetson.
    """
    memory = state.memory.total_bytes
    found: dict[str, Any] = {
        "cpu": state.cpu.model,
        "machine": state.cpu.architecture,
        "cpus": state.cpu.usable,
        "cgroup_cpus": state.cpu.quota,
        "isa": list(state.cpu.isa),
        "governor": state.cpu.governor,
        "memory_gb": round(memory / _GB, 1) if memory else None,
        "kernel": platform.release(),
        "container": state.container,
        **_jetson_record(state),
        **_gpu_record(state, chosen),
    }
    return {name: value for name, value in found.items() if value not in (None, [])}


def _jetson_record(state: DeviceState) -> dict[str, Any]:
    board = state.jetson
    if board is None:
        return {}
    return {
        "board": board.model,
        "board_id": board.board_id,
        "l4t": board.l4t,
        "jetpack": board.jetpack,
        "power_mode": board.mode.name if board.mode else None,
        "clocks_locked": board.clocks_locked,
    }


def _gpu_record(state: DeviceState, chosen: Chosen | None) -> dict[str, Any]:
    if chosen is None:
        return {}
    return {
        "gpu": chosen.gpu.name,
        "driver": state.nvml.driver,
        "compute_capability": chosen.gpu.compute_capability,
        "power_limit_w": chosen.gpu.power_limit_w,
        "ecc": chosen.gpu.ecc,
        "mig_profile": chosen.slice.profile if chosen.slice else None,
    }


def versions() -> dict[str, str]:
    """Releases of everything that takes part."""
    found = {"deploykit": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


@dataclass(frozen=True)
class Moment:
    """The host's counters at one moment.

    Attributes:
        t_s: Monotonic clock.
        load_average: Processes that wanted to run over the last minute.
        own_cpu_s: CPU time of this process so far.
        busy_cpu_s: CPU time of everything on this machine so far, idle and waiting for disks left out; None where the
            kernel does not tell.
        throttled_s: Time for which the container's CPU quota held this process back so far.
        pages_swapped: Pages swapped in or out since boot.
    """

    t_s: float
    load_average: float
    own_cpu_s: float
    busy_cpu_s: float | None
    throttled_s: float | None
    pages_swapped: int | None


def moment(root: Path = Path("/")) -> Moment:
    """Read the counters: a handful of files, before and after a run and never in it.

    Args:
        root: Where `proc` and `sys` are looked for.
    """
    ticks = _fields(root / "proc/stat").get("cpu", [])
    # user nice system irq softirq steal: proc_stat(5); guest time is in user already.
    busy = sum(int(ticks[i]) for i in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK") if len(ticks) > 7 else None
    throttled = _fields(root / "sys/fs/cgroup/cpu.stat").get("throttled_usec")
    swap = _fields(root / "proc/vmstat")
    swapped = [int(swap[name][0]) for name in ("pswpin", "pswpout") if name in swap]
    return Moment(
        t_s=time.perf_counter(),
        load_average=os.getloadavg()[0],
        own_cpu_s=time.process_time(),
        busy_cpu_s=busy,
        throttled_s=int(throttled[0]) / 1e6 if throttled else None,
        pages_swapped=sum(swapped) if swapped else None,
    )


def _fields(path: Path) -> dict[str, list[str]]:
    """First word of each line → the others."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {words[0]: words[1:] for line in lines if (words := line.split())}
