"""What a model source is asked, and what it must answer: the guide for a plug-in.

A plug-in names a function `load(request: Request) -> LoadedModel` under the entry point group `deploykit.sources`. The
entry point's name is the scheme: a source `acme` answers `deploykit export acme:NAME` and cards with `kind: acme`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from deploykit.base.loaded import LoadedModel
from deploykit.base.tensors import TensorSpec
from deploykit.sources.card import ModelCard

DEFAULT_WEIGHTS = "default"
NO_WEIGHTS = "none"


@dataclass(frozen=True)
class Request:
    """One model wanted.

    Attributes:
        reference: As the user typed it.
        target: What follows the scheme: `resnet50` of `torchvision:resnet50`; the whole of it for a file.
        weights: `default`, `none` or the path of a weights file.
        inputs: What `--input` gave; empty where it gave nothing.
        options: Arguments for the source's factory.
        card: The card that led here, if one did.
    """

    reference: str
    target: str
    weights: str = DEFAULT_WEIGHTS
    inputs: tuple[TensorSpec, ...] = ()
    options: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    card: ModelCard | None = None

    @property
    def weights_file(self) -> str | None:
        """The path in `--weights FILE`."""
        return None if self.weights in (DEFAULT_WEIGHTS, NO_WEIGHTS) else self.weights


class ModelSource(Protocol):
    """Turns a request into a model."""

    def __call__(self, request: Request) -> LoadedModel:
        """Build or read the model.

        Raises:
            UnknownNameError: The source has no model of that name.
            UsageError: Weights or inputs do not fit; the message says what to give.
            MissingExtraError: The source's package is not installed.
        """
        ...
