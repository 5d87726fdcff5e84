"""Noise, batches and what a file shows of itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.base.vocab import Precision
from deploykit.bench.inputs import MOST_SAMPLES, batched, fixed_batch, random_feeds, stacked
from deploykit.bench.subject import is_path, subject_of

IMAGE = TensorSpec(name="x", dtype="float32", shape=("batch", 3, 8, 8))


def test_noise_fits_the_inputs_and_differs() -> None:
    ids = TensorSpec(name="ids", dtype="int64", shape=("batch", 16))
    pixels = TensorSpec(name="frame", dtype="uint8", shape=("batch", 4))
    feeds = random_feeds([IMAGE, ids, pixels])
    assert len(feeds) == MOST_SAMPLES
    assert feeds[0]["x"].shape == (1, 3, 8, 8)
    assert feeds[0]["x"].dtype == np.float32
    assert set(np.unique(feeds[0]["ids"])) <= {0, 1}
    assert feeds[0]["ids"].dtype == np.int64
    assert feeds[0]["frame"].dtype == np.uint8
    assert not np.array_equal(feeds[0]["x"], feeds[1]["x"])


def test_huge_inputs_are_few() -> None:
    huge = TensorSpec(name="x", dtype="float32", shape=("batch", 3, 4096, 4096))
    assert len(random_feeds([huge])) == 1


def test_open_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="open dimensions"):
        random_feeds([TensorSpec(name="x", dtype="float32", shape=("batch", 3, "height", 8))])


def test_batches_are_stacked() -> None:
    feeds = random_feeds([IMAGE])
    assert stacked(feeds[:1], {"x"}) is feeds[0]
    batch = stacked(feeds[:3], {"x"})["x"]
    assert batch.shape == (3, 3, 8, 8)
    assert np.array_equal(batch[2:], feeds[2]["x"])


FOUR = IMAGE.model_copy(update={"shape": (4, 3, 8, 8)})
SCALE = TensorSpec(name="scale", dtype="float32", shape=(2,))
SCALAR = TensorSpec(name="threshold", dtype="float32", shape=())


@pytest.mark.parametrize(
    ("inputs", "fixed", "of_one"),
    [
        ([IMAGE], None, {"x": (1, 3, 8, 8)}),
        ([FOUR], 4, {"x": (1, 3, 8, 8)}),
        ([IMAGE, SCALE, SCALAR], None, {"x": (1, 3, 8, 8), "scale": (2,), "threshold": ()}),
        ([FOUR, SCALE], 1, {"x": (4, 3, 8, 8), "scale": (2,)}),
        ([SCALAR], 1, {"threshold": ()}),
    ],
)
def test_which_inputs_hold_a_batch(
    inputs: list[TensorSpec], fixed: int | None, of_one: dict[str, tuple[int, ...]]
) -> None:
    feeds = random_feeds(inputs)
    assert fixed_batch(inputs) == fixed
    assert {name: array.shape for name, array in feeds[0].items()} == of_one
    both = stacked(feeds[:2], batched(inputs))
    assert {name: array.shape for name, array in both.items()} == {
        name: (2, *shape[1:]) if name in batched(inputs) else shape for name, shape in of_one.items()
    }


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("g (float[1,2] x) => (float[1,2] y) <float[2] w = {1,2}> { y = Mul(x, w) }", Precision.FP32),
        ("g (float16[1,2] x) => (float16[1,2] y) <float16[2] w = {1,2}> { y = Mul(x, w) }", Precision.FP16),
        ("g (float[1,2] x) => (uint8[1,2] y) <float s = {1}> { y = QuantizeLinear(x, s) }", Precision.INT8),
        ("g (float[1,2] x) => (float[1,2] y) { y = Relu(x) }", None),
    ],
)
def test_a_file_shows_its_precision(tmp_path: Path, text: str, precision: Precision | None) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + text), path)
    subject = subject_of(path)
    assert subject.precision is precision
    assert subject.model == "net"
    assert len(subject.digest) == 64


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="neither an artifact folder nor an ONNX file"):
        subject_of(tmp_path / "empty")
    assert is_path("some/where/net.onnx")
    assert not is_path("resnet50")
