"""Jetson power modes: /etc/nvpmodel.conf and /var/lib/nvpmodel/status, read by their grammar. Pure: text in, facts out.

    file    := { comment | blank | section }
    section := "<" words ">" newline { line }            PARAM, POWER_MODEL, PM_CONFIG; others are passed over
    PARAM TYPE=(FILE|CLOCK|HWMON) NAME=word              lines: argument name, absolute path; HWMON: a file below it
    POWER_MODEL ID=number NAME=word                      lines: PARAM name, argument name, value
    PM_CONFIG DEFAULT=number                             mandatory, and last: a file cut short lacks it

Read from NVIDIA's board support files as published in LineageOS device trees (android_device_nvidia_concord, _galen,
_quill). What is out of order in a way that could make one mode look like another is refused, since a measurement in the
wrong mode is worse than none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from deploykit.base.errors import DeviceError
from deploykit.probe.tree import whole_number

NEWER_KERNEL_SUFFIX = "_KNEXT"
"""Argument names that end so hold the path of the newer kernel (JetPack 6 and later)."""

_HEADER = re.compile(r"^<\s*(?P<words>[A-Z_]+(?:\s+[^<>]*)?)>$")
_PAIR = re.compile(r"^(?P<key>[A-Z]+)=(?P<value>\S+)$")
_STATUS = re.compile(r"(?:^|[\s;])pmode:(?P<id>[0-9]{1,9})(?=$|[\s;])", re.MULTILINE)


class NvpmodelFault(DeviceError):
    """nvpmodel.conf does not say what the modes are."""


@dataclass(frozen=True)
class Param:
    """A thing that modes set.

    Attributes:
        kind: `FILE` (value is text), `CLOCK` (value is a frequency) or `HWMON` (a limit of the power monitor).
        paths: Argument → sysfs path; those of the newer kernel under the name with `_KNEXT`.
    """

    name: str
    kind: str
    paths: dict[str, str] = field(default_factory=dict)

    def paths_of(self, argument: str) -> list[str]:
        """Where the argument may be found, the newer kernel's path first."""
        names = (argument + NEWER_KERNEL_SUFFIX, argument)
        return [self.paths[name] for name in names if name in self.paths]


@dataclass(frozen=True)
class Mode:
    """One power mode. `settings`: (param, argument) → value as written."""

    id: int
    name: str
    settings: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Conf:
    """A whole nvpmodel.conf."""

    params: dict[str, Param]
    modes: tuple[Mode, ...]
    default_id: int

    def arguments(self) -> list[tuple[str, str]]:
        """Every (param, argument) that some mode sets."""
        return list(dict.fromkeys(key for mode in self.modes for key in mode.settings))


def parse_conf(text: str) -> Conf:
    """Read an nvpmodel.conf.

    Raises:
        NvpmodelFault: The line and what is wrong with it.
    """
    reader = _Reader()
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.partition("#")[0].strip()
        if line:
            reader.take(line, number)
    return reader.finished()


def parse_status(text: str) -> int | None:
    """The mode that /var/lib/nvpmodel/status saves: `pmode:0002` is 2 (decimal, whatever the leading zeros).

    Returns:
        None where the text holds no mode, or more than one.
    """
    ids = {int(match["id"]) for match in _STATUS.finditer(text)}
    return ids.pop() if len(ids) == 1 else None


class _Reader:
    """The sections read so far."""

    def __init__(self) -> None:
        self.params: dict[str, Param] = {}
        self.modes: list[Mode] = []
        self.default_id: int | None = None
        self._section: Param | Mode | None = None

    def take(self, line: str, number: int) -> None:
        if line.startswith("<"):
            self._header(line, number)
        elif isinstance(self._section, Param):
            self._path(self._section, line.split(), number)
        elif isinstance(self._section, Mode):
            self._setting(self._section, line.split(), number)
        # Lines below other sections (fan profiles) do not touch the modes.

    def _header(self, line: str, number: int) -> None:
        match = _HEADER.match(line)
        if match is None:
            raise _fault(number, f"{line!r} is no section header")
        word, *rest = match["words"].split()
        pairs = {pair["key"]: pair["value"] for pair in map(_PAIR.match, rest) if pair}
        self._section = None
        if word == "PARAM":
            self._section = self._param(pairs, number)
        elif word == "POWER_MODEL":
            self._section = self._mode(pairs, number)
        elif word == "PM_CONFIG":
            self._default(pairs, number)

    def _param(self, pairs: dict[str, str], number: int) -> Param:
        name, kind = pairs.get("NAME"), pairs.get("TYPE")
        if name is None or kind is None:
            raise _fault(number, "a PARAM needs a TYPE and a NAME")
        if name in self.params:
            raise _fault(number, f"the PARAM {name} stands there twice")
        return self.params.setdefault(name, Param(name, kind))

    def _mode(self, pairs: dict[str, str], number: int) -> Mode:
        name, id_ = pairs.get("NAME"), _id(pairs.get("ID"))
        if name is None or id_ is None:
            raise _fault(number, "a POWER_MODEL needs ID=<number> and a NAME")
        if any(mode.id == id_ or mode.name == name for mode in self.modes):
            raise _fault(number, f"two power modes are called {id_} or {name}")
        self.modes.append(Mode(id_, name))
        return self.modes[-1]

    def _default(self, pairs: dict[str, str], number: int) -> None:
        id_ = _id(pairs.get("DEFAULT"))
        if id_ is None:
            raise _fault(number, "PM_CONFIG needs DEFAULT=<number>")
        if self.default_id is not None:
            raise _fault(number, "PM_CONFIG stands there twice")
        self.default_id = id_

    def _path(self, param: Param, words: list[str], number: int) -> None:
        # Xavier NX: `WARN /sys/…/i2c-7/7-0040/hwmon curr1_max`, a file in whichever hwmon folder is below.
        if len(words) != (3 if param.kind == "HWMON" else 2) or not words[1].startswith("/"):
            raise _fault(number, f"below PARAM {param.name} stands an argument and its absolute path")
        if words[0] in param.paths:
            raise _fault(number, f"the argument {words[0]} of {param.name} stands there twice")
        param.paths[words[0]] = words[1]

    def _setting(self, mode: Mode, words: list[str], number: int) -> None:
        if len(words) != 3:
            raise _fault(number, f"below POWER_MODEL {mode.name} stand a parameter, an argument and a value")
        name, argument, value = words
        # A setting without a PARAM has no path: it cannot be compared, and takes nothing from the others.
        if argument.endswith("_FREQ") and whole_number(value) is None:
            raise _fault(number, f"{name} {argument} is a clock and {value!r} no whole number")
        if (name, argument) in mode.settings:
            raise _fault(number, f"{mode.name} sets {name} {argument} twice")
        mode.settings[name, argument] = value

    def finished(self) -> Conf:
        if not self.modes:
            raise NvpmodelFault("it defines no power mode")
        if self.default_id is None:
            raise NvpmodelFault("it ends without PM_CONFIG, which names the default mode: it seems cut short")
        if all(mode.id != self.default_id for mode in self.modes):
            raise NvpmodelFault(f"its default mode {self.default_id} is not among its modes")
        return Conf(self.params, tuple(self.modes), self.default_id)


def _id(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch("[0-9]{1,9}", text) else None


def _fault(number: int, what: str) -> NvpmodelFault:
    return NvpmodelFault(f"line {number}: {what}")
