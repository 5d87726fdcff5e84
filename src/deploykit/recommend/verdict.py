"""Evidence + SLA → how many units, which latency, and what may be said of it. Pure.

The latency of a request is never the unloaded one: samples arrive at a rate, wait and form batches (`queueing`). Three
readings of the evidence give three answers: the middle of its range, its slow end and its fast end.

    meets     the slow end, with the margin for the queueing model's own error, is within the limit
    likely    the middle is, the slow end is not; or the evidence is of another percentile than the SLA asks for
    unknown   there is no latency to judge by
    fails     even the fast end is not
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from deploykit.base.vocab import Verdict
from deploykit.evidence import Evidence, Figure
from deploykit.recommend import queueing
from deploykit.recommend.queueing import BatchCurve, LoadedLatency
from deploykit.recommend.sla import Sla, percentile_name

MODEL_ERROR = 0.10
"""Of a percentile from the queueing model against LoadGen's Server scenario: what the design allows it."""

MOST_UNITS = 10_000
"""More units than this is no deployment but a wrong question."""


@dataclass(frozen=True)
class Capacity:
    """What one unit holds within the limit: samples/s.

    Attributes:
        bound: With the slow end of the evidence.
        middle: With its middle.
        best: With its fast end.
        direct: A measured load stands behind `bound`, no model.
        same_percentile: The evidence is of the percentile that the SLA asks for.
        curves: Latency against the rate, (middle, slow end); None where only rates are known.
        batch: Largest batch that the model lets form.
        source_note: What it rests on.
    """

    bound: float
    middle: float
    best: float
    direct: bool
    same_percentile: bool
    curves: tuple[LoadedLatency, LoadedLatency] | None
    batch: int | None
    source_note: str


@dataclass(frozen=True)
class Judgement:
    """What is said of one target under an SLA.

    Attributes:
        units: Devices for the asked rate.
        latency_ms: (middle, low, high) at that load; None without a latency limit and curve.
        capacity: Of one unit.
        utilisation: Asked rate over what the units hold.
        why: In a sentence.
    """

    verdict: Verdict
    units: int
    latency_ms: tuple[float, float, float] | None
    capacity: Capacity | None
    utilisation: float | None
    why: str


def judge(evidence: Evidence, sla: Sla) -> Judgement:
    """How a target does under the latency and rate limits."""
    capacity = unit_capacity(evidence, sla.latency_ms, sla.percentile)
    if capacity is None:
        return _judgement(Verdict.UNKNOWN, f"no latency is known that could be held against {sla.describe()}")
    if capacity.middle <= 0 and capacity.bound <= 0:
        return _too_slow(evidence, sla, capacity)
    return _with_units(sla, capacity)


@lru_cache(maxsize=1 << 16)
def unit_capacity(evidence: Evidence, latency_ms: float | None, percentile: float) -> Capacity | None:
    """What one unit holds; None where the evidence does not speak of the limit."""
    if latency_ms is None:
        return _ceiling(evidence)
    modelled = _modelled(evidence, latency_ms, percentile)
    direct = _direct(evidence, latency_ms, percentile)
    if direct is not None and (modelled is None or direct.bound >= modelled.bound):
        return direct
    return modelled


def _ceiling(evidence: Evidence) -> Capacity | None:
    """Without a latency limit: the Offline rate, else the highest load that was held."""
    figure = evidence.ceiling_ips
    if figure is None and evidence.held:
        rate = max(point.rate_ips for point in evidence.held)
        return Capacity(rate, rate, rate, True, True, None, None, "a load that was held")
    if figure is None:
        return None
    note = "Offline rate, no latency limit" + (f", {evidence.ceiling_needs}" if evidence.ceiling_needs else "")
    return Capacity(figure.low, figure.value, figure.high, True, True, None, evidence.ceiling_batch, note)


def _direct(evidence: Evidence, limit_ms: float, share: float) -> Capacity | None:
    """The highest load that was measured within the limit, at this percentile or a higher one."""
    held = [p.rate_ips for p in evidence.held if p.percentile >= share - 1e-9 and p.latency_ms <= limit_ms]
    if not held:
        return None
    rate = max(held)
    return Capacity(rate, rate, rate, True, True, None, None, f"{percentile_name(share)} measured under load")


def _modelled(evidence: Evidence, limit_ms: float, share: float) -> Capacity | None:
    """Latency under load from the batch curve; the ceiling is never exceeded."""
    found = _curves(evidence, share)
    if found is None:
        return None
    (slow, middle, fast), same = found
    loaded = [queueing.loaded_latency(curve, share) for curve in (slow, middle, fast)]
    limits = (limit_ms / (1 + MODEL_ERROR), limit_ms, limit_ms)
    rates = [latency.highest_rate_ips(limit) for latency, limit in zip(loaded, limits, strict=True)]
    if evidence.ceiling_ips is not None and evidence.ceiling_needs is None:
        ceiling = evidence.ceiling_ips
        tops = (ceiling.low, ceiling.value, ceiling.high)
        rates = [min(rate, top * queueing.MAX_UTILISATION) for rate, top in zip(rates, tops, strict=True)]
    batch = len(middle.times())
    return Capacity(
        bound=rates[0],
        middle=rates[1],
        best=rates[2],
        direct=False,
        same_percentile=same,
        curves=(loaded[1], loaded[0]),
        batch=batch,
        source_note=f"queueing model over batches 1 to {batch}" if batch > 1 else "queueing model at batch 1",
    )


def _curves(evidence: Evidence, share: float) -> tuple[tuple[BatchCurve, BatchCurve, BatchCurve], bool] | None:
    """Service time by batch (slow end, middle, fast end), and whether it is of the asked percentile throughout."""
    points: dict[int, Figure] = {}
    same = True
    for batch, by_share in evidence.unloaded_ms.items():
        fitting = [s for s in by_share if s >= share - 1e-9]
        # The lowest percentile that is at least the asked one; where there is none, the highest there is.
        chosen = min(fitting) if fitting else max(by_share)
        same = same and bool(fitting)
        points[batch] = by_share[chosen]
    if not points:
        return None
    points = _rising(points)
    slow = queueing.ordered_points([(batch, figure.high) for batch, figure in points.items()])
    middle = queueing.ordered_points([(batch, figure.value) for batch, figure in points.items()])
    fast = queueing.ordered_points([(batch, figure.low) for batch, figure in points.items()])
    return (slow, middle, fast), same


def _rising(points: dict[int, Figure]) -> dict[int, Figure]:
    """Batches from the smallest known on; a gap before the first is filled by it, which is never too fast."""
    first = min(points)
    return points if first == 1 else {1: points[first], **points}


def _too_slow(evidence: Evidence, sla: Sla, capacity: Capacity) -> Judgement:
    assert sla.latency_ms is not None
    name = percentile_name(sla.percentile)
    idle = capacity.curves[0].idle_ms if capacity.curves else None
    if capacity.best > 0:
        return _judgement(
            Verdict.UNKNOWN, f"{name} {idle:.3g} ms idle is over {sla.latency_ms:g} ms, its fast end is not", capacity
        )
    over = f"{name} is {idle:.3g} ms idle, {idle / sla.latency_ms:.1f} × the limit" if idle else "too slow"
    return _judgement(Verdict.FAILS, f"{over} of {sla.latency_ms:g} ms", capacity)


def _with_units(sla: Sla, capacity: Capacity) -> Judgement:
    sure = capacity.bound > 0 and capacity.same_percentile
    rate = capacity.bound if capacity.bound > 0 else capacity.middle
    fps = sla.fps
    units = queueing.units_for(fps, rate) if fps is not None else 1
    if units > MOST_UNITS:
        return _judgement(Verdict.FAILS, f"{units:,} units for {fps:,g}/s, {rate:,.0f}/s each", capacity)
    share = fps / units if fps is not None else 0.0
    latency = _latency_at(capacity, share)
    verdict = Verdict.MEETS if sure else Verdict.LIKELY
    return Judgement(
        verdict, units, latency, capacity, share / rate if fps is not None else None, _why(sla, capacity, verdict, rate)
    )


def _latency_at(capacity: Capacity, rate_ips: float) -> tuple[float, float, float] | None:
    """The percentile at a unit's share of the load: middle, low, high."""
    if capacity.curves is None:
        return None
    middle, slow = (curve.at(rate_ips) for curve in capacity.curves)
    return middle, middle * (1 - MODEL_ERROR), max(slow, middle) * (1 + MODEL_ERROR)


def _why(sla: Sla, capacity: Capacity, verdict: Verdict, rate: float) -> str:
    held = f"one unit holds {rate:,.0f}/s"
    limit = f" within {sla.latency_ms:g} ms at {percentile_name(sla.percentile)}" if sla.latency_ms else ""
    if verdict is Verdict.MEETS:
        return f"{held}{limit} ({capacity.source_note})"
    if not capacity.same_percentile:
        asked = percentile_name(sla.percentile)
        return f"{held}{limit} by a latency of a lower percentile than {asked} ({capacity.source_note})"
    return f"{held}{limit} by the middle of its range, not by its slow end ({capacity.source_note})"


def _judgement(verdict: Verdict, why: str, capacity: Capacity | None = None) -> Judgement:
    return Judgement(verdict, 0, None, capacity, None, why)
