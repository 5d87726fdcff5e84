"""The two dialects: how one calibration is written for TensorRT and for onnxruntime's CPU provider."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from deploykit.base.vocab import Dialect

NET = """g (float[b, 3, 8, 8] x) => (float[b, 4, 8, 8] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w1)
    r = Relu(c)
    d = Conv<pads = [1, 1, 1, 1]>(r, w2)
    s = Add(d, r)
    q = Relu(s)
    y = Conv(q, w3)
}"""
CLIPPED = """g (float[b, 3, 8, 8] x) => (float[b, 4, 8, 8] y) <float low = {0}, float high = {HIGH}> {
    c = Conv(x, w1)
    r = Clip(c, low, high)
    y = Conv(r, w2)
}"""


@pytest.fixture
def weights(normal):
    return {"w1": normal(4, 3, 3, 3), "w2": normal(4, 4, 3, 3, seed=2), "w3": normal(4, 4, 1, 1, seed=3)}


@pytest.fixture
def clipped(normal):
    """A Relu6-like net, and weights that fill the range up to it."""

    def make(int8, images, high, **options):
        weights = {"w1": normal(4, 3, 1, 1, scale=2.0), "w2": normal(4, 4, 1, 1, seed=2)}
        samples = images(1, 3, 8, 8)
        return int8(CLIPPED.replace("HIGH", str(high)), samples, weights, **options), samples

    return make


def types_of_pairs(written):
    zeros = (written.constants[n.input[2]] for n in written.model.graph.node if n.op_type == "QuantizeLinear")
    return {(zero.dtype.name, int(zero)) for zero in zeros}


def test_tensorrt_is_signed_with_zero_point_zero_throughout(int8, images, weights) -> None:
    made = int8(NET, images(1, 3, 8, 8), weights).tensorrt
    assert types_of_pairs(made) == {("int8", 0)}
    for node in ("Conv_c", "Conv_d", "Conv_y"):
        values, scales, zeros, axis = made.weight(node)
        assert (values.dtype, zeros.dtype, axis) == (np.int8, np.int8, 0)
        assert not zeros.any()
        assert scales.shape == zeros.shape == (4,)


def test_nothing_is_int32(int8, images, weights) -> None:
    """TensorRT refuses an INT32 DequantizeLinear, which is how others write a bias."""
    made = int8(NET, images(1, 3, 8, 8), weights)
    for written in (made.tensorrt, made.ort):
        assert TensorProto.INT32 not in {tensor.data_type for tensor in written.model.graph.initializer}


def test_ort_is_unsigned_and_its_zero_follows_the_sign(int8, images, weights) -> None:
    made = int8(NET, images(1, 3, 8, 8), weights)
    zeros = {name: made.ort.grid(name)[1:] for name in ("x", "r", "d", "q", "y_raw")}
    assert zeros == {
        "x": (128, np.uint8),
        "r": (0, np.uint8),
        "d": (128, np.uint8),
        "q": (0, np.uint8),
        "y_raw": (128, np.uint8),
    }


def test_scales_are_the_calibrations_in_both(int8, images, weights) -> None:
    made = int8(NET, images(1, 3, 8, 8), weights)
    for name in ("x", "r", "d", "q"):
        scale = np.float32(made.calibration.tensors[name].scale)
        assert made.tensorrt.grid(name)[0] == made.ort.grid(name)[0] == scale


def test_both_dialects_compute_on_one_grid(int8, images, weights) -> None:
    """With minmax nothing is clipped, so up to the last pair, its own, `ort-cpu` answers as `tensorrt`."""
    samples = images(1, 3, 8, 8)
    made = int8(NET, samples, weights)
    last = made.ort.grid("y_raw")[0]
    for sample in samples:
        assert np.abs(made.tensorrt.run(sample) - made.ort.run(sample)).max() <= last


def test_a_dialect_is_written_the_same_each_time(int8, images, weights) -> None:
    made = int8(NET, images(1, 3, 8, 8), weights)
    for dialect in Dialect:
        before = made.written[dialect].path.read_bytes()
        assert made.write(dialect).path.read_bytes() == before


def test_a_value_seen_negative_never_but_possible_keeps_128(int8, images, normal) -> None:
    """A fact of the samples is no fact of the graph: the next picture may hold what none did."""
    text = "g (float[b, 3, 4, 4] x) => (float[b, 4, 4, 4] y) { y = Conv(x, w) }"
    samples = [{"x": np.abs(sample["x"])} for sample in images(1, 3, 4, 4)]
    made = int8(text, samples, {"w": normal(4, 3, 1, 1)})
    assert made.calibration.tensors["x"].kind == "never-negative"
    assert made.ort.grid("x")[1] == 128


def test_relu6_goes_and_its_bound_is_kept_in_the_integers(int8, images, clipped, decibels) -> None:
    made, samples = clipped(int8, images, 6.0)
    assert made.ort.done.kept == {}
    assert "Clip_r" not in made.ort.nodes
    assert made.ort.grid("c")[1] == 0
    high = next(n for n in made.ort.nodes.values() if n.op_type == "Clip")
    assert made.ort.constants[high.input[2]] == 127  # minmax found 6 and made it 127 steps
    assert made.ort.fused()["QLinearConv"] == 2
    for sample in samples:
        assert decibels(made.fp32(sample), made.ort.run(sample)) > 25


def test_tensorrt_keeps_the_clip(int8, images, clipped) -> None:
    made, _ = clipped(int8, images, 6.0)
    assert "Clip_r" in made.tensorrt.nodes


def test_values_that_no_sample_had_are_clipped_as_the_graph_says(int8, images, normal) -> None:
    """All channels at once as no sample had them: the bound of Relu6 holds although its Clip is gone."""
    signs = np.sign(normal(4, 12, 1, 1))
    samples = images(1, 12, 8, 8)
    text = CLIPPED.replace("b, 3,", "b, 12,").replace("HIGH", "6.0")
    made = int8(text, samples, {"w1": 0.35 * signs, "w2": normal(4, 4, 1, 1, seed=2)})
    scale, zero, _ = made.ort.grid("y_raw")
    assert made.calibration.tensors["r"].high < 5.5
    assert 6 / made.ort.grid("c")[0] < 255  # the type alone would let more pass
    loud = {"x": np.full((1, 12, 8, 8), 3, np.float32) * signs[:1]}
    wanted = np.clip(made.fp32(loud), -zero * scale, (255 - zero) * scale)
    assert np.abs(wanted - made.ort.run(loud)).max() < 3 * scale


def test_a_clip_that_lets_negatives_pass_stays(int8, images, normal, decibels) -> None:
    text = CLIPPED.replace("float low = {0}", "float low = {-1}").replace("HIGH", "1")
    samples = images(1, 3, 8, 8)
    made = int8(text, samples, {"w1": normal(4, 3, 1, 1), "w2": normal(4, 4, 1, 1, seed=2)})
    assert "Clip_r" in made.ort.nodes
    assert made.ort.grid("r")[1] == 128
    assert decibels(made.fp32(samples[0]), made.ort.run(samples[0])) > 25


def widest_pair_of_products(written) -> int:
    """The largest sum of two products that VPMADDUBSW may have to hold, by the types and bounds that were written."""
    worst = 0
    bounds = {n.output[0]: int(written.constants[n.input[2]]) for n in written.nodes.values() if n.op_type == "Clip"}
    for node in (n for n in written.nodes.values() if n.op_type == "Conv"):
        dequantizer = next(n for n in written.nodes.values() if node.input[0] in n.output)
        values, _, zeros, _ = written.weight(node.name)
        if values.dtype == np.int8:
            worst = max(worst, 2 * bounds.get(dequantizer.input[0], 255) * int(np.abs(values.astype(int)).max()))
        assert not zeros.any() or values.dtype == np.uint8
    return worst


@pytest.mark.parametrize("isa", ["x86-avx2", "x86-avx512", "x86", None, "riscv64"])
def test_where_products_saturate_none_can(int8, images, weights, decibels, isa) -> None:
    samples = images(1, 3, 8, 8)
    made = int8(NET, samples, weights)
    assert widest_pair_of_products(made.ort) > 2**15 - 1
    careful = made.write(Dialect.ORT_CPU, isa)
    assert widest_pair_of_products(careful) <= 2**15 - 1
    # The input around zero point 128 uses all 255 steps: there the weights are U8.
    assert careful.weight("Conv_c")[0].dtype == np.uint8
    assert careful.weight("Conv_d")[0].dtype == np.int8
    assert careful.fused()["QLinearConv"] == 3
    for sample in samples:
        assert decibels(made.fp32(sample), careful.run(sample)) > 25


def test_names_that_the_graph_has_already_are_not_taken(int8, images, normal, decibels) -> None:
    text = """g (float[b, 4, 6, 6] x) => (float[b, 4, 6, 6] y, float[b, 4, 6, 6] x_dequantized) {
        x_quantized = Conv(x, w)
        x_scale = Relu(x_quantized)
        x_dequantized = Sin(x)
        y = Conv(x_scale, w_quantized)
    }"""
    samples = images(1, 4, 6, 6)
    made = int8(text, samples, {"w": normal(4, 4, 1, 1), "w_quantized": normal(4, 4, 1, 1, seed=2)})
    for written in (made.tensorrt, made.ort):
        for name in ("y", "x_dequantized"):
            assert decibels(made.fp32(samples[0], name), written.run(samples[0], name)) > 25


def test_float_weights_and_bounds_that_nobody_reads_are_gone(int8, images, clipped) -> None:
    made, _ = clipped(int8, images, 6.0)
    assert not {"w1", "w2", "low", "high"} & made.ort.constants.keys()
