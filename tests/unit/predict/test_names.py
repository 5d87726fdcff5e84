"""Names of models."""

from collections import Counter
from dataclasses import replace

import pytest

from deploykit.base.errors import UnknownNameError
from deploykit.predict.names import known_names, network_named, network_of
from deploykit.results.published import published_rows
from deploykit.sources.catalog import card_names


def test_every_published_model_of_twenty_rows_has_layer_features() -> None:
    counts = Counter(row.model for row in published_rows())
    often = {model for model, rows in counts.items() if rows >= 20}
    assert len(often) > 20
    assert often <= set(known_names())


def test_every_model_card_has_layer_features() -> None:
    assert set(card_names()) <= set(known_names())


def test_one_network_may_have_several_names_and_precisions() -> None:
    a, b = network_named("bert-large-99"), network_named("bert-large-99.9")
    assert a.network == b.network
    assert a.features.flops == b.features.flops
    assert (a.precision, b.precision) == ("int8", "fp16")


def test_sizes_of_one_architecture_are_a_family() -> None:
    assert network_named("yolo11n").family == network_named("yolo11s").family
    assert network_named("yolo11n").network != network_named("yolo11s").network


def test_an_unknown_name_is_refused_with_near_misses() -> None:
    with pytest.raises(UnknownNameError, match="did you mean resnet50"):
        network_named("resnet5O")


def test_a_graph_is_the_listed_network_only_if_it_does_that_work() -> None:
    listed = network_named("resnet50").features
    same = network_of(replace(listed, input_elements=7))
    other = network_of(replace(listed, parameters=2 * listed.parameters))
    new = network_of(replace(listed, model="my-net"))
    assert same.network == "resnet50"
    assert same.features.input_elements == 7
    assert (other.network, other.family) == ("resnet50 (own graph)", "resnet50")
    assert (new.network, new.family, new.precision) == ("my-net", "my-net", None)


@pytest.mark.parametrize(
    ("name", "gflop", "million_weights"),
    [
        ("resnet50", 8.2, 25.6),
        ("vgg16", 31.0, 138.4),
        ("mobilenet_v2", 0.6, 3.5),
        ("ssd300_vgg16", 69.7, 35.6),
        ("bert-large-seq384", 245.0, 334.0),
        ("efficientnet_b4", 8.8, 19.3),
    ],
)
def test_layer_features_add_up_to_the_known_size(name: str, gflop: float, million_weights: float) -> None:
    """torchvision's documentation, a multiply-add counted as 2; BERT: 2 × 302 M × 384 and attention."""
    features = network_named(name).features
    assert features.flops / 1e9 == pytest.approx(gflop, rel=0.06)
    assert (features.parameters or features.weights) / 1e6 == pytest.approx(million_weights, rel=0.06)
