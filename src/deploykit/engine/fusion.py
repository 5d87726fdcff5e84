"""Which convolutions and matrix products of a graph an engine really runs in INT8, and what kept the others from it.

The graph says what was meant (both operands come out of DequantizeLinear), the fused layers say what became of it. The
reasons are the ones that building with TensorRT-RTX 1.7 shows (tests/integration/test_engine_fusion.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from deploykit.engine.layers import EngineLayer

OPERATORS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""ONNX operators that hold the arithmetic of a network."""
_TRANSPARENT = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze", "Flatten")
"""TensorRT moves Q/DQ across these, so that they may stand between DequantizeLinear and its user."""
_SEARCH_DEPTH = 4


class ComputeNode(BaseModel):
    """One convolution or matrix product.

    Attributes:
        name: Of the ONNX node.
        op_type: ONNX operator.
        quantized: Whether the graph hands it INT8 operands, or tries to.
        precision: What the engine runs it in; None where no fused layer names it.
        why: Where it was to be INT8 and is not: what broke it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    op_type: str
    quantized: bool
    precision: str | None
    why: str | None = None

    @property
    def lost(self) -> bool:
        """Whether it pays for Q/DQ and runs in floating point."""
        return self.why is not None


def compute_nodes(onnx_path: Path, layers: Sequence[EngineLayer]) -> tuple[ComputeNode, ...]:
    """Every convolution and matrix product of a graph, with what an engine made of it.

    Args:
        onnx_path: The graph that the engine was built from.
        layers: Fused layers of the engine; without any, precisions are not known and nothing counts as lost.
    """
    import onnx

    graph = onnx.load(str(onnx_path), load_external_data=False).graph
    makers = {name: node for node in graph.node for name in node.output}
    precisions = _precisions(layers)
    return tuple(_judged(node, makers, precisions, onnx) for node in graph.node if node.op_type in OPERATORS)


def counts(nodes: Sequence[ComputeNode]) -> dict[str, int]:
    """Precision → how many, the commonest first; `unknown` where no fused layer names the node."""
    return dict(Counter(node.precision or "unknown" for node in nodes).most_common())


def lost_in_words(nodes: Sequence[ComputeNode], shown: int = 5) -> str | None:
    """One sentence about the nodes that pay for Q/DQ and run in floating point; None where there are none."""
    lost = [node for node in nodes if node.lost]
    if not lost:
        return None
    told = "; ".join(f"{node.name} runs in {node.precision}: {node.why}" for node in lost[:shown])
    more = f"; and {len(lost) - shown} more" if len(lost) > shown else ""
    wanted = sum(node.quantized for node in nodes)
    return f"{len(lost)} of {wanted} quantized convolutions and matrix products are not INT8: {told}{more}"


def _precisions(layers: Sequence[EngineLayer]) -> dict[str, str | None]:
    """Node → precision of the layer with its arithmetic; generated kernels (`kgen`) also name their neighbours."""
    found: dict[str, str | None] = {}
    for layer in sorted(layers, key=lambda layer: layer.type == "kgen"):
        for node in layer.onnx_nodes:
            found.setdefault(node, layer.precision)
    return found


def _judged(node: Any, makers: dict[str, Any], precisions: dict[str, str | None], onnx: Any) -> ComputeNode:
    name = node.name or f"node_of_{node.output[0]}"  # how TensorRT's parser calls a node without a name
    operands = [_operand(tensor, makers) for tensor in node.input[:2]]
    quantized = any(found is not None for found, _ in operands)
    precision = precisions.get(name)
    lost = quantized and precision not in (None, "int8")
    why = _why(node, operands, onnx) if lost else None
    return ComputeNode(name=name, op_type=node.op_type, quantized=quantized, precision=precision, why=why)


def _operand(tensor: str, makers: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The DequantizeLinear of an operand (None: none near), and the nodes between that Q/DQ cannot cross."""
    between: list[Any] = []
    for _ in range(_SEARCH_DEPTH):
        maker = makers.get(tensor)
        if maker is None or not maker.input:
            return None, []
        if maker.op_type == "DequantizeLinear":
            return maker, between
        if len([source for source in maker.input if source in makers]) > 1:
            return None, []
        between += [] if maker.op_type in _TRANSPARENT else [maker]
        tensor = maker.input[0]
    return None, []


def _why(node: Any, operands: list[tuple[Any, list[Any]]], onnx: Any) -> str:
    """What broke it, the first that applies."""
    for which, (dequantize, between) in zip(("input", "weight operand"), operands, strict=True):
        if dequantize is None:
            return f"its {which} is not quantized: INT8 takes both operands"
        if between:
            stops = ", ".join(f"{stop.op_type} {stop.name or stop.output[0]!r}" for stop in between)
            return f"{stops} stands between its {which} and the DequantizeLinear: quantize behind it"
    if node.op_type == "ConvTranspose":
        return "TensorRT did not build this transposed convolution in INT8: leave it out with --exclude-nodes"
    weights = operands[1][0]
    axis = next((onnx.helper.get_attribute_value(a) for a in weights.attribute if a.name == "axis"), 1)
    return (
        f"TensorRT does not say why; scales of its weights lie along axis {axis}, and it takes those of the output "
        "channels only (Conv: 0; MatMul and Gemm: the last, before a transposition)"
    )
