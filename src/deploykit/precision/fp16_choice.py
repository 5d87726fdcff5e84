"""Which nodes stay FP32 when a graph is cast to FP16, and why. Pure: a graph and ranges in, names and reasons out.

A tensor goes wrong in FP16 in five ways, each found from what the graph and the observed ranges say:

    overflow      a value, or a sum inside a reduction, beyond 65504
    vanishing     a tensor, or the small end of a tensor that is divided by, below the smallest normal FP16 number
    constants     an epsilon or scale that FP16 rounds by more than 1 %
    exactness     the argument of a sine, an index or a size, where an absolute error of 2^-11 of the value is too much
    no such type  ONNX does not define the operator in FP16

Additive masks (−1e9, the lowest float32) are the one case that is mended instead: they become `MASK_VALUE`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from deploykit.precision.fp16_graph import COORDINATES, MOVEMENT, NEVER_CAST, Fp16Graph

if TYPE_CHECKING:
    import onnx

Ranges = Mapping[str, tuple[float, float]]
"""Tensor → lowest and highest finite value seen."""

LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14

HEADROOM = 4.0
"""Calibration sees few samples: what comes within two bits of overflow there may overflow elsewhere."""

MASK_VALUE = -30000.0
"""What a mask constant becomes: exp of it is 0, and two masks and a score added up still stay finite in FP16, which the
lowest finite number does not offer: a fully masked row would be all −Inf and its softmax NaN."""

_HELD = 0.01
"""Relative error up to which a constant counts as held."""

_SINE_LIMIT = 8.0
"""FP16 has steps of 2^-8 there; a larger argument moves the sine by more than 0.4 %."""

_MASK_CARRIERS = MOVEMENT | {"Add", "Max", "Where", "Mul", "Sub", "Trilu"}
_EXACT_CARRIERS = MOVEMENT | {
    "Abs", "Add", "Cast", "Ceil", "Clip", "ConstantOfShape", "Div", "Floor", "MatMul", "Max", "Min", "Mod", "Mul",
    "Neg", "Pow", "Reciprocal", "Round", "Sqrt", "Sub", "Where",
}  # fmt: skip
_GUARDED = MOVEMENT | {"Sqrt", "Log", "Pow", "Reciprocal"}
_ISLANDS = MOVEMENT | {"Cast", "ConstantOfShape"}
_WEIGHT_INPUTS = {
    "Conv": {1}, "ConvTranspose": {1}, "Gemm": {0, 1}, "MatMul": {0, 1}, "Einsum": {0, 1, 2}, "Gather": {0},
    "LSTM": {1, 2, 3}, "GRU": {1, 2, 3}, "RNN": {1, 2, 3},
}  # fmt: skip
_BIAS_INPUTS = {"Conv": {2}, "ConvTranspose": {2}, "Gemm": {2}, "Add": {0, 1}, "Sub": {0, 1}}
_SQUARED = frozenset(("ReduceL2", "LpNormalization", "LpPool", "GlobalLpPool"))
_AVERAGED = frozenset(("ReduceMean", "GlobalAveragePool", "AveragePool"))
_VARIANCE = frozenset(("InstanceNormalization", "MeanVarianceNormalization", "LRN"))


@dataclass(frozen=True)
class Fp16Choice:
    """What the cast leaves alone.

    Attributes:
        kept: Node → why it stays FP32.
        masks: Constants whose values below `MASK_VALUE` become it.
    """

    kept: Mapping[str, str]
    masks: frozenset[str]


def choose(graph: Fp16Graph, ranges: Ranges | None) -> Fp16Choice:
    """Decide for each node of a graph.

    Args:
        graph: The FP32 graph.
        ranges: Observed ranges of its tensors; None: only constants and operators are looked at, and what would need
            a range to be trusted stays FP32.
    """
    masks, masked = find_masks(graph, ranges)
    kept: dict[str, str] = {}
    for node, reason in itertools.chain(
        _without_half_form(graph),
        _out_of_range(graph, ranges or {}, masked),
        _inner_sums(graph, ranges or {}),
        _lost_constants(graph, masks, follow_large=ranges is None),
        _exact(graph, ranges),
    ):
        if graph.touches_float(node):
            kept.setdefault(node.name, reason)
    _add_islands(graph, kept)
    return Fp16Choice(kept, masks)


def find_masks(graph: Fp16Graph, ranges: Ranges | None) -> tuple[frozenset[str], frozenset[str]]:
    """Constants that only ever push scores down before a softmax, and the tensors they travel through."""
    masks: set[str] = set()
    travelled: set[str] = set()
    for tensor, values in graph.constants.items():
        finite = values[np.isfinite(values)]
        if finite.size and finite.min() < -LARGEST / HEADROOM and finite.max() < LARGEST / HEADROOM:
            path = _mask_path(graph, tensor, ranges or {})
            if path is not None:
                masks.add(tensor)
                travelled |= path
    return frozenset(masks), frozenset(travelled)


def _mask_path(graph: Fp16Graph, tensor: str, ranges: Ranges) -> set[str] | None:
    """Tensors from a constant to the softmaxes that read it; None where it goes anywhere else."""
    path = {tensor}
    waiting = [tensor]
    while waiting:
        name = waiting.pop()
        if name in graph.outputs:
            return None
        for node, position in graph.readers.get(name, ()):
            if node.op_type in ("Softmax", "LogSoftmax"):
                continue
            if not _carries_mask(graph, node, position, ranges):
                return None
            waiting += [output for output in node.output if output not in path]
            path.update(node.output)
    return path


def _carries_mask(graph: Fp16Graph, node: onnx.NodeProto, position: int, ranges: Ranges) -> bool:
    if node.op_type not in _MASK_CARRIERS or position < 0:
        return False
    if node.op_type == "Sub":
        return position == 0
    if node.op_type == "Mul":
        other = node.input[1 - position]
        values = graph.constants.get(other)
        low, high = ranges.get(other, (-1.0, -1.0)) if values is None else (values.min(), values.max())
        return bool(low >= 0.0 and high <= 1.0)
    return True


Kept = Iterator[tuple["onnx.NodeProto", str]]


def _without_half_form(graph: Fp16Graph) -> Kept:
    for node in graph.nodes.values():
        if graph.touches_float(node) and graph.half_form(node) is None:
            yield node, f"{node.op_type}: {NEVER_CAST.get(node.op_type, 'no FP16 form of it is known')}"


def _out_of_range(graph: Fp16Graph, ranges: Ranges, masked: frozenset[str]) -> Kept:
    for tensor, (low, high) in ranges.items():
        if not graph.is_float(tensor) or tensor in graph.constants:
            continue
        reason = range_fault(max(0.0, low) if tensor in masked else low, high, divides=_divides(graph, tensor))
        if reason is not None:
            yield from ((node, f"{tensor} {reason}") for node in _around(graph, tensor))


def _divides(graph: Fp16Graph, tensor: str) -> bool:
    """Whether a tensor is divided by, or read by a function that is steep near 0."""
    return any(
        node.op_type in ("Sqrt", "Log", "Reciprocal") or (node.op_type == "Div" and position == 1)
        for node, position in graph.readers.get(tensor, ())
    )


def range_fault(low: float, high: float, *, divides: bool) -> str | None:
    """Why FP16 cannot carry values of a range, or None.

    Args:
        low: Lowest value seen.
        high: Highest value seen.
        divides: A value that becomes 0 does harm, however small it was.
    """
    largest = max(abs(low), abs(high))
    if largest * HEADROOM > LARGEST:
        return f"reaches {largest:.3g}, too near FP16's largest number {LARGEST:.0f}"
    if 0.0 < largest < SMALLEST_NORMAL:
        return f"stays below {largest:.3g}, FP16's smallest normal number is {SMALLEST_NORMAL:.2g}"
    nearest = low if low > 0 else -high
    if divides and 0.0 < nearest < SMALLEST_NORMAL:
        return f"comes as near to 0 as {nearest:.3g} without reaching it, and FP16 would make it 0"
    return None


def _around(graph: Fp16Graph, tensor: str) -> Iterator[onnx.NodeProto]:
    """The nodes that write and read a tensor."""
    if tensor in graph.producer:
        yield graph.producer[tensor]
    for node, _ in graph.readers.get(tensor, ()):
        yield node


def _inner_sums(graph: Fp16Graph, ranges: Ranges) -> Kept:
    for node in graph.nodes.values():
        if node.op_type in _SQUARED | _AVERAGED | _VARIANCE and node.input[0] in ranges and node.output[0] in ranges:
            total = _inner_sum(graph, node, ranges)
            if total * HEADROOM > LARGEST:
                yield node, f"the sum inside {node.op_type} reaches {total:.3g}, FP16 ends at {LARGEST:.0f}"


def _inner_sum(graph: Fp16Graph, node: onnx.NodeProto, ranges: Ranges) -> float:
    """Largest value that the operator adds up to on its way, by its definition in ONNX."""
    read, written = (max(map(abs, ranges[name])) for name in (node.input[0], node.output[0]))
    if node.op_type in _AVERAGED:
        return written * graph.reduction(node)
    if node.op_type in _SQUARED:
        return max(written, read) ** 2
    spatial = graph.shapes.get(node.input[0], ())[2:]
    return float(read**2 * np.prod([size or 1 for size in spatial], dtype=float))


def _lost_constants(graph: Fp16Graph, masks: frozenset[str], *, follow_large: bool) -> Kept:
    """Readers of constants that FP16 does not hold; without ranges also whatever a large constant may blow up."""
    for tensor, node, position in _constant_reads(graph):
        role = constant_role(node.op_type, position, graph.constants[tensor].size)
        reason = None if tensor in masks else constant_fault(graph.constants[tensor], role)
        if reason is not None:
            yield node, f"constant {tensor} {reason}"
            yield from ((reader, f"downstream of constant {tensor}") for reader in _guarded(graph, node))
            if follow_large and np.abs(graph.constants[tensor]).max() > LARGEST / HEADROOM:
                downstream = _downstream(graph, node, _MASK_CARRIERS | {"Softmax", "LogSoftmax"})
                yield from ((reader, f"downstream of constant {tensor}, no ranges known") for reader in downstream)


def _constant_reads(graph: Fp16Graph) -> Iterator[tuple[str, onnx.NodeProto, int]]:
    for tensor in graph.constants:
        for node, position in graph.readers.get(tensor, ()):
            form = graph.half_form(node)
            # Clip's bounds saturate: beyond FP16's range they bound nothing there either.
            if form is not None and position in form.inputs and not _is_loose_bound(graph, tensor, node):
                yield tensor, node, position


def _is_loose_bound(graph: Fp16Graph, tensor: str, node: onnx.NodeProto) -> bool:
    return node.op_type == "Clip" and bool(np.abs(graph.constants[tensor]).max() > LARGEST)


def _guarded(graph: Fp16Graph, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """What follows a small constant that keeps a division off 0, up to that division.

    In FP16 the sum would lose the constant again on its way there.
    """
    if node.op_type in ("Add", "Max", "Clip"):
        yield from _downstream(graph, node, _GUARDED, last=frozenset(("Div", "Mul")))


def _downstream(
    graph: Fp16Graph, start: onnx.NodeProto, through: frozenset[str], last: frozenset[str] = frozenset()
) -> Iterator[onnx.NodeProto]:
    """Nodes that a value reaches by way of some operators; `last` are reached but not passed."""
    seen = {start.name}
    waiting = [start]
    while waiting:
        for name in waiting.pop().output:
            for reader, _ in graph.readers.get(name, ()):
                if reader.name not in seen and reader.op_type in through | last:
                    seen.add(reader.name)
                    yield reader
                    if reader.op_type in through:
                        waiting.append(reader)


Role = Literal["weight", "bias", "value"]


def constant_role(op_type: str, position: int, size: int) -> Role:
    """What an operator does with a constant.

    weight: its elements are multiplied and summed up, so the error against the whole tensor counts.
    bias: a vector added to something larger, where FP16 rounds the sum more coarsely than the bias itself.
    value: each element counts for itself; so does a lone number that is added, an epsilon.
    """
    if size > 1 and position in _WEIGHT_INPUTS.get(op_type, ()):
        return "weight"
    return "bias" if size > 1 and position in _BIAS_INPUTS.get(op_type, ()) else "value"


def constant_fault(values: np.ndarray[Any, Any], role: Role) -> str | None:
    """Why FP16 does not hold a constant of float32, or None."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if finite.size == 0 or not finite.any():
        return None
    largest = np.abs(finite).max()
    if largest > LARGEST:
        return f"reaches {largest:.3g}, FP16 ends at {LARGEST:.0f}"
    error = np.abs(finite.astype(np.float16).astype(np.float64) - finite)
    if role == "weight":
        return "is rounded by more than 1 %" if np.linalg.norm(error) > _HELD * np.linalg.norm(finite) else None
    lost = error > _HELD * np.abs(finite)
    # A few elements near 0 in a long vector of scales are what training leaves everywhere.
    if role == "value" and lost.mean() > (_HELD if finite.size > 1 else 0.0):
        return f"holds {np.abs(finite[lost]).max():.3g}, which FP16 rounds by more than 1 %"
    return None


def _exact(graph: Fp16Graph, ranges: Ranges | None) -> Kept:
    for tensor, reason in _exact_roots(graph, ranges):
        yield from ((node, reason) for node in _upstream(graph, tensor))


def _exact_roots(graph: Fp16Graph, ranges: Ranges | None) -> Iterator[tuple[str, str]]:
    """Tensors that a rounding to 2^-11 of their size would harm."""
    for node in graph.nodes.values():
        if node.op_type in ("Sin", "Cos", "Tan"):
            low, high = (ranges or {}).get(node.input[0], (-np.inf, np.inf))
            if max(abs(low), abs(high)) > _SINE_LIMIT:
                reason = f"the argument of {node.name} needs more digits than FP16 has"
                yield node.input[0], reason
                yield node.output[0], reason
        elif node.op_type == "Cast" and graph.is_float(node.input[0]) and _to_whole(node):
            yield node.input[0], f"{node.name} makes whole numbers of it"
        for position in COORDINATES.get(node.op_type, ()):
            if position < len(node.input) and graph.is_float(node.input[position]):
                yield node.input[position], f"{node.name} takes sizes or coordinates from it"


def _upstream(graph: Fp16Graph, tensor: str) -> Iterator[onnx.NodeProto]:
    """The node that writes a tensor and, by way of plain arithmetic, those before it."""
    seen: set[str] = set()
    waiting = [graph.producer[tensor]] if tensor in graph.producer else []
    while waiting:
        node = waiting.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        yield node
        before = [graph.producer[name] for name in node.input if name in graph.producer]
        waiting += [other for other in before if other.op_type in _EXACT_CARRIERS]


def _to_whole(node: onnx.NodeProto) -> bool:
    from onnx import TensorProto

    whole = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64)
    return any(attribute.name == "to" and attribute.i in whole for attribute in node.attribute)


def _add_islands(graph: Fp16Graph, kept: dict[str, str]) -> None:
    """Keep what only carries values between kept nodes: down to FP16 and up again would cost both time and digits."""
    changed = True
    while changed:
        changed = False
        for node in graph.nodes.values():
            if node.name not in kept and node.op_type in _ISLANDS and _is_island(graph, node, kept):
                kept[node.name] = "lies between nodes that stay FP32"
                changed = True


def _is_island(graph: Fp16Graph, node: onnx.NodeProto, kept: Mapping[str, str]) -> bool:
    before = [graph.producer[name] for name in node.input if name in graph.producer and graph.is_float(name)]
    after = [reader for name in node.output for reader, _ in graph.readers.get(name, ())]
    return (
        graph.touches_float(node)
        and bool(after)
        and all(other.name in kept for other in (*before, *after))
        and not graph.outputs & set(node.output)
    )
