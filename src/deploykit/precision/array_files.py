"""Arrays in `.npz` and `.npy` files → samples, one row at a time.

Rows are read from the file as they are needed, also out of a compressed archive: memory does not grow with the file.
Nothing is unpickled.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.precision.samples import Feeds, Samples


class Rows(Protocol):
    """An array read by its first axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of each element."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Rows `start` to `stop`."""
        ...


class InMemory:
    """An array that is there already, or mapped from a file."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self._array = array

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Rows `start` to `stop`."""
        return np.asarray(self._array[start:stop])


class ArchiveMember:
    """One array of an `.npz`, read as a stream: going forwards costs nothing, going back starts again.

    Args:
        path: The archive.
        member: Name in it, with `.npy`.
        shape: Of the whole array.
        dtype: Of each element.
        offset: Bytes before the first element.
    """

    def __init__(self, path: Path, member: str, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self._path = path
        self._member = member
        self._offset = offset
        self._row_bytes = dtype.itemsize * math.prod(shape[1:])
        self._stream: IO[bytes] | None = None

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Rows `start` to `stop`."""
        if self._stream is None:
            # Stays open from row to row.
            self._stream = zipfile.ZipFile(self._path).open(self._member)  # noqa: SIM115
        wanted = (stop - start) * self._row_bytes
        try:
            self._stream.seek(self._offset + start * self._row_bytes)
            data = self._stream.read(wanted)
        except (zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{self._path}: array {self._member!r} is damaged ({error}); write it again") from error
        if len(data) < wanted:
            raise UsageError(f"{self._path}: array {self._member!r} is cut short; write it again")
        return np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])


@dataclass(frozen=True)
class Column:
    """What feeds one input.

    Attributes:
        spec: The input.
        rows: The array.
        batch: Rows that make one sample; None: one row is a whole feed, its batch axis included.
    """

    spec: TensorSpec
    rows: Rows
    batch: int | None

    def __len__(self) -> int:
        return self.rows.shape[0] // (self.batch or 1)

    def feed(self, index: int) -> np.ndarray[Any, Any]:
        """The sample of an index, as the input wants it."""
        if self.batch is None:
            return np.asarray(self.rows.read(index, index + 1)[0])
        return self.rows.read(index * self.batch, (index + 1) * self.batch)


def open_arrays(description: str, paths: Sequence[Path], inputs: Sequence[TensorSpec]) -> Samples:
    """Samples out of one or more files, row by row.

    Raises:
        UsageError: Names, shapes or types are not the model's, or an array holds objects, NaN or Inf.
    """
    tables = [bind(str(path), read_arrays(path), inputs) for path in paths]
    items = [(table, row) for table, columns in enumerate(tables) for row in range(len(columns[0]))]

    def load(item: tuple[int, int]) -> Feeds:
        table, row = item
        where = f"{paths[table]}, row {row}"
        return feeds_at(tables[table], row, where)

    def name_of(item: tuple[int, int]) -> str:
        return f"{paths[item[0]].name}[{item[1]}]"

    return Samples(description, items, load, name_of, in_file_order=True)


def feeds_at(columns: Sequence[Column], index: int, where: str) -> Feeds:
    """One sample out of all columns, in the inputs' types."""
    return {column.spec.name: as_dtype(column.feed(index), column.spec, where) for column in columns}


def read_arrays(path: Path) -> dict[str, Rows]:
    """The arrays of a file by name; the one of an `.npy` has the empty name.

    Raises:
        UsageError: The file is damaged or needs unpickling.
    """
    try:
        if path.suffix.lower() == ".npy":
            return {"": InMemory(np.load(path, mmap_mode="r", allow_pickle=False))}
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            return {member.removesuffix(".npy"): _member(path, archive, member) for member in members}
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as NumPy arrays ({error}); write it with numpy.savez") from error


def _member(path: Path, archive: zipfile.ZipFile, member: str) -> Rows:
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read_header(stream)
        offset = stream.tell()
    if dtype.hasobject:
        raise UsageError(f"{path}: array {member!r} holds Python objects, which need pickle: not read; save numbers")
    if fortran_order and len(shape) > 1:
        # Rows are scattered over the file, so there is nothing to stream.
        with np.load(path, allow_pickle=False) as loaded:
            return InMemory(loaded[member.removesuffix(".npy")])
    return ArchiveMember(path, member, shape, dtype, offset)


def bind(where: str, arrays: Mapping[str, Rows], inputs: Sequence[TensorSpec]) -> list[Column]:
    """Which array feeds which input, each checked for type, shape and number of samples.

    Raises:
        UsageError: An array is missing or does not fit; says what there is and what is wanted.
    """
    if len(inputs) == 1 and len(arrays) == 1 and next(iter(arrays)) in ("", "arr_0"):
        arrays = {inputs[0].name: next(iter(arrays.values()))}
    names = [spec.name for spec in inputs]
    if missing := [name for name in names if name not in arrays]:
        found = ", ".join(repr(name) for name in arrays) or "none"
        raise UsageError(
            f"{where} has no array for input {missing[0]!r}: it holds {found}, the model wants {_wanted(inputs)}; "
            "name the arrays as the inputs, samples along the first axis"
        )
    columns = [_column(where, arrays[spec.name], spec) for spec in inputs]
    if len(lengths := {len(column) for column in columns}) > 1:
        raise UsageError(f"{where}: its arrays hold different numbers of samples ({sorted(lengths)})")
    if not len(columns[0]):
        raise UsageError(f"{where} holds no samples: the first axis of its arrays has length 0")
    return columns


def _column(where: str, rows: Rows, spec: TensorSpec) -> Column:
    if not _castable(rows.dtype, spec.dtype):
        raise UsageError(f"{where}: array for input {spec.name!r} is {rows.dtype}, the model wants {spec.dtype}")
    if shape_fits(rows.shape[1:], spec.shape[1:]) and spec.shape:
        first = spec.shape[0]
        return Column(spec, rows, first if isinstance(first, int) else 1)
    if rows.shape and shape_fits(rows.shape[1:], spec.shape):
        return Column(spec, rows, None)
    raise UsageError(
        f"{where}: array for input {spec.name!r} has shape {rows.shape}, the model wants samples of shape "
        f"({', '.join(map(str, spec.shape[1:]))}) along the first axis; the input is {_wanted([spec])}"
    )


def shape_fits(have: tuple[int, ...], want: tuple[int | str, ...]) -> bool:
    """Whether a shape is of a form in which words stand for any size."""
    return len(have) == len(want) and all(isinstance(w, str) or w == h for h, w in zip(have, want, strict=True))


def as_dtype(array: np.ndarray[Any, Any], spec: TensorSpec, where: str) -> np.ndarray[Any, Any]:
    """The array in the input's type, where that loses nothing but float digits.

    Raises:
        UsageError: NaN or Inf, a whole number that does not fit, or another kind of number.
    """
    if not _castable(array.dtype, spec.dtype):
        raise UsageError(f"{where}: input {spec.name!r} is given {array.dtype}, the model wants {spec.dtype}")
    with np.errstate(over="ignore"):
        values = array.astype(spec.dtype)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UsageError(f"{where}: input {spec.name!r} holds NaN or Inf as {spec.dtype}; mend the data")
    if values.dtype.kind in "iu" and not np.array_equal(values, array):
        raise UsageError(f"{where}: input {spec.name!r} holds numbers that {spec.dtype} cannot")
    return values


def _castable(have: np.dtype[Any], want: str) -> bool:
    if want == "bfloat16":
        return False  # NumPy has no such type.
    return np.can_cast(have, np.dtype(want), "same_kind")


def _wanted(inputs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name!r} {spec.dtype} [{', '.join(map(str, spec.shape))}]" for spec in inputs)
