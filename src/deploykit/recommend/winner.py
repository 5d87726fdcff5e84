"""Who wins under changed limits or prices, without ranking everybody: branch and bound, with `rank`'s own answer.

A target cannot cost less than the fewest units that its evidence allows at the least that a unit costs in any number.
Targets are looked at in the order of that bound, until it is above what a target that meets the SLA costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.base.vocab import Verdict
from deploykit.cost.model import costs
from deploykit.cost.quotes import quotes_for
from deploykit.evidence import Evidence
from deploykit.recommend.answer import Option
from deploykit.recommend.queueing import units_for
from deploykit.recommend.rank import Market, amount, best, chosen, sort_key
from deploykit.recommend.sla import Sla
from deploykit.targets.spec import TargetSpec

_ROUNDING = 1e-9
"""Of a bound: what the order of floating-point operations may move it by."""


@dataclass(frozen=True)
class _Entrant:
    """A target with what bounds its cost: USD a unit at the least, samples/s of a unit at the most."""

    spec: TargetSpec
    entries: Sequence[Evidence]
    bounds: tuple[tuple[float, float], ...]

    def floor_usd(self, fps: float | None) -> float:
        return min(usd * (units_for(fps, rate) if fps else 1) for usd, rate in self.bounds)


class Contest:
    """Targets that may win.

    Args:
        points: Operating points.
        evidence: By canonical reference.
        market: Prices; only its tariff may differ between questions.
        lowest_tariff: USD/kWh: no question has a lower one.
        strict: Only `meets` may win.
    """

    def __init__(
        self,
        points: Sequence[TargetSpec],
        evidence: Mapping[str, Sequence[Evidence]],
        market: Market,
        lowest_tariff: float,
        strict: bool,
    ) -> None:
        self._strict = strict
        cheap = replace(market, assumed=replace(market.assumed, tariff_usd_per_kwh=lowest_tariff))
        entrants = (_entrant(spec, evidence[spec.ref], cheap) for spec in points if spec.ref in evidence)
        self._entrants = [entrant for entrant in entrants if entrant.bounds]

    def winner(self, sla: Sla, market: Market) -> str | None:
        """The target that `rank` would put first of those that have a price; None where nobody meets the SLA."""
        leader: Option | None = None
        by_floor = sorted((entrant.floor_usd(sla.fps), i) for i, entrant in enumerate(self._entrants))
        for floor, i in by_floor:
            if leader is not None and floor * (1 - _ROUNDING) > _usd_to_beat(leader, market):
                break
            found = best(self._entrants[i].spec, self._entrants[i].entries, sla, market)
            if isinstance(found, Option) and self._may_win(found):
                rivals = [found] if leader is None else [leader, found]
                leader = min(rivals, key=lambda option: sort_key(option, market.objective))
        return leader.target if leader else None

    def _may_win(self, option: Option) -> bool:
        return option.cost is not None and (not self._strict or option.verdict is Verdict.MEETS)


def _entrant(spec: TargetSpec, entries: Sequence[Evidence], market: Market) -> _Entrant:
    found = ((_least_usd(spec, entry, market), _most_ips(entry)) for entry in entries)
    return _Entrant(spec, entries, tuple((usd, rate) for usd, rate in found if usd < math.inf and rate > 0))


def _least_usd(spec: TargetSpec, entry: Evidence, market: Market) -> float:
    """What one of many units costs where they fill their cards and machines; infinite without a price."""
    quotes = quotes_for(spec.device.device, spec.device.price_keys, market.quotes)
    slices = spec.profile.max_instances if spec.profile else 1
    units = math.lcm(*(slices * quote.count for quote in quotes)) if quotes else 1
    cost = chosen(costs(spec, units, quotes, market.assumed, rate_ips=None, power_w=entry.power_w), market.objective)
    return math.inf if cost is None else amount(cost, market.objective) / units


def _most_ips(entry: Evidence) -> float:
    """No reading of the evidence gives a unit a higher rate, whatever the limit."""
    rates = [point.rate_ips for point in entry.held]
    rates += [entry.ceiling_ips.high] if entry.ceiling_ips else []
    for batch, by_share in entry.unloaded_ms.items():
        rates += [1000.0 * batch / figure.low for figure in by_share.values()]
    return max(rates, default=0.0)


def _usd_to_beat(leader: Option, market: Market) -> float:
    """Whoever is surely dearer than this loses; one that is only likely to meet the SLA is beaten at any price."""
    if leader.cost is None or leader.verdict is not Verdict.MEETS:
        return math.inf
    return amount(leader.cost, market.objective)
