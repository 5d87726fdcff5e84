"""Power of a Jetson module from its INA3221 monitors, and which rails are the total on which module.

    JetPack 5 and later   <hwmon>/in<k>_label, in<k>_input (mV), curr<k>_input (mA)
    JetPack 4             <iio:device>/rail_name_<k>, in_power<k>_input (mW), in_voltage<k>_input, in_current<k>_input

Read from rbonghi/jetson_stats jtop/core/power.py and ml-energy/zeus zeus/device/soc/jetson.py (for facts only). The
driver refreshes the channels at roughly 77 Hz (a public measurement): a single reading says little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deploykit.probe.tree import Tree
from deploykit.targets.state import PowerRails

# Where a board measures its whole input, that rail is the total and its parts are never added to it; elsewhere the
# listed rails add up to the module. On AGX Orin, VDDQ_VDD2_1V8AO is fed from VIN_SYS_5V0 and so not listed.
TOTAL_OF_MODULE = {
    "p3448": ("POM_5V_IN",),
    "p3310": ("VDD_IN",),
    "p2888": ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
    "p3668": ("VDD_IN",),
    "p3701": ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
    "p3767": ("VDD_IN",),
    "p3834": ("VIN",),
}

_HWMON_FOLDERS = (
    "sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*",
    "sys/bus/i2c/devices/*/hwmon/hwmon*",
    "sys/class/hwmon/hwmon*",
)
_IIO_FOLDERS = ("sys/bus/i2c/drivers/ina3221x/*/iio:device*", "sys/bus/i2c/devices/*/iio:device*")


@dataclass(frozen=True)
class Channel:
    """One rail: the files whose readings multiply to its power.

    Attributes:
        files: One file in mW, or two in mV and mA.
    """

    rail: str
    files: tuple[str, ...]

    def watts(self, tree: Tree) -> float | None:
        """Power now; None where a file cannot be read."""
        values = [tree.number(file) for file in self.files]
        if any(value is None for value in values):
            return None
        product = 1.0
        for value in values:
            product *= value or 0
        return product / (1e3 if len(self.files) == 1 else 1e6)


def find_channels(tree: Tree) -> tuple[Channel, ...]:
    """Every connected rail, each once although sysfs shows a monitor in several places."""
    for pattern in _HWMON_FOLDERS:
        if channels := _once(c for folder in tree.paths(pattern) for c in _hwmon_channels(tree, folder)):
            return channels
    for pattern in _IIO_FOLDERS:
        if channels := _once(c for folder in tree.paths(pattern) for c in _iio_channels(tree, folder)):
            return channels
    return ()


def read_power(tree: Tree, channels: Iterable[Channel], board_id: str | None) -> PowerRails:
    """Read every rail once and make up the total that is right for this module."""
    readings = {channel.rail: channel.watts(tree) for channel in channels}
    rails = {rail: watts for rail, watts in readings.items() if watts is not None}
    total = total_rails(board_id, readings)
    return PowerRails(
        rails_w=rails,
        total_w=sum_of(rails, total),
        total_is=total,
        unreadable=tuple(rail for rail, watts in readings.items() if watts is None),
    )


def total_rails(board_id: str | None, rails: Iterable[str]) -> tuple[str, ...]:
    """The rails whose sum is the module's power; empty where that is not known.

    A module that the table lacks is taken at its input rail, if it has exactly one of the known input rails.
    """
    present = set(rails)
    listed = TOTAL_OF_MODULE.get((board_id or "")[:5])
    if listed is not None:
        return listed if present.issuperset(listed) else ()
    inputs = sorted(present & {"VDD_IN", "POM_5V_IN", "VIN"})
    return (inputs[0],) if len(inputs) == 1 else ()


def sum_of(rails_w: Mapping[str, float], total: Iterable[str]) -> float | None:
    """Sum of the named rails, W; None where there is none or one is missing: a part is never sold as the whole."""
    names = list(total)
    if not names or any(name not in rails_w for name in names):
        return None
    # The monitors count in milliwatts and coarser: what float addition makes below is no reading.
    return round(sum(rails_w[name] for name in names), 6)


def _once(channels: Iterable[Channel]) -> tuple[Channel, ...]:
    first: dict[str, Channel] = {}
    for channel in channels:
        first.setdefault(channel.rail, channel)
    return tuple(first.values())


def _hwmon_channels(tree: Tree, folder: str) -> list[Channel]:
    name = tree.text(f"{folder}/name")
    if name is not None and "ina3221" not in name:
        return []
    found = []
    for path in tree.paths(f"{folder}/in[0-9]*_label"):
        number = re.sub(r"\D", "", path.rpartition("/")[2])
        rail = tree.text(path)
        # Channel 7 is the sum of the shunt voltages, no rail; NC is not connected.
        if rail and _is_rail(rail):
            found.append(Channel(rail, (f"{folder}/in{number}_input", f"{folder}/curr{number}_input")))
    return found


def _iio_channels(tree: Tree, folder: str) -> list[Channel]:
    found = []
    for path in tree.paths(f"{folder}/rail_name_[0-9]*"):
        number = path.rpartition("_")[2]
        rail = tree.text(path)
        if not rail or not _is_rail(rail):
            continue
        power = f"{folder}/in_power{number}_input"
        parts = (f"{folder}/in_voltage{number}_input", f"{folder}/in_current{number}_input")
        found.append(Channel(rail, (power,) if tree.number(power) is not None else parts))
    return found


def _is_rail(label: str) -> bool:
    return "sum of shunt" not in label.lower() and not re.search(r"(?:^|[^A-Z])NC(?:$|[^A-Z])", label)
