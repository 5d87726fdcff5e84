"""What to run so that a machine becomes what a target names, and what puts it back. Pure: nothing is run here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploykit.base.errors import DeviceMismatch, UsageError
from deploykit.probe.check import Check
from deploykit.targets.match import Difference, mode_of, needs_reboot, slices_of, wrong
from deploykit.targets.state import DeviceState, GpuState, JetsonState, NvpMode


@dataclass(frozen=True)
class Command:
    """One command as a list of words: no shell reads it.

    Attributes:
        why: What it does, for the reader.
    """

    words: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Plan:
    """How to get there and back.

    Attributes:
        commands: In order; empty where the machine is there already.
        restore: In order, to be run however the work in between ends.
        reboot: Whether something takes effect only at the next boot. Nothing here reboots.
        notes: What the plan does not do, and why.
    """

    commands: tuple[Command, ...]
    restore: tuple[Command, ...] = ()
    reboot: bool = False
    notes: tuple[str, ...] = ()


def plan(
    state: DeviceState,
    checked: Check,
    clocks_file: Path,
    *,
    lock_clocks: bool = True,
    create_mig: bool = False,
    gpu_clock_mhz: float | None = None,
) -> Plan:
    """How this machine becomes the target.

    Args:
        clocks_file: Where jetson_clocks keeps the present clocks; must not exist, since it asks before it overwrites.
        lock_clocks: On a Jetson also run jetson_clocks, which holds every clock at the mode's cap.
        create_mig: Create a MIG instance where the profile is missing.
        gpu_clock_mhz: Hold a card's clock at this value.

    Raises:
        DeviceMismatch: No command makes this machine the target: another device, or a mode it does not have.
        UsageError: The machine has no clock that could be held at that value.
    """
    faults = wrong(list(checked.differences))
    if fatal := [fault for fault in faults if _is_beyond_commands(fault)]:
        raise DeviceMismatch(f"nothing makes this machine {checked.spec.ref}: {fatal[0]}")
    if gpu_clock_mhz is not None:
        _refuse_clock(checked, gpu_clock_mhz)
    if state.jetson is not None and checked.spec.mode is not None:
        return _board_plan(state.jetson, checked, faults, clocks_file if lock_clocks else None)
    if checked.chosen is not None:
        return _card_plan(checked.chosen.gpu, checked, faults, create_mig, gpu_clock_mhz)
    return Plan(())


def _refuse_clock(checked: Check, megahertz: float) -> None:
    gpu = checked.chosen.gpu if checked.chosen else None
    if gpu is None:
        raise UsageError(
            f"no card's clock can be held at {megahertz:g} MHz here; on a Jetson the power mode says where "
            "jetson_clocks holds it"
        )
    if gpu.sm_clock_max_mhz is not None and megahertz > gpu.sm_clock_max_mhz:
        raise UsageError(f"{gpu.name} runs at {gpu.sm_clock_max_mhz:g} MHz at most, not at {megahertz:g} MHz")


def _is_beyond_commands(fault: Difference) -> bool:
    return fault.what == "device" or (fault.what == "power mode" and not (fault.mend or "").startswith("sudo nvpmodel"))


def _board_plan(board: JetsonState, checked: Check, faults: list[Difference], clocks_file: Path | None) -> Plan:
    assert checked.spec.mode is not None
    own = mode_of(board, checked.spec.mode)
    assert own is not None
    switch = Command(("nvpmodel", "-m", str(own.id)), f"switch to {own.name}")
    if faults and needs_reboot(board, own):
        return Plan((switch,), reboot=True, notes=(_REBOOT.format(mode=own.name),))
    commands, restore = [switch] if faults else [], _switch_back(board, own) if faults else []
    if clocks_file is not None and (faults or board.clocks_locked is not True):
        keep = Command(("jetson_clocks", "--store", str(clocks_file)), "keep the present clocks")
        commands = [keep, *commands, Command(("jetson_clocks",), "hold every clock at the mode's cap")]
        restore.append(Command(("jetson_clocks", "--restore", str(clocks_file)), "put the clocks back"))
    return Plan(tuple(commands), tuple(restore))


_REBOOT = (
    "{mode} changes the GPU's power gating, which takes effect at boot: reboot, then run this again; "
    "deploykit does not reboot"
)


def _switch_back(board: JetsonState, own: NvpMode) -> list[Command]:
    if board.mode_id is None or board.mode_id == own.id:
        return []
    name = board.mode.name if board.mode else str(board.mode_id)
    return [Command(("nvpmodel", "-m", str(board.mode_id)), f"switch back to {name}")]


def _card_plan(
    gpu: GpuState, checked: Check, faults: list[Difference], create_mig: bool, gpu_clock_mhz: float | None
) -> Plan:
    commands: list[Command] = []
    restore: list[Command] = []
    notes: list[str] = []
    for fault in faults:
        if fault.what == "power limit":
            _power_limit(gpu, commands, restore)
        elif fault.what == "MIG profile" and not slices_of(gpu, checked.spec.profile_name or ""):
            _mig_instance(gpu, checked.spec.profile_name or "", create_mig, commands, notes)
        else:
            notes.append(f"{fault}: {fault.mend}" if fault.mend else str(fault))
    if gpu_clock_mhz is not None:
        hold, let_go = _clock_lock(gpu, gpu_clock_mhz)
        commands.append(hold)
        restore.append(let_go)
    return Plan(tuple(commands), tuple(restore), notes=tuple(notes))


def _power_limit(gpu: GpuState, commands: list[Command], restore: list[Command]) -> None:
    smi = ("nvidia-smi", "-i", gpu.uuid or str(gpu.index))
    commands.append(Command((*smi, "-pl", f"{gpu.power_limit_default_w:g}"), "set the card's own default power limit"))
    restore.append(Command((*smi, "-pl", f"{gpu.power_limit_w:g}"), "set the power limit back"))


def _mig_instance(gpu: GpuState, profile: str, wanted: bool, commands: list[Command], notes: list[str]) -> None:
    """Slices are left when the work is done: others may have found them by then."""
    words = ("nvidia-smi", "mig", "-i", str(gpu.index), "-cgi", profile, "-C")
    if wanted:
        commands.append(Command(words, f"create a {profile} instance"))
        notes.append("the instance stays: destroy it with nvidia-smi mig -dci and -dgi when nobody uses it")
    else:
        notes.append(f"GPU {gpu.index} has no {profile} slice; --create-mig would run: {' '.join(words)}")


def _clock_lock(gpu: GpuState, megahertz: float) -> tuple[Command, Command]:
    """Hold a card's clock at one value, and let it go."""
    smi = ("nvidia-smi", "-i", gpu.uuid or str(gpu.index))
    value = f"{megahertz:g}"
    return (
        Command((*smi, "-lgc", f"{value},{value}"), f"hold the GPU clock at {value} MHz"),
        Command((*smi, "-rgc"), "let the GPU clock go"),
    )
