import json
from pathlib import Path

import pytest

from deploykit.cli.app import run
from deploykit.targets.catalog import load_catalog

README = Path(__file__).resolve().parents[3] / "targets" / "README.md"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run where no checkout is, in a terminal wide enough for any row."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run([*arguments, "--json"]) == 0
    out = capsys.readouterr()
    assert out.err == ""
    found = json.loads(out.out)
    assert isinstance(found, dict)
    return found


def test_the_list_has_every_point(capsys: pytest.CaptureFixture[str]) -> None:
    targets = document(capsys, "targets", "list")["targets"]
    assert isinstance(targets, list)
    assert [target["target"] for target in targets] == [point.ref for point in load_catalog().all_points()]


def test_a_kind_narrows_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    targets = document(capsys, "targets", "list", "--kind", "workstation")["targets"]
    assert isinstance(targets, list)
    assert {target["target"] for target in targets} == {"rtx-a4000", "rtx-a6000", "rtx-6000-ada"}


def test_the_table_shows_the_figures_of_the_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets", "list"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["orin-agx-64gb@30w"][-7:] == ["8", "612", "64", "205", "20.1", "45", "30"]
    assert "*" in lines["thor-t5000@maxn"]
    assert "*" not in lines["rtx-4090"]


def test_show_has_the_keys_that_scripts_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "targets", "show", "a100-mig-1g.10gb")
    assert {"target", "device", "power_mode", "mig_profile", "specs", "prices", "sources"} <= set(found)
    assert (found["target"], found["mig_profile"]) == ("a100-sxm4-80gb:1g.10gb", "1g.10gb")
    assert found["aliases"] == ["a100-mig-1g.10gb"]
    specs = found["specs"]
    assert isinstance(specs, dict)
    assert specs["sm_count"] == 14
    prices = found["prices"]
    assert isinstance(prices, list) and prices
    assert all(price["source"] and price["amount"] > 0 and "flags" in price for price in prices)


def test_show_cites_what_stands_behind_this_mode_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "targets", "show", "orin-nano-8gb-super@25w")
    text = json.dumps(found["sources"])
    assert "nvpmodel_p3767_0003_super.conf @" in text
    assert "test fixture" not in text
    assert "test fixture" in json.dumps(document(capsys, "targets", "show", "orin-nano-8gb-super@7w")["sources"])


def test_show_tells_people_of_contradictions_and_unverified_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets", "show", "h100-nvl:1g.12gb"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "mig_profiles/1g.12gb/sm_count" in out
    assert "mig_profiles/3g.47gb/sm_count" not in out
    assert "assumed as H100 SXM5" in out


def test_a_card_that_nobody_has_heard_of_is_shown_from_its_own_file(
    capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    example = README.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    (elsewhere / "targets").mkdir()
    (elsewhere / "targets" / "my-card.yaml").write_text(example, encoding="utf-8")
    for ref in ("my-card", "./targets/my-card.yaml"):
        specs = document(capsys, "targets", "show", ref)["specs"]
        assert isinstance(specs, dict)
        assert (specs["int8_tops"], specs["power_w"]) == (242, 72)
    assert "my-card" in json.dumps(document(capsys, "targets", "list"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "orin-30"], "did you mean orin-30w"),
        (["show", "l4:1g.5gb"], "cards with MIG profiles"),
        (["show", "./no.yaml"], "no.yaml cannot be read"),
        (["list", "--kind", "desk"], "did you mean desktop"),
    ],
)
def test_what_does_not_exist_ends_in_one_paragraph(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["targets", *arguments]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert words in out.err
    assert "Traceback" not in out.err
