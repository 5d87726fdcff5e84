"""What a model asks of a machine: a list of fused kernel groups, independent of target, batch and precision.

A group is what a TensorRT-like compiler launches as one kernel: a convolution with its bias, activation and residual
add, a matrix product, an attention block, a chain of pointwise operators, a copy. All figures are per sample; `m`
grows with the batch, weights do not.

Version history of the JSON form:
    1  first
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from deploykit.base.errors import UsageError

FEATURES_VERSION = 1
_NUMBERS = ("m", "n", "k", "groups", "inputs", "outputs", "weights", "steps", "count")


class Kind(str, Enum):
    """Class of a kernel group: decides which unit computes it and at which efficiency."""

    CONV = "conv"
    DEPTHWISE = "depthwise"
    GEMM = "gemm"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    POINTWISE = "pointwise"
    POOL = "pool"
    NORM = "norm"
    GATHER = "gather"
    MOVE = "move"
    SELECT = "select"

    def __str__(self) -> str:
        return self.value


KINDS: tuple[Kind, ...] = tuple(Kind)
PRODUCTS = frozenset({Kind.CONV, Kind.GEMM, Kind.ATTENTION, Kind.RECURRENT})
"""Kinds that run on tensor cores where the device has them."""


@dataclass(frozen=True)
class KernelGroup:
    """One fused kernel, or `count` of the same shape.

    Attributes:
        kind: Class.
        m: Rows of the product per sample: output pixels or tokens. 0 where there is no product.
        n: Columns per group: output channels.
        k: Length of the reduction: input channels × filter area.
        groups: Independent products: convolution groups, attention heads.
        inputs: Activation elements read per sample.
        outputs: Activation elements written per sample.
        weights: Weight elements read, once per batch.
        steps: Sequential steps, for recurrences and autoregressive decoding: each pays a launch and reads the weights.
        count: How many such groups the model has.
        ops: What was fused, for people: `Conv+Relu`.
    """

    kind: Kind
    m: int = 0
    n: int = 0
    k: int = 0
    groups: int = 1
    inputs: int = 0
    outputs: int = 0
    weights: int = 0
    steps: int = 1
    count: int = 1
    ops: str = ""

    @property
    def flops(self) -> float:
        """Operations per sample of one such group over all steps; a multiply-add is 2."""
        return 2.0 * self.m * self.n * self.k * self.groups * self.steps


@dataclass(frozen=True, eq=False)
class ModelFeatures:
    """A model as the predictor sees it. Compared by identity: it is a cache key, and hashing its layers is slow.

    Attributes:
        model: Name.
        groups: Its fused kernel groups.
        input_elements: Elements of one sample's inputs, as copied to the device.
        input_bytes: Bytes an input element has on the way in (1 where the graph takes int8 or uint8).
        parameters: Distinct weight elements, as they lie in memory; groups may read the same ones.
        live_elements: Most activation elements per sample that are alive at the same time.
        source: How the layer list was made: an ONNX graph, or a public description.
        unknown_ops: Operators that no rule covers, with how often each occurs.
        dynamic: Work depends on the sample (volumes or sequences of different lengths): figures are a mean.
        p90_size: Size of a sample at the 90th percentile ÷ the mean's.
    """

    model: str
    groups: tuple[KernelGroup, ...]
    input_elements: int
    input_bytes: float = 4.0
    live_elements: int = 0
    parameters: int = 0
    source: str = ""
    unknown_ops: tuple[tuple[str, int], ...] = ()
    dynamic: bool = False
    p90_size: float = 1.0

    @property
    def flops(self) -> float:
        """Operations per sample; a multiply-add is 2."""
        return sum(group.flops * group.count for group in self.groups)

    @property
    def weights(self) -> int:
        """Weight elements that one inference reads, step by step counted once."""
        return sum(group.weights * group.count for group in self.groups)

    @property
    def kernels(self) -> int:
        """Launches per inference."""
        return sum(group.count * group.steps for group in self.groups)


def merged(groups: Iterable[KernelGroup]) -> tuple[KernelGroup, ...]:
    """Groups of one shape counted together, in order of first appearance."""
    counts: dict[KernelGroup, int] = {}
    for group in groups:
        key = replace(group, count=1)
        counts[key] = counts.get(key, 0) + group.count
    return tuple(replace(group, count=count) for group, count in counts.items())


@lru_cache(maxsize=256)
def sized(features: ModelFeatures, size: float) -> ModelFeatures:
    """The same model on samples of `size` times the mean: more rows, longer attention, or more steps of decoding."""
    return features if size == 1.0 else replace(features, groups=tuple(_sized(g, size) for g in features.groups))


def _sized(group: KernelGroup, size: float) -> KernelGroup:
    if group.steps > 1:
        return replace(group, steps=round(group.steps * size))
    keys = round(group.n * size) if group.kind is Kind.ATTENTION else group.n
    grown = {name: round(getattr(group, name) * size) for name in ("m", "inputs", "outputs")}
    return replace(group, n=keys, **grown)


def to_json(features: ModelFeatures) -> dict[str, Any]:
    """Plain JSON values, one short row a group."""
    return {
        "version": FEATURES_VERSION,
        "model": features.model,
        "source": features.source,
        "input_elements": features.input_elements,
        "input_bytes": features.input_bytes,
        "live_elements": features.live_elements,
        "parameters": features.parameters,
        "dynamic": features.dynamic,
        "p90_size": features.p90_size,
        "unknown_ops": [list(pair) for pair in features.unknown_ops],
        "columns": ["kind", *_NUMBERS, "ops"],
        "groups": [[str(g.kind), *(getattr(g, name) for name in _NUMBERS), g.ops] for g in features.groups],
    }


def from_json(document: Any, where: str) -> ModelFeatures:
    """Read what `to_json` wrote.

    Raises:
        UsageError: Not of this form or version; `where` names the file.
    """
    if not isinstance(document, dict) or document.get("version") != FEATURES_VERSION:
        raise UsageError(f"{where}: not a layer-feature file of version {FEATURES_VERSION}; make it anew")
    try:
        return ModelFeatures(
            model=str(document["model"]),
            groups=tuple(_group(row, document["columns"]) for row in document["groups"]),
            input_elements=int(document["input_elements"]),
            input_bytes=float(document["input_bytes"]),
            live_elements=int(document["live_elements"]),
            parameters=int(document["parameters"]),
            source=str(document["source"]),
            unknown_ops=tuple((str(op), int(times)) for op, times in document["unknown_ops"]),
            dynamic=bool(document["dynamic"]),
            p90_size=float(document["p90_size"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: damaged layer features ({error!r}); make the file anew") from error


def _group(row: Sequence[Any], columns: Sequence[str]) -> KernelGroup:
    values = dict(zip(columns, row, strict=True))
    numbers = {name: int(values[name]) for name in _NUMBERS}
    if any(number < 0 for number in numbers.values()):
        raise ValueError(f"negative figure in {row}")
    return KernelGroup(kind=Kind(values["kind"]), ops=str(values["ops"]), **numbers)


def read_features(path: Path) -> ModelFeatures:
    """Read a feature file.

    Raises:
        UsageError: The file is missing or damaged.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as layer features ({error})") from error
    return from_json(document, str(path))


def dumps(features: ModelFeatures) -> str:
    """The text of a feature file: one line a group, so that a change reads well in a diff."""
    document = to_json(features)
    rows = ",\n  ".join(json.dumps(row) for row in document.pop("groups"))
    head = json.dumps(document, indent=1)[:-2]
    return f'{head},\n "groups": [\n  {rows}\n ]\n}}\n'
