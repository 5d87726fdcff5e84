import csv
from pathlib import Path

import pytest

from deploykit.base.errors import UnknownNameError
from deploykit.targets.catalog import load_catalog
from deploykit.targets.published import PUBLISHED_ONLY, Placement, place

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("target", "device", "ref"),
    [
        ("t4", "t4", "t4"),
        ("a30:1g.6gb", "a30", "a30:1g.6gb"),
        ("orin-agx-64gb@maxn", "orin-agx-64gb", "orin-agx-64gb@maxn"),
        ("xavier-agx@maxn", "xavier-agx", "xavier-agx@maxn"),
        ("jetson-agx-orin-64gb@maxn", "orin-agx-64gb", "orin-agx-64gb@maxn"),
        # Less than an operating point:
        ("orin-agx-64gb", "orin-agx-64gb", None),
        ("orin-agx-64gb@maxq", "orin-agx-64gb", None),
        ("a100-sxm4-80gb@maxq", "a100-sxm4-80gb", None),
        ("xavier-nx@maxn", "xavier-nx", None),
        ("a30:1g.3gb", "a30", None),
        ("orin-agx", "orin-agx-64gb", None),
        ("a100", "a100-sxm4-80gb", None),
        ("a100-40gb", "a100-sxm4-40gb", None),
        # Not here:
        ("cpu-xeon-gold-6248-x2", None, None),
        ("titan-rtx", None, None),
        ("orin-x:dla", None, None),
    ],
)
def test_where_a_published_row_belongs(target: str, device: str | None, ref: str | None) -> None:
    placement = place(target, load_catalog())
    assert (placement.device, placement.ref) == (device, ref)
    assert bool(placement.why) == (ref is None)


def test_the_reason_says_what_is_missing() -> None:
    catalog = load_catalog()
    assert "MaxQ is no fixed mode" in place("l4@maxq", catalog).why
    assert "no power mode maxn" in place("xavier-nx@maxn", catalog).why
    assert "no MIG profile 1g.3gb" in place("a30:1g.3gb", catalog).why
    assert "power mode of orin-agx-64gb is not stated" in place("orin-agx-64gb", catalog).why
    assert place("titan-rtx", catalog) == Placement(None, None, PUBLISHED_ONLY["titan-rtx"])


def test_a_spelling_of_nothing_is_an_error_with_neighbours() -> None:
    with pytest.raises(UnknownNameError) as caught:
        place("titan-rtxx", load_catalog())
    assert "titan-rtx" in caught.value.near


def test_every_published_target_belongs_somewhere() -> None:
    path = ROOT / "published" / "rows.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        targets = {row["target"] for row in csv.DictReader(stream)}
    placements = {target: place(target, load_catalog()) for target in targets}
    assert {text for text, found in placements.items() if found.ref} >= {"t4", "l4", "rtx-4090", "a30:1g.6gb"}
    # Nothing stands in the list without need.
    assert {text.partition(":")[0] for text in targets} >= set(PUBLISHED_ONLY)


def test_nothing_published_only_is_a_target() -> None:
    assert not set(PUBLISHED_ONLY) & set(load_catalog().files)
