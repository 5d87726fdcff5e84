"""Which dimension is the batch, which are open, and what sizes a check runs at. Pure."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence

from deploykit.base.artifact import BatchRange
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec

DEFAULT_BATCH = BatchRange(min=1, opt=8, max=32)
"""What an artifact serves where nobody asks for anything else."""

BATCH = "batch"
BATCH_WORDS = ("batch", "batch_size", "N", "n", "B", "b")
OPEN_SIZE = 64
"""What an open dimension other than the batch is checked at: above a kernel's reach, a multiple of usual strides."""

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def with_batch_named(inputs: Sequence[TensorSpec], *, also_numbers: bool) -> tuple[TensorSpec, ...]:
    """Call the batch dimension `batch` in every input that has it.

    It is the first input's first dimension, and that of every other input which begins with the same size or word.

    Args:
        inputs: As the source gave them.
        also_numbers: Whether a number there is an example's size, as in `--input x:1x3x224x224` for a module, and not
            the only size that the graph takes.
    """
    if not inputs or not inputs[0].shape or not (also_numbers or isinstance(inputs[0].shape[0], str)):
        return tuple(inputs)
    lead = inputs[0].shape[0]
    return tuple(_named(spec, lead) for spec in inputs)


def _named(spec: TensorSpec, lead: int | str) -> TensorSpec:
    if not spec.shape or not (spec.shape[0] == lead or spec.shape[0] in BATCH_WORDS):
        return spec
    return spec.model_copy(update={"shape": (BATCH, *spec.shape[1:])})


def with_batch_fixed(inputs: Sequence[TensorSpec], size: int) -> tuple[TensorSpec, ...]:
    """Put a number where `batch` stands."""
    return tuple(
        spec.model_copy(update={"shape": tuple(size if s == BATCH else s for s in spec.shape)}) for spec in inputs
    )


def open_words(inputs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Open dimensions other than the batch, in the order met."""
    words = [size for spec in inputs for size in spec.shape if isinstance(size, str) and size != BATCH]
    return tuple(dict.fromkeys(words))


def concrete_shape(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape in numbers; an open dimension that `sizes` does not know is `OPEN_SIZE`.

    Raises:
        UsageError: An expression such as `height - 2` comes out below 1.
    """
    shape = tuple(size if isinstance(size, int) else _evaluate(size, sizes) for size in spec.shape)
    if any(size < 1 for size in shape):
        raise UsageError(f"input {spec.name!r}: the open dimensions {spec.shape} come out as {shape}: give --input")
    return shape


def check_batches(batch: BatchRange) -> tuple[int, ...]:
    """The batch sizes that an artifact is checked at: the one it is made for, and another of its range."""
    if batch.fixed:
        return (batch.opt,)
    other = batch.min if batch.min != batch.opt else min(batch.opt + 2, batch.max)
    return (batch.opt, other)


def trace_batch(batch: BatchRange) -> int:
    """The batch size of the example that torch traces with: torch takes 0 and 1 for constants, so 2 where it can be."""
    return max(batch.min, min(2, batch.max))


def chosen_batch(asked: BatchRange | None, lowest: int, highest: int | None, where: str) -> BatchRange:
    """The batch range of a file that brings its own limits.

    Args:
        asked: What the user asked for, if anything.
        lowest: The smallest batch that the file takes.
        highest: The largest; None for no limit.
        where: The file, for the message.

    Raises:
        UsageError: The file does not take what was asked for.
    """
    top = highest if highest is not None else max(lowest, (asked or DEFAULT_BATCH).max)
    if asked is None:
        low = max(lowest, min(DEFAULT_BATCH.min, top))
        return BatchRange(min=low, opt=max(low, min(DEFAULT_BATCH.opt, top)), max=top)
    if asked.min < lowest or asked.max > top:
        limits = f"batch {lowest} alone" if lowest == top else f"batches {lowest} to {top}"
        raise UsageError(
            f"{where} takes {limits}, so --batch {asked} cannot be had: leave --batch out, or export the "
            "model again with a dynamic batch"
        )
    return asked


def _evaluate(expression: str, sizes: Mapping[str, int]) -> int:
    try:
        return _value(ast.parse(expression, mode="eval").body, sizes)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return sizes.get(expression, OPEN_SIZE)


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Name):
        return sizes.get(node.id, OPEN_SIZE)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    raise ValueError(ast.dump(node))
