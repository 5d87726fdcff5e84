"""Streaming error figures against the same figures computed at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deploykit.accuracy.sums import ErrorSums, sqnr_db


def summed(reference, candidate):
    total = ErrorSums()
    for wanted, got in zip(reference, candidate, strict=True):
        total.add(np.asarray(wanted), np.asarray(got))
    return total


def random_pair(shape=(6, 1, 4, 5), noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal(shape)
    return reference, reference + noise * rng.standard_normal(shape)


def test_figures_are_those_over_all_samples_at_once():
    reference, candidate = random_pair()
    total = summed(reference, candidate)
    assert total.sqnr_db == pytest.approx(10 * np.log10((reference**2).sum() / ((reference - candidate) ** 2).sum()))
    assert total.max_abs_error == np.abs(reference - candidate).max()
    cosines = [(a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(reference, candidate, strict=True)]
    assert total.cosine == pytest.approx(np.mean(cosines))


def test_a_uniform_error_of_one_percent_is_40_db():
    total = summed([np.ones((1, 10))], [np.full((1, 10), 1.01)])
    assert total.sqnr_db == pytest.approx(40.0)


def test_equal_tensors_have_no_sqnr_and_cosine_1():
    reference, _ = random_pair()
    total = summed(reference, reference)
    assert total.sqnr_db is None
    assert total.cosine == pytest.approx(1.0)
    assert total.max_abs_error == 0


def test_zeros_have_no_cosine_but_a_difference_from_zero_has_0():
    zeros = np.zeros((2, 1, 3))
    assert summed(zeros, zeros).cosine is None
    assert summed(zeros, zeros + 1).cosine == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_counted_and_never_improves_a_figure(bad):
    reference, candidate = random_pair(noise=0.01)
    broken = candidate.copy()
    broken[2, 0, 1, 1] = bad
    total = summed(reference, broken)
    assert total.not_finite == 1
    assert total.cosine < summed(reference, candidate).cosine - 0.1
    assert total.sqnr_db < summed(reference, candidate).sqnr_db
    assert np.isfinite(total.max_abs_error)


def test_where_the_reference_is_not_finite_nothing_is_compared():
    reference = np.array([[1.0, -np.inf, 2.0]])
    total = summed([reference], [np.array([[1.0, -30000.0, 2.0]])])
    assert (total.not_finite, total.sqnr_db) == (0, None)
    assert total.cosine == pytest.approx(1.0)


def test_another_shape_is_counted_and_left_out():
    total = summed([np.ones((1, 3)), np.ones((1, 2))], [np.ones((1, 3)), np.ones((1, 4))])
    assert (total.samples, total.shape_differs) == (1, 1)


def test_a_dead_part_that_one_figure_hides_is_seen():
    rng = np.random.default_rng(0)
    boxes, scores = 640 * rng.random((4, 1, 4, 100)), rng.random((4, 1, 6, 100))
    reference = np.concatenate([boxes, scores], axis=2)
    dead = np.concatenate([boxes + 0.1, np.zeros_like(scores)], axis=2)
    total = summed(reference, dead)
    assert total.cosine > 0.9999
    assert total.sqnr_db > 50
    assert total.worst_part_db == pytest.approx(0.0, abs=0.1)


def test_a_dead_part_on_the_last_axis_is_seen():
    reference = np.random.default_rng(0).random((2, 1, 30, 3)) * [500.0, 500.0, 0.5]
    total = summed(reference, reference * [1.0, 1.0, 0.0])
    assert total.worst_part_db == pytest.approx(0.0, abs=0.1)


def test_parts_of_one_scale_are_no_parts():
    rng = np.random.default_rng(0)
    reference = rng.uniform(0.5, 1.0, (4, 1, 8, 10))
    assert summed(reference, reference + 0.01).worst_part_db is None


def test_an_axis_of_changing_length_has_no_parts():
    total = summed([np.ones((1, 3, 4)), np.ones((1, 5, 4))], [np.zeros((1, 3, 4)), np.zeros((1, 5, 4))])
    assert total.worst_part_db is None
    assert total.samples == 2


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float32, (3, 1, 2, 3), elements=st.floats(-(2.0**100), 2.0**100, width=32)), st.integers(0, 99))
def test_figures_stay_in_their_bounds(reference, seed):
    candidate = np.random.default_rng(seed).permutation(reference.ravel()).reshape(reference.shape)
    total = summed(reference, candidate)
    assert total.cosine is None or -1.0000001 <= total.cosine <= 1.0
    assert total.sqnr_db is None or np.isfinite(total.sqnr_db)


def test_no_signal_is_a_finite_figure():
    assert np.isfinite(sqnr_db(0.0, 1.0))
