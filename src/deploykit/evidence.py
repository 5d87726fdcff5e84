"""The evidence ladder: what is known of (model, precision, target), strongest rung first.

    measured    own valid measurements of exactly this model, precision and target
    published   rows that others published for this model and exactly this operating point
    predicted   from a `Predictor`, where one is given
    (nothing)   the target is `unknown`, not guessed

Rungs are never mixed: a figure comes from one of them, with its sources. Several rows of one rung give their median and
the range they span, widened to what rows of one target and model differ by at least.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from deploykit.base.vocab import Precision, Provenance, Scenario
from deploykit.results.measurement import Measurement
from deploykit.targets.catalog import Catalog
from deploykit.targets.published import place
from deploykit.targets.spec import TargetSpec

NOISE = {Scenario.OFFLINE: 0.08, Scenario.SERVER: 0.08, Scenario.SINGLE_STREAM: 0.12, Scenario.MULTI_STREAM: 0.12}
"""Half-width of what a single published figure is worth, as a share.

Rows of one target and model, from other submitters or rounds, deviate from their median by 3.7 % (Offline) and 5.6 %
(SingleStream) on average over 1,340 rows of MLPerf v0.7 to v5.1; of a normal distribution 90 % lie within 2.06 times
the mean deviation.
"""

MEASURED_NOISE = 0.03
"""The same for an own measurement, whose conditions are known."""

_TRANSFERS_LEFT_OUT = ("inputs already in device memory", "host copies left out")


@dataclass(frozen=True)
class Figure:
    """A value and the range it is known to within.

    Attributes:
        value: Median of the rows.
        low: Lower end.
        high: Upper end.
        sources: Citations of the rows.
        remarks: What a reader should know of them.
    """

    value: float
    low: float
    high: float
    sources: tuple[str, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadPoint:
    """A rate that was held, and the latency percentile it was held at.

    Attributes:
        rate_ips: Samples/s of one unit.
        percentile: As a share: 0.99.
        latency_ms: That percentile, or the limit that it stayed within.
        source: Citation.
    """

    rate_ips: float
    percentile: float
    latency_ms: float
    source: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of one model and precision on one target, from one rung.

    Attributes:
        precision: None where the sources do not state it.
        runtime: What executed, where stated.
        unloaded_ms: Batch size → percentile (as a share) → latency of a batch on the idle device.
        ceiling_ips: Rate without a latency limit, and the batch it was reached at.
        ceiling_batch: None where not stated.
        ceiling_needs: What the ceiling used beyond the GPU ("GPU and both DLAs"); such a rate says nothing of batches.
        held: Loads that were held.
        power_w: Watts of the unit itself, where measured; never the whole system's.
    """

    target: str
    precision: Precision | None
    provenance: Provenance
    runtime: str | None
    unloaded_ms: dict[int, dict[float, Figure]]
    ceiling_ips: Figure | None
    ceiling_batch: int | None
    ceiling_needs: str | None
    held: tuple[LoadPoint, ...]
    power_w: float | None

    @property
    def sources(self) -> tuple[str, ...]:
        """Citations of everything in it, each once."""
        figures = [figure for by_share in self.unloaded_ms.values() for figure in by_share.values()]
        figures += [self.ceiling_ips] if self.ceiling_ips else []
        cited = [source for figure in figures for source in figure.sources] + [point.source for point in self.held]
        return tuple(dict.fromkeys(cited))


class Predictor(Protocol):
    """What the rung `predicted` needs."""

    def evidence(self, model: str, spec: TargetSpec, precision: Precision) -> Evidence | None:
        """What is predicted of a target, or None where that would be a guess."""
        ...


def gather(
    measurements: Iterable[Measurement], catalog: Catalog, *, precision: Precision | None = None
) -> dict[str, list[Evidence]]:
    """Evidence by canonical target reference, from the strongest rung that has any for each precision.

    What different runtimes or sources measured stays apart: their figures are not of one thing.

    Args:
        measurements: Own and published ones of one model; invalid ones are passed over.
        catalog: Where published targets are placed.
        precision: Only this one; rows that do not state theirs are then left out.
    """
    rungs: dict[tuple[str, Precision | None], Provenance] = {}
    groups: dict[tuple[str, Precision | None, Provenance, str | None, str], list[Measurement]] = {}
    for row in measurements:
        ref = _ref(row, catalog)
        if not row.valid or ref is None or (precision is not None and row.precision is not precision):
            continue
        key = (ref, row.precision)
        rungs[key] = min(row.provenance, rungs.get(key, row.provenance), key=_STRENGTH.index)
        groups.setdefault((*key, row.provenance, row.runtime, _family(row)), []).append(row)
    found: dict[str, list[Evidence]] = {}
    for (ref, stated, rung, _, _), rows in groups.items():
        if rung is rungs[ref, stated]:
            found.setdefault(ref, []).append(_evidence(ref, stated, rung, rows))
    return {ref: _stated_first(entries) for ref, entries in found.items()}


_STRENGTH = list(Provenance)


def _family(row: Measurement) -> str:
    """Whose way of measuring it is: MLPerf's rules, or those of one project."""
    if row.round and row.round.startswith("MLPerf"):
        return "MLPerf"
    return ":".join(row.source.split(":")[:2])


def _ref(row: Measurement, catalog: Catalog) -> str | None:
    """The operating point that a row is of; None where it names none of ours."""
    return row.target if row.provenance is Provenance.MEASURED else place(row.target, catalog).ref


def _stated_first(entries: list[Evidence]) -> list[Evidence]:
    """Rows of an unstated precision count only where no row states one."""
    stated = [entry for entry in entries if entry.precision is not None]
    return stated or entries


def _evidence(ref: str, precision: Precision | None, rung: Provenance, rows: list[Measurement]) -> Evidence:
    rows = _comparable(rows)
    ceilings = [row for row in rows if row.scenario is Scenario.OFFLINE and row.throughput_ips]
    batches = [row.batch_size for row in ceilings if row.batch_size]
    own_power = [row.power_w for row in rows if row.power_w and row.power_scope in ("module", "board")]
    needs = {row.conditions.get("engines") for row in ceilings} - {None}
    return Evidence(
        target=ref,
        precision=precision,
        provenance=rung,
        runtime=_most_common(row.runtime for row in rows),
        unloaded_ms=_unloaded(rows),
        ceiling_ips=_figure([(row.throughput_ips, row) for row in ceilings], Scenario.OFFLINE),
        ceiling_batch=max(batches) if batches else None,
        ceiling_needs=next(iter(needs), None),
        held=tuple(point for row in rows for point in _load_points(row)),
        power_w=statistics.median(own_power) if own_power else None,
    )


def _comparable(rows: list[Measurement]) -> list[Measurement]:
    """Rows that include host copies and were not served through Triton; all of them where there are no such rows."""
    plain = [
        row
        for row in rows
        if row.conditions.get("harness") is None
        and row.conditions.get("division") is None
        and row.conditions.get("transfers") not in _TRANSFERS_LEFT_OUT
    ]
    return plain or rows


def _unloaded(rows: list[Measurement]) -> dict[int, dict[float, Figure]]:
    """Latencies of batches on an idle device: SingleStream is batch 1, MultiStream batch 8, FixedBatch its own."""
    points: dict[int, dict[float, list[tuple[float | None, Measurement]]]] = {}
    for row in rows:
        batch = 1 if row.scenario is Scenario.SINGLE_STREAM else row.batch_size
        if row.scenario in (Scenario.OFFLINE, Scenario.SERVER) or batch is None or row.streams > 1:
            continue
        for share, value in _percentiles(row):
            points.setdefault(batch, {}).setdefault(share, []).append((value, row))
    return {
        batch: {share: figure for share, found in by_share.items() if (figure := _figure(found, found[0][1].scenario))}
        for batch, by_share in sorted(points.items())
    }


def _percentiles(row: Measurement) -> list[tuple[float, float]]:
    names = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
    return [(share, value) for name, share in names.items() if (value := getattr(row.latency_ms, name)) is not None]


def _load_points(row: Measurement) -> list[LoadPoint]:
    """A Server run held its rate with p99 within the limit; an own one also says which percentiles it had."""
    rate = row.offered_ips or row.throughput_ips
    if row.scenario is not Scenario.SERVER or rate is None:
        return []
    if row.provenance is Provenance.PUBLISHED:
        return [LoadPoint(rate, 0.99, row.latency_bound_ms, row.source)] if row.latency_bound_ms else []
    return [LoadPoint(rate, share, value, row.source) for share, value in _percentiles(row)]


def _figure(found: Sequence[tuple[float | None, Measurement]], scenario: Scenario) -> Figure | None:
    known = [(value, row) for value, row in found if value is not None]
    if not known:
        return None
    values = sorted(value for value, _ in known)
    middle = statistics.median(values)
    measured = known[0][1].provenance is Provenance.MEASURED
    noise = MEASURED_NOISE if measured else NOISE.get(scenario, NOISE[Scenario.SINGLE_STREAM])
    # Of many rows the outermost tenths are left out: one odd submission is no bound on the rest.
    trimmed = len(values) // 10
    low, high = values[trimmed], values[len(values) - 1 - trimmed]
    return Figure(
        value=middle,
        low=min(low, middle * (1 - noise)),
        high=max(high, middle * (1 + noise)),
        sources=tuple(dict.fromkeys(_citation(row) for _, row in known)),
        remarks=tuple(dict.fromkeys(remark for _, row in known for remark in row.remarks)),
    )


def _citation(row: Measurement) -> str:
    return f"{row.round}: {row.source}" if row.round else row.source


def _most_common(words: Iterable[str | None]) -> str | None:
    known = [word for word in words if word]
    return statistics.mode(known) if known else None
