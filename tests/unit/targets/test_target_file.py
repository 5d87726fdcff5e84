from pathlib import Path
from typing import Any

import pytest
import yaml

from deploykit.base.errors import UsageError
from deploykit.targets.target_file import is_target_file, read_target_file

SLICE = {
    "source": "sheet", "compute_slices": 1, "compute_slices_total": 7, "memory_slices": 1, "memory_slices_total": 8,
    "memory_gb": 10, "bandwidth_fraction": 0.125, "max_instances": 7,
}  # fmt: skip
MODE = {"source": "sheet", "nvpmodel_name": "MODE_30W"}
CARD: dict[str, Any] = {
    "version": 1,
    "device": "my-card",
    "name": "My Card",
    "kind": "desktop",
    "silicon": {"source": "sheet", "architecture": "Mine", "compute_capability": "9.9", "int8_tops": 100},
    "sources": {"sheet": {"citation": "vendor's sheet", "trust": "good"}},
}


def fault(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_target_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memroy": {}}, "unknown field 'memroy'; did you mean memory"),
        ({"silicon": {"source": "sheet", "architecture": "x", "int8_top": 3}}, "did you mean int8_tops"),
        ({"kind": "toaster"}, "field 'kind' is 'toaster'"),
        ({"kind": None}, "field 'kind' is None"),
        ({"silicon": {"source": "sheet"}}, "field 'silicon.architecture' is missing"),
        ({"silicon": {"source": "sheet", "architecture": "x", "int8_tops": -1}}, "field 'silicon.int8_tops' is -1"),
        (
            {"silicon": {"source": "sheet", "architecture": "x", "int8_tops": float("nan")}},
            "'silicon.int8_tops' is nan",
        ),
        ({"silicon": {"source": "sheet", "architecture": "x", "l2_mb": float("inf")}}, "'silicon.l2_mb' is inf"),
        ({"silicon": {"source": "sheet", "architecture": "x", "compute_capability": 8.6}}, "is 8.6: Input should be"),
        ({"silicon": {"source": "nowhere", "architecture": "x"}}, "source 'nowhere' is not among"),
        ({"version": 2}, "field 'version' is 2, this deploykit reads 1"),
        ({"device": "My Card"}, "field 'device' is 'My Card'"),
        ({"power_modes": {"30w": MODE}}, "needs a default_mode"),
        ({"power_modes": {"30W": MODE}, "default_mode": "30W"}, "power_modes.30W"),
        ({"power_modes": {"30w": MODE}, "default_mode": "50w"}, "mode '50w' is not among"),
        ({"power_modes": {"30w": MODE}, "default_mode": "30w", "mig_profiles": {"1g.10gb": SLICE}}, "in one file"),
        ({"aliases": {"mine": "other-card"}}, "alias 'mine' means 'other-card', which is no operating point"),
        ({"aliases": {"mine": "my-card@30w"}}, "no operating point of my-card"),
        ({"aliases": {"mine": "my card"}}, "alias 'mine'"),
        ({"aliases": {"Mine": "my-card"}}, "aliases.Mine"),
        ({"unverified": ["silicon/fp16_tflops"]}, "'silicon/fp16_tflops', which is no figure"),
        ({"unverified": ["silicon"]}, "'silicon', which is no figure"),
    ],
)
def test_a_wrong_file_names_file_field_and_value(tmp_path: Path, change: dict[str, object], words: str) -> None:
    assert words in fault(tmp_path / "my-card.yaml", yaml.safe_dump({**CARD, **change}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("- a\n", "no mapping"),
        ("", "no mapping"),
        ("!!python/object/apply:os.system ['true']\n", "cannot be read"),
        ("\x00", "cannot be read"),
        ("version: 1\ndevice: a\ndevice: b\n", "key 'device' is given twice"),
    ],
)
def test_text_that_is_no_target_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in fault(tmp_path / "x.yaml", text)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x80")
    with pytest.raises(UsageError, match="cannot be read"):
        read_target_file(path)


def test_a_byte_order_mark_and_merge_keys_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    modes = "power_modes:\n  a: &a {source: sheet, nvpmodel_name: A, budget_w: 10}\n  b: {<<: *a, budget_w: 20}\n"
    path.write_text("\ufeff" + yaml.safe_dump({**CARD, "default_mode": "a"}) + modes, encoding="utf-8")
    file = read_target_file(path)
    assert file.power_modes["b"].budget_w == 20
    assert file.power_modes["b"].nvpmodel_name == "A"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (yaml.safe_dump(CARD), True),
        ("device: my-card\nsilicon: oops\n", True),
        ("device: cuda\nepochs: 3\n", False),
        ("run:\n  device: cuda\n  memory: 3\n", False),
        ("{", False),
        ("", False),
    ],
)
def test_only_what_was_meant_as_a_target_file_is_taken_for_one(tmp_path: Path, text: str, meant: bool) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert is_target_file(path) is meant
