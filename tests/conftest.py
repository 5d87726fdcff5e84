"""Fixtures of every kind of test."""

import os
import tempfile
from collections.abc import Iterator

import pytest

MEMORY = "/dev/shm"


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary folders in memory: a recorded board is some hundred tiny files, and a disk takes long over those."""
    # pytest's own folder, which may hold models, is made on the disk before.
    tmp_path_factory.getbasetemp()
    before = tempfile.tempdir
    tempfile.tempdir = MEMORY if os.access(MEMORY, os.W_OK) else before
    yield
    tempfile.tempdir = before
