"""Files of measurements into the store: each file whole or not at all, each measurement once.

What a file does not say is said by the user (`Stated`) or stays unknown. What it says wrongly is refused by file, field
and value; what it says improbably is stored as invalid, with the doubt as the reason.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.base.vocab import Provenance, Scenario
from deploykit.results.foreign import Row, Summarise, read_rows
from deploykit.results.measurement import Measurement
from deploykit.results.plausible import batches_in_flight, doubts
from deploykit.results.store import Store, measurement_id

_TYPING_SLIP = 0.84
"""Similarity from which an unknown field counts as a mistyped one of ours."""
_ROUNDED_TO = 0.2
"""How far rate × latency may be from the streams for one reading of `Inferences/Second` to be taken."""
_RENAMED = {"host_copies": "transfers"}
_HOST_COPIES = {True: "host", False: "none"}


@dataclass(frozen=True)
class Stated:
    """What the user says of files that leave it out. None: nothing.

    Attributes:
        latency_unit: `ns`, `us`, `ms` or `s`.
        source: Citation; None: the file and the tool that wrote it.
    """

    model: str | None = None
    target: str | None = None
    precision: str | None = None
    scenario: str | None = None
    batch_size: int | None = None
    streams: int | None = None
    runtime: str | None = None
    provenance: Provenance | None = None
    source: str | None = None
    latency_unit: str | None = None


@dataclass(frozen=True)
class ImportedFile:
    """What became of one file.

    Attributes:
        path: The file.
        tool: What wrote it, as far as its shape tells.
        measurements: Those in it.
        added: How many of them the store did not have.
        error: Why nothing of it was stored, or None.
    """

    path: Path
    tool: str | None = None
    measurements: tuple[Measurement, ...] = ()
    added: int = 0
    error: str | None = None


def import_files(
    store: Store, paths: Sequence[Path], stated: Stated, *, summarise: Summarise, now: dt.datetime
) -> list[ImportedFile]:
    """Store what files hold. A bad one is reported and the others go on.

    Args:
        store: Where to.
        paths: Files.
        stated: What they leave out.
        summarise: Latency samples → figures.
        now: To tell dates that lie in the future.
    """
    return [_import_file(store, path, stated, summarise, now) for path in paths]


def _import_file(store: Store, path: Path, stated: Stated, summarise: Summarise, now: dt.datetime) -> ImportedFile:
    try:
        tool, measurements = read_measurements(path, stated, summarise=summarise, now=now)
    except UsageError as error:
        return ImportedFile(path, error=str(error))
    return ImportedFile(path, tool, tuple(measurements), store.append(measurements))


def read_measurements(
    path: Path, stated: Stated, *, summarise: Summarise, now: dt.datetime
) -> tuple[str, list[Measurement]]:
    """The measurements of a file, and the tool that wrote it.

    Raises:
        UsageError: Unreadable, or wrong in one field; names file, field and value.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tool, rows = read_rows(path.name, text, latency_unit=stated.latency_unit, summarise=summarise)
        return tool, [_measurement(row, tool, path, stated, now) for row in rows]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _measurement(row: Row, tool: str, path: Path, stated: Stated, now: dt.datetime) -> Measurement:
    values = _with_stated(row, stated)
    values.setdefault("source", stated.source or f"{path.name} ({tool})")
    values["target"] = _target(values, row)
    if not row.own:
        values.setdefault("scenario", Scenario.FIXED_BATCH.value)
        values["id"] = "not known yet"
    made = _validated(_others_to_conditions(values, row), row)
    if row.own:
        return made
    flagged = _flagged(_with_rate(made, row), now)
    # Without the source, which may be no more than the file's name: a copy of a file holds nothing new.
    document = flagged.model_dump(mode="json", exclude_defaults=True, exclude={"source"})
    return flagged.model_copy(update={"id": measurement_id(document)})


def _with_stated(row: Row, stated: Stated) -> dict[str, Any]:
    """The row's fields and the user's words; one may not contradict the other."""
    values = {name: value for name, value in row.fields.items() if value is not None}
    for field in fields(stated):
        said = getattr(stated, field.name)
        if said is None or field.name in ("latency_unit", "source"):
            continue
        there = values.setdefault(field.name, said)
        if str(there) != str(said):
            option = "--" + field.name.replace("_", "-")
            raise UsageError(f"{_at(row, field.name)} is {there!r}, and {option} says {str(said)!r}")
    for name in ("model", "target"):
        if not values.get(name):
            raise UsageError(f"{row.where or 'the file'} names no {name}: give it with --{name}")
    return values


def _target(values: dict[str, Any], row: Row) -> str:
    """The canonical reference. A board whose mode nobody states is not taken to be in its default one."""
    from deploykit.targets.catalog import load_catalog
    from deploykit.targets.ref import parse_ref

    text, catalog = str(values["target"]), load_catalog()
    try:
        spec = catalog.resolve(text)
    except UnknownNameError:
        if row.own:  # measured on a target of the user's own file, which need not be here
            return text
        raise
    named = parse_ref(text)
    if spec.mode_name and named.mode is None and "@" not in catalog.aliases.get(named.device, ""):
        modes = ", ".join(spec.device.power_modes)
        raise UsageError(f"{_at(row, 'target')} = {text!r} leaves the power mode open: write {text}@MODE ({modes})")
    return spec.ref


def _others_to_conditions(values: dict[str, Any], row: Row) -> dict[str, Any]:
    """Fields that are not ours become conditions, unless they look like a slip of the keyboard."""
    known = Measurement.model_fields
    others = {name: value for name, value in values.items() if name not in known}
    for name in others:
        if close := difflib.get_close_matches(name, known, n=1, cutoff=_TYPING_SLIP):
            raise UsageError(f"{_at(row, name)} = {others[name]!r}: no such field; is it {close[0]}?")
    conditions = dict(values.get("conditions") or {})
    for name, value in others.items():
        conditions[_RENAMED.get(name, name)] = _HOST_COPIES.get(value, value) if name == "host_copies" else value
    kept = {name: value for name, value in values.items() if name in known}
    return kept | ({"conditions": conditions} if conditions else {})


def _validated(values: dict[str, Any], row: Row) -> Measurement:
    try:
        return Measurement.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "the row"
        shown = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{_at(row, name)}{shown}: {message}") from error


def _with_rate(made: Measurement, row: Row) -> Measurement:
    """The stated rate in samples/s."""
    if row.rate is None or made.throughput_ips is not None:
        return made
    value, per = row.rate
    if value <= 0:
        raise UsageError(f"{_at(row, 'throughput')} = {value:g}: a rate is above 0")
    as_samples = made.model_copy(update={"throughput_ips": value})
    if per == "sample":
        return as_samples
    if made.batch_size is None:
        raise UsageError(f"{_at(row, 'throughput')} counts whole batches and no batch size is known: --batch-size")
    as_batches = made.model_copy(update={"throughput_ips": value * made.batch_size})
    return as_batches if per == "query" or made.batch_size == 1 else _fitting(as_samples, as_batches)


def _fitting(as_samples: Measurement, as_batches: Measurement) -> Measurement:
    """`Inferences/Second` counts samples in some tables and requests in others: the latency tells which.

    A closed loop keeps as many batches in flight as it has streams (Little's law); the two readings differ by the batch
    size. Where neither fits the reading as samples stands, and `doubts` will say so.
    """
    fits = [m for m in (as_samples, as_batches) if abs((batches_in_flight(m) or 0) / m.streams - 1) <= _ROUNDED_TO]
    if fits != [as_batches]:
        return as_samples
    remark = "Inferences/Second was read as requests: only then rate and latency fit the streams (Little's law)"
    return as_batches.model_copy(update={"remarks": (*as_batches.remarks, remark)})


def _flagged(made: Measurement, now: dt.datetime) -> Measurement:
    reasons = doubts(made, now)
    if not reasons:
        return made
    return made.model_copy(update={"valid": False, "invalid_reasons": (*made.invalid_reasons, *reasons)})


def _at(row: Row, name: str) -> str:
    return f"{row.where}.{name}" if row.where else name
