"""`deploykit engines`: the engines that were built here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from deploykit.engine.cache import Engine

app = typer.Typer(name="engines", help="List, show and prune built engines.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_engines(as_json: JsonOption = False) -> None:
    """List the engines in the cache, newest first.

    Example: deploykit engines list
    """
    from deploykit.base.home import engines_folder
    from deploykit.cli.output import emit, warn
    from deploykit.engine.cache import damaged, engines

    found = sorted(engines(engines_folder()), key=lambda engine: engine.manifest.created, reverse=True)
    for fault in damaged(engines_folder()):
        warn(f"{fault} (`deploykit engines prune --damaged` removes it)")
    emit({"engines": [_document(engine) for engine in found]}, lambda: _table(found), as_json=as_json)


@app.command()
def show(
    engine: Annotated[Path, typer.Argument(help="Engine folder, or the plan in it.")],
    layers: Annotated[bool, typer.Option("--layers", help="Every fused layer with the ONNX nodes behind it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show an engine: what it was built for and from, and which precision its layers run in.

    Example: deploykit engines show .deploykit/engines/resnet50/rtx-4090-int8-1a2b3c4d5e6f --layers
    """
    from rich.console import Group

    from deploykit.cli import build
    from deploykit.cli.output import emit, warn
    from deploykit.engine.cache import read_engine
    from deploykit.pipeline import Built

    built = Built(read_engine(engine), reused=True)
    for text in build.warnings(built):
        warn(text)
    parts = [build.table(built), _arithmetic_table(built.engine)] + ([_layer_table(built.engine)] if layers else [])
    emit(build.document(built), lambda: Group(*parts), as_json=as_json)


@app.command()
def prune(
    model: Annotated[str | None, typer.Option(help="Only of this model.")] = None,
    target: Annotated[str | None, typer.Option(help="Only for this target, as it is stored.")] = None,
    older_than_days: Annotated[float | None, typer.Option(min=0, help="Only those built longer ago.")] = None,
    damaged: Annotated[bool, typer.Option("--damaged", help="Only what can no longer be loaded.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every engine.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove engines from the cache. Something must be said of which.

    Example: deploykit engines prune --older-than-days 30 --dry-run
    """
    import datetime as dt

    from deploykit.base.errors import UsageError
    from deploykit.base.home import engines_folder
    from deploykit.base.units import format_bytes
    from deploykit.cli.output import emit
    from deploykit.engine import cache

    if not (everything or damaged or model or target or older_than_days is not None):
        raise UsageError("say which engines: --model, --target, --older-than-days, --damaged, or --all")
    before = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=older_than_days or 0)
    folders = cache.damaged_folders(engines_folder()) if damaged or everything else []
    if not damaged:
        folders += [
            engine.path
            for engine in cache.engines(engines_folder())
            if model in (None, engine.manifest.model)
            and target in (None, engine.manifest.request.device.target)
            and engine.manifest.created <= before
        ]
    freed = sum(cache.size_of(folder) for folder in folders)
    if not dry_run:
        for folder in folders:
            cache.remove(folder)
    done = "would go" if dry_run else "removed"
    document = {"removed": [str(folder) for folder in folders], "bytes": freed, "dry_run": dry_run}
    lines = [*(f"{done}  {folder}" for folder in folders), f"{len(folders)} engines, {format_bytes(freed)}"]
    emit(document, lambda: "\n".join(lines), as_json=as_json)


def _document(engine: Engine) -> dict[str, Any]:
    manifest, request = engine.manifest, engine.manifest.request
    plain = manifest.model_dump(mode="json")
    return {
        "engine": str(engine.plan_path),
        "model": manifest.model,
        "precision": plain["precision"],
        "artifact": request.artifact,
        "runtime": request.runtime,
        "runtime_version": request.runtime_version,
        "device": request.device.model_dump(mode="json"),
        **{key: plain[key] for key in ("seconds", "size_bytes", "created")},
    }


def _table(found: Sequence[Engine]) -> RenderableType:
    from rich.table import Table

    from deploykit.base.units import format_bytes

    table = Table()
    for heading in ("model", "target", "runtime", "size", "built", "folder"):
        table.add_column(heading, no_wrap=heading != "folder", overflow="fold")
    for engine in found:
        request = engine.manifest.request
        table.add_row(
            f"{engine.manifest.model} {engine.manifest.precision}",
            request.device.target,
            f"{request.runtime} {request.runtime_version}",
            format_bytes(engine.manifest.size_bytes),
            f"{engine.manifest.created:%Y-%m-%d %H:%M}",
            str(engine.path),
        )
    return table


def _arithmetic_table(engine: Engine) -> RenderableType:
    """Convolutions and matrix products that do not run in the engine's own precision; all do: one line."""
    from rich.table import Table

    own = str(engine.manifest.precision)
    others = [node for node in engine.manifest.compute if node.precision not in (own, None)]
    if not others:
        return ""
    table = Table(title=f"not in {own}", title_justify="left")
    for heading in ("node", "operator", "runs in", "why"):
        table.add_column(heading, overflow="fold")
    for node in others:
        why = node.why or ("not quantized in the graph" if own == "int8" else "its types in the graph")
        table.add_row(node.name, node.op_type, node.precision, why)
    return table


def _layer_table(engine: Engine) -> RenderableType:
    from rich.table import Table

    table = Table(title="fused layers", title_justify="left")
    for heading in ("layer", "type", "reads", "writes", "ONNX nodes"):
        table.add_column(heading, overflow="fold")
    for layer in engine.manifest.layers:
        reads, writes = (", ".join(t.dtype for t in side) for side in (layer.inputs, layer.outputs))
        table.add_row(layer.name, layer.type, reads, writes, ", ".join(layer.onnx_nodes))
    return table
