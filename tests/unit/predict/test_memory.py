"""What an engine wants of a target's memory."""

from dataclasses import replace
from typing import Any

import pytest

from deploykit.base.vocab import Precision
from deploykit.predict.memory import CONTEXT_BYTES, SYSTEM_BYTES, WORKSPACE_BYTES, largest_batch, memory_fit


def test_weights_once_activations_a_sample_and_an_instance(make: Any) -> None:
    features = make.network(parameters=10**9, live_elements=10**6).features
    one = memory_fit(features, make.machine, Precision.FP16, batch=8)
    two = memory_fit(features, make.machine, Precision.FP16, batch=8, instances=2)
    assert (one.weights, one.activations) == (2e9, 16e6)
    assert (two.weights, two.activations) == (2e9, 32e6)
    assert one.needed == pytest.approx(2e9 + 16e6 + CONTEXT_BYTES + WORKSPACE_BYTES)
    assert memory_fit(features, make.machine, Precision.INT8, batch=8).weights == 1e9


def test_a_jetson_shares_its_memory_with_the_system(make: Any) -> None:
    features = make.network().features
    board = memory_fit(features, replace(make.machine, integrated=True), Precision.FP16, 1)
    card = memory_fit(features, make.machine, Precision.FP16, 1)
    assert card.available - board.available == pytest.approx(SYSTEM_BYTES)


def test_a_batch_is_halved_until_it_fits(make: Any) -> None:
    features = make.network(live_elements=10**9).features
    assert largest_batch(features, make.machine, Precision.FP16, 64) == 4
    assert largest_batch(features, replace(make.machine, memory_gb=2), Precision.FP16, 64) == 0


def test_the_words_add_up(make: Any) -> None:
    fit = memory_fit(make.network(parameters=10**9).features, make.machine, Precision.FP16, 1)
    assert fit.words() == (
        "2.71 GB needed (weights 2.00, activations 0.00, runtime 0.71), 15.52 GB there"
    )  # fmt: skip
