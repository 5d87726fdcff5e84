"""Files are written whole or not at all: under a temporary name beside the final one, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 20


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document whole or not at all; NaN and Inf are refused, since JSON has no words for them."""
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextlib.contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A folder to fill; it takes its final name only when the block ends without an error.

    A folder that already stands under the final name is replaced. What a killed process leaves behind is a hidden
    `.<name>.*` folder beside it, never a half-filled final one.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{final.name}."))
    temporary.chmod(0o777 & ~_umask())
    try:
        yield temporary
        _replace_folder(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _replace_folder(temporary: Path, final: Path) -> None:
    """Rename over an existing folder: the old one steps aside first, since rename needs an empty place."""
    if not final.exists():
        with contextlib.suppress(FileExistsError):
            temporary.rename(final)
            return
    aside = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{final.name}.old."))
    final.rename(aside / final.name)
    temporary.rename(final)
    shutil.rmtree(aside, ignore_errors=True)


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_json(document: Any) -> str:
    """Hex digest of a JSON document, independent of key order and spacing."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
