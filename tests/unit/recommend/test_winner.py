"""The winner without a ranking is the ranking's winner, for every question that sensitivity may ask."""

import datetime as dt
from dataclasses import replace

import pytest

from deploykit.base.vocab import Verdict
from deploykit.cost.model import Objective, default_assumptions
from deploykit.cost.quotes import energy_prices, packaged_quotes
from deploykit.evidence import gather
from deploykit.recommend.rank import Market, rank
from deploykit.recommend.sla import Sla
from deploykit.recommend.winner import Contest
from deploykit.results.published import published_measurements
from deploykit.targets.catalog import load_catalog

LIMITS = [(fps, limit) for fps in (5, 333, 20_000) for limit in (None, 0.4, 3, 40)] + [(None, 3)]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("objective", ["monthly", "capex", "cloud"])
@pytest.mark.parametrize("model", ["resnet50", "bert-large-99"])
def test_same_winner_as_the_ranking(model: str, objective: Objective, strict: bool) -> None:
    catalog = load_catalog()
    points = tuple(catalog.all_points())
    evidence = gather(published_measurements(model), catalog)
    assumed = default_assumptions(dt.date(2026, 1, 1), energy_prices())
    market = Market(packaged_quotes(), assumed, objective)
    dear = replace(market, assumed=replace(assumed, tariff_usd_per_kwh=10 * assumed.tariff_usd_per_kwh))
    contest = Contest(points, evidence, market, assumed.tariff_usd_per_kwh, strict)
    winners = set()
    for prices in (market, dear):
        for fps, limit in LIMITS:
            sla = Sla(fps=fps, latency_ms=limit)
            options, _ = rank(points, evidence, sla, prices)
            fitting = [o for o in options if o.cost and (o.verdict is Verdict.MEETS or not strict)]
            expected = fitting[0].target if fitting else None
            assert contest.winner(sla, prices) == expected
            winners.add(expected)
    assert len(winners) > 3
