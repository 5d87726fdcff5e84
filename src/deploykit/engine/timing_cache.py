"""TensorRT's timing cache on disk: what each tactic took on one device, so that the next build need not time it again.

One file a device and release. Two builds at once both keep what they learned: the file is read again under a lock and
merged with what a build brings, since TensorRT's own cache holds only its own build's view.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploykit.base import files


def timing_file(folder: Path, runtime: str, version: str, device: str) -> Path:
    """Where the cache of one device and release lives.

    Args:
        folder: Of all timing caches.
        runtime: `tensorrt`.
        version: Of the module: tactics of another release are others.
        device: What tells one device from another: name, SM count, power mode, slice.
    """
    slug = re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{runtime}-{version}-{device}")
    return folder / f"{slug}.timing"


class TimingCache:
    """The cache in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def attach(self, config: Any) -> None:
        """Give a builder config what is known, or an empty cache to fill."""
        config.set_timing_cache(config.create_timing_cache(self._read()), ignore_mismatch=False)

    def merge(self, config: Any) -> None:
        """Write what is on disk together with what the build learned, whole or not at all."""
        learned = config.get_timing_cache()
        if learned is None:
            return
        with self._locked():
            known = self._read()
            if known:
                learned.combine(config.create_timing_cache(known), ignore_mismatch=False)
            files.write_bytes(self.path, bytes(learned.serialize()))

    def _read(self) -> bytes:
        return self.path.read_bytes() if self.path.is_file() else b""

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield
