"""torch's refusals in one paragraph: which line of the user's code, and the way out."""

from __future__ import annotations

import linecache
import os
import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deploykit.base.errors import UsageError

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_GUARD = re.compile(r"eval Eq\(s\d+, \d+\).*?\((?P<file>[^\s()]+):(?P<line>\d+) in ")
_CONSTANT = re.compile(
    r"marked (?P<name>\w+) as dynamic but your code specialized it to be a constant \((?P<size>\d+)\)"
)
_NO_FUNCTION = re.compile(r"No ONNX function found for <OpOverload\(op='(?P<op>[^']+)'")
# Frames in these are not the user's code.
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("torch", "onnxscript", "onnx_ir", "onnx", "deploykit"))


@dataclass(frozen=True)
class Line:
    """A line of the user's code."""

    file: str
    number: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.number).strip()
        return f"{self.file}:{self.number}" + (f" `{text}`" if text else "")


def explained(error: Exception, log: Iterable[str], sources: Iterable[Path], model: str) -> UsageError:
    """Why a module cannot be exported, in words that its author can act on.

    Args:
        error: What `torch.export` or the ONNX exporter raised.
        log: torch's log lines of the attempt.
        sources: Source files of the module's classes.
        model: The model's name.
    """
    text = _chain_text(error)
    line = user_line(error, text)
    if constant := _CONSTANT.search(text):
        return _baked_in(constant["name"], int(constant["size"]), guard_line(log, sources), model)
    if "data-dependent" in text or "GuardOnDataDependent" in text:
        return UsageError(
            f"{model} branches on tensor values at {line or 'a line that torch does not name'}: only the branch that "
            "the example takes would be exported, so this is refused. Compute both sides and choose with torch.where, "
            "or write the branch with torch.cond"
        )
    if missing := _NO_FUNCTION.search(text):
        return UsageError(
            f"{model} uses {missing['op']}, for which ONNX has no operator{_at(line)}: write it with other "
            "operators, or try a higher --opset"
        )
    if "Constraints violated" in text:
        return UsageError(
            f"{model} does not take every batch size asked for: {_suggestion(text)}; give such a range, or "
            "one size, with --batch"
        )
    return UsageError(f"{model} cannot be exported{_at(line)}: {_first_sentence(error)}")


def user_line(error: BaseException, text: str = "") -> Line | None:
    """The innermost line outside torch that an error passed through."""
    frames = [(frame.filename, frame.lineno or 0) for cause in _causes(error) for frame in
              traceback.extract_tb(cause.__traceback__)]  # fmt: skip
    frames += [(match["file"], int(match["line"])) for match in _FRAME.finditer(text)]
    own = [Line(file, number) for file, number in frames if _is_users(file)]
    return own[-1] if own else None


def guard_line(log: Iterable[str], sources: Iterable[Path]) -> Line | None:
    """The first line that turned a symbolic size into a number. torch logs the tail of its path only."""
    known = list(sources)
    for match in filter(None, map(_GUARD.search, log)):
        tail = match["file"]
        full = next((str(path) for path in known if str(path).endswith(tail)), tail)
        if _is_users(full) and not tail.startswith(("torch/", "_export/")):
            return Line(full, int(match["line"]))
    return None


def _baked_in(name: str, size: int, line: Line | None, model: str) -> UsageError:
    what = "the batch size" if name == "batch" else f"the open dimension {name!r}"
    remedy = "with --batch N for one fixed batch" if name == "batch" else "with a number for it in --input"
    return UsageError(
        f"{model} turns {what} into a constant ({size}) at {line or 'a line that torch does not name'}, so the "
        f"exported graph would serve {size} alone: keep it symbolic there (x.shape[0] without int(), or -1 in "
        f"reshape), or export {remedy}"
    )


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it came from, outermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


def _chain_text(error: BaseException) -> str:
    return "\n".join(f"{type(cause).__name__}: {cause}" for cause in _causes(error))


def _is_users(file: str) -> bool:
    return not file.startswith("<") and not any(package in file for package in _PACKAGES)


def _at(line: Line | None) -> str:
    return f" at {line}" if line else ""


def _suggestion(text: str) -> str:
    _, found, rest = text.partition("Suggested fixes:")
    first = [entry.strip() for entry in rest.split("\n") if entry.strip()]
    return f"torch suggests {first[0]}" if found and first else "torch does not say which"


def _first_sentence(error: BaseException) -> str:
    root = _causes(error)[-1]
    text = next((line.strip() for line in str(root).split("\n") if line.strip()), "")
    return f"{type(root).__name__}: {text[:300]}"
