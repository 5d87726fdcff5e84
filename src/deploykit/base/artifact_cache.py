"""Content-addressed artifacts: the same request does the work once, also when two processes ask at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from deploykit.base import files
from deploykit.base.artifact import MANIFEST, Artifact, Manifest, read_artifact, seal
from deploykit.base.errors import UsageError

_KEY_CHARACTERS = 12


def artifact_folder(root: Path, model: str, label: str, key: str) -> Path:
    """Where an artifact of this key lives: `<root>/<model>/<label>-<first 12 of key>`."""
    return root / re.sub(r"[^A-Za-z0-9._-]+", "-", model) / f"{label}-{key[:_KEY_CHARACTERS]}"


def find_or_make(
    root: Path, model: str, label: str, key: str, make: Callable[[Path], Manifest]
) -> tuple[Artifact, bool]:
    """The artifact of a key, made now if nobody made it before.

    Args:
        root: Folder of all artifacts.
        model: Short model name.
        label: What it is, for people: `fp32`, `int8-ort-cpu`.
        key: Digest over everything that could change the result.
        make: Fills the folder it is given and returns the manifest, without `files`.

    Returns:
        The artifact, and whether it was there already.
    """
    folder = artifact_folder(root, model, label, key)
    with _locked(folder):
        if (found := _intact(folder, key)) is not None:
            return found, True
        with files.new_folder(folder) as temporary:
            seal(temporary, make(temporary))
        return read_artifact(folder), False


def newest_artifact(root: Path) -> Artifact | None:
    """The artifact made last under a folder; damaged ones are passed over."""
    found = [artifact for path in root.glob(f"*/*/{MANIFEST}") if (artifact := _readable(path)) is not None]
    return max(found, key=lambda artifact: artifact.manifest.created, default=None)


def _readable(path: Path) -> Artifact | None:
    try:
        return read_artifact(path)
    except UsageError:
        return None


def _intact(folder: Path, key: str) -> Artifact | None:
    """An artifact that stands here, whole and of this key; a damaged one is made anew."""
    if not folder.exists():
        return None
    try:
        artifact = read_artifact(folder, check_digests=True)
    except UsageError:
        return None
    return artifact if artifact.manifest.key == key else None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.parent / f".{folder.name}.lock"
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
