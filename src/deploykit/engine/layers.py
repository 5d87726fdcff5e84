"""The fused layers of an engine, read from what the builder logs.

With `ProfilingVerbosity.DETAILED` the builder sends one verbose message that starts with `Layers:` and has a line a
fused layer: name, type, tensors with their data types and formats, and the ONNX nodes behind it. It is log text and no
API, so it is read leniently: a line that does not parse is skipped, a field that is missing stays empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

LAYERS_PREFIX = "Layers:"

_LINE = re.compile(r"^Name: (?P<name>[^,]*), LayerType: (?P<type>[^,]*), (?P<rest>.*)$")
_TENSOR = re.compile(r"\{ Name: (?P<name>[^,]*), Dimensions: \[(?P<dims>[^\]]*)\].*?Datatype: (?P<dtype>\w+)")
_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_SECTIONS = ("Inputs", "Constants", "Outputs")

_WIDTH = {"int8": 1, "fp8": 1, "bool": 1, "uint8": 1, "fp16": 2, "bf16": 2, "int64": 8}
"""Bytes; 4 for all others."""
_PRECISION = {"Float": "fp32", "Half": "fp16", "BFloat16": "bf16", "Int8": "int8", "FP8": "fp8", "Int32": "int32"}


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LayerTensor(_Frozen):
    """A tensor at a layer's border. `shape` has -1 for an open dimension."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class EngineLayer(_Frozen):
    """One fused layer.

    Attributes:
        name: As the builder names it.
        type: The builder's word: `correlation`, `gemm`, `kgen`, ...
        precision: Of the operands that the arithmetic reads, `fp32`, `fp16`, `int8`, ...; None where it has none.
        onnx_nodes: Nodes of the graph that went into it.
        inputs: What it reads.
        outputs: What it writes.
    """

    name: str
    type: str
    precision: str | None
    onnx_nodes: tuple[str, ...] = ()
    inputs: tuple[LayerTensor, ...] = ()
    outputs: tuple[LayerTensor, ...] = ()


class LayerSummary(_Frozen):
    """What the fused layers say about a build.

    Attributes:
        layers: How many fused layers.
        traffic_bytes: What the layers read and write of activations for one sample (open dimensions count once).
        kernels: Generated pointwise, quantize and move kernels (`kgen`): what fusion left over.
        reformats: Kernels that only change layout or type.
    """

    layers: int
    traffic_bytes: int
    kernels: int
    reformats: int


def parse_layers(messages: Sequence[str]) -> tuple[EngineLayer, ...]:
    """The fused layers in the builder's messages; none where it logged no table."""
    tables = [message for message in messages if message.startswith(LAYERS_PREFIX)]
    lines = [line for table in tables for line in table.splitlines()]
    return tuple(layer for line in lines if (layer := _parse_line(line)) is not None)


def summarize(layers: Sequence[EngineLayer]) -> LayerSummary:
    """Count what fusion left over."""
    return LayerSummary(
        layers=len(layers),
        traffic_bytes=sum(_bytes(tensor) for layer in layers for tensor in (*layer.inputs, *layer.outputs)),
        kernels=sum(layer.type == "kgen" for layer in layers),
        reformats=sum(_is_reformat(layer) for layer in layers),
    )


def _parse_line(line: str) -> EngineLayer | None:
    match = _LINE.match(line.strip())
    if match is None:
        return None
    sections = {section: _tensors(match["rest"], section) for section in _SECTIONS}
    return EngineLayer(
        name=match["name"],
        type=match["type"],
        precision=_precision(sections),
        onnx_nodes=tuple(dict.fromkeys(_NODE.findall(match["rest"]))),
        inputs=sections["Inputs"],
        outputs=sections["Outputs"],
    )


def _tensors(text: str, section: str) -> tuple[LayerTensor, ...]:
    start = text.find(f"{section}: [")
    if start < 0:
        return ()
    ends = [end for other in (*_SECTIONS, "TacticName") if (end := text.find(f", {other}: ", start)) >= 0]
    body = text[start : min(ends, default=len(text))]
    return tuple(
        LayerTensor(name=found["name"], dtype=_precision_word(found["dtype"]), shape=_shape(found["dims"]))
        for found in _TENSOR.finditer(body)
    )


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size.strip().lstrip("-").isdigit())


def _precision_word(dtype: str) -> str:
    return _PRECISION.get(dtype, dtype.lower())


def _precision(sections: dict[str, tuple[LayerTensor, ...]]) -> str | None:
    """Of the largest constant (the weights) where there is one, else of the first input, else of the first output."""
    weights = [tensor for tensor in sections["Constants"] if len(tensor.shape) > 1]
    for tensors in (weights, sections["Inputs"], sections["Outputs"]):
        if tensors:
            return tensors[0].dtype
    return None


def _bytes(tensor: LayerTensor) -> int:
    return math.prod(size for size in tensor.shape if size > 0) * _WIDTH.get(tensor.dtype, 4)


def _is_reformat(layer: EngineLayer) -> bool:
    """A kernel with no arithmetic: TensorRT calls it Reformat; RTX generates `Move` and bare `Cast` kernels."""
    name = layer.name
    return layer.type.lower() == "reformat" or bool(re.search(r"__myl_(Move|Cast|Repl|Tran)+_", name))
