"""Where deploykit keeps what it makes: `.deploykit/` in the working folder, unless the environment says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "DEPLOYKIT_CACHE_DIR"
STORE_VARIABLE = "DEPLOYKIT_STORE"


def home() -> Path:
    """The working folder's `.deploykit`, or `DEPLOYKIT_CACHE_DIR`."""
    return Path(os.environ.get(CACHE_VARIABLE) or ".deploykit")


def artifacts_folder() -> Path:
    """Every artifact made here, one folder each, named by model, precision and key."""
    return home() / "artifacts"


def engines_folder() -> Path:
    """Every engine built here, one folder each, and the timing caches of the builders."""
    return home() / "engines"


def store_url() -> str:
    """SQLAlchemy URL of the result store: `DEPLOYKIT_STORE`, else an SQLite file in `home()`."""
    return os.environ.get(STORE_VARIABLE) or f"sqlite:///{home() / 'results.db'}"
