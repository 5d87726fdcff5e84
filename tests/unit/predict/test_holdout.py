"""Hold-outs keep what they say they keep away."""

from collections.abc import Sequence

import pytest

from deploykit.predict import holdout
from deploykit.predict.observe import Observation
from deploykit.predict.published import ASSUMED_MODE, BUILT_AS, UNLISTED, machine_named
from deploykit.predict.training import read_training
from deploykit.targets.catalog import load_catalog
from deploykit.targets.published import PUBLISHED_ONLY, place


@pytest.fixture(scope="module")
def rows() -> Sequence[Observation]:
    return read_training().rows


def test_no_fold_tests_a_row_that_it_trains_on(rows: Sequence[Observation]) -> None:
    splits = (holdout.by_target, holdout.by_silicon, holdout.by_network, holdout.by_generation, holdout.by_use,
              holdout.by_network_and_silicon, holdout.by_slice)  # fmt: skip
    for split in splits:
        for fold in split(rows):
            assert fold.test
            assert not set(fold.test) & set(fold.train)


def test_silicon_takes_every_sku_of_a_die_away(rows: Sequence[Observation]) -> None:
    folds = {fold.name: fold for fold in holdout.by_silicon(rows)}
    left = {rows[i].point.machine.ref for i in folds["GA100"].train}
    assert not [ref for ref in left if ref.startswith(("a100", "a30"))]
    assert "a40" in left


def test_a_network_goes_with_its_family_whatever_the_source(rows: Sequence[Observation]) -> None:
    folds = {fold.name: fold for fold in holdout.by_network(rows)}
    assert not [i for i in folds["bert"].train if rows[i].point.network.family == "bert"]


def test_anchors_are_the_only_rows_that_stay(rows: Sequence[Observation]) -> None:
    for fold in holdout.by_anchors(rows, 2):
        family = rows[fold.test[0]].point.network.family
        kept = {rows[i].point.machine.ref for i in fold.train if rows[i].point.network.family == family}
        assert len(kept) == 2
        assert not kept & {rows[i].point.machine.ref for i in fold.test}


def test_the_next_generation_is_predicted_from_older_rounds_and_targets(rows: Sequence[Observation]) -> None:
    (fold,) = holdout.by_generation(rows)
    assert max(rows[i].point.year for i in fold.train) < holdout.SPLIT_YEAR
    new = {rows[i].point.machine.ref for i in fold.test}
    assert {"h100-pcie-80gb", "l4", "l40s"} <= new
    assert not new & {rows[i].point.machine.ref for i in fold.train}


@pytest.mark.parametrize(
    ("target", "die"),
    [("t4", "TU104"), ("a30:1g.6gb", "GA100"), ("a10", "GA102"), ("l40s", "AD102"), ("l4", "AD104"),
     ("orin-nx-16gb@25w", "Orin"), ("nobodys-card", "nobodys-card")],
)  # fmt: skip
def test_a_die_is_found_by_the_longest_start(target: str, die: str) -> None:
    assert holdout.silicon_of(target) == die


def test_published_targets_are_placed_by_the_one_rule() -> None:
    catalog = load_catalog()
    for target in ("t4", "a30:1g.6gb", "orin-agx-64gb@maxn", "l4"):
        machine = machine_named(catalog, target)
        assert not isinstance(machine, str)
        assert machine.ref == place(target, catalog).ref


def test_what_no_target_is_can_still_be_learnt_from_under_its_own_name() -> None:
    catalog = load_catalog()
    assert {*UNLISTED, *BUILT_AS} <= set(PUBLISHED_ONLY)
    for target in (*UNLISTED, *BUILT_AS, "a100-40gb"):
        machine = machine_named(catalog, target)
        assert not isinstance(machine, str)
        assert machine.ref == target
        assert place(target, catalog).ref is None
    for target, mode in ASSUMED_MODE.items():
        assert place(target, catalog).ref is None
        assert catalog.resolve(mode).ref == mode


@pytest.mark.parametrize("target", ["xavier-nx", "orin-agx-64gb", "a30:1g.3gb", "orin-agx-64gb@maxq", "jetson-tx2"])
def test_rows_of_no_known_operating_point_teach_nothing(target: str) -> None:
    assert isinstance(machine_named(load_catalog(), target), str)
