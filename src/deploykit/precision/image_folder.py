"""A folder of pictures → samples in an order that no file system decides, with class indices where they are certain.

The order is drawn by hashing each file's relative name with the seed, and classes (top folders) are mixed in
proportion: any prefix holds about the same share of each class.

A class folder becomes an index by the first of these that applies:

    1. `classes.txt` beside the class folders, one folder name a line: the line's place, from 0
    2. every folder is named by a whole number: that number
    3. there are as many folders as the model has classes: the place in sorted order (torchvision's ImageFolder)

Otherwise there are no labels, and `Samples.labels_note` says why: a wrong top-1 is worse than none.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.precision import images
from deploykit.precision.samples import Feeds, Samples

CLASS_LIST = "classes.txt"


@dataclass(frozen=True)
class Labels:
    """Class folder → index, or None with the reason."""

    index: dict[str, int] | None
    note: str | None


def find_files(root: Path) -> list[PurePosixPath]:
    """Every file below a folder, relative, sorted; hidden ones left out, each folder visited once.

    Links are followed: people collect data sets with them. A loop of links ends where it meets a folder seen before.
    """
    return sorted(_walk(root, PurePosixPath(), set()))


def _walk(root: Path, below: PurePosixPath, seen: set[tuple[int, int]]) -> Iterator[PurePosixPath]:
    here = (root / below).stat()
    if (here.st_dev, here.st_ino) in seen:
        return
    seen.add((here.st_dev, here.st_ino))
    # Real folders first: a link to one must not take its place, or the class would depend on the link's name.
    entries = sorted(os.scandir(root / below), key=lambda entry: (entry.is_symlink(), entry.name))
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(root, below / entry.name, seen)
        elif entry.is_file():
            yield below / entry.name


def is_image(file: PurePosixPath) -> bool:
    """Whether the name ends like a picture's."""
    return file.suffix.lower() in images.SUFFIXES


def open_folder(
    folder: Path,
    files: list[PurePosixPath],
    how: Preprocessing,
    spec: TensorSpec,
    *,
    seed: int,
    classes: int | None,
    strict: bool,
) -> Samples:
    """The pictures of a folder as samples of one input.

    Args:
        folder: Where they are.
        files: What `find_files` found there.
        how: How a picture becomes the input.
        spec: The input.
        seed: Of the order.
        classes: How many classes the model tells apart; None where it is no classifier.
        strict: A broken picture is an error.
    """
    images.require_pillow()
    images.check_fits(how, spec)
    pictures = [file for file in files if is_image(file)]
    top = _class_level(pictures)
    labels = class_labels(folder / top, classes) if classes and _in_folders(pictures, top) else Labels(None, None)
    index = labels.index
    return Samples(
        description=str(folder),
        items=stratified_order(pictures, seed, lambda file: class_of(file, top)),
        load=_loader(folder, how, spec),
        label_of=None if index is None else (lambda file: index[class_of(file, top)]),
        labels_note=labels.note,
        strict=strict,
    )


def _loader(folder: Path, how: Preprocessing, spec: TensorSpec) -> Callable[[PurePosixPath], Feeds]:
    def load(file: PurePosixPath) -> Feeds:
        return {spec.name: images.image_tensor(images.open_upright(folder / file), how, spec)}

    return load


def nothing_found(folder: Path, files: list[PurePosixPath]) -> UsageError:
    """What a folder without data holds instead."""
    found = Counter(file.suffix.lower() or "no suffix" for file in files)
    listed = ", ".join(f"{count} × {suffix}" for suffix, count in found.most_common(5))
    return UsageError(
        f"{folder} holds no image: looked through it and its subfolders for {', '.join(sorted(images.SUFFIXES))} "
        f"(or .npz, .npy arrays) and found {listed or 'no file at all'}; point --calibration-data at a folder with data"
    )


def stratified_order(
    files: list[PurePosixPath], seed: int, group_of: Callable[[PurePosixPath], str]
) -> list[PurePosixPath]:
    """Shuffle by hashed name so that each prefix holds every group in proportion."""
    groups: dict[str, list[tuple[float, PurePosixPath]]] = defaultdict(list)
    for file in files:
        groups[group_of(file)].append((_draw(seed, file), file))
    placed = [
        ((rank + draw) / len(members), file)
        for members in groups.values()
        for rank, (draw, file) in enumerate(sorted(members))
    ]
    return [file for _, file in sorted(placed)]


def _draw(seed: int, file: PurePosixPath) -> float:
    """A number in [0, 1) that depends on the seed and the name alone; macOS writes `ü` as two characters."""
    name = unicodedata.normalize("NFC", str(file))
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "big") / 2.0**64


def _class_level(pictures: list[PurePosixPath]) -> PurePosixPath:
    """The folder whose subfolders are the classes: a lone folder around all of them (`val/`) is passed over."""
    level = PurePosixPath()
    while True:
        paths = [file.relative_to(level).parts for file in pictures]
        if len({parts[0] for parts in paths}) > 1 or any(len(parts) <= 2 for parts in paths):
            return level
        level = level / paths[0][0]


def _in_folders(pictures: list[PurePosixPath], level: PurePosixPath) -> bool:
    return all(len(file.relative_to(level).parts) > 1 for file in pictures)


def class_of(file: PurePosixPath, level: PurePosixPath) -> str:
    """Name of the class folder a picture is in; empty for one that lies beside the folders."""
    parts = file.relative_to(level).parts
    return parts[0] if len(parts) > 1 else ""


def class_labels(root: Path, classes: int) -> Labels:
    """Class indices of the folders below `root`, where they are certain."""
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    listed = root / CLASS_LIST
    if listed.is_file():
        return _labels_from_list(listed, names, classes)
    if all(name.isascii() and name.isdigit() for name in names):
        return _labels_from_numbers(names, classes)
    if len(names) == classes:
        return Labels({name: index for index, name in enumerate(names)}, "class folders in sorted order")
    return Labels(
        None,
        f"no true top-1: {len(names)} class folders ({names[0]}, …) do not say which of the model's {classes} classes "
        f"they are; list all class names in {listed}, one a line, in the model's order",
    )


def _labels_from_list(listed: Path, names: list[str], classes: int) -> Labels:
    lines = [line.strip() for line in listed.read_text(encoding="utf-8").splitlines()]
    order = {line: index for index, line in enumerate(lines) if line}
    if unlisted := [name for name in names if name not in order]:
        raise UsageError(f"{listed} does not list the class folder {unlisted[0]!r}; add it at its class's line")
    if len(lines) > classes:
        raise UsageError(f"{listed} lists {len(lines)} classes, the model tells {classes} apart")
    return Labels({name: order[name] for name in names}, f"class folders as listed in {CLASS_LIST}")


def _labels_from_numbers(names: list[str], classes: int) -> Labels:
    numbers = {name: int(name) for name in names}
    if len(set(numbers.values())) < len(names) or max(numbers.values()) >= classes:
        return Labels(None, f"no true top-1: class folders are numbered beyond the model's classes 0 to {classes - 1}")
    if len(names) == classes and sorted(names, key=int) != names:
        # '10' sorts before '2': a model trained with ImageFolder on these has other indices than the names say.
        return Labels(
            None,
            f"no true top-1: class folders 0 to {classes - 1} may be counted as numbers or in sorted order; write "
            f"{CLASS_LIST} beside them, one folder name a line, in the model's order",
        )
    return Labels(numbers, "class folders named by index")
