"""What was seen beside a run, and what it says of the run. Pure.

power        where a counter of energy runs: difference ÷ time; else the mean of samples weighted by time
uncertainty  of a counter: one step of it at either end ÷ time, at the mean power
             of samples: twice the standard error of their mean, with the samples of a sensor's step counted once
clock        share of the time below 95 % of the clock that was asked for, not the mean, which hides a fall
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CLOCK_FLOOR = 0.95
"""Below this share of the asked clock a device is not at it."""
SLOW_SHARE = 0.05
"""A run that is below the floor for a larger share of its time is one of another clock."""
# A card at its power limit is at its figures: most cards are, under load. Only what is no limit of the target counts.
BENIGN_REASONS = {"NONE", "SW_POWER_CAP", "SYNC_BOOST"}
DRIFT = 0.10
"""A last third slower than the first by more than this has drifted, whatever the sensors say."""


@dataclass(frozen=True)
class Sample:
    """One look. Fields as in `sampling.Reading`; `t_s` in seconds of a monotonic clock."""

    t_s: float
    power_w: float | None = None
    energy_j: float | None = None
    gpu_mhz: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()
    events: int | None = None


@dataclass(frozen=True)
class MeanPower:
    """Mean power over a trace.

    Attributes:
        uncertainty_w: Half width: the true mean lies within with about 95 %.
        how: `counter` or `samples`.
    """

    mean_w: float
    uncertainty_w: float | None
    how: str


@dataclass(frozen=True)
class Trace:
    """All looks beside one run, in time's order.

    Attributes:
        source, scope, step_s: As in `sampling.Sensors`.
    """

    samples: tuple[Sample, ...]
    source: str | None = None
    scope: str | None = None
    step_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """From the first look to the last."""
        return self.samples[-1].t_s - self.samples[0].t_s if len(self.samples) > 1 else 0.0

    def power(self) -> MeanPower | None:
        """Mean power; None where nothing tells."""
        return self._counted_power() or self._sampled_power()

    def clock_mhz(self) -> tuple[float, float] | None:
        """Mean and minimum of the GPU clock."""
        clocks = [sample.gpu_mhz for sample in self.samples if sample.gpu_mhz is not None]
        return (statistics.fmean(clocks), min(clocks)) if clocks else None

    def slow_share(self, asked_mhz: float) -> float | None:
        """Share of the looks at which the clock was below the floor."""
        clocks = [sample.gpu_mhz for sample in self.samples if sample.gpu_mhz is not None]
        return sum(clock < CLOCK_FLOOR * asked_mhz for clock in clocks) / len(clocks) if clocks else None

    def throttle(self) -> dict[str, float]:
        """Throttle reason → share of the looks at which it held."""
        seen = [reason for sample in self.samples for reason in sample.throttle]
        return {reason: seen.count(reason) / len(self.samples) for reason in dict.fromkeys(seen)}

    def overcurrent_events(self) -> int:
        """Over-current events during the run."""
        counts = [sample.events for sample in self.samples if sample.events is not None]
        return max(0, counts[-1] - counts[0]) if counts else 0

    def temperatures_c(self) -> tuple[float, float] | None:
        """Hottest zone at the first look and at its hottest."""
        degrees = [sample.temperature_c for sample in self.samples if sample.temperature_c is not None]
        return (degrees[0], max(degrees)) if degrees else None

    def _counted_power(self) -> MeanPower | None:
        counted = [(sample.t_s, sample.energy_j) for sample in self.samples if sample.energy_j is not None]
        if len(counted) < 2:
            return None
        (start_s, start_j), (end_s, end_j) = counted[0], counted[-1]
        seconds = end_s - start_s
        # A counter that stood still says that it is slower than the run was long, not that no power flowed.
        if seconds <= 0 or end_j <= start_j:
            return None
        mean = (end_j - start_j) / seconds
        return MeanPower(mean, mean * min(1.0, 2 * self.step_s / seconds), "counter")

    def _sampled_power(self) -> MeanPower | None:
        watts = [(sample.t_s, sample.power_w) for sample in self.samples if sample.power_w is not None]
        if not watts:
            return None
        return MeanPower(_time_mean(watts), _mean_error(watts, self.step_s), "samples")


def reasons_against(trace: Trace, asked_mhz: float | None) -> list[str]:
    """Why a run is not one of the device at its asked clock: fallen clock, throttling, over-current.

    Args:
        asked_mhz: The clock that the target names, where the run used the GPU; None where it did not.
    """
    reasons = []
    slow = trace.slow_share(asked_mhz) if asked_mhz else None
    clocks = trace.clock_mhz()
    if slow is not None and slow > SLOW_SHARE and clocks is not None:
        reasons.append(
            f"the GPU clock was below {CLOCK_FLOOR:.0%} of {asked_mhz:g} MHz for {slow:.0%} of the run "
            f"(mean {clocks[0]:.0f}, lowest {clocks[1]:g} MHz)"
        )
    reasons += [
        f"the GPU throttled for {share:.0%} of the run: {reason}"
        for reason, share in trace.throttle().items()
        if share > SLOW_SHARE and reason not in BENIGN_REASONS
    ]
    if events := trace.overcurrent_events():
        reasons.append(f"{events} over-current events during the run: the supply or the module's limit held it back")
    return reasons


def drift(latencies_ms: Sequence[float]) -> float | None:
    """How much slower the last third of a run was than the first: 0.6 for 60 %; None for fewer than 30 queries.

    Medians, so that a single stall is no drift.
    """
    third = len(latencies_ms) // 3
    if third < 10:
        return None
    return statistics.median(latencies_ms[-third:]) / statistics.median(latencies_ms[:third]) - 1


def _time_mean(watts: Sequence[tuple[float, float]]) -> float:
    """Trapezoids over time, so that a late look does not count for more than the time it stands for."""
    seconds = watts[-1][0] - watts[0][0]
    if seconds <= 0:
        return statistics.fmean(value for _, value in watts)
    area = sum((b[1] + a[1]) / 2 * (b[0] - a[0]) for a, b in itertools.pairwise(watts))
    return area / seconds


def _mean_error(watts: Sequence[tuple[float, float]], step_s: float) -> float | None:
    """Twice the standard error of the mean; looks within one step of the sensor see the same reading."""
    seconds = watts[-1][0] - watts[0][0]
    independent = min(len(watts), math.floor(seconds / step_s) + 1) if step_s > 0 else len(watts)
    if independent < 2:
        return None
    return 2 * statistics.stdev(value for _, value in watts) / math.sqrt(independent)
