"""A recommendation as people read it: the winner, what else there is, what was left out, what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from deploykit.base.units import format_ms, format_rate, format_usd, format_watts
from deploykit.base.vocab import Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

    from deploykit.recommend.answer import Flip, Option, Recommendation, Rejected

_COLOURS = {Verdict.MEETS: "green", Verdict.LIKELY: "yellow", Verdict.UNKNOWN: "dim", Verdict.FAILS: "red"}
_SOURCES_SHOWN = 3
_FAILED_SHOWN = 6
_UNKNOWN_SHOWN = 5
_QUANTITIES = {"fps": "/s", "latency_ms": " ms", "tariff_usd_per_kwh": " USD/kWh"}


def answer_table(found: Recommendation, most: int | None) -> RenderableType:
    """All of it.

    Args:
        found: The answer.
        most: Options to show; None: all, and every rejected target on a line of its own.
    """
    shown = found.options if most is None else found.options[:most]
    parts: list[RenderableType] = [_heading(found), ""]
    if found.winner is not None:
        parts += [*_winner(next(o for o in found.options if o.target == found.winner)), ""]
    if shown:
        parts += [_options(shown), *_left_off(len(found.options) - len(shown)), ""]
    parts += [*_rejected(found.rejected, everything=most is None), ""] if found.rejected else []
    parts += _changes(found.sensitivity, found.winner)
    if found.next_measurement:
        parts.append(f"next   {escape(found.next_measurement)}")
    parts.append("[dim]costs  " + "; ".join(map(escape, found.assumptions)) + "[/dim]")
    return Group(*parts)


def _heading(found: Recommendation) -> str:
    cheapest = {"monthly": "by the month", "capex": "by the purchase", "cloud": "rented"}[found.objective]
    note = f"\n[dim]{escape(found.model_note)}[/dim]" if found.model_note else ""
    return f"[bold]{escape(found.model)}[/bold], {escape(found.sla.describe())}, cheapest {cheapest}{note}"


def _winner(option: Option) -> list[RenderableType]:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("winner", f"[bold green]{escape(_what(option))}[/bold green]")
    rows.add_row("verdict", f"[{_COLOURS[option.verdict]}]{option.verdict}[/], {escape(option.why)}")
    if option.latency_ms is not None:
        low, high = format_ms(option.latency_ms.low), format_ms(option.latency_ms.high)
        load = f", {option.utilisation:.0%} of what it holds" if option.utilisation else ""
        rows.add_row("latency", f"{option.percentile} {format_ms(option.latency_ms.value)} ({low} to {high}){load}")
    if option.cost is not None:
        for name, text in _money(option):
            rows.add_row(name, text)
    rows.add_row("evidence", f"{option.provenance}, {_sources(option.sources)}")
    for remark in option.remarks[:2]:
        rows.add_row("", f"[dim]{escape(remark)}[/dim]")
    return [rows]


def _what(option: Option) -> str:
    units = f"{option.units} × " if option.units > 1 else ""
    how = " ".join(str(word) for word in (option.precision or "precision not stated", option.runtime) if word)
    return f"{units}{option.target} ({option.name}), {how}"


def _money(option: Option) -> list[tuple[str, str]]:
    cost = option.cost
    assert cost is not None
    parts = [f"{format_usd(cost.monthly_usd)} a month"]
    if cost.usd_per_million is not None:
        parts.append(f"{format_usd(cost.usd_per_million)} per million")
    if cost.capex_usd is not None:
        parts.append(f"{format_usd(cost.capex_usd)} to buy")
    flags = f" [yellow]{', '.join(cost.flags)}[/yellow]" if cost.flags else ""
    rows = [("cost", ", ".join(parts)), ("price", escape(cost.quote) + flags)]
    return [*rows, *(("", f"[dim]{escape(note)}[/dim]") for note in cost.notes)]


def _sources(sources: Sequence[str]) -> str:
    more = len(sources) - _SOURCES_SHOWN
    return escape("; ".join(sources[:_SOURCES_SHOWN])) + (f"; and {more} more (--json)" if more > 0 else "")


def _options(options: Sequence[Option]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("target", no_wrap=True)
    for name in ("units", "", options[0].percentile, "holds", "power", "a month", "per M", "to buy"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for option in options:
        table.add_row(*_row(option))
    return table


def _row(option: Option) -> list[str]:
    cost = option.cost
    doubtful = "*" if cost and cost.flags else ""
    return [
        escape(option.target),
        str(option.units),
        str(option.precision or "–"),
        format_ms(option.latency_ms.value if option.latency_ms else None),
        format_rate(option.throughput_ips.low),
        format_watts(option.power_w),
        format_usd(cost.monthly_usd) + doubtful if cost else "no price",
        format_usd(cost.usd_per_million) if cost else "–",
        (format_usd(cost.capex_usd) if cost.capex_usd is not None else "rent") if cost else "–",
        f"[{_COLOURS[option.verdict]}]{option.verdict}[/] [dim]{option.provenance}[/dim]",
    ]


def _left_off(count: int) -> list[str]:
    more = [f"[dim]and {count} more (--top-n, --all)[/dim]"] if count > 0 else []
    return [*more, "[dim]* the price is stale, undated or unverified: --json says which[/dim]"]


def _rejected(rejected: Sequence[Rejected], *, everything: bool) -> list[str]:
    """Those that fail, one a line; of those that nobody knows, how many."""
    failed = [found for found in rejected if found.verdict is Verdict.FAILS]
    unknown = sorted((f for f in rejected if f.verdict is not Verdict.FAILS), key=lambda f: f.why)
    shown = failed if everything else failed[:_FAILED_SHOWN]
    lines = [f"[red]fails[/red]    {escape(found.target)}: {escape(found.why)}" for found in shown]
    if len(shown) < len(failed):
        lines.append(f"[dim]         and {len(failed) - len(shown)} more that fail (--all)[/dim]")
    for why, group in groupby(unknown, key=lambda found: found.why):
        names = [found.target for found in group]
        some = names if everything else names[:_UNKNOWN_SHOWN]
        rest = f" and {len(names) - len(some)} more" if len(some) < len(names) else ""
        lines.append(f"[dim]unknown  {escape(why)}: {escape(', '.join(some))}{rest}[/dim]")
    return lines


def _changes(flips: Sequence[Flip], winner: str | None) -> list[str]:
    lines = []
    for flip in flips:
        side, other = ("below", flip.below) if flip.above == winner else ("from", flip.above)
        if winner not in (flip.below, flip.above):
            continue
        at = f"{flip.at:g}{_QUANTITIES.get(flip.quantity, '')}"
        lines.append(f"{side} {at} {escape(other or 'none meets it')}")
    return [f"changes  {'; '.join(lines)}"] if lines else []
