"""Result files of other tools, as rows in our words. Values are not judged here: `importing.py` does that.

Known by their content: our own JSON and CSV, MLPerf summary and detail logs, trtexec's exported times, perf_analyzer's
tables, optimum-benchmark's reports. Any other JSON object or CSV table is read by the names of its fields.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deploykit.base.errors import UsageError
from deploykit.results.measurement import Latency
from deploykit.results.named_figures import MS_PER_UNIT, NamedFigure, Per, named_figure

Summarise = Callable[["np.ndarray[Any, Any]"], Latency]
"""Latencies in ms → figures. Passed in: statistics of samples live with the bench."""

_LOG_MARK = ":::MLLOG "
_QPS_WITH = re.compile(r"qps[ _](w/|with)[ _]", re.IGNORECASE)
_QPS_WITHOUT = re.compile(r"qps[ _](w/o|without)[ _]", re.IGNORECASE)
_P99_ESTIMATE = "Early stopping 99.0th percentile estimate"
_FACTS = {
    "model": "model", "model_name": "model", "network": "model",
    "target": "target", "device": "target", "gpu": "target",
    "precision": "precision", "dtype": "precision",
    "batch": "batch_size", "batch_size": "batch_size", "batchsize": "batch_size", "samples_per_query": "batch_size",
    "streams": "streams", "concurrency": "streams",
    "scenario": "scenario", "runtime": "runtime", "format": "runtime", "backend": "runtime",
    "date": "date", "power_w": "power_w",
}  # fmt: skip
"""Field of a foreign file, its last name in lower case with `_` → ours."""


@dataclass
class Row:
    """One measurement as a file states it.

    Attributes:
        where: Place in the file, for messages.
        fields: Fields of `Measurement` by name, as read.
        rate: Stated throughput as (value, what it counts), where it is not yet samples/s.
        own: A whole record that some deploykit wrote, with its id.
        remarks: What the reader had to decide.
    """

    where: str
    fields: dict[str, Any]
    rate: tuple[float, Per] | None = None
    own: bool = False
    remarks: list[str] = field(default_factory=list)


def read_rows(name: str, text: str, *, latency_unit: str | None, summarise: Summarise) -> tuple[str, list[Row]]:
    """What a file holds, and the tool that wrote it.

    Args:
        name: Of the file, for messages and to tell tables by their ending.
        text: Its content.
        latency_unit: Of latencies that the file gives no unit for.
        summarise: Turns latency samples into figures.

    Raises:
        UsageError: It is cut, empty, or nothing in it is a latency or a rate.
    """
    stripped = text.lstrip("\ufeff").strip()
    if not stripped:
        raise UsageError("the file is empty")
    if stripped.startswith(_LOG_MARK):
        return "MLPerf detail log", [_mlperf_row(_detail_facts(stripped), latency_unit)]
    if stripped[0] in "{[":
        return _json_rows(stripped, latency_unit, summarise)
    if name.lower().endswith((".csv", ".tsv")):
        return _table_rows(stripped, latency_unit)
    return "MLPerf summary", [_mlperf_row(_summary_facts(stripped), latency_unit)]


def _json_rows(text: str, unit: str | None, summarise: Summarise) -> tuple[str, list[Row]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"it is no whole JSON document ({error}): was it cut while being written?") from error
    if isinstance(document, dict) and isinstance(document.get("measurements"), list):
        return "deploykit", [_our_row(f"measurements[{i}]", row) for i, row in enumerate(document["measurements"])]
    if isinstance(document, dict) and ("latency_ms" in document or "throughput_ips" in document):
        return "deploykit", [_our_row("", document)]
    if isinstance(document, list):
        return _json_list(document, unit, summarise)
    if isinstance(document.get("report"), dict):
        return "optimum-benchmark", [_optimum_row(document, unit)]
    return "names of its fields", [_named_row("", list(_leaves(document)), unit)]


def _json_list(document: list[Any], unit: str | None, summarise: Summarise) -> tuple[str, list[Row]]:
    if not document or not all(isinstance(item, dict) for item in document):
        raise UsageError("a JSON list must hold objects, one a measurement or one an inference")
    if "computeMs" in document[0] and "latencyMs" in document[0]:
        return "trtexec", [_trtexec_row(document, summarise)]
    return "names of its fields", [_named_row(f"[{i}]", list(_leaves(item)), unit) for i, item in enumerate(document)]


def _our_row(where: str, row: Any) -> Row:
    if not isinstance(row, dict):
        raise UsageError(f"{where} is {row!r}, not an object")
    return Row(where, row, own="id" in row and row.get("version") == 1)


def _trtexec_row(times: list[dict[str, Any]], summarise: Summarise) -> Row:
    """`trtexec --exportTimes`: one object an inference, all in ms since the start."""
    try:
        latencies = np.array([float(t["latencyMs"]) for t in times])
        compute = np.array([float(t["computeMs"]) for t in times])
        start = min(float(t.get("startH2dMs", t.get("startComputeMs", 0.0))) for t in times)
        end = max(float(t.get("endD2hMs", t.get("endComputeMs", 0.0))) for t in times)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"a time of trtexec is missing or no number: {error}") from error
    copies = any(float(t.get("h2dMs", 0.0)) > 0 for t in times)
    fields = {
        "latency_ms": summarise(latencies).model_dump(exclude_none=True),
        "runtime": "tensorrt",
        "queries": len(times),
        "duration_s": (end - start) / 1e3 if end > start else None,
        "conditions": {
            "transfers": "host" if copies else "none",
            "gpu_compute_ms": {"p50": float(np.median(compute)), "mean": float(compute.mean())},
        },
    }
    rate: tuple[float, Per] | None = (len(times) / (end - start) * 1e3, "query") if end > start else None
    return Row("", fields, rate)


def _optimum_row(document: dict[str, Any], unit: str | None) -> Row:
    """optimum-benchmark: `report` holds one section a phase, each with latencies; only inference is a measurement."""
    phase = next((p for p in ("forward", "call") if p in document["report"]), None)
    if phase is None:
        known = ", ".join(document["report"])
        raise UsageError(f"report has {known}, but no forward or call: only those are inferences of a fixed size")
    row = _named_row(f"report.{phase}", list(_leaves(document["report"][phase])), unit)
    facts = {path: value for path, value, _ in _leaves(document.get("config", {}))}
    for path, ours in (
        ("backend.model", "model"), ("backend.name", "runtime"), ("scenario.input_shapes.batch_size", "batch_size")
    ):  # fmt: skip
        if facts.get(path) is not None:
            row.fields[ours] = facts[path]
    return row


def _table_rows(text: str, unit: str | None) -> tuple[str, list[Row]]:
    delimiter = next((sign for sign in (";", "\t") if sign in text.splitlines()[0]), ",")
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter, restkey="", strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise UsageError(f"it is no whole CSV table ({error})") from error
    names = list(reader.fieldnames or [])
    for number, line in enumerate(lines, start=2):
        if "" in line or None in line.values():
            raise UsageError(f"line {number} has not the {len(names)} columns of the first line: was it cut?")
    if "model" in names and "target" in names and ("id" in names or "throughput_ips" in names):
        return "deploykit", [_our_row(f"line {n}", _nested(line)) for n, line in enumerate(lines, start=2)]
    tool, unit = _table_tool(names, unit)
    rows = [_named_row(f"line {n}", _cells(line, delimiter), unit) for n, line in enumerate(lines, start=2)]
    return tool, rows


def _table_tool(names: list[str], unit: str | None) -> tuple[str, str | None]:
    """perf_analyzer's header gives no unit: its latencies are microseconds (its docs/measurements_metrics.md)."""
    if "Inferences/Second" in names and "Client Send" in names:
        return "perf_analyzer", "us"
    return "names of its fields", unit


def _cells(line: dict[str, str], delimiter: str) -> list[tuple[str, Any, str | None]]:
    return [(name, _number(cell, delimiter), None) for name, cell in line.items() if cell.strip()]


def _number(cell: str, delimiter: str) -> Any:
    """A cell's number where it is one. A table between semicolons may write 2,5 for 2.5."""
    text = cell.strip()
    try:
        return float(text.replace(",", ".") if delimiter == ";" and text.count(",") == 1 else text)
    except ValueError:
        return text


def _nested(line: dict[str, str]) -> dict[str, Any]:
    """Our CSV: `latency_ms.p50` is a field of an object; objects and lists are JSON in their cell."""
    found: dict[str, Any] = {}
    for name, cell in line.items():
        if cell == "":
            continue
        head, _, rest = name.partition(".")
        value = json.loads(cell) if cell[0] in "[{" or name == "version" else cell
        if rest:
            found.setdefault(head, {})[rest] = value
        else:
            found[head] = value
    return found


def _summary_facts(text: str) -> dict[str, str]:
    """`name : value` lines of an MLPerf summary, the first of each name."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            facts.setdefault(name.strip(" *"), value.strip())
    return facts


def _detail_facts(text: str) -> dict[str, Any]:
    """Keys of an MLPerf detail log, named as the summary names them where both have them."""
    facts: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith(_LOG_MARK):
            continue
        try:
            entry = json.loads(line[len(_LOG_MARK) :])
            facts[entry["key"]] = entry["value"]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"line {number} is no whole log entry ({error}): was it cut?") from error
    if "result_validity" not in facts:
        raise UsageError("the log holds no result_validity: the run did not end")
    named = {name.removeprefix("result_"): value for name, value in facts.items() if name.startswith("result_")}
    named["Scenario"] = facts.get("effective_scenario", facts.get("requested_scenario"))
    named["samples_per_query"] = facts.get("generated_samples_per_query")
    named["Result is"] = facts["result_validity"]
    return named


def _mlperf_row(facts: dict[str, Any], unit: str | None) -> Row:
    scenario = facts.get("Scenario")
    scenario = scenario.replace(" ", "") if isinstance(scenario, str) else None
    leaves: list[tuple[str, Any, str | None]] = [(name, _plain_number(value), None) for name, value in facts.items()]
    # In Offline a latency is how long the whole queue took to reach a sample, and a query is all samples.
    kept = [leaf for leaf in leaves if not (scenario == "Offline" and _is_latency_or_batch(leaf[0]))]
    row = _named_row("", _without_second_qps(kept), unit)
    if scenario:
        row.fields["scenario"] = scenario
    if _P99_ESTIMATE in facts:
        row.fields["latency_ms"]["p99_upper"] = float(facts[_P99_ESTIMATE]) * MS_PER_UNIT["ns"]
    if str(facts.get("Result is", "VALID")) != "VALID":
        row.fields |= {"valid": False, "invalid_reasons": ["LoadGen calls the run INVALID"]}
    return row


def _is_latency_or_batch(name: str) -> bool:
    return "latency" in name.lower() or name == "samples_per_query"


def _without_second_qps(leaves: list[tuple[str, Any, str | None]]) -> list[tuple[str, Any, str | None]]:
    """QPS stands there twice; the one with LoadGen's overhead is queries over wall time."""
    both = any(_QPS_WITH.match(name) for name, _, _ in leaves)
    return [leaf for leaf in leaves if not (both and _QPS_WITHOUT.match(leaf[0]))]


def _plain_number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _leaves(value: Any, path: str = "", unit: str | None = None) -> Iterator[tuple[str, Any, str | None]]:
    """Every plain value with its dotted path and the `unit` that stands beside it."""
    if isinstance(value, dict):
        beside = value.get("unit") if isinstance(value.get("unit"), str) else unit
        for key, inner in value.items():
            if key != "unit":
                yield from _leaves(inner, f"{path}.{key}" if path else str(key), beside)
    elif not isinstance(value, list):
        yield path, value, unit


def _named_row(where: str, leaves: list[tuple[str, Any, str | None]], default_unit: str | None) -> Row:
    """A row from fields that say themselves what they are.

    Raises:
        UsageError: Two fields give one figure differently, or there is no latency and no rate at all.
    """
    row = Row(where, {"latency_ms": {}})
    taken: dict[str, tuple[str, float]] = {}
    for path, value, unit in leaves:
        key = path.rpartition(".")[2].lower().replace(" ", "_")
        if key in _FACTS and value is not None:
            row.fields[_FACTS[key]] = int(value) if isinstance(value, float) and value.is_integer() else value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            figure = named_figure(path, unit, default_unit)
            if figure is not None:
                _take(row, taken, figure, path, float(value))
    if not taken:
        raise UsageError(f"{where or 'the file'} names no latency and no rate that deploykit understands")
    return row


def _take(row: Row, taken: dict[str, tuple[str, float]], figure: NamedFigure, path: str, value: float) -> None:
    scaled = value * figure.factor
    before = taken.setdefault(figure.statistic, (path, scaled))
    if before[1] != scaled:
        raise UsageError(f"{before[0]!r} and {path!r} both give {figure.statistic}, as {before[1]:g} and {scaled:g}")
    if figure.per is not None:
        row.rate = (scaled, figure.per)
    else:
        row.fields["latency_ms"][figure.statistic] = scaled
