"""What the predictor says: a value with its interval and its reasons, or why it will not say one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deploykit.base.vocab import Confidence, Precision, Provenance, Scenario
from deploykit.predict.intervals import Rung, multiplier
from deploykit.predict.memory import MemoryFit


@dataclass(frozen=True)
class Estimate:
    """A figure and the interval around it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    """An answer for one target.

    Attributes:
        target: Reference.
        model: Name.
        precision: Of the engine.
        scenario: Asked for.
        batch_size: Samples a query; the engine's batch in throughput scenarios.
        latency_ms: Of a query: p90 for SingleStream, p99 for MultiStream, mean for FixedBatch; in throughput
            scenarios of one engine batch.
        throughput_ips: Samples per second.
        confidence: How much stands behind it.
        rung: What the predictor had seen of this network and target.
        provenance: Always `predicted`.
        anchors: Identities of the measurements that carry the answer most, nearest first.
        why: One line of reasons.
        level: Two-sided level of the intervals.
        spread: Standard deviation of log latency, noise of a run included.
        quantiles: Interval multipliers, see `intervals.multiplier`.
        use: Which of them are this scenario's.
        memory: What the engine wants of the target's memory.
    """

    target: str
    model: str
    precision: Precision
    scenario: Scenario
    batch_size: int
    latency_ms: Estimate
    throughput_ips: Estimate
    confidence: Confidence
    rung: Rung
    anchors: tuple[str, ...]
    why: str
    level: float
    spread: float
    quantiles: Mapping[str, Mapping[float, float]]
    use: str
    memory: MemoryFit
    provenance: Literal[Provenance.PREDICTED] = Provenance.PREDICTED

    def latency_at_most(self, level: float) -> float:
        """The latency in ms that is not exceeded with this one-sided probability (0.5 < level < 1)."""
        return self.latency_ms.value * self._factor(level)

    def throughput_at_least(self, level: float) -> float:
        """The rate in samples/s that is reached with this one-sided probability (0.5 < level < 1)."""
        return self.throughput_ips.value / self._factor(level)

    def _factor(self, level: float) -> float:
        return math.exp(self.spread * multiplier(self.quantiles, self.rung, self.use, 2.0 * level - 1.0))

    def to_json(self) -> dict[str, Any]:
        """The JSON keys of `deploykit predict`."""
        return {
            "target": self.target,
            "model": self.model,
            "precision": str(self.precision),
            "scenario": str(self.scenario),
            "batch_size": self.batch_size,
            "latency_ms": vars(self.latency_ms),
            "throughput_ips": vars(self.throughput_ips),
            "confidence": str(self.confidence),
            "provenance": str(self.provenance),
            "rung": str(self.rung),
            "level": self.level,
            "anchors": list(self.anchors),
            "why": self.why,
            "memory_gb": {
                "needed": round(self.memory.needed / 1e9, 3),
                "available": round(self.memory.available / 1e9, 3),
            },
        }


@dataclass(frozen=True)
class Refusal:
    """No answer, with the reason and the one measurement that would give one."""

    target: str
    model: str
    reason: str
    next_measurement: str

    def to_json(self) -> dict[str, Any]:
        """The JSON keys of a refused target."""
        return {
            "target": self.target,
            "model": self.model,
            "refused": self.reason,
            "next_measurement": self.next_measurement,
        }
