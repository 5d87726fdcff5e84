"""Reports over real onnxruntime sessions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from deploykit.accuracy.compare import class_count, compare, why_not_claimed
from deploykit.accuracy.layers import worst_layers
from deploykit.base.artifact import ModelInfo
from deploykit.base.errors import DeploykitError
from deploykit.precision.samples import Samples

TWO_LAYERS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[batch, 3] y)
<float[4, 5] w = {WEIGHTS}, float[5, 3] v = {MORE}>
{
    hidden = MatMul(x, w)
    active = Relu(hidden)
    y = MatMul(active, v)
}
"""


def numbers(count, seed):
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
    return "{" + ", ".join(f"{value:.6f}" for value in values) + "}"


@pytest.fixture
def model_file(tmp_path):
    text = TWO_LAYERS.replace("{WEIGHTS}", numbers(20, 0)).replace("{MORE}", numbers(15, 1))
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def altered(path, name, change):
    """The same model with one constant changed."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(tensor)), name))
    target = path.with_name(f"changed_{name}.onnx")
    onnx.save(model, target)
    return target


def source(labels=None, count=20):
    rows = np.random.default_rng(3).standard_normal((count, 1, 4)).astype(np.float32)
    return Samples(
        "rows",
        range(count),
        lambda item: {"x": rows[item]},
        label_of=None if labels is None else labels.__getitem__,
    )


def report(open_session, reference, candidate, task=None, **options):
    with open_session(reference) as wanted, open_session(candidate) as given:
        return compare(wanted, given, source(**options), task=task, data="rows")


def test_a_model_equals_itself(open_session, model_file):
    found = report(open_session, model_file, model_file, task="classification")
    assert (found.samples, found.cosine, found.sqnr_db, found.top1_agreement) == (20, 1.0, None, 1.0)
    assert found.top1 is None
    assert found.top1_fp32 is None


def test_a_changed_weight_shows(open_session, model_file):
    found = report(open_session, model_file, altered(model_file, "v", lambda w: w + 0.1), task="classification")
    assert 0.9 < found.cosine < 0.9999
    assert 5 < found.sqnr_db < 40
    assert found.outputs[0].name == "y"


def test_agreement_counts_samples_of_another_class(open_session, model_file):
    found = report(open_session, model_file, altered(model_file, "v", np.fliplr), task="classification")
    with open_session(model_file) as session:
        scores = [session.infer(feeds)["y"] for feeds in source().samples()]
    # Mirrored, only the middle class stays where it was, and so do the scores that are all 0.
    assert found.top1_agreement == np.mean([y.argmax() == 1 or not y.any() for y in scores])
    assert 0 < found.top1_agreement < 1


def test_true_top1_of_both(open_session, model_file):
    with open_session(model_file) as session:
        classes = [int(session.infer(feeds)["y"].argmax()) for feeds in source().samples()]
    labels = [(c + 1) % 3 if index < 5 else c for index, c in enumerate(classes)]
    found = report(open_session, model_file, model_file, task="classification", labels=labels)
    assert (found.top1, found.top1_fp32) == (0.75, 0.75)


def test_no_task_no_classes(open_session, model_file):
    assert report(open_session, model_file, model_file).top1_agreement is None


def test_nan_is_reported_and_agrees_with_nothing(open_session, model_file):
    broken = altered(model_file, "v", lambda w: np.full_like(w, np.nan))
    found = report(open_session, model_file, broken, task="classification")
    assert found.outputs[0].not_finite == 20
    assert found.cosine == 0.0
    assert found.top1_agreement == 0.0
    assert found.model_dump_json()  # Nothing in it that JSON has no word for.


def test_another_output_name_is_an_error(open_session, model_file):
    model = onnx.load(model_file)
    model.graph.node[-1].output[0] = model.graph.output[0].name = "z"
    onnx.save(model, model_file.with_name("renamed.onnx"))
    with pytest.raises(DeploykitError, match="'y'"):
        report(open_session, model_file, model_file.with_name("renamed.onnx"))


def test_the_worst_layers_come_first(open_session, model_file):
    changed = altered(model_file, "w", lambda w: w * np.array([1, 1, 1, 1, 1.2], np.float32))
    layers = worst_layers(model_file, changed, source(), open_session)
    assert {(layer.name, layer.op_type) for layer in layers} == {("hidden", "MatMul"), ("active", "Relu")}
    assert layers[0].sqnr_db <= layers[1].sqnr_db


def test_equal_layers_are_not_named(open_session, model_file):
    assert worst_layers(model_file, altered(model_file, "v", np.fliplr), source(), open_session) == ()


def info(**changes):
    return ModelInfo(name="net", reference="net", source="test", **changes)


@pytest.mark.parametrize(
    ("model", "data", "said"),
    [
        (info(random_weights=True), "photos", "random weights"),
        (info(), "random", "noise"),
        (info(), "random:ids=0..4", "noise"),
        (info(), None, "no inputs"),
        (info(), "random_photos/", None),
        (info(), "photos", None),
    ],
)
def test_accuracy_is_not_claimed_from_noise(model, data, said):
    reason = why_not_claimed(model, data)
    assert (reason is None) if said is None else (said in reason)


def test_the_class_count_is_read_from_the_output(open_session, model_file):
    with open_session(model_file) as session:
        assert class_count(session.outputs) == 3
        assert class_count(session.inputs[:0]) is None
