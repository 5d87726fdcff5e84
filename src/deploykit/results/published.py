"""What others have measured: the rows in `published/` as measurements of provenance `published`.

A row is read as its source means it, not as its number looks:

    SingleStream    the percentile is p90; p50, mean and p99 only where the log has them
    MultiStream     p99 of a query of eight samples
    Server          a rate that was held with p99 within the benchmark's limit
    Offline         a ceiling: the largest useful batch, no latency limit
    FixedBatch      the statistic that the table names, of one batch without load

Throughput is divided by the accelerators behind it. Power is the whole machine's at the wall, never the GPU's.
A row that measured something else than "this model on this target" is kept, but marked invalid with the reason.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from deploykit.base.data import data_folder
from deploykit.base.vocab import Precision, Provenance, Scenario
from deploykit.results.measurement import Latency, Measurement

_STANDARD_METRIC = {
    "SingleStream": "latency_p90",
    "MultiStream": "latency_p99",
    "Offline": "throughput",
    "Server": "throughput",
}
_MULTI_STREAM_SAMPLES = 8


class PublishedRow(NamedTuple):
    """One published figure, as its source states it. Empty text: not stated.

    Attributes:
        value: Of the whole system: samples/s for throughput, ms for latencies.
        accelerators: GPUs, MIG instances or CPU sockets behind it.
        power_w: Wall power of the whole system.
        figures: Further figures of the source by name (`p50_ms`, `soc_gpu_freq`, `host_memory`).
        remarks: Sentences that say how it was measured.
        round: MLPerf round, release or snapshot.
        source: Repository or page; `path` is the file in it, `original` the submission behind an aggregate.
    """

    id: str
    model: str
    task: str
    input_shape: str
    framework: str
    precision: str
    target: str
    accelerator: str
    accelerators: int
    batch_size: int | None
    scenario: str
    metric: str
    value: float
    latency_bound_ms: float | None
    power_w: float | None
    figures: dict[str, str]
    remarks: tuple[str, ...]
    software: str
    submitter: str
    round: str
    source: str
    system: str
    path: str
    original: str

    @property
    def citation(self) -> str:
        """Where to look it up: the submission itself where the row comes through an aggregate."""
        return self.original.replace(": ", "/", 1) if self.original else f"{self.source}:{self.path}"

    @property
    def throughput_ips(self) -> float | None:
        """Samples/s of one accelerator; None for a latency."""
        return self.value / self.accelerators if self.metric == "throughput" else None


def published_rows(model: str | None = None) -> list[PublishedRow]:
    """Every published row, or those of one model.

    Args:
        model: Name as in the tables (`resnet50`); None for all.
    """
    tables = _tables(data_folder("published"))
    wanted = tables.lines if model is None else tables.lines_of(model)
    return [_row(fields, tables) for fields in csv.reader(wanted)]


def published_models() -> list[str]:
    """Names of the models that have rows."""
    return sorted(_tables(data_folder("published")).models)


@dataclass(frozen=True)
class _Tables:
    lines: list[str]
    runs: dict[str, list[str]]
    texts: dict[str, str]
    models: dict[str, list[str]]

    def lines_of(self, model: str) -> Iterator[str]:
        """Lines that begin with the model's name: it stands first and is never quoted."""
        start = f"{model},"
        return (line for line in self.lines if line.startswith(start))


@lru_cache(maxsize=1)
def _tables(folder: Path) -> _Tables:
    return _Tables(
        lines=(folder / "rows.csv").read_text(encoding="utf-8").splitlines()[1:],
        runs={fields[0]: fields[1:] for fields in _read(folder / "runs.csv")},
        texts=dict(_read(folder / "texts.csv")),
        models={fields[0]: fields[1:] for fields in _read(folder / "models.csv")},
    )


def _read(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.reader(stream)
        next(reader)
        yield from reader


def _row(fields: list[str], tables: _Tables) -> PublishedRow:
    (
        model, target, scenario, metric, precision, batch, accelerators, value, bound, power,
        figures, remarks, run, path, original, task, shape, identity,
    ) = fields  # fmt: skip
    framework, accelerator, software, submitter, round_, source, system, run_path, run_original = tables.runs[run]
    own_task, own_shape = tables.models[model]
    path = tables.texts[path[1:]] if path.startswith("~") else path
    return PublishedRow(
        identity, model, task or own_task, shape or own_shape, framework, precision, target, accelerator,
        int(accelerators or 1), int(batch) if batch else None, scenario, metric or _STANDARD_METRIC[scenario],
        float(value), float(bound) if bound else None, float(power) if power else None,
        dict(part.split("=", 1) for part in figures.split(";")) if figures else {},
        tuple(tables.texts[code] for code in remarks.split()), software, submitter, round_, source, system,
        run_path.replace("*", path.replace("@", scenario)), run_original.replace("*", original.replace("@", scenario)),
    )  # fmt: skip


# --- rows as measurements ---------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """What a condition of a row does to its use.

    Attributes:
        applies: Whether a row has the condition.
        invalid: Not to be recommended from, with the reason; None: usable.
        condition: Name and value under `Measurement.conditions`, so that unlike rows are never pooled.
    """

    applies: Callable[[PublishedRow], bool]
    invalid: str | None = None
    condition: tuple[str, str] | None = None


def _says(*words: str) -> Callable[[PublishedRow], bool]:
    return lambda row: any(word in remark for remark in row.remarks for word in words)


def _dlas_at_work(row: PublishedRow) -> bool:
    """Whether an Offline figure is of the GPU and both DLAs together, as NVIDIA ran resnet50 on Jetsons in all rounds.

    Other models: where the system notes name model and scenario. SingleStream uses the GPU alone.
    """
    if row.scenario != "Offline" or not row.target.startswith(("orin", "xavier")):
        return False
    if row.model == "resnet50":
        return True
    notes = "".join(r for r in row.remarks if r.startswith("GPU and both DLAs")).lower().replace("-", "")
    return bool(notes) and ("used in offline" in notes or row.model.replace("-", "") in notes)


READINGS = (
    Reading(_says("hetero_multi_use"), "the other slices of the card ran other benchmarks meanwhile"),
    Reading(lambda row: row.target.endswith("@maxq"), "MaxQ is no one mode: clocks differ by round and scenario"),
    Reading(_says("2:4 sparse weights"), "sparse weights: another model than the dense one"),
    Reading(lambda row: row.precision == "int4", "int4 weights are not built here"),
    Reading(_says("whole inference library path", "full pipeline", "whole pipeline"), "times more than the network"),
    Reading(_says("CPU not named on the page"), "the device is not named"),
    Reading(_says("served through Triton"), condition=("harness", "Triton")),
    Reading(_says("start_from_device"), condition=("transfers", "inputs already in device memory")),
    Reading(_says("host copies not in", "host transfers not included", "no host copy"),
            condition=("transfers", "host copies left out")),
    Reading(_says("open division"), condition=("division", "open")),
    Reading(_dlas_at_work, condition=("engines", "GPU and both DLAs")),
)  # fmt: skip
"""How the caveats of the sources are read. The rest of a row's sentences become remarks."""

_AUTOCAST = "amp"


def measurement_from_row(row: PublishedRow) -> Measurement:
    """A published row in the shape that everything else uses, with its caveats applied."""
    readings = [reading for reading in READINGS if reading.applies(row)]
    reasons = tuple(reading.invalid for reading in readings if reading.invalid)
    return Measurement(
        id=f"published:{row.id}",
        model=row.model,
        precision=_precision(row.precision),
        target=row.target,
        runtime=row.framework or None,
        scenario=Scenario(row.scenario),
        batch_size=_samples_a_query(row),
        accelerators=row.accelerators,
        latency_ms=_latency(row),
        latency_bound_ms=row.latency_bound_ms,
        throughput_ips=row.throughput_ips,
        power_w=row.power_w,
        power_scope="system" if row.power_w else None,
        device={"name": row.accelerator, "system": row.system},
        conditions=_conditions(row, readings),
        valid=not reasons,
        invalid_reasons=reasons,
        remarks=_remarks(row),
        provenance=Provenance.PUBLISHED,
        source=row.citation,
        round=row.round or None,
    )


def published_measurements(model: str | None = None) -> list[Measurement]:
    """Published rows as measurements; see `published_rows`."""
    return [measurement_from_row(row) for row in published_rows(model)]


@lru_cache(maxsize=8)
def server_bound_ms(model: str) -> float | None:
    """The p99 limit of a model's MLPerf Server scenario, as found in the logs that state one.

    Aggregated rounds leave the limit out; the benchmark's rules give one to a model, the same in every round.
    """
    return next((row.latency_bound_ms for row in published_rows(model) if row.latency_bound_ms is not None), None)


def _precision(text: str) -> Precision | None:
    """The lowest of the types that a row names, since that is what the bulk runs in; None: none of ours."""
    named = set(text.split(","))
    order = (Precision.INT8, Precision.FP8, Precision.FP16, Precision.BF16, Precision.TF32, Precision.FP32)
    return Precision.FP16 if text == _AUTOCAST else next((p for p in order if p.value in named), None)


def _samples_a_query(row: PublishedRow) -> int | None:
    return _MULTI_STREAM_SAMPLES if row.scenario == "MultiStream" else row.batch_size


def _latency(row: PublishedRow) -> Latency:
    known = {name: float(row.figures[f"{name}_ms"]) for name in ("mean", "p50", "p90", "p95", "p99")
             if f"{name}_ms" in row.figures}  # fmt: skip
    if row.metric.startswith("latency_"):
        known[row.metric.removeprefix("latency_")] = row.value
    return Latency(**known)


def _conditions(row: PublishedRow, readings: Iterable[Reading]) -> dict[str, Any]:
    found: dict[str, Any] = {reading.condition[0]: reading.condition[1] for reading in readings if reading.condition}
    facts = {"software": row.software, "submitter": row.submitter, "task": row.task, "input_shape": row.input_shape}
    return {name: value for name, value in facts.items() if value} | found | {k: v for k, v in row.figures.items()
            if k not in ("p50_ms", "mean_ms", "p90_ms", "p95_ms", "p99_ms")}  # fmt: skip


def _remarks(row: PublishedRow) -> tuple[str, ...]:
    found = list(row.remarks)
    if row.accelerators > 1 and row.metric == "throughput":
        found.insert(0, f"one of {row.accelerators} accelerators' share of the system's figure")
    if "," in row.precision:
        found.insert(0, f"weights are {row.precision}")
    if row.precision == _AUTOCAST:
        found.insert(0, "autocast: FP16 and FP32 mixed")
    return tuple(found)
