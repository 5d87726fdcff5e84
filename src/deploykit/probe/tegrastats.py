"""A log of tegrastats, as people keep beside a run. Pure; any field may be missing, lines that are none are counted.

Forms that differ by release (rbonghi/jetson_stats tests/tegrastats; NVIDIA/skills tegrastats-fields.md):
    power        JetPack 4 `VDD_IN 4000/4000` in mW, 5 and 6 `4000mW/4000mW`, 7 `4000mW/4000mW/4000mW`: now/mean[/max]
    GPU          `GR3D_FREQ 12%`, `12%@1300`, `12%@[1300,1300]` one a GPC, `@[314,314,314]` on Thor
    temperature  `cpu@55.093C`, JetPack 7 `cpu@52.968C/52.968C`; a part that is off reads -256
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from deploykit.probe.ina3221 import sum_of, total_rails

_NUMBER = r"[0-9]{1,9}"
_POWER = re.compile(
    rf"(?:^|\s)(?P<rail>[A-Z][A-Z0-9_]*) (?P<now>{_NUMBER})(?P<unit>mW)?/{_NUMBER}(?:mW)?(?:/{_NUMBER}mW)?(?=\s|$)"
)
_GPU = re.compile(rf"GR3D_FREQ (?:(?P<load>{_NUMBER})%)?(?:@\[?(?P<clock>{_NUMBER}(?:,{_NUMBER})*)\]?)?(?=\s|$)")
_TEMPERATURE = re.compile(r"(?P<zone>[A-Za-z][A-Za-z0-9_]*)@(?P<degrees>-?[0-9]{1,4}(?:\.[0-9]{1,6})?)C")
_MEMORY = re.compile(rf"(?:^|\s)RAM (?P<used>{_NUMBER})/(?P<total>{_NUMBER})MB")
# What tegrastats prints as `a/b` and is no rail.
_NO_RAILS = {"RAM", "SWAP", "IRAM"}
_COLDEST_C = -100.0


@dataclass(frozen=True)
class Line:
    """One sample of tegrastats.

    Attributes:
        rails_w: Rail → W now.
        gpu_mhz: The slowest GPC's clock.
        gpu_load: 0 to 1.
        temperatures_c: Zone → °C.
        ram_used_mb: As printed.
    """

    rails_w: dict[str, float] = field(default_factory=dict)
    gpu_mhz: float | None = None
    gpu_load: float | None = None
    temperatures_c: dict[str, float] = field(default_factory=dict)
    ram_used_mb: int | None = None


@dataclass(frozen=True)
class Log:
    """A whole log: its samples, and how many lines were no samples."""

    lines: tuple[Line, ...]
    passed_over: int

    def power_w(self, board_id: str | None) -> float | None:
        """Mean power of the module, by the same rails as the sensors of that module."""
        totals = [sum_of(line.rails_w, total_rails(board_id, line.rails_w)) for line in self.lines]
        known = [total for total in totals if total is not None]
        return sum(known) / len(known) if known else None


def parse_line(text: str) -> Line | None:
    """One line; None where it holds nothing that tegrastats prints."""
    memory, gpu = _MEMORY.search(text), _GPU.search(text)
    if memory is None and gpu is None:
        return None
    clocks = [float(clock) for clock in gpu["clock"].split(",")] if gpu and gpu["clock"] else []
    degrees = {match["zone"].lower(): float(match["degrees"]) for match in _TEMPERATURE.finditer(text)}
    return Line(
        rails_w={m["rail"]: int(m["now"]) / 1000 for m in _POWER.finditer(text) if m["rail"] not in _NO_RAILS},
        gpu_mhz=min(clocks, default=None),
        gpu_load=int(gpu["load"]) / 100 if gpu and gpu["load"] else None,
        temperatures_c={zone: value for zone, value in degrees.items() if value > _COLDEST_C},
        ram_used_mb=int(memory["used"]) if memory else None,
    )


def parse_log(lines: Iterable[str]) -> Log:
    """Every line of a log."""
    parsed = [parse_line(line) for line in lines if line.strip()]
    samples = tuple(line for line in parsed if line is not None)
    return Log(samples, len(parsed) - len(samples))
