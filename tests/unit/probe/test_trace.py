"""What is seen beside a run: power by counter and by samples, clocks, throttling, drift."""

import pytest

from deploykit.probe.trace import Sample, Trace, drift, reasons_against


def clocks(*megahertz: int, reason_below: int = 0) -> Trace:
    return Trace(
        tuple(
            Sample(t_s=n / 10, gpu_mhz=mhz, throttle=("SW_THERMAL_SLOWDOWN",) if mhz < reason_below else ())
            for n, mhz in enumerate(megahertz)
        )
    )


def test_a_clock_that_falls_half_way_is_named_with_the_throttling() -> None:
    reasons = reasons_against(clocks(*[1300] * 300, *[800] * 300, reason_below=1200), 1300)
    assert any("clock" in reason and "50%" in reason and "lowest 800" in reason for reason in reasons)
    assert any("throttle" in reason for reason in reasons)


def test_a_clock_that_is_low_from_the_start_is_named() -> None:
    assert len(reasons_against(clocks(*[800] * 600), 1300)) == 1


@pytest.mark.parametrize("megahertz", [[1300] * 600, [*[1300] * 300, *[1280] * 3, *[1300] * 297]])
def test_a_steady_clock_and_a_short_dip_are_valid(megahertz: list[int]) -> None:
    assert reasons_against(clocks(*megahertz), 1300) == []


def test_a_run_that_did_not_use_the_gpu_has_no_asked_clock() -> None:
    assert reasons_against(clocks(*[306] * 50), None) == []


def test_a_card_at_its_power_limit_is_at_its_figures() -> None:
    trace = Trace(tuple(Sample(t_s=float(n), throttle=("SW_POWER_CAP",)) for n in range(10)))
    assert reasons_against(trace, None) == []
    assert trace.throttle() == {"SW_POWER_CAP": 1.0}


def test_over_current_events_during_the_run_count_and_those_before_do_not() -> None:
    trace = Trace((Sample(0.0, events=7), Sample(1.0, events=7), Sample(2.0, events=9)))
    assert trace.overcurrent_events() == 2
    assert "2 over-current events" in reasons_against(trace, None)[0]


def test_a_counter_of_energy_gives_mean_power_and_what_its_step_leaves_open() -> None:
    power = Trace((Sample(0.0, energy_j=100.0), Sample(2.0, energy_j=180.0)), step_s=0.1).power()
    assert power is not None
    assert (power.mean_w, power.how) == (40.0, "counter")
    # One step of 0.1 s at either end of 2 s.
    assert power.uncertainty_w == pytest.approx(4.0)


def test_a_counter_that_stood_still_is_no_zero_power() -> None:
    trace = Trace((Sample(0.0, energy_j=100.0, power_w=30.0), Sample(0.01, energy_j=100.0, power_w=32.0)), step_s=0.1)
    power = trace.power()
    assert power is not None
    assert (power.how, power.mean_w) == ("samples", 31.0)


def test_samples_count_for_the_time_they_stand_for() -> None:
    trace = Trace((Sample(0.0, power_w=10.0), Sample(0.1, power_w=10.0), Sample(1.1, power_w=30.0)))
    power = trace.power()
    assert power is not None
    assert power.mean_w == pytest.approx((10 * 0.1 + 20 * 1.0) / 1.1)


def test_a_longer_run_is_more_certain() -> None:
    def uncertainty(count: int) -> float:
        trace = Trace(tuple(Sample(n / 10, power_w=10.0 + n % 2) for n in range(count)), step_s=1 / 77)
        power = trace.power()
        assert power is not None
        assert power.uncertainty_w is not None
        return power.uncertainty_w

    assert uncertainty(400) == pytest.approx(uncertainty(100) / 2, rel=0.02)


def test_nothing_told_is_none_and_never_zero() -> None:
    trace = Trace((Sample(0.0), Sample(1.0)))
    assert trace.power() is None
    assert trace.clock_mhz() is None
    assert trace.temperatures_c() is None
    assert trace.slow_share(1300) is None


def test_drift_compares_the_first_and_the_last_third() -> None:
    assert drift([3.0] * 100 + [4.8] * 100) == pytest.approx(0.6)
    assert drift([3.0] * 99) == 0
    assert drift([3.0] * 29) is None
    # One stall is no drift.
    assert drift([3.0] * 98 + [500.0]) == 0
