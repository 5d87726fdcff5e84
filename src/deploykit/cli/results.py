"""`deploykit results`: what was measured, side by side, in and out of the store."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploykit.base.vocab import Precision, Provenance, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from deploykit.results.compare import Comparison
    from deploykit.results.importing import ImportedFile
    from deploykit.results.measurement import Measurement

app = typer.Typer(name="results", help="List, show, compare, export and import measurements.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ModelOption = Annotated[str | None, typer.Option(help="Only of this model.")]
TargetOption = Annotated[str | None, typer.Option(help="Only on this target, as it is stored.")]
PrecisionOption = Annotated[Precision | None, typer.Option(help="Only of this precision.")]
ScenarioOption = Annotated[Scenario | None, typer.Option(help="Only of this scenario.")]
ValidOption = Annotated[bool, typer.Option("--valid", help="Leave invalid ones out.")]


class Format(str, Enum):
    """What `export` writes."""

    JSON = "json"
    CSV = "csv"


class LatencyUnit(str, Enum):
    """Units that a foreign file may leave unsaid."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"


@app.command("list")
def list_(
    model: ModelOption = None,
    target: TargetOption = None,
    precision: PrecisionOption = None,
    scenario: ScenarioOption = None,
    valid: ValidOption = False,
    limit: Annotated[int, typer.Option(min=1, help="Newest that many.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """List measurements of the store, newest first.

    Example: deploykit results list --model resnet50 --valid
    """
    from deploykit.cli.output import emit
    from deploykit.results.exporting import as_document

    found = _query(model, target, precision, scenario, valid, limit)
    emit(as_document(found), lambda: _table(found), as_json=as_json)


@app.command()
def show(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids or their first characters; latest, latest~1.")],
    as_json: JsonOption = False,
) -> None:
    """Show measurements with all their conditions.

    Example: deploykit results show latest
    """
    from rich.console import Group

    from deploykit.cli.output import emit
    from deploykit.results.exporting import as_document
    from deploykit.results.store import Store

    with Store() as store:
        found = [store.find(text) for text in ids]
    emit(as_document(found), lambda: Group(*map(_details, found)), as_json=as_json)


@app.command()
def compare(
    before: Annotated[str, typer.Argument(help="Id, or several of one side with commas between.")],
    after: Annotated[str, typer.Argument(help="Id, or several of one side with commas between.")],
    fail_on_regression: Annotated[
        bool, typer.Option("--fail-on-regression", help="Exit 3 where AFTER is slower beyond noise.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two measurements: conditions that differ first, then what changed beyond noise.

    Example: deploykit results compare 3f2a,41d0 latest --fail-on-regression
    """
    from deploykit.base.errors import Regression
    from deploykit.cli.output import emit
    from deploykit.results.compare import compare as compare_runs
    from deploykit.results.compare import is_regression
    from deploykit.results.exporting import as_document
    from deploykit.results.store import Store

    with Store() as store:
        sides = [[store.find(text) for text in side.split(",")] for side in (before, after)]
    found = compare_runs(*sides)
    document = as_document([*sides[0], *sides[1]]) | {"comparison": _comparison_document(found)}
    emit(document, lambda: _comparison_table(found), as_json=as_json)
    if fail_on_regression and is_regression(found):
        raise Regression(f"{after} is slower than {before} beyond noise: {found.speedup:.3f} × its speed, {found.why}")


@app.command()
def export(
    output: Annotated[Path, typer.Argument(help="File to write; - is standard output.")],
    format_: Annotated[
        Format | None, typer.Option("--format", help="Default: by the file's ending, json where it has none.")
    ] = None,
    model: ModelOption = None,
    target: TargetOption = None,
    precision: PrecisionOption = None,
    scenario: ScenarioOption = None,
    valid: ValidOption = False,
) -> None:
    """Write measurements to a file that `results import` reads.

    Example: deploykit results export results.csv --model resnet50
    """
    import json
    import sys

    from deploykit.base.files import write_text
    from deploykit.results.exporting import as_csv, as_document

    found = _query(model, target, precision, scenario, valid, None)
    wanted = format_ or (Format.CSV if output.suffix.lower() == ".csv" else Format.JSON)
    text = (
        as_csv(found) if wanted is Format.CSV else json.dumps(as_document(found), indent=2, ensure_ascii=False) + "\n"
    )
    if str(output) == "-":
        sys.stdout.write(text)
        return
    write_text(output, text)
    typer.echo(f"{len(found)} measurements written to {output}", err=True)


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Ours (JSON, CSV), MLPerf logs, trtexec times, perf_analyzer tables, optimum-benchmark reports, or "
            "JSON and CSV whose field names say figure and unit.",
        ),
    ],
    model: Annotated[str | None, typer.Option(help="Model, where a file names none.")] = None,
    target: Annotated[str | None, typer.Option(help="Target, where a file names none.")] = None,
    precision: Annotated[Precision | None, typer.Option(help="Precision, where a file names none.")] = None,
    scenario: Annotated[Scenario | None, typer.Option(help="Scenario; default: one batch over and over.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Batch size, where a file names none.")] = None,
    streams: Annotated[int | None, typer.Option(min=1, help="Batches in flight, where a file does not say.")] = None,
    runtime: Annotated[str | None, typer.Option(help="Runtime, where a file names none.")] = None,
    latency_unit: Annotated[LatencyUnit | None, typer.Option(help="Of latencies without a unit of their own.")] = None,
    provenance: Annotated[
        Provenance | None, typer.Option(help="published: somebody else's figures. Default: measured.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Citation; default: the file's name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Put measurements of files into the store: each file whole or not at all.

    Example: deploykit results import runs/*.json --target rtx-4090
    """
    import datetime as dt

    from deploykit.base.errors import UsageError
    from deploykit.bench.stats import latency_from_samples
    from deploykit.cli.output import emit
    from deploykit.results.importing import Stated, import_files
    from deploykit.results.store import Store

    stated = Stated(
        model=model,
        target=target,
        precision=precision.value if precision else None,
        scenario=scenario.value if scenario else None,
        batch_size=batch_size,
        streams=streams,
        runtime=runtime,
        provenance=provenance,
        source=source,
        latency_unit=latency_unit.value if latency_unit else None,
    )
    now = dt.datetime.now(dt.timezone.utc)
    with Store() as store:
        done = import_files(store, files, stated, summarise=latency_from_samples, now=now)
    emit(_import_document(done), lambda: _import_table(done), as_json=as_json)
    if refused := [file for file in done if file.error]:
        raise UsageError(f"{len(refused)} of {len(done)} files were not imported; the first: {refused[0].error}")


def _query(
    model: str | None,
    target: str | None,
    precision: Precision | None,
    scenario: Scenario | None,
    valid: bool,
    limit: int | None,
) -> list[Measurement]:
    from deploykit.results.store import stored

    return stored(
        model=model,
        target=target,
        precision=precision.value if precision else None,
        scenario=scenario.value if scenario else None,
        valid=True if valid else None,
        limit=limit,
    )


def _table(found: Sequence[Measurement]) -> RenderableType:
    from rich.table import Table

    from deploykit.base.units import format_ms, format_rate

    if not found:
        return "no measurements; make one with `deploykit bench`"
    table = Table(box=None, pad_edge=False)
    for name in ("id", "date", "model", "target", "scenario"):
        table.add_column(name, overflow="fold")
    for name in ("batch", "p50", "p99", "rate"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for m in found:
        name = m.model + (f" {m.precision}" if m.precision else "")
        date = f"{m.date:%Y-%m-%d %H:%M}" if m.date else "–"
        latency = m.latency_ms
        figures = (
            _or_dash(m.batch_size),
            format_ms(latency.p50),
            format_ms(latency.p99),
            format_rate(m.throughput_ips),
        )
        table.add_row(m.id[:8], date, name, m.target, m.scenario.value, *figures, _standing(m))
    return table


def _standing(m: Measurement) -> str:
    """What sets a row apart from a valid measurement of one's own."""
    words = [] if m.provenance is Provenance.MEASURED else [m.provenance.value]
    if not m.valid:
        words.append("[red]invalid[/red]")
    return " ".join(words + (["[yellow]see remarks[/yellow]"] if m.remarks else []))


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)


def _details(m: Measurement) -> RenderableType:
    """Every field that is set, one a row; nested ones indented."""
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    for name, value in m.model_dump(mode="json", exclude_none=True).items():
        if value not in ({}, [], ""):
            rows.add_row(name, Text(_shown(value)))
    rows.add_row("", "")
    return rows


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_shown(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _comparison_document(found: Comparison) -> dict[str, Any]:
    from dataclasses import asdict

    plain = asdict(found)
    plain["interval"] = list(found.interval) if found.interval else None
    plain["figures"] = [asdict(figure) | {"ratio": figure.ratio} for figure in found.figures]
    plain["differences"] = [asdict(difference) for difference in found.differences]
    return plain


def _comparison_table(found: Comparison) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    conditions = Table("condition", "before", "after", box=None, pad_edge=False)
    for difference in found.differences:
        style = "yellow" if difference.kind == "timing" else ""
        conditions.add_row(difference.key, str(difference.before), str(difference.after), style=style)
    figures = Table("figure", "before", "after", "after ÷ before", box=None, pad_edge=False)
    for figure in found.figures:
        style = "bold" if figure.name == found.decisive else ""
        figures.add_row(figure.name, f"{figure.before:.4g}", f"{figure.after:.4g}", f"{figure.ratio:.3f}", style=style)
    first: RenderableType = conditions if found.differences else "same conditions, as far as they are recorded"
    return Group(first, "", figures, "", _sentence(found))


def _sentence(found: Comparison) -> str:
    from rich.markup import escape

    if found.speedup is None:
        return f"{found.outcome}: {escape(found.why)}"
    colour = {"faster": "green", "slower": "red"}.get(found.outcome, "yellow")
    of_what = f"by {found.decisive}, {found.speedup:.3f} × as fast"
    return f"[{colour}]{found.outcome}[/{colour}] ({of_what}): {escape(found.why)}"


def _import_document(done: Sequence[ImportedFile]) -> dict[str, Any]:
    from deploykit.results.exporting import as_document

    files = [
        {"file": str(f.path), "tool": f.tool, "rows": len(f.measurements), "added": f.added, "error": f.error}
        for f in done
    ]
    return as_document([m for f in done for m in f.measurements]) | {"files": files}


def _import_table(done: Sequence[ImportedFile]) -> RenderableType:
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table("file", "read as", "rows", "added", Column("", overflow="fold"), box=None, pad_edge=False)
    for file in done:
        doubtful = [m.invalid_reasons[0] for m in file.measurements if not m.valid]
        note = file.error or (f"{len(doubtful)} stored as invalid: {doubtful[0]}" if doubtful else "")
        path = escape(str(file.path))
        table.add_row(path, _or_dash(file.tool), str(len(file.measurements)), str(file.added), escape(note))
    return table
