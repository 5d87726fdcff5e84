"""Which nodes become INT8 and where pairs stand, on small graphs that onnxruntime then runs."""

from __future__ import annotations

import numpy as np
import pytest

CONV_RELU_CONV = """g (float[b, 3, 8, 8] x) => (float[b, 4, 8, 8] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
    r = Relu(c)
    y = Conv<pads = [1, 1, 1, 1]>(r, w2, b2)
}"""


@pytest.fixture
def two_convolutions(normal):
    return {
        "w1": normal(4, 3, 3, 3),
        "b1": normal(4, seed=2),
        "w2": normal(4, 4, 3, 3, seed=3),
        "b2": normal(4, seed=4),
    }


def test_tensorrt_has_a_pair_before_each_layer_and_none_between_conv_and_relu(int8, images, two_convolutions) -> None:
    made = int8(CONV_RELU_CONV, images(1, 3, 8, 8), two_convolutions)
    assert made.tensorrt.pairs() == {"x", "r"}
    assert made.tensorrt.inputs("Relu_r") == ["float"]


def test_ort_closes_each_convolution_behind_its_relu(int8, images, two_convolutions) -> None:
    made = int8(CONV_RELU_CONV, images(1, 3, 8, 8), two_convolutions)
    assert made.ort.pairs() == {"x", "r", "y_raw"}
    fused = made.ort.fused()
    assert fused["QLinearConv"] == 2
    # What remains of the pairs is the way in and the way out; the Relu is in the type of its pair.
    assert (fused["QuantizeLinear"], fused["DequantizeLinear"], fused["Relu"]) == (1, 1, 0)


def test_both_dialects_answer_as_fp32(int8, images, two_convolutions, decibels) -> None:
    samples = images(1, 3, 8, 8)
    made = int8(CONV_RELU_CONV, samples, two_convolutions)
    for written in (made.tensorrt, made.ort):
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 30


def test_biases_stay_float(int8, images, two_convolutions) -> None:
    made = int8(CONV_RELU_CONV, images(1, 3, 8, 8), two_convolutions)
    for written in (made.tensorrt, made.ort):
        for node in ("Conv_c", "Conv_y"):
            assert written.inputs(node) == ["int8 activation", "int8 weight", "constant"]
            assert written.constants[written.nodes[node].input[2]].dtype == np.float32


def test_batch_norm_is_folded_before_ranges_and_weights_are_taken(int8, images, normal, decibels) -> None:
    text = """g (float[b, 3, 6, 6] x) => (float[b, 4, 4, 4] y) {
        c = Conv(x, w)
        n = BatchNormalization(c, scale, shift, mean, variance)
        y = Relu(n)
    }"""
    weights = {
        "w": normal(4, 3, 3, 3),
        "scale": np.array([1.0, 30.0, 0.5, 2.0], np.float32),
        "shift": np.array([0.0, 1.0, 2.0, -1.0], np.float32),
        "mean": np.array([0.1, 0.2, -0.3, 0.0], np.float32),
        "variance": np.array([1.0, 0.5, 2.0, 0.01], np.float32),
    }
    samples = images(1, 3, 6, 6)
    made = int8(text, samples, weights)
    for written in (made.tensorrt, made.ort):
        assert [n.op_type for n in written.nodes.values() if n.op_type in ("BatchNormalization", "Relu")] == ["Relu"]
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 30
    # The channel of scale 30 would take the others' bits if all had one weight scale.
    wanted, got = made.fp32(samples[0]), made.tensorrt.run(samples[0])
    assert min(decibels(wanted[:, i], got[:, i]) for i in range(4)) > 25
    assert made.ort.fused()["QLinearConv"] == 1


RESIDUAL = """g (float[b, 3, 8, 8] x) => (float[b, 4, 8, 8] y) {
    c1 = Conv(x, w1)
    r1 = Relu(c1)
    c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2)
    s = Add(c2, r1)
    r2 = Relu(s)
    y = Conv(r2, w3)
}"""


@pytest.fixture
def residual(normal):
    return {"w1": normal(4, 3, 1, 1), "w2": normal(4, 4, 3, 3, seed=2), "w3": normal(4, 4, 1, 1, seed=3)}


def test_a_residual_addition_is_quantized_on_both_inputs(int8, images, residual) -> None:
    samples = images(1, 3, 8, 8)
    made = int8(RESIDUAL, samples, residual)
    for written in (made.tensorrt, made.ort):
        assert written.inputs("Add_s") == ["int8 activation", "int8 activation"]
        assert written.done.quantized["Add_s"] == "Add"
    # TensorRT fuses Conv, Add and Relu where no pair stands behind the Add.
    assert made.tensorrt.pairs() == {"x", "r1", "c2", "r2"}
    assert made.ort.fused()["QLinearAdd"] == 1
    assert made.ort.fused()["QLinearConv"] == 3


def test_a_tensor_read_twice_has_one_pair(int8, images, residual) -> None:
    made = int8(RESIDUAL, images(1, 3, 8, 8), residual)
    for written in (made.tensorrt, made.ort):
        assert written.nodes["Conv_c2"].input[0] == written.nodes["Add_s"].input[1]


@pytest.mark.parametrize(
    ("addition", "weights"),
    [
        ("s = Add(c, k)", {"k": np.ones((1, 4, 1, 1), np.float32)}),
        ("m = GlobalMaxPool(c) s = Add(c, m)", {}),
        ("p = Sin(x) q = Cos(x) s = Add(p, q)", {}),
    ],
    ids=["a constant", "another shape", "no convolution"],
)
def test_other_additions_stay_float(int8, images, normal, addition, weights) -> None:
    text = f"""g (float[b, 4, 6, 6] x) => (float[b, 4, 6, 6] y, float[b, 4, 6, 6] s) {{
        c = Conv(x, w) {addition} y = Conv(s, w)
    }}"""
    made = int8(text, images(1, 4, 6, 6), {"w": normal(4, 4, 1, 1), **weights})
    for written in (made.tensorrt, made.ort):
        assert "Add_s" not in written.done.quantized
        assert set(written.done.quantized) == {"Conv_c", "Conv_y"}


def test_what_a_concat_joins_may_have_ranges_of_its_own(int8, images, normal, decibels) -> None:
    text = """g (float[b, 3, 6, 6] x) => (float[b, 4, 6, 6] y) {
        a = Conv(x, w1) b_ = Conv(x, w2) j = Concat<axis = 1>(a, b_) y = Conv(j, w3)
    }"""
    weights = {"w1": normal(4, 3, 1, 1), "w2": 8 * normal(4, 3, 1, 1, seed=2), "w3": normal(4, 8, 1, 1, seed=3)}
    samples = images(1, 3, 6, 6)
    made = int8(text, samples, weights)
    assert made.tensorrt.pairs() == {"x", "j"}
    assert made.ort.pairs() == {"x", "a", "b_", "j", "y_raw"}
    scales = {name: made.ort.grid(name)[0] for name in ("a", "b_", "j")}
    assert scales["j"] == max(scales.values()) > 4 * scales["a"]
    assert made.ort.fused()["QLinearConv"] == 3
    for written in (made.tensorrt, made.ort):
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 30


def test_a_depthwise_convolution_has_a_scale_for_each_channel(int8, images, normal, decibels) -> None:
    text = """g (float[b, 4, 8, 8] x) => (float[b, 4, 6, 6] y) { y = Conv<group = 4>(x, w) }"""
    weight = normal(4, 1, 3, 3) * np.array([0.01, 0.1, 1, 10], np.float32).reshape(4, 1, 1, 1)
    samples = images(1, 4, 8, 8)
    made = int8(text, samples, {"w": weight})
    values, scales, _, axis = made.tensorrt.weight("Conv_y")
    assert axis == 0
    assert np.abs(values).reshape(4, -1).max(axis=1).tolist() == [127] * 4
    assert scales == pytest.approx(np.abs(weight).reshape(4, -1).max(axis=1) / 127)
    assert made.ort.fused()["QLinearConv"] == 1
    # Its output needs one scale here for all channels; without that pair every channel has its own bits.
    wanted, got = made.fp32(samples[0]), made.tensorrt.run(samples[0])
    assert min(decibels(wanted[:, i], got[:, i]) for i in range(4)) > 30


def test_a_matrix_product_of_tokens(int8, images, normal, decibels) -> None:
    text = """g (float[b, t, 16] x) => (float[b, t, 8] y) { m = MatMul(x, w) y = Add(m, bias) }"""
    samples = images(1, 5, 16)
    made = int8(text, samples, {"w": normal(16, 8), "bias": normal(8, seed=2)})
    for written in (made.tensorrt, made.ort):
        assert written.inputs("MatMul_m") == ["int8 activation", "int8 weight"]
        assert written.weight("MatMul_m")[3] == 1
        assert written.inputs("Add_y") == ["float", "constant"]
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 30
    assert made.ort.fused()["MatMul"] == 0


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 3.0)])
@pytest.mark.parametrize("bias", [None, (8,), (1,), (1, 8), ()])
def test_every_form_of_gemm(int8, images, normal, decibels, transposed, alpha, beta, bias) -> None:
    inputs = "x, w" if bias is None else "x, w, bias"
    text = f"""g (float[b, 16] x) => (float[b, 8] y) {{
        y = Gemm<transB = {transposed}, alpha = {alpha}, beta = {beta}>({inputs})
    }}"""
    weights = {"w": normal(8, 16) if transposed else normal(16, 8)}
    if bias is not None:
        weights["bias"] = np.asarray(normal(*bias, seed=2), np.float32)
    samples = images(1, 16)
    made = int8(text, samples, weights)
    assert made.ort.done.quantized == made.tensorrt.done.quantized == {"Gemm_y": "Gemm"}
    for written in (made.tensorrt, made.ort):
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 25
    assert made.ort.fused()["Gemm"] == 0


def test_a_reader_that_stays_float_reads_the_float_tensor(int8, images, normal) -> None:
    text = """g (float[b, 4, 6, 6] x) => (float[b, 4, 6, 6] y, float[b, 4, 6, 6] z) {
        y = Conv(x, w) z = Sin(x)
    }"""
    made = int8(text, images(1, 4, 6, 6), {"w": normal(4, 4, 1, 1)})
    assert made.tensorrt.inputs("Conv_y")[0] == "int8 activation"
    assert made.tensorrt.inputs("Sin_z") == ["float"]


def test_a_graph_output_that_goes_on_keeps_its_name_and_values(int8, images, normal, decibels) -> None:
    text = """g (float[b, 4, 6, 6] x) => (float[b, 4, 6, 6] middle, float[b, 4, 6, 6] y) {
        c = Conv(x, w1) middle = Relu(c) y = Conv(middle, w2)
    }"""
    samples = images(1, 4, 6, 6)
    made = int8(text, samples, {"w1": normal(4, 4, 1, 1), "w2": normal(4, 4, 1, 1, seed=2)})
    for written in (made.tensorrt, made.ort):
        assert [value.name for value in written.model.graph.output] == ["middle", "y"]
        for name in ("middle", "y"):
            assert decibels(made.fp32(samples[0], name), written.run(samples[0], name)) > 30
    assert made.ort.fused()["QLinearConv"] == 2


def test_an_input_that_is_an_output_too_is_left_alone(int8, images, normal) -> None:
    text = """g (float[b, 4, 6, 6] x) => (float[b, 4, 6, 6] y, float[b, 4, 6, 6] same) {
        y = Conv(x, w) same = Identity(x)
    }"""
    samples = images(1, 4, 6, 6)
    made = int8(text, samples, {"w": normal(4, 4, 1, 1)})
    assert np.array_equal(made.tensorrt.run(samples[0], "same"), samples[0]["x"])


@pytest.mark.parametrize("movement", ["MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)", "Identity(r)"])
def test_what_only_moves_values_shares_one_scale(int8, images, normal, movement) -> None:
    side = 3 if movement.startswith("MaxPool") else 6
    text = f"""g (float[b, 4, 6, 6] x) => (float[b, 4, {side}, {side}] y) {{
        c = Conv(x, w1) r = Relu(c) p = {movement} y = Conv(p, w2)
    }}"""
    made = int8(text, images(1, 4, 6, 6), {"w1": normal(4, 4, 1, 1), "w2": normal(4, 4, 1, 1, seed=2)})
    assert made.ort.grid("r") == made.ort.grid("p")
    assert made.ort.fused()["QLinearConv"] == 2
    assert made.ort.fused()["QuantizeLinear"] == 1


@pytest.mark.parametrize(
    "mean", ["GlobalAveragePool(r)", "ReduceMean<axes = [2, 3]>(r)", "ReduceMean<axes = [-1, -2]>(r)"]
)
def test_mean_pooling_is_int8_however_it_is_written(int8, images, normal, decibels, mean) -> None:
    text = f"""g (float[b, 4, 6, 6] x) => (float[b, 4, 1, 1] y) {{
        c = Conv(x, w1) r = Relu(c) p = {mean} y = Conv(p, w2)
    }}"""
    samples = images(1, 4, 6, 6)
    made = int8(text, samples, {"w1": normal(4, 4, 1, 1), "w2": normal(4, 4, 1, 1, seed=2)})
    assert "GlobalAveragePool" in made.ort.fused() or made.ort.fused()["QLinearGlobalAveragePool"] == 1
    for written in (made.tensorrt, made.ort):
        pool = next(node for node in written.nodes.values() if node.op_type == "GlobalAveragePool")
        assert written.inputs(pool.name) == ["int8 activation"]
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 25


def test_a_node_left_out_keeps_its_float_weights_and_says_why(int8, images, two_convolutions) -> None:
    made = int8(CONV_RELU_CONV, images(1, 3, 8, 8), two_convolutions, exclude_nodes=("Conv_y",))
    for written in (made.tensorrt, made.ort):
        assert set(written.done.quantized) == {"Conv_c"}
        assert written.done.kept == {"Conv_y": "left out by --exclude-nodes"}
        assert written.inputs("Conv_y")[1:] == ["constant", "constant"]


def test_a_product_of_two_activations_stays_float_and_says_why(int8, images, normal) -> None:
    text = """g (float[b, 8, 8] x) => (float[b, 8, 8] y) { m = MatMul(x, w) y = MatMul(m, x) }"""
    made = int8(text, images(1, 8, 8), {"w": normal(8, 8)})
    for written in (made.tensorrt, made.ort):
        assert set(written.done.quantized) == {"MatMul_m"}
        assert written.done.kept == {"MatMul_y": "both inputs are activations"}


def test_computed_weights_stay_float(int8, images, normal) -> None:
    text = """g (float[b, 4, 6, 6] x) => (float[b, 4, 6, 6] y) { s = Sin(w) y = Conv(x, s) }"""
    made = int8(text, images(1, 4, 6, 6), {"w": normal(4, 4, 1, 1)})
    assert made.ort.done.kept == {"Conv_y": "its weights are computed in the graph"}


def test_a_transposed_convolution_is_int8_where_the_runtime_has_it(int8, images, normal, decibels) -> None:
    text = """g (float[b, 4, 6, 6] x) => (float[b, 3, 13, 13] y) {
        c = Conv(x, w1) r = Relu(c) y = ConvTranspose<strides = [2, 2]>(r, w2)
    }"""
    samples = images(1, 4, 6, 6)
    made = int8(text, samples, {"w1": normal(4, 4, 1, 1), "w2": normal(4, 3, 3, 3, seed=2)})
    assert made.tensorrt.inputs("ConvTranspose_y") == ["int8 activation", "int8 weight"]
    assert made.tensorrt.weight("ConvTranspose_y")[3] == 1
    assert "no INT8 ConvTranspose" in made.ort.done.kept["ConvTranspose_y"]
    assert decibels(made.fp32(samples[0]), made.tensorrt.run(samples[0])) > 30


def test_an_input_whose_channels_no_scale_holds_keeps_the_layer_in_float(int8, images, normal, decibels) -> None:
    """Channels 1000 times apart, evened out by the weights that read them."""
    spread = np.logspace(-2, 1, 4).astype(np.float32)
    text = """g (float[b, 3, 6, 6] x) => (float[b, 4, 6, 6] y) { c = Conv(x, w1) y = Conv(c, w2) }"""
    weights = {
        "w1": normal(4, 3, 1, 1) * spread.reshape(4, 1, 1, 1),
        "w2": normal(4, 4, 1, 1, seed=2) / spread.reshape(1, 4, 1, 1),
    }
    samples = images(1, 3, 6, 6)
    made = int8(text, samples, weights)
    for written in (made.tensorrt, made.ort):
        assert "one scale cannot serve all channels" in written.done.kept["Conv_y"]
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 30


def test_pads_before_a_convolution_become_its_own(int8, images, normal, decibels) -> None:
    text = """g (float[b, 3, 6, 6] x) => (float[b, 4, 4, 4] y) { p = Pad(x, pads) y = Conv<strides = [2, 2]>(p, w) }"""
    weights = {"pads": np.array([0, 0, 1, 1, 0, 0, 2, 2]), "w": normal(4, 3, 3, 3)}
    samples = images(1, 3, 6, 6)
    made = int8(text, samples, weights)
    for written in (made.tensorrt, made.ort):
        assert not [node for node in written.nodes.values() if node.op_type == "Pad"]
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 30
