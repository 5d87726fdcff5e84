"""The highest rate at which a Server run holds its latency limit. Pure but for the run that is passed in."""

from __future__ import annotations

from collections.abc import Callable

_STEPS = 6
"""Of bisection: the rate is then known to 1/64 of what the device can do at most."""
_BACK_OFF = 0.95
_TRIES = 4


def highest_rate(holds: Callable[[float], bool], most: float, steps: int = _STEPS) -> float | None:
    """Bisect between 0 and the most that can be hoped for; None where no tried rate held.

    Args:
        holds: Runs at a rate in samples/s and says whether the limit held.
        most: A rate that cannot be exceeded: batch size ÷ service time × streams.
        steps: Runs.
    """
    low, high, held = 0.0, most, None
    for _ in range(steps):
        rate = (low + high) / 2
        if holds(rate):
            low = held = rate
        else:
            high = rate
    return held


def falling_rates(rate: float) -> list[float]:
    """Rates for the long run that confirms what short ones found: the tail of a longer run reaches further."""
    return [rate * _BACK_OFF**attempt for attempt in range(_TRIES)]
