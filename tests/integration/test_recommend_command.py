"""`deploykit recommend` as people type it."""

import json
from pathlib import Path

import pytest

from deploykit.cli.app import run

ASKED = ["recommend", "--model", "resnet50", "--latency-ms", "5", "--fps", "500"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


def test_the_winner_its_price_and_its_sources_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(ASKED) == 0
    out = capsys.readouterr().out
    assert out.startswith("resnet50, p99 ≤ 5 ms at 500 samples/s, cheapest by the month")
    for part in ("winner", "meets", "a month", "MLPerf Inference", "changes", "unknown"):
        assert part in out
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_document_with_the_keys_that_scripts_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASKED, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"sla", "model", "winner", "options", "rejected", "next_measurement", "sensitivity"} <= set(document)
    first = document["options"][0]
    assert first["target"] == document["winner"]
    assert {
        "units",
        "precision",
        "latency_ms",
        "throughput_ips",
        "cost",
        "provenance",
        "verdict",
        "sources",
        "why",
    } <= set(first)
    assert first["latency_ms"]["low"] <= first["latency_ms"]["value"] <= first["latency_ms"]["high"]
    assert all(rejected["why"] for rejected in document["rejected"])


def test_no_target_exits_with_3_and_still_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recommend", "--model", "resnet50", "--latency-ms", "0.001", "--fps", "500"]) == 3
    printed = capsys.readouterr()
    assert "fails" in printed.out
    assert "no target of" in printed.err and "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--latency-ms", "0"], "--latency-ms '0'"),
        (["--fps", "nan"], "--fps 'nan'"),
        ([], "--latency-ms, --fps"),
        (["--fps", "5", "--percentile", "p101"], "--percentile"),
        (["--fps", "5", "--model", "resnet51"], "resnet50"),
        (["--fps", "5", "--target", "orin-31w"], "orin-30w"),
        (["--fps", "5", "--prices", "none.csv"], "none.csv"),
    ],
)
def test_bad_input_exits_with_2_and_names_it(
    arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["recommend", *arguments]) == 2
    assert fault in capsys.readouterr().err


def test_own_prices_take_the_place_of_ours(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("- {device: l4, amount: 1, currency: USD, per: once, covers: board}\n")
    assert run([*ASKED, "--prices", "prices.yaml", "--objective", "capex", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["winner"] == "l4"
    assert document["options"][0]["cost"]["capex_usd"] == 1


def test_only_the_targets_named_are_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASKED, "--target", "l4", "--target", "a100-mig-1g.10gb", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    looked_at = [found["target"] for found in document["options"] + document["rejected"]]
    assert sorted(looked_at) == ["a100-sxm4-80gb:1g.10gb", "l4"]
