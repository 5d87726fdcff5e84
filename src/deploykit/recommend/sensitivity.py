"""Where the winner changes: one quantity is varied, all else kept, and the whole ranking done anew at each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from deploykit.recommend.answer import Flip

FACTORS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Looked at between a tenth and ten times the asked value: further away it is another question."""

_HALVINGS = 6
"""Of a step: the place is then known to about 1 %."""


def flips(
    quantity: str, value: float, winner_at: Callable[[float], str | None], factors: Sequence[float] = FACTORS
) -> list[Flip]:
    """Where the winner changes along a quantity.

    Args:
        quantity: Its name.
        value: As asked.
        winner_at: The winner at another value.
        factors: Of the asked value, rising.
    """
    known = [(value * factor, winner_at(value * factor)) for factor in factors]
    found = []
    for (low, below), (high, above) in pairwise(known):
        if below != above:
            at = _place(low, high, below, winner_at)
            found.append(Flip(quantity=quantity, at=float(f"{at:.3g}"), below=below, above=winner_at(high)))
    return found


def _place(low: float, high: float, below: str | None, winner_at: Callable[[float], str | None]) -> float:
    """Halve the step until the change is pinned down; of several changes in it, the first."""
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        if winner_at(middle) == below:
            low = middle
        else:
            high = middle
    return high
