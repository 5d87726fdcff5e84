"""The learned correction: a Gaussian process on log(measured ÷ analytic), exact, in numpy.

The covariance is a sum of terms that each have one meaning (an offset per network, one per target, a surface over how
a machine is built and which bound a point sits on …); a term is a product of a few base kernels over four groups of
inputs. Every term's standard deviation is a setting of `data/fitted.json`, found by maximum marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploykit.base.vocab import Scenario
from deploykit.predict.kernels import Kind, ModelFeatures
from deploykit.predict.machine import Floats, Machine
from deploykit.predict.observe import CAREFUL_TABLES
from deploykit.predict.points import MLPERF, OWN, THROUGHPUT, Analytic, Point
from deploykit.predict.roofline import Constants

Codes = NDArray[np.int64]

LENGTHS = {"machine": 1.8, "bound": 0.6, "mix": 1.2, "year": 1.5}
"""Length scale of each group of standardised inputs."""

TERMS: dict[str, tuple[str, ...]] = {
    "constant": (),
    "network": ("=network",),
    "family": ("=family",),
    "mix": ("~mix",),
    "varying network×use": ("=network", "=use", "*varying"),
    "network×precision": ("=network", "=precision"),
    "machine": ("~machine",),
    "bound": ("~bound",),
    "machine×bound": ("~machine", "~bound"),
    "mix×machine": ("~mix", "~machine"),
    "family×machine": ("=family", "~machine"),
    "capability": ("=capability",),
    "capability×precision": ("=capability", "=precision"),
    "capability×bound": ("=capability", "~bound"),
    "network×capability": ("=network", "=capability"),
    "target": ("=target",),
    "target×network": ("=target", "=network"),
    "year": ("~year",),
    "network×year": ("=network", "~year"),
    "fresh": ("*fresh",),
    "network×fresh": ("=network", "*fresh"),
    "source": ("=source",),
    "network×source": ("=network", "=source"),
    "scenario": ("=scenario",),
    "network×scenario": ("=network", "=scenario"),
}
"""Term → its factors: `=x` 1 where x is the same, `~x` squared exponential in x, `*x` product of x."""

DEFAULT_SPREAD: dict[str, float] = {
    "constant": 0.1, "network": 0.2, "family": 0.1, "mix": 0.15, "varying network×use": 0.3,
    "network×precision": 0.1, "machine": 0.08, "bound": 0.15, "machine×bound": 0.25, "mix×machine": 0.12,
    "family×machine": 0.08, "capability": 0.05,
    "capability×precision": 0.15, "capability×bound": 0.06, "network×capability": 0.06, "target": 0.05,
    "target×network": 0.05, "year": 0.06, "network×year": 0.15, "fresh": 0.1,
    "network×fresh": 0.15, "source": 0.1, "network×source": 0.06, "scenario": 0.05, "network×scenario": 0.08,
}  # fmt: skip
"""Prior centre of each term's standard deviation, in log units: 0.1 is about 10 %."""

DEFAULT_NOISE: dict[str, float] = {
    "Offline": 0.06, "Server": 0.08, "SingleStream": 0.08, "MultiStream": 0.10, "table": 0.05, "zoo": 0.15, "own": 0.03,
}  # fmt: skip
"""Noise of one row: MLPerf by scenario, NVIDIA's own tables, other projects' tables, runs of ours."""

_SHARED_NOISE = 0.35
"""Share of a row's noise variance that repeating it does not average out."""
_HEAVY_TAIL = 4.0
"""Degrees of freedom of the noise: a row that nothing else agrees with loses its say."""
_HEAVY_ROUNDS = 3


@dataclass(frozen=True)
class Inputs:
    """N points as the covariance sees them."""

    codes: Mapping[str, Codes]
    smooth: Mapping[str, Floats]
    factors: Mapping[str, Floats]
    log_ms: Floats

    def __len__(self) -> int:
        return len(self.log_ms)

    def take(self, index: Sequence[int] | NDArray[np.int64]) -> Inputs:
        """Some of the points."""
        i = np.asarray(index, dtype=np.int64)
        return Inputs(
            {name: values[i] for name, values in self.codes.items()},
            {name: values[i] for name, values in self.smooth.items()},
            {name: values[i] for name, values in self.factors.items()},
            self.log_ms[i],
        )


class Codebook:
    """Words as numbers, the same number for the same word in training and in questions."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def codes(self, group: str, words: Sequence[str]) -> Codes:
        """A number for each word, new ones for new words."""
        numbers = self._numbers
        return np.array([numbers.setdefault((group, word), len(numbers)) for word in words], dtype=np.int64)


def inputs(points: Sequence[Point], light: Analytic, book: Codebook) -> Inputs:
    """What the covariance reads of points."""
    words = {
        "network": [p.network.network for p in points],
        "family": [p.network.family for p in points],
        "use": [use_of(p.scenario) for p in points],
        "precision": [str(p.precision) for p in points],
        "capability": [p.machine.capability for p in points],
        "target": [p.machine.ref for p in points],
        "source": [p.source for p in points],
        "scenario": [str(p.scenario) for p in points],
    }
    mixes = {id(p.network.features): p.network.features for p in points}
    described = {key: _mix(features) for key, features in mixes.items()}
    return Inputs(
        codes={name: book.codes(name, values) for name, values in words.items()},
        smooth={
            "machine": np.array([_build(p.machine) for p in points]),
            "bound": light.shares,
            "mix": np.array([described[id(p.network.features)] for p in points]),
            "year": np.array([[p.year] for p in points]),
        },
        factors={
            "fresh": np.array([float(p.fresh) for p in points]),
            "varying": np.array([float(p.network.features.dynamic) for p in points]),
        },
        log_ms=light.log_ms,
    )


def use_of(scenario: Scenario) -> str:
    """Latency of a query, throughput without limit, or throughput under one."""
    return str(scenario) if scenario in THROUGHPUT else "latency"


def _build(machine: Machine) -> tuple[float, ...]:
    """How a machine is built: size, balance, cache, clock, watts per operation, age, kind, share."""
    peak = machine.peak_tops
    return (
        np.log(peak) / 1.2,
        np.log(machine.bandwidth_gbs / peak) / 0.7,
        np.log(machine.l2_mb * 10 / peak) / 0.9,
        np.log(machine.mhz) / 0.4,
        np.log(machine.power_w / machine.share / peak) / 0.6,
        (machine.year - 2020.0) / 2.0,
        float(machine.integrated),
        np.log(machine.share),
    )


def _mix(features: ModelFeatures) -> tuple[float, ...]:
    """What a model is made of: share of operations by class, size, intensity, launches, reuse of weights."""
    flops = max(features.flops, 1.0)
    by_kind = dict.fromkeys(Kind, 0.0)
    for group in features.groups:
        by_kind[group.kind] += group.flops * group.count
    traffic = sum((g.inputs + g.outputs) * g.count * g.steps for g in features.groups)
    return (
        by_kind[Kind.CONV] / flops,
        by_kind[Kind.GEMM] / flops,
        by_kind[Kind.ATTENTION] / flops,
        by_kind[Kind.DEPTHWISE] / flops * 10,
        by_kind[Kind.RECURRENT] / flops,
        np.log(flops) / 3,
        np.log(flops / max(traffic, 1)),
        np.log(features.kernels) / 2,
        np.log(flops / max(features.weights, 1)) / 4,
    )


def bases(a: Inputs, b: Inputs, but: str = "") -> dict[str, Floats]:
    """The base kernels between two sets of points, [len(a), len(b)] each, `but` one."""
    found: dict[str, Floats] = {}
    for name, codes in a.codes.items():
        found[f"={name}"] = (codes[:, None] == b.codes[name][None, :]).astype(float)
    for name, values in a.smooth.items():
        if f"~{name}" == but:
            continue
        found[f"~{name}"] = np.exp(_square_distance(values, b.smooth[name]) / (-2.0 * LENGTHS[name] ** 2))
    for name, factor in a.factors.items():
        found[f"*{name}"] = np.outer(factor, b.factors[name])
    return found


def _square_distance(a: Floats, b: Floats) -> Floats:
    square: Floats = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2.0 * a @ b.T
    return np.asarray(np.maximum(square, 0.0))


def term_matrices(a: Inputs, b: Inputs) -> dict[str, Floats]:
    """Each term at unit variance, [len(a), len(b)]."""
    base = bases(a, b)
    return {term: _product(base, factors, (len(a), len(b))) for term, factors in TERMS.items()}


def _product(base: Mapping[str, Floats], factors: tuple[str, ...], shape: tuple[int, int]) -> Floats:
    if not factors:
        return np.ones(shape)
    result = base[factors[0]]
    for factor in factors[1:]:
        result = result * base[factor]
    return result


def covariance(a: Inputs, b: Inputs, spread: Mapping[str, float]) -> Floats:
    """The whole covariance, [len(a), len(b)].

    Questions of one curve differ in their bounds only. So all that does not depend on bounds is worked out once for
    each distinct point of `a`, as an offset and as a factor of the bounds' kernel.
    """
    distinct, back = _distinct(a)
    offset, factor = _parts(distinct, b, spread)
    total = np.exp(_square_distance(a.smooth[_BOUND], b.smooth[_BOUND]) / (-2.0 * LENGTHS[_BOUND] ** 2))
    total *= factor[back]
    total += offset[back]
    return total


_BOUND = "bound"


def _distinct(a: Inputs) -> tuple[Inputs, Codes]:
    """Points that differ in more than their bounds, and for each point of `a` which of them it is, [len(a)]."""
    columns = [*a.codes.values(), *a.factors.values()]
    columns += [values.T for name, values in a.smooth.items() if name != _BOUND]
    _, first, back = np.unique(np.vstack(columns).T, axis=0, return_index=True, return_inverse=True)
    return a.take(first), np.asarray(back, dtype=np.int64).reshape(-1)


def _parts(a: Inputs, b: Inputs, spread: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Sum of the terms without bounds, and of the others without that factor, [len(a), len(b)] each."""
    base = bases(a, b, but=f"~{_BOUND}")
    shape = (len(a), len(b))
    offset, factor = np.zeros(shape), np.zeros(shape)
    for term, factors in TERMS.items():
        rest = tuple(name for name in factors if name != f"~{_BOUND}")
        part = factor if len(rest) < len(factors) else offset
        part += spread[term] ** 2 * _product(base, rest, shape)
    return offset, factor


def prior_variance(question: Inputs, spread: Mapping[str, float]) -> Floats:
    """Variance of each point before any observation, [N]."""
    total = np.zeros(len(question))
    for term, factors in TERMS.items():
        scale = np.ones(len(question))
        for factor in factors:
            if factor.startswith("*"):
                scale = scale * question.factors[factor[1:]] ** 2
        total += spread[term] ** 2 * scale
    return total


def noise_class(point: Point) -> str:
    """Which noise setting a row has."""
    if point.source == MLPERF:
        return str(point.scenario)
    if point.source == OWN:
        return "own"
    return "table" if point.source.startswith(CAREFUL_TABLES) else "zoo"


def noise_scale(count: int) -> float:
    """Variance of a pool of `count` rows ÷ that of one."""
    return _SHARED_NOISE + (1.0 - _SHARED_NOISE) / count


def noise_variance(points: Sequence[Point], counts: Sequence[int], noise: Mapping[str, float]) -> Floats:
    """Noise variance of pooled rows, [N]."""
    pairs = zip(points, counts, strict=True)
    return np.array([noise[noise_class(point)] ** 2 * noise_scale(count) for point, count in pairs])


@dataclass(frozen=True)
class Settings:
    """All that is fitted: physical constants, the terms' standard deviations, the noise."""

    constants: Constants
    spread: Mapping[str, float]
    noise: Mapping[str, float]


@dataclass(frozen=True)
class Posterior:
    """The process after its observations.

    Attributes:
        train: Observed points.
        residual: log(measured ÷ analytic) of each, [N].
        precision: K⁻¹ with the noise in K, [N, N].
        weights: K⁻¹·residual, [N].
        spread: The terms' standard deviations.
    """

    train: Inputs
    residual: Floats
    precision: Floats
    weights: Floats
    spread: Mapping[str, float]

    def at(self, question: Inputs) -> tuple[Floats, Floats, Floats]:
        """What is known of questions, without noise.

        Returns:
            Mean and standard deviation of log(measured ÷ analytic), [M] each, and the covariance with what was
            observed, [M, N].
        """
        cross = covariance(question, self.train, self.spread)
        explained = np.einsum("ij,ij->i", cross @ self.precision, cross)
        variance = prior_variance(question, self.spread) - explained
        return cross @ self.weights, np.sqrt(np.maximum(variance, 1e-6)), cross

    def extended(self, extra: Inputs, residual: Floats, noise: Floats) -> Posterior:
        """The process after some more observations, which come as for `condition`: the inverse of a bordered matrix."""
        cross = covariance(extra, self.train, self.spread)
        carried = cross @ self.precision
        corner = np.linalg.inv(covariance(extra, extra, self.spread) + np.diag(noise) - carried @ cross.T)
        side = corner @ carried
        precision = np.block([[self.precision + carried.T @ side, -side.T], [-side, corner]])
        both = np.concatenate([self.residual, residual])
        return Posterior(joined(self.train, extra), both, precision, precision @ both, self.spread)


def joined(a: Inputs, b: Inputs) -> Inputs:
    """The points of both, in order."""

    def both(x: Mapping[str, NDArray[Any]], y: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {name: np.concatenate([x[name], y[name]]) for name in x}

    return Inputs(
        both(a.codes, b.codes),
        both(a.smooth, b.smooth),
        both(a.factors, b.factors),
        np.concatenate([a.log_ms, b.log_ms]),
    )


def condition(train: Inputs, residual: Floats, noise: Floats, spread: Mapping[str, float]) -> Posterior:
    """Condition the process on residuals.

    Args:
        train: Observed points.
        residual: log(measured ÷ analytic), [N].
        noise: Noise variance of each, [N].
        spread: The terms' standard deviations.
    """
    precision: Floats = np.asarray(np.linalg.inv(covariance(train, train, spread) + np.diag(noise)), np.float64)
    return Posterior(train, residual, precision, precision @ residual, spread)


def tail_scale(train: Inputs, residual: Floats, noise: Floats, spread: Mapping[str, float]) -> Floats:
    """How much more noise each row is given so that rows which nothing else agrees with lose their say, [N].

    Student noise of four degrees of freedom by reweighting: the variance of a row grows with the square of what the
    process leaves unexplained of it.
    """
    clean = covariance(train, train, spread)
    scale = np.ones(len(noise))
    for _ in range(_HEAVY_ROUNDS):
        left = noise * scale * np.linalg.solve(clean + np.diag(noise * scale), residual)
        scale = np.maximum((_HEAVY_TAIL + left**2 / noise) / (_HEAVY_TAIL + 1.0), 0.8)
    return scale
