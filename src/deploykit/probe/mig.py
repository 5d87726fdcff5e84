"""Which GPU or slice CUDA will use, by the rules of CUDA_VISIBLE_DEVICES. Pure: a value and the GPUs in, a choice out.

Rules, from the CUDA C++ Programming Guide (environment variables) and NVIDIA's MIG User Guide:
    unset          every GPU; the first counts
    ordinal        the n-th GPU; a GPU in MIG mode stands for its first slice
    GPU-<uuid>     that GPU; the beginning of a UUID is enough where only one GPU has it
    MIG-<uuid>     that slice; before driver R470 MIG-GPU-<gpu uuid>/<gpu instance>/<compute instance>
    a list         the first entry counts here; an unknown entry ends the list; a process sees one slice only
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deploykit.base.errors import DeviceAbsent
from deploykit.targets.match import slices_of
from deploykit.targets.state import GpuState, MigDevice

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True)
class Chosen:
    """What CUDA will run on.

    Attributes:
        slice: The MIG device; None for a whole GPU.
        warnings: What the user may not have meant.
    """

    gpu: GpuState
    slice: MigDevice | None = None
    warnings: tuple[str, ...] = ()

    @property
    def uuid(self) -> str | None:
        """The value of CUDA_VISIBLE_DEVICES that means exactly this, wherever CUDA counts from."""
        return self.slice.uuid if self.slice else self.gpu.uuid


def choose(visible: str | None, gpus: Sequence[GpuState], order: str | None = None) -> Chosen:
    """What CUDA uses under a value of CUDA_VISIBLE_DEVICES.

    Args:
        visible: The variable's value; None where it is not set.
        order: The value of CUDA_DEVICE_ORDER.

    Raises:
        DeviceAbsent: Nothing, or nothing that exists.
    """
    entries = ["0"] if visible is None else [entry.strip() for entry in visible.split(",")]
    if len(set(entries)) < len(entries):
        raise DeviceAbsent(f"{VISIBLE_VARIABLE}={visible!r} names a device twice: CUDA then shows none; name each once")
    first = entries[0]
    if re.fullmatch(r"[0-9]{1,4}", first):
        chosen = _by_ordinal(int(first), gpus, visible)
    elif first.startswith("MIG-"):
        chosen = _by_slice(first, gpus)
    elif first.startswith("GPU-"):
        chosen = _by_uuid(first, gpus)
    else:
        raise _no_device(visible, gpus)
    return Chosen(chosen.gpu, chosen.slice, tuple(_warnings(chosen, entries, gpus, order)))


def choose_profile(profile: str, gpus: Sequence[GpuState], visible: str | None) -> Chosen:
    """A slice of a profile: the one that CUDA_VISIBLE_DEVICES names where it is of that profile, else an idle one.

    Raises:
        DeviceAbsent: No GPU has such a slice; says which slices there are.
    """
    if visible is not None:
        chosen = choose(visible, gpus)
        if chosen.slice is not None and chosen.slice in slices_of(chosen.gpu, profile):
            return chosen
    found = [(gpu, item) for gpu in gpus for item in slices_of(gpu, profile)]
    if not found:
        raise DeviceAbsent(f"no GPU here has a {profile} slice; there {_what_there_is(gpus)}")
    gpu, idle = min(found, key=lambda pair: len(pair[1].processes or ()))
    return Chosen(gpu, idle)


def neighbours(chosen: Chosen) -> list[tuple[MigDevice, bool | None]]:
    """The other slices of the same GPU, and whether each is busy; None where its processes are not told.

    Memory bandwidth and compute of a slice are its own; power and clocks are the whole card's.
    """
    others = [item for item in chosen.gpu.mig_devices if item != chosen.slice]
    return [(item, None if item.processes is None else bool(item.processes)) for item in others]


def _by_ordinal(number: int, gpus: Sequence[GpuState], visible: str | None) -> Chosen:
    if number >= len(gpus):
        raise _no_device(visible, gpus)
    return _whole_or_first_slice(gpus[number])


def _by_uuid(start: str, gpus: Sequence[GpuState]) -> Chosen:
    fitting = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.startswith(start)]
    if len(fitting) != 1:
        what = "no GPU" if not fitting else "more than one GPU"
        raise DeviceAbsent(f"{VISIBLE_VARIABLE}={start!r} fits {what}; there {_what_there_is(gpus)}")
    return _whole_or_first_slice(fitting[0])


def _by_slice(name: str, gpus: Sequence[GpuState]) -> Chosen:
    fitting = [Chosen(gpu, item) for gpu in gpus for item in gpu.mig_devices if _is_called(item, gpu, name)]
    if len(fitting) != 1:
        raise DeviceAbsent(f"{VISIBLE_VARIABLE}={name!r}: no such slice; there {_what_there_is(gpus)}")
    return fitting[0]


def _is_called(item: MigDevice, gpu: GpuState, name: str) -> bool:
    old_form = f"MIG-{gpu.uuid}/{item.gpu_instance}/{item.compute_instance}"
    return name in (item.uuid, old_form)


def _whole_or_first_slice(gpu: GpuState) -> Chosen:
    if not gpu.mig_enabled:
        return Chosen(gpu)
    if not gpu.mig_devices:
        raise DeviceAbsent(
            f"GPU {gpu.index} ({gpu.name}) is in MIG mode and has no slices, so CUDA sees no device; "
            f"create one: sudo nvidia-smi mig -i {gpu.index} -cgi <profile> -C"
        )
    return Chosen(gpu, gpu.mig_devices[0])


def _warnings(chosen: Chosen, entries: list[str], gpus: Sequence[GpuState], order: str | None) -> list[str]:
    warnings = []
    if chosen.slice is not None and len(entries) > 1:
        warnings.append("CUDA uses one slice a process: only the first of the list")
    different = len({gpu.name for gpu in gpus}) > 1
    if entries[0].isdecimal() and different and order != "PCI_BUS_ID":
        warnings.append(
            f"CUDA numbers unlike GPUs fastest first and the driver by PCI bus: name the GPU by UUID, or set "
            f"{ORDER_VARIABLE}=PCI_BUS_ID"
        )
    return warnings


def _no_device(visible: str | None, gpus: Sequence[GpuState]) -> DeviceAbsent:
    value = "not set" if visible is None else f"{visible!r}"
    return DeviceAbsent(f"no device: {VISIBLE_VARIABLE} is {value}; there {_what_there_is(gpus)}")


def _what_there_is(gpus: Sequence[GpuState]) -> str:
    if not gpus:
        return "is no GPU"
    return "are " + "; ".join(_described(gpu) for gpu in gpus)


def _described(gpu: GpuState) -> str:
    slices = ", ".join(f"{item.profile} {item.uuid}" for item in gpu.mig_devices)
    return f"GPU {gpu.index} {gpu.name} {gpu.uuid}" + (f" with {slices}" if slices else "")
