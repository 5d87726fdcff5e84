from pathlib import Path
from typing import Any

import pytest
import yaml

from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.targets.catalog import load_catalog, resolve

MY_CARD: dict[str, Any] = {
    "version": 1,
    "device": "my-card",
    "name": "My Card",
    "kind": "desktop",
    "silicon": {"source": "sheet", "architecture": "Mine", "compute_capability": "9.9", "int8_tops": 100},
    "memory": {"source": "sheet", "size_gb": 8, "bandwidth_gbs": 400},
    "power": {"source": "sheet", "tdp_w": 90},
    "sources": {"sheet": {"citation": "vendor's sheet", "trust": "good"}},
}


@pytest.fixture
def my_card(tmp_path: Path) -> Path:
    """A user's own target file, in a `targets` folder."""
    path = tmp_path / "targets" / "my-card.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(MY_CARD))
    return path


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("orin-30w", "orin-agx-64gb@30w"),
        ("ORIN-30W", "orin-agx-64gb@30w"),
        ("orin-maxn", "orin-agx-64gb@maxn"),
        ("orin-agx-64gb", "orin-agx-64gb@30w"),
        ("jetson-agx-orin-64gb@50w", "orin-agx-64gb@50w"),
        ("orin-nx", "orin-nx-16gb@15w"),
        ("orin-nano-super", "orin-nano-8gb-super@25w"),
        ("a100-mig-1g.10gb", "a100-sxm4-80gb:1g.10gb"),
        ("a100-mig-1g.5gb", "a100-sxm4-40gb:1g.5gb"),
        ("a100:1g.10gb", "a100-sxm4-80gb:1g.10gb"),
        ("rtx4090", "rtx-4090"),
        ("h100-sxm5", "h100-sxm5-80gb"),
        ("host", "host"),
    ],
)
def test_what_people_type_names_one_operating_point(text: str, ref: str) -> None:
    assert resolve(text).ref == ref


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("orin-30", "orin-30w"),
        ("rtx-409", "rtx-4090"),
        ("orin-agx-64gb-30w", "orin-agx-64gb@30w"),
        ("orin-agx-64gb@31w", "30w"),
        ("a100:1g.1gb", "1g.10gb"),
    ],
)
def test_a_mistyped_target_gets_its_neighbours(text: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve(text)
    assert near in caught.value.near


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("l4@30w", "no power modes"),
        ("host@30w", "no power modes"),
        ("l4:1g.5gb", "no MIG profiles.*cards with MIG profiles: a100-pcie-40gb"),
        ("orin-30w@15w", "already means"),
        ("a100-mig-1g.10gb:2g.20gb", "already means"),
    ],
)
def test_modes_and_profiles_where_there_are_none_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve(text)


def test_a_power_mode_brings_its_own_figures() -> None:
    spec = resolve("orin-30w")
    # nvpmodel_p3701_0000.conf, r36: 4 TPCs (8 SMs) at 612 MHz, EMC uncapped; 8 SMs × 4096 × 612 MHz = 20.05 TOPS.
    assert (spec.sm_count, spec.gpu_mhz, spec.power_w, spec.memory_gb) == (8, 612, 30, 64)
    assert spec.int8_tops == pytest.approx(8 * 4096 * 612e6 / 1e12, rel=0.01)
    assert spec.fp16_tflops == pytest.approx(8 * 2048 * 612e6 / 1e12, rel=0.01)
    # DLA-SW README: 90 sparse TOPS in 30 W, half of it dense.
    assert spec.dla_int8_tops == pytest.approx(45, rel=0.01)


def test_a_slice_has_its_share() -> None:
    spec, whole = resolve("a100-sxm4-80gb:1g.10gb"), resolve("a100-sxm4-80gb")
    assert spec.sm_count == 14
    assert whole.bandwidth_gbs is not None
    assert spec.bandwidth_gbs == pytest.approx(whole.bandwidth_gbs / 8, rel=0.01)
    assert spec.share_of_device == pytest.approx(1 / 7)
    assert whole.share_of_device == 1


def test_an_alias_with_its_own_mode_said_twice_is_no_contradiction() -> None:
    assert resolve("orin-30w@30w").ref == "orin-agx-64gb@30w"


def test_mode_figures_that_a_file_leaves_out_scale_with_sms_and_clock(tmp_path: Path) -> None:
    modes = {"half": {"source": "sheet", "nvpmodel_name": "HALF", "sm_count": 4, "gpu_mhz": 500, "budget_w": 20}}
    silicon = {**MY_CARD["silicon"], "sm_count": 8, "boost_mhz": 1000, "fp16_tflops": 40, "fp32_tflops": 8}
    path = tmp_path / "board.yaml"
    path.write_text(yaml.safe_dump({**MY_CARD, "silicon": silicon, "power_modes": modes, "default_mode": "half"}))
    point = resolve(str(path))
    assert point.ref == "my-card@half"
    assert (point.int8_tops, point.fp16_tflops, point.fp32_tflops, point.power_w) == (25, 10, 2, 20)
    assert point.bandwidth_gbs is None


def test_the_points_to_rank_leave_out_what_ranks_like_another() -> None:
    refs = {point.ref for point in load_catalog().all_points()}
    assert {"host", "l4", "orin-agx-64gb@30w", "a100-sxm4-80gb", "a100-sxm4-80gb:1g.10gb"} <= refs
    assert not {"orin-agx-64gb", "a100-sxm4-80gb:1g.10gb+me", "a100-sxm4-80gb:7g.80gb"} & refs


def test_a_card_of_ones_own_works_by_path(my_card: Path) -> None:
    assert resolve(str(my_card)).int8_tops == 100
    with pytest.raises(UsageError, match="my-card has no power modes"):
        resolve(f"{my_card}@30w")


def test_a_card_of_ones_own_works_from_the_folder_where_one_stands(
    my_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(my_card.parents[1])
    assert resolve("My-Card").ref == "my-card"
    assert "my-card" in {point.ref for point in load_catalog().all_points()}
    monkeypatch.chdir(my_card.parent)
    with pytest.raises(UnknownNameError):
        resolve("my-card")
    assert load_catalog([my_card.parent]).resolve("my-card").int8_tops == 100


def test_what_other_tools_keep_in_a_folder_called_targets_is_passed_over(
    my_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (my_card.parent / "build.yaml").write_text("build: [a, b]\n")
    (my_card.parent / "train.yaml").write_text("device: cuda\nepochs: 3\n")
    (my_card.parent / "broken.yaml").write_text("{")
    (my_card.parent / "blob.yaml").write_bytes(b"\xff\xfe\x00")
    (my_card.parent / "folder.yaml").mkdir()
    monkeypatch.chdir(my_card.parents[1])
    assert resolve("my-card").int8_tops == 100


def test_a_target_file_of_ones_own_that_is_wrong_is_not_passed_over(
    my_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    my_card.write_text(my_card.read_text().replace("version: 1\n", ""))
    monkeypatch.chdir(my_card.parents[1])
    with pytest.raises(UsageError, match=r"my-card\.yaml.*'version' is None"):
        resolve("l4")


def test_ones_own_file_of_a_packaged_card_wins(my_card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    my_card.write_text(yaml.safe_dump({**MY_CARD, "device": "l4", "aliases": {"orin-30w": "l4"}}))
    monkeypatch.chdir(my_card.parents[1])
    assert resolve("l4").int8_tops == 100
    assert resolve("orin-30w").ref == "l4"


@pytest.mark.parametrize(("name", "words"), [("host", "the machine at hand"), ("my-card", "another file")])
def test_names_that_are_taken_are_refused(
    my_card: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    (my_card.parent / "other.yml").write_text(yaml.safe_dump({**MY_CARD, "device": name}))
    monkeypatch.chdir(my_card.parents[1])
    with pytest.raises(UsageError, match=words):
        resolve("l4")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"no-such-card\.yaml cannot be read"):
        resolve("./no-such-card.yaml")
