"""`deploykit recommend`: the cheapest target that meets an SLA, and what stands behind the answer."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploykit.base.vocab import Precision

if TYPE_CHECKING:
    from deploykit.cost.model import Assumptions
    from deploykit.recommend.question import Question


class ObjectiveOption(str, Enum):
    """What `--objective` takes."""

    MONTHLY = "monthly"
    CAPEX = "capex"
    CLOUD = "cloud"


def recommend(
    latency_ms: Annotated[
        str | None, typer.Option("--latency-ms", metavar="MS", help="Limit on the latency of a request, under load.")
    ] = None,
    fps: Annotated[
        str | None, typer.Option("--fps", metavar="RATE", help="Samples/s to serve, all units together.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="Card or published name. Default: exported or measured last, else resnet50.")
    ] = "",
    percentile: Annotated[str, typer.Option(help="That the latency limit is at: p50 to p99.9.")] = "p99",
    precision: Annotated[Precision | None, typer.Option(help="Only this one.")] = None,
    objective: Annotated[
        ObjectiveOption, typer.Option(help="Cheapest by the month, by the purchase, or rented.")
    ] = ObjectiveOption.MONTHLY,
    target: Annotated[
        list[str] | None, typer.Option("--target", "-t", help="Look only at this one; may be repeated.")
    ] = None,
    power_w: Annotated[str | None, typer.Option("--power-w", metavar="W", help="Limit on all units together.")] = None,
    budget_usd: Annotated[
        str | None, typer.Option("--budget-usd", metavar="USD", help="Limit on the purchase of all units.")
    ] = None,
    strict_sla: Annotated[bool, typer.Option("--strict-sla", help="Only `meets` wins, not `likely`.")] = False,
    prices: Annotated[
        Path | None, typer.Option(help="Your own prices, CSV, JSON or YAML; they replace ours of the same devices.")
    ] = None,
    life_years: Annotated[float | None, typer.Option(min=0.1, help="A purchase is written off over.")] = None,
    host_usd: Annotated[float | None, typer.Option(min=0, help="Machine around one bare card.")] = None,
    tariff: Annotated[float | None, typer.Option(min=0, help="Electricity, USD/kWh.")] = None,
    pue: Annotated[float | None, typer.Option(min=1, help="Power usage effectiveness of the datacenter.")] = None,
    whole_card: Annotated[
        bool, typer.Option("--whole-card", help="MIG slices pay for whole cards: nothing else fills them.")
    ] = False,
    spot: Annotated[bool, typer.Option("--spot", help="Spot prices count.")] = False,
    top_n: Annotated[int, typer.Option(min=1, help="Options to show.")] = 8,
    all_: Annotated[bool, typer.Option("--all", help="Show every option and every rejected target.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, with all sources.")] = False,
) -> None:
    """Name the cheapest target that meets an SLA, from own and published measurements.

    Exits with 3 where no target does.

    Example: deploykit recommend --latency-ms 5 --fps 500
    """
    import os

    # The queueing model solves many small systems: one thread does that best, and on a busy machine far best.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from deploykit.base.errors import NoTargetMeetsSla
    from deploykit.cli.output import emit
    from deploykit.cli.recommendation_tables import answer_table
    from deploykit.cost.quotes import read_quotes
    from deploykit.recommend import Question
    from deploykit.recommend import recommend as answer_for
    from deploykit.recommend.sla import read_sla
    from deploykit.targets.catalog import resolve

    question = Question(
        sla=read_sla(latency_ms, fps, percentile, power_w=power_w, budget_usd=budget_usd, precision=precision),
        model=model,
        objective=objective.value,
        targets=tuple(resolve(text) for text in target or ()),
        strict=strict_sla,
        prices=read_quotes(prices) if prices else (),
        assumed=_assumed(life_years, host_usd, tariff, pue, whole_card, spot),
    )
    found = answer_for(question)
    emit(found, lambda: answer_table(found, None if all_ else top_n), as_json=as_json)
    if found.winner is None:
        raise NoTargetMeetsSla(_no(question, len(found.options), len(found.rejected)))


def _assumed(
    life_years: float | None,
    host_usd: float | None,
    tariff: float | None,
    pue: float | None,
    whole_card: bool,
    spot: bool,
) -> Assumptions:
    """The defaults, but for what was given."""
    import datetime as dt
    from dataclasses import replace

    from deploykit.cost.model import default_assumptions
    from deploykit.cost.quotes import energy_prices

    usual = default_assumptions(dt.datetime.now(dt.timezone.utc).date(), energy_prices())
    given = {"life_years": life_years, "host_usd": host_usd, "tariff_usd_per_kwh": tariff, "pue": pue}
    changed = {name: value for name, value in given.items() if value is not None}
    return replace(usual, whole_card=whole_card, spot=spot, **changed)  # type: ignore[arg-type]


def _no(question: Question, options: int, rejected: int) -> str:
    wanted = question.sla.describe()
    if options and question.strict:
        return f"no target is sure to meet {wanted}; {options} are likely to: leave --strict-sla out to rank them"
    if options:
        return (
            f"{options} targets meet {wanted}, but none has a price for --objective {question.objective}: see --prices"
        )
    return f"no target of {rejected} is known to meet {wanted}; the table says why each was left out"
