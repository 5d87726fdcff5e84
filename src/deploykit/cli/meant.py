"""Which model a command means: an artifact, an ONNX file, a model to be exported first, or the one made last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from deploykit.base.vocab import DEFAULT_MODEL, Precision

if TYPE_CHECKING:
    from deploykit.base.progress import Progress


def file_meant(
    model: str | None,
    precision: Precision | None,
    weights: str,
    target: str,
    progress: Progress,
    *,
    before_export: Callable[[], None],
) -> Path:
    """The artifact folder or ONNX file that is meant; a model reference is exported, or found exported.

    Args:
        model: As the user typed it; None: the artifact made last, else the default model, and a warning says which.
        precision: Of an export; a file has one already.
        weights: Of an export.
        target: Of an export.
        progress: Is told of the export's steps.
        before_export: May refuse: an export takes its time.

    Raises:
        UsageError: A precision for what is a file already, or whatever the export refuses.
    """
    from deploykit import pipeline
    from deploykit.base.artifact_cache import newest_artifact
    from deploykit.base.errors import UsageError
    from deploykit.base.home import artifacts_folder
    from deploykit.bench.subject import is_path
    from deploykit.cli.output import warn

    if model is None and precision is None and (newest := newest_artifact(artifacts_folder())) is not None:
        name = f"{newest.manifest.model.name} {newest.manifest.precision}"
        warn(f"no MODEL given: taking the artifact exported last, {name} ({newest.path})")
        return newest.path
    if model is not None and is_path(model):
        if precision is not None:
            raise UsageError(f"--precision says how to export a model, and {model} is one already: leave it out")
        return Path(model)
    before_export()
    if model is None:
        warn(f"no MODEL given and no artifact here: taking {DEFAULT_MODEL}")
    settings = pipeline.ExportSettings(precision=precision or Precision.FP32, target=target, weights=weights)
    return pipeline.export(model or DEFAULT_MODEL, settings, progress=progress).artifact.path
