import math

import numpy as np
import pytest

from deploykit.recommend.queueing import MAX_UTILISATION, BatchCurve, loaded_latency, ordered_points, units_for

ONE = BatchCurve((1,), (2.0,))


def simulated(times: list[float], rate_ips: float, share: float, samples: int = 200_000) -> float:
    """The percentile of Poisson arrivals at a device that takes what waits, at most `len(times)` at once."""
    arrivals = np.cumsum(np.random.default_rng(7).exponential(1000.0 / rate_ips, samples))
    latency, free, i = np.empty(samples), 0.0, 0
    while i < samples:
        start = max(free, arrivals[i])
        waiting = min(len(times), int(np.searchsorted(arrivals, start, side="right")) - i)
        free = start + times[waiting - 1]
        latency[i : i + waiting] = free - arrivals[i : i + waiting]
        i += waiting
    return float(np.quantile(latency, share))


def test_an_idle_device_takes_its_service_time() -> None:
    loaded = loaded_latency(ONE, 0.99)
    assert loaded.idle_ms == pytest.approx(2.0)
    assert loaded.at(0.0) == pytest.approx(2.0)
    assert loaded.highest_rate_ips(1.9) == 0.0


@pytest.mark.parametrize("utilisation", [0.3, 0.5, 0.7, 0.85])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_one_at_a_time_is_m_d_1(utilisation: float, share: float) -> None:
    """Against Erlang's distribution of the wait in M/D/1 (Tijms 2003, A First Course in Stochastic Models, 9.6.2)."""
    service, rate = 2.0, utilisation / 2.0

    def waits_at_most(t: float) -> float:
        k = int(t / service)
        terms = [
            (-rate * (t - j * service)) ** j / math.factorial(j) * math.exp(rate * (t - j * service))
            for j in range(k + 1)
        ]
        return (1 - utilisation) * sum(terms)

    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_at_most(middle) < share else (low, middle)
    expected = service + high
    assert loaded_latency(ONE, share).at(rate * 1000.0) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    "curve", [[1.0, 1.1, 1.2, 1.3], [1.0, 1.9, 2.8, 3.7], [1.0, 1.0, 1.0, 1.0, 1.2, 1.6, 2.0, 2.4]]
)
@pytest.mark.parametrize("utilisation", [0.2, 0.5, 0.8, 0.89])
def test_batches_form_as_in_a_simulation(curve: list[float], utilisation: float) -> None:
    points = ordered_points(list(enumerate(curve, start=1)))
    rate = utilisation * points.largest_rate_ips()
    found = loaded_latency(points, 0.99).at(rate)
    real = simulated(list(points.times()), rate, 0.99)
    assert found == pytest.approx(real, rel=0.05 if utilisation <= 0.8 else 0.10)


def test_rate_and_latency_are_inverse() -> None:
    loaded = loaded_latency(BatchCurve((1, 8), (1.0, 3.0)), 0.99)
    for rate in (100.0, 500.0, 1500.0):
        assert loaded.highest_rate_ips(loaded.at(rate)) == pytest.approx(rate, rel=1e-6)


def test_above_the_highest_rate_there_is_no_answer() -> None:
    loaded = loaded_latency(ONE, 0.99)
    assert loaded.most_ips == pytest.approx(500 * MAX_UTILISATION)
    assert loaded.at(loaded.most_ips * 1.01) == math.inf
    assert loaded.highest_rate_ips(1e9) == pytest.approx(loaded.most_ips)


def test_a_larger_batch_that_is_measured_faster_does_not_count_as_faster() -> None:
    assert list(BatchCurve((1, 2, 3), (2.0, 1.5, 2.5)).times()) == [2.0, 2.0, 2.5]


def test_batches_beyond_the_one_with_the_highest_rate_are_not_formed() -> None:
    assert list(BatchCurve((1, 2, 4), (1.0, 1.0, 4.0)).times()) == [1.0, 1.0]


@pytest.mark.parametrize(("batches", "times"), [((), ()), ((1, 1), (1.0, 2.0)), ((1,), (0.0,)), ((1, 2), (1.0,))])
def test_a_curve_that_is_none_is_refused(batches: tuple[int, ...], times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="batch"):
        BatchCurve(batches, times)


@pytest.mark.parametrize(("rate", "each", "units"), [(500, 500, 1), (501, 500, 2), (1, 500, 1), (1000, 250, 4)])
def test_units(rate: float, each: float, units: int) -> None:
    assert units_for(rate, each) == units
