"""Where a published figure belongs: its target, as its table writes it, against the operating points of the catalogue.

A table often says less than a reference does: no power mode, "MaxQ" for whatever a submitter tuned, a card without its
variant. Such a row speaks of a device, but of none of its operating points, and is not to be taken for one.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploykit.base.errors import UnknownNameError
from deploykit.targets.catalog import Catalog
from deploykit.targets.ref import TargetRef, parse_ref
from deploykit.targets.spec import TargetFile

NO_FIGURES = "its silicon is not in the catalogue; describe it in targets/<name>.yaml to make it a target"
PUBLISHED_ONLY = {
    "a100-sxm4-80gb-cts": "an A100 with a custom thermal solution; " + NO_FIGURES,
    "a16": "four small GPUs on one card; " + NO_FIGURES,
    "jetson-nano-2gb": "the 2 GB Nano; " + NO_FIGURES,
    "orin-drive": "a DRIVE board, which is no Jetson; " + NO_FIGURES,
    "orin-x": "a DRIVE board, which is no Jetson; " + NO_FIGURES,
    "quadro-rtx-6000": NO_FIGURES,
    "quadro-rtx-8000": NO_FIGURES,
    "rtx-2000e-ada": NO_FIGURES,
    "rtx-4000-ada": NO_FIGURES,
    "rtx-pro-6000-blackwell-maxq": NO_FIGURES,
    "rtx-pro-6000-blackwell-server": NO_FIGURES,
    "titan-rtx": NO_FIGURES,
    "v100s-pcie-32gb": "a V100 with a higher clock and faster memory; " + NO_FIGURES,
}
"""Devices that others have measured and that are no targets → why."""
_CPU = "cpu-"


@dataclass(frozen=True)
class Placement:
    """What a published row's target is here.

    Attributes:
        device: Slug of the device; None where the catalogue has none.
        ref: Canonical reference of the operating point; None where the row does not name one of ours.
        why: Why there is no `ref` (or no `device`); empty where there is.
    """

    device: str | None
    ref: str | None
    why: str = ""


def place(target: str, catalog: Catalog) -> Placement:
    """Find the operating point that a published target is.

    Args:
        target: As the table writes it: `orin-agx-64gb@maxn`, `a30:1g.6gb`, `xavier-nx`.
        catalog: What it may be.

    Raises:
        UnknownNameError: Neither a device of the catalogue nor one of `PUBLISHED_ONLY`.
    """
    ref = parse_ref(target)
    if ref.device.startswith(_CPU):
        return Placement(None, None, "a CPU of somebody else's machine: only `host` is a CPU target")
    if ref.device in PUBLISHED_ONLY:
        return Placement(None, None, PUBLISHED_ONLY[ref.device])
    for file in catalog.files.values():
        if ref.device in file.published_as:
            return Placement(file.device, None, f"which {ref.device} is not stated; taken for {file.device}")
    return _on_device(ref, catalog.files[_slug(ref.device, catalog)])


def _slug(device: str, catalog: Catalog) -> str:
    """A slug, or a table's spelling of one; an alias of an operating point is no device."""
    try:
        return catalog.device_slug(device)
    except UnknownNameError as error:
        known = [*catalog.files, *PUBLISHED_ONLY]
        raise UnknownNameError("published device", device, known, "add it to targets/ or PUBLISHED_ONLY") from error


def _on_device(ref: TargetRef, file: TargetFile) -> Placement:
    if ref.profile is not None and ref.profile not in file.mig_profiles:
        return Placement(file.device, None, f"{file.device} has no MIG profile {ref.profile}")
    if ref.mode is None and file.power_modes:
        return Placement(file.device, None, f"the power mode of {file.device} is not stated")
    if ref.mode is not None and ref.mode not in file.power_modes:
        return Placement(file.device, None, _why_no_mode(ref.mode, file))
    return Placement(file.device, str(TargetRef(file.device, ref.mode, ref.profile)))


def _why_no_mode(mode: str, file: TargetFile) -> str:
    if mode == "maxq":
        return "MaxQ is no fixed mode: clocks and power limit were tuned for each run"
    return f"{file.device} has no power mode {mode}"
