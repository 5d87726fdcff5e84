"""A runtime without a device: it sleeps as long as it is told. For trying out bench and recommend, and their tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from deploykit.base.protocols import Arrays, OnDevice
from deploykit.base.tensors import TensorSpec


class FakeRuntime:
    """Opens anything as an identity of `float32 [batch, 4]`. Satisfies `base.protocols.Runtime`."""

    name = "fake"

    def unavailable(self) -> str | None:
        """It always can be used."""
        return None

    def open(
        self,
        model: Path,
        *,
        provider: str | None = None,
        threads: int | None = None,
        on_device: OnDevice = OnDevice(),  # noqa: B008, frozen
    ) -> FakeSession:
        """A session of 1 ms; the file is not read."""
        return FakeSession([1.0], provider=provider or "FakeProvider")


class FakeSession:
    """Satisfies `base.protocols.Session`.

    Args:
        latencies_ms: How long each call takes, over and over.
        per_sample: Multiply by the batch size, as a device without parallelism would.
        provider: What it says it runs on.
    """

    def __init__(
        self, latencies_ms: Sequence[float], *, per_sample: bool = False, provider: str = "FakeProvider"
    ) -> None:
        self.inputs = (TensorSpec(name="x", dtype="float32", shape=("batch", 4)),)
        self.outputs = (TensorSpec(name="y", dtype="float32", shape=("batch", 4)),)
        self.provider = provider
        self.settings: dict[str, Any] = {"threads": 1}
        self.calls = 0
        self._latencies_ms = list(latencies_ms)
        self._per_sample = per_sample

    def infer(self, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Return the input after a while."""
        latency_ms = self._latencies_ms[self.calls % len(self._latencies_ms)]
        self.calls += 1
        time.sleep(latency_ms / 1000 * (len(feeds["x"]) if self._per_sample else 1))
        return {"y": np.array(feeds["x"], copy=True)}

    def close(self) -> None:
        """Nothing to free."""

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
