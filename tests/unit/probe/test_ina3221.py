"""Rails: which are there, which are the total, and what is no rail."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploykit.probe.ina3221 import find_channels, read_power, sum_of, total_rails
from deploykit.probe.tree import Tree

HWMON = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
MakeTree = Callable[[dict[str, str]], Path]


def channel(number: int, label: str, millivolts: str, milliamperes: str, folder: str = HWMON) -> dict[str, str]:
    return {
        f"{folder}/in{number}_label": f"{label}\n",
        f"{folder}/in{number}_input": f"{millivolts}\n",
        f"{folder}/curr{number}_input": f"{milliamperes}\n",
    }


@pytest.mark.parametrize(
    ("board", "rails_w", "total_w"),
    [
        ("p3448-0000", {"POM_5V_IN": 4.0, "POM_5V_GPU": 1.2, "POM_5V_CPU": 0.9}, 4.0),
        ("p2888-0001", {"GPU": 3.0, "CPU": 2.0, "SOC": 2.5, "CV": 0.0, "VDDRQ": 0.8, "SYS5V": 0.7}, 9.0),
        ("p3701-0005", {"VDD_GPU_SOC": 9.6, "VDD_CPU_CV": 4.0, "VIN_SYS_5V0": 6.0}, 19.6),
        ("p3701-0005", {"VDD_GPU_SOC": 9.6, "VDD_CPU_CV": 4.0, "VIN_SYS_5V0": 6.0, "VDDQ_VDD2_1V8AO": 1.0}, 19.6),
        ("p3767-0000", {"VDD_IN": 12.0, "VDD_CPU_GPU_CV": 6.0, "VDD_SOC": 2.5}, 12.0),
        ("p3834-0008", {"VIN": 42.0, "VDD_GPU": 20.0, "VDD_CPU_SOC_MSS": 9.0, "ucsi_source_psy": 100.0}, 42.0),
        # A part is never sold as the whole.
        ("p3701-0005", {"VDD_GPU_SOC": 9.6, "VDD_CPU_CV": 4.0}, None),
        ("p2888-0001", {"GPU": 3.0}, None),
        # A module that the table lacks: its input rail, if there is one.
        ("p9999-0000", {"VDD_IN": 12.0, "VDD_SOC": 2.5}, 12.0),
        (None, {"VDD_GPU_SOC": 9.6, "VDD_CPU_CV": 4.0}, None),
        (None, {}, None),
    ],
)
def test_the_total_of_each_module(board: str | None, rails_w: dict[str, float], total_w: float | None) -> None:
    assert sum_of(rails_w, total_rails(board, rails_w)) == total_w


def test_channels_by_label_in_whichever_hwmon_they_are(tree_of: MakeTree) -> None:
    other = HWMON.replace("0040/hwmon/hwmon3", "0041/hwmon/hwmon7")
    tree = Tree(
        tree_of(
            {
                f"{HWMON}/name": "ina3221\n",
                **channel(1, "VDD_GPU_SOC", "20000", "257"),
                **channel(2, "VDD_CPU_CV", "20000", "163"),
                **channel(3, "NC", "0", "0"),
                f"{HWMON}/in7_label": "sum of shunt voltages\n",
                f"{HWMON}/in7_input": "40\n",
                f"{other}/name": "ina3221\n",
                **channel(1, "VIN_SYS_5V0", "5000", "1100", other),
                # The same monitor once more, as another part of sysfs shows it.
                "sys/class/hwmon/hwmon3/name": "ina3221\n",
                **channel(1, "VDD_GPU_SOC", "20000", "257", "sys/class/hwmon/hwmon3"),
            }
        )
    )
    power = read_power(tree, find_channels(tree), "p3701-0005")
    assert power.rails_w == pytest.approx({"VDD_GPU_SOC": 5.14, "VDD_CPU_CV": 3.26, "VIN_SYS_5V0": 5.5})
    assert power.total_w == pytest.approx(13.9)


def test_a_channel_that_cannot_be_read_is_named_and_never_zero(tree_of: MakeTree) -> None:
    tree = Tree(
        tree_of(
            {f"{HWMON}/name": "ina3221\n", **channel(1, "VDD_IN", "EIO", "1"), **channel(2, "VDD_SOC", "5000", "500")}
        )
    )
    power = read_power(tree, find_channels(tree), "p3767-0000")
    assert (power.total_w, power.unreadable, power.rails_w) == (None, ("VDD_IN",), {"VDD_SOC": 2.5})


def test_hwmon_of_another_chip_is_passed_over(tree_of: MakeTree) -> None:
    folder = "sys/class/hwmon/hwmon0"
    tree = Tree(tree_of({f"{folder}/name": "nvme\n", **channel(1, "VDD_IN", "5000", "1000", folder)}))
    assert find_channels(tree) == ()


def test_a_jetpack_4_channel_without_a_power_file_is_multiplied(tree_of: MakeTree) -> None:
    folder = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    tree = Tree(
        tree_of(
            {
                f"{folder}/rail_name_0": "POM_5V_IN\n",
                f"{folder}/in_voltage0_input": "5000\n",
                f"{folder}/in_current0_input": "800\n",
            }
        )
    )
    assert read_power(tree, find_channels(tree), "p3448-0000").total_w == pytest.approx(4.0)
