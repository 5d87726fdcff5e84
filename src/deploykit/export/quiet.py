"""The exporter talks: prints, warnings, log lines. Results go to stdout, so none of that may."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator

_TALKERS = ("torch", "onnxscript", "onnx_ir", "onnx")
_SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"


class _Collector(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.INFO)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextlib.contextmanager
def quiet(*, guards: bool = False) -> Iterator[list[str]]:
    """Keep torch's and onnx's talk off the terminal while the block runs; in debug what is printed goes to stderr.

    Args:
        guards: Also collect which line of code fixed a symbolic size, which torch tells its log alone.

    Yields:
        The log lines so far.
    """
    lines: list[str] = []
    with contextlib.ExitStack() as stack:
        if os.environ.get("DEPLOYKIT_DEBUG"):
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        else:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for logger in _loggers():
            stack.enter_context(_collected(logger, lines))
        if guards:
            stack.enter_context(_at_level(logging.getLogger(_SYMBOLIC_SHAPES), logging.INFO))
        yield lines


def _loggers() -> list[logging.Logger]:
    """The talkers' own loggers, and those below them that have handlers of their own."""
    below = [
        logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and logger.handlers and name.partition(".")[0] in _TALKERS
    ]
    tops = [logging.getLogger(name) for name in _TALKERS]
    return [*tops, *(logger for logger in below if logger not in tops)]


@contextlib.contextmanager
def _collected(logger: logging.Logger, lines: list[str]) -> Iterator[None]:
    handlers, propagate = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [_Collector(lines)], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate


@contextlib.contextmanager
def _at_level(logger: logging.Logger, level: int) -> Iterator[None]:
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
