"""What can be quantized, what is refused, and what is known of tensors from the graph alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.base.vocab import CalibrationMethod, Dialect
from deploykit.precision.graph import Graph, load_graph
from deploykit.precision.int8 import excluded_nodes
from deploykit.precision.layers import find_layers, never_negative, refuse_quantized, weight_energy
from deploykit.precision.recipe import Int8Recipe


@pytest.fixture
def graph(tmp_path):
    """A graph given as text, loaded as quantization loads it."""

    def make(text: str, weights=None, opset: int = 17) -> Graph:
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
        model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in (weights or {}).items())
        onnx.save(model, tmp_path / "model.onnx")
        return load_graph(tmp_path / "model.onnx")

    return make


@pytest.mark.parametrize(
    "body",
    [
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
        "q = QuantizeLinear(x, s, z) r = QLinearMatMul(q, s, z, w, s, z, s, z) y = DequantizeLinear(r, s, z)",
        "q, t, o = DynamicQuantizeLinear(x) m = MatMulInteger(q, w) y = Cast<to = 1>(m)",
    ],
    ids=["Q/DQ", "integer operators", "dynamic"],
)
def test_a_quantized_graph_is_refused_by_the_names_of_its_nodes(body, graph) -> None:
    weights = {"s": np.float32(0.1), "z": np.int8(0), "w": np.ones((4, 4), np.int8)}
    with pytest.raises(UsageError, match=r"already quantized: \w+ \(\w+\).*give the float model"):
        refuse_quantized(graph(f"g (float[b, 4] x) => (float[b, 4] y) {{ {body} }}", weights))


def test_many_quantized_nodes_are_counted(graph) -> None:
    pairs = " ".join(f"q{i} = QuantizeLinear(x, s) d{i} = DequantizeLinear(q{i}, s)" for i in range(5))
    with pytest.raises(UsageError, match="and 4 more"):
        refuse_quantized(graph(f"g (float[b] x) => (float[b] d4) {{ {pairs} }}", {"s": np.float32(1)}))


def test_weights_that_are_quantized_count_too(graph) -> None:
    """Weight-only quantization: activations are float, but the weights have lost their bits already."""
    weights = {"s": np.float32(0.1), "w": np.ones((4, 4), np.int8)}
    text = "g (float[b, 4] x) => (float[b, 4] y) { d = DequantizeLinear(w, s) y = MatMul(x, d) }"
    with pytest.raises(UsageError, match="DequantizeLinear"):
        refuse_quantized(graph(text, weights))


@pytest.mark.parametrize(("opset", "fits"), [(12, False), (13, True), (21, True)])
def test_per_channel_pairs_need_operator_set_13(opset, fits, graph) -> None:
    loaded = graph("g (float[b, 4] x) => (float[b, 4] y) { y = Relu(x) }", opset=opset)
    if fits:
        refuse_quantized(loaded)
    else:
        with pytest.raises(UsageError, match=r"operator set 12.*--opset 13"):
            refuse_quantized(loaded)


def test_an_int8_artifact_is_no_parent_of_another(int8, images, normal) -> None:
    made = int8("g (float[b, 4] x) => (float[b, 4] y) { y = MatMul(x, w) }", images(1, 4), {"w": normal(4, 4)})
    for written in (made.tensorrt, made.ort):
        with pytest.raises(UsageError, match="already quantized"):
            refuse_quantized(load_graph(written.path))


@pytest.mark.parametrize(
    ("body", "weights", "reason"),
    [
        ("y = MatMul(x, x)", {}, "both inputs are activations"),
        ("y = MatMul(w, x)", {"w": (4, 4)}, "first input is a constant"),
        ("s = Sin(w) y = Gemm(x, s)", {"w": (4, 4)}, "computed in the graph"),
        ("y = MatMul(x, w)", {"w": (4,)}, "1 dimensions"),
    ],
)
def test_what_stays_float_says_why(body, weights, reason, graph, normal) -> None:
    loaded = graph(
        f"g (float[4, 4] x) => (float[p, q] y) {{ {body} }}", {k: normal(*shape) for k, shape in weights.items()}
    )
    layers, kept = find_layers(loaded)
    assert layers == {}
    assert reason in next(iter(kept.values()))


def test_double_precision_weights_stay_as_they_are(graph) -> None:
    loaded = graph("g (double[4, 4] x) => (double[4, 4] y) { y = MatMul(x, w) }", {"w": np.ones((4, 4))})
    assert find_layers(loaded) == ({}, {"MatMul_y": "its weights are not float32"})


@pytest.mark.parametrize(
    ("body", "shape", "axis"),
    [
        ("y = Conv(x, w)", (6, 4, 1, 1), 0),
        ("y = Conv<group = 4>(x, w)", (4, 1, 1, 1), 0),
        ("y = ConvTranspose(x, w)", (4, 6, 1, 1), 1),
        ("y = ConvTranspose<group = 2>(x, w)", (4, 3, 1, 1), None),
    ],
)
def test_the_channel_axis_of_convolutions(body, shape, axis, graph, normal) -> None:
    loaded = graph(f"g (float[b, 4, 5, 5] x) => (float[b, m, 5, 5] y) {{ {body} }}", {"w": normal(*shape)})
    (layer,) = find_layers(loaded)[0].values()
    assert layer.axis == axis


@pytest.mark.parametrize(
    ("body", "shape", "channels"),
    [
        ("y = Conv(x, w)", (6, 4, 3, 3), 4),
        ("y = Conv<group = 2>(x, w)", (6, 2, 3, 3), 4),
        ("y = Conv<group = 4>(x, w)", (8, 1, 3, 3), 4),
        ("y = ConvTranspose(x, w)", (4, 6, 3, 3), 4),
    ],
)
def test_weight_energy_is_that_which_meets_each_input_channel(body, shape, channels, graph, normal, open_session,
                                                              tmp_path) -> None:  # fmt: skip
    """Noise of one channel alone, sent through the layer: what comes out is its energy."""
    loaded = graph(f"g (float[b, 4, 9, 9] x) => (float[b, m, p, q] y) {{ {body} }}", {"w": normal(*shape)})
    (layer,) = find_layers(loaded)[0].values()
    energy = weight_energy(loaded, layer)
    assert energy.shape == (channels,)
    with open_session(tmp_path / "model.onnx") as session:
        for channel in range(channels):
            impulse = np.zeros((1, 4, 9, 9), np.float32)
            impulse[0, channel, 4, 4] = 1
            assert np.square(session.infer({"x": impulse})["y"]).sum() == pytest.approx(energy[channel], rel=1e-4)


@pytest.mark.parametrize(
    ("body", "positive"),
    [
        ("y = Relu(x)", True),
        ("y = Clip(x, zero, six)", True),
        ("y = Clip(x, minus, six)", False),
        ("y = Clip(x, '', six)", False),
        ("a = Relu(x) y = MaxPool<kernel_shape = [2]>(a)", True),
        ("a = Relu(x) b_ = Sigmoid(x) y = Add(a, b_)", True),
        ("a = Relu(x) y = Add(a, x)", False),
        ("a = Relu(x) y = Add(a, six)", True),
        ("a = Relu(x) y = Mul(a, minus)", False),
        ("a = Relu(x) y = Concat<axis = 1>(a, x)", False),
        ("a = Relu(x) y = Sub(a, six)", False),
        ("y = HardSigmoid(x)", True),
        ("y = LeakyRelu(x)", False),
        ("a = Relu(x) y = Transpose<perm = [0, 2, 1]>(a)", True),
    ],
)
def test_what_cannot_be_negative_is_read_off_the_operators(body, positive, graph) -> None:
    weights = {"zero": np.float32(0), "six": np.float32(6), "minus": np.float32(-1)}
    body = body.replace("'', ", ", ")
    loaded = graph(f"g (float[b, 3, 8] x) => (float[p, q, r] y) {{ {body} }}", weights)
    assert ("y" in never_negative(loaded)) is positive


# What a recipe leaves out


def recipe(**options) -> Int8Recipe:
    return Int8Recipe(Dialect.TENSORRT, "d", "digest", 8, CalibrationMethod.MINMAX, **options)


@pytest.fixture
def named(graph, normal):
    text = "g (float[b, 4] x) => (float[b, 4] y) { m = MatMul(x, w) n = Relu(m) y = MatMul(n, w) }"
    return graph(text, {"w": normal(4, 4)})


def test_operators_and_nodes_are_left_out_with_the_option_that_said_so(named) -> None:
    assert excluded_nodes(named, recipe(exclude_ops=("MatMul",), exclude_nodes=("MatMul_y",))) == {
        "MatMul_m": "left out by --exclude-ops MatMul",
        "MatMul_y": "left out by --exclude-nodes",
    }


@pytest.mark.parametrize(
    ("options", "near"),
    [({"exclude_ops": ("Matmul",)}, "MatMul"), ({"exclude_nodes": ("MatMul_m0",)}, "MatMul_m")],
)
def test_a_mistyped_name_gets_the_near_ones(options, near, named) -> None:
    with pytest.raises(UnknownNameError, match=near):
        excluded_nodes(named, recipe(**options))
