"""`deploykit targets`: what a model can be sent to, and what is known of it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from deploykit.targets.spec import TargetSpec

app = typer.Typer(
    name="targets",
    help="The hardware a model can ship on: what it is, and what stands behind each figure.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_targets(
    kind: Annotated[
        str | None, typer.Option(help="Only this kind: jetson, desktop, workstation, datacenter or host.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Every operating point: each device, power mode and MIG slice.

    Example: deploykit targets list --kind jetson
    """
    from typing import get_args

    from deploykit.base.errors import UnknownNameError
    from deploykit.cli.output import emit
    from deploykit.cli.target_tables import list_table
    from deploykit.targets.catalog import load_catalog
    from deploykit.targets.spec import DeviceKind

    kinds = get_args(DeviceKind)
    if kind is not None and kind not in kinds:
        raise UnknownNameError("kind of target", kind, kinds, f"there are {', '.join(kinds)}")
    points = [point for point in load_catalog().all_points() if kind in (None, point.device.kind)]
    emit({"targets": [summary(point) for point in points]}, lambda: list_table(points), as_json=as_json)


@app.command("show")
def show_target(
    ref: Annotated[
        str, typer.Argument(help="DEVICE[@MODE][:PROFILE], an alias like orin-30w, or the path of a target file.")
    ],
    as_json: Json = False,
) -> None:
    """One operating point: its figures, their sources, and what is unverified.

    Example: deploykit targets show orin-30w
    """
    from deploykit.cli.output import emit
    from deploykit.cli.target_tables import show_table
    from deploykit.targets.catalog import resolve

    point = resolve(ref)
    plain = document(point)
    emit(plain, lambda: show_table(point, plain), as_json=as_json)


def summary(point: TargetSpec) -> dict[str, Any]:
    """The JSON of one operating point in a list."""
    return {
        "target": point.ref,
        "device": point.device.device,
        "name": point.device.name,
        "kind": point.device.kind,
        "power_mode": point.mode_name,
        "mig_profile": point.profile_name,
        "specs": specs(point),
    }


def document(point: TargetSpec) -> dict[str, Any]:
    """The JSON of `targets show`."""
    file = point.device.model_dump(mode="json")
    readings = [reading for reading in point.device.power_readings if _read_here(reading.mode, point)]
    return {
        **summary(point),
        "aliases": [alias for alias, ref in point.device.aliases.items() if _names(ref, point)],
        "silicon": file["silicon"],
        "mode": point.mode.model_dump(mode="json") if point.mode else None,
        "profile": point.profile.model_dump(mode="json") if point.profile else None,
        "power_readings": [reading.model_dump(mode="json") for reading in readings],
        "unverified": list(point.unverified),
        "notes": file["notes"],
        "prices": _prices(point),
        "sources": [{"key": key, **text} for key, text in file["sources"].items() if key in _cited(point)],
    }


def _prices(point: TargetSpec) -> list[dict[str, Any]]:
    """Quotes of the device, whole: a slice's share of one is `recommend`'s to work out."""
    from deploykit.cost.quotes import packaged_quotes, quotes_for

    today = dt.datetime.now(dt.timezone.utc).date()
    found = quotes_for(point.device.device, point.device.price_keys, packaged_quotes())
    return [
        {**quote.model_dump(mode="json"), "seller": quote.seller, "flags": list(quote.flags(today))} for quote in found
    ]


def specs(point: TargetSpec) -> dict[str, float | int | None]:
    """The figures that hold at an operating point; None: not known."""
    whole = {"ref", "device", "mode_name", "profile_name"}
    return point.model_dump(mode="json", exclude=whole)


def _names(ref: str, point: TargetSpec) -> bool:
    """Whether an alias means this point; one of the bare device means its default mode."""
    bare = point.profile_name is None and point.mode_name == point.device.default_mode
    return ref == point.ref or (bare and ref == point.device.device)


def _read_here(mode: str | None, point: TargetSpec) -> bool:
    return mode is None or mode == point.mode_name


def _cited(point: TargetSpec) -> set[str]:
    """Keys of the sources behind this operating point."""
    file = point.device
    readings = [reading for reading in file.power_readings if _read_here(reading.mode, point)]
    blocks = (file.silicon, file.memory, file.power, point.mode, point.profile, *readings)
    return {block.source for block in blocks if block is not None}
