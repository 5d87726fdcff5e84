"""The predictor: layer features and targets in, values with intervals or refusals out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from deploykit.base.vocab import Confidence, Precision, Scenario
from deploykit.predict.answer import Estimate, Prediction, Refusal
from deploykit.predict.correction import (
    Codebook,
    Inputs,
    Posterior,
    condition,
    covariance,
    inputs,
    noise_class,
    noise_variance,
    use_of,
)
from deploykit.predict.intervals import Rung, multiplier
from deploykit.predict.kernels import ModelFeatures
from deploykit.predict.machine import Floats, Machine, machine_of
from deploykit.predict.memory import largest_batch, memory_fit
from deploykit.predict.names import Network, network_named, network_of
from deploykit.predict.observe import MLPERF, OWN, Observation, observations
from deploykit.predict.points import THROUGHPUT, Point, analytic, offline_batch
from deploykit.predict.training import Fitted, TrainingTable, read_fitted, read_training
from deploykit.results.measurement import Measurement
from deploykit.targets.spec import TargetSpec

DEFAULT_LEVEL = 0.9
_MULTI_STREAM = 8
_TABLE_SOURCE = "NVIDIA/TensorRT"
_MOST_UNKNOWN = 0.1
"""Share of a graph's groups that no rule covers from which on an answer would be a guess."""
_ANCHORS = 3
_LATEST_YEAR = 2025.0


@dataclass(frozen=True)
class _Asked:
    """A question to one target, ready for the process."""

    index: int
    point: Point
    fit_words: str


class Predictor:
    """Answers for any target and model from the shipped table and the user's own measurements.

    Loading takes a matrix inversion (about a quarter of a second); answers over the whole catalogue are vectorised.
    """

    def __init__(self, table: TrainingTable, fitted: Fitted) -> None:
        self._table = table
        self._fitted = fitted
        self._book = Codebook()
        self._points = [row.point for row in table.rows]
        self._train = inputs(self._points, analytic(self._points, fitted.settings.constants), self._book)
        self._measured = np.array([row.log_ms for row in table.rows])
        counts = [row.count for row in table.rows]
        self._noise = noise_variance(self._points, counts, fitted.settings.noise) * np.array(table.tails)
        self._posterior = condition(
            self._train, self._measured - self._train.log_ms, self._noise, fitted.settings.spread
        )

    @classmethod
    def load(cls) -> Predictor:
        """The predictor that ships."""
        return _shipped()

    def predict(
        self,
        model: str | ModelFeatures,
        targets: Sequence[TargetSpec],
        *,
        precision: Precision | None = None,
        scenario: Scenario = Scenario.SINGLE_STREAM,
        batch_size: int | None = None,
        own: Sequence[Measurement] = (),
        level: float = DEFAULT_LEVEL,
        limit_ms: float | None = None,
        dla: bool | None = None,
    ) -> list[Prediction | Refusal]:
        """Predict one model on many targets.

        Args:
            model: A name that `names.known_names` lists, or the layer features of a graph.
            targets: Operating points.
            precision: Of the engine; None: what the network's published runs use, else INT8 where the silicon has it.
            scenario: MLPerf's meaning; FixedBatch: one batch after the other, device time only.
            batch_size: Samples a query (FixedBatch) or the engine's largest batch (Offline, Server); None: 1, 8 for
                MultiStream, and for Offline what fills the device.
            own: Measurements made by the user; they anchor the answer as low-noise rows.
            level: Two-sided level of the intervals.
            limit_ms: Latency limit of a Server rate; None: the network's MLPerf limit, else 100 ms.
            dla: Whether the DLAs work beside the GPU; None: where the network's published runs do so.

        Returns:
            One answer or refusal a target, in their order.

        Raises:
            UnknownNameError: `model` is a name without layer features.
        """
        network = network_named(model) if isinstance(model, str) else network_of(model)
        question = _Question(network, precision, scenario, batch_size, bool(own), limit_ms, dla, self._habits(network))
        answers: list[Prediction | Refusal | None] = [None] * len(targets)
        asked: list[_Asked] = []
        for i, spec in enumerate(targets):
            made = question.to(spec)
            if isinstance(made, Refusal):
                answers[i] = made
            else:
                asked.append(_Asked(i, made, ""))
        if asked:
            points = [each.point for each in asked]
            for each, answer in zip(asked, self._answers(points, own, level), strict=True):
                answers[each.index] = answer
        return [answer for answer in answers if answer is not None]

    def _habits(self, network: Network) -> _Habits:
        """How the network's published runs were made."""
        mine = [p for p in self._points if p.network.network == network.network]
        years = [p.year for p in mine if p.source == MLPERF]
        limits = [p.limit_ms for p in mine if p.limit_ms]
        return _Habits(
            year=max(years, default=_LATEST_YEAR),
            uses_dla=any(p.dla for p in mine),
            limit_ms=limits[0] if limits else None,
        )

    def _answers(self, points: list[Point], own: Sequence[Measurement], level: float) -> list[Prediction]:
        constants = self._fitted.settings.constants
        question = inputs(points, analytic(points, constants), self._book)
        posterior, rows = self._with_own(own, {point.machine.ref: point.machine for point in points})
        mean, spread = posterior.at(question)
        near = covariance(question, posterior.train, posterior.spread)
        return [
            self._answer(point, float(question.log_ms[i] + mean[i]), float(spread[i]), near[i], rows, level)
            for i, point in enumerate(points)
        ]

    def _with_own(
        self, own: Sequence[Measurement], machines: Mapping[str, Machine]
    ) -> tuple[Posterior, Sequence[Observation]]:
        """The process with the user's rows added; those on targets outside the question are used where known."""
        found, _ = observations(own, lambda ref: machines.get(ref, "its target is not part of the question"))
        if not found:
            return self._posterior, self._table.rows
        points = [row.point for row in found]
        settings = self._fitted.settings
        extra = inputs(points, analytic(points, settings.constants), self._book)
        train = _joined(self._train, extra)
        measured = np.concatenate([self._measured, [row.log_ms for row in found]])
        noise = np.concatenate([self._noise, noise_variance(points, [row.count for row in found], settings.noise)])
        return condition(train, measured - train.log_ms, noise, settings.spread), [*self._table.rows, *found]

    def _answer(
        self, point: Point, log_ms: float, spread: float, near: Floats, rows: Sequence[Observation], level: float
    ) -> Prediction:
        rung = rung_of(point, [row.point for row in rows])
        use = use_of(point.scenario)
        noise = self._fitted.settings.noise[noise_class(point)]
        whole = math.hypot(spread, noise)
        factor = math.exp(whole * multiplier(self._fitted.quantiles, rung, use, level))
        per_sample = point.scenario in THROUGHPUT
        ms = math.exp(log_ms)
        latency = ms * (point.batch if per_sample else 1)
        rate = 1000.0 / ms * (1 if per_sample else point.batch)
        return Prediction(
            target=point.machine.ref,
            model=point.network.name,
            precision=point.precision,
            scenario=point.scenario,
            batch_size=point.batch,
            latency_ms=Estimate(latency, latency / factor, latency * factor),
            throughput_ips=Estimate(rate, rate / factor, rate * factor),
            confidence=_confidence(rung, factor),
            rung=rung,
            anchors=_anchors(point, near, rows),
            why=_why(point, rung, factor),
            level=level,
            spread=whole,
            quantiles={key: dict(row) for key, row in self._fitted.quantiles.items()},
            use=use,
            memory=memory_fit(point.network.features, point.machine, point.precision, point.batch),
        )


@dataclass(frozen=True)
class _Habits:
    year: float
    uses_dla: bool
    limit_ms: float | None


@dataclass(frozen=True)
class _Question:
    """What is asked of every target alike."""

    network: Network
    precision: Precision | None
    scenario: Scenario
    batch_size: int | None
    own: bool
    limit_ms: float | None
    dla: bool | None
    habits: _Habits

    def to(self, spec: TargetSpec) -> Point | Refusal:
        """The point on one target, or why there is none."""
        machine = machine_of(spec)
        if isinstance(machine, str):
            return self._refusal(spec.ref, machine)
        precision = self._precision(machine)
        if not machine.supports(precision):
            return self._refusal(
                spec.ref, f"compute capability {machine.capability} has no {precision} units", "another precision"
            )
        if (share := _unknown_share(self.network.features)) > _MOST_UNKNOWN:
            return self._refusal(spec.ref, _unknown_words(self.network.features, share))
        wanted = self._batch()
        batch = largest_batch(self.network.features, machine, precision, wanted)
        if batch == 0 or (batch < wanted and self._fixed()):
            fit = memory_fit(self.network.features, machine, precision, wanted if self._fixed() else 1)
            return self._refusal(spec.ref, f"it does not fit: {fit.words()}", "a smaller batch or precision")
        return self._point(machine, precision, batch)

    def _point(self, machine: Machine, precision: Precision, batch: int) -> Point:
        table = self.scenario is Scenario.FIXED_BATCH
        source = OWN if self.own else _TABLE_SOURCE if table else MLPERF
        limit = (self.limit_ms or self.habits.limit_ms or 100.0) if self.scenario is Scenario.SERVER else None
        return Point(
            network=self.network,
            machine=machine,
            precision=precision,
            scenario=self.scenario,
            batch=batch,
            source=source,
            year=self.habits.year,
            copies=not table,
            dla=self._dla(machine, precision),
            limit_ms=limit,
        )

    def _dla(self, machine: Machine, precision: Precision) -> bool:
        wanted = self.habits.uses_dla and self.scenario is Scenario.OFFLINE if self.dla is None else self.dla
        return wanted and machine.dla_tops > 0 and precision is Precision.INT8

    def _precision(self, machine: Machine) -> Precision:
        if self.precision is not None:
            return self.precision
        for choice in (self.network.precision, Precision.INT8, Precision.FP16):
            if choice is not None and machine.supports(choice):
                return choice
        return Precision.FP32

    def _fixed(self) -> bool:
        return self.scenario not in THROUGHPUT or self.batch_size is not None

    def _batch(self) -> int:
        if self.scenario is Scenario.SINGLE_STREAM:
            return 1
        if self.scenario is Scenario.MULTI_STREAM:
            return _MULTI_STREAM
        if self.scenario is Scenario.FIXED_BATCH:
            return self.batch_size or 1
        return self.batch_size or offline_batch(self.network.features)

    def _refusal(self, ref: str, reason: str, instead: str = "") -> Refusal:
        command = f"deploykit bench --target {ref} of {self.network.name} would tell"
        return Refusal(ref, self.network.name, reason, f"{instead}; or {command}" if instead else command)


def _unknown_share(features: ModelFeatures) -> float:
    unknown = sum(times for _, times in features.unknown_ops)
    return unknown / max(unknown + features.kernels, 1)


def _unknown_words(features: ModelFeatures, share: float) -> str:
    worst = ", ".join(f"{op} ×{times}" for op, times in sorted(features.unknown_ops, key=lambda pair: -pair[1])[:5])
    return f"{share:.0%} of its operators are of unknown kind or size ({worst}), so its layers do not say what it costs"


def rung_of(point: Point, seen: Sequence[Point]) -> Rung:
    """What had been seen of a network and target."""
    same_network = [p for p in seen if p.network.network == point.network.network]
    if any(p.machine.ref == point.machine.ref for p in same_network):
        return Rung.SAME
    return Rung.ANCHORED if same_network else Rung.GRAPH


def _confidence(rung: Rung, factor: float) -> Confidence:
    """High: seen here, and within a quarter; low: only layers, or an interval beyond a factor of 1.6."""
    if rung is Rung.SAME and factor < 1.25:
        return Confidence.HIGH
    return Confidence.LOW if rung is Rung.GRAPH or factor > 1.6 else Confidence.MEDIUM


def _anchors(point: Point, near: Floats, rows: Sequence[Observation]) -> tuple[str, ...]:
    """The measurements of this network that the answer leans on most; where there are none, the nearest others."""
    order = sorted(range(len(rows)), key=lambda i: (rows[i].point.network.network != point.network.network, -near[i]))
    return tuple(rows[i].ids[0] for i in order[:_ANCHORS])


def _why(point: Point, rung: Rung, factor: float) -> str:
    known = {
        Rung.SAME: "this model was measured on this target, under other conditions",
        Rung.ANCHORED: "this model was measured on other targets",
        Rung.GRAPH: "from the model's layers alone: nobody measured it anywhere",
    }[rung]
    parts = [known, f"interval within a factor of {factor:.2f}"]
    if point.dla:
        parts.append("GPU and DLAs together, as MLPerf runs it")
    if point.limit_ms and point.scenario is Scenario.SERVER:
        parts.append(f"p99 within {point.limit_ms:g} ms")
    return "; ".join(parts)


def _joined(a: Inputs, b: Inputs) -> Inputs:
    def both(x: Mapping[str, np.ndarray], y: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.concatenate([x[name], y[name]]) for name in x}

    return Inputs(
        both(a.codes, b.codes),
        both(a.smooth, b.smooth),
        both(a.factors, b.factors),
        np.concatenate([a.log_ms, b.log_ms]),
    )


@lru_cache(maxsize=1)
def _shipped() -> Predictor:
    return Predictor(read_training(), read_fitted())
