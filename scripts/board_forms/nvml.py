"""Machines with NVIDIA cards as recorded answers of the driver's library (nvml.h), in the form that a snapshot keeps.

Clocks, power limits and memory sizes are the cards' published figures (targets/tables/gpus.csv); slices and their
attributes are those of public `nvidia-smi mig -lgip` listings (targets/tables/mig_profiles.csv).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

RECORD = "deploykit/nvml.json"

NOT_SUPPORTED = {"refused": 3, "text": "Not Supported"}
_MIB = 1 << 20


@dataclass(frozen=True)
class Slice:
    """A MIG device: profile, GPU instance, SMs, memory in MiB, processes on it."""

    profile: str
    instance: int
    sm_count: int
    memory_mib: int
    processes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Card:
    """One GPU. Clocks in MHz, power in W, memory in MiB; None where the card has no such thing."""

    name: str
    uuid: str
    capability: tuple[int, int]
    sm_mhz: int
    memory_mhz: int
    limit_w: int
    limits_w: tuple[int, int]
    memory_mib: int
    now_mhz: int = 210
    power_w: float = 30.0
    ecc: bool | None = None
    mig: bool | None = None
    slices: tuple[Slice, ...] = ()
    processes: tuple[int, ...] = ()
    persistence: bool = True
    reasons: int = 1


def _uuid(digit: str, kind: str = "GPU") -> str:
    return f"{kind}-" + "-".join(digit * length for length in (8, 4, 4, 4, 12))


_A100 = Card(
    name="NVIDIA A100-SXM4-80GB",
    uuid=_uuid("a"),
    capability=(8, 0),
    sm_mhz=1410,
    memory_mhz=1593,
    limit_w=400,
    limits_w=(100, 400),
    memory_mib=81_920,
    power_w=61.0,
    ecc=True,
    mig=False,
)
_SMALL = tuple(Slice("1g.10gb", 7 + n, 14, 9_728) for n in range(7))
_MIXED = (
    Slice("3g.40gb", 2, 42, 40_192),
    Slice("2g.20gb", 3, 28, 19_968, processes=(4242,)),
    Slice("1g.10gb", 9, 14, 9_728),
)

CARDS = {
    "rtx-4090": Card(
        "NVIDIA GeForce RTX 4090", _uuid("1"), (8, 9), 3105, 10_501, 450, (150, 600), 24_564, persistence=False
    ),
    "rtx-3060": Card("NVIDIA GeForce RTX 3060", _uuid("2"), (8, 6), 2100, 7501, 170, (100, 212), 12_288),
    "a100-80gb": _A100,
    "a100-80gb-7x1g": Card(**{**vars(_A100), "mig": True, "slices": _SMALL}),
    "a100-80gb-mixed": Card(**{**vars(_A100), "mig": True, "slices": _MIXED}),
    "h100": Card(
        "NVIDIA H100 80GB HBM3",
        _uuid("b"),
        (9, 0),
        1980,
        2619,
        700,
        (200, 700),
        81_559,
        ecc=True,
        mig=False,
        power_w=70.0,
    ),
    "t4": Card("Tesla T4", _uuid("3"), (7, 5), 1590, 5001, 70, (60, 70), 15_360, ecc=True, power_w=9.5),
}

FAULTS = {
    "no-driver": {"refused": 12, "text": "NVML Shared Library Not Found"},
    "driver-no-permission": {"refused": 4, "text": "Insufficient Permissions"},
}


def host_files(record: dict[str, Any]) -> dict[str, bytes]:
    """The files of an x86 host with the recorded answers."""
    texts = {
        "proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7763 64-Core Processor\n"
        "flags\t\t: fpu sse2 avx2\n\nprocessor\t: 1\nvendor_id\t: AuthenticAMD\n\n",
        "proc/meminfo": "MemTotal: 65000000 kB\nMemAvailable: 60000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/vmstat": "pswpin 0\npswpout 0\n",
        RECORD: json.dumps(record, indent=1, sort_keys=True),
    }
    return {path: text.encode("utf-8") for path, text in texts.items()}


def fault_record(fault: dict[str, Any]) -> dict[str, Any]:
    """What a library that does not start leaves."""
    return {"nvmlDeviceGetCount": fault}


def card_record(card: Card, driver: str = "550.54.15", cuda: int = 12040) -> dict[str, Any]:
    """Every question that the probe asks, with the card's answer or the library's refusal."""
    answers = {
        "nvmlDeviceGetCount": 1,
        "nvmlSystemGetDriverVersion": driver,
        "nvmlSystemGetCudaDriverVersion": cuda,
        **{_key(question, "gpu:0"): answer for question, answer in _card_answers(card).items()},
    }
    for number, item in enumerate(card.slices):
        answers |= {_key(q, f"gpu:0/mig:{number}"): a for q, a in _slice_answers(card, number, item).items()}
    for number in range(len(card.slices), 7 if card.mig else 0):
        answers[f"nvmlDeviceGetUUID gpu:0/mig:{number}"] = {"refused": 6, "text": "Not Found"}
    return {key: answer if _is_refusal(answer) else {"answer": answer} for key, answer in answers.items()}


def _key(question: str, device: str) -> str:
    """`nvmlDeviceGetClockInfo 1` of a device → `nvmlDeviceGetClockInfo gpu:0 1`."""
    name, *arguments = question.split()
    return " ".join([name, device, *arguments])


def _is_refusal(answer: Any) -> bool:
    return isinstance(answer, dict) and "refused" in answer


def _card_answers(card: Card) -> dict[str, Any]:
    return {
        "nvmlDeviceGetName": card.name,
        "nvmlDeviceGetUUID": card.uuid,
        "nvmlDeviceGetPciInfo": {"busId": "00000000:0F:00.0"},
        "nvmlDeviceGetCudaComputeCapability": list(card.capability),
        "nvmlDeviceGetClockInfo 1": card.now_mhz,
        "nvmlDeviceGetClockInfo 2": card.memory_mhz,
        "nvmlDeviceGetMaxClockInfo 1": card.sm_mhz,
        "nvmlDeviceGetMaxClockInfo 2": card.memory_mhz,
        # GeForce cards have no application clocks.
        "nvmlDeviceGetApplicationsClock 1": NOT_SUPPORTED if card.ecc is None else card.sm_mhz,
        "nvmlDeviceGetPowerUsage": round(card.power_w * 1000),
        "nvmlDeviceGetTotalEnergyConsumption": 123_456_789,
        "nvmlDeviceGetEnforcedPowerLimit": card.limit_w * 1000,
        "nvmlDeviceGetPowerManagementDefaultLimit": card.limit_w * 1000,
        "nvmlDeviceGetPowerManagementLimitConstraints": [limit * 1000 for limit in card.limits_w],
        "nvmlDeviceGetTemperature 0": 34,
        "nvmlDeviceGetCurrentClocksEventReasons": card.reasons,
        "nvmlDeviceGetMemoryInfo": _memory(card.memory_mib, 1 << 30),
        # Under MIG the GPU itself tells neither its utilisation nor its processes.
        "nvmlDeviceGetUtilizationRates": NOT_SUPPORTED if card.mig else {"gpu": 0, "memory": 0},
        "nvmlDeviceGetComputeRunningProcesses": [] if card.mig else [_process(pid) for pid in card.processes],
        "nvmlDeviceGetPersistenceMode": int(card.persistence),
        "nvmlDeviceGetEccMode": NOT_SUPPORTED if card.ecc is None else [int(card.ecc), int(card.ecc)],
        "nvmlDeviceGetMigMode": NOT_SUPPORTED if card.mig is None else [int(card.mig), int(card.mig)],
        "nvmlDeviceGetMaxMigDeviceCount": 0 if card.mig is None else 7,
    }


def _slice_answers(card: Card, number: int, item: Slice) -> dict[str, Any]:
    return {
        "nvmlDeviceGetName": f"{card.name} MIG {item.profile}",
        "nvmlDeviceGetUUID": _uuid(str(number + 1), "MIG"),
        "nvmlDeviceGetGpuInstanceId": item.instance,
        "nvmlDeviceGetComputeInstanceId": 0,
        "nvmlDeviceGetAttributes": {
            "multiprocessorCount": item.sm_count,
            "sharedCopyEngineCount": 1,
            "sharedDecoderCount": 0,
            "sharedEncoderCount": 0,
            "sharedJpegCount": 0,
            "sharedOfaCount": 0,
            "gpuInstanceSliceCount": int(item.profile[0]),
            "computeInstanceSliceCount": int(item.profile[0]),
            "memorySizeMB": item.memory_mib,
        },
        "nvmlDeviceGetMemoryInfo": _memory(item.memory_mib, 12 * _MIB),
        "nvmlDeviceGetComputeRunningProcesses": [_process(pid) for pid in item.processes],
    }


def _memory(mib: int, used: int) -> dict[str, int]:
    return {"total": mib * _MIB, "free": mib * _MIB - used, "used": used}


def _process(pid: int) -> dict[str, int]:
    return {"pid": pid, "usedGpuMemory": 512 * _MIB, "gpuInstanceId": 0xFFFFFFFF, "computeInstanceId": 0xFFFFFFFF}
