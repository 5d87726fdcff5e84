"""The model cards that there are: deploykit's own, and those in a `models/` folder where the user stands."""

from __future__ import annotations

from pathlib import Path

from deploykit.base.data import data_folder
from deploykit.base.errors import UnknownNameError
from deploykit.sources.card import ModelCard, read_card

HINT = (
    "`deploykit models list` shows the cards; a model may also be torchvision:NAME, timm:NAME, "
    "path/to/file.py:factory, package.module:factory, a .onnx file or a .pt2 file"
)


def card_paths() -> dict[str, Path]:
    """Name → file. A card in `./models` takes the place of ours of the same name."""
    folders = [data_folder("models"), Path("models")]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def card_names() -> list[str]:
    """Every card's name, sorted."""
    return sorted(card_paths())


def find_card(name: str) -> ModelCard:
    """The card of a name.

    Raises:
        UnknownNameError: There is none; the near misses are named.
        UsageError: The card is not well formed.
    """
    paths = card_paths()
    if name not in paths:
        raise UnknownNameError("model", name, paths, HINT)
    return read_card(paths[name])


def all_cards() -> list[ModelCard]:
    """Every card, by name."""
    return [read_card(path) for _, path in sorted(card_paths().items())]
