"""A torch module → an exported program with a dynamic batch, and a reference that answers as the module does."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.base.artifact import BatchRange
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.export.explain import explained, user_line
from deploykit.export.feeds import random_feeds
from deploykit.export.quiet import quiet
from deploykit.export.shapes import BATCH, open_words, trace_batch
from deploykit.export.steadiness import check_steady

if TYPE_CHECKING:
    import numpy as np
    import torch

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Program:
    """A traced model.

    Attributes:
        exported: The `torch.export.ExportedProgram`.
        module: What answers as the source does: the module itself, or the program's own.
        call: Runs it on one tensor an input, in the order of `inputs`.
        inputs: In the order in which they are fed.
        warnings: What the user should know of the module.
    """

    exported: Any
    module: torch.nn.Module
    call: Callable[[Sequence[torch.Tensor]], Any]
    inputs: tuple[TensorSpec, ...]
    warnings: tuple[str, ...] = ()


def program_from_module(
    module: torch.nn.Module, inputs: tuple[TensorSpec, ...], batch: BatchRange, model: str
) -> Program:
    """Trace a module in eval mode.

    Args:
        module: Left in the mode that it was in.
        inputs: Named after `forward`'s arguments, or in their order; `batch` stands for the dynamic batch.
        batch: Sizes that the graph must serve.
        model: The model's name, for messages.

    Raises:
        UsageError: The module fails on these inputs, is random, branches on values, fixes its batch, or uses what ONNX
            cannot say; the message names the line and the way out.
    """
    import torch

    ordered = in_forward_order(module, inputs, model)
    with in_eval_mode(module), torch.no_grad():
        feeds = as_tensors(random_feeds(ordered, trace_batch(batch)))
        warnings = check_steady(module, feeds, lambda: _first_run(module, feeds, model), model)
        exported = _traced(module, feeds, ordered, batch, model)
        warnings += _limits(exported, ordered)
    return Program(exported, module, lambda tensors: module(*tensors), ordered, tuple(warnings))


def reference(program: Program, names: Sequence[str]) -> Any:
    """A function from arrays to the source's outputs by name. What it is fed is copied, for forward may change it."""
    import torch

    def answer(feeds: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        ordered = {spec.name: feeds[spec.name] for spec in program.inputs}
        with in_eval_mode(program.module), torch.no_grad(), contextlib.redirect_stdout(sys.stderr):
            outputs = flat_tensors(program.call(list(as_tensors(ordered).values())))
        return dict(zip(names, (output.numpy() for output in outputs), strict=True))

    return answer


def in_forward_order(module: torch.nn.Module, inputs: tuple[TensorSpec, ...], model: str) -> tuple[TensorSpec, ...]:
    """The inputs in the order of `forward`'s arguments.

    Names that are arguments go where those stand; where none is, the order given is the order fed.

    Raises:
        UsageError: Nobody said what the inputs are, or some names are arguments and others are not.
    """
    arguments = [p for p in inspect.signature(module.forward).parameters.values() if p.kind in _POSITIONAL]
    names = [p.name for p in arguments]
    if not inputs:
        raise UsageError(
            f"nobody says what {model} takes: give --input NAME:1x3x224x224[:dtype] for each argument of "
            f"forward ({', '.join(names) or 'none'})"
        )
    given = {spec.name: spec for spec in inputs}
    known = [name for name in names if name in given]
    if not known:
        return inputs
    if foreign := [name for name in given if name not in names]:
        raise UsageError(f"--input {foreign[0]!r} is no argument of {model}'s forward, which takes {', '.join(names)}")
    if gaps := [name for name in names[: names.index(known[-1])] if name not in given]:
        raise UsageError(f"{model}'s forward takes {gaps[0]!r} before {known[-1]!r}: give --input for it too")
    return tuple(given[name] for name in known)


@contextlib.contextmanager
def in_eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Eval mode while the block runs; then each part is back in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    training = [part for part, was_training in modes if was_training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def as_tensors(feeds: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, torch.Tensor]:
    """Copies of arrays as tensors."""
    import torch

    return {name: torch.tensor(array) for name, array in feeds.items()}


def flat_tensors(outputs: Any) -> list[torch.Tensor]:
    """Every tensor of nested outputs, in the order of `torch.export`."""
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _first_run(module: torch.nn.Module, feeds: Mapping[str, torch.Tensor], model: str) -> list[torch.Tensor]:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return flat_tensors(module(*feeds.values()))
    except Exception as error:
        # The user's forward may raise anything.
        shapes = ", ".join(f"{name} {'x'.join(map(str, value.shape))}" for name, value in feeds.items())
        line = user_line(error)
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"{model} fails in torch on inputs of shape {shapes}{f' at {line}' if line else ''}: "
            f"{type(error).__name__}: {reason}; give the right shapes with --input"
        ) from error


def _traced(
    module: torch.nn.Module,
    feeds: Mapping[str, torch.Tensor],
    inputs: tuple[TensorSpec, ...],
    batch: BatchRange,
    model: str,
) -> Any:
    import torch

    dims = _symbols(inputs, batch)
    axes = [{axis: dims[size] for axis, size in enumerate(spec.shape) if isinstance(size, str)} for spec in inputs]
    with quiet(guards=True) as log:
        try:
            return torch.export.export(
                module, tuple(feeds.values()), dynamic_shapes=_as_arguments(module, axes), strict=False
            )
        except Exception as error:
            # torch.export raises a dozen classes, some of them private, and whatever the user's code raises.
            raise explained(error, log, source_files(module), model) from error


def _limits(exported: Any, inputs: tuple[TensorSpec, ...]) -> list[str]:
    """What torch found out of open dimensions that end somewhere."""
    values = [node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder"][-len(inputs) :]
    found: dict[str, str] = {}
    for spec, value in zip(inputs, values, strict=True):
        for axis, word in enumerate(spec.shape):
            limits = exported.range_constraints.get(getattr(getattr(value.shape[axis], "node", None), "expr", None))
            if isinstance(word, str) and word != BATCH and limits is not None and limits.upper.is_Integer:
                found[word] = f"open dimension {word!r} ends at {int(limits.upper)}: the model takes no more"
    return list(found.values())


def _symbols(inputs: tuple[TensorSpec, ...], batch: BatchRange) -> dict[str, Any]:
    from torch.export import Dim

    # torch finds their ranges itself (a table of 512 positions ends a sequence at 512); the batch must be as asked.
    words = dict.fromkeys(open_words(inputs), Dim.DYNAMIC)
    return words if batch.fixed else {**words, BATCH: Dim(BATCH, min=batch.min, max=batch.max)}


def _as_arguments(module: torch.nn.Module, axes: list[dict[int, Any]]) -> Any:
    """One entry an argument; `*args` takes its entries as one tuple."""
    bound = inspect.signature(module.forward).bind(*axes)
    return dict(bound.arguments)


def source_files(module: torch.nn.Module) -> list[Path]:
    """Source files of a module's classes."""
    modules = {type(part).__module__ for part in module.modules()}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in modules}
    return [Path(file).resolve() for file in sorted(filter(None, files))]
