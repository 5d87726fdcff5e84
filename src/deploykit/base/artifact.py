"""An artifact: a folder with `model.onnx` of one precision and the `manifest.json` that says what it is.

Steps meet here and nowhere else: export, cast and quantize each read an artifact and return a *new* one that names
its parents' digests. `calibration.json` beside an int8 model holds the ranges that both dialects are written from.

Version history of manifest.json:
    1  first
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deploykit.base import files
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.base.vocab import CalibrationMethod, Dialect, Precision

MANIFEST = "manifest.json"
MODEL_FILE = "model.onnx"
CALIBRATION_FILE = "calibration.json"
MANIFEST_VERSION = 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BatchRange(_Strict):
    """Batch sizes an artifact serves. `min == max` is a fixed batch."""

    min: int = Field(ge=1)
    opt: int = Field(ge=1)
    max: int = Field(ge=1)

    @property
    def fixed(self) -> bool:
        """Whether only one batch size runs."""
        return self.min == self.max

    def __str__(self) -> str:
        return str(self.min) if self.fixed else f"{self.min}:{self.opt}:{self.max}"


def parse_batch(text: str) -> BatchRange:
    """Read `1:8:32` (min:opt:max) or `4` (fixed).

    Raises:
        UsageError: Not one or three whole numbers ≥ 1 in rising order.
    """
    parts = text.split(":")
    if len(parts) not in (1, 3) or not all(p.isascii() and p.isdigit() for p in parts):
        raise UsageError(f"--batch {text!r} is not MIN:OPT:MAX (like 1:8:32) or one number (a fixed batch)")
    low, opt, high = (int(p) for p in (parts if len(parts) == 3 else parts * 3))
    if not 1 <= low <= opt <= high:
        raise UsageError(f"--batch {text!r}: min, opt and max must rise and start at 1 or more")
    return BatchRange(min=low, opt=opt, max=high)


class Preprocessing(_Strict):
    """How a photograph becomes an input tensor `float32 [N, C, H, W]` (or NHWC).

    The image is converted to `color`, resized so that its shorter side is `resize` pixels (or straight to `size`),
    centre-cropped to `size`, then `(pixel / 255 * scale_to - mean) / std` per channel. A uint8 input takes the cropped
    pixels as they are: its graph normalises them itself.

    Attributes:
        input: Name of the input it feeds.
        size: Height and width of the crop, pixels.
        resize: Shorter side before the crop, pixels; None: resize straight to `size`, keeping no aspect ratio.
        interpolation: Resampling filter, Pillow's name in lower case.
        mean: Per channel, in the order of `color`, on the 0..`scale_to` range.
        std: Per channel, on the same range.
        scale_to: What a pixel of 255 becomes before mean and std: 1.0 for torchvision, 255.0 for raw pixels.
        layout: Order of the axes.
        color: Order of the channels.
    """

    input: str
    size: tuple[int, int]
    resize: int | None = None
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    scale_to: float = 1.0
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["RGB", "BGR", "L"] = "RGB"


class ModelInfo(_Strict):
    """Where the model came from.

    Attributes:
        name: Short name for folders, tables and the store (`resnet50`).
        reference: What the user typed (`torchvision:resnet50`, `net.py:make`).
        source: Which model source resolved it (`torchvision`, `timm`, `python-file`, `onnx-file`, ...).
        task: `classification`, `detection`, ... or None where nobody said.
        weights: `default`, `none` (random) or a file name.
        weights_digest: SHA-256 over the state dict or the model file.
        random_weights: Speed is real, accuracy means nothing.
        license: Of the weights or the code, as its source states it.
        source_dtype: Floating type of the parameters before they went through float32.
    """

    name: str
    reference: str
    source: str
    task: str | None = None
    weights: str = "default"
    weights_digest: str | None = None
    random_weights: bool = False
    license: str | None = None
    source_dtype: str = "float32"


class CalibrationInfo(_Strict):
    """What an int8 artifact's ranges were gathered from, and what that took.

    Attributes:
        method: How a histogram became a range.
        data: As asked for: `builtin:photos`, `random`, a path, `module:function`.
        data_digest: SHA-256 over the samples as fed.
        asked: Samples asked for.
        samples: Samples used.
        skipped: File name → why it could not be used.
        seconds: Wall time of the whole calibration.
        peak_rss_mb: Peak resident memory of the process in MB (10^6) when it ended.
    """

    method: CalibrationMethod
    data: str
    data_digest: str
    asked: int
    samples: int
    skipped: dict[str, str] = {}
    seconds: float
    peak_rss_mb: float


class OutputAccuracy(_Strict):
    """How far one output is from fp32's on held-out inputs.

    Attributes:
        name: Output.
        cosine: Mean over samples of the cosine between the flattened outputs.
        sqnr_db: 10·log10(Σ fp32² / Σ (fp32 − this)²) over all samples; None where they are equal.
        max_abs_error: Largest absolute difference.
        worst_part_db: SQNR of the worst channel group, where parts of the output differ in scale.
        not_finite: Samples with NaN or Inf where fp32 has a number; such values count as 0 in the figures above.
        shape_differs: Samples whose output has another shape than fp32's, and is in none of the figures above.
    """

    name: str
    cosine: float | None
    sqnr_db: float | None
    max_abs_error: float
    worst_part_db: float | None = None
    not_finite: int = 0
    shape_differs: int = 0


class LayerAccuracy(_Strict):
    """SQNR of one inner tensor against fp32's, in dB."""

    name: str
    op_type: str
    sqnr_db: float


class AccuracyReport(_Strict):
    """An artifact against its fp32 ancestor on held-out inputs.

    Attributes:
        data: What the inputs were.
        samples: How many.
        cosine: Lowest mean cosine over the outputs.
        sqnr_db: Lowest SQNR over the outputs; None where all are equal.
        top1_agreement: Share of samples whose arg-max class is fp32's; None where the task has no classes.
        top1: True top-1 of this artifact, where labels are known.
        top1_fp32: True top-1 of fp32 on the same inputs.
        outputs: Each output.
        worst_layers: Inner tensors with the lowest SQNR, worst first.
    """

    data: str
    samples: int
    cosine: float | None
    sqnr_db: float | None
    top1_agreement: float | None = None
    top1: float | None = None
    top1_fp32: float | None = None
    outputs: tuple[OutputAccuracy, ...] = ()
    worst_layers: tuple[LayerAccuracy, ...] = ()


class ParityCheck(_Strict):
    """The ONNX graph against the torch module on one batch.

    Attributes:
        batch_size: Samples in the batch.
        inputs: `random` or what real data it was.
        output: Output name.
        max_abs_error: Largest absolute difference.
        cosine: Over the flattened output; None where both are all zero.
        tolerance: What `max_abs_error` was allowed to be.
    """

    batch_size: int
    inputs: str
    output: str
    max_abs_error: float
    cosine: float | None
    tolerance: float


class FileInfo(_Strict):
    """A file of the artifact."""

    sha256: str
    size_bytes: int


class Manifest(_Strict):
    """`manifest.json`. `files` leaves itself out.

    Attributes:
        key: What the content-addressed cache looked it up by: a digest over everything that could change the result.
        recipe: The settings of the step that made it, as that step writes them.
        parents: Digests of the artifacts it was made from, nearest first.
        kept_fp32: Node names left in fp32, with the reason.
        isa: Instruction set that the `ort-cpu` dialect was written for, where it matters.
    """

    version: int = MANIFEST_VERSION
    kind: Literal["artifact"] = "artifact"
    key: str
    model: ModelInfo
    precision: Precision
    dialect: Dialect | None = None
    isa: str | None = None
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch: BatchRange
    preprocessing: Preprocessing | None = None
    files: dict[str, FileInfo] = {}
    parents: tuple[str, ...] = ()
    recipe: dict[str, Any] = {}
    parity: tuple[ParityCheck, ...] = ()
    calibration: CalibrationInfo | None = None
    accuracy: AccuracyReport | None = None
    kept_fp32: dict[str, str] = {}
    warnings: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    created: dt.datetime

    @property
    def digest(self) -> str:
        """Identity of the artifact: what it computes, not when, where or with what care it was made."""
        identity = {
            "files": {name: info.sha256 for name, info in self.files.items()},
            "precision": self.precision,
            "dialect": self.dialect,
            "inputs": [spec.model_dump(mode="json") for spec in self.inputs],
            "preprocessing": self.preprocessing.model_dump(mode="json") if self.preprocessing else None,
        }
        return files.sha256_json(identity)


@dataclass(frozen=True)
class Artifact:
    """A folder that holds a model of one precision, and its manifest as read."""

    path: Path
    manifest: Manifest

    @property
    def onnx_path(self) -> Path:
        """The graph."""
        return self.path / MODEL_FILE

    @property
    def digest(self) -> str:
        """See `Manifest.digest`."""
        return self.manifest.digest


def file_infos(folder: Path) -> dict[str, FileInfo]:
    """Digest and size of every file in a folder but the manifest, by relative POSIX path."""
    return {
        path.relative_to(folder).as_posix(): FileInfo(sha256=files.sha256_file(path), size_bytes=path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def seal(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest of a filled folder, with the digests of what is in it. Returns it as written."""
    sealed = manifest.model_copy(update={"files": file_infos(folder)})
    files.write_json(folder / MANIFEST, sealed.model_dump(mode="json"))
    return sealed


def read_artifact(path: Path, *, check_digests: bool = False) -> Artifact:
    """Read an artifact folder (or its `model.onnx` or `manifest.json`).

    Args:
        path: The folder, or a file in it.
        check_digests: Also read every file and compare it with its digest.

    Raises:
        UsageError: It is no artifact, was written by a newer deploykit, or its files are not what it says.
    """
    folder = path.parent if path.name in (MANIFEST, MODEL_FILE) else path
    manifest_path = folder / MANIFEST
    if not manifest_path.is_file():
        raise UsageError(f"{path} is no artifact: it has no {MANIFEST}; make one with `deploykit export`")
    manifest = _read_manifest(manifest_path)
    for name, info in manifest.files.items():
        _check_file(folder, name, info, check_digests)
    return Artifact(folder, manifest)


def _read_manifest(path: Path) -> Manifest:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UsageError(f"{path} cannot be read as JSON ({error}); export the model again") from error
    version = document.get("version") if isinstance(document, dict) else None
    if version != MANIFEST_VERSION:
        raise UsageError(f"{path} has manifest version {version!r}, this deploykit reads {MANIFEST_VERSION}")
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: field {where!r}: {first['msg']}; export the model again") from error


def _check_file(folder: Path, name: str, info: FileInfo, check_digest: bool) -> None:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{folder / MANIFEST} names a file outside its folder: {name!r}")
    if not path.is_file():
        raise UsageError(f"artifact {folder} lacks its file {name!r}; export the model again")
    if path.stat().st_size != info.size_bytes or (check_digest and files.sha256_file(path) != info.sha256):
        raise UsageError(f"artifact {folder}: {name!r} is not the file that the manifest describes; export again")
