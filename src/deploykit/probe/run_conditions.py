"""Was a run one of the target: the machine before, what was seen beside the run, and the machine after. Pure.

Reasons make a measurement invalid. Remarks are worth knowing. Conditions are recorded with it. On the target `host`,
which is shared with whatever else runs there, drift and swapping are remarks (`bench.guard`): they are more often a
neighbour's than the machine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploykit.probe.check import Check
from deploykit.probe.mig import Chosen, neighbours
from deploykit.probe.trace import DRIFT, Trace, drift, reasons_against
from deploykit.targets.match import wrong
from deploykit.targets.state import DeviceState, JetsonState


@dataclass(frozen=True)
class Judgement:
    """What is to be said of a run."""

    reasons: tuple[str, ...]
    remarks: tuple[str, ...]


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
        *_came_in(checked, after, own=int(on_gpu)),
        *reasons_against(trace, asked),
    ]
    if not _shared(checked):
        reasons += [*_swapped(before, after), *_drifted(latencies_ms)]
    remarks = [str(difference) for difference in checked.differences if difference.weight == "note"]
    return Judgement(tuple(reasons), (*remarks, *checked.warnings, *_remarks(before, checked, trace)))


def conditions(state: DeviceState, checked: Check, trace: Trace) -> dict[str, Any]:
    """What the measurement records of the run's device beside its name, without what the machine does not tell."""
    clocks, heat = trace.clock_mhz(), trace.temperatures_c()
    found = {
        "gpu_clock_min_mhz": clocks[1] if clocks else None,
        "temperature_c": {"start": heat[0], "max": heat[1]} if heat else None,
        "throttle": trace.throttle() or None,
        **(_jetson_conditions(state.jetson) if state.jetson else {}),
        **(_card_conditions(checked.chosen) if checked.chosen else {}),
    }
    return {key: value for key, value in found.items() if value is not None}


def _shared(checked: Check) -> bool:
    return checked.spec.device.kind == "host"


def _jetson_conditions(board: JetsonState) -> dict[str, Any]:
    return {"power_mode": board.mode.name if board.mode else None, "online_cpus": len(board.cpus_online) or None}


def _card_conditions(chosen: Chosen) -> dict[str, Any]:
    return {
        "gpu_uuid": chosen.gpu.uuid,
        "mig_device": chosen.slice.uuid if chosen.slice else None,
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
    processes = _processes(chosen)
    if not processes:
        return []
    where = f"the slice {chosen.slice.uuid}" if chosen and chosen.slice else "the GPU"
    return [f"another process uses {where}: pid {', '.join(map(str, processes))}"]


def _came_in(checked: Check, after: DeviceState, own: int) -> list[str]:
    """Processes that came onto the device during the run. NVML counts as the host does: a container's own process has
    another number there, so that they are counted and not named.

    Args:
        own: Processes of the run itself.
    """
    chosen = checked.chosen
    known, now = (_processes(chosen), _processes(_again(chosen, after))) if chosen else (None, None)
    if known is None or now is None:
        return []
    more = len(set(now) - set(known)) - own
    return [f"{more} more process(es) came onto the device during the run"] if more > 0 else []


def _again(chosen: Chosen, state: DeviceState) -> Chosen | None:
    """The same GPU or slice in a later state."""
    gpu = next((gpu for gpu in state.nvml.gpus if gpu.uuid == chosen.gpu.uuid), None)
    if gpu is None or chosen.slice is None:
        return Chosen(gpu) if gpu else None
    item = next((item for item in gpu.mig_devices if item.uuid == chosen.slice.uuid), None)
    return Chosen(gpu, item) if item else None


def _processes(chosen: Chosen | None) -> tuple[int, ...] | None:
    return (chosen.slice or chosen.gpu).processes if chosen else None


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


def _remarks(before: DeviceState, checked: Check, trace: Trace) -> list[str]:
    remarks = []
    if before.memory.swap_used_bytes and not _shared(checked):
        remarks.append(f"{before.memory.swap_used_bytes / 1e6:.0f} MB were in swap before the run")
    power = trace.power()
    if power is not None and power.uncertainty_w is not None and power.uncertainty_w > 0.05 * power.mean_w:
        remarks.append(f"the run was too short for its power: {power.mean_w:.1f} ± {power.uncertainty_w:.1f} W")
    if power is not None and checked.chosen is not None and checked.chosen.slice is not None:
        remarks.append("power is the whole card's: NVML has none for a slice")
    return remarks
