"""Fitting: the roofline's constants by penalised least squares, the correction's settings by marginal likelihood.

Offline work, for the scripts that make `data/fitted.json` and the hold-out tables; needs scipy. Answers never fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from deploykit.base.errors import MissingExtraError
from deploykit.base.vocab import Scenario
from deploykit.predict.correction import (
    DEFAULT_NOISE,
    DEFAULT_SPREAD,
    TERMS,
    Codebook,
    Inputs,
    Settings,
    inputs,
    noise_class,
    noise_scale,
    noise_variance,
    tail_scale,
    term_matrices,
    use_of,
)
from deploykit.predict.machine import Floats
from deploykit.predict.observe import Observation
from deploykit.predict.points import Point, analytic
from deploykit.predict.roofline import PRIOR_SPREAD, Constants

CONSTANT_NAMES = tuple(PRIOR_SPREAD)
_OFFSET_SPREAD = 0.3
_ROW_SPREAD = 0.12
_STEP = 0.02
_COARSE = frozenset({"dlrm", "dlrm-v2", "gptj-6b", "stable-diffusion-xl", "rnnt"})
"""Networks whose layers are a coarse description: their level says nothing of the constants."""
_ZOO_TRUST = 0.3
_SETTING_SPREAD = 1.0
_NOISE_SPREAD = 0.5


def _scipy_optimize() -> Any:
    try:
        from scipy import optimize
    except ImportError as error:
        raise MissingExtraError("scipy", "predict", "fitting the predictor") from error
    return optimize


def fit_constants(rows: Sequence[Observation], start: Constants | None = None, steps: int = 25) -> Constants:
    """The roofline's constants that explain latencies and Offline rates best, up to an offset per network.

    Args:
        rows: Training observations.
        start: Where the search begins; the prior stays at the defaults.
        steps: Most evaluations of the Jacobian.
    """
    used = [r for r in rows if r.point.scenario is not Scenario.SERVER and r.point.network.network not in _COARSE]
    if not used:
        return Constants()
    points = [row.point for row in used]
    measured = np.array([row.log_ms for row in used])
    levels = sorted({_level(point) for point in points})
    which = np.array([levels.index(_level(point)) for point in points])
    weight = _balance(used)

    own = len(CONSTANT_NAMES)

    def residuals(x: Floats) -> Floats:
        error = measured - analytic(points, _constants(x)).log_ms - _OFFSET_SPREAD * x[own:][which]
        return np.concatenate([weight * error / _ROW_SPREAD, x])

    def slopes(x: Floats) -> Floats:
        """Offsets enter linearly; the constants' slopes are differences."""
        here = analytic(points, _constants(x)).log_ms
        rows = np.zeros((len(points), len(x)))
        for i in range(own):
            there = analytic(points, _constants(x + _STEP * (np.arange(len(x)) == i))).log_ms
            rows[:, i] = (here - there) / _STEP
        rows[np.arange(len(points)), own + which] = -_OFFSET_SPREAD
        return np.concatenate([rows * (weight / _ROW_SPREAD)[:, None], np.eye(len(x))])

    first = np.zeros(len(CONSTANT_NAMES) + len(levels))
    if start is not None:
        first[: len(CONSTANT_NAMES)] = _position(start)
    best = _scipy_optimize().least_squares(residuals, first, slopes, loss="soft_l1", max_nfev=steps)
    return _constants(best.x)


def _level(point: Point) -> tuple[str, str]:
    """What shares an offset: a network; where samples differ in size, p90 of a query and the mean rate do not."""
    return point.network.network, use_of(point.scenario) if point.network.features.dynamic else ""


def _balance(rows: Sequence[Observation]) -> Floats:
    """A table with many batches of one network on one card counts as often as a single run, in root; other projects'
    tables, whose clocks and hosts nobody states, count a third."""
    keys = [(r.point.network.network, r.point.machine.ref, r.point.scenario, r.point.precision) for r in rows]
    counts = Counter(keys)
    trust = [_ZOO_TRUST if noise_class(row.point) == "zoo" else 1.0 for row in rows]
    return np.array([counts[key] ** -0.5 for key in keys]) * trust


def _constants(x: Floats) -> Constants:
    default = asdict(Constants())
    values = {name: default[name] * float(np.exp(PRIOR_SPREAD[name] * x[i])) for i, name in enumerate(CONSTANT_NAMES)}
    return replace(Constants(), **values)


def _position(constants: Constants) -> Floats:
    default, own = asdict(Constants()), asdict(constants)
    return np.array([np.log(own[name] / default[name]) / PRIOR_SPREAD[name] for name in CONSTANT_NAMES])


def fit_settings(
    rows: Sequence[Observation], constants: Constants, start: Settings | None = None, steps: int = 20
) -> Settings:
    """The correction's settings of highest marginal likelihood on these rows, with a wide prior on each.

    Twice: the second time with the noise of rows that nothing else agrees with widened, as answers will have it.

    Args:
        rows: Training observations.
        constants: The roofline's, fixed.
        start: Where the search begins.
        steps: Most iterations of each round.
    """
    points = [row.point for row in rows]
    question = inputs(points, analytic(points, constants), Codebook())
    residual = np.array([row.log_ms for row in rows]) - question.log_ms
    settings = start or Settings(constants, DEFAULT_SPREAD, DEFAULT_NOISE)
    tails = np.ones(len(rows))
    for _ in range(2):
        masks = {name: mask * tails for name, mask in _noise_masks(rows).items()}
        settings = _most_likely(_Evidence(question, residual, masks), settings, constants, steps)
        noise = noise_variance(points, [row.count for row in rows], settings.noise)
        tails = tail_scale(question, residual, noise, settings.spread)
    return settings


def _most_likely(objective: _Evidence, start: Settings, constants: Constants, steps: int) -> Settings:
    prior = np.log([*DEFAULT_SPREAD.values(), *DEFAULT_NOISE.values()])
    begin = np.log([*(start.spread[term] for term in TERMS), *(start.noise[name] for name in DEFAULT_NOISE)])
    best = _scipy_optimize().minimize(
        objective.loss_and_slope, begin, args=(prior,), jac=True, method="L-BFGS-B", options={"maxiter": steps},
        bounds=[(np.log(1e-3), np.log(1.5))] * len(begin),
    )  # fmt: skip
    values = np.exp(best.x)
    spread = {term: round(float(v), 4) for term, v in zip(TERMS, values, strict=False)}
    noise = {name: round(float(v), 4) for name, v in zip(DEFAULT_NOISE, values[len(TERMS) :], strict=True)}
    return Settings(constants, spread, noise)


def _noise_masks(rows: Sequence[Observation]) -> dict[str, Floats]:
    classes = [noise_class(row.point) for row in rows]
    scale = np.array([noise_scale(row.count) for row in rows])
    return {name: np.array([c == name for c in classes]) * scale for name in DEFAULT_NOISE}


class _Evidence:
    """Negative log posterior of the settings and its slope."""

    def __init__(self, question: Inputs, residual: Floats, masks: Mapping[str, Floats]) -> None:
        self._terms = list(term_matrices(question, question).values())
        self._residual = residual
        self._masks = list(masks.values())
        self._prior_spread = np.array([_SETTING_SPREAD] * len(self._terms) + [_NOISE_SPREAD] * len(self._masks))

    def loss_and_slope(self, logs: Floats, prior: Floats) -> tuple[float, Floats]:
        """At the logarithms of all standard deviations."""
        variance = np.exp(2.0 * logs)
        own, noise = variance[: len(self._terms)], variance[len(self._terms) :]
        covariance = sum(v * term for v, term in zip(own, self._terms, strict=True))
        diagonal = sum(v * mask for v, mask in zip(noise, self._masks, strict=True)) + 1e-6
        root = np.linalg.cholesky(covariance + np.diag(diagonal))
        inverse_root = np.linalg.inv(root)
        inverse = inverse_root.T @ inverse_root
        weights = inverse @ self._residual
        away = (logs - prior) / self._prior_spread
        loss = 0.5 * self._residual @ weights + np.log(np.diag(root)).sum() + 0.5 * away @ away
        gap = np.outer(weights, weights) - inverse
        slopes = [v * np.vdot(gap, term) for v, term in zip(own, self._terms, strict=True)]
        slopes += [v * np.vdot(np.diag(gap), mask) for v, mask in zip(noise, self._masks, strict=True)]
        return float(loss), -np.array(slopes) + away / self._prior_spread
