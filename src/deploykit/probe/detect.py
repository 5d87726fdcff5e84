"""What this machine is in the words of the catalogue: which targets fit, which fits now, what reaches another. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploykit.base.errors import DeviceMismatch
from deploykit.probe.check import Check, check
from deploykit.probe.mig import ORDER_VARIABLE, VISIBLE_VARIABLE, Chosen, choose
from deploykit.probe.plan import Plan, plan
from deploykit.targets.catalog import Catalog
from deploykit.targets.host import HOST
from deploykit.targets.identity import devices_of
from deploykit.targets.state import DeviceState

_ANY_FILE = Path("clocks.conf")


@dataclass(frozen=True)
class Reachable:
    """A target that this machine is, or can be made.

    Attributes:
        plan: How; None where no command makes it so.
    """

    checked: Check
    plan: Plan | None


@dataclass(frozen=True)
class Detected:
    """A machine in the catalogue's words.

    Attributes:
        now: Reference of the target that a measurement would be of now; None where the device is not in the catalogue
            or in no state that it lists.
        devices: Slugs of what is here.
        chosen: The GPU or slice that CUDA would use.
        targets: Every operating point of the devices here, those that fit now first.
        warnings: What the user may not have meant.
    """

    now: str | None
    devices: tuple[str, ...]
    chosen: Chosen | None
    targets: tuple[Reachable, ...]
    warnings: tuple[str, ...]


def detect(state: DeviceState, catalog: Catalog, environment: Mapping[str, str] = os.environ) -> Detected:
    """Hold every operating point of the devices here against the machine.

    Raises:
        DeviceAbsent: CUDA_VISIBLE_DEVICES names nothing that exists.
    """
    visible = environment.get(VISIBLE_VARIABLE)
    gpus = state.nvml.gpus if state.jetson is None else ()
    chosen = choose(visible, gpus, environment.get(ORDER_VARIABLE)) if gpus and _can_choose(visible, state) else None
    devices = devices_of(state, catalog)
    points = [point for point in catalog.all_points() if point.device.device in devices]
    checks = [check(state, point, catalog, environment) for point in points]
    found = [Reachable(item, _plan(state, item)) for item in checks]
    found.sort(key=lambda item: not item.checked.fits)
    return Detected(
        now=_now(found, chosen, bool(gpus or state.jetson)),
        devices=tuple(devices),
        chosen=chosen,
        targets=tuple(found),
        warnings=chosen.warnings if chosen else (),
    )


def _can_choose(visible: str | None, state: DeviceState) -> bool:
    """A GPU in MIG mode without slices is told of in the list; only what the user named himself is refused."""
    first = state.nvml.gpus[0]
    return visible is not None or not first.mig_enabled or bool(first.mig_devices)


def _now(found: list[Reachable], chosen: Chosen | None, accelerated: bool) -> str | None:
    """The one that fits; where several slices do, the one that CUDA would use."""
    fitting = [item.checked for item in found if item.checked.fits]
    if not accelerated:
        return HOST
    profile = chosen.slice.profile if chosen and chosen.slice else None
    same = [item for item in fitting if item.spec.profile_name == profile] if chosen else fitting
    return same[0].spec.ref if same else None


def _plan(state: DeviceState, checked: Check) -> Plan | None:
    if checked.fits:
        return Plan(())
    try:
        return plan(state, checked, _ANY_FILE, lock_clocks=False)
    except DeviceMismatch:
        return None
