"""A snapshot: the files that the probes read of a machine, in one .tar.gz that replays through the same code.

Inside are the files under the paths they have on the machine, and below `deploykit/` what is no file there: where links
pointed, what could not be read, what the NVIDIA library answered and which releases are installed. It holds part
numbers, GPU UUIDs and process ids; no serial number, no host name, no user's file.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from deploykit.base import files
from deploykit.base.errors import UsageError
from deploykit.probe import software
from deploykit.probe.device import Look
from deploykit.probe.nvml_answers import RECORD_FILE
from deploykit.probe.tree import DENIED_FILE, LINKS_FILE

_ROOT_FOLDERS = ("proc", "sys", "etc", "deploykit")

# Far above any real snapshot (some 50 KB), far below what would fill a disk.
_MOST_FILES = 20_000
_MOST_BYTES = 64 << 20


def save_snapshot(look: Look, path: Path, installed: software.Software | None) -> None:
    """Write what was read as a snapshot.

    Args:
        installed: The releases of what is installed there, where they are known.

    Raises:
        UsageError: The file cannot be written.
    """
    contents = {name: _without_serial(data) for name, data in look.tree.seen.items()}
    if look.tree.links:
        contents[LINKS_FILE] = _json(look.tree.links)
    if look.tree.denied:
        contents[DENIED_FILE] = _json(sorted(look.tree.denied))
    if look.nvml_record:
        contents[RECORD_FILE] = _json(look.nvml_record)
    if installed is not None:
        contents[software.RECORD_FILE] = _json(installed.model_dump(mode="json"))
    try:
        files.write_bytes(path, pack(contents))
    except OSError as error:
        raise UsageError(f"the snapshot {path} cannot be written: {error.strerror}") from error


def pack(contents: Mapping[str, bytes]) -> bytes:
    """A .tar.gz of the given files: the same bytes for the same contents, whoever packs them and when."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in sorted(contents):
            member = tarfile.TarInfo(name)
            member.size = len(contents[name])
            archive.addfile(member, io.BytesIO(contents[name]))
    return buffer.getvalue()


@contextlib.contextmanager
def opened(root: Path) -> Iterator[Path]:
    """A root to probe: a folder as it is, a snapshot unpacked for as long as the block runs.

    Raises:
        UsageError: Neither the folder of a machine's files nor a snapshot.
    """
    if root.is_dir():
        if not any((root / name).is_dir() for name in _ROOT_FOLDERS):
            raise UsageError(f"the folder {root} holds no machine: none of {', '.join(_ROOT_FOLDERS)} is in it")
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="deploykit-board-") as folder:
        for name, data in unpacked(root).items():
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        yield Path(folder)


def unpacked(path: Path) -> dict[str, bytes]:
    """The files of a snapshot. Snapshots come from strangers: names that climb, links and bombs are refused.

    Raises:
        UsageError: No snapshot, or one that is not safe to unpack.
    """
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            return _members(archive, path)
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise UsageError(
            f"{path} is neither a folder nor a snapshot of `deploykit targets detect --save` ({error})"
        ) from error


def _members(archive: tarfile.TarFile, path: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    left = _MOST_BYTES
    for member in archive:
        if member.isdir():
            continue
        if not member.isreg() or not _is_safe(member.name):
            raise UsageError(f"snapshot {path}: {member.name!r} is no plain file below the root; not unpacked")
        left -= member.size
        if left < 0 or len(contents) >= _MOST_FILES:
            raise UsageError(f"snapshot {path} is larger than any machine's; not unpacked")
        stream = archive.extractfile(member)
        contents[str(PurePosixPath(member.name))] = stream.read() if stream else b""
    _refuse_files_as_folders(contents, path)
    return contents


def _refuse_files_as_folders(contents: dict[str, bytes], path: Path) -> None:
    for name in contents:
        if any(str(parent) in contents for parent in PurePosixPath(name).parents):
            raise UsageError(f"snapshot {path}: {name!r} lies below a file; not unpacked")


def _is_safe(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not name.startswith("/") and "\0" not in name


def _without_serial(data: bytes) -> bytes:
    """Without the board's serial number, which some kernels print in /proc/cpuinfo."""
    return re.sub(rb"(?m)^Serial\s*:.*\n?", b"", data)


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode("utf-8")
