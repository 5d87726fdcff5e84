"""`deploykit predict`: latency and throughput of a model on hardware that nobody measured, with an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploykit.base.vocab import Precision, Scenario

if TYPE_CHECKING:
    from rich.console import RenderableType

    from deploykit.predict.answer import Prediction, Refusal
    from deploykit.predict.curves import Curve


_NO_ANSWER = 3


def predict(
    model: Annotated[
        str, typer.Argument(help="A model name (`resnet50`, `bert-large-99`), an artifact folder or an .onnx file.")
    ],
    target: Annotated[
        list[str], typer.Option("--target", "-t", help="Target reference, a target file, or `all`. May be repeated.")
    ],
    batch: Annotated[
        int | None, typer.Option("--batch", "-b", min=1, help="Samples a query; with it the scenario is FixedBatch.")
    ] = None,
    scenario: Annotated[Scenario | None, typer.Option(help="MLPerf scenario; default SingleStream.")] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Of the engine; default what the model's published runs use.")
    ] = None,
    limit_ms: Annotated[float | None, typer.Option("--latency-ms", help="Latency limit of a Server rate, ms.")] = None,
    level: Annotated[float, typer.Option(min=0.5, max=0.99, help="Two-sided level of the intervals.")] = 0.9,
    input_shape: Annotated[
        list[str] | None,
        typer.Option("--input", help="NAME:1x3x480x640, where the graph leaves more than the batch open."),
    ] = None,
    curve: Annotated[bool, typer.Option(help="Also show latency and rate over batch sizes (one target).")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Predict latency and throughput on targets that nobody measured, with an honest interval.

    Own measurements in the result store anchor the answer. Exit code 3 where no target gets one.

    Example: deploykit predict resnet50 --target orin-30w --precision int8
    """
    from deploykit.cli.output import emit
    from deploykit.predict.answer import Prediction
    from deploykit.predict.report import answers, as_document

    asked = scenario or (Scenario.FIXED_BATCH if batch else Scenario.SINGLE_STREAM)
    result = answers(
        model, target, precision=precision, scenario=asked, batch_size=batch, limit_ms=limit_ms, level=level,
        shapes=tuple(input_shape or ()), curve=curve,
    )  # fmt: skip
    emit(as_document(result), lambda: _render(result.rows, result.curve), as_json=as_json)
    if not any(isinstance(row, Prediction) for row in result.rows):
        raise typer.Exit(_NO_ANSWER)


def _render(rows: list[Prediction | Refusal], curve: Curve | None) -> RenderableType:
    from rich.console import Group

    from deploykit.predict.answer import Prediction

    answers = [row for row in rows if isinstance(row, Prediction)]
    parts: list[Any] = [_table(answers)] if answers else []
    parts += [
        f"{row.target}: no answer: {row.reason} ({row.next_measurement})"
        for row in rows
        if not isinstance(row, Prediction)
    ]
    if curve is not None:
        parts.append(_curve(curve))
    return Group(*parts)


def _table(rows: list[Prediction]) -> RenderableType:
    from rich.table import Table

    table = Table("target", "scenario", "precision", box=None, pad_edge=False)
    interval = f"{rows[0].level:.0%} interval" if rows else "interval"
    for head in ("batch", "ms", interval, "samples/s", "confidence"):
        table.add_column(head, justify="left" if head == "confidence" else "right")
    for row in rows:
        ms, rate = row.latency_ms, row.throughput_ips
        table.add_row(
            row.target, str(row.scenario), str(row.precision), str(row.batch_size), f"{ms.value:.3g}",
            f"{ms.low:.3g} – {ms.high:.3g}", f"{rate.value:.4g}", str(row.confidence),
        )  # fmt: skip
    return table


_BAR = 40


def _curve(curve: Curve) -> RenderableType:
    from rich.table import Table

    title = f"{curve.model} on {curve.target}, {curve.precision}, one batch after the other"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in ("batch", "ms", f"{curve.level:.0%} interval", "samples/s"):
        table.add_column(head, justify="right")
    table.add_column("")
    rates = {batch: 1000.0 * batch / ms.value for batch, ms in curve.service_ms.items()}
    best = max(rates.values())
    for batch, ms in curve.service_ms.items():
        bar = "█" * max(1, round(_BAR * rates[batch] / best))
        table.add_row(str(batch), f"{ms.value:.3g}", f"{ms.low:.3g} – {ms.high:.3g}", f"{rates[batch]:.4g}", bar)
    return table
