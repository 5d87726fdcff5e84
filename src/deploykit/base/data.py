"""Where the data folders are: at the top of a checkout, or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def data_folder(name: str) -> Path:
    """The folder `targets`, `models` or `published` that came with this deploykit.

    Raises:
        FileNotFoundError: The install is broken: neither place has the folder.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parents[1] / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"deploykit's data folder {name!r} is missing from {_PACKAGE}: reinstall deploykit")
