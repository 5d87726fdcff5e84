"""`module:function` → samples: the user's own code yields the inputs. It was named to be run, so it is run."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.precision.array_files import InMemory, bind, feeds_at
from deploykit.precision.samples import Feeds, Samples

MOST_SAMPLES = 10_000
"""What is drawn from a function at most: some generate without end."""


def open_function(data: str, inputs: Sequence[TensorSpec]) -> Samples:
    """Samples from a function without arguments that returns an iterable, anew at each call.

    An element is a dict of input name → array, a tuple in the order of the inputs, or one array for a model of one
    input. Its first axis counts samples, so a data loader's batches do too.

    Raises:
        UsageError: The module or function is not there or fails, or what it yields does not fit the inputs.
    """
    function = _find(data)
    stream = _Stream(lambda: _rows(data, function, inputs))
    count = sum(1 for _ in itertools.islice(_rows(data, function, inputs), MOST_SAMPLES))
    if count == 0:
        raise UsageError(f"--calibration-data {data}: the function yields nothing")
    return Samples(data, range(count), stream.at, in_file_order=True)


class _Stream:
    """An iterable read by position: forwards it goes on, backwards it begins anew."""

    def __init__(self, begin: Callable[[], Iterator[Feeds]]) -> None:
        self._begin = begin
        self._rows = begin()
        self._next = 0

    def at(self, index: int) -> Feeds:
        if index < self._next:
            self._rows, self._next = self._begin(), 0
        skip = index - self._next
        self._next = index + 1
        return next(itertools.islice(self._rows, skip, None))


def _find(data: str) -> Callable[[], Iterable[Any]]:
    place, _, name = data.rpartition(":")
    module = _import(place)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(f"--calibration-data {data}: {place} has no function {name!r}; it has {functions[:8]}")
    return function  # type: ignore[no-any-return]


def _import(place: str) -> ModuleType:
    try:
        return _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    # The user's module may raise anything while it is imported.
    except Exception as error:
        raise UsageError(f"--calibration-data: {place} cannot be imported: {type(error).__name__}: {error}") from error


def _import_module(name: str) -> ModuleType:
    """With the working folder in reach, as `python -m` has it."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(here)


def _import_file(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _rows(data: str, function: Callable[[], Iterable[Any]], inputs: Sequence[TensorSpec]) -> Iterator[Feeds]:
    """Every sample the function yields, batches taken apart."""
    for index, element in enumerate(_elements(data, function)):
        where = f"{data}, element {index}"
        arrays = {name: InMemory(np.asarray(value)) for name, value in _named(element, inputs, where).items()}
        columns = bind(where, arrays, inputs)
        for row in range(len(columns[0])):
            yield feeds_at(columns, row, where)


def _elements(data: str, function: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    try:
        yield from function()
    # The user's function may raise anything.
    except Exception as error:
        raise UsageError(f"--calibration-data {data} failed: {type(error).__name__}: {error}") from error


def _named(element: Any, inputs: Sequence[TensorSpec], where: str) -> Mapping[str, Any]:
    if isinstance(element, Mapping):
        return element
    values = element if isinstance(element, tuple) else (element,)
    if len(values) != len(inputs):
        names = ", ".join(spec.name for spec in inputs)
        raise UsageError(f"{where}: {len(values)} arrays for the inputs {names}; yield a dict of name → array")
    return {spec.name: value for spec, value in zip(inputs, values, strict=True)}
