import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from deploykit.base.errors import UsageError
from deploykit.cost.model import Assumptions, costs
from deploykit.cost.quotes import Quote, energy_prices, packaged_quotes, read_quotes
from deploykit.targets.catalog import load_catalog

TODAY = dt.date(2026, 12, 1)
ASSUMED = Assumptions(3.0, 1500.0, 0.10, 1.5, False, False, TODAY)
CARD = Quote(
    sku="card", kind="capex", device="l4", amount=2160, currency="USD", per="once", covers="card", date="2026-11-01",
    source="a shop",
)  # fmt: skip
RENTED = Quote(
    sku="eight", kind="cloud-on-demand", device="a100-sxm4-80gb", count=8, amount=16, currency="USD", per="hour",
    covers="machine", date="2026-11", source="a cloud",
)  # fmt: skip


def test_owning_is_purchase_over_life_plus_host_plus_energy() -> None:
    spec = load_catalog().resolve("l4")
    (found,) = costs(spec, 2, [CARD], ASSUMED, rate_ips=1000, power_w=50)
    assert found.capex_usd == pytest.approx(2 * (2160 + 1500))
    energy = 2 * 0.050 * 1.5 * 0.10 * 730
    assert found.energy_usd == pytest.approx(energy)
    assert found.monthly_usd == pytest.approx(2 * 3660 / 36 + energy)
    assert found.usd_per_million == pytest.approx(found.monthly_usd / (1000 * 730 * 3600 / 1e6))


def test_machines_are_rented_whole() -> None:
    spec = load_catalog().resolve("a100-sxm4-80gb")
    (found,) = costs(spec, 9, [RENTED], ASSUMED, rate_ips=None)
    assert found.monthly_usd == pytest.approx(2 * 16 * 730)
    assert found.usd_per_million is None and found.capex_usd is None


def test_a_slice_pays_its_share_or_its_card() -> None:
    spec = load_catalog().resolve("a100-sxm4-80gb:1g.10gb")
    (share,) = costs(spec, 1, [RENTED], ASSUMED, rate_ips=None)
    (whole,) = costs(spec, 1, [RENTED], replace(ASSUMED, whole_card=True), rate_ips=None)
    assert share.monthly_usd == pytest.approx(16 * 730 / 8 * spec.share_of_device)
    assert whole.monthly_usd == pytest.approx(16 * 730)


def test_other_currencies_and_spot_do_not_count_unasked() -> None:
    spec = load_catalog().resolve("a100-sxm4-80gb")
    euros = RENTED.model_copy(update={"currency": "EUR"})
    spot = RENTED.model_copy(update={"kind": "cloud-spot", "amount": 1.0})
    assert costs(spec, 1, [euros, spot], ASSUMED, rate_ips=None) == []
    assert costs(spec, 1, [spot], replace(ASSUMED, spot=True), rate_ips=None)[0].monthly_usd == pytest.approx(730)


@pytest.mark.parametrize(("date", "flags"), [("2026-11", ()), ("2024-01-01", ("stale",)), ("some day", ("undated",))])
def test_old_prices_are_flagged(date: str, flags: tuple[str, ...]) -> None:
    assert CARD.model_copy(update={"date": date}).flags(TODAY) == flags


def test_every_packaged_price_has_a_source_and_a_known_device() -> None:
    names = {key for file in load_catalog().files.values() for key in (file.device, *file.price_keys)}
    quotes = packaged_quotes()
    assert len(quotes) > 50
    assert [q.sku for q in quotes if not q.source] == []
    known = [q for q in quotes if q.device in names]
    assert len(known) > len(quotes) / 2
    assert all(price.source for price in energy_prices())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "no list of prices"),
        ("- {device: l4}", "field 'amount'"),
        ("- {device: l4, amount: -1, currency: USD, per: once, covers: card}", "field 'amount'"),
        ("- {device: l4, amount: 1, currency: dollars, per: once, covers: card}", "field 'currency'"),
        ("- {device: l4, amount: 1, currency: USD, per: week, covers: card}", "field 'per'"),
        ("- 5", "not a mapping"),
        ("{a: [", "cannot be read"),
    ],
)
def test_a_price_file_that_is_wrong_is_refused_whole(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=fault):
        read_quotes(path)


def test_a_price_file_in_each_form(tmp_path: Path) -> None:
    row = {"device": "l4", "amount": "2160", "currency": "USD", "per": "once", "covers": "card"}
    (tmp_path / "p.csv").write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    (tmp_path / "p.yaml").write_text(
        "".join(f"{'- ' if i == 0 else '  '}{k}: {v}\n" for i, (k, v) in enumerate(row.items()))
    )
    first, second = (read_quotes(tmp_path / name)[0] for name in ("p.csv", "p.yaml"))
    assert first.amount == second.amount == 2160
    assert first.kind == "capex"
