"""The training table and the fitted settings, as they ship: text files that `scripts/make_predictor` writes.

data/machines.csv   targets with rows, as the roofline sees them, also those that no catalogue lists any more
data/training.csv   pooled published measurements, each naming the rows it was pooled from
data/fitted.json    constants, settings of the correction, interval multipliers
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path

from deploykit.base import files
from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.correction import Settings
from deploykit.predict.machine import Machine
from deploykit.predict.names import DATA, network_named
from deploykit.predict.observe import Observation
from deploykit.predict.points import Point
from deploykit.predict.roofline import Constants

MACHINES = DATA / "machines.csv"
TRAINING = DATA / "training.csv"
FITTED = DATA / "fitted.json"
_MACHINE_COLUMNS = tuple(field.name for field in fields(Machine))
_COLUMNS = (
    "name", "target", "precision", "scenario", "batch", "source", "year", "copies", "dla", "fresh", "limit_ms", "ms",
    "count", "tail", "ids",
)  # fmt: skip
_PREFIX = "published:"


@dataclass(frozen=True)
class Fitted:
    """What was fitted.

    Attributes:
        settings: Of roofline and correction.
        quantiles: Interval multipliers: `rung/use` → level → spreads.
    """

    settings: Settings
    quantiles: Mapping[str, Mapping[float, float]]


@dataclass(frozen=True)
class TrainingTable:
    """Observations and how much their noise was widened, [N]."""

    rows: tuple[Observation, ...]
    tails: tuple[float, ...]


def machines_text(machines: Iterable[Machine]) -> str:
    """machines.csv."""
    return _csv(_MACHINE_COLUMNS, (asdict(machine).values() for machine in machines))


@lru_cache(maxsize=1)
def read_machines() -> dict[str, Machine]:
    """Target slug of the training table → machine."""
    with MACHINES.open(encoding="utf-8", newline="") as stream:
        return {row["ref"]: _machine(row) for row in csv.DictReader(stream)}


def _machine(row: Mapping[str, str]) -> Machine:
    numbers = {name: float(row[name]) for name in _MACHINE_COLUMNS if name not in ("ref", "capability", "integrated")}
    return Machine(ref=row["ref"], capability=row["capability"], integrated=row["integrated"] == "True", **numbers)


def training_text(rows: Sequence[Observation], tails: Sequence[float]) -> str:
    """training.csv."""
    return _csv(_COLUMNS, (_fields(row, tail) for row, tail in zip(rows, tails, strict=True)))


def _fields(row: Observation, tail: float) -> list[object]:
    p = row.point
    limit = "" if p.limit_ms is None else f"{p.limit_ms:g}"
    ids = " ".join(identity.removeprefix(_PREFIX) for identity in row.ids)
    flags = [int(flag) for flag in (p.copies, p.dla, p.fresh)]
    return [
        p.network.name, p.machine.ref, p.precision, p.scenario, p.batch, p.source, f"{p.year:g}", *flags, limit,
        f"{math.exp(row.log_ms):.6g}", row.count, f"{tail:.3g}", ids,
    ]  # fmt: skip


@lru_cache(maxsize=1)
def read_training() -> TrainingTable:
    """The table that ships."""
    machines = read_machines()
    with TRAINING.open(encoding="utf-8", newline="") as stream:
        records = list(csv.DictReader(stream))
    rows = tuple(_observation(record, machines) for record in records)
    return TrainingTable(rows, tuple(float(record["tail"]) for record in records))


def _observation(record: Mapping[str, str], machines: Mapping[str, Machine]) -> Observation:
    point = Point(
        network=network_named(record["name"]),
        machine=machines[record["target"]],
        precision=Precision(record["precision"]),
        scenario=Scenario(record["scenario"]),
        batch=int(record["batch"]),
        source=record["source"],
        year=float(record["year"]),
        copies=record["copies"] == "1",
        dla=record["dla"] == "1",
        fresh=record["fresh"] == "1",
        limit_ms=float(record["limit_ms"]) if record["limit_ms"] else None,
    )
    ids = tuple(_PREFIX + identity for identity in record["ids"].split())
    return Observation(point, math.log(float(record["ms"])), int(record["count"]), ids)


def write_fitted(fitted: Fitted, path: Path = FITTED) -> None:
    """fitted.json."""
    settings = fitted.settings
    document = {
        "constants": {name: round(value, 4) for name, value in asdict(settings.constants).items()},
        "spread": dict(settings.spread),
        "noise": dict(settings.noise),
        "quantiles": {
            key: {str(level): q for level, q in row.items()} for key, row in sorted(fitted.quantiles.items())
        },
    }
    files.write_json(path, document)


@lru_cache(maxsize=1)
def read_fitted() -> Fitted:
    """The settings that ship."""
    document = json.loads(FITTED.read_text(encoding="utf-8"))
    settings = Settings(Constants(**document["constants"]), document["spread"], document["noise"])
    table = {key: {float(level): q for level, q in row.items()} for key, row in document["quantiles"].items()}
    return Fitted(settings, table)


def _csv(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
