"""Q/DQ placements built by TensorRT-RTX itself: which become INT8, and what is said of those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deploykit.engine.child import BuildTask, build_in_child
from deploykit.engine.fusion import ComputeNode, compute_nodes, lost_in_words
from deploykit.engine.options import BuildOptions, ShapeRange

pytest.importorskip("tensorrt_rtx")

ZERO = numpy_helper.from_array(np.int8(0), "zero")


def quantized(source: str, result: str) -> tuple[list[Any], list[Any]]:
    nodes = [
        helper.make_node("QuantizeLinear", [source, f"{result}_scale", "zero"], [f"{result}_q"], name=f"{result}_Q"),
        helper.make_node("DequantizeLinear", [f"{result}_q", f"{result}_scale", "zero"], [result], name=f"{result}_DQ"),
    ]
    return nodes, [numpy_helper.from_array(np.float32(0.05), f"{result}_scale")]


def weights(shape: tuple[int, ...], axis: int) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    values = {
        "w_int8": rng.integers(-127, 127, shape, dtype=np.int8),
        "w_scale": np.full(shape[axis], 0.01, np.float32),
        "w_zero": np.zeros(shape[axis], np.int8),
    }
    node = helper.make_node("DequantizeLinear", ["w_int8", "w_scale", "w_zero"], ["w"], name="w_DQ", axis=axis)
    return [node], [numpy_helper.from_array(array, name) for name, array in values.items()]


def built(
    tmp_path: Path,
    operator: str,
    weight_shape: tuple[int, ...],
    *,
    axis: int = 0,
    shape: tuple[int, ...] = (1, 16, 16, 16),
    input_quantized: bool = True,
    weights_quantized: bool = True,
    between: str | None = None,
    name: str = "it",
    **attributes: Any,
) -> ComputeNode:
    """One operator behind Q/DQ in an engine for compute capability 8.9."""
    nodes, constants, source, kernel = [], [ZERO], "x", "w"
    if input_quantized:
        more, held = quantized("x", "xd")
        nodes, constants, source = nodes + more, constants + held, "xd"
    if between is not None:
        nodes.append(helper.make_node(between, [source], ["mid"], name="between"))
        source = "mid"
    if weights_quantized:
        more, held = weights(weight_shape, axis)
        nodes, constants = nodes + more, constants + held
    else:
        constants.append(numpy_helper.from_array(np.ones(weight_shape, np.float32), "w"))
    nodes.append(helper.make_node(operator, [source, kernel], ["c"], name=name, **attributes))
    nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", [None] * len(shape)))
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)
    ranges = (ShapeRange(name="x", min=shape, opt=shape, max=shape),)
    task = BuildTask(
        module="tensorrt_rtx", onnx_path=path, shapes=ranges, options=BuildOptions(), compute_capability="8.9"
    )
    (node,) = compute_nodes(path, build_in_child(task)[0].layers)
    return node


@pytest.mark.parametrize(
    ("operator", "weight_shape", "options"),
    [
        ("Conv", (32, 16, 3, 3), {}),
        ("Conv", (16, 1, 3, 3), {"group": 16}),
        ("Conv", (32, 4, 3, 3), {"group": 4}),
        ("Conv", (13, 7, 3, 3), {"shape": (1, 7, 16, 16)}),
        ("Conv", (32, 16, 3), {"shape": (1, 16, 64)}),
        ("Conv", (32, 16, 3, 3, 3), {"shape": (1, 16, 8, 8, 8)}),
        ("Conv", (32, 16, 3, 3), {"between": "Identity"}),
        ("Conv", (32, 16, 3, 3), {"name": ""}),
        ("MatMul", (128, 96), {"axis": 1, "shape": (1, 64, 128)}),
        ("MatMul", (128, 97), {"axis": 1, "shape": (4, 128)}),
        ("Gemm", (96, 128), {"axis": 0, "shape": (4, 128), "transB": 1}),
    ],
)
def test_both_operands_behind_dequantize_become_int8(
    operator: str, weight_shape: tuple[int, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    node = built(tmp_path, operator, weight_shape, **options)
    assert (node.quantized, node.precision, node.lost) == (True, "int8", False)


@pytest.mark.parametrize(
    ("operator", "weight_shape", "options", "why"),
    [
        ("Conv", (32, 16, 3, 3), {"input_quantized": False}, "its input is not quantized"),
        ("Conv", (32, 16, 3, 3), {"weights_quantized": False}, "its weight operand is not quantized"),
        ("Conv", (32, 16, 3, 3), {"between": "Sigmoid"}, "Sigmoid 'between' stands between its input"),
        ("Conv", (32, 16, 3, 3), {"axis": 1}, "lie along axis 1"),
        ("MatMul", (128, 96), {"axis": 0, "shape": (1, 64, 128)}, "lie along axis 0"),
        ("ConvTranspose", (16, 32, 2, 2), {"axis": 1}, "transposed convolution"),
    ],
)
def test_what_broke_it_is_named(
    operator: str, weight_shape: tuple[int, ...], options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    node = built(tmp_path, operator, weight_shape, **options)
    assert (node.quantized, node.precision, node.lost) == (True, "fp32", True)
    assert why in (node.why or "")
    assert why in (lost_in_words([node]) or "")


def test_what_was_never_quantized_is_not_lost(tmp_path: Path) -> None:
    node = built(tmp_path, "Conv", (32, 16, 3, 3), input_quantized=False, weights_quantized=False)
    assert (node.quantized, node.precision, node.lost) == (False, "fp32", False)
    assert lost_in_words([node]) is None
