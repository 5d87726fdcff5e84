"""Does it fit? Weights, activations and what the runtime keeps for itself, against the memory of a target.

The estimate errs on the large side: a refusal for want of memory must be safe to believe, and an engine that does not
load has no latency.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploykit.base.vocab import Precision
from deploykit.predict.kernels import ModelFeatures
from deploykit.predict.machine import Machine
from deploykit.predict.roofline import BYTES

CONTEXT_BYTES = 450e6
"""CUDA context, cuBLAS and TensorRT's own code on the device: 350 to 500 MB as nvidia-smi shows for an idle engine."""
WORKSPACE_BYTES = 256e6
"""Scratch of the largest kernel; TensorRT takes what the best tactic wants, seldom more for a vision model."""
SYSTEM_BYTES = 1.6e9
"""What Linux with a desktop-less JetPack leaves to nobody else on a board whose memory is shared."""
_KEPT_FREE = 0.03


@dataclass(frozen=True)
class MemoryFit:
    """Bytes a deployment wants and has.

    Attributes:
        weights: Of the engine, once per instance.
        activations: At the asked batch, all instances.
        runtime: Context and workspace.
        available: What a target leaves to a model.
    """

    weights: float
    activations: float
    runtime: float
    available: float

    @property
    def needed(self) -> float:
        """All together."""
        return self.weights + self.activations + self.runtime

    @property
    def fits(self) -> bool:
        """Whether it fits."""
        return self.needed <= self.available

    def words(self) -> str:
        """The sum in one line."""
        gb = 1e9
        return (
            f"{self.needed / gb:.2f} GB needed (weights {self.weights / gb:.2f}, activations "
            f"{self.activations / gb:.2f}, runtime {self.runtime / gb:.2f}), {self.available / gb:.2f} GB there"
        )


def memory_fit(
    features: ModelFeatures, machine: Machine, precision: Precision, batch: int, instances: int = 1
) -> MemoryFit:
    """What an engine wants of a target's memory.

    Args:
        features: The model.
        machine: The target.
        precision: Of the engine.
        batch: Largest batch it serves.
        instances: Execution contexts; each has its own activations, weights are shared.
    """
    width = BYTES[precision]
    system = SYSTEM_BYTES if machine.integrated else 0.0
    return MemoryFit(
        weights=(features.parameters or features.weights) * width,
        activations=features.live_elements * width * batch * instances,
        runtime=CONTEXT_BYTES + WORKSPACE_BYTES * instances,
        available=machine.memory_gb * 1e9 * (1.0 - _KEPT_FREE) - system,
    )


def largest_batch(features: ModelFeatures, machine: Machine, precision: Precision, wanted: int) -> int:
    """The largest power-of-two part of `wanted` that fits; 0 where one sample does not."""
    batch = wanted
    while batch > 0 and not memory_fit(features, machine, precision, batch).fits:
        batch //= 2
    return batch
