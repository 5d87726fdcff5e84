"""Where Q/DQ pairs go. Which layers become INT8 is one choice for both dialects; where pairs stand differs a little.

Both dialects need a pair before each quantized layer, on both inputs of a residual addition and before a pooling that
follows one of those. `tensorrt` needs no more: TensorRT fuses convolution, activation and addition between pairs, and
a pair between Conv and Relu would stand in its way. onnxruntime's CPU provider turns a convolution into QLinearConv
only where a Q follows it too, so `ort-cpu` also closes each convolution, after its Relu.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from deploykit.base.vocab import Dialect
from deploykit.precision.calibration import Calibration
from deploykit.precision.calibrators import STEPS
from deploykit.precision.fitness import LOWEST_SQNR_DB
from deploykit.precision.graph import Graph
from deploykit.precision.isa import saturates
from deploykit.precision.layers import (
    MOVEMENT,
    POOLS,
    Layer,
    after_activation,
    clip_bounds,
    find_layers,
    is_bare_gemm,
    never_negative,
    residual_adds,
)

CONVOLUTIONS = ("Conv", "ConvTranspose")
U8_ZERO = 128
U8_HIGHEST = 255


@dataclass(frozen=True)
class Pair:
    """One Q/DQ pair.

    Attributes:
        tensor: What it stands on.
        scale: Step of the grid.
        unsigned: U8 instead of S8.
        zero_point: The integer that is 0.0.
        highest: Integers above this are cut off to it, where a Clip before the pair said so; None: the type's end.
        source: The tensor before that Clip, which the pair then reads; None: `tensor` itself.
    """

    tensor: str
    scale: float
    unsigned: bool = False
    zero_point: int = 0
    highest: int | None = None
    source: str | None = None


@dataclass(frozen=True)
class Choice:
    """What becomes INT8, whatever the dialect.

    Attributes:
        layers: Node → layer to quantize.
        others: Additions and poolings to quantize.
        kept: Node → why it stays float.
    """

    layers: Mapping[str, Layer]
    others: tuple[str, ...]
    kept: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """Where pairs go in one dialect.

    Attributes:
        pairs: Tensor → its pair.
        reads: Node and input position that read the dequantized form.
        returned: Graph outputs that return it.
        dropped: Activations whose work the pair behind them does.
        layers: Node → layer with quantized weights.
        unsigned_weights: Layers whose weights are U8 with zero point 128, the same numbers on the same grid.
        others: Additions and poolings between pairs.
        kept: Node → why it stays float.
    """

    pairs: Mapping[str, Pair]
    reads: frozenset[tuple[str, int]]
    returned: frozenset[str]
    dropped: frozenset[str]
    layers: Mapping[str, Layer]
    unsigned_weights: frozenset[str]
    others: tuple[str, ...]
    kept: Mapping[str, str]


def candidate_tensors(graph: Graph) -> list[str]:
    """Every activation that either dialect may put a pair on, in the order of execution."""
    layers, _ = find_layers(graph)
    convolutions = frozenset(name for name, layer in layers.items() if layer.op_type in CONVOLUTIONS)
    adds = residual_adds(graph, convolutions)
    wanted = {layer.data for layer in layers.values()}
    for name in (*convolutions, *adds):
        wanted.add(after_activation(graph, graph.nodes[name].output[0])[0])
    for name in adds:
        wanted.update(graph.nodes[name].input)
    wanted.update(node.input[0] for node in graph.nodes.values() if node.op_type in POOLS)
    order = [value.name for value in graph.model.graph.input]
    order += [name for node in graph.nodes.values() for name in node.output]
    return [name for name in order if name in wanted and name in graph.float_tensors]


def choose(graph: Graph, calibration: Calibration, dialect: Dialect, excluded: Mapping[str, str]) -> Choice:
    """Decide what becomes INT8.

    Args:
        graph: The float graph.
        calibration: Ranges.
        dialect: Who runs it: onnxruntime's CPU provider has no INT8 transposed convolution.
        excluded: Node → why the user wants it in float.
    """
    layers, kept = find_layers(graph)
    kept.update((name, reason) for name, reason in excluded.items() if name in layers)
    unfit = unfit_tensors(layers, calibration)
    for name, layer in layers.items():
        reason = kept.get(name) or _why_not(graph, layer, calibration, dialect, unfit)
        if reason is not None:
            kept[name] = reason
    layers = {name: layer for name, layer in layers.items() if name not in kept}
    return Choice(layers, _others(graph, layers, calibration, excluded, unfit), kept)


def unfit_tensors(layers: Mapping[str, Layer], calibration: Calibration) -> dict[str, float]:
    """Activations that one INT8 scale cannot hold for a layer that reads them → its signal to noise in dB."""
    found: dict[str, float] = {}
    for name, layer in layers.items():
        sqnr_db = calibration.input_sqnr_db.get(name)
        if sqnr_db is not None and sqnr_db < LOWEST_SQNR_DB:
            found[layer.data] = min(sqnr_db, found.get(layer.data, sqnr_db))
    return found


def _why_not(
    graph: Graph, layer: Layer, calibration: Calibration, dialect: Dialect, unfit: Mapping[str, float]
) -> str | None:
    if layer.data not in calibration.tensors:
        return f"no calibration sample put a value into its input {layer.data!r}"
    if layer.data in unfit:
        return (
            f"one scale cannot serve all channels of its input {layer.data!r}: they differ so much that INT8 would "
            f"leave {unfit[layer.data]:.1f} dB"
        )
    if dialect is not Dialect.ORT_CPU:
        return None
    if layer.op_type == "Gemm" and not is_bare_gemm(graph.nodes[layer.node]):
        return "onnxruntime has no INT8 Gemm of a transposed input or a computed bias"
    if layer.op_type == "ConvTranspose":
        return "onnxruntime's CPU provider has no INT8 ConvTranspose"
    written = after_activation(graph, layer.output)[0]
    if layer.op_type == "Conv" and written in unfit:
        return f"one scale cannot serve all channels of what it writes, {written!r} ({unfit[written]:.1f} dB)"
    if layer.op_type == "Conv" and written not in calibration.tensors:
        return f"no calibration sample put a value into what it writes, {written!r}"
    return None


def _others(
    graph: Graph,
    layers: Mapping[str, Layer],
    calibration: Calibration,
    excluded: Mapping[str, str],
    unfit: Mapping[str, float],
) -> tuple[str, ...]:
    """Residual additions, and poolings of what quantized nodes write."""

    def usable(tensor: str) -> bool:
        return tensor in calibration.tensors and tensor not in unfit

    convolutions = frozenset(name for name, layer in layers.items() if layer.op_type in CONVOLUTIONS)
    adds = [
        name
        for name in residual_adds(graph, convolutions)
        if name not in excluded and all(usable(tensor) for tensor in graph.nodes[name].input)
    ]
    written = {after_activation(graph, graph.nodes[name].output[0])[0] for name in (*convolutions, *adds)}
    pools = [
        name
        for name, node in graph.nodes.items()
        if node.op_type in POOLS
        and name not in excluded
        and usable(node.input[0])
        and _movement_root(graph, node.input[0]) in written
    ]
    return (*adds, *pools)


def place(graph: Graph, calibration: Calibration, choice: Choice, dialect: Dialect, isa: str | None = None) -> Plan:
    """Decide where pairs stand in a dialect, and how they and the weights are written."""
    wanted = _wanted_reads(graph, choice)
    scales = _shared_scales(graph, calibration, {graph.nodes[name].input[position] for name, position in wanted})
    if dialect is Dialect.ORT_CPU:
        return _place_for_ort(graph, calibration, choice, wanted, scales, isa)
    tensors = dict.fromkeys(graph.nodes[name].input[position] for name, position in wanted)
    return Plan(
        pairs={tensor: Pair(tensor, scales[_movement_root(graph, tensor)]) for tensor in tensors},
        reads=frozenset(wanted),
        returned=frozenset(),
        dropped=frozenset(),
        layers=choice.layers,
        unsigned_weights=frozenset(),
        others=choice.others,
        kept=choice.kept,
    )


def _wanted_reads(graph: Graph, choice: Choice) -> list[tuple[str, int]]:
    """Inputs of quantized nodes that must be INT8, in the order of execution."""
    reads = []
    for name, node in graph.nodes.items():
        if name in choice.layers:
            reads.append((name, 0))
        elif name in choice.others:
            reads += [(name, position) for position in range(2 if node.op_type == "Add" else 1)]
    return reads


def _shared_scales(graph: Graph, calibration: Calibration, tensors: Iterable[str]) -> dict[str, float]:
    """Scale by movement root: tensors that are only moved about hold one range and get the widest of theirs."""
    scales: dict[str, float] = {}
    for tensor in tensors:
        root = _movement_root(graph, tensor)
        scales[root] = max(scales.get(root, 0.0), calibration.tensors[tensor].scale)
    return scales


def _movement_root(graph: Graph, tensor: str) -> str:
    """The tensor whose values this one only moves about."""
    while (node := graph.producer.get(tensor)) is not None and node.op_type in MOVEMENT and node.output[0] == tensor:
        tensor = node.input[0]
    return tensor


def _place_for_ort(
    graph: Graph,
    calibration: Calibration,
    choice: Choice,
    wanted: list[tuple[str, int]],
    scales: Mapping[str, float],
    isa: str | None,
) -> Plan:
    closed = _closed_tensors(graph, choice, scales)
    tensors = {graph.nodes[name].input[position] for name, position in wanted} | closed.keys()
    tensors |= _on_the_way(graph, tensors, closed)
    positive = never_negative(graph)
    pairs = {}
    for tensor in sorted(tensors):
        scale = scales.get(_movement_root(graph, tensor)) or calibration.tensors[tensor].scale
        pairs[tensor] = _unsigned_pair(graph, tensor, scale, tensor in positive, closed.get(tensor))
    unsigned_weights: frozenset[str] = frozenset()
    if saturates(isa):
        pairs = _within_sixteen_bits(pairs, choice.layers)
        unsigned_weights = frozenset(n for n, layer in choice.layers.items() if pairs[layer.data].zero_point != 0)
    reads = ((node.name, position) for tensor in pairs for node, position in graph.readers.get(tensor, []))
    return Plan(
        pairs=pairs,
        reads=frozenset((name, position) for name, position in reads if position >= 0),
        returned=frozenset(pairs) & graph.outputs,
        dropped=frozenset(name for tensor, w in closed.items() if pairs[tensor].source for name in w.activations),
        layers=choice.layers,
        unsigned_weights=unsigned_weights,
        others=choice.others,
        kept=choice.kept,
    )


def _within_sixteen_bits(pairs: Mapping[str, Pair], layers: Mapping[str, Layer]) -> dict[str, Pair]:
    """Cut what a layer reads off at 127 steps: two products of 127 · 127 fit what VPMADDUBSW adds them in.

    Only a tensor with zero point 0 can be: around 128 all 255 steps are in use, and there the weights are U8 instead,
    which is multiplied in wider registers and more slowly.
    """
    read = {layer.data for layer in layers.values()}
    return {
        name: replace(pair, highest=min(STEPS, pair.highest or STEPS))
        if name in read and pair.zero_point == 0
        else pair
        for name, pair in pairs.items()
    }


class _Writer(NamedTuple):
    """What writes a closed tensor: a node's output, and the activations between it and the tensor."""

    output: str
    activations: tuple[str, ...]


def _closed_tensors(graph: Graph, choice: Choice, scales: Mapping[str, float]) -> dict[str, _Writer]:
    """Tensors that need a pair so that their writer becomes INT8.

    A convolution always needs it. An addition or pooling is worth it only where INT8 goes on behind it.
    """
    closed: dict[str, _Writer] = {}
    for name in (*choice.layers, *choice.others):
        node = graph.nodes[name]
        tensor, passed = after_activation(graph, node.output[0])
        if node.op_type == "Conv" or (name in choice.others and tensor in scales):
            closed[tensor] = _Writer(node.output[0], passed)
    return closed


def _on_the_way(graph: Graph, tensors: Iterable[str], closed: Mapping[str, object]) -> set[str]:
    """What stands between a closed tensor and a wanted one that only moves it: it must be INT8 throughout."""
    found: set[str] = set()
    for tensor in tensors:
        if _movement_root(graph, tensor) not in closed:
            continue
        while tensor not in closed:
            found.add(tensor)
            tensor = graph.producer[tensor].input[0]
    return found


def _unsigned_pair(graph: Graph, tensor: str, scale: float, positive: bool, writer: _Writer | None) -> Pair:
    """U8 with zero point 0 cuts off below zero by itself, so onnxruntime drops the Relu before it. It drops no Clip:
    that one goes, and its upper bound is applied to the integers."""
    if not positive:
        return Pair(tensor, scale, True, U8_ZERO)
    bounds = _upper_bounds(graph, writer.activations if writer is not None else ())
    if writer is None or not bounds:
        return Pair(tensor, scale, True)
    steps = min(bounds) / scale
    return Pair(tensor, scale, True, 0, round(steps) if steps < U8_HIGHEST else None, writer.output)


def _upper_bounds(graph: Graph, activations: Iterable[str]) -> list[float]:
    """Finite upper bounds of the Clips among some activations."""
    bounds = [clip_bounds(graph, graph.nodes[name])[1] for name in activations if graph.nodes[name].op_type == "Clip"]
    return [bound for bound in bounds if bound is not None and bound < float("inf")]
