from pathlib import Path

import pytest
import yaml

from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.targets.catalog import load_catalog, read_target_file, resolve

MY_CARD = {
    "version": 1,
    "device": "my-card",
    "name": "My Card",
    "kind": "desktop",
    "silicon": {"source": "sheet", "architecture": "Mine", "compute_capability": "9.9", "int8_tops": 100},
    "memory": {"source": "sheet", "size_gb": 8, "bandwidth_gbs": 400},
    "power": {"source": "sheet", "tdp_w": 90},
    "sources": {"sheet": {"citation": "vendor's sheet", "trust": "good"}},
}


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
    [("orin-30", "orin-30w"), ("rtx-409", "rtx-4090"), ("orin-agx-64gb@31w", "30w"), ("a100:1g.1gb", "1g.10gb")],
)
def test_a_mistyped_target_gets_its_neighbours(text: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve(text)
    assert near in caught.value.near


@pytest.mark.parametrize(
    ("text", "words"),
    [("l4@30w", "no power modes"), ("l4:1g.5gb", "cannot be sliced"), ("orin-30w@15w", "already means")],
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


def test_a_file_of_ones_own_works_by_path_and_from_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "targets").mkdir()
    path = tmp_path / "targets" / "my-card.yaml"
    path.write_text(yaml.safe_dump(MY_CARD))
    (tmp_path / "targets" / "other-tool.yaml").write_text("build: [a, b]\n")
    assert resolve(str(path)).int8_tops == 100
    catalog = load_catalog(tmp_path / "targets")
    assert catalog.resolve("My-Card").ref == "my-card"
    assert any(point.ref == "my-card" for point in catalog.points())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memroy": {}}, "unknown field 'memroy'; did you mean memory"),
        ({"kind": "toaster"}, "field 'kind'"),
        ({"silicon": {"source": "sheet", "architecture": "x", "int8_tops": -1}}, "silicon.int8_tops"),
        ({"silicon": {"source": "nowhere", "architecture": "x"}}, "'nowhere' is not among"),
        ({"version": 2}, "version is 2"),
        ({"device": "My Card"}, "field 'device'"),
    ],
)
def test_a_wrong_file_names_file_field_and_fault(tmp_path: Path, change: dict[str, object], words: str) -> None:
    path = tmp_path / "my-card.yaml"
    path.write_text(yaml.safe_dump({**MY_CARD, **change}))
    with pytest.raises(UsageError, match=words) as caught:
        read_target_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["{", "- a\n", "", "!!python/object/apply:os.system ['true']\n", "\x00"])
def test_text_that_is_no_target_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="target file"):
        read_target_file(path)
