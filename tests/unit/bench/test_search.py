"""Bisection of the rate, on a device that is a formula."""

from __future__ import annotations

import pytest

from deploykit.bench.search import falling_rates, highest_rate


@pytest.mark.parametrize("limit", [1.0, 37.0, 99.9])
def test_the_highest_rate_is_found_from_below(limit: float) -> None:
    tried: list[float] = []

    def holds(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = highest_rate(holds, 100.0, steps=8)
    assert found is not None
    assert limit - 100 / 2**8 <= found <= limit
    assert len(tried) == 8


def test_no_rate_at_all() -> None:
    assert highest_rate(lambda rate: False, 100.0) is None


def test_confirming_runs_step_down() -> None:
    rates = falling_rates(100.0)
    assert rates[0] == 100.0
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 80.0
