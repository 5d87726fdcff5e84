import json

import pytest
from typer.testing import CliRunner

from deploykit.base.errors import UnknownNameError
from deploykit.cli import models

RUNNER = CliRunner()


def run(*arguments: str) -> str:
    result = RUNNER.invoke(models.app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_shows_every_card_or_those_of_a_task() -> None:
    cards = json.loads(run("list", "--json"))["models"]
    assert {"resnet50", "efficientnet-lite0"} <= {card["name"] for card in cards}
    detectors = json.loads(run("list", "--task", "detection", "--json"))["models"]
    assert {card["task"] for card in detectors} == {"detection"}
    assert len(detectors) < len(cards)


def test_list_prints_a_table() -> None:
    assert "resnet50" in run("list")


def test_show_is_the_card() -> None:
    card = json.loads(run("show", "resnet50", "--json"))
    assert card["preprocessing"]["resize"] == 232
    assert card["published_name"] == "resnet50"
    text = run("show", "resnet50")
    assert "IMAGENET1K_V2" in text
    assert "shorter side 232, crop 224x224" in text


def test_unknown_names_get_near_misses() -> None:
    with pytest.raises(UnknownNameError, match="resnet50"):
        run("show", "resnet5")
    with pytest.raises(UnknownNameError, match="detection"):
        run("list", "--task", "detect")
