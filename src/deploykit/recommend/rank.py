"""Every target of the catalogue, judged, priced and ordered. Pure but for the catalogue and prices it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deploykit.base.units import format_usd
from deploykit.base.vocab import Confidence, Provenance, Verdict
from deploykit.cost.model import Assumptions, Cost, Objective, costs
from deploykit.cost.quotes import Quote, quotes_for
from deploykit.evidence import Evidence
from deploykit.recommend.answer import Interval, Option, Rejected
from deploykit.recommend.sla import Sla, percentile_name
from deploykit.recommend.verdict import Capacity, Judgement, judge
from deploykit.targets.spec import TargetSpec

_ORDER = {Verdict.MEETS: 0, Verdict.LIKELY: 1}
_CONFIDENCE = {Provenance.MEASURED: Confidence.HIGH, Provenance.PUBLISHED: Confidence.MEDIUM}


@dataclass(frozen=True)
class Market:
    """What things cost.

    Attributes:
        quotes: All there are.
        assumed: What no price list says.
        objective: What is cheapest: a month all in, the purchase, or renting.
    """

    quotes: Sequence[Quote]
    assumed: Assumptions
    objective: Objective


def rank(
    points: Iterable[TargetSpec], evidence: Mapping[str, Sequence[Evidence]], sla: Sla, market: Market
) -> tuple[list[Option], list[Rejected]]:
    """The options, best first, and every other target with its reason.

    Args:
        points: Operating points to look at.
        evidence: By canonical reference.
        sla: Limits.
        market: Prices.
    """
    options: list[Option] = []
    rejected: list[Rejected] = []
    for spec in points:
        found = best(spec, evidence.get(spec.ref, ()), sla, market)
        (options if isinstance(found, Option) else rejected).append(found)  # type: ignore[arg-type]
    return sorted(options, key=lambda option: sort_key(option, market.objective)), rejected


def best(spec: TargetSpec, entries: Sequence[Evidence], sla: Sla, market: Market) -> Option | Rejected:
    """A target's best way to run the model, or the reason of the one that came closest."""
    if not entries:
        return Rejected(target=spec.ref, verdict=Verdict.UNKNOWN, why="nobody measured or published this model on it")
    looked_at = [_look(spec, entry, sla, market) for entry in entries]
    options = [found for found in looked_at if isinstance(found, Option)]
    if options:
        return min(options, key=lambda option: sort_key(option, market.objective))
    failed = [found for found in looked_at if isinstance(found, Rejected)]
    return min(failed, key=lambda found: found.verdict is not Verdict.UNKNOWN)


def _look(spec: TargetSpec, entry: Evidence, sla: Sla, market: Market) -> Option | Rejected:
    judgement = judge(entry, sla)
    if judgement.verdict not in _ORDER or judgement.capacity is None:
        precision = f"{entry.precision or 'unstated precision'}"
        return Rejected(target=spec.ref, verdict=judgement.verdict, why=f"{precision}: {judgement.why}")
    quotes = quotes_for(spec.device.device, spec.device.price_keys, market.quotes)
    priced = costs(spec, judgement.units, quotes, market.assumed, rate_ips=sla.fps, power_w=entry.power_w)
    watts = _watts(spec, judgement.units, entry)
    return _within_limits(spec, sla, priced, watts) or _option(
        spec, entry, sla, judgement, judgement.capacity, priced, watts, market
    )


def _watts(spec: TargetSpec, units: int, entry: Evidence) -> float | None:
    """Of all units: measured, else the target's limit; a slice draws its share."""
    one = entry.power_w if entry.power_w is not None else spec.power_w
    return None if one is None else one * units * spec.share_of_device


def _within_limits(spec: TargetSpec, sla: Sla, priced: Sequence[Cost], watts: float | None) -> Rejected | None:
    """Limits on power and money; one that the data cannot answer is no pass."""
    if sla.power_w is not None:
        if watts is None:
            return Rejected(target=spec.ref, verdict=Verdict.UNKNOWN, why="its power is not known")
        if watts > sla.power_w:
            return Rejected(
                target=spec.ref, verdict=Verdict.FAILS, why=f"power {watts:,.0f} W is over {sla.power_w:,g} W"
            )
    if sla.budget_usd is not None:
        purchases = [cost.capex_usd for cost in priced if cost.capex_usd is not None]
        if not purchases:
            return Rejected(target=spec.ref, verdict=Verdict.UNKNOWN, why="its purchase price is not known")
        if min(purchases) > sla.budget_usd:
            why = f"purchase {format_usd(min(purchases))} is over the budget of {format_usd(sla.budget_usd)}"
            return Rejected(target=spec.ref, verdict=Verdict.FAILS, why=why)
    return None


def _option(
    spec: TargetSpec,
    entry: Evidence,
    sla: Sla,
    judgement: Judgement,
    capacity: Capacity,
    priced: Sequence[Cost],
    watts: float | None,
    market: Market,
) -> Option:
    cost = chosen(priced, market.objective)
    return Option(
        target=spec.ref,
        name=spec.device.name,
        units=judgement.units,
        precision=entry.precision,
        runtime=entry.runtime,
        batch_size=capacity.batch,
        latency_ms=_interval(judgement.latency_ms),
        percentile=percentile_name(sla.percentile),
        throughput_ips=Interval(
            value=capacity.middle or capacity.bound,
            low=capacity.bound or capacity.middle,
            high=max(capacity.best, capacity.middle, capacity.bound),
        ),
        utilisation=judgement.utilisation,
        power_w=watts,
        cost=cost,
        other_costs=tuple(other for other in priced if other is not cost),
        provenance=entry.provenance,
        confidence=_confidence(entry, judgement),
        verdict=judgement.verdict,
        sources=entry.sources,
        remarks=_remarks(entry, spec),
        why=judgement.why,
    )


def _interval(latency: tuple[float, float, float] | None) -> Interval | None:
    return None if latency is None else Interval(value=latency[0], low=latency[1], high=latency[2])


def _confidence(entry: Evidence, judgement: Judgement) -> Confidence:
    if judgement.verdict is Verdict.LIKELY or entry.precision is None:
        return Confidence.LOW
    return _CONFIDENCE.get(entry.provenance, Confidence.LOW)


def _remarks(entry: Evidence, spec: TargetSpec) -> tuple[str, ...]:
    figures = [figure for by_share in entry.unloaded_ms.values() for figure in by_share.values()]
    figures += [entry.ceiling_ips] if entry.ceiling_ips else []
    found = [remark for figure in figures for remark in figure.remarks]
    if entry.precision is None:
        found.insert(0, "the sources do not state the precision")
    if spec.unverified:
        found.append(f"figures of the target without a source: {', '.join(spec.unverified)}")
    return tuple(dict.fromkeys(found))


def chosen(priced: Sequence[Cost], objective: Objective) -> Cost | None:
    """The way to pay that the objective asks for; None where no price is known for it."""
    wanted = {
        "monthly": priced,
        "capex": [c for c in priced if c.basis == "own"],
        "cloud": [c for c in priced if c.basis == "rent"],
    }
    return min(wanted[objective], key=lambda cost: amount(cost, objective), default=None)


def amount(cost: Cost, objective: Objective) -> float:
    """USD that the objective compares."""
    return cost.capex_usd if objective == "capex" and cost.capex_usd is not None else cost.monthly_usd


def sort_key(option: Option, objective: Objective) -> tuple[int, bool, float, int, float, str]:
    """Sure before likely, priced before unpriced, then the cheapest, the fewest, the least busy; last the name."""
    usd = amount(option.cost, objective) if option.cost else 0.0
    spare = option.utilisation or 0.0
    return _ORDER[option.verdict], option.cost is None, usd, option.units, spare, option.target
