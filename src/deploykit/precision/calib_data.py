"""`--calibration-data` → samples for calibration, for the accuracy report and for bench.

    DIR               a folder of pictures, or of .npz and .npy files
    FILE.npz, .npy    arrays named as the inputs, samples along the first axis
    module:function   the user's code; also path/to/file.py:function
    builtin:photos    photographs that scikit-image ships
    random            noise, for speed only

Nothing here falls back on something else: data that is not there is an error.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import UsageError
from deploykit.base.protocols import SampleSource
from deploykit.base.tensors import TensorSpec
from deploykit.precision import array_files, builtin_photos, image_folder, images, random_data, user_function
from deploykit.precision.samples import Samples, in_batches

FEWEST_HELD_OUT = 8
"""With fewer samples than this left over after calibration, judging reuses all of them and says so."""

_ARRAY_SUFFIXES = (".npz", ".npy")


def open_samples(
    data: str,
    *,
    inputs: Sequence[TensorSpec],
    preprocessing: Preprocessing | None,
    seed: int = 0,
    classes: int | None = None,
    strict: bool = False,
) -> Samples:
    """Find the data that a user named.

    Args:
        data: As in the table above.
        inputs: What the model wants.
        preprocessing: How a picture becomes its input; None: only arrays will do, or pixels for a uint8 input.
        seed: Of the order of a folder, of crops and of noise.
        classes: How many classes the model tells apart, which class folders are held against.
        strict: A broken picture is an error instead of a counted warning.

    Raises:
        UsageError: There is no such data or it does not fit the model; says what was looked for and found.
        MissingExtraError: Reading it needs a package of an extra.
    """
    if random_data.is_random(data):
        return random_data.open_random(data, inputs, seed=seed)
    if data.startswith("builtin:"):
        return _open_builtin(data, inputs, preprocessing, seed)
    path = Path(data)
    if path.is_dir():
        return _open_folder(path, inputs, preprocessing, seed=seed, classes=classes, strict=strict)
    if path.is_file():
        return _open_file(path, inputs)
    if ":" in data:
        return user_function.open_function(data, inputs)
    raise UsageError(
        f"--calibration-data {data!r} not found in {Path.cwd()}; give a folder of images, FILE.npz, module:function, "
        f"{builtin_photos.NAME}, or {random_data.NAME} (speed only)"
    )


def _open_builtin(data: str, inputs: Sequence[TensorSpec], preprocessing: Preprocessing | None, seed: int) -> Samples:
    if data != builtin_photos.NAME:
        raise UsageError(f"--calibration-data {data!r}: the only built-in data is {builtin_photos.NAME}")
    how, spec = _picture_input(inputs, preprocessing)
    return in_batches(builtin_photos.open_photos(how, spec, seed=seed), _fixed_batch(spec))


def _open_folder(
    folder: Path,
    inputs: Sequence[TensorSpec],
    preprocessing: Preprocessing | None,
    *,
    seed: int,
    classes: int | None,
    strict: bool,
) -> Samples:
    files = image_folder.find_files(folder)
    if any(image_folder.is_image(file) for file in files):
        how, spec = _picture_input(inputs, preprocessing)
        pictures = image_folder.open_folder(folder, files, how, spec, seed=seed, classes=classes, strict=strict)
        return in_batches(pictures, _fixed_batch(spec))
    if arrays := [folder / file for file in files if file.suffix.lower() in _ARRAY_SUFFIXES]:
        return array_files.open_arrays(str(folder), arrays, inputs)
    raise image_folder.nothing_found(folder, files)


def _open_file(path: Path, inputs: Sequence[TensorSpec]) -> Samples:
    if path.suffix.lower() in _ARRAY_SUFFIXES:
        return array_files.open_arrays(str(path), [path], inputs)
    raise UsageError(
        f"--calibration-data {path} is a file of an unknown kind; give a folder of images, FILE.npz or FILE.npy"
    )


def _picture_input(
    inputs: Sequence[TensorSpec], preprocessing: Preprocessing | None
) -> tuple[Preprocessing, TensorSpec]:
    """Which input takes pictures, and how they become it."""
    how = preprocessing or (images.raw_pixels(inputs[0]) if len(inputs) == 1 else None)
    if how is None:
        raise UsageError(
            f"nobody says how a picture becomes the input {_names(inputs)}: no preprocessing is known for this model. "
            "Use a model card that has one, or give the inputs ready-made as FILE.npz"
        )
    matching = [spec for spec in inputs if spec.name == how.input]
    if not matching:
        raise UsageError(f"the preprocessing feeds input {how.input!r}, the model has {_names(inputs)}")
    if len(inputs) > 1:
        raise UsageError(f"pictures feed {how.input!r} only, but the model has {_names(inputs)}; give FILE.npz")
    return how, matching[0]


def _fixed_batch(spec: TensorSpec) -> int:
    """Pictures that make one feed: 1 where the batch is open."""
    return spec.shape[0] if isinstance(spec.shape[0], int) else 1


def _names(inputs: Sequence[TensorSpec]) -> str:
    return ", ".join(repr(spec.name) for spec in inputs)


def split(source: Samples, calibration: int, held_out: int) -> tuple[Samples, Samples]:
    """Samples to calibrate on and others to judge by.

    They share none where at least `FEWEST_HELD_OUT` are left over after calibration took what it was asked to.
    Otherwise judging reuses the calibration samples and its `description` says so.

    Args:
        source: All there is.
        calibration: Samples wanted for calibration; comes first where there are few.
        held_out: Samples wanted for judging.
    """
    if source.parts is not None:
        first, second = source.parts
        return _part(first, first.items, calibration), _held_out(_part(second, second.items, held_out))
    items = _fair_order(source)
    if len(items) < calibration + min(held_out, FEWEST_HELD_OUT):
        judged = _part(source, items[::-1], held_out)
        judged.description += " (the samples it was calibrated on: too few to hold any out)"
        return _part(source, items, calibration), judged
    # What neither asked for is shared out too, in proportion: it stands in for items that turn out broken.
    spare = max(0, len(items) - calibration - held_out)
    border = calibration + spare * calibration // max(1, calibration + held_out)
    return _part(source, items[:border], calibration), _held_out(_part(source, items[border:], held_out))


def _held_out(part: Samples) -> Samples:
    part.description += " (held out from calibration)"
    return part


def _part(source: Samples, items: Sequence[Any], limit: int) -> Samples:
    # In a file, rising order reads fastest; nothing there turns out broken, so no item past the limit is needed.
    chosen = sorted(items[:limit]) if source.in_file_order else items
    return replace(source, items=chosen, limit=limit, skipped={})


def _fair_order(source: Samples) -> Sequence[Any]:
    """An order in which any prefix is a fair draw."""
    if not source.in_file_order:
        return source.items
    # RandomState's stream is frozen: the same choice whatever the version of NumPy.
    order = np.random.RandomState(0).permutation(len(source.items))
    return [source.items[index] for index in order]


def data_digest(source: SampleSource, count: int) -> str:
    """SHA-256 over the first `count` samples as fed: names, types, shapes and bytes, one sample in memory at a time."""
    running = hashlib.sha256()
    for feeds in itertools.islice(source.samples(), count):
        for name in sorted(feeds):
            array = np.ascontiguousarray(feeds[name])
            running.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
            running.update(array.tobytes())
    return running.hexdigest()
