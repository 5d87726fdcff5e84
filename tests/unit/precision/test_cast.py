"""FP16 graphs as written: valid, loadable, right in values when FP16 really rounds."""

from __future__ import annotations

import datetime as dt

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from deploykit.base.artifact import Artifact, BatchRange, Manifest, ModelInfo, read_artifact, seal
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.base.vocab import Precision
from deploykit.precision.cast import Fp16Recipe, cast_fp16, cast_model
from deploykit.precision.half_eval import write_rounding_model
from deploykit.precision.ranges import collect_ranges
from deploykit.precision.samples import Samples

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)


@pytest.fixture
def made(tmp_path, open_session):
    """Cast a graph given as text over samples; runs of fp32, of the fp16 file, and of its rounding form."""

    def make(text, samples, *, ranges=True, keep_io_types=True, opset=17):
        source = tmp_path / "fp32.onnx"
        header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
        onnx.save(onnx.parser.parse_model(header + text), source)
        return Made(source, tmp_path, samples, ranges, keep_io_types, open_session)

    return make


class Made:
    def __init__(self, source, folder, samples, ranges, keep_io_types, open_session):
        data = Samples("rows", range(len(samples)), samples.__getitem__)
        self.ranges = collect_ranges(source, data, len(samples), open_session) if ranges else None
        self.file = folder / "fp16.onnx"
        self.cast = cast_model(source, self.file, ranges=self.ranges, keep_io_types=keep_io_types)
        write_rounding_model(self.file, folder / "rounded.onnx")
        self.model = onnx.load(self.file)
        self._sessions = [open_session(path) for path in (source, self.file, folder / "rounded.onnx")]

    def outputs(self, feeds, name="y"):
        """fp32, the fp16 file as onnxruntime's CPU provider runs it, and really rounded."""
        return [
            session.infer({spec.name: feeds[spec.name].astype(spec.dtype) for spec in session.inputs})[name]
            for session in self._sessions
        ]

    def types(self):
        graph = onnx.shape_inference.infer_shapes(self.model, strict_mode=True).graph
        return {
            value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)
        }

    def count(self, operator):
        return sum(node.op_type == operator for node in self.model.graph.node)


def cosine(a, b):
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def rows(count=6, shape=(1, 8), seed=0, scale=1.0, name="x"):
    rng = np.random.default_rng(seed)
    return [{name: (rng.standard_normal(shape) * scale).astype(np.float32)} for _ in range(count)]


def constant(shape, seed=1, scale=0.5):
    size = int(np.prod(shape))
    numbers = ", ".join(f"{value:.5f}" for value in np.random.default_rng(seed).standard_normal(size) * scale)
    return f"{{{numbers}}}"


TWO_LAYERS = f"""
g (float[b, 8] x) => (float[b, 8] y)
<float[8, 8] w = {constant((8, 8))}, float[8, 8] v = {constant((8, 8), 2)}>
{{ a = MatMul(x, w) r = Relu(a) y = MatMul(r, v) }}
"""


def test_inputs_and_outputs_stay_float32_by_default(made):
    cast = made(TWO_LAYERS, rows())
    types = cast.types()
    assert types["x"] == types["y"] == TensorProto.FLOAT
    assert types["a"] == types["r"] == TensorProto.FLOAT16
    assert cast.count("Cast") == 2
    assert {t.data_type for t in cast.model.graph.initializer} == {TensorProto.FLOAT16}


def test_inputs_and_outputs_become_float16_on_request(made):
    cast = made(TWO_LAYERS, rows(), keep_io_types=False)
    types = cast.types()
    assert types["x"] == types["y"] == TensorProto.FLOAT16
    assert cast.count("Cast") == 0


def test_values_are_right(made):
    samples = rows()
    wanted, run, rounded = made(TWO_LAYERS, samples).outputs(samples[0])
    assert cosine(wanted, run) > 0.99999
    assert cosine(wanted, rounded) > 0.99999
    assert not np.array_equal(wanted, rounded)


def test_a_tensor_read_in_both_types_is_cast_once(made):
    text = """
    g (float[b, 8] x) => (float[b, 8] y) <float big = {1000}>
    { r = Relu(x) a = Mul(r, big) b = Mul(r, big) c = Add(a, b) d = Add(r, r) e = Div(c, a) y = Add(d, e) }
    """
    cast = made(text, [{"x": np.full((1, 8), 30.0, np.float32)}])
    assert {"Mul_a", "Mul_b", "Add_c", "Div_e"} <= set(cast.cast.kept)
    sources = [node.input[0] for node in cast.model.graph.node if node.op_type == "Cast"]
    assert sorted(sources) == sorted(set(sources))
    wanted, _, rounded = cast.outputs({"x": np.full((1, 8), 30.0, np.float32)})
    np.testing.assert_allclose(rounded, wanted, rtol=2e-3)


def test_an_input_with_several_readers_is_valid(made):
    text = "g (float[b, 8] x) => (float[b, 8] y, float[b, 8] z) { a = Relu(x) y = Add(a, x) z = Sigmoid(x) }"
    cast = made(text, rows())
    names = [node.name for node in cast.model.graph.node]
    assert len(names) == len(set(names))


def test_a_constant_read_in_both_types_is_stored_in_both(made):
    text = """
    g (float[b, 8] x, float[b, 8] z) => (float[b, 8] y) <float two = {2}>
    { a = Mul(x, two) b = Mul(z, two) c = Div(b, z) y = Add(a, c) }
    """
    cast = made(text, [{**row, "z": np.full((1, 8), 1e5, np.float32)} for row in rows()])
    assert set(cast.cast.kept) == {"Mul_b", "Div_c"}
    assert {t.data_type for t in cast.model.graph.initializer} == {TensorProto.FLOAT, TensorProto.FLOAT16}


def test_an_output_that_others_read_keeps_its_name_and_type(made):
    text = "g (float[b, 8] x) => (float[b, 8] y, float[b, 8] z) { y = Relu(x) z = Sigmoid(y) }"
    samples = rows()
    cast = made(text, samples)
    assert cast.types()["y"] == TensorProto.FLOAT
    for name in ("y", "z"):
        wanted, _, rounded = cast.outputs(samples[0], name)
        np.testing.assert_allclose(rounded, wanted, atol=2e-3)


def test_an_input_that_is_an_output(made):
    text = "g (float[b, 8] x) => (float[b, 8] y, float[b, 8] z) { y = Identity(x) z = Relu(x) }"
    samples = rows()
    wanted, _, rounded = made(text, samples).outputs(samples[0])
    np.testing.assert_allclose(rounded, wanted, atol=2e-3)


# Values that FP16 loses

OVERFLOW = f"""
g (float[b, 4, 64, 64] x) => (float[b, 5] y)
<float area = {{4096}}, float[4, 5] v = {constant((4, 5))}, int64[2] axes = {{2, 3}}>
{{ r = Relu(x) s = ReduceSum <keepdims = 0> (r, axes) m = Div(s, area) y = MatMul(m, v) }}
"""


def warm(count=3):
    return [{"x": np.random.default_rng(i).uniform(20, 40, (1, 4, 64, 64)).astype(np.float32)} for i in range(count)]


def test_a_sum_that_overflows_between_small_numbers_is_kept(made):
    samples = warm()
    cast = made(OVERFLOW, samples)
    assert set(cast.cast.kept) == {"ReduceSum_s", "Div_m"}
    wanted, _, rounded = cast.outputs(samples[0])
    assert cosine(wanted, rounded) > 0.9999


def test_the_rounding_form_shows_what_onnxruntime_hides(made):
    samples = warm()
    wanted, run, rounded = made(OVERFLOW, samples, ranges=False).outputs(samples[0])
    assert cosine(wanted, run) > 0.999
    assert not np.isfinite(rounded).all()


def test_an_epsilon_survives(made):
    text = """
    g (float[b, 8] x) => (float[b, 8] y) <float eps = {1e-8}>
    { m = ReduceMean <axes = [-1]> (x) c = Sub(x, m) q = Mul(c, c) v = ReduceMean <axes = [-1]> (q)
      e = Add(v, eps) d = Sqrt(e) y = Div(c, d) }
    """
    flat = {"x": np.full((1, 8), 0.25, np.float32)}
    cast = made(text, rows())  # Calibration has no flat row: the constant alone must tell.
    _, _, rounded = cast.outputs(flat)
    np.testing.assert_array_equal(rounded, np.zeros((1, 8)))


def test_a_small_scale_survives(made):
    text = """
    g (float[b, 8] x) => (float[b, 8] y) <float tiny = {3e-8}, float huge = {2e7}>
    { r = Relu(x) t = Mul(r, tiny) y = Mul(t, huge) }
    """
    samples = rows()
    cast = made(text, samples)
    assert {"Mul_t", "Mul_y"} == set(cast.cast.kept)
    wanted, _, rounded = cast.outputs(samples[0])
    np.testing.assert_allclose(rounded, wanted, rtol=2e-3)


ATTENTION = """
g (float[b, 8, 8] x, float[b, 1, 8] mask) => (float[b, 8, 8] y)
<float one = {1}, float minus = {-1e9}, float lowest = {-3.4028234e38}>
{ t = Transpose <perm = [0, 2, 1]> (x) s = MatMul(x, t) i = Sub(one, mask) p = Mul(i, minus) q = Mul(i, lowest)
  m = Max(p, q) n = Add(m, p) a = Add(s, n) w = Softmax(a) y = MatMul(w, x) }
"""


@pytest.mark.parametrize("ranges", [True, False])
def test_masks_stay_finite_even_where_all_is_masked(made, ranges):
    rng = np.random.default_rng(0)
    samples = [
        {"x": rng.standard_normal((1, 8, 8)).astype(np.float32), "mask": (np.arange(8) < n).reshape(1, 1, 8) * 1.0}
        for n in (8, 5, 1, 0)
    ]
    samples = [{name: array.astype(np.float32) for name, array in feeds.items()} for feeds in samples]
    cast = made(ATTENTION, samples, ranges=ranges)
    assert cast.cast.masks == (("lowest", "minus") if ranges else ())
    for feeds in samples[:3]:
        wanted, _, rounded = cast.outputs(feeds)
        assert cosine(wanted, rounded) > 0.9999
    assert np.isfinite(cast.outputs(samples[3])[2]).all()


def test_a_camera_input_stays_uint8(made):
    text = f"""
    g (uint8[b, 6, 6, 3] image) => (float[b, 4, 4, 4] y)
    <float[3] mean = {{123, 116, 103}}, float[3] std = {{58, 57, 57}}, float[4, 3, 3, 3] w = {constant((4, 3, 3, 3))}>
    {{ f = Cast <to = 1> (image) s = Sub(f, mean) n = Div(s, std) t = Transpose <perm = [0, 3, 1, 2]> (n)
       y = Conv(t, w) }}
    """
    rng = np.random.default_rng(0)
    samples = [{"image": rng.integers(0, 256, (1, 6, 6, 3), dtype=np.uint8)} for _ in range(4)]
    cast = made(text, samples)
    assert cast.types()["image"] == TensorProto.UINT8
    assert cast.types()["f"] == TensorProto.FLOAT16
    wanted, _, rounded = cast.outputs(samples[0])
    assert cosine(wanted, rounded) > 0.9999


def test_constants_in_nodes_are_cast_too(made):
    text = """
    g (float[b, 8] x, int64[2] shape) => (float[b, 8] y)
    { two = Constant <value_float = 2.0> () filled = ConstantOfShape <value = float[1] {0.5}> (shape)
      a = Mul(x, two) y = Add(a, filled) }
    """
    feeds = {**rows(1)[0], "shape": np.array([1, 8])}
    cast = made(text, [feeds])
    assert cast.types()["filled"] == TensorProto.FLOAT16
    wanted, _, rounded = cast.outputs(feeds)
    np.testing.assert_allclose(rounded, wanted, atol=4e-3)


BRANCHES = """
g (float[b, 8] x, bool go) => (float[b, 8] y)
{ r = Relu(x)
  c = If (go) <
    then_branch = t () => (float[b, 8] p) { p = Add(r, x) },
    else_branch = e () => (float[b, 8] q) { k = Identity(r) q = Mul(k, r) }
  >
  s = Sigmoid(r) y = Mul(c, s) }
"""


@pytest.mark.parametrize("go", [True, False])
@pytest.mark.parametrize("keep_io_types", [True, False])
def test_branches_compute_in_float32_on_what_they_capture(made, go, keep_io_types):
    feeds = [{**row, "go": np.array(go)} for row in rows()]
    cast = made(BRANCHES, feeds, keep_io_types=keep_io_types)
    assert cast.cast.kept == {"If_c": "If: branches and loop bodies compute in float32"}
    wanted, run, rounded = cast.outputs(feeds[0])
    np.testing.assert_allclose(rounded, wanted, atol=4e-3)
    np.testing.assert_allclose(run, wanted, atol=4e-3)


LOOP = """
g (float[b, 8] x, int64 n, bool on) => (float[b, 8] y)
{ r = Relu(x)
  c = Loop (n, on, r) <
    body = l (int64 i, bool before, float[b, 8] u) => (bool after, float[b, 8] v)
    { after = Identity(before) v = Add(u, r) }
  >
  y = Sigmoid(c) }
"""


def test_loops_too(made):
    feeds = [{**row, "n": np.array(3), "on": np.array(True)} for row in rows()]
    wanted, _, rounded = made(LOOP, feeds).outputs(feeds[0])
    np.testing.assert_allclose(rounded, wanted, atol=4e-3)


def test_a_model_without_float32_is_refused(tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 17]> g (int64[4] x) => (int64[4] y) { y = Add(x, x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "whole.onnx")
    with pytest.raises(UsageError, match="nothing to cast"):
        cast_model(tmp_path / "whole.onnx", tmp_path / "fp16.onnx", ranges=None)


def test_large_weights_go_beside_the_graph(made, tmp_path, monkeypatch):
    monkeypatch.setattr("deploykit.precision.onnx_files.LARGEST_PROTOBUF", 100)
    samples = rows(shape=(1, 64))
    text = f"g (float[b, 64] x) => (float[b, 64] y) <float[64, 64] w = {constant((64, 64))}> {{ y = MatMul(x, w) }}"
    cast = made(text, samples)
    assert (tmp_path / "fp16.onnx.data").is_file()
    wanted, run, rounded = cast.outputs(samples[0])
    assert cosine(wanted, rounded) > 0.9999
    assert cosine(wanted, run) > 0.9999


# Ranges


def test_ranges_are_those_of_all_samples_and_finite_values(made):
    text = "g (float[b, 2] x) => (float[b, 2] y) { a = Mul(x, x) l = Log(x) y = Add(a, l) }"
    samples = [{"x": np.array([[value, 3.0]], np.float32)} for value in (1.0, 0.0, 2.0)]
    ranges = made(text, samples).ranges
    assert ranges["x"] == (0.0, 3.0)
    assert ranges["a"] == (0.0, 9.0)
    assert ranges["l"] == pytest.approx((0.0, np.log(3)))  # log 0 is −Inf and says nothing.
    assert set(ranges) == {"x", "a", "l", "y"}


# Artifacts


@pytest.fixture
def parent(tmp_path):
    folder = tmp_path / "parent"
    folder.mkdir()
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    onnx.save(onnx.parser.parse_model(header + TWO_LAYERS), folder / "model.onnx")
    manifest = Manifest(
        key="k",
        model=ModelInfo(name="net", reference="net", source="test"),
        precision=Precision.FP32,
        opset=17,
        inputs=(TensorSpec(name="x", dtype="float32", shape=("b", 8)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("b", 8)),),
        batch=BatchRange(min=1, opt=1, max=4),
        created=NOW,
    )
    seal(folder, manifest)
    return read_artifact(folder)


def cast_artifact(parent: Artifact, folder, recipe, ranges=None) -> Artifact:
    folder.mkdir()
    seal(folder, cast_fp16(parent, folder, recipe, ranges=ranges, created=NOW))
    return read_artifact(folder, check_digests=True)


def test_the_new_artifact_names_its_parent_and_what_was_kept(parent, tmp_path):
    made = cast_artifact(parent, tmp_path / "new", Fp16Recipe(data="rows", samples=4), ranges={"r": (0.0, 5e4)})
    manifest = made.manifest
    assert manifest.precision is Precision.FP16
    assert manifest.parents == (parent.digest,)
    assert set(manifest.kept_fp32) == {"Relu_r", "MatMul_y"}
    assert "5e+04" in manifest.kept_fp32["Relu_r"]
    assert made.digest != parent.digest
    assert manifest.inputs == parent.manifest.inputs


def test_without_ranges_it_warns(parent, tmp_path):
    made = cast_artifact(parent, tmp_path / "new", Fp16Recipe())
    assert any("calibration data" in text for text in made.manifest.warnings)


def test_float16_inputs_are_declared(parent, tmp_path):
    made = cast_artifact(parent, tmp_path / "new", Fp16Recipe(keep_io_types=False))
    assert [spec.dtype for spec in (*made.manifest.inputs, *made.manifest.outputs)] == ["float16", "float16"]


def test_the_key_holds_all_that_matters(parent):
    recipes = [Fp16Recipe(), Fp16Recipe(keep_io_types=False), Fp16Recipe(data="d", data_digest="1", samples=3)]
    assert len({recipe.key(parent) for recipe in recipes}) == 3
    assert Fp16Recipe().key(parent) == Fp16Recipe().key(parent)


def test_only_fp32_is_cast(parent, tmp_path):
    made = cast_artifact(parent, tmp_path / "new", Fp16Recipe())
    with pytest.raises(UsageError, match="fp16"):
        cast_fp16(made, tmp_path, Fp16Recipe(), ranges=None, created=NOW)
