"""Honest intervals: the process's own spread, scaled so that hold-outs are covered as often as is promised.

Split-conformal: on targets and networks that the fit did not see, the absolute error ÷ predicted spread has a quantile
for every level; that quantile, not the normal distribution's, multiplies the spread of an answer. There is one set per
scenario class and rung of the ladder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Two-sided levels whose quantiles are kept."""
_NORMAL = {0.5: 0.674, 0.8: 1.282, 0.9: 1.645, 0.95: 1.960}
_ENOUGH = 20
"""Errors that a set needs to stand on its own; smaller ones are pooled with the rung's others."""


class Rung(str, Enum):
    """How much the predictor has seen of what it is asked. Strongest first."""

    SAME = "same"
    """This network on this target, in another scenario or at another batch."""
    SIBLING = "sibling"
    """This network on many targets, one of them of the same compute capability."""
    ANCHORED = "anchored"
    """This network on many targets, of other compute capabilities."""
    FEW = "few"
    """This network on one to three other targets."""
    GRAPH = "graph"
    """Only its layers."""

    def __str__(self) -> str:
        return self.value


_MANY = 4


def rung_of(target: str, capability: str, seen: Mapping[str, str]) -> Rung:
    """What had been seen of a network.

    Args:
        target: Where it is asked for.
        capability: The target's compute capability.
        seen: Target with rows of this network → its compute capability.
    """
    if target in seen:
        return Rung.SAME
    if not seen:
        return Rung.GRAPH
    if len(seen) < _MANY:
        return Rung.FEW
    return Rung.SIBLING if capability in seen.values() else Rung.ANCHORED


@dataclass(frozen=True)
class HeldOutError:
    """One held-out answer.

    Attributes:
        rung: What the fit had seen.
        use: Scenario class.
        score: |log predicted − log measured| ÷ predicted spread.
    """

    rung: Rung
    use: str
    score: float


def quantiles(errors: Iterable[HeldOutError]) -> dict[str, dict[float, float]]:
    """`rung/use` → level → multiplier, with the finite-sample correction of split-conformal prediction."""
    pools: dict[str, list[float]] = {}
    for error in errors:
        pools.setdefault(f"{error.rung}/{error.use}", []).append(error.score)
        pools.setdefault(f"{error.rung}/", []).append(error.score)
    return {
        key: {level: _quantile(scores, level) for level in LEVELS}
        for key, scores in pools.items()
        if len(scores) >= _ENOUGH
    }


def _quantile(scores: Sequence[float], level: float) -> float:
    """The ⌈(n+1)·level⌉-th smallest score."""
    ordered = np.sort(scores)
    rank = min(math.ceil((len(ordered) + 1) * level), len(ordered))
    return round(float(ordered[rank - 1]), 3)


def multiplier(table: Mapping[str, Mapping[float, float]], rung: Rung, use: str, level: float) -> float:
    """Spreads that an interval of a level reaches to either side.

    Args:
        table: From `quantiles`.
        rung: What is known.
        use: Scenario class.
        level: Two-sided; between the kept levels it is interpolated in the normal score.
    """
    known = table.get(f"{rung}/{use}") or table.get(f"{rung}/") or _NORMAL
    levels = sorted(known)
    wanted = _normal_score(level)
    scores = [_normal_score(each) for each in levels]
    if wanted >= scores[-1]:
        return known[levels[-1]] * wanted / scores[-1]
    return float(np.interp(wanted, [0.0, *scores], [0.0, *(known[each] for each in levels)]))


@lru_cache(maxsize=64)
def _normal_score(level: float) -> float:
    """Two-sided normal quantile, by Newton's method on the error function."""
    x = 1.0
    for _ in range(30):
        x -= (math.erf(x / math.sqrt(2.0)) - level) / (math.sqrt(2.0 / math.pi) * math.exp(-0.5 * x * x))
        x = min(max(x, 0.0), 6.0)
    return x
