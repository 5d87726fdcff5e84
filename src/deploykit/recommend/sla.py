"""What is asked of a deployment: limits on latency, rate, power and money. Every limit is a limit."""

from __future__ import annotations

import math
import re

from pydantic import BaseModel, ConfigDict, Field

from deploykit.base.errors import UsageError
from deploykit.base.vocab import Precision


class Sla(BaseModel):
    """The limits.

    Attributes:
        latency_ms: Of one request at `percentile`, at the asked rate; None: no limit.
        percentile: As a share: 0.99.
        fps: Samples a second, all units together; None: one request at a time.
        power_w: Watts of all units together, upper bound.
        budget_usd: Purchase of all units together.
        precision: Only this one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    latency_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    percentile: float = Field(default=0.99, gt=0, lt=1)
    fps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    power_w: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    budget_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    precision: Precision | None = None

    def describe(self) -> str:
        """`p99 ≤ 5 ms at 500/s`."""
        parts = []
        if self.latency_ms is not None:
            parts.append(f"{percentile_name(self.percentile)} ≤ {self.latency_ms:g} ms")
        if self.fps is not None:
            parts.append(f"{'at ' if parts else ''}{self.fps:,g} samples/s")
        if self.power_w is not None:
            parts.append(f"within {self.power_w:,g} W")
        if self.budget_usd is not None:
            parts.append(f"for at most ${self.budget_usd:,g}")
        return " ".join(parts)


def parse_limit(option: str, text: str | None, unit: str = "") -> float | None:
    """Read a limit as people type it: `5`, `5.0`, `5ms`, `1e3`.

    Raises:
        UsageError: Not a number, not finite, or not above zero.
    """
    if text is None:
        return None
    plain = text.strip().lower()
    if unit and plain.endswith(unit):
        plain = plain[: -len(unit)].strip()
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0 or "_" in plain:
        raise UsageError(f"{option} {text!r} is not a number above 0{f' (in {unit})' if unit else ''}")
    return value


def parse_percentile(text: str) -> float:
    """`p99`, `99`, `99.9`, `p99_9` or `0.99` → a share; the last reads as p99, never as the 0.99th percentile.

    Raises:
        UsageError: Not a percentile from 50 up to, but without, 100.
    """
    plain = text.strip().lower().removeprefix("p").replace("_", ".")
    value = float(plain) if re.fullmatch(r"\d+(\.\d+)?", plain) else math.nan
    share = value if 0.5 <= value < 1 else value / 100
    if not 0.5 <= share < 1:
        raise UsageError(f"--percentile {text!r} is not one from p50 to below p100, like p99 or 99.9")
    return share


def percentile_name(share: float) -> str:
    """0.999 → `p99.9`."""
    return f"p{round(share * 100, 4):g}"


def read_sla(
    latency_ms: str | None,
    fps: str | None,
    percentile: str = "p99",
    *,
    power_w: str | None = None,
    budget_usd: str | None = None,
    precision: Precision | None = None,
) -> Sla:
    """Limits as people type them.

    Raises:
        UsageError: One is no limit, or neither latency nor rate is asked for.
    """
    sla = Sla(
        latency_ms=parse_limit("--latency-ms", latency_ms, "ms"),
        percentile=parse_percentile(percentile),
        fps=parse_limit("--fps", fps),
        power_w=parse_limit("--power-w", power_w, "w"),
        budget_usd=parse_limit("--budget-usd", budget_usd),
        precision=precision,
    )
    if sla.latency_ms is None and sla.fps is None:
        raise UsageError("an SLA needs a limit on latency or a rate: give --latency-ms, --fps or both")
    return sla
