"""Power, clocks and temperature beside a run, ten times a second: files and driver calls only, never a command.

A sampler opens what it will read before the run, and in the loop reads a handful of files or asks NVML a few questions.
Counters of energy (NVML, RAPL) are read at both ends and say what the mean of samples cannot.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deploykit.probe.cpu_host import rapl_zones, read_temperatures, thermal_files
from deploykit.probe.device_tree import module_in, strings
from deploykit.probe.ina3221 import find_channels, sum_of, total_rails
from deploykit.probe.jetson import gpu_folder, is_jetson, overcurrent_files
from deploykit.probe.mig import Chosen
from deploykit.probe.nvml import GPU_SENSOR, REASONS_QUESTION, SM_CLOCK, throttle_reasons
from deploykit.probe.nvml_answers import LiveNvml, Nvml, NvmlRefusal, recorded_nvml
from deploykit.probe.trace import Sample, Trace
from deploykit.probe.tree import Tree

SAMPLES_PER_SECOND = 10.0
_HZ_IN_MHZ = 1e6


@dataclass(frozen=True)
class Reading:
    """What one look at the sensors gives; what a machine does not tell is None.

    Attributes:
        energy_j: Reading of an energy counter: only differences mean something.
        events: Over-current events so far.
    """

    power_w: float | None = None
    energy_j: float | None = None
    gpu_mhz: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()
    events: int | None = None


class Sensors(Protocol):
    """Something that can be looked at quickly.

    Attributes:
        source: Where power is from: `rails VDD_IN`, `NVML energy counter`; None where there is none.
        scope: What it covers: `module`, `board`, or None for less than either.
        step_s: How old a reading may be: the refresh time of the sensor or counter.
    """

    source: str | None
    scope: str | None
    step_s: float

    def read(self) -> Reading:
        """Look once."""
        ...


class JetsonSensors:
    """Rails, GPU clock, temperatures and over-current counters of a Jetson from sysfs."""

    scope: str | None = "module"
    # The INA3221 driver refreshes its channels at roughly 77 Hz (a public measurement).
    step_s = 1 / 77

    def __init__(self, tree: Tree) -> None:
        compatible = strings(tree.data("proc/device-tree/compatible") or b"")
        channels = {channel.rail: channel for channel in find_channels(tree)}
        self._tree = tree
        self._total = total_rails(module_in(compatible), channels)
        self._channels = [channels[rail] for rail in self._total]
        self._gpu = gpu_folder(tree)
        self._events = overcurrent_files(tree)
        self._thermal = thermal_files(tree)
        self.source: str | None = f"rails {' + '.join(self._total)}" if self._total else None

    def read(self) -> Reading:
        """Read some ten files."""
        watts = {channel.rail: channel.watts(self._tree) for channel in self._channels}
        known = {rail: value for rail, value in watts.items() if value is not None}
        hertz = self._tree.number(f"{self._gpu}/cur_freq") if self._gpu else None
        counts = [self._tree.number(file) for file in self._events]
        degrees = read_temperatures(self._tree, self._thermal)
        return Reading(
            power_w=sum_of(known, self._total),
            gpu_mhz=None if hertz is None else hertz / _HZ_IN_MHZ,
            temperature_c=max(degrees.values(), default=None),
            events=sum(count for count in counts if count is not None) if counts else None,
        )


class NvmlSensors:
    """One GPU through NVML. Under MIG clocks and power are the whole card's, whichever slice runs."""

    scope: str | None = "board"
    # NVML averages power over 25 to 100 ms and moves its energy counter as often (measured by ml-energy/zeus).
    step_s = 0.1

    def __init__(self, nvml: Nvml, index: int) -> None:
        self._nvml, self._device = nvml, f"gpu:{index}"
        self._counts_energy = self._ask("nvmlDeviceGetTotalEnergyConsumption") is not None
        power = self._ask("nvmlDeviceGetPowerUsage")
        samples = "NVML power samples" if power is not None else None
        self.source: str | None = "NVML energy counter" if self._counts_energy else samples

    def read(self) -> Reading:
        """Ask four or five questions."""
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption") if self._counts_energy else None
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        bits = self._ask(REASONS_QUESTION)
        return Reading(
            power_w=None if milliwatts is None else milliwatts / 1000,
            energy_j=None if millijoules is None else millijoules / 1000,
            gpu_mhz=self._ask("nvmlDeviceGetClockInfo", SM_CLOCK),
            temperature_c=self._ask("nvmlDeviceGetTemperature", GPU_SENSOR),
            throttle=throttle_reasons(int(bits)) if bits is not None else (),
        )

    def _ask(self, question: str, *arguments: int) -> float | None:
        try:
            return float(self._nvml.ask(question, self._device, *arguments))
        except (NvmlRefusal, TypeError, ValueError):
            return None


class CpuSensors:
    """RAPL energy counters of the CPU packages, which wrap, and the host's temperatures."""

    # Neither memory, fans nor the supply: no scope that another figure could be held against.
    scope: str | None = None
    # The counters move every millisecond (Intel SDM volume 3B, RAPL interfaces).
    step_s = 0.001

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._zones = rapl_zones(tree)
        self._ranges = {zone: tree.number(f"{zone}/max_energy_range_uj") or 0 for zone in self._zones}
        self._last: dict[str, int] = {}
        self._total_uj = 0
        self._thermal = thermal_files(tree)
        self.source: str | None = "RAPL package energy counter (CPU only)" if self._zones else None

    def read(self) -> Reading:
        """Read the counters, past their wraps."""
        for zone in self._zones:
            now = self._tree.number(f"{zone}/energy_uj")
            if now is not None:
                self._total_uj += _forward(self._last.get(zone, now), now, self._ranges[zone])
                self._last[zone] = now
        degrees = read_temperatures(self._tree, self._thermal)
        return Reading(
            energy_j=self._total_uj / 1e6 if self._zones else None,
            temperature_c=max(degrees.values(), default=None),
        )


def _forward(before: int, now: int, wraps_at: int) -> int:
    return now - before if now >= before else max(0, now + wraps_at - before)


@contextlib.contextmanager
def sensors_of(root: Path, chosen: Chosen | None = None) -> Iterator[Sensors]:
    """The sensors that tell of the device a run uses: a card's where one is chosen, else the Jetson's, else the CPU's.

    Args:
        chosen: The GPU or slice that runs (`check.Check.chosen`).
    """
    tree = Tree(root)
    if chosen is None:
        yield JetsonSensors(tree) if is_jetson(tree) else CpuSensors(tree)
    elif root.resolve() == Path("/"):
        nvml = LiveNvml()
        nvml.start()
        try:
            yield NvmlSensors(nvml, chosen.gpu.index)
        finally:
            nvml.stop()
    else:
        yield NvmlSensors(recorded_nvml(root), chosen.gpu.index)


class PowerSampler:
    """Looks at sensors in a thread of its own while a run goes on. A context manager; `trace` is complete after it.

    Args:
        sensors: What to look at.
        clock: Monotonic time in seconds.
        period_s: Time between looks.
    """

    def __init__(
        self,
        sensors: Sensors,
        clock: Callable[[], float] = time.perf_counter,
        period_s: float = 1 / SAMPLES_PER_SECOND,
    ) -> None:
        self._sensors = sensors
        self._clock = clock
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="deploykit-sampler", daemon=True)
        self._samples: list[Sample] = []

    def __enter__(self) -> PowerSampler:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    @property
    def trace(self) -> Trace:
        """What was seen so far."""
        return Trace(
            samples=tuple(self._samples),
            source=self._sensors.source,
            scope=self._sensors.scope,
            step_s=self._sensors.step_s,
        )

    def _loop(self) -> None:
        # Event.wait sleeps in the kernel: between two looks the thread holds neither the GIL nor a core.
        while not self._stop.wait(self._period_s):
            self._look()

    def _look(self) -> None:
        reading = self._sensors.read()
        self._samples.append(Sample(t_s=self._clock(), **vars(reading)))


def idle_power(sensors: Sensors, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Trace:
    """Watch the device at rest, before a run: the power that is there without it."""
    with PowerSampler(sensors) as sampler:
        sleep(seconds)
    return sampler.trace


def summary(trace: Trace, samples: int, idle: Trace | None = None) -> Mapping[str, float | str | None]:
    """The fields of a measurement that a trace gives.

    Args:
        samples: Samples that the run did, for the energy of one.
    """
    power = trace.power()
    at_rest = idle.power() if idle else None
    return {
        "power_w": power.mean_w if power else None,
        "power_uncertainty_w": power.uncertainty_w if power else None,
        "idle_power_w": at_rest.mean_w if at_rest else None,
        "energy_j_per_sample": power.mean_w * trace.duration_s / samples if power and samples else None,
        "power_source": trace.source,
        "power_scope": trace.scope,
    }
