"""A built wheel carries its data and works where nothing but the wheel is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed wheel, away from the checkout."""
    built = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return folder


def run(installed: Path, empty: Path, *arguments: str) -> str:
    code = "import sys; from deploykit.cli.app import run; sys.exit(run(sys.argv[1:]))"
    # In front of site-packages, so that the checkout's editable install is not what answers.
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=empty, env=environment, check=True, capture_output=True, text=True).stdout


def test_the_wheel_answers_from_its_own_files(installed: Path, tmp_path: Path) -> None:
    code = "import deploykit, deploykit.base.data as d; print(deploykit.__file__, d.data_folder('targets'))"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert all(part.startswith(str(installed)) for part in out.split())


def test_targets_models_and_published_results_travel(installed: Path, tmp_path: Path) -> None:
    targets = json.loads(run(installed, tmp_path, "targets", "list", "--json"))
    assert "orin-agx-64gb@30w" in json.dumps(targets)
    models = json.loads(run(installed, tmp_path, "models", "list", "--json"))
    assert "resnet50" in json.dumps(models)
    answer = json.loads(run(installed, tmp_path, "recommend", "--latency-ms", "5", "--fps", "500", "--json"))
    assert answer["winner"]
    assert (installed / "deploykit" / "py.typed").exists()


def test_a_recommendation_writes_nothing(installed: Path, tmp_path: Path) -> None:
    run(installed, tmp_path, "recommend", "--latency-ms", "5", "--fps", "500")
    assert list(tmp_path.iterdir()) == []
