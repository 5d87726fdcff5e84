"""`deploykit build`: an artifact to a TensorRT engine for one target."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploykit.base.vocab import Precision

if TYPE_CHECKING:
    from rich.console import RenderableType

    from deploykit.base.artifact import Artifact
    from deploykit.base.progress import Progress
    from deploykit.engine.options import BuildOptions
    from deploykit.pipeline import BuildSettings, Built


class CompatibilityOption(str, Enum):
    """What `--hardware-compatibility-level` takes."""

    NONE = "none"
    AMPERE_PLUS = "ampere+"
    SAME_COMPUTE_CAPABILITY = "same-compute-capability"


ShapesOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME:1x3x224x224", help="Of an input, or several with commas between.")
]


def build(
    artifact: Annotated[
        str | None,
        typer.Argument(help="Artifact folder, or a model as `export` takes it. Default: the artifact made last."),
    ] = None,
    target: Annotated[str, typer.Option(help="What the engine is for.")] = ...,  # type: ignore[assignment]
    runtime: Annotated[
        str | None,
        typer.Option(help="tensorrt-rtx or tensorrt. Default: tensorrt-rtx for desktop and workstation cards."),
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Precision to export a MODEL that is no artifact in. Default: fp32.")
    ] = None,
    weights: Annotated[str, typer.Option(help="As `export --weights`, for a MODEL that is no artifact.")] = "default",
    min_shapes: ShapesOption = None,
    opt_shapes: ShapesOption = None,
    max_shapes: ShapesOption = None,
    builder_optimization_level: Annotated[
        int | None, typer.Option(min=0, max=5, help="0 builds fastest, 5 tries most; TensorRT's own default is 3.")
    ] = None,
    workspace: Annotated[
        int | None, typer.Option(min=1, metavar="MIB", help="Most scratch memory of a kernel.")
    ] = None,
    tactic_dram: Annotated[
        int | None, typer.Option(min=1, metavar="MIB", help="Most memory of a kernel that is being timed.")
    ] = None,
    hardware_compatibility_level: Annotated[
        CompatibilityOption, typer.Option(help="Which other GPUs may load the engine.")
    ] = CompatibilityOption.NONE,
    version_compatible: Annotated[
        bool, typer.Option("--version-compatible", help="Later minor releases may load it.")
    ] = False,
    strip_plan: Annotated[bool, typer.Option("--strip-plan", help="Leave the weights out, to be refitted.")] = False,
    refit: Annotated[bool, typer.Option("--refit", help="Weights can be replaced in the engine.")] = False,
    sparse_weights: Annotated[
        bool, typer.Option("--sparse-weights", help="Use 2:4 sparsity where the weights have it.")
    ] = False,
    no_tf32: Annotated[bool, typer.Option("--no-tf32", help="Keep fp32 arithmetic out of TF32.")] = False,
    use_dla_core: Annotated[int | None, typer.Option(min=0, max=1, help="Jetson: build for this DLA core.")] = None,
    allow_gpu_fallback: Annotated[
        bool, typer.Option("--allow-gpu-fallback", help="Layers that the DLA cannot run go to the GPU.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Build a TensorRT engine, and say which layers really run in which precision.

    Example: deploykit build resnet50 --weights none --precision int8 --target rtx-4090
    """
    from deploykit import pipeline
    from deploykit.cli.output import emit, progress_bars, warn
    from deploykit.engine.options import BuildOptions

    options = BuildOptions(
        builder_optimization_level=builder_optimization_level,
        hardware_compatibility_level=hardware_compatibility_level.value,
        version_compatible=version_compatible,
        workspace_mib=workspace,
        tactic_dram_mib=tactic_dram,
        strip_plan=strip_plan,
        refit=refit,
        sparse_weights=sparse_weights,
        tf32=not no_tf32,
        use_dla_core=use_dla_core,
        allow_gpu_fallback=allow_gpu_fallback,
    )
    settings = pipeline.BuildSettings(
        target=target,
        runtime=runtime,
        options=options,
        min_shapes=_listed(min_shapes),
        opt_shapes=_listed(opt_shapes),
        max_shapes=_listed(max_shapes),
    )
    with progress_bars() as progress:
        meant = _artifact(artifact, precision, weights, settings, progress)
        built = pipeline.build(meant, settings, progress=progress)
    for text in warnings(built):
        warn(text)
    emit(document(built), lambda: table(built), as_json=as_json)


def _listed(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(part for text in texts or () for part in text.split(",") if part)


def _artifact(
    model: str | None, precision: Precision | None, weights: str, settings: BuildSettings, progress: Progress
) -> Artifact:
    from deploykit import pipeline
    from deploykit.base.artifact import MANIFEST, read_artifact
    from deploykit.cli.meant import file_meant

    def refuse() -> None:
        pipeline.build_place(settings)

    path = file_meant(model, precision, weights, settings.target, progress, before_export=refuse)
    if path.is_dir() or (path.parent / MANIFEST).is_file():
        return read_artifact(path)
    return pipeline.export(str(path), pipeline.ExportSettings(target=settings.target), progress=progress).artifact


def warnings(built: Built) -> list[str]:
    """What a reader of the table should not miss: lost fusion, and layers that left the DLA."""
    from deploykit.engine.fusion import lost_in_words

    manifest = built.engine.manifest
    found = [lost_in_words(manifest.compute)]
    if manifest.gpu_fallback:
        found.append(f"{len(manifest.gpu_fallback)} layers run on the GPU: {_first(manifest.gpu_fallback)}")
    return [text for text in found if text]


def document(built: Built) -> dict[str, Any]:
    """The JSON of `build` and, an entry each, of `engines show`."""
    from deploykit.engine.fusion import counts
    from deploykit.engine.layers import summarize

    manifest = built.engine.manifest
    plain = manifest.model_dump(mode="json")
    request = plain["request"]
    return {
        "engine": str(built.engine.plan_path),
        "reused": built.reused,
        "model": manifest.model,
        "precision": plain["precision"],
        "artifact": request["artifact"],
        "target": request["device"]["target"],
        "runtime": request["runtime"],
        "runtime_version": request["runtime_version"],
        "compute_capability": request["device"]["compute_capability"],
        "device": request["device"],
        "shapes": request["shapes"],
        "options": request["options"],
        **{key: plain[key] for key in ("seconds", "size_bytes", "memory_bytes", "created")},
        "summary": {"compute": counts(manifest.compute), **summarize(manifest.layers).model_dump(mode="json")},
        "compute": [{**node.model_dump(mode="json"), "lost": node.lost} for node in manifest.compute],
        "gpu_fallback": plain["gpu_fallback"],
        "layers": plain["layers"],
        "warnings": [*warnings(built), *plain["warnings"]],
    }


def table(built: Built) -> RenderableType:
    """What people see: one row a fact."""
    from rich.markup import escape
    from rich.table import Table

    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    for name, text in _rows(built):
        rows.add_row(name, escape(text))
    return rows


def _rows(built: Built) -> list[tuple[str, str]]:
    from deploykit.base.units import format_bytes
    from deploykit.engine.fusion import counts
    from deploykit.engine.layers import summarize

    manifest = built.engine.manifest
    request, device = manifest.request, manifest.request.device
    on = f"built on {device.name}" if device.name else "built away from it, not run"
    rows = [
        ("engine", f"{built.engine.plan_path}{' (already there)' if built.reused else ''}"),
        ("model", f"{manifest.model} {manifest.precision}, artifact {request.artifact[:12]}"),
        ("target", f"{device.target}, compute capability {device.compute_capability}, {on}"),
        ("runtime", f"{request.runtime} {request.runtime_version}, {manifest.seconds:.1f} s, "
                    f"{format_bytes(manifest.size_bytes)}"),
        ("shapes", ", ".join(f"{s.name} {_shape(s.min)} … {_shape(s.opt)} … {_shape(s.max)}" for s in request.shapes)),
    ]  # fmt: skip
    if settings := _settings(request.options):
        rows.append(("options", settings))
    if manifest.memory_bytes:
        rows.append(("memory", ", ".join(f"{k} {format_bytes(v)}" for k, v in manifest.memory_bytes.items())))
    if not manifest.layers:
        return [*rows, ("layers", "this release's builder does not list them")]
    found = summarize(manifest.layers)
    in_words = ", ".join(f"{count} in {precision}" for precision, count in counts(manifest.compute).items())
    return [
        *rows,
        ("arithmetic", f"{len(manifest.compute)} convolutions and matrix products: {in_words}"),
        ("layers", f"{found.layers} fused, {found.kernels} generated kernels, {found.reformats} reformats, "
                   f"{format_bytes(found.traffic_bytes)} of activations a sample"),
    ]  # fmt: skip


def _settings(options: BuildOptions) -> str:
    changed = options.model_dump(exclude_defaults=True)
    return ", ".join(f"{name} {value}" if value is not True else name for name, value in changed.items())


def _shape(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def _first(names: tuple[str, ...], shown: int = 5) -> str:
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
