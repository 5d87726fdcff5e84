"""One unit a quantity inside; conversion at the border; one formatter for what people read.

Inside: latency ms · duration s · power W · energy J · clock MHz · memory bytes · bandwidth GB/s (10^9) ·
compute TFLOPS or TOPS, dense · temperature °C · price USD per hour · cost USD a month and per million inferences.
"""

from __future__ import annotations

import math

HOURS_PER_MONTH = 730.0
"""8,760 hours a year over 12 months: what cloud price pages use."""

SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600.0
GIB = 1 << 30
MIB = 1 << 20


def format_ms(value: float | None) -> str:
    """Latency with three significant digits: `0.344 ms`, `12.9 ms`."""
    return _or_dash(value, "ms")


def format_rate(value: float | None) -> str:
    """Samples a second: `12,717/s`."""
    return "–" if value is None else (f"{value:,.0f}/s" if value >= 100 else f"{_significant(value)}/s")


def format_watts(value: float | None) -> str:
    """Power: `72 W`."""
    return _or_dash(value, "W")


def format_usd(value: float | None) -> str:
    """Money with cents below 100: `$0.012`, `$12.90`, `$1,999`."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"${value:,.0f}"
    return f"${value:.2f}" if abs(value) >= 0.1 else f"${_significant(value, 2)}"


def format_bytes(value: float | None) -> str:
    """Memory in binary units, named: `97.5 MiB`."""
    if value is None:
        return "–"
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def _or_dash(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{_significant(value)} {unit}"


def _significant(value: float, digits: int = 3) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"
