"""Every way of holding out, each judged under settings that were fitted without what it holds out.

Offline work, for the report on the predictor's errors; needs scipy. A refit starts from the priors, never from the
shipped settings, so nothing of the held-out rows can stay in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context

from deploykit.predict import holdout
from deploykit.predict.baselines import BASELINES
from deploykit.predict.correction import Settings
from deploykit.predict.fitting import fit_constants, fit_settings
from deploykit.predict.holdout import Fold, Judged, Trial
from deploykit.predict.observe import Observation
from deploykit.predict.published import published_observations, reclocked_observations
from deploykit.predict.training import read_fitted

ONE_SKU = "one SKU"
ONE_SILICON = "all SKUs of the silicon"
NEXT_GENERATION = "next generation (first seen after v2.1)"
NO_ANCHOR = "new network, no anchor"
ONE_ANCHOR = "new network, 1 anchor"
BOTH = "network and silicon together"
POWER_MODE = "a Jetson power mode"
SLICE = "one MIG slice"
OTHER_SCENARIO = "another scenario of a known target"
_SHIPPED = "as shipped"


@dataclass(frozen=True)
class Split:
    """One way of holding out.

    Attributes:
        name: For the table.
        folds: Its folds.
        key: Fold and its rows → what the settings of its refit were fitted without.
        baselines: Whether they can answer at all: they need the network elsewhere.
    """

    name: str
    folds: Callable[[Sequence[Observation]], Iterable[Fold]]
    key: Callable[[Sequence[Observation], Fold], str]
    baselines: bool = False


def _silicon(rows: Sequence[Observation], fold: Fold) -> str:
    return f"silicon {holdout.silicon_of(rows[fold.test[0]].point.machine.ref)}"


def _network(rows: Sequence[Observation], fold: Fold) -> str:
    return f"network {rows[fold.test[0]].point.network.family}"


def _newer(rows: Sequence[Observation], fold: Fold) -> str:
    return "newer targets"


def _anchored(count: int) -> Callable[[Sequence[Observation]], Iterable[Fold]]:
    return lambda rows: holdout.by_anchors(rows, count)


SPLITS = (
    Split(OTHER_SCENARIO, holdout.by_use, lambda rows, fold: _SHIPPED),
    Split(ONE_SKU, holdout.by_target, _silicon, True),
    Split(ONE_SILICON, holdout.by_silicon, _silicon, True),
    Split(NEXT_GENERATION, holdout.by_generation, _newer, True),
    Split(NO_ANCHOR, holdout.by_network, _network),
    Split(ONE_ANCHOR, _anchored(1), _network),
    Split("new network, 2 anchors", _anchored(2), _network),
    Split("new network, 3 anchors", _anchored(3), _network),
    Split(BOTH, holdout.by_network_and_silicon, _network),
    Split(SLICE, holdout.by_slice, _silicon, True),
    Split(POWER_MODE, holdout.by_clocks, lambda rows, fold: _SHIPPED),
)
"""`another scenario` and `power mode` use the shipped settings: the former is no new case, and the latter's rows are
not among those that the settings were fitted to."""


@dataclass
class _Task:
    """The folds that share a refit: (split, number of the fold)."""

    key: str
    folds: list[tuple[str, int]] = field(default_factory=list)


@lru_cache(maxsize=1)
def all_rows() -> tuple[Observation, ...]:
    """The training rows, and behind them the reclocked ones, which only `power mode` judges."""
    return (*published_observations()[0], *reclocked_observations())


@lru_cache(maxsize=1)
def training_rows() -> tuple[Observation, ...]:
    """The rows that the predictor learns from."""
    return tuple(published_observations()[0])


def _rows_of(split: Split) -> tuple[Observation, ...]:
    return all_rows() if split.name == POWER_MODE else training_rows()


@lru_cache(maxsize=len(SPLITS))
def _folds(name: str) -> tuple[Fold, ...]:
    split = next(split for split in SPLITS if split.name == name)
    return tuple(split.folds(_rows_of(split)))


def judge(names: Sequence[str], nested: bool, workers: int = 2) -> dict[str, list[Judged]]:
    """Predict what each split holds out.

    Args:
        names: Of splits.
        nested: Refit the settings for each fold without what it holds out; else under the shipped ones.
        workers: Processes.

    Returns:
        Split → held-out cells; baselines under `split: baseline`.
    """
    tasks: dict[str, _Task] = {}
    for split in (split for split in SPLITS if split.name in names):
        for number, fold in enumerate(_folds(split.name)):
            key = split.key(_rows_of(split), fold) if nested else _SHIPPED
            group = f"{key} {split.name}" if key == _SHIPPED else key
            tasks.setdefault(group, _Task(key)).folds.append((split.name, number))
    found: dict[tuple[str, int, str], list[Judged]] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for some in pool.map(_done, tasks.values()):
            found.update(some)
    result: dict[str, list[Judged]] = {}
    order = [split.name for split in SPLITS]
    for name, number, who in sorted(found, key=lambda key: (order.index(key[0]), key[2] != "", key[2], key[1])):
        result.setdefault(f"{name}: {who}" if who else name, []).extend(found[name, number, who])
    return result


def _done(task: _Task) -> dict[tuple[str, int, str], list[Judged]]:
    """Judge the folds of one refit; runs in a worker."""
    settings = read_fitted().settings if task.key == _SHIPPED else _refitted(task.key)
    found: dict[tuple[str, int, str], list[Judged]] = {}
    trials: dict[bool, Trial] = {}
    for name, number in task.folds:
        split = next(split for split in SPLITS if split.name == name)
        extra = name == POWER_MODE
        if extra not in trials:
            trials[extra] = Trial(_rows_of(split), settings)
        fold = _folds(name)[number]
        found[name, number, ""] = trials[extra].judge(fold)
        for who, baseline in BASELINES.items() if split.baselines else ():
            found[name, number, who] = baseline(trials[extra], fold)
    return found


def _refitted(key: str) -> Settings:
    rows = kept(training_rows(), key)
    return fit_settings(rows, fit_constants(rows))


def kept(rows: Sequence[Observation], key: str) -> list[Observation]:
    """The rows that a refit may see."""
    kind, _, name = key.partition(" ")
    if kind == "silicon":
        return [row for row in rows if holdout.silicon_of(row.point.machine.ref) != name]
    if kind == "network":
        return [row for row in rows if row.point.network.family != name]
    (fold,) = holdout.by_generation(rows)
    return [rows[i] for i in fold.train]
