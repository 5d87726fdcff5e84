"""The device beside a run: is it the target, what did its sensors and the rest of the host do meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.bench.conditions import Moment, device_record, moment
from deploykit.bench.guard import neighbours, remarks_on_host
from deploykit.probe.check import Check, check
from deploykit.probe.device import THIS_MACHINE, default_root, device_state
from deploykit.probe.sampling import PowerSampler, sensors_of, summary
from deploykit.probe.snapshot import opened
from deploykit.probe.trace import Trace, reasons_against
from deploykit.targets.catalog import load_catalog
from deploykit.targets.spec import TargetSpec
from deploykit.targets.state import DeviceState


@dataclass
class Watch:
    """One run seen from outside. Filled when the block of `DeviceInHand.watching` ends."""

    trace: Trace = field(default_factory=lambda: Trace(samples=()))
    before: Moment | None = None
    after: Moment | None = None


@dataclass(frozen=True)
class DeviceInHand:
    """A machine that was found to be the target.

    Attributes:
        spec: The target.
        state: What the machine says of itself.
        check: How it compares.
        root: File tree that was read: `/`, or a recorded one.
    """

    spec: TargetSpec
    state: DeviceState
    check: Check
    root: Path

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

    def fields(self, watch: Watch, samples: int) -> dict[str, Any]:
        """What a watched run adds to a measurement, by field name.

        Args:
            watch: The run.
            samples: Samples that it did.
        """
        assert watch.before is not None and watch.after is not None
        power = dict(summary(watch.trace, samples))
        clock = watch.trace.clock_mhz()
        reasons = self._reasons(watch.trace)
        conditions = {
            "power_source": power["power_source"] if power["power_w"] else None,
            "power_uncertainty_w": power["power_uncertainty_w"],
            "power_mode": self._power_mode(),
            "gpu_clock_min_mhz": clock[1] if clock else None,
            "throttle": watch.trace.throttle(),
            "temperatures_c": watch.trace.temperatures_c(),
            "load_average": [watch.before.load_average, watch.after.load_average],
            "other_cpus_busy": neighbours(watch.before, watch.after),
        }
        return {
            "target": self.spec.ref,
            **{name: power[name] for name in ("power_w", "power_scope", "energy_j_per_sample")},
            "clocks_mhz": {"gpu": clock[0]} if clock else {},
            "device": device_record(self.state, self.check.chosen),
            "conditions": {name: value for name, value in conditions.items() if value not in (None, {})},
            "valid": not reasons,
            "invalid_reasons": tuple(reasons),
            "remarks": (*map(str, self.check.differences), *self.check.warnings, *self._host_remarks(watch)),
        }

    @property
    def on_gpu(self) -> bool:
        """Whether the target means a GPU."""
        return self.spec.device.kind != "host"

    def _reasons(self, trace: Trace) -> list[str]:
        # A card's boost clock is a hope; a Jetson's mode sets a clock that it can hold.
        asked_mhz = self.spec.gpu_mhz if self.spec.device.kind == "jetson" else None
        reasons = reasons_against(trace, asked_mhz)
        if self.root != THIS_MACHINE:
            reasons.append(f"the device was read from a recorded tree ({self.root}), not from this machine")
        return reasons

    def _power_mode(self) -> str | None:
        board = self.state.jetson
        return board.mode.name if board and board.mode else None

    def _host_remarks(self, watch: Watch) -> tuple[str, ...]:
        assert watch.before is not None and watch.after is not None
        return remarks_on_host(watch.before, watch.after, self.state.cpu.usable or 1)


@contextlib.contextmanager
def device_in_hand(spec: TargetSpec, root: Path | None = None) -> Iterator[DeviceInHand]:
    """The machine at hand as the target.

    Args:
        spec: The target.
        root: File tree or snapshot to read instead of this machine's; None: `DEPLOYKIT_ROOT`, else `/`.

    Raises:
        DeviceAbsent: The hardware is not here.
        DeviceMismatch: It is here, in another state than the target names.
    """
    with opened(root or default_root()) as tree:
        state = device_state(tree)
        found = check(state, spec, load_catalog())
        found.refuse_if_wrong()
        yield DeviceInHand(spec, state, found, tree)
