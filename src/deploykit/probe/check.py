"""A target against the machine at hand: which device is meant, and everything in which it differs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from deploykit.base.errors import DeviceAbsent, DeviceMismatch
from deploykit.probe.mig import ORDER_VARIABLE, VISIBLE_VARIABLE, Chosen, choose, choose_profile
from deploykit.targets.catalog import Catalog
from deploykit.targets.identity import gpu_device, jetson_device
from deploykit.targets.match import Difference, match, mends, wrong
from deploykit.targets.spec import TargetSpec
from deploykit.targets.state import DeviceState, GpuState


@dataclass(frozen=True)
class Check:
    """A target held against a machine.

    Attributes:
        spec: The target.
        device: Slug of the device that was compared; None where it is not in the catalogue.
        chosen: The GPU or slice that CUDA will use; None on a Jetson and on the host.
        differences: Wrong ones first.
        warnings: About the choice of the device.
    """

    spec: TargetSpec
    device: str | None
    chosen: Chosen | None
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a measurement now would be one of this target."""
        return not wrong(list(self.differences))

    @property
    def absent(self) -> bool:
        """Whether the hardware itself is not here."""
        faults = wrong(list(self.differences))
        return bool(faults) and faults[0].what == "device"

    def refuse_if_wrong(self) -> None:
        """Do nothing where the device fits.

        Raises:
            DeviceAbsent: The hardware is not here.
            DeviceMismatch: It is here in another state; the message names every difference and what mends it.
        """
        faults = wrong(list(self.differences))
        if not faults:
            return
        told = "; ".join(str(fault) for fault in faults)
        todo = "; ".join(mends(faults))
        kind = DeviceAbsent if self.absent else DeviceMismatch
        raise kind(f"this machine is not {self.spec.ref}: {told}" + (f". To mend it: {todo}" if todo else ""))


def check(state: DeviceState, spec: TargetSpec, catalog: Catalog, environment: Mapping[str, str] = os.environ) -> Check:
    """Hold a target against a machine.

    Args:
        spec: May come from a file of the user's that the catalogue does not hold.
        environment: Where CUDA_VISIBLE_DEVICES is looked for.
    """
    catalog = Catalog({**catalog.files, spec.device.device: spec.device})
    if spec.device.kind in ("jetson", "host"):
        board = jetson_device(state.jetson, catalog) if state.jetson else None
        return Check(spec, board, None, tuple(match(state, spec, board)))
    chosen, warnings = _chosen(state, spec, catalog, environment)
    gpu = chosen.gpu if chosen else None
    slug = gpu_device(gpu, catalog) if gpu else None
    return Check(spec, slug, chosen, tuple(match(state, spec, slug, gpu, chosen.slice if chosen else None)), warnings)


def first_gpu(state: DeviceState, environment: Mapping[str, str] = os.environ) -> Chosen | None:
    """The GPU or slice that CUDA would use without being told more; None where the machine has none.

    Raises:
        DeviceAbsent: CUDA_VISIBLE_DEVICES names nothing that exists.
    """
    gpus = state.nvml.gpus if state.jetson is None else ()
    return choose(environment.get(VISIBLE_VARIABLE), gpus, environment.get(ORDER_VARIABLE)) if gpus else None


def _chosen(
    state: DeviceState, spec: TargetSpec, catalog: Catalog, environment: Mapping[str, str]
) -> tuple[Chosen | None, tuple[str, ...]]:
    """The GPU that the target means: what CUDA_VISIBLE_DEVICES names, else the first that is of this device."""
    visible, gpus = environment.get(VISIBLE_VARIABLE), state.nvml.gpus
    try:
        if visible is not None:
            named = choose(visible, gpus, environment.get(ORDER_VARIABLE))
            if spec.profile_name is None or named.slice is not None:
                return named, named.warnings
        if spec.profile_name is not None:
            return choose_profile(spec.profile_name, _of_device(state, spec, catalog), visible), ()
    except DeviceAbsent as absent:
        candidates = _of_device(state, spec, catalog)
        return (Chosen(candidates[0]) if candidates and visible is None else None), (str(absent),)
    candidates = _of_device(state, spec, catalog) or list(gpus)
    return (Chosen(candidates[0]) if candidates else None), ()


def _of_device(state: DeviceState, spec: TargetSpec, catalog: Catalog) -> list[GpuState]:
    return [gpu for gpu in state.nvml.gpus if gpu_device(gpu, catalog) == spec.device.device]
