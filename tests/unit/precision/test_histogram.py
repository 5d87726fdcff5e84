"""What calibration keeps of an activation, against what numpy says of all values at once."""

import numpy as np
import pytest

from deploykit.precision.histogram import Histogram, NotFinite

VALUES = np.random.default_rng(3).standard_normal((4, 8, 5, 5)).astype(np.float32)


def seen(*parts: np.ndarray, axis: int | None = None) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.add(part, axis)
    return histogram


def test_ends_and_counts_are_exact() -> None:
    histogram = seen(VALUES)
    assert (histogram.low, histogram.high, histogram.values) == (VALUES.min(), VALUES.max(), VALUES.size)
    assert histogram.magnitudes().total == VALUES.size


def test_sums_and_energy_are_of_each_channel() -> None:
    histogram = seen(VALUES[:2], VALUES[2:], axis=1)
    assert histogram.sums == pytest.approx(VALUES.sum((0, 2, 3), dtype=np.float64), abs=1e-3)
    assert histogram.energy == pytest.approx((VALUES.astype(np.float64) ** 2).sum((0, 2, 3)), rel=1e-5)


@pytest.mark.parametrize("factor", [1.0, 1e-6, 1e6])
def test_bins_resolve_to_a_five_hundredth_at_every_scale(factor: float) -> None:
    magnitudes = seen(VALUES * np.float32(factor)).magnitudes()
    reached = np.cumsum(magnitudes.counts) + magnitudes.small
    median = magnitudes.edges[1:][np.searchsorted(reached, VALUES.size / 2)]
    assert median == pytest.approx(np.median(np.abs(VALUES)) * factor, rel=0.01)


def test_the_order_of_samples_does_not_matter_also_when_ranges_widen() -> None:
    parts = [VALUES, VALUES * 100, VALUES * 0.001, np.zeros(3, np.float32)]
    one, other = seen(*parts), seen(*reversed(parts))
    assert np.array_equal(one.magnitudes().counts, other.magnitudes().counts)
    assert one.magnitudes().small == other.magnitudes().small


def test_merging_two_is_as_one_that_saw_both() -> None:
    both, merged = seen(VALUES, VALUES * 7), seen(VALUES)
    merged.merge(seen(VALUES * 7))
    assert np.array_equal(both.magnitudes().counts, merged.magnitudes().counts)
    assert (both.low, both.high, both.values) == (merged.low, merged.high, merged.values)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_and_nothing_added(bad: float) -> None:
    histogram = seen(VALUES)
    broken = VALUES.copy()
    broken[0, 0, 0, 0] = bad
    with pytest.raises(NotFinite):
        histogram.add(broken)
    assert histogram.values == VALUES.size


def test_nothing_at_all_is_no_fault() -> None:
    assert seen(np.zeros((0, 3), np.float32)).values == 0
