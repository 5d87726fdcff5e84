"""Fused kernel groups of a graph, by the rules that TensorRT's compiler was seen to follow.

One pass in execution order:
1. a product (Conv, ConvTranspose, Gemm, MatMul) opens a group and takes the pointwise operators behind it: bias,
   normalisation, activation, residual add;
2. MatMul → (scale, mask) → Softmax → MatMul is one attention group;
3. other pointwise operators and reductions chain into one generated kernel as long as one result feeds the next;
4. a Slice, Split or constant Gather is a view, so is a Transpose beside a product, and a Concat of freshly made
   tensors is free: its producers write in place;
5. what is left (Resize, Transpose, Gather, TopK …) is a kernel of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from deploykit.predict.graph import Graph, Node
from deploykit.predict.kernels import KernelGroup, Kind

_POINTWISE = frozenset(
    [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Sqrt",
        "Exp",
        "Log",
        "Abs",
        "Neg",
        "Reciprocal",
        "Erf",
        "Relu",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Celu",
        "Gelu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Mish",
        "Softplus",
        "Softsign",
        "Swish",
        "Tanh",
        "Clip",
        "Min",
        "Max",
        "Where",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Not",
        "And",
        "Or",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Sin",
        "Cos",
        "BatchNormalization",
        "Sum",
        "Mean",
        "Expand",
        "IsNaN",
        "ThresholdedRelu",
        "BitShift",
        "Mod",
        "Atan",
    ]
)
_REDUCTIONS = frozenset(
    [
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSumExp",
        "LayerNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "MeanVarianceNormalization",
        "LpNormalization",
        "LRN",
        "Softmax",
        "LogSoftmax",
        "Hardmax",
        "ArgMax",
        "ArgMin",
        "CumSum",
    ]
)
_POOLS = frozenset(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "RoiAlign", "MaxRoiPool"])
_MOVES = frozenset(
    [
        "Transpose",
        "Slice",
        "Split",
        "Pad",
        "Resize",
        "Upsample",
        "Tile",
        "DepthToSpace",
        "SpaceToDepth",
        "Concat",
        "GridSample",
        "Expand",
        "ReverseSequence",
        "EyeLike",
        "Trilu",
        "Col2Im",
    ]
)
_GATHERS = frozenset(
    ["Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements", "Scatter", "OneHot", "EmbeddingBag"]
)
_SELECTS = frozenset(["TopK", "NonMaxSuppression", "NonZero", "Unique", "Compress"])
_PRODUCTS = frozenset(
    ["Conv", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul"]
)
_RECURRENT = frozenset(["LSTM", "GRU", "RNN"])
KNOWN_OPS = _POINTWISE | _REDUCTIONS | _POOLS | _MOVES | _GATHERS | _SELECTS | _PRODUCTS | _RECURRENT | {"Attention"}


@dataclass
class _Open:
    """A group under construction."""

    kind: Kind
    nodes: list[Node]
    m: int = 0
    n: int = 0
    k: int = 0
    groups: int = 1
    steps: int = 1

    @property
    def made(self) -> set[str]:
        return {name for node in self.nodes for name in node.outputs}


@dataclass
class _Fuser:
    graph: Graph
    consumers: Counter[str] = field(default_factory=Counter)
    owner: dict[str, _Open] = field(default_factory=dict)
    groups: list[_Open] = field(default_factory=list)

    def run(self) -> list[_Open]:
        for node in self.graph.nodes:
            self.consumers.update(node.inputs)
        for node in self.graph.nodes:
            self._place(node)
        return [group for group in self.groups if not self._free(group)]

    def _place(self, node: Node) -> None:
        if self._is_view(node):
            self.owner.update(dict.fromkeys(node.outputs, self.owner[node.inputs[0]]))
            return
        group = self._host(node)
        if group is None:
            group = _opened(node)
            self.groups.append(group)
        else:
            group.nodes.append(node)
        for name in node.outputs:
            self.owner[name] = group

    def _is_view(self, node: Node) -> bool:
        """Whether the reader can take the data where the maker left it."""
        if len(node.inputs) != 1 or node.inputs[0] not in self.owner:
            return False
        if node.op in ("Slice", "Split") or (node.op == "Gather" and set(node.constants) == {1}):
            return True
        return node.op == "Transpose" and self.owner[node.inputs[0]].kind in (Kind.GEMM, Kind.ATTENTION)

    def _host(self, node: Node) -> _Open | None:
        """The latest open group that may take this node in, if any."""
        if node.op in _PRODUCTS:
            return self._attention_host(node)
        if node.op not in _POINTWISE and node.op not in _REDUCTIONS:
            return None
        makers = [self.owner[name] for name in node.inputs if name in self.owner]
        for group in sorted(makers, key=self._position, reverse=True):
            if self._accepts(group, node):
                return group
        return None

    def _position(self, group: _Open) -> int:
        return next(i for i, other in enumerate(self.groups) if other is group)

    def _accepts(self, group: _Open, node: Node) -> bool:
        if node.op in _REDUCTIONS:
            return self._accepts_reduction(group, node)
        if group.kind in (Kind.CONV, Kind.DEPTHWISE, Kind.GEMM, Kind.ATTENTION, Kind.RECURRENT, Kind.POOL):
            return math.prod(node.output_shape) <= max(math.prod(n.output_shape) for n in group.nodes)
        return group.kind in (Kind.POINTWISE, Kind.NORM)

    def _accepts_reduction(self, group: _Open, node: Node) -> bool:
        if group.kind is Kind.ATTENTION or _is_score(group):
            return node.op == "Softmax"
        return group.kind in (Kind.POINTWISE, Kind.NORM)

    def _attention_host(self, node: Node) -> _Open | None:
        """Softmax(QKᵀ)·V joins the group of QKᵀ."""
        if node.op != "MatMul" or node.constants or not node.inputs:
            return None
        group = self.owner.get(node.inputs[0])
        if group is None or not _is_score(group) or group.nodes[-1].op != "Softmax":
            return None
        group.kind = Kind.ATTENTION
        group.k += node.output_shape[-1]
        return group

    def _free(self, group: _Open) -> bool:
        """Whether a copy is elided: a Concat whose every input has this one reader and was made by a kernel."""
        node = group.nodes[0]
        if node.op != "Concat" or len(group.nodes) > 1:
            return False
        return all(name in self.owner for name in node.inputs)


def _is_score(group: _Open) -> bool:
    first = group.nodes[0]
    return first.op == "MatMul" and not first.constants


def _opened(node: Node) -> _Open:
    if node.op in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"):
        return _conv(node)
    if node.op in _PRODUCTS:
        return _product(node)
    if node.op in _RECURRENT:
        return _recurrent(node)
    if node.op == "Attention":
        return _attention_op(node)
    return _Open(_plain_kind(node.op), [node])


def _plain_kind(op: str) -> Kind:
    if op in _POINTWISE:
        return Kind.POINTWISE
    if op in _REDUCTIONS:
        return Kind.NORM
    if op in _POOLS:
        return Kind.POOL
    if op in _GATHERS:
        return Kind.GATHER
    return Kind.SELECT if op in _SELECTS else Kind.MOVE


def _conv(node: Node) -> _Open:
    weight = next((shape for i, shape in sorted(node.constants.items()) if len(shape) >= 3), None)
    weight = weight or (node.shapes[1] if len(node.shapes) > 1 else (1, 1, 1, 1))
    groups = int(node.attributes.get("group", 1))
    window = math.prod(weight[2:])
    if node.op == "ConvTranspose":
        pixels, columns, depth = math.prod(node.shapes[0][2:]), weight[1] * window, weight[0] // groups
    else:
        pixels, columns, depth = math.prod(node.output_shape[2:]), weight[0] // groups, weight[1] * window
    channels = node.shapes[0][1]
    kind = Kind.DEPTHWISE if groups == channels and groups > 1 else Kind.CONV
    return _Open(kind, [node], m=pixels * node.output_shape[0], n=columns, k=depth, groups=groups)


def _product(node: Node) -> _Open:
    columns = node.output_shape[-1] if node.output_shape else 1
    if node.constants:
        weight = max(node.constants.values(), key=math.prod)
        depth = (
            math.prod(weight) // max(columns, 1) if len(weight) == 2 else weight[-2] if len(weight) > 1 else weight[0]
        )
        rows = math.prod(node.output_shape) // max(columns, 1)
        return _Open(Kind.GEMM, [node], m=rows, n=columns, k=depth)
    rows = node.output_shape[-2] if len(node.output_shape) > 1 else 1
    products = math.prod(node.output_shape[:-2])
    return _Open(Kind.GEMM, [node], m=rows, n=columns, k=node.shapes[0][-1], groups=products)


def _recurrent(node: Node) -> _Open:
    """ONNX LSTM/GRU/RNN: X is [seq, batch, input], W [directions, gates·hidden, input], R its twin of hidden."""
    matrices = [shape for shape in node.constants.values() if len(shape) == 3]
    length, batch = node.shapes[0][0], node.shapes[0][1]
    columns = matrices[0][1] if matrices else 1
    depth = sum(shape[2] for shape in matrices[:2])
    directions = matrices[0][0] if matrices else 1
    return _Open(Kind.RECURRENT, [node], m=batch, n=columns, k=depth, groups=directions, steps=length)


def _attention_op(node: Node) -> _Open:
    """ONNX 23 Attention over [batch, heads, tokens, width] queries, keys and values."""
    query, key = node.shapes[0], node.shapes[1]
    heads = query[1] if len(query) == 4 else int(node.attributes.get("q_num_heads", 1))
    width = query[-1] if len(query) == 4 else query[-1] // heads
    return _Open(Kind.ATTENTION, [node], m=query[-2], n=key[-2], k=2 * width, groups=heads * query[0])


def fused_groups(graph: Graph) -> list[KernelGroup]:
    """The kernel groups of a graph, per sample, in execution order."""
    return [_closed(group, graph.batch) for group in _Fuser(graph).run()]


def _closed(group: _Open, batch: int) -> KernelGroup:
    made = group.made
    reads = dict(_reads(group, made))
    weights = sum(node.weights for node in group.nodes)
    shared = (group.kind is Kind.GEMM and group.groups > 1) or group.kind is Kind.ATTENTION
    return KernelGroup(
        kind=group.kind,
        m=group.m if shared else math.ceil(group.m / batch),
        n=group.n,
        k=group.k,
        groups=math.ceil(group.groups / batch) if shared else group.groups,
        inputs=sum(reads.values()) // batch,
        outputs=math.prod(group.nodes[-1].output_shape) // batch,
        weights=0 if group.kind is Kind.GATHER else weights,
        steps=group.steps,
        ops="+".join(dict.fromkeys(node.op for node in group.nodes)),
    )


def _reads(group: _Open, made: set[str]) -> Iterator[tuple[str, int]]:
    """Tensors read from outside; a gather reads as much as it writes, not its whole table."""
    for node in group.nodes:
        for name, shape in zip(node.inputs, node.shapes, strict=True):
            if name not in made:
                size = math.prod(shape)
                yield name, min(size, math.prod(node.output_shape)) if group.kind is Kind.GATHER else size


def unknown_ops(graph: Graph) -> tuple[tuple[str, int], ...]:
    """Operators that no rule covers or that could not be sized, with how often each occurs."""
    counts = Counter(node.op for node in graph.nodes if node.op not in KNOWN_OPS)
    counts.update(dict(graph.unshaped))
    return tuple(sorted(counts.items()))


def live_elements(graph: Graph) -> int:
    """Most activation elements per sample alive at once, if each tensor is freed after its last reader."""
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    sizes: dict[str, int] = {}
    peak = 0
    for i, node in enumerate(graph.nodes):
        sizes.update({name: math.prod(node.output_shape) for name in node.outputs[:1]})
        peak = max(peak, sum(sizes.values()))
        sizes = {name: size for name, size in sizes.items() if last.get(name, -1) > i or name in graph.outputs}
    return peak // graph.batch
