"""Thresholds on distributions whose answer is known."""

import numpy as np
import pytest

from deploykit.base.vocab import CalibrationMethod
from deploykit.precision.calibrators import STEPS, percentile_threshold, threshold
from deploykit.precision.histogram import Histogram

NORMAL = np.random.default_rng(5).standard_normal(200_000).astype(np.float32)


def of(values: np.ndarray) -> tuple[Histogram, float]:
    histogram = Histogram()
    histogram.add(values)
    return histogram, float(np.abs(values).max())


def found(values: np.ndarray, method: CalibrationMethod, **options: float) -> float:
    histogram, largest = of(values)
    return threshold(histogram.magnitudes(), largest, method, **options)


@pytest.mark.parametrize("method", list(CalibrationMethod))
def test_no_threshold_is_above_the_largest_value(method: CalibrationMethod) -> None:
    assert 0 < found(NORMAL, method) <= np.abs(NORMAL).max()


@pytest.mark.parametrize("method", list(CalibrationMethod))
def test_zeros_have_the_threshold_zero(method: CalibrationMethod) -> None:
    assert found(np.zeros(100, np.float32), method) == 0.0


@pytest.mark.parametrize("method", list(CalibrationMethod))
def test_thresholds_scale_with_the_values(method: CalibrationMethod) -> None:
    # A power of two moves bins by whole octaves, so nothing but the scale may change.
    assert found(NORMAL * 1024, method) == pytest.approx(1024 * found(NORMAL, method), rel=1e-6)


def test_minmax_is_the_largest() -> None:
    assert found(NORMAL, CalibrationMethod.MINMAX) == np.abs(NORMAL).max()


def test_a_percentile_is_numpys() -> None:
    histogram, _ = of(NORMAL)
    expected = float(np.percentile(np.abs(NORMAL), 99.9))
    assert percentile_threshold(histogram.magnitudes(), 99.9) == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("outlier", [30.0, 300.0])
@pytest.mark.parametrize("method", [CalibrationMethod.ENTROPY, CalibrationMethod.PERCENTILE])
def test_one_outlier_does_not_set_the_range(method: CalibrationMethod, outlier: float) -> None:
    values = np.append(NORMAL, np.float32(outlier))
    assert found(values, method) < 10.0


def test_mse_is_where_the_real_error_is_least() -> None:
    def error(limit: float) -> float:
        step = limit / STEPS
        return float(np.mean((np.clip(np.rint(NORMAL / step), -STEPS, STEPS) * step - NORMAL) ** 2))

    limits = np.linspace(2.0, 6.0, 200)
    best = min(map(error, limits))
    assert error(found(NORMAL, CalibrationMethod.MSE)) <= 1.05 * best


def test_entropy_clips_at_most_a_thousandth() -> None:
    piled = np.concatenate([np.abs(NORMAL), np.full(40_000, 6.0, np.float32)])
    assert found(piled, CalibrationMethod.ENTROPY) >= 5.9
