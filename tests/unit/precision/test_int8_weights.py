"""Weights in eight bits: the grid of each channel, channels of zeros, and biases that drown their weights."""

from __future__ import annotations

import numpy as np
import pytest

from deploykit.precision.int8_weights import (
    SMALLEST_HALF_SCALE,
    SMALLEST_SCALE,
    QuantizedWeight,
    along,
    quantize_weight,
)

NO_FLOOR = np.asarray(SMALLEST_SCALE)


def test_each_channel_takes_all_127_steps(normal) -> None:
    weight = normal(6, 4, 3, 3) * np.logspace(-6, 6, 6).astype(np.float32).reshape(6, 1, 1, 1)
    made = quantize_weight(weight, 0, NO_FLOOR)
    assert made.values.dtype == np.int8
    assert np.abs(made.values.astype(int)).reshape(6, -1).max(axis=1).tolist() == [127] * 6
    assert made.scales.shape == (6,)


@pytest.mark.parametrize(
    ("axis", "shape"), [(0, (6, 4, 3, 3)), (1, (4, 6, 2, 2)), (1, (8, 6)), (0, (6, 8)), (None, (5, 6))]
)
def test_no_weight_is_off_by_more_than_half_a_step(axis, shape, normal) -> None:
    weight = normal(*shape)
    made = quantize_weight(weight, axis, NO_FLOOR)
    error = np.abs(made.dequantized() - weight)
    assert (error <= along(made.scales, axis, weight.ndim) * 0.5001).all()


def test_minus_128_is_not_used(normal) -> None:
    weight = np.concatenate([-np.ones((1, 4)), normal(7, 4)]).astype(np.float32)
    assert quantize_weight(weight, None, NO_FLOOR).values.min() == -127


def test_a_channel_of_zeros_is_exact_and_has_an_ordinary_scale(normal) -> None:
    weight = normal(4, 3, 1, 1)
    weight[2] = 0
    made = quantize_weight(weight, 0, NO_FLOOR)
    assert not made.dequantized()[2].any()
    assert made.scales[2] == made.scales.max()


def test_weights_that_are_all_zero_have_a_positive_scale() -> None:
    made = quantize_weight(np.zeros((4, 3), np.float32), 1, NO_FLOOR)
    assert np.isfinite(made.scales).all() and (made.scales > 0).all()
    assert not made.values.any()


def test_denormal_weights_do_not_make_a_scale_of_zero() -> None:
    made = quantize_weight(np.full((2, 2), 1e-42, np.float32), 0, NO_FLOOR)
    assert (made.scales >= 2.0**-60).all()


def test_a_floor_widens_only_the_channels_that_need_it(normal) -> None:
    weight = normal(3, 4)
    free = quantize_weight(weight, 0, NO_FLOOR).scales
    floored = quantize_weight(weight, 0, np.array([0, 1.0, 0])).scales
    assert floored[1] == 1.0
    assert floored[[0, 2]].tolist() == free[[0, 2]].tolist()


def test_integers_stand_for_the_scaled_numbers() -> None:
    made = QuantizedWeight(np.array([[1, -2], [3, 4]], np.int8), np.array([0.5, 2.0], np.float32), 0)
    assert made.dequantized().tolist() == [[0.5, -1.0], [6.0, 8.0]]


# Through whole graphs


@pytest.mark.parametrize("zeroed", [slice(None), slice(1, 3)], ids=["all channels", "two channels"])
def test_pruned_channels_through_a_graph(zeroed, int8, images, normal, decibels) -> None:
    text = "g (float[b, 3, 6, 6] x) => (float[b, 4, 6, 6] y) { c = Conv(x, w, bias) r = Relu(c) y = Conv(r, v) }"
    weights = {"w": normal(4, 3, 1, 1), "bias": np.abs(normal(4, seed=2)), "v": normal(4, 4, 1, 1, seed=3)}
    weights["w"][zeroed] = 0
    samples = images(1, 3, 6, 6)
    made = int8(text, samples, weights)
    for written in (made.tensorrt, made.ort):
        assert decibels(made.fp32(samples[0]), written.run(samples[0])) > 25
        assert all((scale > 0).all() for name, scale in written.constants.items() if name.endswith("_scale"))


@pytest.mark.parametrize("bias", [5.0, 5e4])
def test_a_bias_far_above_its_weights_fits_int32(bias, int8, images, normal) -> None:
    """onnxruntime writes the bias as INT32 in steps of input scale × weight scale; with weights near zero those are
    so small that the bias overflowed, and the channel came out as something else."""
    text = "g (float[b, 3, 6, 6] x) => (float[b, 4, 6, 6] y) { y = Conv(x, w, bias) }"
    weights = {"w": normal(4, 3, 1, 1), "bias": np.full(4, bias, np.float32)}
    weights["w"][1] *= 1e-9
    samples = images(1, 3, 6, 6)
    made = int8(text, samples, weights)
    for written in (made.tensorrt, made.ort):
        assert np.abs(written.run(samples[0])[:, 1] - bias).max() < bias / 100
    assert made.ort.fused()["QLinearConv"] == 1


def test_shared_weights_are_stored_once_with_scales_that_serve_all(int8, images, normal, decibels) -> None:
    text = """g (float[b, 4, 6, 6] x) => (float[b, 4, 6, 6] y, float[b, 4, 6, 6] z) {
        y = Conv(x, w, one) s = Sin(x) z = Conv(s, w, other)
    }"""
    weights = {"w": normal(4, 4, 1, 1), "one": normal(4, seed=2), "other": 100 * normal(4, seed=3)}
    samples = images(1, 4, 6, 6)
    made = int8(text, samples, weights)
    for written in (made.tensorrt, made.ort):
        assert written.nodes["Conv_y"].input[1] == written.nodes["Conv_z"].input[1]
        for name in ("y", "z"):
            assert decibels(made.fp32(samples[0], name), written.run(samples[0], name)) > 25


def test_one_matrix_read_along_both_axes_has_scales_along_both(int8, images, normal, decibels) -> None:
    text = """g (float[b, 8] x) => (float[b, 8] y, float[b, 8] z) {
        y = Gemm(x, w) z = Gemm<transB = 1>(x, w)
    }"""
    weight = normal(8, 8) * np.logspace(-2, 2, 8).astype(np.float32)
    samples = images(1, 8)
    made = int8(text, samples, {"w": weight})
    assert {made.tensorrt.weight(name)[3] for name in ("Gemm_y", "Gemm_z")} == {0, 1}
    for name in ("y", "z"):
        assert decibels(made.fp32(samples[0], name), made.tensorrt.run(samples[0], name)) > 25


def test_scales_that_fp16_must_hold_are_floored_and_lose_little(normal) -> None:
    weight = normal(64, 32).astype(np.float32) * np.logspace(-8, 0, 64, dtype=np.float32)[:, None]
    made = quantize_weight(weight, 0, np.asarray(SMALLEST_HALF_SCALE))
    halved = made.scales.astype(np.float16).astype(np.float32)
    assert np.abs(halved / made.scales - 1).max() < 0.01
    assert (np.abs(made.dequantized() - weight).max(axis=1) <= made.scales * 0.5001).all()
    assert made.scales.min() == np.float32(SMALLEST_HALF_SCALE)
