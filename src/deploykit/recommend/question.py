"""A question and its answer: evidence, prices and limits put together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from deploykit.base.vocab import Verdict
from deploykit.cost.model import Assumptions, Objective, default_assumptions
from deploykit.cost.quotes import Quote, energy_prices, packaged_quotes
from deploykit.evidence import Evidence, gather
from deploykit.recommend.answer import Flip, Option, Recommendation, Rejected
from deploykit.recommend.rank import Market, rank
from deploykit.recommend.sensitivity import FACTORS, flips
from deploykit.recommend.sla import Sla
from deploykit.recommend.winner import Contest
from deploykit.results.measurement import Measurement
from deploykit.targets.catalog import Catalog
from deploykit.targets.spec import TargetSpec


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        sla: Limits.
        model: Name; empty: the one at hand (see `ask.recommend`).
        model_note: How it was chosen, for the reader; empty where it was given.
        objective: What is cheapest.
        targets: Only these; empty: the whole catalogue.
        strict: Only `meets` may win.
        prices: The user's own; they replace the packaged ones of the devices they name.
        assumed: None: the defaults of `cost.model`.
        today: What stale is measured against; the earliest date: today.
    """

    sla: Sla
    model: str = ""
    model_note: str = ""
    objective: Objective = "monthly"
    targets: tuple[TargetSpec, ...] = ()
    strict: bool = False
    prices: tuple[Quote, ...] = ()
    assumed: Assumptions | None = None
    today: dt.date = dt.date.min


def answer(question: Question, measurements: Sequence[Measurement], catalog: Catalog) -> Recommendation:
    """Answer a question.

    Args:
        question: What is asked.
        measurements: Own and published ones of the model.
        catalog: What there is to deploy on.
    """
    assumed = question.assumed or default_assumptions(question.today, energy_prices())
    market = Market(_quotes(question.prices, catalog), assumed, question.objective)
    evidence = gather(measurements, catalog, precision=question.sla.precision)
    points = question.targets or tuple(catalog.all_points())
    options, rejected = rank(points, evidence, question.sla, market)
    winner = _winner(options, question.strict)
    return Recommendation(
        sla=question.sla,
        model=question.model,
        model_note=question.model_note,
        objective=question.objective,
        winner=winner,
        options=tuple(options),
        rejected=tuple(rejected),
        next_measurement=_next_measurement(question, options, rejected, points),
        sensitivity=tuple(_sensitivity(question, points, evidence, market, winner)),
        assumptions=_in_words(assumed),
    )


def _quotes(own: Sequence[Quote], catalog: Catalog) -> list[Quote]:
    """The user's prices in front; packaged ones of the same devices are left out."""
    named = {quote.device for quote in own}
    keys = {key for file in catalog.files.values() if file.device in named for key in file.price_keys} | named
    return [*own, *(quote for quote in packaged_quotes() if quote.device not in keys)]


def _winner(options: Sequence[Option], strict: bool) -> str | None:
    """The first option that has a price; without any price there is no cheapest."""
    fitting = [o for o in options if o.cost is not None and (not strict or o.verdict is Verdict.MEETS)]
    return fitting[0].target if fitting else None


def _next_measurement(
    question: Question, options: Sequence[Option], rejected: Sequence[Rejected], points: Sequence[TargetSpec]
) -> str | None:
    """The one measurement that would settle most: of a likely winner, else of the best-known unknown."""
    sla = question.sla
    load = f" --latency-ms {sla.latency_ms:g}" if sla.latency_ms else ""
    bench = f"deploykit bench {question.model} --scenario Server{load} --target "
    if options and options[0].verdict is Verdict.LIKELY:
        return f"{bench}{options[0].target}"
    unknown = [found.target for found in rejected if found.verdict is Verdict.UNKNOWN]
    watts = {point.ref: point.power_w for point in points if point.power_w}
    # The smallest device is the cheapest to be wrong about, and the likeliest to beat the winner's price.
    small = sorted((ref for ref in unknown if ref in watts), key=lambda ref: (watts[ref], ref))
    return f"{bench}{small[0]}" if small and not options else None


def _sensitivity(
    question: Question,
    points: Sequence[TargetSpec],
    evidence: dict[str, list[Evidence]],
    market: Market,
    winner: str | None,
) -> list[Flip]:
    if winner is None:
        return []
    tariff = market.assumed.tariff_usd_per_kwh
    contest = Contest(points, evidence, market, tariff * min(FACTORS), question.strict)

    def winner_with(limit: str, value: float) -> str | None:
        return contest.winner(question.sla.model_copy(update={limit: value}), market)

    found: list[Flip] = []
    for quantity in ("fps", "latency_ms"):
        value = getattr(question.sla, quantity)
        if value is not None:
            found += flips(quantity, value, partial(winner_with, quantity))
    return found + flips("tariff_usd_per_kwh", tariff, lambda v: contest.winner(question.sla, _at_tariff(market, v)))


def _at_tariff(market: Market, tariff: float) -> Market:
    return replace(market, assumed=replace(market.assumed, tariff_usd_per_kwh=tariff))


def _in_words(assumed: Assumptions) -> tuple[str, ...]:
    return (
        f"purchase written off over {assumed.life_years:g} years",
        f"host of a bare card ${assumed.host_usd:,.0f} (assumption without a source)",
        f"electricity {assumed.tariff_usd_per_kwh:g} USD/kWh; PUE {assumed.pue:g} in a datacenter, 1 elsewhere",
        "a MIG slice pays for its whole card" if assumed.whole_card else "a MIG slice pays its share of the card",
        "spot prices count" if assumed.spot else "on-demand prices; spot left out",
    )
