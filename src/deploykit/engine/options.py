"""What a build was asked for; every field changes the engine and so is part of its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from deploykit.base.artifact import BatchRange
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec, parse_tensor

HardwareCompatibility = Literal["none", "ampere+", "same-compute-capability"]


class BuildOptions(BaseModel):
    """Builder settings, in trtexec's words.

    Attributes:
        builder_optimization_level: 0 (fast build) to 5 (most tactics); None leaves TensorRT's default (3).
        hardware_compatibility_level: Which other GPUs may load the engine.
        version_compatible: Whether later minor versions may load it.
        workspace_mib: Largest scratch memory of a tactic, MiB; None leaves it to TensorRT.
        tactic_dram_mib: Largest memory that a tactic may ask for while it is timed, MiB; None as above.
        strip_plan: Leave the weights out, to be refitted on the device.
        refit: Weights can be replaced in the built engine.
        sparse_weights: Let tactics use 2:4 structured sparsity where the weights have it.
        tf32: Whether fp32 arithmetic may run as TF32.
        use_dla_core: DLA core to build for; None builds for the GPU.
        allow_gpu_fallback: Layers that the DLA cannot run go to the GPU.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    builder_optimization_level: int | None = Field(default=None, ge=0, le=5)
    hardware_compatibility_level: HardwareCompatibility = "none"
    version_compatible: bool = False
    workspace_mib: int | None = Field(default=None, ge=1)
    tactic_dram_mib: int | None = Field(default=None, ge=1)
    strip_plan: bool = False
    refit: bool = False
    sparse_weights: bool = False
    tf32: bool = True
    use_dla_core: int | None = Field(default=None, ge=0, le=1)
    allow_gpu_fallback: bool = False


class ShapeRange(BaseModel):
    """Optimization profile of one input: smallest, most common and largest shape."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


def shape_ranges(
    inputs: tuple[TensorSpec, ...], batch: BatchRange, given: Mapping[str, Sequence[str]] | None = None
) -> tuple[ShapeRange, ...]:
    """The optimization profile of every input.

    Args:
        inputs: Of the graph.
        batch: Fills the first dimension where it is open.
        given: `min`, `opt`, `max` → texts `NAME:1x3x224x224`, overriding the artifact's.

    Raises:
        UsageError: A dimension other than the first is open and nobody gave it, a given shape does not fit the input,
            or min, opt and max do not rise.
    """
    overrides = {edge: _by_name(texts, edge, inputs) for edge, texts in (given or {}).items()}
    ranges = []
    for spec in inputs:
        sizes = {"min": batch.min, "opt": batch.opt, "max": batch.max}
        shapes = {edge: overrides.get(edge, {}).get(spec.name) or _filled(spec, size) for edge, size in sizes.items()}
        ranges.append(_checked(spec, ShapeRange(name=spec.name, **shapes)))
    return tuple(ranges)


def _by_name(texts: Sequence[str], edge: str, inputs: tuple[TensorSpec, ...]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    known = [spec.name for spec in inputs]
    for text in texts:
        spec = parse_tensor(text)
        if spec.name not in known:
            raise UsageError(f"--{edge}-shapes {text!r}: the model has no such input; it has {', '.join(known)}")
        if spec.dynamic_axes:
            raise UsageError(f"--{edge}-shapes {text!r}: every dimension must be a number")
        shapes[spec.name] = tuple(int(size) for size in spec.shape)
    return shapes


def _filled(spec: TensorSpec, batch_size: int) -> tuple[int, ...]:
    open_axes = [axis for axis in spec.dynamic_axes if axis != 0]
    if open_axes:
        example = "x".join(str(size) if isinstance(size, int) else "N" for size in spec.shape)
        words = ", ".join(f"{spec.shape[axis]!r} (axis {axis})" for axis in open_axes)
        raise UsageError(
            f"input {spec.name!r} has open dimensions besides the batch: {words}; an engine needs their range, "
            f"give --min-shapes, --opt-shapes and --max-shapes {spec.name}:{example}"
        )
    return spec.sized(batch_size)


def _checked(spec: TensorSpec, shapes: ShapeRange) -> ShapeRange:
    for edge in ("min", "opt", "max"):
        shape = getattr(shapes, edge)
        fits = len(shape) == len(spec.shape) and all(
            isinstance(want, str) or want == have for want, have in zip(spec.shape, shape, strict=True)
        )
        if not fits:
            raise UsageError(f"--{edge}-shapes {spec.name}: {shape} does not fit the input's shape {spec.shape}")
    if not all(a <= b <= c for a, b, c in zip(shapes.min, shapes.opt, shapes.max, strict=True)):
        raise UsageError(f"shapes of {spec.name!r} must rise: min {shapes.min}, opt {shapes.opt}, max {shapes.max}")
    return shapes
