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
from deploykit.base.vocab import Dialect
from deploykit.engine import cache
from deploykit.engine.builder import BuiltEngine, supported_capabilities
from deploykit.engine.checks import check_quantization
from deploykit.engine.child import BuildTask, build_in_child
from deploykit.engine.fusion import compute_nodes
from deploykit.engine.options import BuildOptions, ShapeRange
from deploykit.engine.timing_cache import timing_file
from deploykit.targets.spec import TargetSpec

RTX = "tensorrt-rtx"
TENSORRT = "tensorrt"
RUNTIMES = (RTX, TENSORRT)
_EXTRAS = {RTX: "rtx", TENSORRT: "tensorrt"}
_MODULES = {RTX: "tensorrt_rtx", TENSORRT: "tensorrt"}
_RTX_KINDS = ("desktop", "workstation")
_SHARED_MEMORY_SHARE = 0.25
"""Of a board whose memory the operating system, the camera and other processes use too. An assumption of ours; TensorRT
itself takes all of the device's memory as its limit."""
_WITHOUT_DRIVER = ("strip_plan", "refit", "version_compatible")
"""Options that TensorRT-RTX 1.7 fails on when it builds without a driver (cudaErrors, libnvinfer_lean missing)."""
_TIMINGS = "timings"


def default_runtime(spec: TargetSpec) -> str:
    """`tensorrt-rtx` for desktop and workstation cards, which it is made for; `tensorrt` for all others."""
    return RTX if spec.device.kind in _RTX_KINDS else TENSORRT


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


def require_buildable(spec: TargetSpec, options: BuildOptions, runtime: str, *, cross: bool) -> None:
    """Refuse, before anything is exported or loaded, what target, runtime and options cannot do together.

    Args:
        cross: The target is not this machine.

    Raises:
        UsageError: The target has no CUDA GPU, or an option does not fit.
        DeviceAbsent: The runtime needs the target's GPU.
    """
    _capability(spec)
    if runtime == TENSORRT and cross:
        elsewhere = "" if spec.device.kind == "jetson" else ", or try --runtime tensorrt-rtx, which builds elsewhere"
        raise DeviceAbsent(
            f"TensorRT builds on the device that runs the engine, and {spec.ref} is not this machine: "
            f"run this command there{elsewhere}"
        )
    if options.use_dla_core is not None:
        _require_dla(spec, options.use_dla_core, runtime)
    if runtime == RTX and cross and (asked := [name for name in _WITHOUT_DRIVER if getattr(options, name)]):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise UsageError(f"TensorRT-RTX cannot do {flags} without a GPU driver: build on {spec.ref} itself")


def engine_from_artifact(
    artifact: Artifact,
    spec: TargetSpec,
    shapes: tuple[ShapeRange, ...],
    options: BuildOptions,
    *,
    runtime: str,
    root: Path,
    here: cache.EngineDevice | None = None,
) -> tuple[cache.Engine, bool]:
    """Build an engine for a target, or find it built.

    Args:
        artifact: Precision is in its graph; int8 in the `tensorrt` dialect.
        spec: The target.
        shapes: Optimization profile.
        options: Builder settings. Memory pools that they leave open are sized for a board with shared memory.
        runtime: `tensorrt-rtx` or `tensorrt`.
        root: Folder of all engines.
        here: The device in this machine, which is the target. None: it is elsewhere, and only TensorRT-RTX can build.

    Returns:
        The engine, and whether it was there already.

    Raises:
        UsageError: The target has no CUDA GPU or one that the runtime does not build for, or the graph is refused.
        MissingExtraError: The runtime is not installed.
        DeviceAbsent: The runtime needs the target's GPU, and it is not here.
    """
    require_buildable(spec, options, runtime, cross=here is None)
    if artifact.manifest.dialect is Dialect.ORT_CPU:
        raise UsageError(
            f"{artifact.path} is int8 as onnxruntime's CPU provider takes it; TensorRT takes other Q/DQ: "
            f"`deploykit export … --precision int8 --target {spec.ref}` writes it from the same calibration"
        )
    device = here or cache.EngineDevice(target=spec.ref, compute_capability=_capability(spec))
    options = sized_for(spec, options)
    check_quantization(artifact.onnx_path)
    api = load_api(runtime)
    if runtime == RTX and device.compute_capability not in supported_capabilities(api):
        known = ", ".join(supported_capabilities(api))
        raise UsageError(
            f"{spec.ref} has compute capability {device.compute_capability}, and TensorRT-RTX {api.__version__} builds "
            f"for {known}: run `deploykit build --runtime tensorrt` on the device, with the TensorRT that it carries"
        )
    request = cache.EngineRequest(
        artifact=artifact.digest,
        runtime=runtime,
        runtime_version=str(api.__version__),
        device=device,
        shapes=shapes,
        options=options,
    )
    return _find_or_build(artifact, request, root)


def sized_for(spec: TargetSpec, options: BuildOptions) -> BuildOptions:
    """Memory pools that nobody set, for a board that shares its memory with the operating system."""
    memory = spec.device.memory
    if memory is None or not memory.shared:
        return options
    share = int(memory.size_gb * 1e9 * _SHARED_MEMORY_SHARE) >> 20
    limits = {"workspace_mib": share, "tactic_dram_mib": share}
    return options.model_copy(update={name: limit for name, limit in limits.items() if getattr(options, name) is None})


def _capability(spec: TargetSpec) -> str:
    capability = spec.device.silicon.compute_capability
    if capability is None:
        raise UsageError(f"{spec.ref} has no CUDA GPU: engines are for NVIDIA targets, use the artifact itself")
    return capability


def _require_dla(spec: TargetSpec, core: int, runtime: str) -> None:
    """TensorRT-RTX 1.7 takes a DLA core without a word and builds for the GPU."""
    mode = spec.mode
    cores = mode.dla_cores if mode is not None and mode.dla_cores is not None else spec.device.silicon.dla_cores
    if runtime == RTX:
        raise UsageError("TensorRT-RTX knows no DLA: --use-dla-core needs --runtime tensorrt")
    if core >= cores:
        known = f"cores 0 to {cores - 1}" if cores else "no DLA"
        raise UsageError(f"{spec.ref} has {known}: --use-dla-core {core} asks for another")


def _find_or_build(artifact: Artifact, request: cache.EngineRequest, root: Path) -> tuple[cache.Engine, bool]:
    model, precision = artifact.manifest.model.name, artifact.manifest.precision
    folder = cache.engine_folder(root, model, request, precision)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := _intact(folder, request)) is not None:
            return found, True
        built, plan = build_in_child(_task(artifact, request, root))
        return cache.write_engine(folder, plan, _manifest(request, artifact, built, plan)), False


def _task(artifact: Artifact, request: cache.EngineRequest, root: Path) -> BuildTask:
    return BuildTask(
        module=_MODULES[request.runtime],
        onnx_path=artifact.onnx_path.resolve(),
        shapes=request.shapes,
        options=request.options,
        compute_capability=request.device.compute_capability if request.runtime == RTX else None,
        timing_cache=_timing_file(request, root).resolve() if request.runtime == TENSORRT else None,
    )


def _timing_file(request: cache.EngineRequest, root: Path) -> Path:
    device = request.device
    marks = [device.name or device.target, device.compute_capability, device.sm_count]
    marks += [device.power_mode, device.mig_profile]
    slug = "-".join(str(mark) for mark in marks if mark is not None)
    return timing_file(root / _TIMINGS, request.runtime, request.runtime_version, slug)


def _intact(folder: Path, request: cache.EngineRequest) -> cache.Engine | None:
    if not folder.exists():
        return None
    try:
        engine = cache.read_engine(folder)
    except UsageError:
        return None
    return engine if engine.manifest.request == request else None


def _manifest(
    request: cache.EngineRequest, artifact: Artifact, built: BuiltEngine, plan: bytes
) -> cache.EngineManifest:
    return cache.EngineManifest(
        request=request,
        model=artifact.manifest.model.name,
        precision=artifact.manifest.precision,
        sha256=hashlib.sha256(plan).hexdigest(),
        size_bytes=len(plan),
        seconds=round(built.seconds, 3),
        memory_bytes=built.memory_bytes,
        layers=built.layers,
        compute=compute_nodes(artifact.onnx_path, built.layers),
        gpu_fallback=built.gpu_fallback,
        warnings=built.warnings,
        created=dt.datetime.now(dt.timezone.utc),
    )
