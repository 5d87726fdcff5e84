"""Intervals: rungs, quantiles with the finite-sample correction, coverage on made-up errors."""

import numpy as np
import pytest

from deploykit.predict.intervals import LEVELS, HeldOutError, Rung, multiplier, quantiles, rung_of


@pytest.mark.parametrize(
    ("seen", "rung"),
    [
        ({}, Rung.GRAPH),
        ({"a": "8.0"}, Rung.FEW),
        ({"a": "8.0", "b": "8.0", "c": "9.0"}, Rung.FEW),
        ({"a": "8.0", "b": "8.0", "c": "9.0", "d": "7.5"}, Rung.SIBLING),
        ({"a": "8.6", "b": "8.6", "c": "9.0", "d": "7.5"}, Rung.ANCHORED),
        ({"asked": "8.0"}, Rung.SAME),
    ],
)
def test_a_rung_is_what_had_been_seen(seen: dict[str, str], rung: Rung) -> None:
    assert rung_of("asked", "8.0", seen) is rung


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
def test_new_errors_are_covered_as_often_as_promised(heavy: bool) -> None:
    random = np.random.default_rng(0)

    def scores(count: int) -> np.ndarray:
        return np.abs(random.standard_t(3, count) if heavy else 1.7 * random.standard_normal(count))

    table = quantiles(HeldOutError(Rung.FEW, "latency", float(score)) for score in scores(2000))
    new = scores(20_000)
    for level in LEVELS:
        covered = np.mean(new <= multiplier(table, Rung.FEW, "latency", level))
        assert covered == pytest.approx(level, abs=0.03)


def test_few_errors_give_the_larger_quantile() -> None:
    """Of 20 scores the 90 % quantile is the 19th, not the 18th."""
    table = quantiles(HeldOutError(Rung.SAME, "Offline", score) for score in range(1, 21))
    assert table["same/Offline"][0.9] == 19


def test_a_small_set_leans_on_its_rung() -> None:
    errors = [HeldOutError(Rung.SAME, "Offline", 1.0)] * 30 + [HeldOutError(Rung.SAME, "Server", 9.0)] * 3
    table = quantiles(errors)
    assert "same/Server" not in table
    assert multiplier(table, Rung.SAME, "Server", 0.9) == table["same/"][0.9]


def test_without_any_errors_the_normal_distribution_speaks() -> None:
    assert multiplier({}, Rung.GRAPH, "latency", 0.9) == pytest.approx(1.645, abs=1e-3)


def test_between_levels_it_grows_and_beyond_the_last_it_goes_on() -> None:
    table = {"few/latency": {0.5: 1.0, 0.8: 1.5, 0.9: 2.0, 0.95: 2.5}}
    found = [multiplier(table, Rung.FEW, "latency", level) for level in (0.3, 0.5, 0.7, 0.9, 0.93, 0.99)]
    assert found == sorted(found)
    assert found[1] == pytest.approx(1.0)
    assert found[-1] > 2.5
