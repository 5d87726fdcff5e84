"""Scores of held-out answers, on cells whose outcome is known."""

import math

import pytest

from deploykit.base.vocab import Scenario
from deploykit.predict.holdout import Judged
from deploykit.predict.intervals import Rung
from deploykit.predict.scoring import cost_regret, decisions, leave_fold_out, summary


def cell(target: str, ms: float, error: float, network: str = "net", fold: str = "f", spread: float = 0.1) -> Judged:
    return Judged(fold, target, network, Scenario.OFFLINE, error, spread, Rung.SIBLING, ms)


def test_errors_are_of_predicted_over_measured() -> None:
    found = summary([cell("a", 1, math.log(1.1)), cell("b", 1, math.log(0.8))])
    assert found.mape == pytest.approx(0.15)
    assert found.bias == pytest.approx(math.sqrt(1.1 * 0.8) - 1)
    assert found.worst[0] == "net on b -20%"
    assert found.low <= found.mape <= found.high


def test_coverage_and_width_are_of_the_folds_own_multipliers() -> None:
    tables = {"f": {"sibling/": {0.5: 0.5, 0.8: 1.0, 0.9: 2.0, 0.95: 3.0}}}
    found = summary([cell("a", 1, 0.15), cell("b", 1, 0.25)], tables)
    assert found.coverage == {0.5: 0.0, 0.8: 0.0, 0.9: 0.5}
    assert found.width == pytest.approx(math.exp(0.2))


def test_multipliers_come_from_errors_that_share_no_target() -> None:
    calibration = [cell("a", 1, 5.0)] * 30 + [cell("b", 1, 0.1)] * 30
    tables = leave_fold_out([cell("a", 1, 0.0, fold="of a"), cell("a", 1, 0.0, "other", "of a")], calibration)
    assert tables["of a"]["sibling/Offline"][0.9] == pytest.approx(1.0)


def test_and_for_a_held_out_network_from_other_networks() -> None:
    calibration = [cell("a", 1, 5.0)] * 30 + [cell("a", 1, 0.1, "other")] * 30
    tables = leave_fold_out([cell("a", 1, 0.0), cell("b", 1, 0.0)], calibration)
    assert tables["f"]["sibling/Offline"][0.9] == pytest.approx(1.0)


def test_right_answers_make_no_wrong_decisions() -> None:
    found = decisions([cell("a", 1, 0.0), cell("b", 2, 0.0), cell("c", 4, 0.0)], None)
    assert (found.wrong_accepts, found.wrong_rejects) == (0.0, 0.0)


def test_too_fast_is_accepted_wrongly_too_slow_rejected_wrongly_a_bound_errs_to_the_safe_side() -> None:
    fast = [cell("a", 1, -0.3), cell("b", 4, -0.3)]
    slow = [cell("a", 1, 0.3), cell("b", 4, 0.3)]
    bound = {"f": {"sibling/": {0.5: 3.0, 0.8: 6.0, 0.9: 8.0, 0.95: 9.0}}}
    assert decisions(fast, None).wrong_accepts > 0 == decisions(fast, None).wrong_rejects
    assert decisions(slow, None).wrong_rejects > 0 == decisions(slow, None).wrong_accepts
    assert decisions(fast, bound).wrong_accepts == 0


def test_regret_is_the_picks_price_over_the_cheapest_that_holds() -> None:
    """`cheap` holds every limit but is thought too slow for most; the pick is then `dear`, at five times the price."""
    cells = [cell("cheap", 1.0, 10.0), cell("dear", 1.0, 0.0), cell("slow", 4.0, 0.0), cell("unpriced", 0.5, 0.0)]
    found = cost_regret(cells, None, {"cheap": 1.0, "dear": 5.0, "slow": 10.0})
    assert (found.no_pick, found.wrong_pick) == (0.0, 0.0)
    assert found.ratio == pytest.approx(5.0)


def test_a_pick_that_does_not_hold_is_counted_apart() -> None:
    cells = [cell("fast", 1.0, 0.0), cell("slow", 4.0, -10.0)]
    found = cost_regret(cells, None, {"fast": 5.0, "slow": 1.0})
    assert found.wrong_pick == pytest.approx(24 / 25)
    assert found.ratio == 1.0
