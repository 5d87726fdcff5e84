"""What is asked of every target alike, and the point on one target that it comes to, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.answer import Refusal
from deploykit.predict.kernels import ModelFeatures
from deploykit.predict.machine import Machine, machine_of
from deploykit.predict.memory import largest_batch, memory_fit
from deploykit.predict.names import Network
from deploykit.predict.points import MLPERF, OWN, THROUGHPUT, Point, offline_batch
from deploykit.targets.spec import TargetSpec

_MULTI_STREAM = 8
_MOST_UNKNOWN = 0.1
"""Share of a graph's groups that no rule covers from which on an answer would be a guess."""
_UNLIMITED_MS = 100.0
"""Limit of a Server rate where neither the user nor the network's benchmark has one."""


@dataclass(frozen=True)
class Habits:
    """How a network's published runs were made.

    Attributes:
        year: When their newest round came out.
        uses_dla: Whether Jetson runs of the Offline scenario used the DLAs.
        limit_ms: Latency limit of its Server scenario.
    """

    year: float
    uses_dla: bool
    limit_ms: float | None


@dataclass(frozen=True)
class Question:
    """What is asked of every target alike; the fields are `Predictor.predict`'s arguments.

    Attributes:
        own: Whether own measurements anchor the answer, so that it speaks of runs like them.
    """

    network: Network
    habits: Habits
    precision: Precision | None = None
    scenario: Scenario = Scenario.SINGLE_STREAM
    batch_size: int | None = None
    own: bool = False
    limit_ms: float | None = None
    dla: bool | None = None

    def to(self, spec: TargetSpec) -> Point | Refusal:
        """The point on one target, or why there is none."""
        machine = machine_of(spec)
        if isinstance(machine, str):
            return self._refusal(spec.ref, machine)
        precision = self._precision(machine)
        if not machine.supports(precision):
            why = f"compute capability {machine.capability} has no {precision} units"
            return self._refusal(spec.ref, why, f"it has {', '.join(machine.precisions)}")
        if (share := _unknown_share(self.network.features)) > _MOST_UNKNOWN:
            return self._refusal(spec.ref, _unknown_words(self.network.features, share))
        wanted = self._batch()
        batch = largest_batch(self.network.features, machine, precision, wanted)
        if batch == 0 or (batch < wanted and self._fixed()):
            fit = memory_fit(self.network.features, machine, precision, wanted if self._fixed() else 1)
            return self._refusal(spec.ref, f"it does not fit: {fit.words()}", "try a smaller batch or precision")
        return self._point(machine, precision, batch)

    def _point(self, machine: Machine, precision: Precision, batch: int) -> Point:
        """A fixed batch is asked as SingleStream with larger queries, so that a curve starts where SingleStream is."""
        fixed = self.scenario is Scenario.FIXED_BATCH
        limit = (self.limit_ms or self.habits.limit_ms or _UNLIMITED_MS) if self.scenario is Scenario.SERVER else None
        return Point(
            network=self.network,
            machine=machine,
            precision=precision,
            scenario=Scenario.SINGLE_STREAM if fixed else self.scenario,
            batch=batch,
            source=OWN if self.own else MLPERF,
            year=self.habits.year,
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
        """Without `instead`, a measurement is what would help."""
        command = f"`deploykit bench {self.network.name} --target {ref}` would tell"
        return Refusal(ref, self.network.name, reason, instead or command)


def _unknown_share(features: ModelFeatures) -> float:
    unknown = sum(times for _, times in features.unknown_ops)
    return unknown / max(unknown + features.kernels, 1)


def _unknown_words(features: ModelFeatures, share: float) -> str:
    worst = ", ".join(f"{op} ×{times}" for op, times in sorted(features.unknown_ops, key=lambda pair: -pair[1])[:5])
    return f"{share:.0%} of its operators are of unknown kind or size ({worst}), so its layers do not say what it costs"
