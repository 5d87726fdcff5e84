"""Scores of held-out predictions: errors, bias, coverage, decisions. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.predict.correction import use_of
from deploykit.predict.holdout import Judged
from deploykit.predict.intervals import HeldOutError, multiplier, quantiles
from deploykit.predict.machine import Floats

COVERAGE_LEVELS = (0.5, 0.8, 0.9)
_DRAWS = 400
_THRESHOLDS = 25
_ROUNDING = 1e-9

Quantiles = Mapping[str, Mapping[float, float]]


@dataclass(frozen=True)
class Summary:
    """Errors of one split and scenario, as fractions: 0.1 is 10 %.

    Attributes:
        cells: How many cells.
        targets: On how many targets.
        mape, median, p90: Of |predicted ÷ measured − 1|.
        low, high: 90 % range of the MAPE when targets are drawn anew with replacement.
        bias: exp(mean log error) − 1; positive is predicted too slow.
        rms_log: Root mean square log error.
        coverage: Level → share of cells inside the interval.
        width: Median factor from the middle of the 90 % interval to its end.
        worst: The five largest errors, by name.
    """

    cells: int
    targets: int
    mape: float
    median: float
    p90: float
    low: float
    high: float
    bias: float
    rms_log: float
    coverage: Mapping[float, float]
    width: float
    worst: tuple[str, ...]


def summary(judged: Sequence[Judged], tables: Mapping[str, Quantiles] | None = None) -> Summary:
    """Score cells.

    Args:
        judged: Held-out cells of one split and scenario.
        tables: Fold → interval multipliers that were calibrated without it; None: no intervals (a baseline).
    """
    error = np.array([each.error for each in judged])
    size = np.abs(np.expm1(error))
    low, high = _bootstrap(judged, size)
    return Summary(
        cells=len(judged),
        targets=len({each.target for each in judged}),
        mape=float(size.mean()),
        median=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        low=low,
        high=high,
        bias=float(np.expm1(error.mean())),
        rms_log=float(np.sqrt((error**2).mean())),
        coverage={level: _covered(judged, tables, level) for level in COVERAGE_LEVELS} if tables else {},
        width=_width(judged, tables) if tables else float("nan"),
        worst=tuple(_named(judged[i]) for i in np.argsort(-np.abs(error))[:5]),
    )


def _named(each: Judged) -> str:
    return f"{each.network} on {each.target} {np.expm1(each.error):+.0%}"


def _bootstrap(judged: Sequence[Judged], size: Floats) -> tuple[float, float]:
    """5th and 95th percentile of the mean when whole targets are drawn."""
    by_target: dict[str, list[float]] = defaultdict(list)
    for each, value in zip(judged, size, strict=True):
        by_target[each.target].append(float(value))
    groups = [np.array(values) for values in by_target.values()]
    random = np.random.default_rng(0)
    means = [
        float(np.concatenate([groups[i] for i in random.integers(0, len(groups), len(groups))]).mean())
        for _ in range(_DRAWS)
    ]
    return float(np.quantile(means, 0.05)), float(np.quantile(means, 0.95))


def reach(each: Judged, tables: Mapping[str, Quantiles], level: float) -> float:
    """Half width of a cell's two-sided interval, in log."""
    return each.spread * multiplier(tables[each.fold], each.rung, use_of(each.scenario), level)


def _covered(judged: Sequence[Judged], tables: Mapping[str, Quantiles], level: float) -> float:
    return float(np.mean([abs(each.error) <= reach(each, tables, level) for each in judged]))


def _width(judged: Sequence[Judged], tables: Mapping[str, Quantiles]) -> float:
    return float(np.exp(np.median([reach(each, tables, 0.9) for each in judged])))


def leave_fold_out(judged: Sequence[Judged], calibration: Sequence[Judged]) -> dict[str, Quantiles]:
    """Fold → interval multipliers from calibration errors that share nothing with what the fold holds out.

    Args:
        judged: Cells whose folds need multipliers.
        calibration: Held-out errors to calibrate on.

    Returns:
        For a fold of one network: from errors of other networks; for any other: from errors on other targets.
    """
    folds: dict[str, list[Judged]] = defaultdict(list)
    for each in judged:
        folds[each.fold].append(each)
    return {fold: quantiles(_scores(cells, calibration)) for fold, cells in folds.items()}


def _scores(cells: Sequence[Judged], calibration: Sequence[Judged]) -> Iterator[HeldOutError]:
    networks, targets = {each.network for each in cells}, {each.target for each in cells}
    for other in calibration:
        shared = other.network in networks if len(networks) == 1 and len(targets) > 1 else other.target in targets
        if not shared:
            yield HeldOutError(other.rung, use_of(other.scenario), other.score)


@dataclass(frozen=True)
class Decisions:
    """Verdicts over a grid of limits, as shares of all decisions.

    Attributes:
        wrong_accepts: Said to meet the limit, and does not.
        wrong_rejects: Said to miss it, and meets it.
    """

    wrong_accepts: float
    wrong_rejects: float


def decisions(judged: Sequence[Judged], tables: Mapping[str, Quantiles] | None, one_sided: float = 0.9) -> Decisions:
    """Accept a target where the predicted time is within a limit, for limits over each network's measured range.

    Args:
        judged: Held-out cells.
        tables: Interval multipliers: the one-sided bound decides; None: the point estimate does.
        one_sided: Level of the bound.
    """
    accepts: list[bool] = []
    rejects: list[bool] = []
    for cells in _cases(judged):
        measured = np.log([each.measured_ms for each in cells])
        said = measured + [_said(each, tables, one_sided) for each in cells]
        for limit in np.linspace(measured.min(), measured.max(), _THRESHOLDS):
            accepts += ((said <= limit) & (measured > limit + _ROUNDING)).tolist()
            rejects += ((said > limit) & (measured <= limit + _ROUNDING)).tolist()
    return Decisions(float(np.mean(accepts)), float(np.mean(rejects)))


@dataclass(frozen=True)
class Regret:
    """What choosing by prediction costs, over a grid of limits that some priced target holds.

    Attributes:
        cases: Limits.
        no_pick: Share where no target was said to hold the limit.
        wrong_pick: Share where the cheapest that was said to hold it does not.
        ratio: Mean over the other cases of price of the pick ÷ price of the cheapest target that holds the limit.
    """

    cases: int
    no_pick: float
    wrong_pick: float
    ratio: float


def cost_regret(
    judged: Sequence[Judged],
    tables: Mapping[str, Quantiles] | None,
    price: Mapping[str, float],
    one_sided: float = 0.9,
) -> Regret:
    """Pick the cheapest target that is said to be within a limit, for limits over each network's measured range.

    Args:
        judged: Held-out cells; those on targets without a price are left out.
        tables: Interval multipliers: the one-sided bound decides; None: the point estimate does.
        price: Target → cost of one unit, any currency.
        one_sided: Level of the bound.
    """
    ratios: list[float | None] = []
    for cells in _cases(each for each in judged if each.target in price):
        measured = np.log([each.measured_ms for each in cells])
        cost = np.array([price[each.target] for each in cells])
        said = measured + [_said(each, tables, one_sided) for each in cells]
        for limit in np.linspace(measured.min(), measured.max(), _THRESHOLDS):
            picks = np.flatnonzero(said <= limit)
            pick = int(picks[np.argmin(cost[picks])]) if len(picks) else None
            best = cost[measured <= limit + _ROUNDING].min()
            right = pick is not None and bool(measured[pick] <= limit + _ROUNDING)
            ratios.append(None if pick is None else float(cost[pick] / best) if right else float("nan"))
    made = np.array([ratio for ratio in ratios if ratio is not None])
    wrong = np.isnan(made)
    return Regret(
        cases=len(ratios),
        no_pick=1.0 - len(made) / len(ratios),
        wrong_pick=float(wrong.sum() / len(ratios)),
        ratio=float(made[~wrong].mean()),
    )


def _cases(judged: Iterable[Judged]) -> list[list[Judged]]:
    """Cells of one network and scenario."""
    by_case: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for each in judged:
        by_case[each.network, str(each.scenario)].append(each)
    return list(by_case.values())


def _said(each: Judged, tables: Mapping[str, Quantiles] | None, one_sided: float) -> float:
    """Log of what a verdict is made on ÷ measured."""
    return each.error + (reach(each, tables, 2 * one_sided - 1) if tables else 0.0)
