"""From quotes to USD a month and per million inferences. Pure.

Owning: purchase ÷ life + host + energy. Renting: the hour price of whole machines. One unit for all: USD a month at 730
hours. What a figure rests on is listed with it, and what could not be counted is an error, not a zero.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from deploykit.base.units import HOURS_PER_MONTH, SECONDS_PER_MONTH
from deploykit.cost.quotes import EnergyPrice, Quote
from deploykit.targets.spec import TargetSpec

Objective = Literal["monthly", "capex", "cloud"]


@dataclass(frozen=True)
class Assumptions:
    """What no price list says. Each can be overridden, and each is told with the answer.

    Attributes:
        life_years: Over which a purchase is written off.
        host_usd: Machine around one bare card, its share of chassis, CPU and memory.
        tariff_usd_per_kwh: Electricity.
        pue: Of a datacenter; elsewhere nothing is cooled for it.
        whole_card: A MIG slice pays for the whole card, because nothing else fills it.
        spot: Spot prices count as prices.
        today: What stale is measured against.
    """

    life_years: float
    host_usd: float
    tariff_usd_per_kwh: float
    pue: float
    whole_card: bool
    spot: bool
    today: dt.date


DEFAULT_LIFE_YEARS = 3.0
DEFAULT_HOST_USD = 1500.0
"""Our assumption, with no source behind it: it is printed as such wherever it counts."""


def default_assumptions(today: dt.date, energy: Sequence[EnergyPrice]) -> Assumptions:
    """The US default tariff and the global PUE of the price tables; the rest as assumed here."""
    tariff = next(price for price in energy if price.kind == "electricity" and price.region == "US")
    pue = next(price for price in energy if price.kind == "pue")
    return Assumptions(DEFAULT_LIFE_YEARS, DEFAULT_HOST_USD, tariff.value, pue.value, False, False, today)


class Cost(BaseModel):
    """What some units of a target cost.

    Attributes:
        basis: Owned or rented.
        capex_usd: Paid at the start; None where rented.
        monthly_usd: All in, a month.
        usd_per_million: Per million inferences at the asked rate; None where no rate was asked.
        energy_usd: Part of the month's cost that is electricity; None where rented (it is in the price).
        power_w: Watts behind it, all units.
        quote: Citation of the price.
        flags: `unverified`, `undated`, `stale`.
        notes: What else it rests on.
    """

    model_config = ConfigDict(frozen=True)

    basis: Literal["own", "rent"]
    capex_usd: float | None
    monthly_usd: float
    usd_per_million: float | None
    energy_usd: float | None
    power_w: float | None
    quote: str
    flags: tuple[str, ...]
    notes: tuple[str, ...]


def costs(
    spec: TargetSpec,
    units: int,
    quotes: Sequence[Quote],
    assumed: Assumptions,
    *,
    rate_ips: float | None,
    power_w: float | None = None,
) -> list[Cost]:
    """The best way to own and the best way to rent some units of a target, cheaper month first.

    Args:
        spec: The target.
        units: Whole devices, or slices of a MIG card.
        quotes: Of the device.
        assumed: What no price list says.
        rate_ips: Asked rate, for the price per million.
        power_w: Measured watts of one unit; None: the target's power limit is taken, an upper bound.
    """
    usable = [quote for quote in quotes if quote.currency == "USD" and quote.kind in _kinds(assumed)]
    owned = sorted((quote for quote in usable if not quote.rented), key=_purchase_order)
    rented = sorted((quote for quote in usable if quote.rented), key=_rental_order)
    found = [
        *(_own(spec, units, quote, assumed, power_w) for quote in owned[:1]),
        *(_rent(spec, units, quote, assumed) for quote in rented if quote.covers == "machine"),
    ]
    known = [_per_million(cost, rate_ips) for cost in found if cost is not None]
    best = {basis: _cheapest(known, basis) for basis in ("own", "rent")}
    return sorted((cost for cost in best.values() if cost is not None), key=lambda cost: cost.monthly_usd)


def _kinds(assumed: Assumptions) -> tuple[str, ...]:
    """Capacity blocks are left out: they end after days, and a service runs for months."""
    return ("capex", "cloud-on-demand", "cloud-1yr", *(("cloud-spot",) if assumed.spot else ()))


def _purchase_order(quote: Quote) -> tuple[bool, bool, int, float]:
    """The price one would pay today: a source before none, complete before part, the newest, then the cheapest.

    List prices of past years are lower than what a card sells for.
    """
    day = quote.as_of.toordinal() if quote.as_of else 0
    return "unverified" in quote.source, quote.covers == "module", -day, quote.amount


def _rental_order(quote: Quote) -> tuple[bool, float]:
    return "unverified" in quote.source, (quote.usd_per_hour or math.inf) / quote.count


def _cheapest(known: Sequence[Cost], basis: str) -> Cost | None:
    """The cheapest month; one with a source before any without."""
    own = [cost for cost in known if cost.basis == basis]
    return min(own, key=lambda cost: ("unverified" in cost.flags, cost.monthly_usd), default=None)


def _per_million(cost: Cost, rate_ips: float | None) -> Cost:
    if rate_ips is None:
        return cost
    millions = rate_ips * SECONDS_PER_MONTH / 1e6
    return cost.model_copy(update={"usd_per_million": cost.monthly_usd / millions})


def _devices(spec: TargetSpec, units: int, assumed: Assumptions) -> tuple[float, list[str]]:
    """Devices' worth that some units pay for: slices pay their share, or the cards that hold them."""
    if spec.profile is None:
        return float(units), []
    if assumed.whole_card:
        cards = math.ceil(units / spec.profile.max_instances)
        return float(cards), [f"{cards} whole card{'s' if cards > 1 else ''} for {units} slices"]
    return units * spec.share_of_device, [
        f"a slice pays {spec.share_of_device:.3g} of its card: the rest must be filled"
    ]


def _rent(spec: TargetSpec, units: int, quote: Quote, assumed: Assumptions) -> Cost | None:
    if quote.covers != "machine" or quote.usd_per_hour is None:
        return None
    devices, notes = _devices(spec, units, assumed)
    if spec.profile is None or assumed.whole_card:
        machines: float = math.ceil(devices / quote.count)
        if quote.count > 1:
            notes.append(f"{machines:g} machine{'s' if machines > 1 else ''} of {quote.count}, rented whole")
    else:
        machines = devices / quote.count
    return Cost(
        basis="rent",
        capex_usd=None,
        monthly_usd=machines * quote.usd_per_hour * HOURS_PER_MONTH,
        usd_per_million=None,
        energy_usd=None,
        power_w=None,
        quote=quote.citation(),
        flags=quote.flags(assumed.today),
        notes=tuple(notes),
    )


def _own(spec: TargetSpec, units: int, quote: Quote, assumed: Assumptions, power_w: float | None) -> Cost | None:
    watts = power_w if power_w is not None else spec.power_w
    if watts is None:
        return None
    devices, notes = _devices(spec, units, assumed)
    capex = devices * quote.amount / quote.count
    if quote.covers == "card":
        capex += devices * assumed.host_usd
        notes.append(f"host ${assumed.host_usd:,.0f} a card (an assumption, no source: --host-usd)")
    if quote.covers == "module":
        notes.append("bare module: its carrier board is not in the price")
    if power_w is None:
        notes.append("power limit taken for the power drawn, an upper bound")
    datacenter = spec.device.kind == "datacenter"
    drawn_w = devices * watts
    energy = drawn_w / 1000 * (assumed.pue if datacenter else 1.0) * assumed.tariff_usd_per_kwh * HOURS_PER_MONTH
    return Cost(
        basis="own",
        capex_usd=capex,
        monthly_usd=capex / (assumed.life_years * 12) + energy,
        usd_per_million=None,
        energy_usd=energy,
        power_w=drawn_w,
        quote=quote.citation(),
        flags=quote.flags(assumed.today),
        notes=tuple(notes),
    )
