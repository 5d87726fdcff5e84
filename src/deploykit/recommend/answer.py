"""The answer to an SLA, as it is passed about and printed with `--json`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from deploykit.base.vocab import Confidence, Precision, Provenance, Verdict
from deploykit.cost.model import Cost
from deploykit.recommend.sla import Sla


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Interval(_Frozen):
    """A value and the range it is known to within; never a point alone."""

    value: float
    low: float
    high: float


class Option(_Frozen):
    """A target that can be deployed on.

    Attributes:
        target: Canonical reference.
        units: Devices or slices for the asked rate, so that the bound holds.
        precision: None where the sources do not state it.
        batch_size: Largest batch that the latency figure lets form.
        latency_ms: Of one request at `percentile`, with the asked rate spread over the units.
        percentile: Name: `p99`.
        throughput_ips: Rate that one unit can hold within the limit.
        utilisation: Asked rate over what the units can hold.
        power_w: All units; a power limit where nothing was measured.
        cost: None where no price is known.
        why: The verdict in a sentence.
    """

    target: str
    name: str
    units: int
    precision: Precision | None
    runtime: str | None
    batch_size: int | None
    latency_ms: Interval | None
    percentile: str
    throughput_ips: Interval
    utilisation: float | None
    power_w: float | None
    cost: Cost | None
    other_costs: tuple[Cost, ...] = ()
    provenance: Provenance
    confidence: Confidence
    verdict: Verdict
    sources: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    why: str


class Rejected(_Frozen):
    """A target that was looked at and is no answer: it fails a limit, or too little is known of it."""

    target: str
    verdict: Verdict
    why: str


class Flip(_Frozen):
    """Where the answer changes.

    Attributes:
        quantity: What is changed: `fps`, `latency_ms`, `tariff_usd_per_kwh`.
        below: Winner below `at`; None: no target meets the SLA there.
        above: Winner from `at` on.
    """

    quantity: str
    at: float
    below: str | None
    above: str | None


class Recommendation(_Frozen):
    """All of it.

    Attributes:
        model: Model that was asked for, and how it was chosen.
        winner: Target of the first option; None where no target meets the SLA.
        options: Best first.
        rejected: Every other target, with its reason.
        next_measurement: The one measurement that would settle the cheapest `unknown`.
        sensitivity: Where the winner changes.
        assumptions: What the costs rest on, in words.
    """

    sla: Sla
    model: str
    model_note: str
    objective: str
    winner: str | None
    options: tuple[Option, ...]
    rejected: tuple[Rejected, ...]
    next_measurement: str | None
    sensitivity: tuple[Flip, ...]
    assumptions: tuple[str, ...]
