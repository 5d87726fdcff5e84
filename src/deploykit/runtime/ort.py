"""onnxruntime: the runtime of the host, and of any device that its providers reach.

onnxruntime falls back to the CPU with no more than a log line when a provider does not load. Here a provider that was
asked for and does not run is an error: a benchmark of the wrong device is worse than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from deploykit.base.cpus import usable_cores
from deploykit.base.errors import MissingExtraError, ProviderUnavailable, UnknownNameError, UsageError
from deploykit.base.protocols import Arrays, OnDevice
from deploykit.base.tensors import TensorSpec

_SUFFIX = "ExecutionProvider"
CPU_PROVIDER = f"CPU{_SUFFIX}"

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(double)": "float64",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(bool)": "bool",
}
_TWO_WHEELS = (
    "The packages onnxruntime and onnxruntime-gpu overwrite each other's files: uninstall both and install one of them"
)
_FATAL_ONLY = 4
"""onnxruntime's log severity FATAL: its errors come as exceptions, its warnings are none of the user's business."""


class OnnxRuntime:
    """Satisfies `base.protocols.Runtime`."""

    name = "onnxruntime"

    def unavailable(self) -> str | None:
        """Why it cannot be used here, or None."""
        try:
            _import()
        except UsageError as error:
            return str(error)
        return None

    def open(
        self,
        model: Path,
        *,
        provider: str | None = None,
        threads: int | None = None,
        on_device: OnDevice = OnDevice(),  # noqa: B008, frozen
    ) -> OrtSession:
        """Load a model.

        Args:
            model: An ONNX file.
            provider: Execution provider, in full or short ("cuda", "tensorrt"); None is the CPU's.
            threads: Of one operator; None: one for each physical core that this process may use.

        Raises:
            MissingExtraError: onnxruntime is not installed.
            UnknownNameError: No onnxruntime has a provider of this name.
            ProviderUnavailable: The provider is not the one that would run.
            UsageError: onnxruntime does not load the file.
        """
        if on_device != OnDevice():
            raise UsageError("--transfers off and --cuda-graph are not there for onnxruntime")
        if threads is not None and threads < 1:
            raise UsageError(f"{threads} threads cannot run a model: give 1 or more")
        full = full_provider_name(provider, _import().get_all_providers()) if provider else CPU_PROVIDER
        return OrtSession(model, full, threads or usable_cores())


def full_provider_name(name: str, known: Sequence[str]) -> str:
    """onnxruntime's name of a provider: `cuda` and `CUDAExecutionProvider` are one.

    Raises:
        UnknownNameError: Neither is one of `known`.
    """
    short = {provider.removesuffix(_SUFFIX).lower(): provider for provider in known}
    full = short.get(name.removesuffix(_SUFFIX).lower())
    if full is None:
        raise UnknownNameError("execution provider", name, [*short, *known])
    return full


class OrtSession:
    """A loaded model. Satisfies `base.protocols.Session`."""

    def __init__(self, model: Path, provider: str, threads: int) -> None:
        ort = _import()
        _require_compiled_in(ort, provider)
        self._session: Any = _open(ort, model, provider, threads)
        self.provider: str = self._session.get_providers()[0]
        if self.provider != provider:
            raise ProviderUnavailable(_not_available(provider, f"onnxruntime would run {self.provider} instead"))
        self.inputs = tuple(_spec(node) for node in self._session.get_inputs())
        self.outputs = tuple(_spec(node) for node in self._session.get_outputs())
        self.settings: dict[str, Any] = {
            "runtime_version": ort.__version__,
            "threads": threads,
            "graph_optimization": "all",
            "execution_mode": "sequential",
        }
        self._names = [spec.name for spec in self.outputs]
        self._dtypes = {spec.name: spec.dtype for spec in self.inputs}

    def infer(self, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Run once.

        Raises:
            UsageError: Names, types or shapes are not what the model wants.
        """
        try:
            outputs = self._session.run(None, feeds)
        except Exception as error:  # onnxruntime's exceptions share no public base class
            raise UsageError(self._explain(feeds, error)) from error
        return dict(zip(self._names, outputs, strict=True))

    def close(self) -> None:
        """Free the model; the session cannot be used after it."""
        self._session = None

    def __enter__(self) -> OrtSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _explain(self, feeds: Arrays, error: Exception) -> str:
        """Say in plain words what is wrong with the feeds; else what onnxruntime said."""
        if self._session is None:
            return "the session is closed"
        if set(feeds) != set(self._dtypes):
            return f"the model wants the inputs {sorted(self._dtypes)}, it was given {sorted(feeds)}"
        for name, array in feeds.items():
            if str(array.dtype) != self._dtypes[name]:
                return f"input {name!r} must be {self._dtypes[name]}, it was given {array.dtype}"
        shapes = {spec.name: spec.shape for spec in self.inputs}
        given = ", ".join(f"{name} {array.shape}, model {shapes[name]}" for name, array in feeds.items())
        return f"onnxruntime could not run the model ({given}): {_first_line(error)}"


def _import() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "cpu", "running ONNX models") from error
    if not hasattr(onnxruntime, "InferenceSession"):
        raise UsageError(f"onnxruntime imports but is broken, installed by {_wheels() or 'no package'}. {_TWO_WHEELS}")
    return onnxruntime


def _wheels() -> list[str]:
    """Which packages brought the module."""
    return [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _require_compiled_in(ort: Any, provider: str) -> None:
    available = ort.get_available_providers()
    if provider not in available:
        raise ProviderUnavailable(_not_available(provider, f"this onnxruntime has {', '.join(available)}"))


def _not_available(provider: str, why: str) -> str:
    text = (
        f"{provider} was asked for and is not available: {why}; install the onnxruntime that has it "
        "(pip install 'deploykit[gpu]') and the libraries it needs, or ask for another --provider"
    )
    return f"{text}. {_TWO_WHEELS}" if len(_wheels()) > 1 else text


def _open(ort: Any, model: Path, provider: str, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    if provider != CPU_PROVIDER:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if not model.is_file():
        raise UsageError(f"{model} is not a file: give an ONNX model")
    try:
        return ort.InferenceSession(str(model), options, providers=[provider])
    except Exception as error:  # onnxruntime's exceptions share no public base class
        if provider != CPU_PROVIDER:
            raise ProviderUnavailable(_not_available(provider, _first_line(error))) from error
        raise UsageError(f"onnxruntime does not load {model}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _spec(node: Any) -> TensorSpec:
    shape = tuple(size if isinstance(size, int) else (size or f"dim{axis}") for axis, size in enumerate(node.shape))
    return TensorSpec(name=node.name, dtype=_DTYPES.get(node.type, node.type), shape=shape)
