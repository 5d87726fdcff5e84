"""One scenario run, with its conditions and a validity verdict. Immutable once made.

The same shape holds what was measured here, what somebody published and (from the predictor) what was predicted:
`provenance` tells them apart, `source` says who to ask.

Version history of the JSON form:
    1  first
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from deploykit.base.vocab import Precision, Provenance, Scenario

MEASUREMENT_VERSION = 1

COMPARABILITY_KEYS = (
    "model", "precision", "target", "scenario", "batch_size", "runtime", "threads", "transfers", "cuda_graph",
)  # fmt: skip
"""Two measurements may be pooled only where these agree; `results compare` lists those that differ first."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Latency(_Strict):
    """Latency of one query in ms. None: not stated, or too few samples stand behind it.

    Attributes:
        p99_upper: One-sided 99 % confidence bound on p99 in the manner of MLPerf's early stopping (the rank is
            moved up until the binomial tail allows it); None where the run was too short for one.
    """

    mean: float | None = Field(default=None, gt=0)
    std: float | None = Field(default=None, ge=0)
    min: float | None = Field(default=None, gt=0)
    p50: float | None = Field(default=None, gt=0)
    p90: float | None = Field(default=None, gt=0)
    p95: float | None = Field(default=None, gt=0)
    p99: float | None = Field(default=None, gt=0)
    p99_9: float | None = Field(default=None, gt=0)
    max: float | None = Field(default=None, gt=0)
    p99_upper: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Latency:
        ranks = ("min", "p50", "p90", "p95", "p99", "p99_9", "max")
        known = [(name, value) for name in ranks if (value := getattr(self, name)) is not None]
        for (low, a), (high, b) in itertools.pairwise(known):
            if a > b * (1 + 1e-9):
                raise ValueError(f"{low} = {a:g} ms is above {high} = {b:g} ms")
        for low, high in (("min", "mean"), ("mean", "max")):
            a, b = getattr(self, low), getattr(self, high)
            if a is not None and b is not None and a > b * (1 + 1e-9):
                raise ValueError(f"{low} = {a:g} ms is above {high} = {b:g} ms")
        return self


class Measurement(_Strict):
    """One scenario run on one target.

    Attributes:
        id: Stable name of this record: a digest over its content for own runs, the source's own id for published ones.
        model: Model name.
        precision: Of the weights; None where the source does not say.
        dialect: Of an int8 graph run here.
        target: Target slug, `<device>[@<power mode>][:<MIG profile>]`.
        runtime: What executed.
        provider: What the runtime says really executed.
        scenario: MLPerf scenario.
        batch_size: Samples a query carries (MultiStream: 8); None where the source does not say.
        streams: Queries in flight at once.
        accelerators: Accelerators behind `throughput_ips`, which is per accelerator: already divided.
        latency_ms: Of a query.
        blocks_p50_ms: Median latency of consecutive equal stretches of the run, in order: how much it wandered. Two
            runs are compared by these, since neighbouring queries are not independent samples.
        latency_bound_ms: Limit that a Server run was held to.
        throughput_ips: Samples done ÷ wall time of the run, per accelerator.
        offered_ips: Rate of arrivals in a Server run.
        samples: Samples behind the figures.
        queries: Queries behind the percentiles.
        duration_s: Wall time of the measured run.
        power_w: Mean power; what it covers is in `power_scope`.
        power_scope: `module`, `board`, `system` (wall, host and all) or None.
        energy_j_per_sample: Energy a sample, same scope.
        clocks_mhz: Clock name → mean over the run.
        device: What the machine says of itself.
        conditions: Everything that makes it comparable: threads, transfers, CUDA graph, versions, load average.
        artifact: Digest of the artifact that ran.
        valid: Whether a recommendation may rest on it.
        invalid_reasons: Why not.
        remarks: What a reader should know although it does not make the run invalid (too short, noisy).
        provenance: measured, published or predicted.
        source: Citation: URL or file of a published row, "this machine" for own runs.
        date: Of the run or the publication; None where the source does not say.
        round: MLPerf round or the source's own version word.
    """

    version: Literal[1] = 1
    id: str
    model: str
    precision: Precision | None = None
    dialect: str | None = None
    target: str
    runtime: str | None = None
    provider: str | None = None
    scenario: Scenario
    batch_size: int | None = Field(default=None, ge=1)
    streams: int = Field(default=1, ge=1)
    accelerators: int = Field(default=1, ge=1)
    latency_ms: Latency = Latency()
    blocks_p50_ms: tuple[float, ...] = ()
    latency_bound_ms: float | None = Field(default=None, gt=0)
    throughput_ips: float | None = Field(default=None, gt=0)
    offered_ips: float | None = Field(default=None, gt=0)
    samples: int | None = Field(default=None, ge=1)
    queries: int | None = Field(default=None, ge=1)
    duration_s: float | None = Field(default=None, gt=0)
    power_w: float | None = Field(default=None, gt=0)
    power_scope: Literal["module", "board", "system"] | None = None
    energy_j_per_sample: float | None = Field(default=None, gt=0)
    clocks_mhz: dict[str, float] = {}
    device: dict[str, Any] = {}
    conditions: dict[str, Any] = {}
    artifact: str | None = None
    valid: bool = True
    invalid_reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    provenance: Provenance = Provenance.MEASURED
    source: str
    date: dt.datetime | None = None
    round: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Measurement:
        if self.valid == bool(self.invalid_reasons):
            raise ValueError("a measurement is invalid exactly when it carries reasons")
        for name in ("throughput_ips", "offered_ips", "power_w", "duration_s"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} = {value} is not finite")
        return self

    def comparability(self) -> dict[str, Any]:
        """The values of `COMPARABILITY_KEYS`."""
        return {key: getattr(self, key, self.conditions.get(key)) for key in COMPARABILITY_KEYS}
