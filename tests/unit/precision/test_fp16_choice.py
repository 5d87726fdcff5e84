"""Which nodes the FP16 cast leaves alone, on graphs written beside what is expected of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from deploykit.precision.fp16_choice import choose, constant_fault, constant_role, find_masks, range_fault
from deploykit.precision.fp16_graph import Fp16Graph, prepare


def graph_of(body, inputs="float[2, 8] x", outputs="float[2, 8] y", constants="", opset=17):
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    model = onnx.parser.parse_model(f"{header} g ({inputs}) => ({outputs}) {constants} {{ {body} }}")
    prepare(model)
    return Fp16Graph(model)


def kept(graph, ranges=None):
    """Kept operators by their first output, which is what the tests' nodes are known by."""
    names = choose(graph, ranges).kept
    return {graph.nodes[name].output[0] for name in names}


SMALL = dict.fromkeys(("x", "a", "b", "c", "d", "y", "s"), (-1.0, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "divides", "said"),
    [
        (-1.0, 1.0, True, None),
        (0.0, 16000.0, True, None),
        (0.0, 17000.0, False, "too near"),
        (-17000.0, 0.0, False, "too near"),
        (-1e-5, 1e-5, False, "smallest normal"),
        (0.0, 0.0, False, None),
        (1e-8, 2.0, True, "makes? it 0|make it 0"),
        (1e-8, 2.0, False, None),
        (-2.0, -1e-8, True, "make it 0"),
        (0.0, 2.0, True, None),
    ],
)
def test_range_fault(low, high, divides, said):
    reason = range_fault(low, high, divides=divides)
    if said is None:
        assert reason is None
    else:
        assert any(word in reason for word in said.split("|"))


@pytest.mark.parametrize(
    ("values", "role", "fits"),
    [
        pytest.param([1e-5], "value", True, id="1e-5 is held to 0.2 %"),
        pytest.param([1e-6], "value", False, id="1e-6 is off by 1.4 %"),
        pytest.param([1e-8], "value", False, id="an epsilon that becomes 0"),
        pytest.param([3e-8], "value", False, id="a scale that doubles"),
        pytest.param([2e7], "value", False, id="beyond the largest"),
        pytest.param([0.0], "value", True, id="zero"),
        pytest.param([-np.inf], "value", True, id="Inf is Inf in FP16 too"),
        pytest.param([1.0] * 999 + [1e-9], "value", True, id="one scale near 0 among many"),
        pytest.param([1.0] * 90 + [1e-9] * 10, "value", False, id="a tenth of the scales lost"),
        pytest.param([1.0, 1e-9], "weight", True, id="weights count together"),
        pytest.param([1e-7, 3e-8], "weight", False, id="all weights tiny"),
        pytest.param([1e-9, 2e-9], "bias", True, id="a bias of nothing"),
        pytest.param([1e9, 0.0], "bias", False, id="a bias beyond the largest"),
    ],
)
def test_constant_fault(values, role, fits):
    assert (constant_fault(np.array(values, np.float32), role) is None) == fits


def test_constant_roles():
    assert constant_role("Add", 1, 1) == "value"  # An epsilon.
    assert constant_role("Add", 1, 64) == "bias"
    assert constant_role("Conv", 1, 64) == "weight"
    assert constant_role("Mul", 1, 64) == "value"


def test_a_plain_network_is_cast_whole():
    graph = graph_of("a = MatMul(x, w) b = Relu(a) y = Softmax(b)", constants="<float[8, 8] w = {" + "1," * 63 + "1}>")
    assert kept(graph, SMALL) == set()


def test_a_large_tensor_keeps_its_writer_and_its_readers():
    graph = graph_of("a = Mul(x, x) b = ReduceSum(a) c = Sqrt(b) d = Relu(x) y = Add(c, d)")
    ranges = {**SMALL, "b": (0.0, 1.2e5), "c": (0.0, 346.0)}
    assert kept(graph, ranges) == {"b", "c"}


def test_the_sum_inside_a_mean_counts():
    graph = graph_of("y = GlobalAveragePool(x)", inputs="float[1, 4, 64, 64] x", outputs="float[1, 4, 1, 1] y")
    assert kept(graph, {"x": (0.0, 20.0), "y": (0.0, 20.0)}) == {"y"}
    assert kept(graph, {"x": (0.0, 3.0), "y": (0.0, 3.0)}) == set()


def test_the_squares_inside_a_norm_count():
    graph = graph_of("y = ReduceL2 <axes = [1], keepdims = 1> (x)", outputs="float[2, 1] y")
    assert kept(graph, {"x": (0.0, 200.0), "y": (0.0, 300.0)}) == {"y"}


def test_the_variance_inside_instance_norm_counts():
    graph = graph_of(
        "y = InstanceNormalization(x, s, b)",
        inputs="float[1, 2, 64, 64] x",
        outputs="float[1, 2, 64, 64] y",
        constants="<float[2] s = {1, 1}, float[2] b = {0, 0}>",
    )
    assert kept(graph, {"x": (-3.0, 3.0), "y": (-3.0, 3.0)}) == {"y"}
    assert kept(graph, {"x": (-0.5, 0.5), "y": (-3.0, 3.0)}) == set()


EPSILON = "a = Mul(x, x) b = ReduceMean <axes = [-1]> (a) c = Add(b, eps) d = Sqrt(c) y = Div(x, d)"


def test_an_epsilon_is_kept_up_to_the_division_it_guards():
    graph = graph_of(EPSILON, constants="<float eps = {1e-8}>")
    assert kept(graph, SMALL) == {"c", "d", "y"}


def test_an_epsilon_that_fp16_holds_keeps_nothing():
    graph = graph_of(EPSILON, constants="<float eps = {1e-3}>")
    assert kept(graph, {**SMALL, "c": (1e-3, 1.0), "d": (0.03, 1.0)}) == set()


def test_a_clamped_norm_is_kept_up_to_the_division():
    graph = graph_of(
        "a = ReduceL2 <axes = [1], keepdims = 1> (x) b = Clip(a, floor) y = Div(x, b)",
        constants="<float floor = {1e-12}>",
    )
    assert kept(graph, SMALL) == {"b", "y"}


def test_a_loose_bound_is_no_large_constant():
    graph = graph_of("y = Clip(x, low, high)", constants="<float low = {0}, float high = {3.4e38}>")
    assert kept(graph, SMALL) == set()


MASK = "a = Sub(one, s) b = Mul(a, minus) c = Add(x, b) y = Softmax(c)"
MASK_CONSTANTS = "<float one = {1}, float minus = {-1e9}>"


def mask_graph(body=MASK, outputs="float[2, 8] y"):
    return graph_of(body, inputs="float[2, 8] x, float[2, 8] s", outputs=outputs, constants=MASK_CONSTANTS)


def test_an_additive_mask_is_clamped_and_all_is_cast():
    graph = mask_graph()
    ranges = {**SMALL, "s": (0.0, 1.0), "a": (0.0, 1.0), "b": (-1e9, 0.0), "c": (-1e9, 5.0)}
    choice = choose(graph, ranges)
    assert choice.masks == {"minus"}
    assert choice.kept == {}


def test_a_factor_beyond_1_makes_it_no_mask():
    graph = mask_graph()
    ranges = {**SMALL, "a": (0.0, 3.0), "b": (-3e9, 0.0), "c": (-3e9, 5.0)}
    assert choose(graph, ranges).masks == frozenset()
    assert kept(graph, ranges) == {"b", "c", "y"}


def test_what_leaves_the_graph_is_no_mask():
    graph = mask_graph(outputs="float[2, 8] y, float[2, 8] b")
    assert find_masks(graph, {**SMALL, "a": (0.0, 1.0)}) == (frozenset(), frozenset())


def test_a_subtracted_mask_is_no_mask():
    graph = mask_graph("a = Sub(one, s) b = Mul(a, minus) c = Sub(x, b) y = Softmax(c)")
    assert find_masks(graph, {**SMALL, "a": (0.0, 1.0)})[0] == frozenset()


def test_without_ranges_a_large_constant_keeps_all_down_to_the_softmax():
    assert kept(mask_graph()) == {"b", "c", "y"}


def test_a_sine_of_a_large_argument_is_kept_with_what_makes_the_argument():
    graph = graph_of(
        "a = Cast <to = 1> (ids) b = Mul(a, freq) c = Sin(b) y = Add(c, x)",
        inputs="int64[2, 8] ids, float[2, 8] x",
        constants="<float[8] freq = {1, 1, 1, 1, 1, 1, 1, 1}>",
    )
    assert kept(graph, {**SMALL, "a": (0.0, 900.0), "b": (0.0, 900.0)}) == {"a", "b", "c"}
    assert kept(graph, {**SMALL, "a": (0.0, 5.0), "b": (0.0, 5.0)}) == set()
    assert kept(graph) == {"a", "b", "c"}


def test_what_becomes_whole_numbers_is_kept():
    graph = graph_of("a = Mul(x, x) b = Floor(a) y = Cast <to = 7> (b)", outputs="int64[2, 8] y")
    assert kept(graph, SMALL) == {"a", "b"}


def test_sizes_of_a_resize_stay_float_and_its_picture_does_not():
    graph = graph_of(
        "a = Mul(s, two) y = Resize(x, , a)",
        inputs="float[1, 3, 8, 8] x, float[4] s",
        outputs="float[a, b, c, d] y",
        constants="<float[4] two = {1, 1, 1, 1}>",
    )
    assert kept(graph, SMALL) == {"a"}
    form = graph.half_form(graph.producer["y"])
    assert (form.inputs, form.outputs) == ({0}, {0})


def test_boxes_that_compete_are_decoded_in_float():
    graph = graph_of(
        "w = Mul(d, anchors) b = Add(w, anchors) p = Softmax(logits) y = NonMaxSuppression(b, p, most)",
        inputs="float[1, 4, 4] d, float[1, 2, 4] logits",
        outputs="int64[n, 3] y",
        constants="<float[4] anchors = {16, 16, 32, 32}, int64 most = {3}>",
    )
    ranges = {"d": (-1.0, 1.0), "w": (-32.0, 32.0), "b": (0.0, 64.0), "logits": (-3.0, 3.0), "p": (0.0, 1.0)}
    assert kept(graph, ranges) == {"w", "b", "y"}


def test_operators_without_fp16_are_kept_and_said():
    graph = graph_of("a = Gelu(x) y = Relu(a)", opset=20)
    choice = choose(graph, SMALL)
    assert "crashes" in choice.kept["Gelu_a"]
    counting = graph_of("y = Range(x, s, b)", inputs="float x, float s, float b", outputs="float[n] y")
    assert "no FP16 form of it is known" in choose(counting, SMALL).kept["Range_y"]


def test_what_only_moves_values_between_kept_nodes_is_kept_too():
    graph = graph_of("a = Exp(x) b = Transpose(a) c = Transpose(b) y = Log(c)")
    ranges = {"x": (-1.0, 11.0), "a": (0.4, 6e4), "b": (0.4, 1.0), "c": (0.4, 6e4), "y": (-1.0, 11.0)}
    assert kept(graph, ranges) == {"a", "b", "c", "y"}


def test_integer_nodes_are_never_named():
    graph = graph_of("a = Shape(x) b = Add(a, a) y = Reshape(x, a)")
    assert kept(graph, {"x": (0.0, 1e6), "y": (0.0, 1e6)}) == {"a", "y"}
