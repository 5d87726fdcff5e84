"""Which layer features a model name means: our cards, names of published tables, and an artifact's own graph."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from deploykit.base.errors import UnknownNameError
from deploykit.base.vocab import Precision
from deploykit.predict.kernels import ModelFeatures, read_features

DATA = Path(__file__).resolve().parent / "data"
_FEATURES = DATA / "features"
_NAMES = DATA / "names.csv"
_SAME_WORK = 0.1


@dataclass(frozen=True, eq=False)
class Network:
    """A model that the predictor knows by name. Compared by identity, as its features are.

    Attributes:
        name: As asked for.
        network: Which network that is: `bert-large-99` and `bert-large-99.9` are one at two precisions.
        family: Networks of one architecture at other sizes; they share part of their residual.
        precision: What its published runs use where they do not say; None: nobody's default.
        features: Its layers.
    """

    name: str
    network: str
    family: str
    precision: Precision | None
    features: ModelFeatures


@dataclass(frozen=True)
class _Row:
    network: str
    features: str
    family: str
    precision: str


@lru_cache(maxsize=1)
def _table() -> dict[str, _Row]:
    with _NAMES.open(encoding="utf-8", newline="") as stream:
        return {
            row["name"]: _Row(row["network"], row["features"], row["family"], row["precision"])
            for row in csv.DictReader(stream)
        }


@lru_cache(maxsize=1)
def _files() -> dict[str, Path]:
    return {path.stem: path for path in _FEATURES.glob("*.json")}


def known_names() -> list[str]:
    """Every model name that has layer features."""
    return sorted({*_files(), *_table()})


@lru_cache(maxsize=512)
def _features(name: str) -> ModelFeatures:
    return replace(read_features(_files()[name]), model=name)


@lru_cache(maxsize=512)
def network_named(name: str) -> Network:
    """The network of a name.

    Raises:
        UnknownNameError: No layer features under this name; carries the near misses.
    """
    row = _table().get(name)
    if row is None and name not in _files():
        raise UnknownNameError(
            "model", name, known_names(), "an artifact folder or an .onnx file can be predicted without being listed"
        )
    row = row or _Row(name, name, name, "")
    precision = Precision(row.precision) if row.precision else None
    return Network(name, row.network, row.family or row.network, precision, _features(row.features))


def network_of(features: ModelFeatures) -> Network:
    """A model that its graph describes: a network that is listed, if it has that name and does that work, else its own.

    A user's `resnet50` with another head or input size must not pass for the one that others have measured.
    """
    name = features.model
    if name not in known_names():
        return Network(name, name, name, None, features)
    listed = network_named(name)
    if _alike(features, listed.features):
        return Network(name, listed.network, listed.family, listed.precision, features)
    own = f"{name} (own graph)"
    return Network(own, own, listed.family, None, features)


def _alike(a: ModelFeatures, b: ModelFeatures) -> bool:
    """Whether operations and weights agree within a tenth."""
    pairs = ((a.flops, b.flops), (a.parameters or a.weights, b.parameters or b.weights))
    return all(abs(x - y) <= _SAME_WORK * max(x, y) for x, y in pairs)
