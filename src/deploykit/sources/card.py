"""A model card: `models/<name>.yaml`, what a model is and how it is fed, each figure with its source.

Version history of the card format:
    1  first
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import UsageError
from deploykit.base.tensors import DTYPES, TensorSpec

CARD_VERSION = 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class CardSource(_Strict):
    """Where the architecture's code comes from."""

    kind: str
    """A model source: torchvision, torchvision-detector, timm, efficientnet-lite, transformers, or a plug-in's."""
    model: str
    """The model's name there."""
    options: dict[str, int | float | str | bool] = {}
    """Arguments of the factory or the configuration."""


class CardWeights(_Strict):
    """What `--weights default` means."""

    name: str | None = None
    """Name of the weights at the source (`IMAGENET1K_V2`); null where the source publishes none for this model."""
    data: str | None = None
    """What they were trained on."""
    source: str
    """Where that is said: a page, or the package that carries them."""


class CardPreprocessing(Preprocessing):
    """How a photograph becomes the input, and who says so."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    source: str
    """Where size, crop, filter, mean and standard deviation are stated."""

    def settings(self) -> Preprocessing:
        """The part that decides what is computed."""
        return Preprocessing(**self.model_dump(exclude={"source"}))


class CardFigure(_Strict):
    """A published number."""

    value: float
    """The number."""
    source: str
    """Who published it."""


class CardInput(_Strict):
    """One input, in the order of `forward`'s arguments."""

    name: str
    """Its name in the graph."""
    dtype: str = "float32"
    """A NumPy type name."""
    shape: tuple[int | str, ...]
    """Batch first; a word for an open dimension: `[batch, 3, 224, 224]`."""

    @model_validator(mode="after")
    def _known_type(self) -> CardInput:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is none of {', '.join(DTYPES)}")
        return self

    def spec(self) -> TensorSpec:
        """As the exporter takes it."""
        return TensorSpec(name=self.name, dtype=self.dtype, shape=self.shape)


class ModelCard(_Strict):
    """`models/<name>.yaml`."""

    version: Literal[1]
    """Version of this format."""
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")
    """What `deploykit export NAME` takes; equal to the file's name."""
    description: str
    """One line for `deploykit models list`."""
    task: Literal["classification", "detection", "question-answering", "text-encoding"]
    """What the outputs mean."""
    source: CardSource
    weights: CardWeights
    license: str
    """Of the code and the default weights, as their source states it (SPDX where one fits)."""
    inputs: tuple[CardInput, ...] = Field(min_length=1)
    preprocessing: CardPreprocessing | None = None
    """Null where the model takes no photographs."""
    default_calibration: Literal["builtin:photos"] | None = None
    """What int8 calibrates on where the user names nothing; null where only the user can know."""
    published_name: str | None = None
    """The model's name in the published tables that deploykit carries."""
    parameters: int | None = None
    """Number of weights."""
    top1: CardFigure | None = None
    """Top-1 accuracy of the default weights in percent, as published."""

    @model_validator(mode="after")
    def _preprocessing_feeds_an_input(self) -> ModelCard:
        names = [spec.name for spec in self.inputs]
        if len(set(names)) != len(names):
            raise ValueError("two inputs have one name")
        if self.preprocessing is not None and self.preprocessing.input not in names:
            raise ValueError(f"preprocessing feeds {self.preprocessing.input!r}, which is no input")
        if self.default_calibration is not None and self.preprocessing is None:
            raise ValueError("photographs cannot calibrate a model without preprocessing")
        return self


def read_card(path: Path) -> ModelCard:
    """Read and check one card.

    Raises:
        UsageError: It is no YAML, or a field is wrong; the message names the field.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        card = ModelCard.model_validate(document)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"model card {path} is no YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, found['loc'])) or 'the card'}: {found['msg']}" for found in error.errors())
        raise UsageError(f"model card {path}: {'; '.join(wrong)}") from error
    if card.name != path.stem:
        raise UsageError(f"model card {path} is called {card.name!r} inside: name and file name must agree")
    return card


def card_schema() -> dict[str, Any]:
    """The JSON schema that editors check cards with."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **ModelCard.model_json_schema()}
