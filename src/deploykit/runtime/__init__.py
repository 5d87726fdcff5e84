"""What executes a model: artifact → Session. Names are those of `--runtime`."""

from __future__ import annotations

from deploykit.base.protocols import Runtime
from deploykit.base.registry import Registry

RUNTIMES = Registry(
    "runtime",
    "deploykit.runtimes",
    {
        "onnxruntime": "deploykit.runtime.ort:OnnxRuntime",
        "fake": "deploykit.runtime.fake:FakeRuntime",
    },
)


def runtime(name: str) -> Runtime:
    """The runtime of a name.

    Raises:
        UnknownNameError: No such runtime.
    """
    made: Runtime = RUNTIMES.get(name)()
    return made
