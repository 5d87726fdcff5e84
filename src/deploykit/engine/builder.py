"""One builder for TensorRT 10.3 to 11 and TensorRT-RTX, given the module.

Precision is in the graph: the network is strongly typed and no precision flag or calibrator is touched, which is the
part of the API that all releases share. Where a name exists in some releases only, `_has` guards it and what was asked
for is refused rather than dropped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from deploykit.base.errors import DeploykitError, UsageError
from deploykit.base.onnx_specs import LINE
from deploykit.engine.layers import EngineLayer, parse_layers
from deploykit.engine.options import BuildOptions, ShapeRange
from deploykit.engine.timing_cache import TimingCache

_COMPATIBILITY = {"ampere+": "AMPERE_PLUS", "same-compute-capability": "SAME_COMPUTE_CAPABILITY"}
_MIB = 1 << 20
_SHOWN = 12


class EngineBuildError(DeploykitError):
    """TensorRT could not build the engine; carries what its builder logged."""


class BuiltEngine(BaseModel):
    """What a build said.

    Attributes:
        layers: Fused layers, where the release logs them.
        seconds: Wall time of parsing and building.
        memory_bytes: The builder's own figures: weights, activations, largest scratch.
        gpu_fallback: Layers that the DLA asked for cannot run, by the names that the parser gave them.
        warnings: What the builder warned of.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    layers: tuple[EngineLayer, ...]
    seconds: float
    memory_bytes: dict[str, int]
    gpu_fallback: tuple[str, ...]
    warnings: tuple[str, ...]


def build_engine(
    api: Any,
    onnx_path: Path,
    shapes: Sequence[ShapeRange],
    options: BuildOptions,
    *,
    compute_capability: str | None = None,
    timing_cache: TimingCache | None = None,
) -> tuple[BuiltEngine, bytes]:
    """Build an engine from an ONNX graph that holds its own types.

    Args:
        api: The module `tensorrt` or `tensorrt_rtx`.
        onnx_path: The graph; external data is found beside it.
        shapes: Optimization profile, an entry an input.
        options: Builder settings.
        compute_capability: GPU to build for, like `8.9`: TensorRT-RTX only, which needs no GPU for it. None builds for
            the GPU in this machine.
        timing_cache: What earlier builds learned; gets what this one learns. Not for TensorRT-RTX, which has none.

    Returns:
        What the build said, and the plan.

    Raises:
        UsageError: The release cannot do what was asked, or the parser refuses the graph (every error is named).
        EngineBuildError: The build failed.
    """
    log = _logger(api)
    started = time.perf_counter()
    builder = api.Builder(log)
    network = builder.create_network(1 << int(api.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    _parse(api, network, log, onnx_path)
    config = builder.create_builder_config()
    configure(api, config, options)
    if compute_capability is not None:
        set_compute_capability(api, config, compute_capability)
    config.add_optimization_profile(_profile(builder, shapes))
    fallback = _gpu_fallback(network, config, options)
    if timing_cache is not None:
        timing_cache.attach(config)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineBuildError(_failure(api, onnx_path, log))
    if timing_cache is not None:
        timing_cache.merge(config)
    built = BuiltEngine(
        layers=parse_layers(log.texts()),
        seconds=time.perf_counter() - started,
        memory_bytes=_memory(log.texts()),
        gpu_fallback=fallback,
        warnings=tuple(dict.fromkeys(log.texts(api.ILogger.Severity.WARNING))),
    )
    return built, bytes(plan)


def configure(api: Any, config: Any, options: BuildOptions) -> None:
    """Put the options on a builder config.

    Raises:
        UsageError: This release has no such setting.
    """
    config.profiling_verbosity = api.ProfilingVerbosity.DETAILED
    if options.builder_optimization_level is not None:
        config.builder_optimization_level = options.builder_optimization_level
    if options.workspace_mib is not None:
        config.set_memory_pool_limit(api.MemoryPoolType.WORKSPACE, options.workspace_mib * _MIB)
    if options.tactic_dram_mib is not None:
        config.set_memory_pool_limit(api.MemoryPoolType.TACTIC_DRAM, options.tactic_dram_mib * _MIB)
    if options.hardware_compatibility_level != "none":
        name = _COMPATIBILITY[options.hardware_compatibility_level]
        config.hardware_compatibility_level = _member(api, "HardwareCompatibilityLevel", name)
    for wanted, flag in _flags(options):
        (config.set_flag if wanted else config.clear_flag)(_member(api, "BuilderFlag", flag))
    if options.use_dla_core is not None:
        config.default_device_type = api.DeviceType.DLA
        config.DLA_core = options.use_dla_core


def _gpu_fallback(network: Any, config: Any, options: BuildOptions) -> tuple[str, ...]:
    """Layers that the DLA cannot run, asked before the build.

    Raises:
        UsageError: There are some, and they may not go to the GPU.
    """
    if options.use_dla_core is None:
        return ()
    layers = (network.get_layer(index) for index in range(network.num_layers))
    names = tuple(str(layer.name) for layer in layers if not config.can_run_on_DLA(layer))
    if names and not options.allow_gpu_fallback:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise UsageError(
            f"DLA core {options.use_dla_core} cannot run {', '.join(names[:_SHOWN])}{more}: "
            "let them run on the GPU with --allow-gpu-fallback, or build without --use-dla-core"
        )
    return names


def _flags(options: BuildOptions) -> list[tuple[bool, str]]:
    """TF32 is on by default in every release, so it is always stated; the others only where asked for."""
    asked = {
        "VERSION_COMPATIBLE": options.version_compatible,
        "STRIP_PLAN": options.strip_plan,
        "REFIT": options.refit,
        "SPARSE_WEIGHTS": options.sparse_weights,
        "GPU_FALLBACK": options.allow_gpu_fallback,
    }
    return [(options.tf32, "TF32"), *((True, flag) for flag, wanted in asked.items() if wanted)]


def set_compute_capability(api: Any, config: Any, compute_capability: str) -> None:
    """Build for a GPU that need not be here.

    Raises:
        UsageError: The release builds for the GPU at hand only, or not for this one.
    """
    if not hasattr(api, "ComputeCapability"):
        raise UsageError(
            f"{api.__name__} {api.__version__} builds for the GPU it runs on only: run `deploykit build` on the target"
        )
    name = f"SM{compute_capability.replace('.', '')}"
    known = supported_capabilities(api)
    if compute_capability not in known:
        raise UsageError(
            f"{api.__name__} {api.__version__} does not build for compute capability {compute_capability} "
            f"(it does for {', '.join(known)}): build on the device with its own TensorRT"
        )
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(api.ComputeCapability, name), 0)


def supported_capabilities(api: Any) -> list[str]:
    """Compute capabilities that can be built for without that GPU, like `["7.5", "8.0"]`; none for plain TensorRT."""
    members = getattr(getattr(api, "ComputeCapability", None), "__members__", {})
    digits = sorted((name[2:] for name in members if name.startswith("SM")), key=int)
    return [f"{text[:-1]}.{text[-1]}" for text in digits]


def _member(api: Any, enum: str, name: str) -> Any:
    if not hasattr(getattr(api, enum), name):
        raise UsageError(f"{api.__name__} {api.__version__} has no {enum}.{name}: leave that option out")
    return getattr(getattr(api, enum), name)


def _parse(api: Any, network: Any, log: Any, onnx_path: Path) -> None:
    parser = api.OnnxParser(network, log)
    if parser.parse_from_file(str(onnx_path)):
        return
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    lines = _lines_of_code(onnx_path)
    said = "; ".join(dict.fromkeys(_parser_error(error, lines) for error in errors))
    raise UsageError(f"TensorRT's parser refuses {onnx_path}: {said}")


def _parser_error(error: Any, lines: dict[str, str]) -> str:
    """The node, which is named after its PyTorch module, and the line of code behind it where the export noted one."""
    name, operator = error.node_name(), error.node_operator()
    origin = f", from {lines[name]}" if name in lines else ""
    where = f"node {name!r} ({operator}{origin}): " if name or operator else ""
    return where + str(error.desc()).strip().rstrip(".")


def _lines_of_code(onnx_path: Path) -> dict[str, str]:
    """Node → file and line of the PyTorch code that it came from; empty for a graph that does not say."""
    import onnx

    graph = onnx.load(str(onnx_path), load_external_data=False).graph
    notes = ((node.name, entry) for node in graph.node for entry in node.metadata_props)
    return {name: entry.value for name, entry in notes if entry.key == LINE}


def _profile(builder: Any, shapes: Sequence[ShapeRange]) -> Any:
    profile = builder.create_optimization_profile()
    for shape in shapes:
        profile.set_shape(shape.name, shape.min, shape.opt, shape.max)
    return profile


def _logger(api: Any) -> Any:
    """A logger that keeps everything: the fused-layer table comes as one verbose message."""

    class Log(api.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            api.ILogger.__init__(self)
            self.lines: list[tuple[Any, str]] = []

        def log(self, severity: Any, message: str) -> None:
            self.lines.append((severity, message))

        def texts(self, severity: Any = None) -> list[str]:
            return [text for level, text in self.lines if severity is None or level == severity]

    return Log()


def _failure(api: Any, onnx_path: Path, log: Any) -> str:
    severity = api.ILogger.Severity
    errors = [*log.texts(severity.INTERNAL_ERROR), *log.texts(severity.ERROR)]
    said = "; ".join(dict.fromkeys(text.strip() for text in errors)) or "it gave no reason"
    return f"{api.__name__} {api.__version__} could not build {onnx_path}: {said}"


def _memory(messages: Sequence[str]) -> dict[str, int]:
    """The builder's totals, from lines like `Total Weights Memory: 46720000 bytes`."""
    titles = {
        "weights": "Total Weights Memory: ",
        "activations": "Total Activation Memory: ",
        "scratch": "Max Scratch Memory: ",
    }
    found = {}
    for name, title in titles.items():
        for text in messages:
            figure = text[len(title) :].split(" ")[0]
            if text.startswith(title) and figure.isdigit():
                found[name] = int(figure)
    return found
