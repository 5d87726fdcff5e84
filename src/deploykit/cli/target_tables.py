"""Operating points as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deploykit.targets.spec import TargetSpec

UNVERIFIED_MARK = "*"


def list_table(points: Sequence[TargetSpec]) -> RenderableType:
    """One row an operating point."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("target", no_wrap=True)
    table.add_column("device", overflow="ellipsis", no_wrap=True)
    for heading in ("SMs", "MHz", "GB", "GB/s", "INT8 TOPS", "DLA TOPS", "W"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in points:
        figures = (point.sm_count, point.gpu_mhz, point.memory_gb, point.bandwidth_gbs, point.int8_tops)
        more = (point.dla_int8_tops, point.power_w)
        table.add_row(point.ref, _marked_name(point), *(_number(figure) for figure in (*figures, *more)))
    marked = any(point.unverified for point in points)
    legend = Text(f"{UNVERIFIED_MARK} has figures that no source was found for: deploykit targets show", style="dim")
    return Group(table, legend) if marked else table


def show_table(point: TargetSpec, document: dict[str, Any]) -> RenderableType:
    """All that is known of one operating point.

    Args:
        point: The point.
        document: What `targets show --json` prints of it.
    """
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in (*_identity(point, document), *_figures(point), *_money(document), *_caveats(point, document)):
        facts.add_row(name, Text(text))
    return facts


def _identity(point: TargetSpec, document: dict[str, Any]) -> list[tuple[str, str]]:
    device = point.device
    rows = [("target", point.ref), ("device", f"{device.name} ({device.kind})")]
    if document["aliases"]:
        rows.append(("also called", ", ".join(document["aliases"])))
    if point.mode is not None:
        release = f", Jetson Linux {point.mode.l4t}" if point.mode.l4t else ""
        rows.append(("power mode", f"{point.mode.nvpmodel_name}, nvpmodel id {point.mode.id}{release}"))
    if point.profile is not None:
        rows.append(("MIG", f"{point.share_of_device:.0%} of the card, at most {point.profile.max_instances} on one"))
    return rows


def _figures(point: TargetSpec) -> list[tuple[str, str]]:
    chip = point.device.silicon
    compute = f", compute capability {chip.compute_capability}" if chip.compute_capability else ""
    figures = [
        ("SMs", point.sm_count, ""),
        ("GPU clock", point.gpu_mhz, "MHz"),
        ("memory", point.memory_gb, "GB"),
        ("bandwidth", point.bandwidth_gbs, "GB/s"),
        ("INT8 peak", point.int8_tops, "TOPS dense"),
        ("FP16 peak", point.fp16_tflops, "TFLOPS dense"),
        ("FP32 peak", point.fp32_tflops, "TFLOPS"),
        ("DLA INT8 peak", point.dla_int8_tops, "TOPS dense"),
        ("power limit", point.power_w, "W"),
    ]
    known = [(name, f"{_number(value)} {unit}".strip()) for name, value, unit in figures if value is not None]
    return [("chip", f"{chip.architecture}{compute}"), *known]


def _money(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Price quotes, one a line."""
    rows: list[tuple[str, str]] = []
    for quote in document["prices"]:
        count = f" for {quote['count']}" if quote["count"] > 1 else ""
        per = "" if quote["per"] == "once" else f"/{quote['per']}"
        flags = f" [{', '.join(quote['flags'])}]" if quote["flags"] else ""
        amount = f"{quote['amount']:g} {quote['currency']}{per}{count}"
        text = f"{amount}, {quote['kind']}, {quote['sku']}, {quote['seller']}{flags}"
        rows.append(("prices" if not rows else "", text))
    return rows


def _caveats(point: TargetSpec, document: dict[str, Any]) -> list[tuple[str, str]]:
    own = (point.device.silicon, point.mode, point.profile)
    notes = [block.note for block in own if block is not None and block.note]
    rows = [("unverified", ", ".join(point.unverified))] if point.unverified else []
    rows += [("note", note) for note in (*notes, *point.device.notes)]
    return rows + [("source", f"{source['citation']} ({source['trust']})") for source in document["sources"]]


def _marked_name(point: TargetSpec) -> str:
    name = point.device.name.removeprefix("NVIDIA ")
    return f"{name} {UNVERIFIED_MARK}" if point.unverified else name


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
