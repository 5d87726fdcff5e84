"""Sensors on file trees that change, and the thread that looks at them."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from deploykit.probe.mig import Chosen
from deploykit.probe.nvml_answers import NvmlRefusal
from deploykit.probe.sampling import (
    CpuSensors,
    JetsonSensors,
    NvmlSensors,
    PowerSampler,
    Reading,
    idle_power,
    sensors_of,
    summary,
)
from deploykit.probe.tree import Tree
from deploykit.targets.state import DeviceState

MakeTree = Callable[[dict[str, str]], Path]


class Ticking:
    """Sensors whose energy grows by 5 J a look; says when it was looked at."""

    source: str | None = "a counter"
    scope: str | None = "module"
    step_s = 0.001

    def __init__(self, looks: int) -> None:
        self.seen = 0
        self.enough = threading.Event()
        self._looks = looks

    def read(self) -> Reading:
        self.seen += 1
        if self.seen >= self._looks:
            self.enough.set()
        return Reading(energy_j=5.0 * self.seen)


def test_the_thread_looks_until_the_block_ends_and_not_after() -> None:
    sensors = Ticking(looks=5)
    with PowerSampler(sensors, period_s=0.001) as sampler:
        assert sensors.enough.wait(timeout=30)
    count = sensors.seen
    assert len(sampler.trace.samples) == count
    assert not any(thread.name == "deploykit-sampler" for thread in threading.enumerate())
    times = [sample.t_s for sample in sampler.trace.samples]
    assert times == sorted(times)


def test_the_fields_of_a_measurement() -> None:
    ticks = iter([0.0, 2.0])
    sampler = PowerSampler(Ticking(looks=1), clock=lambda: next(ticks), period_s=1000)
    with sampler:
        pass
    fields = summary(sampler.trace, samples=10)
    # Two looks, 5 J apart, in 2 s.
    assert fields["power_w"] == 2.5
    assert fields["energy_j_per_sample"] == 0.5
    assert (fields["power_source"], fields["power_scope"], fields["idle_power_w"]) == ("a counter", "module", None)


def test_idle_power_is_that_before_the_run() -> None:
    waited: list[float] = []
    idle = idle_power(Ticking(looks=1), 3.0, sleep=waited.append)
    assert waited == [3.0]
    assert summary(idle, samples=0, idle=idle)["idle_power_w"] is not None


def test_a_jetson_is_read_from_its_files(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-agx-64gb-jp6.MODE_50W")
    with sensors_of(root) as sensors:
        assert isinstance(sensors, JetsonSensors)
        reading = sensors.read()
        assert reading.power_w == pytest.approx(13.9)
        assert (reading.gpu_mhz, reading.events, reading.temperature_c) == (306, 0, pytest.approx(52.968))
        next(root.glob("sys/bus/i2c/drivers/ina3221/1-0040/hwmon/*/curr1_input")).write_text("1000\n")
        (root / "sys/class/hwmon/hwmon5/oc3_event_cnt").write_text("4\n")
        later = sensors.read()
    assert later.events == 4
    assert later.power_w is not None
    assert later.power_w > 13.9
    assert sensors.source == "rails VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0"


def test_a_rail_that_fails_in_the_run_is_not_zero(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-nx-16gb.15W")
    sensors = JetsonSensors(Tree(root))
    next(root.glob("sys/bus/i2c/drivers/ina3221/1-0040/hwmon/*/curr1_input")).unlink()
    assert sensors.read().power_w is None


def test_a_card_is_asked_by_its_driver(
    state_of: Callable[[str], DeviceState], board_root: Callable[[str], Path]
) -> None:
    gpu = state_of("h100").nvml.gpus[0]
    with sensors_of(board_root("h100"), Chosen(gpu)) as sensors:
        reading = sensors.read()
    assert (reading.power_w, reading.energy_j, reading.gpu_mhz, reading.temperature_c) == (70.0, 123456.789, 210, 34)
    assert (sensors.source, sensors.scope) == ("NVML energy counter", "board")


def test_a_card_that_refuses_everything_tells_nothing() -> None:
    class Refusing:
        def ask(self, question: str, device: str = "", *arguments: int) -> object:
            raise NvmlRefusal(3, "Not Supported")

    sensors = NvmlSensors(Refusing(), 0)
    assert sensors.source is None
    assert sensors.read() == Reading()


RAPL = "sys/class/powercap/intel-rapl:0"


def test_a_rapl_counter_that_wraps_goes_on(tree_of: MakeTree) -> None:
    root = tree_of(
        {f"{RAPL}/name": "package-0\n", f"{RAPL}/energy_uj": "9000000\n", f"{RAPL}/max_energy_range_uj": "10000000\n"}
    )
    sensors = CpuSensors(Tree(root))
    first = sensors.read().energy_j
    (root / RAPL / "energy_uj").write_text("2000000\n")
    second = sensors.read().energy_j
    assert first is not None
    assert second is not None
    assert second - first == 3.0


def test_a_zone_below_a_package_is_not_counted_twice(tree_of: MakeTree) -> None:
    root = tree_of(
        {
            f"{RAPL}/name": "package-0\n",
            f"{RAPL}/energy_uj": "1\n",
            f"{RAPL}:0/name": "core\n",
            f"{RAPL}:0/energy_uj": "1\n",
        }
    )
    sensors = CpuSensors(Tree(root))
    assert sensors.read().energy_j == 0
    (root / RAPL / "energy_uj").write_text("1000001\n")
    (root / f"{RAPL}:0" / "energy_uj").write_text("1000001\n")
    assert sensors.read().energy_j == 1.0


def test_a_machine_without_counters_tells_no_power(tree_of: MakeTree) -> None:
    with sensors_of(tree_of({"proc/cpuinfo": "processor : 0\n"})) as sensors:
        assert (sensors.source, sensors.read().power_w, sensors.read().energy_j) == (None, None, None)
