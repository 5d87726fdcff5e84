"""How commands speak: results on stdout, as a table or as one JSON document; all else on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console, RenderableType

    from deploykit.base.progress import Progress

T = TypeVar("T")

PIPE_WIDTH = 120
"""Columns of a table that goes to a file or a pipe, where no terminal says how wide it is."""


def emit(document: BaseModel | dict[str, Any], render: Callable[[], RenderableType], *, as_json: bool) -> None:
    """Print a result on stdout.

    Args:
        document: What `--json` prints: a model or plain JSON values. NaN and Inf are refused.
        render: Makes the table for people; called only when it is shown.
        as_json: Whether `--json` was given.
    """
    if as_json:
        print_json(document)
    else:
        stdout_console().print(render())


def print_json(document: BaseModel | dict[str, Any]) -> None:
    """Print one JSON document on stdout."""
    plain = document if isinstance(document, dict) else document.model_dump(mode="json")
    sys.stdout.write(json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def stdout_console() -> Console:
    """Where tables go. Honours NO_COLOR and COLUMNS."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in console._environ:
        console.width = PIPE_WIDTH
    return console


def stderr_console() -> Console:
    """Where progress, warnings and errors go."""
    from rich.console import Console

    return Console(stderr=True)


def warn(text: str) -> None:
    """Tell the user something that does not stop the command."""
    from rich.text import Text

    stderr_console().print(Text("warning: ", style="yellow").append(text, style="default"), soft_wrap=True)


@contextlib.contextmanager
def progress_bars() -> Iterator[Progress]:
    """Progress bars on stderr while the block runs; nothing where stderr is no terminal."""
    from deploykit.base.progress import SILENT

    console = stderr_console()
    if not console.is_terminal:
        yield SILENT
        return
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        yield _RichProgress(bars)


class _RichProgress:
    """`base.progress.Progress` drawn by rich."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._step: Any = None

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yield the items while a bar moves."""
        self._end_step()
        yield from self._bars.track(items, description=description, total=total)

    def step(self, description: str) -> None:
        """Show a spinner until the next step or bar."""
        self._end_step()
        self._step = self._bars.add_task(description, total=None)

    def _end_step(self) -> None:
        if self._step is not None:
            self._bars.remove_task(self._step)
            self._step = None
