"""The device beside a run: is it the target, what did its sensors and the rest of the host do meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.bench.conditions import Moment, device_record, moment
from deploykit.bench.guard import neighbours, remarks_on_host
from deploykit.probe.check import Check, check
from deploykit.probe.device import THIS_MACHINE, default_root, device_state
from deploykit.probe.mig import VISIBLE_VARIABLE, Chosen
from deploykit.probe.run_conditions import conditions, judge
from deploykit.probe.sampling import PowerSampler, idle_power, sensors_of, summary
from deploykit.probe.snapshot import opened
from deploykit.probe.trace import Trace
from deploykit.targets.catalog import load_catalog
from deploykit.targets.identity import resolve_here
from deploykit.targets.spec import TargetSpec
from deploykit.targets.state import DeviceState

REST_S = 2.0
"""Watching the device at rest before a run, where it tells its power: twenty looks, and a tenth of that time is the
step of the slowest counter (NVML's)."""


@dataclass
class Watch:
    """One run seen from outside. Filled when the block of `DeviceInHand.watching` ends.

    Attributes:
        at_end: What the machine says of itself after the run, while the run's sessions are still open.
    """

    trace: Trace = field(default_factory=lambda: Trace(samples=()))
    before: Moment | None = None
    after: Moment | None = None
    at_end: DeviceState | None = None


@dataclass(frozen=True)
class DeviceInHand:
    """A machine that is the target, or that was asked to be measured although it is not.

    Attributes:
        spec: The target: exact, also where the reference was a family's name.
        state: What the machine says of itself.
        check: How it compares.
        root: File tree that was read: `/`, or a recorded one.
        said: What the reference means on this machine, where it means something else elsewhere.
        rest: The device at rest before the runs; None where it does not tell its power.
    """

    spec: TargetSpec
    state: DeviceState
    check: Check
    root: Path
    said: str | None = None
    rest: Trace | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watch]:
        """Read counters before and after the block, and sensors beside it."""
        watch = Watch()
        with sensors_of(self.root, self.check.chosen) as sensors:
            sampler = PowerSampler(sensors)
            watch.before = moment()
            with sampler:
                yield watch
            watch.after = moment()
        watch.trace = sampler.trace
        watch.at_end = device_state(self.root)

    def fields(
        self, watch: Watch, samples: int, *, provider: str, latencies_ms: Sequence[float] = ()
    ) -> dict[str, Any]:
        """What a watched run adds to a measurement, by field name.

        Args:
            watch: The run.
            samples: Samples that it did.
            provider: What really executed.
            latencies_ms: Of every query in order of time, where a change in them is the machine's; else empty.
        """
        assert watch.before is not None and watch.after is not None and watch.at_end is not None
        on_gpu = "cpu" not in provider.lower()
        said = judge(self.state, watch.at_end, self.check, watch.trace, latencies_ms, on_gpu=on_gpu)
        reasons = [*said.reasons, *self._stand_ins(provider, on_gpu)]
        power = dict(summary(watch.trace, samples, self.rest))
        clock = watch.trace.clock_mhz()
        seen = {
            "power_source": power["power_source"] if power["power_w"] else None,
            "power_uncertainty_w": power["power_uncertainty_w"],
            "idle_power_w": power["idle_power_w"],
            "load_average": [watch.before.load_average, watch.after.load_average],
            "other_cpus_busy": neighbours(watch.before, watch.after),
            **conditions(self.state, self.check, watch.trace),
        }
        return {
            "target": self.spec.ref,
            **{name: power[name] for name in ("power_w", "power_scope", "energy_j_per_sample")},
            "clocks_mhz": {"gpu": clock[0]} if clock else {},
            "device": device_record(self.state, self.check.chosen),
            "conditions": {name: value for name, value in seen.items() if value is not None},
            "valid": not reasons,
            "invalid_reasons": tuple(reasons),
            "remarks": (*([self.said] if self.said else []), *said.remarks, *self._host_remarks(watch)),
        }

    @property
    def on_gpu(self) -> bool:
        """Whether the target means a GPU."""
        return self.spec.device.kind != "host"

    def _stand_ins(self, provider: str, on_gpu: bool) -> Iterator[str]:
        """Something ran that is not the target, with the user's knowledge."""
        if self.on_gpu and not on_gpu:
            yield f"it ran on {provider}, and {self.spec.ref} means a GPU"
        if self.root != THIS_MACHINE:
            yield "the device was read from a recorded tree, not from this machine"

    def _host_remarks(self, watch: Watch) -> tuple[str, ...]:
        assert watch.before is not None and watch.after is not None
        return remarks_on_host(watch.before, watch.after, self.state.cpu.usable or 1)


@contextlib.contextmanager
def device_in_hand(target: str, root: Path | None = None, *, allow_mismatch: bool = False) -> Iterator[DeviceInHand]:
    """The machine at hand as the target.

    As long as the block runs, CUDA_VISIBLE_DEVICES holds the UUID of the GPU or slice that was checked: CUDA reads it
    when it starts, and a process uses one slice.

    Args:
        target: Reference; a family's name such as `orin-30w` means the board in hand.
        root: File tree or snapshot to read instead of this machine's; None: `DEPLOYKIT_ROOT`, else `/`.
        allow_mismatch: Go on where the machine is not the target: what is measured then is invalid.

    Raises:
        DeviceAbsent: The hardware is not here.
        DeviceMismatch: It is here, in another state than the target names.
        UsageError: No such target.
    """
    with opened(root or default_root()) as tree:
        device = _in_hand(target, tree)
        if not allow_mismatch:
            device.check.refuse_if_wrong()
        with _visible_to_cuda(device.check.chosen if tree == THIS_MACHINE else None):
            yield replace(device, rest=_at_rest(tree, device.check.chosen))


def require_device(target: str, root: Path | None = None) -> None:
    """Refuse a machine that is not the target before anything is spent on it.

    Raises:
        DeviceAbsent, DeviceMismatch, UsageError: As `device_in_hand`.
    """
    with opened(root or default_root()) as tree:
        _in_hand(target, tree).check.refuse_if_wrong()


def _in_hand(target: str, tree: Path) -> DeviceInHand:
    state, catalog = device_state(tree), load_catalog()
    spec, said = resolve_here(target, catalog, state)
    return DeviceInHand(spec, state, check(state, spec, catalog), tree, said)


def _at_rest(root: Path, chosen: Chosen | None) -> Trace | None:
    with sensors_of(root, chosen) as sensors:
        return idle_power(sensors, REST_S) if sensors.source else None


@contextlib.contextmanager
def _visible_to_cuda(chosen: Chosen | None) -> Iterator[None]:
    before = os.environ.get(VISIBLE_VARIABLE)
    if chosen is not None and chosen.uuid is not None:
        os.environ[VISIBLE_VARIABLE] = chosen.uuid
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VISIBLE_VARIABLE, None)
        else:
            os.environ[VISIBLE_VARIABLE] = before
