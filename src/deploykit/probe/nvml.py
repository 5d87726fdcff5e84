"""GPUs as NVIDIA's driver describes them. Every reading is probed by itself: what is refused is None with the reason.

A Jetson's NVML starts and refuses most questions; under MIG the GPU refuses utilisation and its slices refuse clocks
and power. A refused reading is never 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from deploykit.probe.nvml_answers import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    NOT_RECORDED,
    Nvml,
    NvmlRefusal,
)
from deploykit.targets.state import GpuState, MigDevice, NvmlState

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h). Idling and clocks that somebody asked for are no throttling.
THROTTLE_BITS = {
    0x4: "SW_POWER_CAP",
    0x8: "HW_SLOWDOWN",
    0x10: "SYNC_BOOST",
    0x20: "SW_THERMAL_SLOWDOWN",
    0x40: "HW_THERMAL_SLOWDOWN",
    0x80: "HW_POWER_BRAKE_SLOWDOWN",
}
REASONS_QUESTION = "nvmlDeviceGetCurrentClocksEventReasons"
_REASONS_OF_OLD_DRIVERS = "nvmlDeviceGetCurrentClocksThrottleReasons"

SM_CLOCK = 1
_MEMORY_CLOCK = 2
GPU_SENSOR = 0
_MIB = 1 << 20
# NVML's own limit is far below: a host has 16 GPUs, a GPU 7 slices.
_MOST_DEVICES = 256
_PROFILE = re.compile(r"MIG (?P<profile>(?:[0-9]+c\.)?[0-9]+g\.[0-9]+gb(?:[+-][a-z.]+)*)", re.IGNORECASE)


def read_nvml(nvml: Nvml) -> NvmlState:
    """Ask about the driver and every GPU.

    Raises:
        NvmlRefusal: The library does not even count its devices.
    """
    system = _Asker(nvml, "")
    count = _count(nvml.ask("nvmlDeviceGetCount"))
    return NvmlState(
        driver=system.get("driver", "nvmlSystemGetDriverVersion", _text),
        cuda=system.get("cuda", "nvmlSystemGetCudaDriverVersion", _cuda_version),
        gpus=tuple(_gpu(nvml, index) for index in range(count)),
        unavailable=system.unavailable,
    )


def no_nvml(refusal: NvmlRefusal) -> NvmlState:
    """The state of a machine whose NVML does not start, in words that say what is wrong."""
    words = {
        LIBRARY_NOT_FOUND: "no NVIDIA driver: libnvidia-ml.so.1 is not there",
        DRIVER_NOT_LOADED: "the NVIDIA kernel driver is not loaded",
        NO_PERMISSION: "no permission to talk to the NVIDIA driver (/dev/nvidia*)",
    }
    return NvmlState(fault=words.get(refusal.code, str(refusal)))


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """The bits that hold clocks below what was asked."""
    return tuple(word for bit, word in THROTTLE_BITS.items() if bits & bit)


def profile_in(name: str) -> str | None:
    """`1g.10gb` of `NVIDIA A100-SXM4-80GB MIG 1g.10gb`."""
    match = _PROFILE.search(name)
    return match["profile"].lower() if match else None


class _Asker:
    """Asks one device; keeps the reasons of what was refused."""

    def __init__(self, nvml: Nvml, device: str) -> None:
        self._nvml, self._device = nvml, device
        self.unavailable: dict[str, str] = {}

    def get(self, field: str, question: str, convert: Callable[[Any], Any], *arguments: int) -> Any:
        """The converted answer, or None and a reason under the field's name."""
        try:
            return convert(self._nvml.ask(question, self._device, *arguments))
        except NvmlRefusal as refusal:
            self.unavailable[field] = str(refusal)
        except (TypeError, ValueError, KeyError, IndexError, OverflowError):
            # A snapshot can hold anything, and a driver newer than the bindings other structures.
            self.unavailable[field] = f"{question} answered in a form that is not understood"
        return None


def _gpu(nvml: Nvml, index: int) -> GpuState:
    device = f"gpu:{index}"
    asker = _Asker(nvml, device)
    get = asker.get
    mig = get("mig_enabled", "nvmlDeviceGetMigMode", _flags)
    limits = get("power_limit_min_w", "nvmlDeviceGetPowerManagementLimitConstraints", _two_watts)
    ecc = get("ecc", "nvmlDeviceGetEccMode", _flags)
    memory = get("memory_bytes", "nvmlDeviceGetMemoryInfo", lambda v: (int(v["total"]), int(v["used"])))
    return GpuState(
        index=index,
        uuid=get("uuid", "nvmlDeviceGetUUID", _text),
        name=get("name", "nvmlDeviceGetName", _text),
        pci_bus_id=get("pci_bus_id", "nvmlDeviceGetPciInfo", lambda v: _text(v["busId"])),
        compute_capability=get("compute_capability", "nvmlDeviceGetCudaComputeCapability", lambda v: f"{v[0]}.{v[1]}"),
        sm_clock_mhz=get("sm_clock_mhz", "nvmlDeviceGetClockInfo", float, SM_CLOCK),
        sm_clock_max_mhz=get("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", float, SM_CLOCK),
        sm_clock_application_mhz=get("sm_clock_application_mhz", "nvmlDeviceGetApplicationsClock", float, SM_CLOCK),
        memory_clock_mhz=get("memory_clock_mhz", "nvmlDeviceGetClockInfo", float, _MEMORY_CLOCK),
        memory_clock_max_mhz=get("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", float, _MEMORY_CLOCK),
        power_w=get("power_w", "nvmlDeviceGetPowerUsage", _watts),
        power_limit_w=get("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", _watts),
        power_limit_default_w=get("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", _watts),
        power_limit_min_w=limits[0] if limits else None,
        power_limit_max_w=limits[1] if limits else None,
        temperature_c=get("temperature_c", "nvmlDeviceGetTemperature", float, GPU_SENSOR),
        throttle_reasons=_reasons(asker),
        memory_bytes=memory[0] if memory else None,
        memory_used_bytes=memory[1] if memory else None,
        utilization=get("utilization", "nvmlDeviceGetUtilizationRates", lambda v: int(v["gpu"]) / 100),
        processes=get("processes", "nvmlDeviceGetComputeRunningProcesses", _pids),
        persistence=get("persistence", "nvmlDeviceGetPersistenceMode", bool),
        ecc=ecc[0] if ecc else None,
        mig_enabled=mig[0] if mig else None,
        mig_pending=mig[1] if mig else None,
        mig_devices=_slices(nvml, device) if mig and mig[0] else (),
        unavailable=asker.unavailable,
    )


def _reasons(asker: _Asker) -> tuple[str, ...] | None:
    """Throttle reasons; the question was renamed with driver 535."""
    reasons: tuple[str, ...] | None = asker.get("throttle_reasons", REASONS_QUESTION, throttle_reasons)
    if reasons is None:
        reasons = asker.get("throttle_reasons", _REASONS_OF_OLD_DRIVERS, throttle_reasons)
    if reasons is not None:
        asker.unavailable.pop("throttle_reasons", None)
    return reasons


def _slices(nvml: Nvml, device: str) -> tuple[MigDevice, ...]:
    try:
        most = _count(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", device))
    except NvmlRefusal:
        return ()
    found = (_slice(nvml, f"{device}/mig:{index}") for index in range(most))
    return tuple(item for item in found if item is not None)


def _slice(nvml: Nvml, device: str) -> MigDevice | None:
    """One slice; None where the place is empty. Places may be empty between others that are not."""
    try:
        uuid = nvml.ask("nvmlDeviceGetUUID", device)
    except NvmlRefusal:
        return None
    asker = _Asker(nvml, device)
    size = asker.get("memory_bytes", "nvmlDeviceGetAttributes", lambda v: int(v["memorySizeMB"]) * _MIB)
    return MigDevice(
        uuid=str(uuid),
        profile=asker.get("profile", "nvmlDeviceGetName", lambda v: profile_in(str(v))),
        gpu_instance=asker.get("gpu_instance", "nvmlDeviceGetGpuInstanceId", int),
        compute_instance=asker.get("compute_instance", "nvmlDeviceGetComputeInstanceId", int),
        sm_count=asker.get("sm_count", "nvmlDeviceGetAttributes", lambda v: int(v["multiprocessorCount"])),
        memory_bytes=size,
        memory_used_bytes=asker.get("memory_used_bytes", "nvmlDeviceGetMemoryInfo", lambda v: int(v["used"])),
        processes=asker.get("processes", "nvmlDeviceGetComputeRunningProcesses", _pids),
        unavailable=asker.unavailable,
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("no text")
    return value


def _count(value: object) -> int:
    """How many devices there are.

    Raises:
        NvmlRefusal: It is no number of devices that any machine has.
    """
    if not isinstance(value, int) or not 0 <= value <= _MOST_DEVICES:
        raise NvmlRefusal(NOT_RECORDED, f"{value!r} is no number of devices")
    return value


def _pids(processes: list[dict[str, Any]]) -> tuple[int, ...]:
    return tuple(sorted({int(process["pid"]) for process in processes}))


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _two_watts(pair: list[int]) -> tuple[float, float]:
    return _watts(pair[0]), _watts(pair[1])


def _flags(pair: list[int]) -> tuple[bool, bool]:
    return bool(pair[0]), bool(pair[1])


def _cuda_version(number: int) -> str:
    """12040 → `12.4` (nvmlSystemGetCudaDriverVersion)."""
    return f"{number // 1000}.{number % 1000 // 10}"
