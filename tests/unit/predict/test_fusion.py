"""Fusion rules on small graphs written as ONNX text: input and expectation stand together."""

from pathlib import Path

import onnx
import pytest

from deploykit.base.errors import UsageError
from deploykit.predict.features import features_of
from deploykit.predict.kernels import Kind, ModelFeatures

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def features(tmp_path: Path, text: str, **shapes: tuple[int, ...]) -> ModelFeatures:
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + text), path)
    return features_of(path, "net", shapes)


def ops(found: ModelFeatures) -> list[str]:
    return [group.ops for group in found.groups]


def test_convolution_takes_activation_and_residual_with_it(tmp_path: Path) -> None:
    zeros = ",".join(["0"] * 576)
    found = features(
        tmp_path,
        f"""net (float[N,8,6,6] x) => (float[N,8,6,6] y) <float[8,8,3,3] w = {{{zeros}}}> {{
            a = Conv <pads = [1,1,1,1]> (x, w)
            n = Relu (a)
            b = Conv <pads = [1,1,1,1]> (n, w)
            c = Add (b, x)
            y = Relu (c)
        }}""",
    )
    assert ops(found) == ["Conv+Relu", "Conv+Add+Relu"]
    first, second = found.groups
    assert (first.kind, first.m, first.n, first.k) == (Kind.CONV, 36, 8, 72)
    assert first.inputs == 288
    assert second.inputs == 2 * 288
    assert found.flops == 2 * 2 * 36 * 8 * 72


def test_depthwise_is_a_class_of_its_own(tmp_path: Path) -> None:
    zeros = ",".join(["0"] * 72)
    found = features(
        tmp_path,
        f"""net (float[1,8,6,6] x) => (float[1,8,6,6] y) <float[8,1,3,3] w = {{{zeros}}}> {{
            y = Conv <group = 8, pads = [1,1,1,1]> (x, w)
        }}""",
    )
    assert [group.kind for group in found.groups] == [Kind.DEPTHWISE]
    assert found.flops == 2 * 36 * 9 * 8


def test_a_diamond_of_pointwise_operators_is_one_kernel_with_its_producer(tmp_path: Path) -> None:
    zeros = ",".join(["0"] * 64)
    found = features(
        tmp_path,
        f"""net (float[1,8,6,6] x) => (float[1,8,6,6] y) <float[8,8,1,1] w = {{{zeros}}}> {{
            c = Conv (x, w)
            s = Sigmoid (c)
            y = Mul (c, s)
        }}""",
    )
    assert ops(found) == ["Conv+Sigmoid+Mul"]


def test_attention_is_one_group(tmp_path: Path) -> None:
    found = features(
        tmp_path,
        """net (float[1,4,10,16] q, float[1,4,16,10] k, float[1,4,10,16] v, float[1] scale) => (float[1,4,10,16] y) {
            s = MatMul (q, k)
            t = Mul (s, scale)
            p = Softmax <axis = -1> (t)
            y = MatMul (p, v)
        }""",
    )
    assert [group.kind for group in found.groups] == [Kind.ATTENTION]
    group = found.groups[0]
    assert (group.m, group.n, group.k, group.groups) == (10, 10, 32, 4)


def test_quantize_pairs_and_casts_cost_nothing(tmp_path: Path) -> None:
    zeros = ",".join(["0"] * 64)
    found = features(
        tmp_path,
        f"""net (float[1,8,6,6] x) => (float[1,8,6,6] y)
        <float[8,8,1,1] w = {{{zeros}}}, float sx = {{0.1}}, int8 z = {{0}}> {{
            xq = QuantizeLinear (x, sx, z)
            xd = DequantizeLinear (xq, sx, z)
            wq = QuantizeLinear (w, sx, z)
            wd = DequantizeLinear (wq, sx, z)
            c = Conv (xd, wd)
            y = Relu (c)
        }}""",
    )
    assert ops(found) == ["Conv+Relu"]
    assert found.groups[0].k == 8


def test_shape_arithmetic_is_followed(tmp_path: Path) -> None:
    zeros = ",".join(["0"] * 64)
    found = features(
        tmp_path,
        f"""net (float[N,8,6,6] x) => (float[N,4,6,6] y)
        <float[8,8,1,1] w = {{{zeros}}}, int64 one = {{1}}, int64 two = {{2}},
         int64[1] zero = {{0}}, int64[1] axis = {{1}}> {{
            c = Conv (x, w)
            size = Shape (c)
            channels = Gather (size, one)
            half = Div (channels, two)
            ends = Unsqueeze (half, zero)
            part = Slice (c, zero, ends, axis)
            y = Relu (part)
        }}""",
    )
    assert found.unknown_ops == ()
    assert ops(found) == ["Conv+Relu"]


def test_batch_does_not_change_what_a_sample_costs(tmp_path: Path) -> None:
    zeros = ",".join(["0"] * 64)
    text = """net (float[%s,8,6,6] x) => (float[%s,8,6,6] y) <float[8,8,1,1] w = {%s}> { y = Conv (x, w) }"""
    one = features(tmp_path, text % ("N", "N", zeros))
    four = features(tmp_path, text % (4, 4, zeros))
    assert one.groups == four.groups
    assert one.input_elements == four.input_elements


def test_open_height_names_the_input_and_the_option(tmp_path: Path) -> None:
    text = "net (float[N,3,H,6] x) => (float[N,3,H,6] y) { y = Relu (x) }"
    with pytest.raises(UsageError, match=r"'x' leaves dimension 2 \(H\) open.*--input x"):
        features(tmp_path, text)
    assert features(tmp_path, text, x=(1, 3, 4, 6)).input_elements == 72


def test_not_an_onnx_file_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(UsageError, match="cannot be read as ONNX"):
        features_of(path, "net")
