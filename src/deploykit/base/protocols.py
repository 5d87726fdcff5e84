"""The seams between rooms. What one step needs of another is passed in as one of these by `pipeline.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from deploykit.base.tensors import TensorSpec

Arrays = Mapping[str, "np.ndarray[Any, Any]"]
"""Tensor name → array."""


class Session(Protocol):
    """A model loaded by a runtime, ready to run. A context manager: leaving it frees the device.

    Attributes:
        inputs: What `infer` wants.
        outputs: What it returns.
        provider: What really executes, as the runtime names it ("CPUExecutionProvider"), never what was asked for.
        settings: Conditions of the measurement: threads, optimisation level, versions.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    provider: str
    settings: dict[str, Any]

    def infer(self, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Run once; blocks until the outputs are in host memory."""
        ...

    def close(self) -> None:
        """Free the device."""
        ...

    def __enter__(self) -> Session: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class OpenSession(Protocol):
    """Loads an ONNX file on this machine, for checks; `infer` of the session may be called from several threads."""

    def __call__(self, model: Path, threads: int | None = None) -> Session:
        """Load it, to run each operator on so many threads; None: one for each core."""
        ...


@dataclass(frozen=True)
class OnDevice:
    """How a model runs on a device with memory of its own.

    Attributes:
        transfers: `infer` copies inputs to the device and outputs back; otherwise inputs are there before it is called
            and outputs stay there.
        cuda_graph: Capture the launches once and replay them.
    """

    transfers: bool = True
    cuda_graph: bool = False


class Runtime(Protocol):
    """Executes models; built-in ones are in `deploykit.runtime`, others come by the entry point `deploykit.runtimes`.

    Attributes:
        name: As in `--runtime` ("onnxruntime").
    """

    name: str

    def unavailable(self) -> str | None:
        """Why it cannot be used here, or None."""
        ...

    def open(
        self,
        model: Path,
        *,
        provider: str | None = None,
        threads: int | None = None,
        on_device: OnDevice = OnDevice(),
    ) -> Session:
        """Load a model.

        Args:
            model: An ONNX file or what the runtime makes of one; an artifact's has its `manifest.json` beside it.
            provider: What executes inside the runtime, where it has a choice.
            threads: Of one operator on a CPU.
            on_device: Transfers and CUDA graphs.

        Raises:
            ProviderUnavailable: The provider asked for is not what would run.
            UsageError: The file is no model that this runtime loads, or it cannot do what `on_device` asks.
        """
        ...


class SampleSource(Protocol):
    """Inputs for calibration, accuracy and bench: one sample at a time, in an order that never changes.

    Attributes:
        description: What the user named: a path, `builtin:photos`, `random`.
        skipped: File name → why it could not be used, filled while iterating.
    """

    description: str
    skipped: dict[str, str]

    def __len__(self) -> int:
        """Samples there are to give, at most; fewer come where files turn out broken."""
        ...

    def samples(self) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """Yield feeds of batch 1, from the first sample on, each time it is called."""
        ...

    def labels(self) -> list[int] | None:
        """Class index of each sample that `samples` yields, where they are known."""
        ...
