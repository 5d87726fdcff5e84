"""Hold-outs: what the predictor says of targets, silicon, networks and years that its fit never saw.

A split is a list of folds; a fold names the observations that are held out and those that stay as anchors. Never
random rows: the same cell would leak. Errors are judged on cells (target × network × scenario): the median over
rounds and submitters, as a user would look it up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.correction import (
    Codebook,
    Inputs,
    Posterior,
    Settings,
    condition,
    inputs,
    noise_class,
    noise_variance,
    tail_scale,
    use_of,
)
from deploykit.predict.intervals import HeldOutError, Rung, rung_of
from deploykit.predict.machine import Floats
from deploykit.predict.observe import Observation
from deploykit.predict.points import MLPERF, Point, analytic

JUDGED = (Scenario.OFFLINE, Scenario.SINGLE_STREAM, Scenario.MULTI_STREAM, Scenario.SERVER)
CORE = ("resnet50", "ssd-resnet34", "ssd-mobilenet", "retinanet", "bert-large-99", "3d-unet-brats", "3d-unet-kits19")
"""Networks with rows on many targets, whose layers are known rather than sketched."""
SILICON: dict[str, tuple[str, ...]] = {
    "TU104": ("t4",), "TU102": ("quadro-rtx-8000", "quadro-rtx-6000", "titan-rtx"), "GV100": ("v100",),
    "Xavier": ("xavier",), "Orin": ("orin",), "GA100": ("a100", "a30"),
    "GA102": ("a40", "a10", "rtx-3090", "rtx-a6000"),
    "GA107": ("a2", "a16"), "AD102": ("l40s", "rtx-4090", "rtx-6000-ada"), "AD104": ("l4", "rtx-4000-ada"),
    "AD107": ("rtx-2000e-ada",), "GH100": ("h100", "h200", "gh200"), "GB202": ("rtx-pro-6000", "rtx-5090"),
}  # fmt: skip
"""Die → how the slugs of its products begin."""
SPLIT_YEAR = 2022.9
"""Between MLPerf Inference v2.1 and v3.0."""


@dataclass(frozen=True)
class Fold:
    """One refit: observations that train and those that are judged, as indices."""

    name: str
    train: tuple[int, ...]
    test: tuple[int, ...]


@dataclass(frozen=True)
class Judged:
    """A cell that was predicted without having been seen.

    Attributes:
        fold: Which refit.
        target, network, scenario: The cell.
        error: log predicted − log measured, in time: positive is predicted too slow.
        spread: Predicted standard deviation of log, noise of one run included.
        rung: What the fit had seen.
        measured_ms: Median over rounds and submitters.
    """

    fold: str
    target: str
    network: str
    scenario: Scenario
    error: float
    spread: float
    rung: Rung
    measured_ms: float

    @property
    def score(self) -> float:
        """Absolute error in predicted spreads."""
        return abs(self.error) / self.spread


def silicon_of(target: str) -> str:
    """The die behind a target slug; a device that is not listed is its own."""
    device = target.split("@")[0].split(":")[0]
    matches = [(len(start), die) for die, starts in SILICON.items() for start in starts if device.startswith(start)]
    return max(matches)[1] if matches else device


class Trial:
    """Observations prepared once, to be refitted on many subsets under the same settings."""

    def __init__(self, rows: Sequence[Observation], settings: Settings) -> None:
        self.rows = rows
        self.points = [row.point for row in rows]
        self.settings = settings
        self._inputs = inputs(self.points, analytic(self.points, settings.constants), Codebook())
        self._measured = np.array([row.log_ms for row in rows])
        self._noise = noise_variance(self.points, [row.count for row in rows], settings.noise)

    def tails(self, train: Sequence[int]) -> Floats:
        """How much more noise each training row is given."""
        part, residual, noise = self._part(train)
        return tail_scale(part, residual, noise, self.settings.spread)

    @property
    def analytic_log_ms(self) -> Floats:
        """Speed of light of every row, log ms."""
        return self._inputs.log_ms

    @property
    def measured_log_ms(self) -> Floats:
        """What was measured of every row, log ms."""
        return self._measured

    @property
    def builds(self) -> Floats:
        """How each row's machine is built, [N, 8]."""
        return self._inputs.smooth["machine"]

    def _part(self, train: Sequence[int]) -> tuple[Inputs, Floats, Floats]:
        i = np.asarray(train)
        part = self._inputs.take(i)
        return part, self._measured[i] - part.log_ms, self._noise[i]

    def fitted(self, train: Sequence[int]) -> Posterior:
        """The process on a subset."""
        part, residual, noise = self._part(train)
        noise = noise * tail_scale(part, residual, noise, self.settings.spread)
        return condition(part, residual, noise, self.settings.spread)

    def judge(self, fold: Fold) -> list[Judged]:
        """Predict a fold's held-out cells."""
        question = self._inputs.take(fold.test)
        mean, spread, _ = self.fitted(fold.train).at(question)
        noise = np.array([self.settings.noise[noise_class(self.points[i])] for i in fold.test])
        return self.judge_with(fold, question.log_ms + mean, np.hypot(spread, noise))

    def judge_with(self, fold: Fold, predicted: Floats, spread: Floats) -> list[Judged]:
        """Compare any prediction of a fold's rows (log ms, [test]) with what was measured, by cell."""
        seen: dict[str, dict[str, str]] = defaultdict(dict)
        for i in fold.train:
            machine = self.points[i].machine
            seen[self.points[i].network.network][machine.ref] = machine.capability
        cells: dict[tuple[str, str, Scenario], list[int]] = defaultdict(list)
        for j, i in enumerate(fold.test):
            cells[_cell(self.points[i])].append(j)
        return [self._judged(fold, cell, members, predicted, spread, seen) for cell, members in cells.items()]

    def _judged(
        self, fold: Fold, cell: tuple[str, str, Scenario], members: list[int], predicted: Floats, spread: Floats,
        seen: Mapping[str, Mapping[str, str]],
    ) -> Judged:  # fmt: skip
        point = self.points[fold.test[members[0]]]
        counts = np.array([self.rows[fold.test[j]].count for j in members], dtype=float)
        measured = np.array([self.rows[fold.test[j]].log_ms for j in members])
        middle = _weighted_median(measured, counts)
        estimate = float(np.average(predicted[members], weights=counts))
        return Judged(
            fold=fold.name,
            target=cell[0],
            network=cell[1],
            scenario=cell[2],
            error=estimate - middle,
            spread=float(np.average(spread[members], weights=counts)),
            rung=rung_of(point.machine.ref, point.machine.capability, seen.get(point.network.network, {})),
            measured_ms=float(np.exp(middle)),
        )


def _cell(point: Point) -> tuple[str, str, Scenario]:
    """bert-large-99 and -99.9 are one network at two precisions, but two cells."""
    name = point.network.network if str(point.precision) == "int8" else f"{point.network.network} {point.precision}"
    return point.machine.ref, name, point.scenario


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def judged_rows(rows: Sequence[Observation], networks: Sequence[str] = CORE) -> list[int]:
    """Observations that errors are counted on: MLPerf runs, BERT at its INT8 accuracy target.

    The high-accuracy BERT rows are left out: they are filed as FP16, but ran FP8 on some cards from Hopper on.
    """
    return [
        i
        for i, row in enumerate(rows)
        if row.point.source == MLPERF
        and row.point.scenario in JUDGED
        and row.point.network.network in networks
        and not (row.point.network.network == "bert-large-99" and row.point.precision is not Precision.INT8)
    ]


def folds_by(
    rows: Sequence[Observation], key: Callable[[Point], str], networks: Sequence[str] = CORE
) -> Iterator[Fold]:
    """One fold a value of `key`: everything of that value is held out."""
    judged = set(judged_rows(rows, networks))
    for name in sorted({key(row.point) for row in rows}):
        test = tuple(i for i, row in enumerate(rows) if key(row.point) == name and i in judged)
        if test:
            yield Fold(name, tuple(i for i, row in enumerate(rows) if key(row.point) != name), test)


def by_target(rows: Sequence[Observation]) -> Iterator[Fold]:
    """One SKU (device, power mode, MIG slice) at a time."""
    return folds_by(rows, lambda point: point.machine.ref)


def by_silicon(rows: Sequence[Observation]) -> Iterator[Fold]:
    """All SKUs of one die at a time."""
    return folds_by(rows, lambda point: silicon_of(point.machine.ref))


def by_network(rows: Sequence[Observation]) -> Iterator[Fold]:
    """All rows of one network's family at a time, whatever the precision, batch or source."""
    return folds_by(rows, lambda point: point.network.family)


def by_generation(rows: Sequence[Observation]) -> Iterator[Fold]:
    """Targets first seen after v2.1, predicted from rounds up to v2.1."""
    first: dict[str, float] = {}
    for row in rows:
        if row.point.source == MLPERF:
            ref = row.point.machine.ref
            first[ref] = min(first.get(ref, row.point.year), row.point.year)
    new = {ref for ref, year in first.items() if year > SPLIT_YEAR}
    train = tuple(i for i, r in enumerate(rows) if r.point.machine.ref not in new and r.point.year < SPLIT_YEAR)
    known = {rows[i].point.network.network for i in train}
    test = [i for i in judged_rows(rows) if rows[i].point.machine.ref in new and rows[i].point.network.network in known]
    yield Fold("after v2.1", train, tuple(test))


def by_network_and_silicon(rows: Sequence[Observation]) -> Iterator[Fold]:
    """One network and one die at a time: neither the network elsewhere nor other networks on that die."""
    judged = judged_rows(rows)
    pairs = sorted({(rows[i].point.network.family, silicon_of(rows[i].point.machine.ref)) for i in judged})
    for family, die in pairs:
        test = tuple(i for i in judged if _is(rows[i].point, family) and silicon_of(rows[i].point.machine.ref) == die)
        train = tuple(
            i for i, r in enumerate(rows) if not _is(r.point, family) and silicon_of(r.point.machine.ref) != die
        )
        yield Fold(f"{family} on {die}", train, test)


def _is(point: Point, family: str) -> bool:
    return point.network.family == family


def by_anchors(rows: Sequence[Observation], count: int, repeats: int = 3, seed: int = 0) -> Iterator[Fold]:
    """One network and scenario at a time, of which only `count` random targets stay as anchors."""
    random = np.random.default_rng(seed)
    judged = judged_rows(rows)
    cases = sorted({(rows[i].point.network.network, str(rows[i].point.scenario)) for i in judged})
    for network, scenario in cases:
        mine = [
            i for i in judged if (rows[i].point.network.network, str(rows[i].point.scenario)) == (network, scenario)
        ]
        targets = sorted({rows[i].point.machine.ref for i in mine})
        family = rows[mine[0]].point.network.family
        for repeat in range(repeats):
            if len(targets) < count + 2:
                continue
            kept = set(random.choice(targets, count, replace=False))
            anchors = {i for i in mine if rows[i].point.machine.ref in kept}
            train = tuple(i for i, r in enumerate(rows) if not _is(r.point, family) or i in anchors)
            test = tuple(i for i in mine if rows[i].point.machine.ref not in kept)
            yield Fold(f"{network} {scenario} #{repeat}", train, test)


def by_slice(rows: Sequence[Observation]) -> Iterator[Fold]:
    """One MIG slice at a time; its whole card and the other cards' slices stay."""
    return (fold for fold in by_target(rows) if ":" in fold.name)


def by_clocks(rows: Sequence[Observation]) -> Iterator[Fold]:
    """Boards at clocks of their own (`… at 727 MHz`), predicted from the boards' modes."""
    judged = set(judged_rows(rows))
    train = tuple(i for i, row in enumerate(rows) if not row.point.machine.ref.endswith(" MHz"))
    test = tuple(i for i, row in enumerate(rows) if row.point.machine.ref.endswith(" MHz") and i in judged)
    yield Fold("clocks", train, test)


def by_use(rows: Sequence[Observation], groups: int = 4) -> Iterator[Fold]:
    """All latencies, Offline or Server rates of a quarter of the targets: what other scenarios on a target tell."""
    judged = judged_rows(rows)
    targets = sorted({row.point.machine.ref for row in rows})
    for group in range(groups):
        mine = set(targets[group::groups])
        for use in sorted({use_of(scenario) for scenario in JUDGED}):
            out = {i for i, r in enumerate(rows) if r.point.machine.ref in mine and use_of(r.point.scenario) == use}
            test = tuple(i for i in judged if i in out)
            yield Fold(f"{use} of group {group}", tuple(i for i in range(len(rows)) if i not in out), test)


def tails(rows: Sequence[Observation], settings: Settings) -> Floats:
    """How much more noise each row of the shipped table is given."""
    return Trial(rows, settings).tails(range(len(rows)))


def calibration_errors(rows: Sequence[Observation], settings: Settings) -> list[HeldOutError]:
    """Scores of hold-outs by scenario, target, silicon, network and with few anchors: what intervals are made of."""
    trial = Trial(rows, settings)
    folds = [*by_use(rows), *by_target(rows), *by_silicon(rows), *by_network(rows)]
    folds += [fold for count in (1, 2, 3) for fold in by_anchors(rows, count, repeats=1)]
    judged = [each for fold in folds for each in trial.judge(fold)]
    return [HeldOutError(each.rung, use_of(each.scenario), each.score) for each in judged]
