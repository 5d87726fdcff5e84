"""The whole ladder on measurements made here: what wins, what fails, what is unknown, and why."""

import datetime as dt
from pathlib import Path

import pytest

from deploykit.base.errors import UnknownNameError
from deploykit.base.vocab import Precision, Provenance, Scenario, Verdict
from deploykit.cost.quotes import Quote
from deploykit.recommend import Question, recommend
from deploykit.recommend.answer import Recommendation
from deploykit.recommend.question import answer
from deploykit.recommend.sla import Sla
from deploykit.results.measurement import Latency, Measurement
from deploykit.targets.catalog import load_catalog

TODAY = dt.date(2026, 12, 1)


def single_stream(target: str, p99: float, **fields: object) -> Measurement:
    return Measurement.model_validate(
        {
            "id": f"{target}-{p99}",
            "model": "net",
            "target": target,
            "precision": Precision.INT8,
            "scenario": Scenario.SINGLE_STREAM,
            "batch_size": 1,
            "latency_ms": Latency(p50=p99 * 0.9, p99=p99),
            "provenance": Provenance.MEASURED,
            "source": f"run on {target}",
        }
        | fields
    )


def price(device: str, amount: float) -> Quote:
    return Quote(
        sku=device, kind="capex", device=device, amount=amount, currency="USD", per="once", covers="board",
        date="2026-11-01", source="a shop",
    )  # fmt: skip


def ask(measurements: list[Measurement], prices: dict[str, float], **fields: object) -> Recommendation:
    sla = fields.pop("sla", Sla(latency_ms=10, fps=100))
    quotes = tuple(price(device, amount) for device, amount in prices.items())
    question = Question(sla=sla, model="net", prices=quotes, today=TODAY, **fields)  # type: ignore[arg-type]
    return answer(question, measurements, load_catalog())


def test_the_cheaper_of_two_that_meet_wins() -> None:
    rows = [single_stream("l4", 2.0), single_stream("t4", 3.0)]
    assert ask(rows, {"l4": 100, "t4": 3000}).winner == "l4"
    assert ask(rows, {"l4": 9000, "t4": 300}).winner == "t4"


def test_units_follow_the_rate() -> None:
    found = ask([single_stream("l4", 2.0)], {"l4": 100}, sla=Sla(latency_ms=10, fps=2000))
    option = found.options[0]
    # One at 2 ms holds less than 500/s, and less still within 10 ms.
    assert option.units >= 5
    assert option.units * option.throughput_ips.low >= 2000
    assert option.cost is not None and option.cost.capex_usd == pytest.approx(100 * option.units)


def test_latency_is_that_under_load() -> None:
    light, heavy = (
        ask([single_stream("l4", 2.0)], {"l4": 1}, sla=Sla(latency_ms=100, fps=rate)).options[0].latency_ms
        for rate in (1, 400)
    )
    assert light is not None and heavy is not None
    assert light.value == pytest.approx(2.0, rel=0.1)
    assert heavy.value > 1.5 * light.value


def test_a_target_too_slow_fails_and_says_by_how_much() -> None:
    found = ask([single_stream("l4", 40.0)], {"l4": 100})
    assert found.winner is None
    failed = next(r for r in found.rejected if r.target == "l4")
    assert failed.verdict is Verdict.FAILS
    assert "40" in failed.why and "4.0 × the limit of 10 ms" in failed.why


def test_what_nobody_measured_is_unknown_not_guessed() -> None:
    found = ask([single_stream("l4", 2.0)], {"l4": 100})
    assert next(r for r in found.rejected if r.target == "t4").verdict is Verdict.UNKNOWN
    assert len(found.options) + len(found.rejected) == len(list(load_catalog().all_points()))


def test_an_invalid_measurement_is_never_recommended_from() -> None:
    row = single_stream("l4", 2.0, valid=False, invalid_reasons=("throttled",))
    assert ask([row], {"l4": 100}).options == ()


def test_own_measurements_go_before_published_ones() -> None:
    published = single_stream("l4", 1.0, provenance=Provenance.PUBLISHED)
    option = ask([published, single_stream("l4", 3.0)], {"l4": 100}).options[0]
    assert option.provenance is Provenance.MEASURED
    assert option.sources == ("run on l4",)


def test_evidence_of_a_lower_percentile_is_likely_at_best_and_strict_refuses_it() -> None:
    row = single_stream("l4", 2.0, latency_ms=Latency(p90=2.0))
    assert ask([row], {"l4": 100}).options[0].verdict is Verdict.LIKELY
    assert ask([row], {"l4": 100}, strict=True).winner is None


def test_without_a_price_there_is_no_winner() -> None:
    found = ask([single_stream("host", 2.0)], {})
    assert [option.target for option in found.options] == ["host"]
    assert found.winner is None


def test_power_and_budget_are_limits() -> None:
    rows = [single_stream("l4", 2.0)]
    hungry = ask(rows, {"l4": 100}, sla=Sla(latency_ms=10, fps=100, power_w=10))
    dear = ask(rows, {"l4": 100}, sla=Sla(latency_ms=10, fps=100, budget_usd=50))
    assert "over 10 W" in next(r for r in hungry.rejected if r.target == "l4").why
    assert "over the budget" in next(r for r in dear.rejected if r.target == "l4").why


def test_the_winner_changes_where_it_is_said_to() -> None:
    rows = [single_stream("l4", 2.0), single_stream("t4", 5.0)]
    prices = {"l4": 5000.0, "t4": 100.0}
    flip = next(f for f in ask(rows, prices).sensitivity if f.quantity == "latency_ms")
    below, above = (ask(rows, prices, sla=Sla(latency_ms=flip.at * factor, fps=100)).winner for factor in (0.95, 1.05))
    assert (below, above) == (flip.below, flip.above)
    assert below != above


def test_precision_asked_for_is_the_only_one() -> None:
    rows = [single_stream("l4", 2.0), single_stream("l4", 4.0, precision=Precision.FP16)]
    found = ask(rows, {"l4": 100}, sla=Sla(latency_ms=10, fps=100, precision=Precision.FP16))
    assert [option.precision for option in found.options] == [Precision.FP16]


def test_published_results_answer_the_first_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = recommend(Question(sla=Sla(latency_ms=5, fps=500)))
    assert found.model == "resnet50" and "nothing exported or measured here" in found.model_note
    assert found.winner is not None
    assert all(option.sources for option in found.options)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_model_is_named_with_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match="resnet50"):
        recommend(Question(sla=Sla(fps=1), model="resnet51"))
