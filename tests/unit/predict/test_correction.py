"""The Gaussian process: its algebra, and what it does with rows that disagree."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.correction import (
    DEFAULT_NOISE,
    DEFAULT_SPREAD,
    Codebook,
    Inputs,
    condition,
    covariance,
    inputs,
    joined,
    noise_class,
    noise_scale,
    prior_variance,
    tail_scale,
    term_matrices,
)
from deploykit.predict.points import OWN, analytic
from deploykit.predict.roofline import Constants


@pytest.fixture
def some(make: Any) -> Inputs:
    """Two networks on two machines in two scenarios at two batches."""
    nets = [make.network(make.gemm(4096, 256, n), name=f"net{n}") for n in (64, 4096)]
    machines = [make.machine, replace(make.machine, ref="other", capability="8.9", sms=80, l2_mb=48)]
    points = [
        make.point(net, machine, scenario, batch=batch, precision=Precision.INT8)
        for net in nets
        for machine in machines
        for scenario in (Scenario.OFFLINE, Scenario.SINGLE_STREAM)
        for batch in (1, 32)
    ]
    return inputs(points, analytic(points, Constants()), Codebook())


def test_the_covariance_is_the_sum_of_its_terms(some: Inputs) -> None:
    terms = term_matrices(some, some)
    assert covariance(some, some, DEFAULT_SPREAD) == pytest.approx(
        sum(DEFAULT_SPREAD[term] ** 2 * matrix for term, matrix in terms.items())
    )


def test_it_is_symmetric_and_has_no_negative_direction(some: Inputs) -> None:
    matrix = covariance(some, some, DEFAULT_SPREAD)
    assert matrix == pytest.approx(matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


def test_the_prior_variance_is_its_diagonal(some: Inputs) -> None:
    assert prior_variance(some, DEFAULT_SPREAD) == pytest.approx(np.diag(covariance(some, some, DEFAULT_SPREAD)))


def test_a_row_without_noise_is_believed(some: Inputs) -> None:
    residual = np.linspace(-0.3, 0.3, len(some))
    mean, spread, _ = condition(some, residual, np.full(len(some), 1e-8), DEFAULT_SPREAD).at(some)
    assert mean == pytest.approx(residual, abs=1e-3)
    assert spread.max() < 2e-3


def test_far_from_every_row_the_prior_stands(some: Inputs) -> None:
    posterior = condition(some.take([0]), np.array([0.5]), np.array([1e4]), DEFAULT_SPREAD)
    mean, spread, _ = posterior.at(some)
    assert mean == pytest.approx(0.0, abs=1e-3)
    assert spread == pytest.approx(np.sqrt(prior_variance(some, DEFAULT_SPREAD)), rel=1e-3)


def test_rows_added_later_count_as_if_they_had_been_there(some: Inputs) -> None:
    residual, noise = np.linspace(-0.3, 0.3, len(some)), np.full(len(some), 0.01)
    first, rest = np.arange(10), np.arange(10, len(some))
    whole = condition(some, residual, noise, DEFAULT_SPREAD)
    part = condition(some.take(first), residual[first], noise[first], DEFAULT_SPREAD)
    later = part.extended(some.take(rest), residual[rest], noise[rest])
    for a, b in zip(whole.at(some), later.at(some), strict=True):
        assert a == pytest.approx(b, abs=1e-9)


def test_joined_keeps_the_order(some: Inputs) -> None:
    both = joined(some.take([3, 1]), some.take([2]))
    assert both.log_ms == pytest.approx(some.log_ms[[3, 1, 2]])
    assert both.codes["network"].tolist() == some.codes["network"][[3, 1, 2]].tolist()


def test_a_row_that_nothing_agrees_with_loses_its_say(some: Inputs) -> None:
    residual, noise = np.zeros(len(some)), np.full(len(some), 0.0025)
    residual[5] = 1.5
    scale = tail_scale(some, residual, noise, DEFAULT_SPREAD)
    assert scale[5] == scale.max() > 20
    assert np.median(scale) < 1.5


def test_repeating_a_run_averages_only_a_part_of_its_noise() -> None:
    assert noise_scale(1) == pytest.approx(1.0)
    assert 0.3 < noise_scale(1000) < 0.4


def test_noise_is_of_the_source(make: Any) -> None:
    net = make.network(make.gemm(1, 1, 1))
    sources = {"mlperf": "Offline", OWN: "own", "NVIDIA/TensorRT": "table", "somebody/else": "zoo"}
    found = {source: noise_class(make.point(net, source=source)) for source in sources}
    assert found == sources
    assert set(found.values()) <= set(DEFAULT_NOISE)
