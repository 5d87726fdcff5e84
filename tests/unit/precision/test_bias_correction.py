"""The mean error of rounded weights, taken out of biases: measured on what onnxruntime really computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from deploykit.precision import dialects


@pytest.fixture
def positive():
    """Samples with a mean, as they are behind a Relu, with the same values each time."""

    def make(*shape, count=32):
        rng = np.random.default_rng(0)
        return [{"x": np.abs(rng.standard_normal(shape)).astype(np.float32) + 1.0} for _ in range(count)]

    return make


@pytest.fixture
def coarse(normal):
    """Weights whose rounding errors are large and one-sided: one huge value a channel makes the step wide."""

    def make(*shape, axis=0):
        weight = np.abs(normal(*shape, scale=0.02)) + np.float32(0.31 / 127 * 1.4)
        channels = np.moveaxis(weight, axis, 0).reshape(shape[axis], -1)
        channels[:, 0] = 0.31
        return np.ascontiguousarray(
            np.moveaxis(channels.reshape([shape[axis], *np.delete(shape, axis)]), 0, axis).astype(np.float32)
        )

    return make


def mean_errors(made, samples, channel_axis):
    """Largest mean error of a channel over all samples: with the correction, and without it."""
    wanted = np.concatenate([made.fp32(sample) for sample in samples])
    others = tuple(i for i in range(wanted.ndim) if i != channel_axis % wanted.ndim)
    got = np.concatenate([made.tensorrt.run(sample) for sample in samples])
    return float(np.abs((got - wanted).mean(axis=others)).max())


GRAPHS = {
    "conv with a bias": ("y = Conv(x, w, bias)", (1, 8, 4, 4), (6, 8, 1, 1), 0, 1),
    "conv without": ("y = Conv(x, w)", (1, 8, 4, 4), (6, 8, 1, 1), 0, 1),
    "grouped conv": ("y = Conv<group = 2>(x, w, bias)", (1, 8, 4, 4), (6, 4, 1, 1), 0, 1),
    "gemm": ("y = Gemm(x, w, bias)", (1, 64), (64, 6), 1, -1),
    "gemm turned and scaled": ("y = Gemm<transB = 1, alpha = 2.0, beta = 0.5>(x, w, bias)", (1, 64), (6, 64), 0, -1),
    "product and addition": ("m = MatMul(x, w) y = Add(bias, m)", (1, 3, 64), (64, 6), 1, -1),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_mean_error_shrinks(name, int8, positive, coarse, normal, monkeypatch) -> None:
    body, data, weight, axis, channels = GRAPHS[name]
    dims = ", ".join(["b", *map(str, data[1:])])
    out = ", ".join("abcdef"[: len(data)])
    weights = {"w": coarse(*weight, axis=axis)} | ({"bias": normal(6, seed=7)} if "bias" in body else {})
    samples = positive(*data)
    made = int8(f"g (float[{dims}] x) => (float[{out}] y) {{ {body} }}", samples, weights)
    corrected = mean_errors(made, samples, channels)
    monkeypatch.setattr(dialects, "corrected_bias", lambda *_: None)
    made.written = {dialect: made.write(dialect) for dialect in made.written}
    plain = mean_errors(made, samples, channels)
    assert corrected < plain / 5


def test_both_dialects_get_the_same_bias(int8, positive, coarse) -> None:
    made = int8("g (float[b, 8, 4, 4] x) => (float[b, 6, 4, 4] y) { y = Conv(x, w) }", positive(1, 8, 4, 4),
                {"w": coarse(6, 8, 1, 1)})  # fmt: skip
    one, other = (written.constants[written.nodes["Conv_y"].input[2]] for written in (made.tensorrt, made.ort))
    assert np.array_equal(one, other)
    assert np.abs(one).min() > 0


def test_a_bias_that_is_shared_is_corrected_for_each_layer_alone(int8, positive, coarse, normal) -> None:
    text = """g (float[b, 8, 4, 4] x) => (float[b, 6, 4, 4] y, float[b, 6, 4, 4] z) {
        y = Conv(x, w1, bias) z = Conv(x, w2, bias)
    }"""
    weights = {"w1": coarse(6, 8, 1, 1), "w2": -coarse(6, 8, 1, 1), "bias": normal(6)}
    made = int8(text, positive(1, 8, 4, 4), weights)
    one, other = (made.ort.constants[made.ort.nodes[name].input[2]] for name in ("Conv_y", "Conv_z"))
    assert one - weights["bias"] == pytest.approx(weights["bias"] - other, rel=1e-3)


@pytest.mark.parametrize("bias", [(1, 5), (5, 1), (2, 5, 6)], ids=str)
def test_an_addition_that_is_more_than_a_bias_keeps_its_meaning(bias, int8, positive, coarse, normal, decibels) -> None:
    """A position embedding behind a projection: its values belong to rows, not to channels."""
    shape = (1, 5, 64) if len(bias) == 2 else (2, 5, 64)
    outputs = 5 if bias == (1, 5) else 6
    dims = ", ".join(map(str, shape))
    text = f"g (float[{dims}] x) => (float[p, q, r] y) {{ m = MatMul(x, w) y = Add(m, bias) }}"
    samples = positive(*shape, count=4)
    made = int8(text, samples, {"w": coarse(64, outputs, axis=1), "bias": 100 * normal(*bias)})
    assert decibels(made.fp32(samples[0]), made.tensorrt.run(samples[0])) > 30


def test_a_product_that_others_read_too_is_left_alone(int8, positive, coarse, normal) -> None:
    text = """g (float[b, 64] x) => (float[b, 6] y, float[b, 6] z) { m = MatMul(x, w) y = Add(m, bias) z = Sin(m) }"""
    weights = {"w": coarse(64, 6, axis=1), "bias": normal(6)}
    made = int8(text, positive(1, 64), weights)
    kept = {t.name: numpy_helper.to_array(t) for t in made.tensorrt.model.graph.initializer}
    assert np.array_equal(kept[made.tensorrt.nodes["Add_y"].input[1]], weights["bias"])
