"""`deploykit bench`: measure a model on the machine at hand, with LoadGen."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploykit.base.vocab import DEFAULT_MODEL, Precision, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from deploykit.results.compare import Comparison
    from deploykit.results.measurement import Measurement


class ScenarioOption(str, Enum):
    """What `--scenario` takes."""

    SINGLE_STREAM = "SingleStream"
    MULTI_STREAM = "MultiStream"
    OFFLINE = "Offline"
    SERVER = "Server"
    ALL = "all"


def bench(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Artifact folder, .onnx file, or a model as `export` takes it. Default: the artifact made last, else "
            f"{DEFAULT_MODEL}."
        ),
    ] = None,
    target: Annotated[str, typer.Option(help="What the machine at hand is; it is checked.")] = "host",
    scenario: Annotated[
        ScenarioOption, typer.Option(help="Load, as MLPerf means it; all: each in turn, Server if it has a limit.")
    ] = ScenarioOption.SINGLE_STREAM,
    batch: Annotated[int, typer.Option(min=1, help="Offline: batch size. Server: most samples run at once.")] = 1,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Of a run. Default: 10, longer (up to 60) where p99 needs more queries."),
    ] = None,
    warmup_ms: Annotated[float, typer.Option(min=0, help="Unmeasured running before it.")] = 500.0,
    request_rate: Annotated[float | None, typer.Option(help="Server: Poisson arrivals in samples/s.")] = None,
    latency_ms: Annotated[
        float | None, typer.Option(help="Server: limit at p99; without --request-rate the highest rate is searched.")
    ] = None,
    streams: Annotated[int, typer.Option(min=1, help="Offline and Server: batches in flight at once.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of one stream. Default: this process's physical cores ÷ streams.")
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Precision to export a MODEL that is no file in. Default: fp32.")
    ] = None,
    weights: Annotated[str, typer.Option(help="As `export --weights`, for a MODEL that is no file.")] = "default",
    runtime: Annotated[str, typer.Option(help="What executes: onnxruntime; fake only sleeps.")] = "onnxruntime",
    provider: Annotated[
        str | None, typer.Option(help="onnxruntime's: cpu, cuda, tensorrt. Default: cpu on host, else cuda.")
    ] = None,
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Measure although this is not TARGET; the result is invalid.")
    ] = False,
    percentile: Annotated[
        str, typer.Option(metavar="LIST", help="More percentiles to show, with commas: 97,99.5.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure latency and throughput under LoadGen, and keep the result in the store.

    Example: deploykit bench resnet50 --weights none --scenario SingleStream --duration 5
    """
    from deploykit.bench.command import Request, run_bench
    from deploykit.bench.watch import require_device
    from deploykit.cli.meant import file_meant
    from deploykit.cli.output import emit, progress_bars, warn
    from deploykit.results.exporting import as_document

    request = Request(
        target=target,
        scenarios=_scenarios(scenario, latency_ms, request_rate),
        batch_size=batch,
        duration_s=duration,
        warmup_ms=warmup_ms,
        request_rate=request_rate,
        latency_bound_ms=latency_ms,
        streams=streams,
        threads=threads,
        runtime=runtime,
        provider=provider,
        percentiles=_percentiles(percentile),
        allow_mismatch=allow_mismatch,
    )
    with progress_bars() as progress:
        path = file_meant(
            model, precision, weights, target, progress,
            before_export=lambda: None if allow_mismatch else require_device(target),
        )  # fmt: skip
        done = run_bench(path, request, progress=progress)
    measured = [one.measurement for one in done]
    for measurement in measured:
        for text in measurement.remarks:
            warn(text if len(measured) == 1 else f"{measurement.scenario}: {text}")
    document = measured[0] if scenario is not ScenarioOption.ALL else as_document(measured)
    emit(document, lambda: _tables(measured, [one.against_fp32 for one in done]), as_json=as_json)
    if (lost := next((one.not_stored for one in done if one.not_stored), None)) is not None:
        raise lost


def _scenarios(asked: ScenarioOption, latency_ms: float | None, request_rate: float | None) -> tuple[Scenario, ...]:
    if asked is not ScenarioOption.ALL:
        return (Scenario(asked.value),)
    loaded = (Scenario.SERVER,) if latency_ms is not None or request_rate is not None else ()
    return (Scenario.SINGLE_STREAM, Scenario.MULTI_STREAM, Scenario.OFFLINE, *loaded)


def _percentiles(text: str) -> tuple[float, ...]:
    from deploykit.base.errors import UsageError

    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UsageError(f"--percentile {text!r} is not numbers with commas between, like 97,99.5") from error


def _tables(measured: Sequence[Measurement], against: Sequence[Comparison | None]) -> RenderableType:
    from rich.console import Group

    parts: list[Any] = [_heading(measured[0])]
    for measurement, comparison in zip(measured, against, strict=True):
        parts.append(_table(measurement))
        parts += [_worth(comparison)] if comparison is not None else []
    return Group(*parts)


def _heading(m: Measurement) -> str:
    what = f"{m.model} {m.precision or ''}".strip() + (f" ({m.dialect} dialect)" if m.dialect else "")
    threads = m.conditions.get("threads")
    return f"{what} on {m.target}, {m.runtime} {m.provider}" + (f", {threads} threads" if threads else "")


def _table(m: Measurement) -> RenderableType:
    """One row a fact."""
    from rich.markup import escape
    from rich.table import Table

    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    for name, text in _rows(m):
        rows.add_row(name, text)
    for reason in m.invalid_reasons:
        rows.add_row("[red]invalid[/red]", escape(reason))
    return rows


def _rows(m: Measurement) -> list[tuple[str, str]]:
    from deploykit.base.units import format_rate, format_watts

    from_batch = m.conditions.get("latency_of") == "batch"
    rows = [
        ("scenario", f"{m.scenario}, {m.queries:,} {'batches' if from_batch else 'queries'} of {m.batch_size}, "
                     f"{m.duration_s:.1f} s" + (f", {m.streams} streams" if m.streams > 1 else "")),
        ("batch latency" if from_batch else "latency", _latencies(m)),
        ("", _shape(m)),
        ("throughput", format_rate(m.throughput_ips) + (f" of {m.offered_ips:.4g}/s offered" if m.offered_ips else "")),
    ]  # fmt: skip
    if m.power_w is not None:
        rows.append(("power", f"{format_watts(m.power_w)} ({m.conditions.get('power_source')})"))
    return [*rows, ("id", m.id[:8])]


def _latencies(m: Measurement) -> str:
    """Percentiles that there are samples for; for the others how many they need."""
    from deploykit.base.units import format_ms

    known = {"mean": m.latency_ms.mean, "min": m.latency_ms.min, **m.conditions["percentiles_ms"]}
    known |= {"max": m.latency_ms.max}
    parts = [f"{_spelled(name)} {format_ms(value)}" for name, value in known.items() if value is not None]
    if m.latency_ms.p99_upper is not None:
        parts.append(f"p99 at most {format_ms(m.latency_ms.p99_upper)} (99 % sure)")
    needed = {_spelled(name): count for name, count in m.conditions["needed_queries"].items()}
    if needed:
        parts.append(f"{', '.join(needed)} take {', '.join(f'{count:,}' for count in needed.values())} queries")
    return ", ".join(parts)


def _spelled(name: str) -> str:
    return name.replace("_", ".")


def _shape(m: Measurement) -> str:
    from deploykit.base.units import format_ms
    from deploykit.bench.stats import histogram_bars

    quantiles = m.conditions["quantiles_ms"]
    return f"{format_ms(quantiles[0])} {histogram_bars(quantiles)} {format_ms(quantiles[-2])}"


def _worth(found: Comparison) -> str:
    """Whether the lower precision pays, with its interval where one is known."""
    if found.speedup is None:
        return ""
    ratio = f"{found.speedup:.2f}"
    if found.interval is not None:
        ratio += f" ({found.interval[0]:.2f} to {found.interval[1]:.2f})"
    words = {
        "faster": f"[green]{ratio} × as fast as fp32[/green]",
        "slower": f"[yellow]not worth it here: {ratio} × the speed of fp32[/yellow]",
        "same": f"[yellow]not worth it here: as fast as fp32, {ratio} ×[/yellow]",
    }
    return words.get(found.outcome, f"against fp32: {ratio} ×, {found.outcome} ({found.why})")
