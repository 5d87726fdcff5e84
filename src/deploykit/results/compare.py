"""Two sets of runs → what differs in their conditions, and whether one is really faster. Pure.

Conditions come first: a ratio of two numbers that were taken differently says nothing. They are of three kinds:

    identity   another model, target, scenario or power mode: not compared at all
    timing     what was timed differs (copies, CUDA graph, batch, threads, the machine): figures shown, no verdict
    subject    what one compares on purpose (precision, runtime, versions): figures and a verdict

A change is real when its confidence interval leaves out both "none" and everything smaller than the noise floor.
Neighbouring queries share the machine's mood, so that thousands of them are not thousands of independent samples, and
a rank test over them would call every pair of runs different. The interval is therefore bootstrapped over what is
closer to independent: first the runs of a side, then the stretches of each run (`Measurement.blocks_p50_ms`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from deploykit.base.errors import UsageError
from deploykit.base.vocab import Precision, Scenario
from deploykit.results.measurement import COMPARABILITY_KEYS, Latency, Measurement

Kind = Literal["identity", "timing", "subject"]
Outcome = Literal["faster", "slower", "same", "unclear", "not comparable"]

NOISE_FLOOR = 0.03
"""Smaller changes are not told from noise even where the interval is narrow: two runs of one build on one idle machine
differ by that (caches, memory layout, clock); MLPerf's own logs scatter by 3.7 % between submissions of one system."""

LONE_NOISE = 0.10
"""What a change must exceed where no side has more than a summary figure, so that nothing says how it scatters."""

_IDENTITY = ("model", "target", "scenario", "power_mode")
_SUBJECT = ("precision", "dialect", "runtime", "artifact")
_TIMING = (*(key for key in COMPARABILITY_KEYS if key not in _IDENTITY + _SUBJECT), "streams", "provider", "provenance",
           "batch_limit", "latency_of", "cpu", "clocks_locked")  # fmt: skip
_RESAMPLES = 2000
_COVERAGE = (0.5, 99.5)
"""Percentiles of the bootstrap: a 99 % interval, since whoever compares often sees every twentieth 95 % one fail."""
_MIN_BLOCKS = 5

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Difference:
    """One condition that the two sides do not share."""

    key: str
    before: Any
    after: Any
    kind: Kind


@dataclass(frozen=True)
class Figure:
    """One figure of both sides; `ratio` is after ÷ before."""

    name: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After ÷ before."""
        return self.after / self.before


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        differences: Conditions that differ, those that forbid a verdict first.
        figures: Of the middle run of each side.
        decisive: The figure that the outcome is about.
        speedup: Before's time ÷ after's (or after's rate ÷ before's): above 1 is faster.
        interval: 99 % interval of the speedup; None where neither side says how it scatters.
        outcome: What may be said.
        why: In words.
    """

    differences: tuple[Difference, ...]
    figures: tuple[Figure, ...]
    decisive: str | None
    speedup: float | None
    interval: tuple[float, float] | None
    outcome: Outcome
    why: str


def compare(before: Sequence[Measurement], after: Sequence[Measurement]) -> Comparison:
    """Compare two sides of one or more runs each.

    Raises:
        UsageError: A side is empty, its own runs are of unlike things, or the sides differ in identity.
    """
    _require_alike("first", before)
    _require_alike("second", after)
    differences = condition_differences(before[0], after[0])
    if other := [d for d in differences if d.kind == "identity"]:
        listed = "; ".join(f"{d.key}: {d.before} and {d.after}" for d in other)
        raise UsageError(f"these measurements are of different things and are not compared ({listed})")
    figures = tuple(_figures(before, after))
    decisive = next((f for name in _decisive_names(before[0], after[0]) for f in figures if f.name == name), None)
    if decisive is None:
        return Comparison(differences, figures, None, None, None, "not comparable", "they have no figure in common")
    speedup = decisive.ratio if decisive.name == "throughput_ips" else 1 / decisive.ratio
    # A Server run's blocks hold queueing as well: they say nothing of its tail or of the rate it holds.
    interval = None if before[0].scenario is Scenario.SERVER else _interval(before, after)
    outcome, why = _verdict([*before, *after], differences, speedup, interval)
    return Comparison(differences, figures, decisive.name, speedup, interval, outcome, why)


def condition_differences(before: Measurement, after: Measurement) -> tuple[Difference, ...]:
    """Every condition that two measurements do not share, identity first. What a side leaves open is none."""
    found = []
    kinds: tuple[tuple[Kind, Iterable[str]], ...] = (
        ("identity", _IDENTITY),
        ("timing", _TIMING),
        ("subject", _SUBJECT),
    )
    for kind, keys in kinds:
        found += [_difference(key, _value(before, key), _value(after, key), kind) for key in keys]
    versions = _versions(before), _versions(after)
    found += [
        _difference(f"versions.{name}", versions[0].get(name), versions[1].get(name), "subject")
        for name in sorted(versions[0].keys() | versions[1].keys())
    ]
    return tuple(difference for difference in found if difference is not None)


def against_fp32(measurement: Measurement, others: Sequence[Measurement]) -> Comparison | None:
    """An int8 or fp16 run against the newest valid fp32 run that shares all else; None where there is none.

    Args:
        measurement: The run in question.
        others: Candidates, newest first.
    """
    alike = [
        other
        for other in others
        if other.valid
        and other.precision is Precision.FP32
        and not any(d.kind != "subject" for d in condition_differences(other, measurement))
    ]
    if measurement.precision in (None, Precision.FP32) or not measurement.valid or not alike:
        return None
    return compare(alike[:1], [measurement])


def is_regression(comparison: Comparison) -> bool:
    """Whether the second side is slower beyond noise.

    Raises:
        UsageError: The conditions differ so that nobody can say.
    """
    if comparison.outcome == "not comparable":
        raise UsageError(f"whether this is a regression cannot be told: {comparison.why}")
    return comparison.outcome == "slower"


def _require_alike(side: str, runs: Sequence[Measurement]) -> None:
    if not runs:
        raise UsageError(f"the {side} side of the comparison has no measurement")
    for run in runs[1:]:
        if differences := condition_differences(runs[0], run):
            first = differences[0]
            raise UsageError(
                f"the runs of the {side} side are not of one thing: {first.key} is {first.before} in {runs[0].id[:8]} "
                f"and {first.after} in {run.id[:8]}"
            )


def _difference(key: str, before: Any, after: Any, kind: Kind) -> Difference | None:
    if before is None or after is None or before == after:
        return None
    return Difference(key, _plain(before), _plain(after), kind)


def _plain(value: Any) -> Any:
    return value.value if hasattr(value, "value") else value


def _value(measurement: Measurement, key: str) -> Any:
    found = getattr(measurement, key, None)
    for holder in (measurement.conditions, measurement.device):
        found = holder.get(key) if found is None else found
    return found


def _versions(measurement: Measurement) -> Mapping[str, Any]:
    found = measurement.conditions.get("versions")
    return found if isinstance(found, Mapping) else {}


def _figures(before: Sequence[Measurement], after: Sequence[Measurement]) -> Iterable[Figure]:
    names = [f"latency_ms.{name}" for name in Latency.model_fields]
    for name in [*names, "throughput_ips", "power_w", "energy_j_per_sample"]:
        old, new = _median_of(before, name), _median_of(after, name)
        if old is not None and new is not None and old > 0:
            yield Figure(name, old, new)


def _median_of(runs: Sequence[Measurement], name: str) -> float | None:
    """The figure of the middle run; of two middle ones the lower, since the mean of two percentiles is none."""
    values = [_figure_of(run, name) for run in runs]
    known = [value for value in values if value is not None]
    return statistics.median_low(known) if known else None


def _figure_of(run: Measurement, name: str) -> float | None:
    head, _, rest = name.partition(".")
    value: float | None = getattr(run.latency_ms, rest) if rest else getattr(run, head)
    return value


def _decisive_names(before: Measurement, after: Measurement) -> tuple[str, ...]:
    """Figures that the outcome may be about, best first.

    Offline is about throughput. Server runs at one rate are about the tail, at different rates about the rate held.
    """
    if before.scenario is Scenario.OFFLINE:
        return ("throughput_ips", "latency_ms.p50")
    if before.scenario is Scenario.SERVER:
        one_rate = math.isclose(before.offered_ips or 0.0, after.offered_ips or 0.0, rel_tol=0.01)
        return ("latency_ms.p99", "latency_ms.p50", "latency_ms.mean") if one_rate else ("throughput_ips",)
    return ("latency_ms.p50", "latency_ms.mean", "latency_ms.p90", "throughput_ips")


def _interval(before: Sequence[Measurement], after: Sequence[Measurement]) -> tuple[float, float] | None:
    """99 % bootstrap interval of median before ÷ median after."""
    sides = [_blocks(before), _blocks(after)]
    if any(sum(len(run) for run in side) < _MIN_BLOCKS for side in sides):
        return None
    draw = np.random.default_rng(0)  # one comparison gives one answer
    ratios = _resampled_medians(sides[0], draw) / _resampled_medians(sides[1], draw)
    low, high = np.percentile(ratios, _COVERAGE)
    return float(low), float(high)


def _blocks(runs: Sequence[Measurement]) -> list[Array]:
    """Block medians of each run in ms; a run without any counts by its p50."""
    blocks = [run.blocks_p50_ms or ((run.latency_ms.p50,) if run.latency_ms.p50 else ()) for run in runs]
    return [np.asarray(run) for run in blocks if run]


def _resampled_medians(side: list[Array], draw: np.random.Generator) -> Array:
    """Medians [resamples]: runs drawn with replacement, and of each run drawn its blocks likewise."""
    medians = np.empty(_RESAMPLES)
    for index in range(_RESAMPLES):
        runs = [side[i] for i in draw.integers(len(side), size=len(side))]
        medians[index] = np.median(np.concatenate([draw.choice(run, len(run)) for run in runs]))
    return medians


def _verdict(
    runs: Sequence[Measurement],
    differences: Sequence[Difference],
    speedup: float,
    interval: tuple[float, float] | None,
) -> tuple[Outcome, str]:
    if invalid := [run for run in runs if not run.valid]:
        return "not comparable", f"{invalid[0].id[:8]} is invalid: {invalid[0].invalid_reasons[0]}"
    if timing := [d for d in differences if d.kind == "timing"]:
        listed = ", ".join(f"{d.key} ({d.before} and {d.after})" for d in timing)
        return "not comparable", f"they were not timed alike: {listed}"
    if interval is None:
        return _lone_verdict(speedup)
    low, high = interval
    span = f"99 % interval {low:.3f} to {high:.3f}"
    if low > 1 + NOISE_FLOOR:
        return "faster", span
    if high < 1 / (1 + NOISE_FLOOR):
        return "slower", span
    if low >= 1 / (1 + NOISE_FLOOR) and high <= 1 + NOISE_FLOOR:
        return "same", f"{span}: within the noise floor of {NOISE_FLOOR:.0%}"
    return "unclear", f"{span} holds both no change and one above {NOISE_FLOOR:.0%}: run longer, or several times"


def _lone_verdict(speedup: float) -> tuple[Outcome, str]:
    allowed = f"only summary figures are known, so changes up to {LONE_NOISE:.0%} count as noise"
    if speedup > 1 + LONE_NOISE:
        return "faster", allowed
    return ("slower", allowed) if speedup < 1 / (1 + LONE_NOISE) else ("same", allowed)
