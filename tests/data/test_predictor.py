"""What the predictor ships agrees with what it is made from."""

import math
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from deploykit.predict.correction import DEFAULT_NOISE, TERMS
from deploykit.predict.holdout import tails
from deploykit.predict.intervals import LEVELS, Rung
from deploykit.predict.kernels import dumps, read_features
from deploykit.predict.names import DATA, known_names, network_named
from deploykit.predict.observe import Observation
from deploykit.predict.published import published_observations
from deploykit.predict.roofline import PRIOR_SPREAD, Constants
from deploykit.predict.training import read_fitted, read_machines, read_training

ROOT = Path(__file__).resolve().parents[2]
FEATURES = sorted((DATA / "features").glob("*.json"))


@pytest.fixture(scope="module")
def made() -> list[Observation]:
    return published_observations()[0]


def test_the_training_table_is_the_published_rows(made: list[Observation]) -> None:
    shipped = read_training().rows
    assert [row.ids for row in shipped] == [row.ids for row in made], "run scripts/make_predictor"
    for row, again in zip(shipped, made, strict=True):
        assert row.point == again.point
        assert row.log_ms == pytest.approx(again.log_ms, abs=1e-5)
        assert row.count == again.count


def test_each_machine_is_what_its_target_file_says(made: list[Observation]) -> None:
    assert read_machines() == {row.point.machine.ref: row.point.machine for row in made}


def test_the_noise_of_each_row_is_that_of_the_settings(made: list[Observation]) -> None:
    assert np.array(read_training().tails) == pytest.approx(tails(made, read_fitted().settings), rel=0.02)


def test_every_constant_is_there_and_within_reach_of_its_prior() -> None:
    shipped, default = asdict(read_fitted().settings.constants), asdict(Constants())
    assert shipped.keys() == default.keys() == PRIOR_SPREAD.keys()
    for name, value in shipped.items():
        assert abs(math.log(value / default[name])) < 4.5 * PRIOR_SPREAD[name], name


def test_every_setting_is_there() -> None:
    settings = read_fitted().settings
    assert settings.spread.keys() == TERMS.keys()
    assert settings.noise.keys() == DEFAULT_NOISE.keys()


def test_every_rung_has_multipliers_that_grow_with_the_level() -> None:
    table = read_fitted().quantiles
    for rung in Rung:
        for use in ("", "latency", "Offline", "Server"):
            found = [table[f"{rung}/{use}"][level] for level in LEVELS]
            assert found == sorted(found)
            assert 0.3 < found[0] < 1.0


@pytest.mark.parametrize("path", FEATURES, ids=lambda path: path.stem)
def test_a_feature_file_reads_back_as_it_stands(path: Path) -> None:
    features = read_features(path)
    assert dumps(features) == path.read_text(encoding="utf-8")
    assert features.model == path.stem
    assert features.source
    assert features.kernels > 0
    assert features.flops > 0


def test_every_name_leads_to_features() -> None:
    for name in known_names():
        assert network_named(name).features.groups


def test_the_errors_on_the_page_are_those_of_what_ships() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "predictor_report", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
