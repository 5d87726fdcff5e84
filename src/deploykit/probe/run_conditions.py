"""Was a run one of the target: the machine before, what was seen beside the run, and the machine after. Pure.

Reasons make a measurement invalid. Remarks are worth knowing. Conditions are recorded with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploykit.probe.check import Check
from deploykit.probe.mig import neighbours
from deploykit.probe.trace import DRIFT, Trace, drift, reasons_against
from deploykit.targets.match import wrong
from deploykit.targets.state import DeviceState


@dataclass(frozen=True)
class Judgement:
    """What is to be said of a run."""

    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    conditions: dict[str, Any]


def judge(
    before: DeviceState,
    after: DeviceState,
    checked: Check,
    trace: Trace,
    latencies_ms: Sequence[float] = (),
    *,
    on_gpu: bool,
) -> Judgement:
    """Everything that the device says of a run.

    Args:
        checked: The target held against `before`.
        trace: What a sampler saw.
        latencies_ms: Of every query, in order of time; empty where the scenario has no such order.
        on_gpu: Whether the provider that really ran used the GPU: then its clock must be the target's.
    """
    asked = before.jetson.gpu.cap_mhz if before.jetson and on_gpu else None
    reasons = [
        *(str(difference) for difference in wrong(list(checked.differences))),
        *_changed(before, after),
        *_foreign(checked),
        *_swapped(before, after),
        *reasons_against(trace, asked),
        *_drifted(latencies_ms),
    ]
    remarks = (
        [str(d) for d in checked.differences if d.weight == "note"] + list(checked.warnings) + _remarks(before, trace)
    )
    return Judgement(tuple(reasons), tuple(remarks), conditions(before, checked, trace))


def conditions(state: DeviceState, checked: Check, trace: Trace) -> dict[str, Any]:
    """What the measurement records of the device, without what the machine does not tell."""
    clocks, heat = trace.clock_mhz(), trace.temperatures_c()
    found = {
        "gpu_clock_mhz": {"mean": round(clocks[0], 1), "min": clocks[1]} if clocks else None,
        "temperature_c": {"start": heat[0], "max": heat[1]} if heat else None,
        "throttle": trace.throttle() or None,
        **(_jetson_conditions(state) if state.jetson else {}),
        **(_card_conditions(state, checked) if checked.chosen else {}),
    }
    return {key: value for key, value in found.items() if value is not None}


def _jetson_conditions(state: DeviceState) -> dict[str, Any]:
    board = state.jetson
    assert board is not None
    mode = board.mode
    return {
        "module": board.board_id,
        "l4t": board.l4t,
        "jetpack": board.jetpack,
        "nvpmodel": {"id": mode.id, "name": mode.name} if mode else None,
        "clocks_locked": board.clocks_locked,
        "online_cpus": len(board.cpus_online) or None,
    }


def _card_conditions(state: DeviceState, checked: Check) -> dict[str, Any]:
    chosen = checked.chosen
    assert chosen is not None
    return {
        "gpu": chosen.gpu.name,
        "gpu_uuid": chosen.gpu.uuid,
        "driver": state.nvml.driver,
        "power_limit_w": chosen.gpu.power_limit_w,
        "mig_device": chosen.slice.uuid if chosen.slice else None,
        "mig_profile": chosen.slice.profile if chosen.slice else None,
        "mig_neighbours": [
            {"profile": item.profile, "state": "unknown" if busy is None else "busy" if busy else "idle"}
            for item, busy in neighbours(chosen)
        ]
        or None,
    }


def _changed(before: DeviceState, after: DeviceState) -> list[str]:
    """Somebody switched something while the run went on."""
    if before.jetson is None or after.jetson is None:
        return []
    pairs = {
        "power mode": (before.jetson.mode_id, after.jetson.mode_id),
        "online CPUs": (before.jetson.cpus_online, after.jetson.cpus_online),
        "GPU clock cap": (before.jetson.gpu.cap_mhz, after.jetson.gpu.cap_mhz),
    }
    return [f"the {what} changed during the run: {a} before, {b} after" for what, (a, b) in pairs.items() if a != b]


def _foreign(checked: Check) -> list[str]:
    """Processes that were on the device before the run began: the run's own was not there yet."""
    chosen = checked.chosen
    processes = (chosen.slice or chosen.gpu).processes if chosen else None
    if not processes:
        return []
    where = f"the slice {chosen.slice.uuid}" if chosen and chosen.slice else "the GPU"
    return [f"another process uses {where}: pid {', '.join(map(str, processes))}"]


def _swapped(before: DeviceState, after: DeviceState) -> list[str]:
    a, b = before.memory, after.memory
    moves = [
        later - earlier
        for earlier, later in ((a.pages_swapped_in, b.pages_swapped_in), (a.pages_swapped_out, b.pages_swapped_out))
        if earlier is not None and later is not None
    ]
    return [f"the machine swapped during the run ({sum(moves)} pages)"] if sum(moves) > 0 else []


def _drifted(latencies_ms: Sequence[float]) -> list[str]:
    change = drift(latencies_ms)
    if change is None or abs(change) <= DRIFT:
        return []
    return [f"the last third of the run was {abs(change):.0%} {'slower' if change > 0 else 'faster'} than the first"]


def _remarks(before: DeviceState, trace: Trace) -> list[str]:
    remarks = []
    if before.memory.swap_used_bytes:
        remarks.append(f"{before.memory.swap_used_bytes / 1e6:.0f} MB were in swap before the run")
    power = trace.power()
    if power is not None and power.uncertainty_w is not None and power.uncertainty_w > 0.05 * power.mean_w:
        remarks.append(f"the run was too short for its power: {power.mean_w:.1f} ± {power.uncertainty_w:.1f} W")
    return remarks
