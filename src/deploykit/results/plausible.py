"""Figures that cannot all be true. Pure: flags are reasons, the numbers stay as they are."""

from __future__ import annotations

import datetime as dt

from deploykit.base.vocab import Scenario
from deploykit.results.measurement import Measurement

_CLOSED_LOOPS = (Scenario.SINGLE_STREAM, Scenario.MULTI_STREAM, Scenario.FIXED_BATCH)
"""Scenarios in which the next query waits for the last: what is in flight is known."""
MOST_IN_FLIGHT = 1.5
"""Batches in flight ÷ streams. Above 1 only by measuring noise; half as much again leaves room for rounded figures."""
LEAST_IN_FLIGHT = 0.05
"""A loop that also loads data has fewer in flight. Mistaken units are off by 1,000, or by the latency itself."""
_CLOCK_SKEW = dt.timedelta(days=1)
"""Time zones, where a date has none."""


def doubts(measurement: Measurement, now: dt.datetime) -> tuple[str, ...]:
    """Why nothing should rest on a measurement although each figure alone is possible."""
    found = (_future(measurement, now), _little(measurement))
    return tuple(doubt for doubt in found if doubt)


def batches_in_flight(measurement: Measurement) -> float | None:
    """Rate × latency ÷ batch size (Little's law); None where one of them is not stated."""
    latency = measurement.latency_ms.mean or measurement.latency_ms.p50
    if measurement.throughput_ips is None or latency is None or measurement.batch_size is None:
        return None
    return measurement.throughput_ips * latency / 1e3 / measurement.batch_size


def _future(measurement: Measurement, now: dt.datetime) -> str | None:
    date = measurement.date
    if date is None:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=dt.timezone.utc)
    return f"its date {date.date()} lies in the future" if aware > now + _CLOCK_SKEW else None


def _little(measurement: Measurement) -> str | None:
    in_flight = batches_in_flight(measurement)
    if in_flight is None or measurement.scenario not in _CLOSED_LOOPS:
        return None
    share = in_flight / measurement.streams
    if LEAST_IN_FLIGHT <= share <= MOST_IN_FLIGHT:
        return None
    latency = measurement.latency_ms.mean or measurement.latency_ms.p50
    return (
        f"{measurement.throughput_ips:g} samples/s at {latency:g} ms and batch {measurement.batch_size} would keep "
        f"{in_flight:.3g} batches in flight, not {measurement.streams} (Little's law): a unit, the batch size or the "
        "number of streams is wrong"
    )
