"""Price quotes: what was asked for a device, when, where, and who says so.

Nothing is converted between currencies, and a price that does not say what it covers is refused.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deploykit.base.data import data_folder
from deploykit.base.errors import UsageError
from deploykit.base.units import HOURS_PER_MONTH

STALE_AFTER_DAYS = 365
"""Card and cloud prices moved by up to half within a year (targets/prices/README.md)."""

Per = Literal["hour", "month", "year", "once"]
_HOURS = {"hour": 1.0, "month": HOURS_PER_MONTH, "year": 12 * HOURS_PER_MONTH}


class Quote(BaseModel):
    """One price.

    Attributes:
        sku: What the seller calls it.
        kind: `capex` is bought, the others are rented.
        device: Slug of the device, as a target file's `price_keys` or `device` spell it.
        count: Devices for this amount: a machine of eight is rented whole.
        amount: Money for all of them.
        per: What the amount is for; `once` is a purchase.
        covers: `machine` (all that is needed), `card` (needs a host), `module` (needs a carrier board), `board` (runs
            as it is).
        date: As the source states it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sku: str
    kind: Literal["capex", "cloud-on-demand", "cloud-spot", "cloud-capacity-block", "cloud-1yr"]
    provider: str = ""
    region: str = ""
    device: str
    count: int = Field(default=1, ge=1)
    amount: float = Field(gt=0, allow_inf_nan=False)
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    per: Per
    covers: Literal["machine", "card", "module", "board"]
    date: str = ""
    source: str
    notes: str = ""

    @property
    def rented(self) -> bool:
        """Whether it is paid by the hour."""
        return self.per != "once"

    @property
    def usd_per_hour(self) -> float | None:
        """Of the whole quote, all `count` devices; None for a purchase or another currency."""
        return self.amount / _HOURS[self.per] if self.rented and self.currency == "USD" else None

    @property
    def as_of(self) -> dt.date | None:
        """The earliest day that the date can mean; None where it says none."""
        found = re.search(r"(20\d\d)(?:-(\d\d))?(?:-(\d\d))?", self.date)
        if found is None:
            return None
        year, month, day = found.groups()
        return dt.date(int(year), int(month or 1), int(day or 1))

    def flags(self, today: dt.date) -> tuple[str, ...]:
        """`unverified`, `undated`, `stale`: what a reader should know before trusting it."""
        found = ["unverified"] if "unverified" in self.source else []
        if self.as_of is None:
            found.append("undated")
        elif (today - self.as_of).days > STALE_AFTER_DAYS:
            found.append("stale")
        return tuple(found)

    @property
    def seller(self) -> str:
        """Who, and where unless the name says so: `AWS us-east-1`, `Amazon US`; empty where not known."""
        where = "" if self.region in self.provider.split() else self.region
        return " ".join(filter(None, (self.provider, where)))

    def citation(self) -> str:
        """`p4d.24xlarge, AWS us-east-1, 32.7726 USD/hour for 8, 2025 (source)`."""
        where = self.seller
        devices = f" for {self.count}" if self.count > 1 else ""
        per = "" if self.per == "once" else f"/{self.per}"
        date = self.date or "no date"
        return (
            f"{self.sku}, {where or 'no seller'}, {self.amount:g} {self.currency}{per}{devices}, {date} ({self.source})"
        )


class EnergyPrice(BaseModel):
    """An electricity tariff, or a PUE."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["electricity", "pue"]
    region: str
    value: float = Field(gt=0)
    currency: str = ""
    unit: str
    date: str
    source: str
    notes: str = ""


@lru_cache(maxsize=1)
def packaged_quotes() -> tuple[Quote, ...]:
    """The quotes in `targets/prices/quotes.csv`."""
    return tuple(Quote.model_validate(row) for row in _rows("quotes.csv"))


@lru_cache(maxsize=1)
def energy_prices() -> tuple[EnergyPrice, ...]:
    """The tariffs and PUE in `targets/prices/energy.csv`."""
    return tuple(EnergyPrice.model_validate(row) for row in _rows("energy.csv"))


def _rows(name: str) -> Iterable[dict[str, str]]:
    with (data_folder("targets") / "prices" / name).open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def quotes_for(device: str, price_keys: Iterable[str], quotes: Iterable[Quote]) -> list[Quote]:
    """Quotes of a device, under any of the names that price lists use for it."""
    names = {device, *price_keys}
    return [quote for quote in quotes if quote.device in names]


def read_quotes(path: Path) -> tuple[Quote, ...]:
    """A user's own prices: a CSV, JSON or YAML list with the fields of `Quote`.

    Raises:
        UsageError: The file, the row, the field and what is wrong with it. All rows or none.
    """
    try:
        rows = _user_rows(path)
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"price file {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"price file {path} holds no list of prices")
    return tuple(_user_quote(path, number, row) for number, row in enumerate(rows, start=1))


def _user_rows(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return [{key: value for key, value in row.items() if value} for row in csv.DictReader(text.splitlines())]
    document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    return document.get("prices") if isinstance(document, dict) else document


def _user_quote(path: Path, number: int, row: Any) -> Quote:
    if not isinstance(row, dict):
        raise UsageError(f"price file {path}, price {number}: not a mapping of fields")
    defaults = {"sku": f"{path.name} {number}", "source": str(path)}
    kind = "capex" if row.get("per") == "once" else "cloud-on-demand"
    try:
        return Quote.model_validate({"kind": kind, **defaults, **row})
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        hint = "; a price needs device, amount, currency, per (hour, month, year, once) and covers"
        raise UsageError(f"price file {path}, price {number}: field {field!r}: {fault['msg']}{hint}") from error
