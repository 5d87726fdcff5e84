"""Read the files of a machine under a root, and remember which: what was read is what a snapshot holds."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path

LINKS_FILE = "deploykit/links.json"
"""In a snapshot: where the links of the machine pointed."""

DENIED_FILE = "deploykit/denied.json"
"""In a snapshot: which files were there and could not be read."""

# sysfs and procfs files are a page or two; the largest one wanted is /proc/cpuinfo of a machine with 256 CPUs.
_LIMIT_BYTES = 1 << 20


class Tree:
    """A file tree that looks like a machine: `/`, or an unpacked snapshot.

    Attributes:
        seen: Path → bytes of every file read so far.
        links: Path → target of every link asked about.
        denied: Files that are there and may not be read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.denied: set[str] = set()

    def data(self, path: str) -> bytes | None:
        """A file's bytes; None where it is absent or may not be read.

        Args:
            path: Below the root, with or without a leading slash. One that climbs (`..`) is never read.
        """
        path = path.lstrip("/")
        if ".." in path.split("/") or "\0" in path:
            return None
        try:
            with (self.root / path).open("rb") as stream:
                data = stream.read(_LIMIT_BYTES)
        except PermissionError:
            self.denied.add(path)
            return None
        except (OSError, ValueError):
            # Some sysfs files exist and answer EIO or ENODEV while their part is off.
            if path in self._recorded_denied:
                self.denied.add(path)
            return None
        self.seen[path] = data
        return data

    def text(self, path: str) -> str | None:
        """A file's text without surrounding blanks and NULs."""
        data = self.data(path)
        return None if data is None else data.decode("utf-8", errors="replace").strip("\0 \t\r\n")

    def number(self, path: str) -> int | None:
        """The whole number that a file holds, decimal or 0x hexadecimal."""
        return whole_number(self.text(path))

    def paths(self, pattern: str) -> list[str]:
        """Paths below the root that fit a glob pattern, in natural order (`cpu2` before `cpu10`)."""
        found = [str(path.relative_to(self.root)) for path in self.root.glob(pattern.lstrip("/"))]
        return sorted(found, key=natural_key)

    def link(self, path: str) -> str | None:
        """Where a link points; None where it is none."""
        path = path.lstrip("/")
        recorded = self._recorded_links.get(path)
        target = recorded if recorded is not None else self._read_link(path)
        if target is not None:
            self.links[path] = target
        return target

    def _read_link(self, path: str) -> str | None:
        try:
            return str((self.root / path).readlink())
        except OSError:
            return None

    @cached_property
    def _recorded_links(self) -> dict[str, str]:
        links = _json_of(self.root / LINKS_FILE)
        if not isinstance(links, dict):
            return {}
        return {path: target for path, target in links.items() if isinstance(target, str)}

    @cached_property
    def _recorded_denied(self) -> set[str]:
        paths = _json_of(self.root / DENIED_FILE)
        return {path for path in paths if isinstance(path, str)} if isinstance(paths, list) else set()


def _json_of(path: Path) -> object:
    """What a JSON file holds; None where it is absent or none."""
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found


def whole_number(text: str | None) -> int | None:
    """The whole number that a text is, and nothing else beside it; None where it is none."""
    # int() also takes `1_000`, blanks and digits of every script, which no kernel file holds.
    if text is None or not re.fullmatch(r"-?(?:[0-9]{1,20}|0x[0-9a-fA-F]{1,16})", text.strip()):
        return None
    plain = text.strip()
    return int(plain, 16 if "0x" in plain else 10)


def natural_key(name: str) -> list[tuple[int, str]]:
    """Sort key that counts: `hwmon2` before `hwmon10`."""
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in re.split(r"([0-9]+)", name)
    ]
