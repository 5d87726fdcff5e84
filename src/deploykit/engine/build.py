"""Artifact + target → engine, built once and kept."""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from deploykit.base.artifact import Artifact
from deploykit.base.errors import DeviceAbsent, MissingExtraError, UsageError
from deploykit.base.vocab import Precision
from deploykit.engine import cache
from deploykit.engine.builder import BuiltEngine, build_engine, supported_capabilities
from deploykit.engine.checks import check_quantization
from deploykit.engine.options import BuildOptions, ShapeRange
from deploykit.targets.spec import TargetSpec

_MODULES = {"tensorrt-rtx": "tensorrt_rtx", "tensorrt": "tensorrt"}
_EXTRAS = {"tensorrt-rtx": "rtx", "tensorrt": "tensorrt"}


def load_api(runtime: str) -> Any:
    """The module behind `tensorrt` or `tensorrt-rtx`.

    It is imported in a child process first: without a driver, some releases crash the process that imports them.

    Raises:
        MissingExtraError: It is not installed.
        DeviceAbsent: It is installed and does not import here.
    """
    module = _MODULES[runtime]
    probe = subprocess.run(
        [sys.executable, "-c", f"import {module}; {module}.Builder"], capture_output=True, text=True, check=False
    )
    if probe.returncode == 0:
        return importlib.import_module(module)
    last = (probe.stderr.strip().splitlines() or [f"exit code {probe.returncode}"])[-1]
    if f"No module named '{module}'" in last:
        raise MissingExtraError(module, _EXTRAS[runtime], f"building engines for {runtime}")
    raise DeviceAbsent(f"{runtime} is installed but does not import on this machine: {last}")


def engine_from_artifact(
    artifact: Artifact,
    spec: TargetSpec,
    shapes: tuple[ShapeRange, ...],
    options: BuildOptions,
    *,
    runtime: str,
    root: Path,
) -> tuple[cache.Engine, bool]:
    """Build an engine for a target, or find it built.

    Args:
        artifact: Precision is in its graph; int8 in the `tensorrt` dialect.
        spec: The target. TensorRT-RTX builds for it from any machine; TensorRT only on the device itself.
        shapes: Optimization profile.
        options: Builder settings.
        runtime: `tensorrt-rtx` or `tensorrt`.
        root: Folder of all engines.

    Returns:
        The engine, and whether it was there already.

    Raises:
        UsageError: The target has no CUDA GPU or one that the runtime does not build for, or the graph is refused.
    """
    capability = spec.device.silicon.compute_capability
    if capability is None:
        raise UsageError(f"{spec.ref} has no CUDA GPU: engines are for NVIDIA targets, use the artifact itself")
    check_quantization(artifact.onnx_path)
    api = load_api(runtime)
    if runtime == "tensorrt-rtx" and capability not in supported_capabilities(api):
        known = ", ".join(supported_capabilities(api))
        raise UsageError(
            f"{spec.ref} has compute capability {capability}, and TensorRT-RTX {api.__version__} builds for {known}: "
            "run `deploykit build --runtime tensorrt` on the device, with the TensorRT that it carries"
        )
    request = cache.EngineRequest(
        artifact=artifact.digest,
        runtime=runtime,
        runtime_version=str(api.__version__),
        device=cache.EngineDevice(target=spec.ref, compute_capability=capability),
        shapes=shapes,
        options=options,
    )
    cross = capability if runtime == "tensorrt-rtx" else None
    return _find_or_build(api, artifact, request, root, cross)


def _find_or_build(
    api: Any, artifact: Artifact, request: cache.EngineRequest, root: Path, compute_capability: str | None
) -> tuple[cache.Engine, bool]:
    model, precision = artifact.manifest.model.name, artifact.manifest.precision
    folder = cache.engine_folder(root, model, request, precision)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := _intact(folder, request)) is not None:
            return found, True
        built = build_engine(
            api, artifact.onnx_path, request.shapes, request.options, compute_capability=compute_capability
        )
        return cache.write_engine(folder, built.plan, _manifest(request, model, precision, built)), False


def _intact(folder: Path, request: cache.EngineRequest) -> cache.Engine | None:
    if not folder.exists():
        return None
    try:
        engine = cache.read_engine(folder)
    except UsageError:
        return None
    return engine if engine.manifest.request == request else None


def _manifest(
    request: cache.EngineRequest, model: str, precision: Precision, built: BuiltEngine
) -> cache.EngineManifest:
    return cache.EngineManifest(
        request=request,
        model=model,
        precision=precision,
        sha256=hashlib.sha256(built.plan).hexdigest(),
        size_bytes=len(built.plan),
        seconds=round(built.seconds, 3),
        memory_bytes=built.memory_bytes,
        layers=built.layers,
        warnings=built.warnings,
        created=dt.datetime.now(dt.timezone.utc),
    )
