"""Joins the steps in order; the only module that knows them all."""

from __future__ import annotations

import datetime as dt
import json
import resource
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from pydantic import ValidationError

from deploykit.accuracy import compare as accuracy
from deploykit.accuracy import floor, layers
from deploykit.base import files, home
from deploykit.base.artifact import (
    CALIBRATION_FILE,
    AccuracyReport,
    Artifact,
    BatchRange,
    CalibrationInfo,
    Manifest,
    Preprocessing,
    read_artifact,
)
from deploykit.base.artifact_cache import find_or_make
from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.base.loaded import LoadedModel
from deploykit.base.progress import SILENT, Progress
from deploykit.base.protocols import Session
from deploykit.base.tensors import TensorSpec
from deploykit.base.vocab import CalibrationMethod, Dialect, Precision
from deploykit.engine.cache import Engine, EngineDevice
from deploykit.engine.options import BuildOptions
from deploykit.precision.builtin_photos import ADVICE as BUILTIN_ADVICE
from deploykit.precision.builtin_photos import NAME as BUILTIN_PHOTOS
from deploykit.precision.calibration import Calibration
from deploykit.precision.recipe import RECIPE_VERSION, Int8Recipe
from deploykit.precision.samples import Samples
from deploykit.probe.check import Check
from deploykit.targets.spec import TargetSpec
from deploykit.targets.state import DeviceState

EXPORTED = (Precision.FP32, Precision.FP16, Precision.INT8)


@dataclass(frozen=True)
class ExportSettings:
    """What `export` was asked for; the fields are the options of `deploykit export`."""

    precision: Precision = Precision.FP32
    target: str = "host"
    weights: str = "default"
    inputs: tuple[TensorSpec, ...] = ()
    batch: BatchRange | None = None
    opset: int | None = None
    preprocessing: str | None = None
    calibration_data: str | None = None
    calibration_method: CalibrationMethod = CalibrationMethod.ENTROPY
    calibration_samples: int = 128
    eval_samples: int = 64
    accuracy_floors: tuple[str, ...] = ()
    exclude_ops: tuple[str, ...] = ()
    exclude_nodes: tuple[str, ...] = ()
    keep_io_types: bool = True
    high_precision_dtype: str | None = None
    strict: bool = False
    seed: int = 0
    output_dir: Path | None = None


@dataclass(frozen=True)
class Exported:
    """What an export gave.

    Attributes:
        artifact: The artifact; under `output_dir` where one was given.
        reused: It was there already.
        fp32: The artifact that it is judged against; itself for fp32.
        floors: What the accuracy report was asked to reach.
    """

    artifact: Artifact
    reused: bool
    fp32: Artifact
    floors: tuple[floor.Floor, ...] = ()

    def require_floors(self) -> None:
        """Hold the report against the floors.

        Raises:
            AccuracyBelowFloor: One is missed.
        """
        report = self.artifact.manifest.accuracy
        if report is not None:
            floor.check_floors(report, self.floors)


@dataclass(frozen=True)
class _Data:
    """Inputs to calibrate on and others to judge by.

    Attributes:
        name: As the user named it.
        calibration: Seen by calibration.
        held_out: Kept from it.
        unclaimed: Why no accuracy may be stated; None where it may.
    """

    name: str
    calibration: Samples
    held_out: Samples
    unclaimed: str | None


def export(model: str, settings: ExportSettings | None = None, *, progress: Progress = SILENT) -> Exported:
    """Export a model to an artifact of one precision.

    Args:
        model: Model reference.
        settings: Default: fp32.
        progress: Is told of the steps.

    Raises:
        UsageError: The model, the data or the settings are not what they must be.
    """
    from deploykit.export import export_fp32
    from deploykit.sources import resolve

    settings = settings or ExportSettings()
    if settings.precision not in EXPORTED:
        raise UsageError(f"--precision {settings.precision}: export writes {', '.join(EXPORTED)}")
    floors = floor.parse_floors(settings.accuracy_floors)
    spec = _target(settings.target)
    progress.step("Loading the model")
    loaded = resolve(model, weights=settings.weights, inputs=settings.inputs)
    if settings.preprocessing is not None:
        loaded = _with_preprocessing(loaded, settings.preprocessing)
    data = _data(loaded, settings, None)
    _require_judgeable(loaded, data, settings, floors)
    fp32, reused = export_fp32(
        loaded,
        root=home.artifacts_folder(),
        open_session=open_session,
        batch=settings.batch,
        opset=settings.opset,
        samples=data.held_out if data else None,
        progress=progress,
    )
    # How many classes there are, and so what a folder of classes means, is known only now.
    data = _data(loaded, settings, accuracy.class_count(fp32.manifest.outputs))
    made, reused = _in_precision(fp32, reused, spec, data, settings, progress)
    return Exported(_published(made, settings.output_dir), reused, fp32, floors)


@dataclass(frozen=True)
class BuildSettings:
    """What `build` was asked for; the fields are the options of `deploykit build`.

    Attributes:
        runtime: `tensorrt-rtx` or `tensorrt`; None: what the target's kind of card is served by.
        min_shapes, opt_shapes, max_shapes: `NAME:1x3x224x224`; inputs that are not named take the artifact's batch.
    """

    target: str
    runtime: str | None = None
    options: BuildOptions = field(default_factory=BuildOptions)
    min_shapes: tuple[str, ...] = ()
    opt_shapes: tuple[str, ...] = ()
    max_shapes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """What a build gave.

    Attributes:
        engine: The engine in the cache.
        reused: It was there already.
    """

    engine: Engine
    reused: bool


@dataclass(frozen=True)
class BuildPlace:
    """For what and with what an engine is built.

    Attributes:
        runtime: `tensorrt-rtx` or `tensorrt`.
        here: The device in this machine, where that is the target.
    """

    spec: TargetSpec
    runtime: str
    here: EngineDevice | None


def build_place(settings: BuildSettings) -> BuildPlace:
    """Where a build happens, or why it cannot: everything that can be told before there is an artifact.

    Raises:
        UsageError: Target, runtime and options do not fit together.
        DeviceAbsent: The runtime builds on the target only, and that is not this machine.
        DeviceMismatch: It is, in another state than the target names.
    """
    from deploykit.engine.build import RUNTIMES, TENSORRT, default_runtime, require_buildable
    from deploykit.probe.check import check
    from deploykit.probe.device import device_state
    from deploykit.targets.catalog import load_catalog
    from deploykit.targets.identity import resolve_here

    state, catalog = device_state(), load_catalog()
    spec, _ = resolve_here(settings.target, catalog, state)
    runtime = settings.runtime or default_runtime(spec)
    if runtime not in RUNTIMES:
        raise UnknownNameError("engine runtime", runtime, RUNTIMES, f"engines are built with {', '.join(RUNTIMES)}")
    here = _device_here(check(state, spec, catalog), state, needed=runtime == TENSORRT)
    require_buildable(spec, settings.options, runtime, cross=here is None)
    return BuildPlace(spec, runtime, here)


def build(artifact: Artifact, settings: BuildSettings, *, progress: Progress = SILENT) -> Built:
    """Build a TensorRT engine from an artifact.

    Args:
        artifact: What to build; int8 in the `tensorrt` dialect.
        settings: For what, and how.
        progress: Is told of the steps.

    Raises:
        UsageError: Artifact, target and runtime do not fit together, or TensorRT's parser refuses the graph.
        MissingExtraError: The runtime is not installed.
        DeviceAbsent, DeviceMismatch: As `build_place`.
    """
    from deploykit.engine.build import engine_from_artifact
    from deploykit.engine.options import shape_ranges

    place = build_place(settings)
    given = {"min": settings.min_shapes, "opt": settings.opt_shapes, "max": settings.max_shapes}
    shapes = shape_ranges(artifact.manifest.inputs, artifact.manifest.batch, given)
    progress.step(f"Building for {place.spec.ref}")
    made = engine_from_artifact(
        artifact, place.spec, shapes, settings.options,
        runtime=place.runtime, root=home.engines_folder(), here=place.here,
    )  # fmt: skip
    return Built(*made)


def _device_here(found: Check, state: DeviceState, *, needed: bool) -> EngineDevice | None:
    """The target where this machine is it; None where it is elsewhere.

    Raises:
        DeviceMismatch: It is here in another state, and the build times its kernels on it (`needed`).
    """
    capability = found.spec.device.silicon.compute_capability
    if capability is None or found.absent:
        return None
    if needed:
        found.refuse_if_wrong()
    gpu, part = (found.chosen.gpu, found.chosen.slice) if found.chosen else (None, None)
    board = state.jetson
    return EngineDevice(
        target=found.spec.ref,
        compute_capability=capability,
        name=gpu.name if gpu else board.model if board else None,
        sm_count=part.sm_count if part else found.spec.sm_count,
        power_mode=found.spec.mode_name,
        mig_profile=part.profile if part else None,
    )


def open_session(model: Path, threads: int | None = None) -> Session:
    """Load an ONNX file on this machine's CPU, for checks; its `infer` may be called from several threads."""
    from deploykit.runtime import runtime

    return runtime("onnxruntime").open(model, threads=threads)


def _target(text: str) -> TargetSpec:
    from deploykit.targets.catalog import resolve

    return resolve(text)


def _with_preprocessing(loaded: LoadedModel, text: str) -> LoadedModel:
    """A model that nobody described takes pictures as a card's model does, or as a file says.

    Raises:
        UsageError: Neither a card with a preprocessing nor a YAML file that holds one, or no input it could feed.
    """
    inputs = [spec.name for spec in loaded.inputs]
    if len(inputs) != 1:
        raise UsageError(
            f"--preprocessing feeds pictures to one input, the model has {', '.join(inputs) or 'none known'}"
        )
    found = _read_preprocessing(Path(text)) if text.endswith((".yaml", ".yml")) else _card_preprocessing(text)
    found = found.model_copy(update={"input": inputs[0]})
    return replace(loaded, preprocessing=found, default_calibration=loaded.default_calibration or BUILTIN_PHOTOS)


def _card_preprocessing(name: str) -> Preprocessing:
    from deploykit.sources import find_card

    found = find_card(name).preprocessing
    if found is None:
        raise UsageError(f"--preprocessing {name}: that card's model takes no pictures")
    return found


def _read_preprocessing(path: Path) -> Preprocessing:
    try:
        return Preprocessing.model_validate({"input": "", **(yaml.safe_load(path.read_text(encoding="utf-8")) or {})})
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"--preprocessing {path} holds no preprocessing: {reason}") from error


def dialect_for(spec: TargetSpec) -> Dialect:
    """How INT8 is written for a target: its runtime decides."""
    return Dialect.TENSORRT if spec.device.silicon.compute_capability else Dialect.ORT_CPU


def _data(loaded: LoadedModel, settings: ExportSettings, classes: int | None) -> _Data | None:
    """The data that the user named, else what the model's card names; none for a model that nobody has data for."""
    from deploykit.precision.calib_data import open_samples, split

    name = settings.calibration_data or loaded.default_calibration
    if name is None or not loaded.inputs:
        return None
    source = open_samples(
        name,
        inputs=loaded.inputs,
        preprocessing=loaded.preprocessing,
        seed=settings.seed,
        classes=classes,
        strict=settings.strict,
    )
    calibration, held_out = split(source, settings.calibration_samples, settings.eval_samples)
    return _Data(name, calibration, held_out, accuracy.why_not_claimed(loaded.info, name))


def _require_judgeable(
    loaded: LoadedModel, data: _Data | None, settings: ExportSettings, floors: tuple[floor.Floor, ...]
) -> None:
    """Refuse what cannot be done before hours of work, not after."""
    if settings.precision is Precision.INT8 and data is None:
        raise UsageError(
            f"int8 needs inputs to calibrate {loaded.info.name} on, and nobody but you has them: give "
            "--calibration-data DIR, FILE.npz or module:function (or random, for speed only)"
        )
    if settings.precision is Precision.FP32:
        floor.refuse_floors(floors, "fp32 is what the others are judged against")
    unclaimed = data.unclaimed if data else accuracy.why_not_claimed(loaded.info, None)
    if unclaimed is not None:
        floor.refuse_floors(floors, unclaimed)


def _in_precision(
    fp32: Artifact,
    reused: bool,
    spec: TargetSpec,
    data: _Data | None,
    settings: ExportSettings,
    progress: Progress,
) -> tuple[Artifact, bool]:
    if settings.precision is Precision.FP32:
        return fp32, reused
    if settings.precision is Precision.FP16:
        return _fp16(fp32, data, settings, progress)
    assert data is not None, "int8 without data was refused before"
    return _int8(fp32, dialect_for(spec), data, settings, progress)


def _fp16(fp32: Artifact, data: _Data | None, settings: ExportSettings, progress: Progress) -> tuple[Artifact, bool]:
    from deploykit.precision.calib_data import data_digest
    from deploykit.precision.cast import Fp16Recipe, cast_fp16
    from deploykit.precision.half_eval import write_rounding_model

    count = len(data.calibration) if data else 0
    recipe = Fp16Recipe(
        keep_io_types=settings.keep_io_types,
        data=data.name if data else None,
        data_digest=data_digest(data.calibration, count) if data else None,
        samples=count,
    )

    def make(folder: Path) -> Manifest:
        ranges = _ranges(fp32, data, count, progress) if data else None
        progress.step("Casting to fp16")
        manifest = cast_fp16(fp32, folder, recipe, ranges=ranges, created=_now())
        report = _judged(fp32, folder / fp32.onnx_path.name, data, progress, rounding=write_rounding_model)
        return manifest.model_copy(update={"accuracy": report})

    key = files.sha256_json([recipe.key(fp32), _judging_key(data, settings)])
    return find_or_make(home.artifacts_folder(), fp32.manifest.model.name, "fp16", key, _keyed(key, make))


def _int8(
    fp32: Artifact, dialect: Dialect, data: _Data, settings: ExportSettings, progress: Progress
) -> tuple[Artifact, bool]:
    from deploykit.precision.calib_data import data_digest
    from deploykit.precision.cast import cast_rest
    from deploykit.precision.half_eval import write_rounding_model
    from deploykit.precision.int8 import quantize
    from deploykit.precision.isa import host_isa

    progress.step("Reading the calibration data")
    recipe = Int8Recipe(
        dialect=dialect,
        data=data.name,
        data_digest=data_digest(data.calibration, settings.calibration_samples),
        samples=settings.calibration_samples,
        method=settings.calibration_method,
        isa=host_isa() if dialect is Dialect.ORT_CPU else None,
        high_precision_dtype=_high_precision(settings, dialect, fp32.manifest.opset),
        exclude_ops=settings.exclude_ops,
        exclude_nodes=settings.exclude_nodes,
    )

    def make(folder: Path) -> Manifest:
        calibration, info = _calibrated(fp32, data, recipe, progress)
        progress.step("Writing INT8")
        manifest = quantize(fp32, folder, calibration, recipe, info=info, created=_now())
        rounding = None
        if recipe.high_precision_dtype == Precision.FP16:
            ranges = _ranges(fp32, data, len(data.calibration), progress)
            progress.step("Casting the rest to fp16")
            manifest, rounding = cast_rest(manifest, folder, ranges), write_rounding_model
        report = _judged(fp32, folder / fp32.onnx_path.name, data, progress, rounding=rounding)
        added = (BUILTIN_ADVICE,) if data.name == BUILTIN_PHOTOS else ()
        return manifest.model_copy(update={"accuracy": report, "warnings": (*manifest.warnings, *added)})

    key = files.sha256_json([recipe.key(fp32), _judging_key(data, settings)])
    name = fp32.manifest.model.name
    return find_or_make(home.artifacts_folder(), name, f"int8-{dialect}", key, _keyed(key, make))


def _high_precision(settings: ExportSettings, dialect: Dialect, opset: int) -> str:
    """What the part of an INT8 model that is not INT8 computes in.

    TensorRT runs exactly the types that the graph says, so that float32 beside INT8 is often what makes it slower than
    FP16; onnxruntime's CPU provider has no FP16 arithmetic.
    """
    from deploykit.precision.cast import OLDEST_OPSET

    asked = settings.high_precision_dtype
    if asked not in (None, "fp32", "fp16"):
        raise UsageError(f"--high-precision-dtype {asked!r} is neither fp16 nor fp32")
    if dialect is Dialect.ORT_CPU:
        if asked == "fp16":
            raise UsageError(
                "--high-precision-dtype fp16 is for NVIDIA targets: onnxruntime's CPU provider has no fp16"
            )
        return "fp32"
    return asked or ("fp16" if opset >= OLDEST_OPSET else "fp32")


def _ranges(fp32: Artifact, data: _Data, count: int, progress: Progress) -> dict[str, tuple[float, float]]:
    """Lowest and highest value of every float tensor; gathered once for fp16 and for what int8 leaves in fp16."""
    from deploykit.precision.calib_data import data_digest
    from deploykit.precision.ranges import RANGES_VERSION, collect_ranges

    key = files.sha256_json([RANGES_VERSION, fp32.digest, data_digest(data.calibration, count), count])
    path = home.artifacts_folder() / ".ranges" / f"{key[:16]}.json"
    if not path.is_file():
        progress.step("Gathering ranges")
        found = collect_ranges(fp32.onnx_path, data.calibration, count, open_session)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {name: list(ends) for name, ends in found.items()})
    return {name: (low, high) for name, (low, high) in json.loads(path.read_text(encoding="utf-8")).items()}


def _calibrated(
    fp32: Artifact, data: _Data, recipe: Int8Recipe, progress: Progress
) -> tuple[Calibration, CalibrationInfo]:
    """The ranges of a model; gathered once for both dialects and whatever is left out of quantization."""
    from deploykit.precision.calibrate import calibrate
    from deploykit.precision.calibration import read_calibration, write_calibration

    wanted = [fp32.digest, recipe.data_digest, recipe.samples, recipe.method, recipe.percentile]
    folder = home.artifacts_folder() / ".calibrations" / files.sha256_json([RECIPE_VERSION, *wanted])[:16]
    if not folder.exists():
        started = time.perf_counter()
        calibration = calibrate(
            fp32,
            data.calibration,
            method=recipe.method,
            samples=recipe.samples,
            data_digest=recipe.data_digest,
            open_session=open_session,
            percentile=recipe.percentile,
            progress=progress,
        )
        info = _calibration_info(calibration, data, time.perf_counter() - started)
        with files.new_folder(folder) as temporary:
            write_calibration(temporary / CALIBRATION_FILE, calibration)
            files.write_json(temporary / "info.json", info.model_dump(mode="json"))
    info = CalibrationInfo.model_validate_json((folder / "info.json").read_text(encoding="utf-8"))
    return read_calibration(folder / CALIBRATION_FILE), info


def _calibration_info(calibration: Calibration, data: _Data, seconds: float) -> CalibrationInfo:
    # Linux counts ru_maxrss in KiB.
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return CalibrationInfo(
        method=calibration.method,
        data=data.name,
        data_digest=calibration.data_digest,
        asked=calibration.asked,
        samples=calibration.samples,
        skipped=data.calibration.skipped,
        seconds=round(seconds, 2),
        peak_rss_mb=round(peak_bytes / 1e6, 1),
    )


def _keyed(key: str, make: Callable[[Path], Manifest]) -> Callable[[Path], Manifest]:
    """The manifest carries the key that the artifact is looked up by, accuracy report and all."""
    return lambda folder: make(folder).model_copy(update={"key": key})


def _judging_key(data: _Data | None, settings: ExportSettings) -> list[object]:
    """The report is part of the artifact: other held-out inputs make another one."""
    return [data.name if data else None, settings.eval_samples, settings.seed, data.unclaimed if data else None]


def _judged(
    fp32: Artifact,
    candidate: Path,
    data: _Data | None,
    progress: Progress,
    *,
    rounding: Callable[[Path, Path], None] | None = None,
) -> AccuracyReport | None:
    """The candidate against fp32 on held-out inputs; None where no accuracy may be stated.

    Args:
        rounding: Writes the form of the candidate that is judged in its place.
    """
    if data is None or data.unclaimed is not None:
        return None
    judged = candidate
    if rounding is not None:
        judged = candidate.with_name("rounding.onnx")
        rounding(candidate, judged)
    try:
        worst = layers.worst_layers(fp32.onnx_path, judged, data.held_out, open_session)
        with open_session(fp32.onnx_path) as reference, open_session(judged) as session:
            return accuracy.compare(
                reference,
                session,
                data.held_out,
                task=_task(fp32, data),
                data=data.held_out.description,
                worst_layers=worst,
                progress=progress,
            )
    finally:
        if judged != candidate:
            for left in candidate.parent.glob("rounding.onnx*"):
                left.unlink()


def _task(fp32: Artifact, data: _Data) -> str | None:
    """What the card says; a model without one is a classifier if its data has a folder for each of its classes."""
    if fp32.manifest.model.task is None and data.held_out.label_of is not None:
        return accuracy.CLASSIFICATION
    return fp32.manifest.model.task


def _published(artifact: Artifact, output_dir: Path | None) -> Artifact:
    """The artifact, also under `<output_dir>/<model>-<precision>[-<dialect>]` where that was asked for.

    Raises:
        UsageError: Something else stands there.
    """
    if output_dir is None:
        return artifact
    manifest = artifact.manifest
    dialect = f"-{manifest.dialect}" if manifest.dialect else ""
    final = output_dir / f"{manifest.model.name}-{manifest.precision}{dialect}"
    if final.exists() and not (final / "manifest.json").is_file():
        raise UsageError(f"{final} exists and is no artifact: move it away or give another --output-dir")
    with files.new_folder(final) as folder:
        shutil.copytree(artifact.path, folder, dirs_exist_ok=True)
    return read_artifact(final)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc).replace(microsecond=0)
