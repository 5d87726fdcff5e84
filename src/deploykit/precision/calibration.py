"""`calibration.json`: the ranges that both INT8 dialects are written from, and what they were gathered from.

Version history:
    1  first
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deploykit.base import files
from deploykit.base.artifact import Artifact, Preprocessing
from deploykit.base.errors import UsageError
from deploykit.base.vocab import CalibrationMethod
from deploykit.precision.calibrators import STEPS

CALIBRATION_VERSION = 1

Kind = Literal["signed", "never-negative", "constant", "dead"]
"""What was seen of a tensor: values of both signs, none below zero, one single value, nothing but zeros."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorRange(_Strict):
    """What calibration found of one activation.

    Attributes:
        low: Lowest value seen.
        high: Highest value seen.
        threshold: The magnitude that 127 steps reach; positive, also where nothing but zeros was seen.
        kind: See `Kind`.
        values: How many values stand behind it.
    """

    low: float
    high: float
    threshold: float = Field(gt=0, allow_inf_nan=False)
    kind: Kind
    values: int

    @property
    def scale(self) -> float:
        """One step of the grid."""
        return self.threshold / STEPS


class Calibration(_Strict):
    """`calibration.json`. The same request writes the same bytes.

    Attributes:
        model: Digest of the artifact that was calibrated.
        preprocessing: How pictures became inputs.
        data: As asked for: `builtin:photos`, a path, `module:function`.
        data_digest: SHA-256 over the samples as fed.
        method: How a histogram became a threshold.
        percentile: Of the percentile method; None for the others.
        asked: Samples asked for.
        samples: Samples used.
        tensors: Range of each activation; without those that held no value in any sample.
        channel_means: Activation that a layer reads → mean of each of its channels.
        input_sqnr_db: Layer → signal to rounding noise of its input as its weights see it (`fitness.input_sqnr_db`).
    """

    version: int = CALIBRATION_VERSION
    model: str
    preprocessing: Preprocessing | None
    data: str
    data_digest: str
    method: CalibrationMethod
    percentile: float | None
    asked: int
    samples: int
    tensors: dict[str, TensorRange]
    channel_means: dict[str, tuple[float, ...]]
    input_sqnr_db: dict[str, float]


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write it whole or not at all."""
    files.write_json(path, calibration.model_dump(mode="json"))


def read_calibration(path: Path) -> Calibration:
    """Read a `calibration.json`.

    Raises:
        UsageError: There is none, or it is damaged or of another version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"there is no calibration at {path}; give the calibration.json of an int8 artifact") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON ({error}); calibrate again") from error
    version = document.get("version") if isinstance(document, dict) else None
    if version != CALIBRATION_VERSION:
        raise UsageError(f"{path} has calibration version {version!r}, this deploykit reads {CALIBRATION_VERSION}")
    try:
        return Calibration.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: field {where!r}: {first['msg']}; calibrate again") from error


def require_fit(calibration: Calibration, parent: Artifact) -> None:
    """Refuse ranges that were gathered from another model or through another preprocessing.

    Raises:
        UsageError: Says which.
    """
    if calibration.model != parent.digest:
        raise UsageError(
            f"the calibration was made from the model {calibration.model[:12]}, {parent.path} is "
            f"{parent.digest[:12]}: ranges of one model are wrong for another; calibrate again"
        )
    if calibration.preprocessing != parent.manifest.preprocessing:
        raise UsageError(
            f"the calibration's pictures were prepared in another way than {parent.path} says; calibrate again"
        )
