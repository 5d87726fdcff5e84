"""A device at one operating point: the figures of a power mode or a MIG slice, derived by stated rules.

Rules:
    power mode   SMs, clock, bandwidth and INT8 peaks are the mode's own where its file states them. Peaks that it does
                 not state scale with SMs × clock, which is what a peak is (operations per SM and clock × SMs × clock).
                 The limit is the mode's budget, or the module's where the mode has none (MAXN).
    MIG slice    peaks scale with the slice's SMs (a slice is not SMs ÷ 7: NVIDIA MIG User Guide and real listings),
                 bandwidth with its memory slices, which own their share of L2 and DRAM channels. The limit stays the
                 card's: NVIDIA has none for a slice.

A figure that neither the table nor a rule gives stays None.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.targets.ref import TargetRef
from deploykit.targets.spec import MigProfile, PowerMode, TargetFile, TargetSpec

_GIB_IN_GB = 1.073741824


def at_point(file: TargetFile, ref: TargetRef) -> TargetSpec:
    """A device at the mode and profile that a reference names.

    Raises:
        UnknownNameError: The device has modes or profiles, but not this one.
        UsageError: The device has none at all.
    """
    mode_name = _mode_name(file, ref)
    if ref.profile is not None:
        return _slice(file, _profile_name(file, ref.profile))
    return _in_mode(file, mode_name) if mode_name else _whole(file)


def points_of(file: TargetFile) -> Iterator[TargetSpec]:
    """Every operating point of a device that is worth ranking.

    Of the MIG profiles, those are left out that differ from another in media engines only (`+me`), and the one that
    takes every compute slice: it is the card, with no more SMs than the card has without MIG.
    """
    if file.power_modes:
        yield from (_in_mode(file, name) for name in file.power_modes)
        return
    yield _whole(file)
    for name, profile in file.mig_profiles.items():
        if "+" not in name and profile.compute_slices < profile.compute_slices_total:
            yield _slice(file, name)


def _mode_name(file: TargetFile, ref: TargetRef) -> str | None:
    if ref.mode is None:
        return file.default_mode
    if not file.power_modes:
        raise UsageError(f"{file.device} has no power modes: leave '@{ref.mode}' out")
    if ref.mode not in file.power_modes:
        raise UnknownNameError(f"power mode of {file.device}", ref.mode, file.power_modes, _all_of(file.power_modes))
    return ref.mode


def _profile_name(file: TargetFile, name: str) -> str:
    if not file.mig_profiles:
        raise UsageError(f"{file.device} has no MIG profiles: leave ':{name}' out")
    if name not in file.mig_profiles:
        raise UnknownNameError(f"MIG profile of {file.device}", name, file.mig_profiles, _all_of(file.mig_profiles))
    return name


def _all_of(names: dict[str, PowerMode] | dict[str, MigProfile]) -> str:
    return f"it has {', '.join(names)}"


def _whole(file: TargetFile) -> TargetSpec:
    chip, memory = file.silicon, file.memory
    return TargetSpec(
        ref=file.device,
        device=file,
        sm_count=chip.sm_count,
        gpu_mhz=chip.boost_mhz,
        bandwidth_gbs=memory.bandwidth_gbs if memory else None,
        memory_gb=memory.size_gb if memory else None,
        int8_tops=chip.int8_tops,
        fp16_tflops=chip.fp16_tflops,
        fp32_tflops=chip.fp32_tflops,
        dla_int8_tops=chip.dla_int8_tops,
        power_w=file.power.tdp_w if file.power else None,
    )


def _in_mode(file: TargetFile, name: str) -> TargetSpec:
    whole, mode, chip = _whole(file), file.power_modes[name], file.silicon
    tensor_ratio = _compute_ratio(file, mode, chip.tensor_clock_mhz or chip.boost_mhz)
    return whole.model_copy(
        update={
            "ref": f"{file.device}@{name}",
            "mode_name": name,
            "sm_count": mode.sm_count,
            "gpu_mhz": mode.gpu_mhz,
            "bandwidth_gbs": mode.bandwidth_gbs,
            "int8_tops": mode.int8_tops or _scaled(whole.int8_tops, tensor_ratio),
            "fp16_tflops": _scaled(whole.fp16_tflops, tensor_ratio),
            "fp32_tflops": _scaled(whole.fp32_tflops, _compute_ratio(file, mode, chip.boost_mhz)),
            "dla_int8_tops": mode.dla_int8_tops,
            "power_w": mode.budget_w or whole.power_w,
        }
    )


def _compute_ratio(file: TargetFile, mode: PowerMode, device_mhz: float | None) -> float | None:
    """Share of the device's SMs × clock that a mode leaves; None where either is not stated."""
    if mode.sm_count is None or mode.gpu_mhz is None or file.silicon.sm_count is None or device_mhz is None:
        return None
    return mode.sm_count * mode.gpu_mhz / (file.silicon.sm_count * device_mhz)


def _slice(file: TargetFile, name: str) -> TargetSpec:
    whole, profile = _whole(file), file.mig_profiles[name]
    compute = profile.compute_slices / profile.compute_slices_total
    peaks = profile.sm_count / whole.sm_count if profile.sm_count and whole.sm_count else compute
    usable = profile.memory_gib_usable
    return whole.model_copy(
        update={
            "ref": f"{file.device}:{name}",
            "profile_name": name,
            "sm_count": profile.sm_count,
            "bandwidth_gbs": _scaled(whole.bandwidth_gbs, profile.bandwidth_fraction),
            "memory_gb": round(usable * _GIB_IN_GB, 2) if usable else profile.memory_gb,
            "int8_tops": _scaled(whole.int8_tops, peaks),
            "fp16_tflops": _scaled(whole.fp16_tflops, peaks),
            "fp32_tflops": _scaled(whole.fp32_tflops, peaks),
            "share_of_device": max(compute, profile.memory_slices / profile.memory_slices_total),
        }
    )


def _scaled(value: float | None, ratio: float | None) -> float | None:
    return None if value is None or ratio is None else round(value * ratio, 3)
