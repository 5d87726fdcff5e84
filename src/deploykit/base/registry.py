"""Name → lazily imported object: what is built in, plus what plug-ins bring by entry point."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any

from deploykit.base.errors import DeploykitError, UnknownNameError


class Registry:
    """The names of one extension point.

    Args:
        kind: What the things are, for messages ("runtime").
        group: Entry point group of plug-ins (`deploykit.runtimes`).
        built_in: Name → `module:attribute`, imported on first use.
    """

    def __init__(self, kind: str, group: str, built_in: dict[str, str]) -> None:
        self._kind = kind
        self._group = group
        self._built_in = dict(built_in)

    def names(self) -> list[str]:
        """Every name, built-in ones first.

        Raises:
            DeploykitError: A plug-in takes a name that is built in.
        """
        plugged = [point.name for point in entry_points(group=self._group)]
        if clash := sorted(set(plugged) & set(self._built_in)):
            raise DeploykitError(f"a plug-in redefines the built-in {self._kind} {clash[0]!r}: uninstall it")
        return [*self._built_in, *plugged]

    def get(self, name: str) -> Any:
        """Import what the name stands for.

        Raises:
            UnknownNameError: No such name.
        """
        if name not in self.names():
            raise UnknownNameError(self._kind, name, self.names())
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        return next(point for point in entry_points(group=self._group) if point.name == name).load()
