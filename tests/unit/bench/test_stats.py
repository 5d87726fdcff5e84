"""Percentiles that know how many samples they need, and MLPerf's bound above them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.bench.stats import (
    block_medians,
    discarded,
    histogram_bars,
    latency_from_samples,
    needed_samples,
    percentile,
    quantile_sketch,
    upper_bound,
    wander,
)


@pytest.mark.parametrize(("percent", "count"), [(50, 11), (90, 64), (95, 130), (99, 662), (99.9, 6636)])
def test_needed_samples_are_mlperfs(percent: float, count: int) -> None:
    # 64 and 662 are what LoadGen itself prints ("Need to process at least ... queries for early stopping").
    assert needed_samples(percent) == count


@pytest.mark.parametrize("count", [11, 64, 122, 662, 1000, 20_000])
@pytest.mark.parametrize("percent", [50, 90, 99, 99.9])
def test_what_may_be_discarded_is_the_binomial_tail_that_scipy_gives(count: int, percent: float) -> None:
    binom = pytest.importorskip("scipy.stats").binom(count, 1 - percent / 100)
    spare = discarded(count, percent)
    assert binom.cdf(spare + 1) > 0.01
    assert spare < 0 or binom.cdf(spare) <= 0.01


def test_discarded_is_what_loadgen_said_of_a_run() -> None:
    # Of 122 queries LoadGen printed "Would discard 3 highest latency queries" and gave the fourth highest as estimate.
    latencies = np.arange(122.0)
    assert discarded(122, 90) == 4
    assert upper_bound(latencies, 90) == 118.0


@pytest.mark.parametrize(("count", "known"), [(5, ()), (63, ("p50",)), (100, ("p50", "p90")), (700, ("p50", "p99"))])
def test_percentiles_below_their_count_are_none(count: int, known: tuple[str, ...]) -> None:
    figures = latency_from_samples(3 + np.random.default_rng(0).exponential(0.2, count))
    for name in ("p50", "p90", "p99"):
        assert (getattr(figures, name) is not None) == (name in known or (name == "p90" and count == 700))
    assert figures.p99_9 is None
    assert (figures.p99_upper is not None) == (count == 700)


@pytest.mark.parametrize("latencies", [[2.0], [2.0, 2.0], [0.1, 0.1, 0.1]])
def test_one_or_two_samples_are_no_trouble(latencies: list[float]) -> None:
    figures = latency_from_samples(np.array(latencies))
    assert figures.mean == pytest.approx(latencies[0])
    assert figures.p50 is None
    assert figures.std == (None if len(latencies) == 1 else pytest.approx(0.0))


@given(st.integers(662, 5000), st.floats(0.0, 3.0), st.integers(0, 2**32))
def test_the_bound_is_never_below_its_percentile(count: int, spread: float, seed: int) -> None:
    figures = latency_from_samples(np.random.default_rng(seed).lognormal(0.0, spread, count))
    assert figures.p99 is not None
    assert figures.p99_upper is not None
    assert figures.p99 <= figures.p99_upper <= (figures.max or 0.0)


def test_percentiles_are_samples_by_the_nearest_rank() -> None:
    ordered = np.arange(1.0, 701.0)
    assert percentile(ordered, 99) == 693.0
    assert percentile(ordered, 50) == 350.0


def test_the_bound_holds_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    truth = -np.log(0.01)
    misses = 0
    for _ in range(2000):
        bound = upper_bound(np.sort(draw.exponential(1.0, 1500)), 99)
        misses += bound is not None and bound < truth
    assert misses <= 0.01 * 2000


def test_blocks_follow_the_order_of_the_run() -> None:
    latencies = np.concatenate([np.full(100, 3.0), np.full(100, 4.8)])
    medians = block_medians(latencies)
    assert medians[:10] == (3.0,) * 10
    assert medians[10:] == (4.8,) * 10
    assert wander(medians) == pytest.approx(0.6)
    assert block_medians(latencies[:9]) == ()
    assert wander(()) is None


def test_the_shape_of_a_run_in_one_line() -> None:
    bars = histogram_bars(quantile_sketch(np.concatenate([np.full(50, 1.0), np.linspace(1, 2, 50)])), width=10)
    assert len(bars) == 10
    assert bars[0] == "█"
    assert "█" not in bars[1:]
    assert histogram_bars(quantile_sketch(np.full(10, 2.0))) == "█"
