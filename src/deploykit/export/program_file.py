"""An exported program from a `.pt2` file: its own ranges are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.export.torch_program import Program


def program_from_file(exported: Any, inputs: tuple[TensorSpec, ...], where: str) -> Program:
    """Make a loaded program runnable on one tensor an input.

    Raises:
        UsageError: It computes in half precision, which its operators have written into them.
    """
    from torch.utils import _pytree as pytree

    _refuse_half(exported, inputs, where)
    module = exported.module()
    spec = exported.call_spec.in_spec

    def call(tensors: Sequence[Any]) -> Any:
        arguments, keywords = pytree.tree_unflatten(list(tensors), spec)
        return module(*arguments, **keywords)

    return Program(exported, module, call, inputs)


def batch_limits(exported: Any) -> tuple[int, int | None]:
    """The smallest and the largest batch that the program was exported for; None for no upper limit."""
    lead = _lead_size(exported)
    if lead is None or isinstance(lead, int):
        return (lead or 1, lead or 1)
    limits = exported.range_constraints.get(lead.node.expr)
    if limits is None:
        return (1, None)
    # sympy's infinity is no int; torch writes the range of an unlimited dimension with it.
    highest = int(limits.upper) if limits.upper.is_Integer else None
    return (max(1, int(limits.lower)), highest)


def example_sizes(exported: Any, inputs: Sequence[TensorSpec]) -> dict[str, int]:
    """Open dimensions as in the example inputs that the file carries, where it carries them."""
    from torch.utils import _pytree as pytree

    examples = pytree.tree_leaves(exported.example_inputs) if exported.example_inputs else []
    return {
        size: int(example.shape[axis])
        for spec, example in zip(inputs, examples, strict=False)
        for axis, size in enumerate(spec.shape)
        if axis > 0 and isinstance(size, str)
    }


def _lead_size(exported: Any) -> Any:
    """First dimension of the first input: a number, a symbol, or None for a scalar."""
    name = exported.graph_signature.user_inputs[0]
    value = next(node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder" and node.name == name)
    return value.shape[0] if len(value.shape) else None


def _refuse_half(exported: Any, inputs: Sequence[TensorSpec], where: str) -> None:
    weights = {str(tensor.dtype).removeprefix("torch.") for tensor in exported.state_dict.values()}
    half = sorted((weights | {spec.dtype for spec in inputs}) & {"float16", "bfloat16"})
    if half:
        raise UsageError(
            f"{where} is a {half[0]} program, whose operators have that type written into them: save it from "
            "module.float(), or give file.py:function, which goes through float32"
        )
