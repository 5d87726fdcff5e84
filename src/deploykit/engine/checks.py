"""What TensorRT refuses in a quantized graph, found before the builder is started and named all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deploykit.base.errors import UsageError

_FLOAT_TYPES_OF_DQ = ("INT8", "UINT8", "INT4", "FLOAT8E4M3FN", "FLOAT4E2M1")
_NOT_IN_TENSORRT = ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear")
_SHOWN = 12


def check_quantization(onnx_path: Path) -> None:
    """Refuse Q/DQ that TensorRT's parser would refuse one at a time.

    TensorRT takes symmetric INT8 only (zero point 0), no INT32 DequantizeLinear on a bias, and none of onnxruntime's
    integer operators (parser messages of TensorRT-RTX 1.7: "Non-zero zero point is not supported", "input has type
    Int32 but must have type FP8, FP4, Int4, Int8, or UInt8").

    Raises:
        UsageError: Every tensor that would be refused, by name.
    """
    import onnx

    graph = onnx.load(str(onnx_path), load_external_data=False).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    problems = [problem for node in graph.node if (problem := _problem(node, constants, onnx))]
    if problems:
        more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UsageError(
            f"{onnx_path} is quantized in a way that TensorRT does not take: {'; '.join(problems[:_SHOWN])}{more}. "
            "Quantize the fp32 model with `deploykit export --precision int8` for this target"
        )


def _problem(node: Any, constants: dict[str, Any], onnx: Any) -> str | None:
    if node.op_type in _NOT_IN_TENSORRT:
        return f"{node.name or node.output[0]!r} is a {node.op_type}, an onnxruntime operator"
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return None
    tensor = node.output[0]
    if len(node.input) > 2 and node.input[2] in constants:
        zero_point = onnx.numpy_helper.to_array(constants[node.input[2]])
        if np.any(zero_point != 0):
            return f"{tensor!r} has an asymmetric zero point {np.unique(zero_point).tolist()}"
    if node.op_type == "DequantizeLinear" and node.input[0] in constants:
        kind = onnx.TensorProto.DataType.Name(constants[node.input[0]].data_type)
        if kind not in _FLOAT_TYPES_OF_DQ:
            return f"{tensor!r} dequantizes {kind} (a quantized bias)"
    return None
