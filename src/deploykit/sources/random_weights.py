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
    """Give zero matrices small random values, and batch normalisations the statistics of a random batch.

    Args:
        module: With initial weights, in eval mode; changed in place.
        inputs: What it takes; without any, or where one is not floating, the statistics stay.
    """
    import torch

    with seeded(), torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim >= 2 and not parameter.any():
                parameter.normal_(std=_HEAD_STD)
        norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
        if norms and inputs and all(spec.dtype == "float32" for spec in inputs):
            _take_statistics(module, norms, inputs)


def _take_statistics(module: torch.nn.Module, norms: list[torch.nn.Module], inputs: Sequence[TensorSpec]) -> None:
    import torch

    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    module(*(torch.randn(_shape(spec)) for spec in inputs))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
        _make_coarse(norm)


def _make_coarse(norm: torch.nn.Module) -> None:
    """One variance for all channels of a layer, and round figures.

    A channel that hardly varies in this batch would otherwise be amplified, and its rounding errors with it. Figures far
    coarser than float32 make the weights the same whatever the number of threads.
    """
    import torch

    std = torch.exp2(torch.round(torch.log2(norm.running_var.mean().clamp(min=1e-12).sqrt())))
    norm.running_var.fill_(std * std)
    norm.running_mean.copy_(std * torch.round(4.0 * norm.running_mean / std) / 4.0)


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    rest = (size if isinstance(size, int) else _OPEN_SIZE for size in spec.shape[1:])
    return (_BATCH, *rest)
