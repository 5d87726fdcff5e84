"""How the tests of this room run graphs."""

from __future__ import annotations

import pytest

from deploykit.runtime.ort import OnnxRuntime


@pytest.fixture(scope="session")
def open_session():
    return lambda path: OnnxRuntime().open(path, threads=1)
