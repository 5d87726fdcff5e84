"""Progress of long steps, told to whoever wants to show it. The command line shows bars; the Python API is silent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """What a step calls; the shape of rich's progress bars without importing rich."""

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yield the items while a bar moves; `total` is for iterables without a length."""
        ...

    def step(self, description: str) -> None:
        """A step without a known length has begun."""
        ...


class Silent:
    """Shows nothing."""

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yield the items."""
        yield from items

    def step(self, description: str) -> None:
        """Do nothing."""


SILENT = Silent()
