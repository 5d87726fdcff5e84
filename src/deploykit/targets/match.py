"""Does this device equal this target, and where not. Pure: a state and a specification in, differences out.

On a Jetson three things are compared: the mode that the board says it is in with the mode that the target names; what
the kernel holds with what the board's own nvpmodel.conf sets in that mode (a mode can be saved and not in force: TPC
masks wait for a reboot, caps are changed by hand); and the board's file with the catalogue's figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from deploykit.targets.spec import PowerMode, TargetSpec
from deploykit.targets.state import DeviceState, GpuState, JetsonState, MigDevice, NvpMode

Weight = Literal["wrong", "note"]

# nvpmodel's ways of writing "no cap": -1; 0 for the EMC of JetPack 5; 2147483647 as `nvpmodel -p --verbose` prints -1.
_NO_CAP = {"-1", "2147483647"}

# Without a frequency table nobody knows what the kernel rounded a cap to; neighbouring steps lie within this.
_ROUNDING = 0.03
_SAME = 0.002
# Releases of one mode differ by up to 3 % (AGX Orin's first release: 624.75 instead of 612 MHz in 30 W).
_RELEASES_DIFFER = 0.05


@dataclass(frozen=True)
class Difference:
    """One thing in which the device is not what the target names.

    Attributes:
        what: `power mode`, `GPU clock cap`, ...
        wanted: As the target has it, with unit.
        found: As the device has it, with unit.
        weight: `wrong`: a measurement would be of something else. `note`: worth knowing and recording.
        mend: Command or step that mends it.
    """

    what: str
    wanted: str
    found: str
    weight: Weight = "wrong"
    mend: str | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.found} instead of {self.wanted}"


def match(
    state: DeviceState,
    spec: TargetSpec,
    slug: str | None,
    gpu: GpuState | None = None,
    mig_device: MigDevice | None = None,
) -> list[Difference]:
    """Every difference between the machine and the target, wrong ones first.

    Args:
        slug: The catalogue's device that the board or card is (`identity`); None where it is not in the catalogue.
        gpu: The GPU that CUDA would use; for cards only.
        mig_device: The slice that CUDA would use.
    """
    if spec.device.kind == "host":
        return []
    if spec.device.kind == "jetson":
        found = list(_match_board(state, spec, slug))
    else:
        found = list(_match_card(state, spec, slug, gpu, mig_device))
    return sorted(found, key=lambda difference: difference.weight != "wrong")


def wrong(differences: list[Difference]) -> list[Difference]:
    """Those that make a measurement one of something else."""
    return [difference for difference in differences if difference.weight == "wrong"]


def mends(differences: list[Difference]) -> list[str]:
    """What to do about them, each step once; a reboot comes last."""
    steps = dict.fromkeys(difference.mend for difference in differences if difference.mend)
    return sorted(steps, key=lambda step: "reboot" in step)


def mode_of(board: JetsonState, mode: PowerMode) -> NvpMode | None:
    """The board's own mode of the name that a target's mode has: IDs differ between modules and releases."""
    return next((own for own in board.modes if own.name == mode.nvpmodel_name), None)


def cap_mhz(key: str, text: str) -> float | None:
    """A cap of nvpmodel.conf in MHz; None for no cap, or for a text that is no number.

    Args:
        key: `<PARAM> <ARG>`: CPU clocks are in kHz, all others in Hz.
    """
    if text in _NO_CAP or (text == "0" and key.startswith("EMC")) or not re.fullmatch("[0-9]{1,18}", text):
        return None
    return int(text) / (1e3 if key.startswith("CPU") else 1e6)


def sms_on(mask: str, tpc_total: int | None) -> int | None:
    """SMs that a power gating mask leaves on; None where the mask is no number or the chip's TPCs are not known."""
    if tpc_total is None or not re.fullmatch("[0-9]{1,18}", mask):
        return None
    off = bin(int(mask) & ((1 << tpc_total) - 1)).count("1")
    return 2 * (tpc_total - off)


def needs_reboot(board: JetsonState, mode: NvpMode) -> bool:
    """Whether switching to the mode changes a power gating mask, which takes effect at the next boot."""
    return any(key in board.live and board.live[key] != value for key, value in mode.settings.items() if _is_mask(key))


# --- Jetson


def _match_board(state: DeviceState, spec: TargetSpec, slug: str | None) -> Iterator[Difference]:
    board = state.jetson
    if board is None:
        yield Difference("device", spec.device.name, _what_is_here(state))
        return
    if slug != spec.device.device:
        yield Difference("device", spec.device.name, _board_name(board, slug))
        return
    if spec.mode is None:
        return
    own = mode_of(board, spec.mode)
    if own is None:
        yield _no_such_mode(board, spec.mode)
        return
    yield from _match_mode(board, own)
    yield from _match_live(board, own, spec.mode)
    yield from _match_catalogue(board, own, spec.mode)
    if board.clocks_locked is False:
        yield Difference("clocks", "locked", "governed by load", "note", "sudo jetson_clocks")


def _what_is_here(state: DeviceState) -> str:
    if state.jetson is not None:
        return _board_name(state.jetson, None)
    names = [gpu.name or f"GPU {gpu.index}" for gpu in state.nvml.gpus]
    return ", ".join(names) or f"a CPU only ({state.nvml.fault or 'the NVIDIA driver counts no GPU'})"


def _board_name(board: JetsonState, slug: str | None) -> str:
    name = slug or " ".join(filter(None, (board.model, board.variant))) or "a Jetson"
    return f"{name} (module {board.board_id or 'unknown'})"


def _no_such_mode(board: JetsonState, mode: PowerMode) -> Difference:
    if board.conf_fault:
        mend = "in a container, mount /etc/nvpmodel.conf and /var/lib/nvpmodel read-only"
        return Difference("power mode", mode.nvpmodel_name, f"unknown, since {board.conf_fault}", mend=mend)
    names = ", ".join(own.name for own in board.modes)
    return Difference("power mode", mode.nvpmodel_name, f"a board whose file has only {names}")


def _match_mode(board: JetsonState, own: NvpMode) -> Iterator[Difference]:
    mend = f"sudo nvpmodel -m {own.id}"
    if board.mode_id is None:
        said = (
            "unreadable" if board.saved_mode_id is None else f"id {board.saved_mode_id}, which its file does not have"
        )
        yield Difference("power mode", f"{own.name} (id {own.id})", f"a saved mode that is {said}", mend=mend)
    elif board.mode_id != own.id:
        found = f"{board.mode.name} (id {board.mode.id})" if board.mode else f"id {board.mode_id}"
        yield Difference("power mode", f"{own.name} (id {own.id})", found, mend=mend)


def _match_live(board: JetsonState, own: NvpMode, mode: PowerMode) -> Iterator[Difference]:
    """What the kernel holds against what the board's own file sets."""
    again = f"sudo nvpmodel -m {own.id}"
    yield from _match_cpus(board, own, again)
    for key, value in own.settings.items():
        live = board.live.get(key)
        if live is None:
            continue
        if _is_mask(key) and live != value:
            yield _mask_difference(key, value, live, board)
        elif key.endswith(" MAX_FREQ") and not _is_foreign_cap(key):
            yield from _match_cap(key, value, live, board, mode, again)
    if unread := _unread(board, own):
        yield Difference("settings", f"those of {own.name}", f"not readable here: {', '.join(unread)}", "note")


def _match_cpus(board: JetsonState, own: NvpMode, again: str) -> Iterator[Difference]:
    wanted = {
        key.rpartition("_")[2]: value for key, value in own.settings.items() if key.startswith("CPU_ONLINE CORE_")
    }
    astray = [
        cpu for cpu in board.cpus if str(cpu) in wanted and (cpu in board.cpus_online) != (wanted[str(cpu)] == "1")
    ]
    if astray:
        should = len(board.cpus_online) + sum(1 if cpu not in board.cpus_online else -1 for cpu in astray)
        names = ", ".join(f"cpu{cpu}" for cpu in astray)
        yield Difference("online CPUs", str(should), f"{len(board.cpus_online)}, {names} astray", mend=again)


def _mask_difference(key: str, wanted: str, live: str, board: JetsonState) -> Difference:
    mend = "power gating takes effect at boot: then reboot and check again"
    if key != "TPC_POWER_GATING TPC_PG_MASK":
        return Difference(key, wanted, live, mend=mend)
    return Difference("TPCs", _tpcs(wanted, board.tpc_total), _tpcs(live, board.tpc_total), mend=mend)


def _tpcs(mask: str, total: int | None) -> str:
    sms = sms_on(mask, total)
    return f"mask {mask}" if sms is None else f"{sms // 2} TPCs on ({sms} SMs, mask {mask})"


def _match_cap(
    key: str, wanted: str, live: str, board: JetsonState, mode: PowerMode, again: str
) -> Iterator[Difference]:
    what = _clock_name(key)
    steps, ceiling = _range(key, board, mode)
    cap, found = cap_mhz(key, wanted), cap_mhz(key, live)
    if cap is None and found is not None and ceiling is not None and found < ceiling * (1 - _ROUNDING):
        yield Difference(what, f"no cap ({ceiling:g} MHz)", f"{found:g} MHz", mend=again)
    elif cap is not None and not _is_cap(found, cap, steps, ceiling):
        yield Difference(what, f"{cap:g} MHz", "no cap" if found is None else f"{found:g} MHz", mend=again)


def _is_cap(found: float | None, cap: float, steps: tuple[float, ...], ceiling: float | None) -> bool:
    """Whether the kernel's cap is the wanted one, or the step that it rounded it to."""
    if found is None:
        # "No cap" is one at the ceiling in other words.
        return ceiling is not None and cap >= ceiling * (1 - _SAME)
    if abs(found - cap) <= _SAME * cap:
        return True
    if not steps:
        return abs(found - cap) <= _ROUNDING * cap
    below = max((step for step in steps if step <= cap), default=steps[0])
    above = min((step for step in steps if step >= cap), default=steps[-1])
    return any(abs(found - step) <= _SAME * step for step in (below, above))


def _match_catalogue(board: JetsonState, own: NvpMode, mode: PowerMode) -> Iterator[Difference]:
    """The board's own file against the catalogue: releases of Jetson Linux differ."""
    if mode.l4t and board.l4t and mode.l4t.split(".")[0] != board.l4t.split(".")[0]:
        where = f"Jetson Linux {board.l4t}" + (f" (JetPack {board.jetpack})" if board.jetpack else "")
        yield Difference("Jetson Linux", f"{mode.l4t}, which the target's figures come from", where, "note")
    for key, value in own.settings.items():
        listed = _listed(key, mode)
        if listed is None:
            continue
        cap = cap_mhz(key, value)
        if cap is None or abs(cap - listed) <= _SAME * listed:
            continue
        weight: Weight = "note" if abs(cap - listed) <= _RELEASES_DIFFER * listed else "wrong"
        found = f"{cap:g} MHz in this board's nvpmodel.conf"
        yield Difference(_clock_name(key), f"{listed:g} MHz as in the catalogue", found, weight)


def _listed(key: str, mode: PowerMode) -> float | None:
    """The catalogue's cap of the GPU and EMC; CPU clusters and DLA cores may differ among themselves."""
    field = {"GPU MAX_FREQ": "gpu_mhz", "EMC MAX_FREQ": "emc_mhz"}.get(key)
    if field is None or field in mode.uncapped:
        return None
    value: float | None = getattr(mode, field)
    return value


def _unread(board: JetsonState, own: NvpMode) -> list[str]:
    """Caps and masks that the mode sets and nobody can read here; CPUs that are off show no clock."""
    keys = [key for key in own.settings if key.endswith(" MAX_FREQ") or _is_mask(key)]
    return [key for key in keys if key not in board.live and not key.startswith("CPU_") and not _is_foreign_cap(key)]


def _is_mask(key: str) -> bool:
    return key.endswith("_PG_MASK")


def _is_foreign_cap(key: str) -> bool:
    """Clocks of engines that inference does not use: video, vision, JPEG; their caps decide nothing here."""
    return not key.startswith(("CPU_", "GPU ", "EMC ", "DLA"))


def _clock_name(key: str) -> str:
    name = key.split()[0]
    return f"CPU clock cap ({name})" if name.startswith("CPU") else f"{name.replace('_', ' ')} clock cap"


def _range(key: str, board: JetsonState, mode: PowerMode) -> tuple[tuple[float, ...], float | None]:
    """Frequency table and ceiling of what a cap is on."""
    if key.startswith("CPU_"):
        return board.cpu.steps_mhz, board.cpu.ceiling_mhz
    if key.startswith("GPU "):
        return board.gpu.steps_mhz, board.gpu.ceiling_mhz or (mode.gpu_mhz if "gpu_mhz" in mode.uncapped else None)
    if key.startswith("EMC "):
        return (), mode.emc_mhz if "emc_mhz" in mode.uncapped else None
    return (), None


# --- cards


def _match_card(
    state: DeviceState, spec: TargetSpec, slug: str | None, gpu: GpuState | None, mig_device: MigDevice | None
) -> Iterator[Difference]:
    if gpu is None:
        yield Difference("device", spec.device.name, _what_is_here(state))
        return
    if slug != spec.device.device:
        yield Difference("device", spec.device.name, f"{gpu.name} ({slug or 'not in the catalogue'})")
        return
    if spec.profile_name is None:
        yield from _match_whole(gpu)
    else:
        yield from _match_slice(gpu, spec.profile_name, mig_device)
    yield from _match_power(gpu, spec)
    if gpu.persistence is False:
        mend = f"sudo nvidia-smi -i {gpu.uuid} -pm 1"
        yield Difference("persistence mode", "on", "off: the driver unloads between runs", "note", mend)


def _match_whole(gpu: GpuState) -> Iterator[Difference]:
    if gpu.mig_enabled:
        mend = f"name a slice, or end MIG: sudo nvidia-smi -i {gpu.uuid} -mig 0 (resets the GPU)"
        yield Difference("MIG", "off: the whole card", "on", mend=mend)


def _match_slice(gpu: GpuState, profile: str, mig_device: MigDevice | None) -> Iterator[Difference]:
    if not gpu.mig_enabled:
        mend = f"sudo nvidia-smi -i {gpu.uuid} -mig 1 (resets the GPU)"
        found = (
            "off" if gpu.mig_enabled is False else f"not available ({gpu.unavailable.get('mig_enabled', 'unknown')})"
        )
        yield Difference("MIG", f"on, with a {profile} slice", found, mend=mend)
    elif not slices_of(gpu, profile):
        here = ", ".join(item.profile or "?" for item in gpu.mig_devices) or "none"
        mend = f"sudo nvidia-smi mig -i {gpu.index} -cgi {profile} -C"
        yield Difference("MIG profile", profile, f"slices of {here}", mend=mend)
    elif mig_device is not None and mig_device not in slices_of(gpu, profile):
        mend = f"set CUDA_VISIBLE_DEVICES={slices_of(gpu, profile)[0].uuid}"
        yield Difference("MIG profile", profile, f"{mig_device.profile}, which CUDA_VISIBLE_DEVICES names", mend=mend)


def slices_of(gpu: GpuState, profile: str) -> tuple[MigDevice, ...]:
    """The slices of a profile; one with media extensions (`1g.10gb+me`) computes the same."""
    return tuple(
        item for item in gpu.mig_devices if item.profile and item.profile.split("+")[0] == profile.split("+")[0]
    )


def _match_power(gpu: GpuState, spec: TargetSpec) -> Iterator[Difference]:
    """A card held below its own default limit is slower than its figures; makers' defaults differ from ours."""
    limit, default = gpu.power_limit_w, gpu.power_limit_default_w
    if limit is None or default is None:
        return
    if limit < default * (1 - _ROUNDING):
        mend = f"sudo nvidia-smi -i {gpu.uuid} -pl {default:g}"
        yield Difference("power limit", f"{default:g} W", f"{limit:g} W", mend=mend)
    listed = spec.device.power.tdp_w if spec.device.power else None
    if listed is not None and abs(default - listed) > _ROUNDING * listed:
        yield Difference("default power limit", f"{listed:g} W as in the catalogue", f"{default:g} W", "note")
