"""Every spelling of a device in the tables and price lists is known."""

import csv
from pathlib import Path

import pytest

from deploykit.targets.catalog import load_catalog

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "targets" / "tables"


def column(path: Path, name: str) -> set[str]:
    with path.open(encoding="utf-8", newline="") as stream:
        return {row[name] for row in csv.DictReader(stream)} - {""}


@pytest.mark.parametrize("spelling", sorted(column(TABLES / "gpus.csv", "slug") | column(TABLES / "gpus.csv", "name")))
def test_gpus(spelling: str) -> None:
    assert load_catalog().device_slug(spelling)


@pytest.mark.parametrize("spelling", sorted(column(TABLES / "jetson_power_modes.csv", "module")))
def test_modules_of_the_power_mode_tables(spelling: str) -> None:
    file = load_catalog().files[load_catalog().device_slug(spelling)]
    assert file.power_modes


def test_price_lists() -> None:
    spellings: set[str] = set()
    for path in (ROOT / "targets" / "prices").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as stream:
            spellings |= {row["gpu"] for row in csv.DictReader(stream) if row.get("gpu")}
    assert all(load_catalog().device_slug(spelling) for spelling in spellings)
