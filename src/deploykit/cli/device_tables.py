"""Tables of devices for people: what is here, what fits, what differs, what would be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from deploykit.probe.check import Check
    from deploykit.probe.detect import Detected, Reachable
    from deploykit.probe.doctor import Report
    from deploykit.probe.plan import Plan
    from deploykit.targets.state import DeviceState, GpuState, JetsonState

_LEVEL_STYLES = {"problem": "red", "warning": "yellow", "note": "default"}


def detected_table(found: Detected, state: DeviceState, log: Mapping[str, Any] | None) -> Group:
    """What the machine is, then the targets.

    Args:
        log: What a log of tegrastats says, as in the JSON document.
    """
    rows = _facts()
    for name, value in [*_machine(state), *_tegrastats(log)]:
        rows.add_row(name, value)
    now = found.now or "none of the catalogue's targets"
    rows.add_row("target now", Text(now, style="bold"))
    return Group(rows, _reachable(found.targets)) if found.targets else Group(rows)


def differences_table(checked: Check) -> Table | Text:
    """Every difference between a machine and a target."""
    title = f"{checked.spec.ref}: {'this machine is it' if checked.fits else 'this machine is not it'}"
    if not checked.differences:
        return Text(title)
    table = Table(title=title)
    for column in ("", "what", "found", "wanted", "mend"):
        table.add_column(column, overflow="fold")
    for item in checked.differences:
        style = "red" if item.weight == "wrong" else "default"
        table.add_row(Text(item.weight, style=style), item.what, item.found, item.wanted, item.mend or "")
    return table


def plan_table(checked: Check, plan: Plan) -> Group:
    """The commands there and back."""
    if not plan.commands and not plan.notes:
        return Group(Text(f"this machine is {checked.spec.ref} already: nothing to run"))
    notes = [Text(note) for note in plan.notes]
    if not plan.commands:
        return Group(*notes)
    table = Table(title=f"to make this machine {checked.spec.ref}")
    for column in ("", "command", "what it does"):
        table.add_column(column, overflow="fold")
    for label, commands in (("run", plan.commands), ("put back", plan.restore)):
        for command in commands:
            table.add_row(label, f"sudo {command}", command.why)
    return Group(table, *notes)


def doctor_table(report: Report) -> Group:
    """Findings, worst first."""
    if not report.findings:
        return Group(Text("nothing found that stands in the way"))
    table = Table(show_lines=True)
    for column in ("", "what", "why it matters", "mend"):
        table.add_column(column, overflow="fold")
    for item in report.findings:
        table.add_row(Text(item.level, style=_LEVEL_STYLES[item.level]), item.what, item.why, item.mend or "")
    return Group(table)


def _facts() -> Table:
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def _machine(state: DeviceState) -> list[tuple[str, str]]:
    rows = _board(state.jetson) if state.jetson else []
    for gpu in state.nvml.gpus:
        rows += _card(gpu)
    if state.jetson is None and state.nvml.fault:
        rows.append(("NVIDIA", state.nvml.fault))
    if state.nvml.driver:
        rows.append(("driver", f"{state.nvml.driver}, CUDA up to {state.nvml.cuda or 'unknown'}"))
    cpu = state.cpu
    rows.append(
        ("CPU", f"{cpu.model or 'unknown'}, {cpu.usable or '?'} usable of {cpu.cores or '?'}, {', '.join(cpu.isa)}")
    )
    if state.container:
        rows.append(("container", state.container))
    return rows


def _board(board: JetsonState) -> list[tuple[str, str]]:
    mode = board.mode
    clocks = {True: "locked", False: "governed by load", None: "not told"}[board.clocks_locked]
    total = board.power.total_w
    rails = " + ".join(board.power.total_is)
    return [
        ("board", f"{board.model or 'Jetson'}, module {board.board_id or 'unknown'}"),
        ("system", f"Jetson Linux {board.l4t or 'unknown'}, JetPack {board.jetpack or 'unknown'}"),
        ("power mode", f"{mode.name} (id {mode.id})" if mode else board.conf_fault or "unknown"),
        ("clocks", f"GPU {_mhz(board.gpu.now_mhz)} of {_mhz(board.gpu.cap_mhz)}, {clocks}"),
        ("power", f"{total:.2f} W ({rails})" if total is not None else "no rail that is known to be the total"),
    ]


def _card(gpu: GpuState) -> list[tuple[str, str]]:
    rows = [(f"GPU {gpu.index}", f"{gpu.name or 'unknown'} {gpu.uuid or ''}")]
    rows += [("  slice", f"{item.profile} {item.uuid}") for item in gpu.mig_devices]
    return rows


def _tegrastats(log: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if log is None:
        return []
    clock, power, heat = log["gpu_mhz"], log["power_w"], log["temperature_max_c"]
    parts = [
        f"{log['samples']} samples",
        f"{power:.2f} W" if power is not None else "no rail that is known to be the total",
        f"GPU {clock['mean']:.0f} MHz, {clock['min']:g} at least" if clock else None,
        f"{heat:g} °C at most" if heat is not None else None,
    ]
    return [("tegrastats", ", ".join(part for part in parts if part))]


def _mhz(value: float | None) -> str:
    return "?" if value is None else f"{value:g} MHz"


def _reachable(targets: tuple[Reachable, ...]) -> Table:
    table = Table(title="targets of this device")
    for column in ("target", "now", "to get there"):
        table.add_column(column, overflow="fold")
    for item in targets:
        table.add_row(item.checked.spec.ref, "yes" if item.checked.fits else "", _way(item))
    return table


def _way(item: Reachable) -> str:
    if item.checked.fits:
        return ""
    if item.plan is None:
        return str(item.checked.differences[0])
    steps = [*(f"sudo {command}" for command in item.plan.commands), *item.plan.notes]
    return "; ".join(steps)
