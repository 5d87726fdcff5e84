"""Questions to NVIDIA's management library: asked of the driver, or of a snapshot that recorded the answers.

Both sides speak in questions `nvmlDeviceGetName gpu:0`, so that what a user saved replays through the code that reads a
live GPU. Devices are named by place: `gpu:0`, `gpu:0/mig:2`; the empty name asks the system.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

RECORD_FILE = "deploykit/nvml.json"
"""In a snapshot: question → answer, or the library's error."""

# Error numbers of nvml.h that mean something to the reader.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
NOT_RECORDED = -1


class NvmlRefusal(Exception):
    """The library gave no answer. Never leaves the probe: a reading that is refused is noted as not available.

    Attributes:
        code: NVML's error number.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Nvml(Protocol):
    """Something that answers NVML's questions."""

    def ask(self, question: str, device: str = "", *arguments: int) -> Any:
        """One answer as plain values: numbers, text, lists, and dictionaries for structures.

        Args:
            question: A function of pynvml.
            device: `gpu:0` or `gpu:0/mig:2`; empty for the system.
            arguments: What else the function takes.

        Raises:
            NvmlRefusal: The library refuses.
        """
        ...


class LiveNvml:
    """The driver of this machine, through nvidia-ml-py. Remembers what it was asked, for a snapshot.

    Attributes:
        record: Question → answer so far.
    """

    def __init__(self) -> None:
        # nvidia-ml-py is pure Python and loads the driver's library only when it is initialised.
        import pynvml

        self._pynvml = pynvml
        self._handles: dict[str, Any] = {}
        self.record: dict[str, Any] = {}

    def start(self) -> None:
        """Load and initialise the library.

        Raises:
            NvmlRefusal: No library, no driver, or no permission.
        """
        self.ask("nvmlInit")

    def stop(self) -> None:
        """Let the library go."""
        with contextlib.suppress(self._pynvml.NVMLError):
            self._pynvml.nvmlShutdown()

    def ask(self, question: str, device: str = "", *arguments: int) -> Any:
        """As `Nvml.ask`."""
        key = _key(question, device, arguments)
        try:
            answer = self._call(question, device, arguments)
        except NvmlRefusal as refusal:
            self.record[key] = {"refused": refusal.code, "text": str(refusal)}
            raise
        self.record[key] = {"answer": answer}
        return answer

    def _call(self, question: str, device: str, arguments: tuple[int, ...]) -> Any:
        function = getattr(self._pynvml, question, None)
        if function is None:
            raise NvmlRefusal(FUNCTION_NOT_FOUND, "this nvidia-ml-py has no such question")
        try:
            return _plain(function(*([self._handle(device)] if device else []), *arguments))
        except self._pynvml.NVMLError as error:
            raise NvmlRefusal(error.value, str(error)) from error

    def _handle(self, device: str) -> Any:
        if device not in self._handles:
            parent, _, place = device.rpartition("/")
            kind, _, number = place.partition(":")
            if kind == "gpu":
                self._handles[device] = self._pynvml.nvmlDeviceGetHandleByIndex(int(number))
            else:
                whole = self._handle(parent)
                self._handles[device] = self._pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, int(number))
        return self._handles[device]


class RecordedNvml:
    """Answers of a snapshot.

    Attributes:
        record: Question → answer.
    """

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record

    def ask(self, question: str, device: str = "", *arguments: int) -> Any:
        """As `Nvml.ask`."""
        entry = self.record.get(_key(question, device, arguments))
        if not isinstance(entry, dict) or not entry.keys() & {"answer", "refused"}:
            raise NvmlRefusal(NOT_RECORDED, "not recorded in this snapshot")
        if "refused" in entry:
            code = entry["refused"]
            raise NvmlRefusal(code if isinstance(code, int) else NOT_RECORDED, str(entry.get("text", "refused")))
        return entry["answer"]


def recorded_nvml(root: Path) -> RecordedNvml:
    """The answers that a snapshot holds; one without any refuses every question."""
    try:
        record = json.loads((root / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        record = {}
    return RecordedNvml(record if isinstance(record, dict) else {})


@contextlib.contextmanager
def live_nvml() -> Iterator[LiveNvml]:
    """The driver, initialised; where that fails, questions are refused with the reason.

    Raises:
        NvmlRefusal: No library, no driver, or no permission.
    """
    nvml = LiveNvml()
    nvml.start()
    try:
        yield nvml
    finally:
        nvml.stop()


def _key(question: str, device: str, arguments: tuple[int, ...]) -> str:
    return " ".join([question, *([device] if device else []), *map(str, arguments)])


def _plain(value: Any) -> Any:
    """An answer without ctypes: bytes become text, structures dictionaries."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "_fields_"):
        return {name: _plain(getattr(value, name)) for name, *_ in value._fields_}
    if hasattr(value, "__dict__"):
        return {name: _plain(item) for name, item in vars(value).items()}
    return value
