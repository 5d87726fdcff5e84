"""`calibration.json`: what is written, what is read back, what is refused; and the tensors that have no plain range."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pytest

from deploykit.base.artifact import CalibrationInfo, Preprocessing
from deploykit.base.errors import UsageError
from deploykit.base.vocab import CalibrationMethod, Dialect
from deploykit.precision.calibrate import calibrate
from deploykit.precision.calibration import Calibration, TensorRange, read_calibration, require_fit, write_calibration
from deploykit.precision.int8 import quantize
from deploykit.precision.recipe import Int8Recipe
from deploykit.precision.samples import Samples

NET = "g (float[b, 3, 6, 6] x) => (float[b, 4, 6, 6] y) { c = Conv(x, w) r = Relu(c) y = Conv(r, v) }"
NOW = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)

VERSION_1 = """{
  "version": 1,
  "model": "0123abcd",
  "preprocessing": null,
  "data": "photos",
  "data_digest": "feed",
  "method": "percentile",
  "percentile": 99.95,
  "asked": 8,
  "samples": 7,
  "tensors": {
    "x": {"low": -2.5, "high": 3.0, "threshold": 2.54, "kind": "signed", "values": 4096},
    "dead": {"low": 0.0, "high": 0.0, "threshold": 1.0, "kind": "dead", "values": 12}
  },
  "channel_means": {"x": [0.5, -0.25]},
  "input_sqnr_db": {"Conv_c": 31.25}
}"""


@pytest.fixture
def weights(normal):
    return {"w": normal(4, 3, 1, 1), "v": normal(4, 4, 1, 1, seed=2)}


@pytest.fixture
def file(tmp_path):
    """A calibration file of some text, read."""

    def read(text: str) -> Calibration:
        path = tmp_path / "calibration.json"
        path.write_text(text, encoding="utf-8")
        return read_calibration(path)

    return read


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(VERSION_1), **fields})


def test_what_version_1_wrote_is_read_as_it_was_meant(file) -> None:
    found = file(VERSION_1)
    assert found.tensors["x"] == TensorRange(low=-2.5, high=3.0, threshold=2.54, kind="signed", values=4096)
    assert found.tensors["x"].scale == 2.54 / 127
    assert (found.method, found.percentile, found.asked, found.samples) == (CalibrationMethod.PERCENTILE, 99.95, 8, 7)
    assert found.channel_means == {"x": (0.5, -0.25)}
    assert found.input_sqnr_db == {"Conv_c": 31.25}


def test_a_real_one_comes_back_bit_by_bit(int8, images, weights, tmp_path) -> None:
    made = int8(NET, images(1, 3, 6, 6), weights, method=CalibrationMethod.ENTROPY).calibration
    write_calibration(tmp_path / "one.json", made)
    again = read_calibration(tmp_path / "one.json")
    assert again == made
    write_calibration(tmp_path / "two.json", again)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VERSION_1[:200], "cannot be read as JSON"),
        ("", "cannot be read as JSON"),
        ("[]", "calibration version None"),
        ("null", "calibration version None"),
        (changed(version=0), "calibration version 0, this deploykit reads 1"),
        (changed(version=2), "calibration version 2, this deploykit reads 1"),
        (changed(version="1"), "calibration version '1'"),
        (changed(tensors={"x": {"low": 0, "high": 1, "threshold": 0, "kind": "signed", "values": 1}}), "tensors.x"),
        (VERSION_1.replace("2.54", "NaN"), "tensors.x.threshold"),
        (VERSION_1.replace("2.54", "1e999"), "tensors.x.threshold"),
        (VERSION_1.replace("signed", "odd"), "tensors.x.kind"),
        (changed(extra=1), "'extra'"),
        (VERSION_1.replace('"samples": 7,', ""), "'samples'"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_by_what_is_wrong(text, said, file) -> None:
    with pytest.raises(UsageError) as error:
        file(text)
    assert said in str(error.value)
    assert "calibration.json" in str(error.value)


def test_no_file_is_not_an_empty_calibration(tmp_path) -> None:
    with pytest.raises(UsageError, match="there is no calibration at"):
        read_calibration(tmp_path / "calibration.json")


def test_bytes_that_are_no_text_are_refused(tmp_path) -> None:
    (tmp_path / "calibration.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        read_calibration(tmp_path / "calibration.json")


def test_ranges_of_another_model_are_refused(int8, images, weights) -> None:
    made = int8(NET, images(1, 3, 6, 6), weights)
    require_fit(made.calibration, made.parent)
    with pytest.raises(UsageError, match="ranges of one model are wrong for another"):
        require_fit(made.calibration.model_copy(update={"model": "f" * 64}), made.parent)


def test_ranges_through_another_preprocessing_are_refused(int8, images, weights) -> None:
    made = int8(NET, images(1, 3, 6, 6), weights)
    other = Preprocessing(input="x", size=(6, 6), resize=6, mean=(0.0,) * 3, std=(1.0,) * 3)
    with pytest.raises(UsageError, match="prepared in another way"):
        require_fit(made.calibration.model_copy(update={"preprocessing": other}), made.parent)


# Tensors without a plain range


@pytest.fixture
def ranges(fp32_artifact, open_session):
    """The ranges that samples leave behind."""

    def find(text, samples, weights=None, method=CalibrationMethod.ENTROPY):
        source = Samples("rows", range(len(samples)), samples.__getitem__)
        parent = fp32_artifact(text, weights)
        return calibrate(
            parent, source, method=method, samples=len(samples), data_digest="d", open_session=open_session
        ).tensors

    return find


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("l = Log(x) y = MatMul(l, w)", r"activation 'l' holds \d+ NaN"),
        ("l = Div(x, zero) y = MatMul(l, w)", r"activation 'l' holds \d+ Inf"),
        ("a = Sub(x, x) l = Div(a, zero) y = MatMul(l, w)", r"activation 'l' holds \d+ NaN"),
    ],
)
@pytest.mark.parametrize("method", list(CalibrationMethod))
def test_nan_and_inf_name_tensor_and_sample(body, said, method, ranges, images, normal) -> None:
    good = {"x": np.ones((1, 8), np.float32)}
    samples = [good, good, *images(1, 8, count=1)] if "Log" in body else [*images(1, 8, count=3)]
    which = 3 if "Log" in body else 1
    text = f"g (float[b, 8] x) => (float[b, 8] y) {{ {body} }}"
    with pytest.raises(UsageError, match=rf"{said}.*calibration sample {which}"):
        ranges(text, samples, {"w": normal(8, 8), "zero": np.float32(0)}, method)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_in_the_input_is_found_there(bad, ranges, images, normal) -> None:
    samples = images(1, 8, count=4)
    samples[1]["x"][0, 3] = bad
    text = "g (float[b, 8] x) => (float[b, 8] y) { y = MatMul(x, w) }"
    with pytest.raises(UsageError, match=r"activation 'x' holds 1 (NaN|Inf) in calibration sample 2"):
        ranges(text, samples, {"w": normal(8, 8)})


@pytest.mark.parametrize("method", list(CalibrationMethod))
def test_tensors_that_are_always_zero_or_one_value_are_exact(method, int8, images, normal) -> None:
    text = """g (float[b, 8] x) => (float[b, 8] y) {
        n = Mul(x, nothing) dead = MatMul(n, w) z = Mul(x, nothing) c = Add(z, seven) constant = MatMul(c, w)
        y = Add(dead, constant)
    }"""
    samples = images(1, 8)
    # Multiples of a 127th of the largest, so that rounding takes nothing from the weights.
    whole = np.rint(normal(8, 8, scale=40.0)).clip(-127, 127)
    whole[0] = 127
    weights = {"w": (whole / 127).astype(np.float32), "nothing": np.float32(0), "seven": np.float32(-7.3)}
    made = int8(text, samples, weights, method=method)
    found = made.calibration.tensors
    assert (found["n"].kind, found["n"].threshold) == ("dead", 1.0)
    assert (found["c"].kind, found["c"].threshold) == ("constant", pytest.approx(7.3))
    for written in (made.tensorrt, made.ort):
        assert np.abs(written.run(samples[0]) - made.fp32(samples[0])).max() < 1e-4
        assert [text for text in written.done.warnings if "n: zero in every sample" in text]
        assert [text for text in written.done.warnings if "c: one single value" in text]


def test_a_range_of_denormal_numbers_has_a_usable_scale(ranges, images, normal) -> None:
    text = "g (float[b, 8] x) => (float[b, 8] y) { y = MatMul(x, w) }"
    found = ranges(text, images(1, 8, scale=1e-40), {"w": normal(8, 8)})
    assert found["x"].threshold >= 2.0**-60


def test_a_tensor_that_was_empty_in_all_samples_keeps_its_reader_in_float(int8, images, normal) -> None:
    text = """g (float[b, 8] x) => (float[n, 4] y) {
        over = Greater(x, high) at = NonZero(over) rows = Transpose(at) picked = Gather(x, none)
        y = MatMul(picked, w)
    }"""
    weights = {"high": np.float32(1e9), "none": np.zeros(0, np.int64), "w": normal(8, 4)}
    made = int8(text, images(1, 8), weights)
    for written in (made.tensorrt, made.ort):
        assert "no calibration sample put a value" in written.done.kept["MatMul_y"]


# The artifact


def quantized(made, folder, **info):
    folder.mkdir()
    recipe = Int8Recipe(Dialect.ORT_CPU, "rows", "d", 8, CalibrationMethod.MINMAX)
    facts = {"method": recipe.method, "data": "rows", "data_digest": "d", "asked": 8, "samples": 8, "skipped": {}}
    told = CalibrationInfo(**{**facts, "seconds": 1.0, "peak_rss_mb": 1.0, **info})
    return quantize(made.parent, folder, made.calibration, recipe, info=told, created=NOW)


def test_the_artifact_carries_its_calibration(int8, images, weights, tmp_path) -> None:
    made = int8(NET, images(1, 3, 6, 6), weights)
    manifest = quantized(made, tmp_path / "int8")
    assert read_calibration(tmp_path / "int8" / "calibration.json") == made.calibration
    assert manifest.parents == (made.parent.digest,)
    assert not [text for text in manifest.warnings if "calibrated on" in text]


def test_fewer_samples_than_asked_are_said(int8, images, weights, tmp_path) -> None:
    made = int8(NET, images(1, 3, 6, 6), weights)
    assert "calibrated on 3 samples of the 8 asked for" in " ".join(
        quantized(made, tmp_path / "int8", samples=3).warnings
    )


def test_a_graph_without_a_layer_says_that_nothing_was_gained(int8, images, tmp_path) -> None:
    made = int8("g (float[b, 3, 6, 6] x) => (float[b, 3, 6, 6] y) { y = Sin(x) }", images(1, 3, 6, 6))
    assert "every layer stays float" in " ".join(quantized(made, tmp_path / "int8").warnings)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": CalibrationMethod.MSE}, "its method is mse, minmax was asked for"),
        ({"data_digest": "e"}, "made from other data"),
        ({"percentile": 90.0}, "at percentile 90.0"),
    ],
)
def test_a_calibration_of_another_recipe_does_not_serve(change, said, int8, images, weights, tmp_path) -> None:
    made = int8(NET, images(1, 3, 6, 6), weights)
    made.calibration = made.calibration.model_copy(update=change)
    with pytest.raises(UsageError, match=said):
        quantized(made, tmp_path / "int8")
