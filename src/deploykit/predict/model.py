"""The predictor: layer features and targets in, values with intervals or refusals out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deploykit.base.errors import UsageError
from deploykit.base.vocab import Confidence, Precision, Scenario
from deploykit.predict.answer import Estimate, Prediction, Refusal
from deploykit.predict.correction import (
    Codebook,
    Posterior,
    condition,
    inputs,
    noise_class,
    noise_variance,
    use_of,
)
from deploykit.predict.intervals import Rung, multiplier, rung_of
from deploykit.predict.kernels import ModelFeatures
from deploykit.predict.machine import Machine, machine_of
from deploykit.predict.memory import memory_fit
from deploykit.predict.names import Network, network_named, network_of
from deploykit.predict.observe import Observation, observations
from deploykit.predict.points import MLPERF, THROUGHPUT, Point, analytic
from deploykit.predict.question import Habits, Question
from deploykit.predict.training import Fitted, TrainingTable, read_fitted, read_training
from deploykit.results.measurement import Measurement
from deploykit.targets.catalog import resolve
from deploykit.targets.spec import TargetSpec

DEFAULT_LEVEL = 0.9
_ANCHORS = 3
_LATEST_YEAR = 2025.0


@dataclass(frozen=True)
class Known:
    """The process and the rows it was conditioned on, own ones last.

    Attributes:
        posterior: After all of them.
        rows: In the posterior's order.
        own: How many of them are the user's.
    """

    posterior: Posterior
    rows: tuple[Observation, ...]
    own: int = 0


@dataclass(frozen=True)
class Outlook:
    """What the process says of one point.

    Attributes:
        point: The question.
        ms: Median of a query, or of one sample in throughput scenarios.
        spread: Standard deviation of its logarithm, noise of a run included.
        factor: From the middle to either end of the interval.
        rung: What had been seen.
        anchors: Identities of the rows that it leans on most.
    """

    point: Point
    ms: float
    spread: float
    factor: float
    rung: Rung
    anchors: tuple[str, ...]

    def estimate(self, value: float) -> Estimate:
        """A figure in proportion to the time, or to its inverse, with its interval."""
        return Estimate(value, value / self.factor, value * self.factor)

    @property
    def confidence(self) -> Confidence:
        """High: seen here, and within a quarter; low: only layers, or an interval beyond a factor of 1.6."""
        if self.rung is Rung.SAME and self.factor < 1.25:
            return Confidence.HIGH
        return Confidence.LOW if self.rung is Rung.GRAPH or self.factor > 1.6 else Confidence.MEDIUM

    @property
    def why(self) -> str:
        """One line of reasons."""
        known = {
            Rung.SAME: "this model was measured on this target, under other conditions",
            Rung.SIBLING: "this model was measured on other targets, some of this compute capability",
            Rung.ANCHORED: "this model was measured on other targets, of other compute capabilities",
            Rung.FEW: "this model was measured on a few other targets",
            Rung.GRAPH: "from the model's layers alone: nobody measured it anywhere",
        }[self.rung]
        parts = [known, f"interval within a factor of {self.factor:.2f}"]
        if self.point.dla:
            parts.append("GPU and DLAs together, as MLPerf runs it")
        if self.point.limit_ms and self.point.scenario is Scenario.SERVER:
            parts.append(f"p99 within {self.point.limit_ms:g} ms")
        return "; ".join(parts)


class Predictor:
    """Answers for any target and model from the shipped table and the user's own measurements.

    Loading takes a matrix inversion (about a quarter of a second); answers over the whole catalogue are vectorised.
    """

    def __init__(self, table: TrainingTable, fitted: Fitted) -> None:
        self._fitted = fitted
        self._book = Codebook()
        points = [row.point for row in table.rows]
        train = inputs(points, analytic(points, fitted.settings.constants), self._book)
        measured = np.array([row.log_ms for row in table.rows])
        noise = noise_variance(points, [row.count for row in table.rows], fitted.settings.noise) * np.array(table.tails)
        self._known = Known(condition(train, measured - train.log_ms, noise, fitted.settings.spread), table.rows)

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
            scenario: MLPerf's meaning; FixedBatch: SingleStream with `batch_size` samples a query.
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
        network = self.network(model)
        known = self.knowing(own, network, targets)
        question = Question(
            network, self.habits(network), precision, scenario, batch_size, known.own > 0, limit_ms, dla
        )
        made = [question.to(spec) for spec in targets]
        outlooks = iter(self.outlooks([point for point in made if isinstance(point, Point)], known, level))
        return [each if isinstance(each, Refusal) else self._answer(next(outlooks), scenario, level) for each in made]

    @staticmethod
    def network(model: str | ModelFeatures) -> Network:
        """The network of a name or of layer features."""
        return network_named(model) if isinstance(model, str) else network_of(model)

    def habits(self, network: Network) -> Habits:
        """How the network's published runs were made."""
        mine = [row.point for row in self._known.rows if row.point.network.network == network.network]
        years = [point.year for point in mine if point.source == MLPERF]
        limits = [point.limit_ms for point in mine if point.limit_ms]
        return Habits(
            year=max(years, default=_LATEST_YEAR),
            uses_dla=any(point.dla for point in mine),
            limit_ms=limits[0] if limits else None,
        )

    def knowing(self, own: Sequence[Measurement], network: Network, targets: Sequence[TargetSpec]) -> Known:
        """The process with the user's rows added, whatever targets they are of.

        Args:
            own: The user's measurements.
            network: What is asked; rows under its name are of it, although no table lists it.
            targets: What is asked of; a target of a user's file is known from here only.
        """
        if not own:
            return self._known
        specs = {spec.ref: spec for spec in targets}
        found, _ = observations(own, lambda ref: _machine(ref, specs), {network.name: network})
        if not found:
            return self._known
        points = [row.point for row in found]
        settings = self._fitted.settings
        extra = inputs(points, analytic(points, settings.constants), self._book)
        residual = np.array([row.log_ms for row in found]) - extra.log_ms
        noise = noise_variance(points, [row.count for row in found], settings.noise)
        posterior = self._known.posterior.extended(extra, residual, noise)
        return Known(posterior, (*self._known.rows, *found), len(found))

    def outlooks(self, points: Sequence[Point], known: Known, level: float) -> list[Outlook]:
        """What the process says of points of one network, at a two-sided level."""
        if not points:
            return []
        settings = self._fitted.settings
        question = inputs(points, analytic(points, settings.constants), self._book)
        mean, spread, near = known.posterior.at(question)
        noise = np.array([settings.noise[noise_class(point)] for point in points])
        ms, whole = np.exp(question.log_ms + mean), np.hypot(spread, noise)
        same = known.posterior.train.codes["network"] == question.codes["network"][0]
        machines = [known.rows[j].point.machine for j in np.flatnonzero(same)]
        seen = {machine.ref: machine.capability for machine in machines}
        anchors = _nearest(near + 1e3 * same)
        found = []
        for i, point in enumerate(points):
            rung = rung_of(point.machine.ref, point.machine.capability, seen)
            factor = math.exp(whole[i] * multiplier(self._fitted.quantiles, rung, use_of(point.scenario), level))
            ids = tuple(known.rows[j].ids[0] for j in anchors[i])
            found.append(Outlook(point, float(ms[i]), float(whole[i]), factor, rung, ids))
        return found

    def _answer(self, outlook: Outlook, scenario: Scenario, level: float) -> Prediction:
        point = outlook.point
        per_sample = point.scenario in THROUGHPUT
        return Prediction(
            target=point.machine.ref,
            model=point.network.name,
            precision=point.precision,
            scenario=scenario,
            batch_size=point.batch,
            latency_ms=outlook.estimate(outlook.ms * (point.batch if per_sample else 1)),
            throughput_ips=outlook.estimate(1000.0 / outlook.ms * (1 if per_sample else point.batch)),
            confidence=outlook.confidence,
            rung=outlook.rung,
            anchors=outlook.anchors,
            why=outlook.why,
            level=level,
            spread=outlook.spread,
            quantiles=self._fitted.quantiles,
            use=use_of(point.scenario),
            memory=memory_fit(point.network.features, point.machine, point.precision, point.batch),
        )


def _nearest(near: NDArray[np.float64]) -> NDArray[np.int64]:
    """Columns of the largest covariances of each row, largest first, [M, at most 3]."""
    most = min(_ANCHORS, near.shape[1])
    some = np.argpartition(near, -most, axis=1)[:, -most:]
    order = np.argsort(-np.take_along_axis(near, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def _machine(ref: str, specs: Mapping[str, TargetSpec]) -> Machine | str:
    """The machine of an own measurement's target, or in words why there is none."""
    try:
        return machine_of(specs[ref] if ref in specs else resolve(ref))
    except UsageError as error:
        return str(error)


@lru_cache(maxsize=1)
def _shipped() -> Predictor:
    return Predictor(read_training(), read_fitted())
