"""What a spec sheet and a pocket calculator would say: the predictors that ours has to beat, on the same folds."""

from __future__ import annotations

import numpy as np

from deploykit.predict.correction import use_of
from deploykit.predict.holdout import Fold, Judged, Trial
from deploykit.predict.machine import OPS_PER_SM_CLOCK, Floats
from deploykit.predict.points import Point

_NEAREST = 3


def peak_ratio(trial: Trial, fold: Fold) -> list[Judged]:
    """Measured elsewhere × ratio of tensor peaks: the network's median constant over the training targets."""
    peaks = np.array([np.log(_peak(point)) for point in trial.points])
    constant = trial.measured_log_ms + peaks
    predicted = np.array([_median(constant, _alike(trial, fold, i)) - peaks[i] for i in fold.test])
    return _judged(trial, fold, predicted)


def nearest_targets(trial: Trial, fold: Fold) -> list[Judged]:
    """The utilisation of the three training targets that are built most alike."""
    peaks = np.array([np.log(_peak(point)) for point in trial.points])
    constant = trial.measured_log_ms + peaks
    predicted = np.array([_near(trial, constant, _alike(trial, fold, i), i) - peaks[i] for i in fold.test])
    return _judged(trial, fold, predicted)


def roofline(trial: Trial, fold: Fold) -> list[Judged]:
    """Our analytic time without any correction."""
    return _judged(trial, fold, trial.analytic_log_ms[list(fold.test)])


BASELINES = {"peak ratio": peak_ratio, "three nearest targets": nearest_targets, "plain roofline": roofline}


def _peak(point: Point) -> float:
    machine = point.machine
    return machine.sms * machine.mhz * OPS_PER_SM_CLOCK[machine.capability][point.precision]


def _alike(trial: Trial, fold: Fold, i: int) -> list[int]:
    """Training rows of the same network, scenario class and batch."""
    point = trial.points[i]
    same = (point.network.network, use_of(point.scenario), point.batch)
    return [
        j
        for j in fold.train
        if (trial.points[j].network.network, use_of(trial.points[j].scenario), trial.points[j].batch) == same
    ]


def _median(constant: Floats, rows: list[int]) -> float:
    return float(np.median(constant[rows])) if rows else float("nan")


def _near(trial: Trial, constant: Floats, rows: list[int], i: int) -> float:
    if not rows:
        return float("nan")
    distance = ((trial.builds[rows] - trial.builds[i]) ** 2).sum(1)
    return float(np.mean(constant[np.array(rows)[np.argsort(distance, kind="stable")[:_NEAREST]]]))


def _judged(trial: Trial, fold: Fold, predicted: Floats) -> list[Judged]:
    known = np.isfinite(predicted)
    test = tuple(i for i, keep in zip(fold.test, known, strict=True) if keep)
    return trial.judge_with(Fold(fold.name, fold.train, test), predicted[known], np.ones(len(test)))
