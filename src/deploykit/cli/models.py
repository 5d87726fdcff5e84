"""`deploykit models`: the model cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from deploykit.sources.card import CardPreprocessing, ModelCard

app = typer.Typer(name="models", help="What can be exported by name.", no_args_is_help=True)


@app.command("list")
def list_models(
    task: Annotated[str | None, typer.Option(help="Only models of this task, such as classification.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the model cards, deploykit's own and those in ./models.

    Example: deploykit models list --task detection
    """
    from deploykit.base.errors import UnknownNameError
    from deploykit.cli.output import emit
    from deploykit.sources import all_cards

    cards = all_cards()
    tasks = sorted({card.task for card in cards})
    if task is not None and task not in tasks:
        raise UnknownNameError("task", task, tasks, f"cards have {', '.join(tasks)}")
    chosen = [card for card in cards if task in (None, card.task)]
    emit({"models": [card.model_dump(mode="json") for card in chosen]}, lambda: _table(chosen), as_json=as_json)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A card's name, as `deploykit models list` shows it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show one model card with its sources.

    Example: deploykit models show resnet50
    """
    from deploykit.cli.output import emit
    from deploykit.sources import find_card

    card = find_card(name)
    emit(card, lambda: _details(card), as_json=as_json)


def _table(cards: list[ModelCard]) -> RenderableType:
    from rich.table import Table

    table = Table()
    table.add_column("model", no_wrap=True)
    for heading in ("task", "input", "parameters", "top-1", "description"):
        table.add_column(heading)
    for card in cards:
        table.add_row(
            card.name,
            card.task,
            _shape(card.inputs[0].shape),
            _millions(card.parameters),
            f"{card.top1.value:.1f} %" if card.top1 else "–",
            card.description,
        )
    return table


def _details(card: ModelCard) -> RenderableType:
    from rich.table import Table

    table = Table(show_header=False, title=card.name, title_justify="left")
    for label, value in _rows(card):
        table.add_row(label, value)
    return table


def _rows(card: ModelCard) -> list[tuple[str, str]]:
    rows = [
        ("description", card.description),
        ("task", card.task),
        ("source", f"{card.source.kind}: {card.source.model}"),
        ("default weights", f"{card.weights.name or 'none'} ({card.weights.source})"),
        ("license", card.license),
        *((f"input {entry.name}", f"{entry.dtype} {_shape(entry.shape)}") for entry in card.inputs),
        ("parameters", _millions(card.parameters)),
        ("top-1", f"{card.top1.value:.2f} % ({card.top1.source})" if card.top1 else "–"),
        ("default calibration", card.default_calibration or "none: give --calibration-data"),
        ("published as", card.published_name or "–"),
    ]
    if card.preprocessing is not None:
        rows.insert(-1, ("preprocessing", _preprocessing(card.preprocessing)))
    return rows


def _preprocessing(how: CardPreprocessing) -> str:
    height, width = how.size
    resize = (
        f"squeezed to {height}x{width}" if how.resize is None else f"shorter side {how.resize}, crop {height}x{width}"
    )
    return (
        f"{resize}, {how.interpolation}, pixels 0 to {how.scale_to:g}, mean {_numbers(how.mean)}, "
        f"std {_numbers(how.std)} ({how.source})"
    )


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _shape(shape: tuple[int | str, ...]) -> str:
    return "x".join(str(size) for size in shape)


def _millions(parameters: int | None) -> str:
    return f"{parameters / 1e6:.1f} M" if parameters is not None else "–"
