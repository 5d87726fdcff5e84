"""Measurements as files: JSON that `results import` reads back whole, CSV for spreadsheets (and back)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from deploykit.results.measurement import Latency, Measurement

_NESTED = {"latency_ms": list(Latency.model_fields)}


def as_document(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The JSON of `results list`, `show` and `export`."""
    return {"measurements": [measurement.model_dump(mode="json") for measurement in measurements]}


def as_csv(measurements: Sequence[Measurement]) -> str:
    """One line a measurement; `latency_ms.p50` and so on are columns, other nested values JSON in their cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_columns())
    for measurement in measurements:
        plain = measurement.model_dump(mode="json")
        writer.writerow([_cell(plain, column) for column in _columns()])
    return stream.getvalue()


def _columns() -> list[str]:
    columns: list[str] = []
    for name in Measurement.model_fields:
        columns += [f"{name}.{inner}" for inner in _NESTED[name]] if name in _NESTED else [name]
    return columns


def _cell(plain: dict[str, Any], column: str) -> str:
    head, _, rest = column.partition(".")
    value = plain[head][rest] if rest else plain[head]
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, allow_nan=False) if isinstance(value, list | dict) else str(value)
