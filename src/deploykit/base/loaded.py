"""A model as a source hands it to the exporter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from deploykit.base.artifact import ModelInfo, Preprocessing
from deploykit.base.tensors import TensorSpec


@dataclass(frozen=True)
class LoadedModel:
    """What a model reference resolved to.

    Attributes:
        info: Where it came from.
        kind: What `payload` is.
        payload: A `torch.nn.Module`, a `torch.export.ExportedProgram`, or the `Path` of an ONNX file.
        inputs: What it wants, batch dimension first; open where a card or the file says so. Empty where nobody
            said (a bare python factory without `--input`): the exporter then refuses and asks for `--input`.
        preprocessing: How a photograph becomes its input; None where it takes no images or nobody said.
        default_calibration: `builtin:photos`, or None where only the user can know.
        fingerprint: Digest over code, weights and settings: all that decides what it computes.
    """

    info: ModelInfo
    kind: Literal["module", "exported-program", "onnx"]
    payload: Any
    inputs: tuple[TensorSpec, ...]
    preprocessing: Preprocessing | None
    default_calibration: str | None
    fingerprint: str
