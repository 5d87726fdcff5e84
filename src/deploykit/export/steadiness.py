"""Whether a module answers twice alike: one that draws random numbers can be neither checked nor frozen."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.base.errors import UsageError
from deploykit.export.explain import Line, user_line

if TYPE_CHECKING:
    import torch

Run = Callable[[], "Sequence[torch.Tensor]"]

# Threads may add in another order from run to run.
_RELATIVE = 1e-5


def check_steady(module: torch.nn.Module, feeds: Mapping[str, torch.Tensor], run: Run, model: str) -> list[str]:
    """Run twice from the same state.

    Args:
        module: In eval mode; its buffers are put back.
        feeds: The tensors that `run` feeds; put back where forward changes them.
        run: Runs the module on `feeds`.
        model: The model's name.

    Returns:
        Warnings: buffers that change at every call, inputs changed in place.

    Raises:
        UsageError: The two answers differ.
    """
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    inputs = {name: value.clone() for name, value in feeds.items()}
    first = [value.clone() for value in run()]
    warnings = [
        f"buffer {name!r} changes at every call: the artifact keeps the value that it has now"
        for name in _changed(dict(module.named_buffers()), buffers)
    ] + [
        f"forward changes its input {name!r} in place: the artifact leaves it alone" for name in _changed(feeds, inputs)
    ]
    _restore(module, buffers, feeds, inputs)
    second = [value.clone() for value in run()]
    _restore(module, buffers, feeds, inputs)
    if not all(_alike(a, b) for a, b in zip(first, second, strict=True)):
        raise UsageError(_random_message(model, _random_line(run)))
    return warnings


def _changed(now: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor]) -> list[str]:
    return [name for name, value in before.items() if not _equal(now[name], value)]


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    return bool(a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    if a.shape != b.shape or not a.is_floating_point():
        return _equal(a, b)
    scale = float(torch.nan_to_num(b).abs().max()) if b.numel() else 0.0
    return bool(torch.allclose(a, b, rtol=0.0, atol=_RELATIVE * scale, equal_nan=True))


def _restore(
    module: torch.nn.Module,
    buffers: Mapping[str, torch.Tensor],
    feeds: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
) -> None:
    import torch

    with torch.no_grad():
        for name, value in module.named_buffers():
            value.copy_(buffers[name])
        for name, value in feeds.items():
            value.copy_(inputs[name])


def _random_line(run: Run) -> Line | None:
    """The line that calls a random operator, found by watching every operator of one run."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Line] = []

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if torch.Tag.nondeterministic_seeded in func.tags and not found:
                found.extend(_line_here())
            return func(*args, **(kwargs or {}))

    with Watch():
        run()
    return found[0] if found else None


def _line_here() -> list[Line]:
    frames = "\n".join(f'File "{f.filename}", line {f.lineno}' for f in traceback.extract_stack())
    line = user_line(UsageError(), frames)
    return [line] if line else []


def _random_message(model: str, line: Line | None) -> str:
    where = f" at {line}" if line else ""
    return (
        f"{model} is random: two runs on the same input differ, since forward draws random numbers{where}. They would "
        "be drawn anew, or frozen, in every artifact and no check could pass: return the mean, take the noise as an "
        "input, or pass training=self.training to dropout"
    )
