"""`--weights none`: random weights that are the same each time, and keep a deep network's activations alive.

Initial values are meant for training, where batch normalisation looks at the batch. In eval mode it uses stored
statistics, still 0 and 1, so that activations shrink from layer to layer: EfficientNet-B0 ends at 1e-17, below which a
CPU meets denormal numbers and slows down, and a check of an all-zero output checks nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from deploykit.base.tensors import TensorSpec

if TYPE_CHECKING:
    import torch

SEED = 20240229
"""Random weights come from this seed, so that one command gives one artifact."""

_BATCH = 4
_HEAD_STD = 0.02
_OPEN_SIZE = 64


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """Draw initial weights from `SEED`, and leave the caller's random state as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        yield


def enliven(module: torch.nn.Module, inputs: Sequence[TensorSpec]) -> None:
    """Give zero matrices small random values, and batch normalisations statistics of random inputs.

    Args:
        module: With initial weights, in eval mode; changed in place.
        inputs: What it takes; without any, or where one is not floating, the statistics stay.
    """
    import torch

    with seeded(), torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim >= 2 and not parameter.any():
                parameter.normal_(std=_HEAD_STD)
        kind = torch.nn.modules.batchnorm._BatchNorm
        norms = [part for part in module.modules() if isinstance(part, kind) and part.track_running_stats]
        if norms and inputs and all(spec.dtype == "float32" for spec in inputs):
            _take_statistics(module, norms, inputs)


def _take_statistics(module: torch.nn.Module, norms: list[torch.nn.Module], inputs: Sequence[TensorSpec]) -> None:
    """One run in which each normalisation adopts what reaches it, the ones before it having done so already."""
    import torch

    hooks = [norm.register_forward_pre_hook(_adopt) for norm in norms]
    try:
        module(*(torch.randn(_shape(spec)) for spec in inputs))
    finally:
        for hook in hooks:
            hook.remove()


def _adopt(norm: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
    """Take mean and variance from an input `[N, C, ...]`: one variance for all channels, and round figures.

    A channel that hardly varies in this batch would otherwise be amplified, and its rounding errors with it. Figures
    far coarser than float32 make the weights the same whatever the number of threads.
    """
    import torch

    channels = arguments[0].transpose(0, 1).flatten(1)
    mean = channels.mean(dim=1)
    std = (channels - mean[:, None]).square().mean().clamp(min=1e-12).sqrt()
    std = torch.exp2(torch.round(torch.log2(std)))
    norm.running_var.fill_(std * std)
    norm.running_mean.copy_(std * torch.round(4.0 * mean / std) / 4.0)


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    rest = (size if isinstance(size, int) else _OPEN_SIZE for size in spec.shape[1:])
    return (_BATCH, *rest)
