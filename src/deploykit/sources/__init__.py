"""Model references → models: cards, torchvision, timm, python files and modules, ONNX files, exported programs."""

from deploykit.sources.catalog import all_cards, card_names, find_card
from deploykit.sources.resolve import resolve

__all__ = ["all_cards", "card_names", "find_card", "resolve"]
