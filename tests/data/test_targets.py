"""Every file in targets/: its invariants, and the row of the table that it came from."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from deploykit.targets.catalog import load_catalog, read_target_file
from deploykit.targets.resolve import points_of

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "targets").glob("*.yaml"))

# Dense tensor operations per SM and clock by compute capability, for INT8 (targets/README.md has the table).
INT8_RATE = {
    "7.0": 512,
    "7.2": 2048,
    "7.5": 2048,
    "8.0": 4096,
    "8.6": 2048,
    "8.7": 4096,
    "8.9": 2048,
    "9.0": 8192,
    "12.0": 2048,
}


def table(name: str) -> list[dict[str, str]]:
    with (ROOT / "targets" / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


GPUS = {row["slug"]: row for row in table("gpus")}
DEVICES = {row["slug"]: row for row in table("devices")}


def test_the_files_are_what_the_tables_give() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_targets", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, f"stale, run scripts/make_targets: {done.stdout}"


def test_every_row_of_the_tables_is_a_target() -> None:
    assert {row["gpus_slug"] for row in DEVICES.values()} == set(GPUS)
    assert {row["power_modes_of"] for row in DEVICES.values()} - {""} == {
        r["module"] for r in table("jetson_power_modes")
    }
    assert {row["mig_gpu"] for row in DEVICES.values()} - {""} == {row["gpu"] for row in table("mig_profiles")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestFile:
    def test_it_is_named_after_its_device(self, path: Path) -> None:
        assert read_target_file(path).device == path.stem

    def test_the_editor_schema_takes_it(self, path: Path) -> None:
        schema = json.loads((ROOT / "targets" / "schema.json").read_text())
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)

    def test_it_repeats_its_row(self, path: Path) -> None:
        file, row = read_target_file(path), GPUS[DEVICES[path.stem]["gpus_slug"]]
        assert file.name.startswith(row["name"])
        assert file.kind == row["class"]
        assert file.memory is not None
        assert file.memory.size_gb == float(row["mem_gb"])
        assert file.silicon.sm_count == int(row["sm_count"])
        assert file.sources["silicon"].citation == row["source"]

    def test_derived_peaks_are_sms_times_rate_times_clock(self, path: Path) -> None:
        chip = read_target_file(path).silicon
        if chip.int8_tops is None or chip.compute_capability not in INT8_RATE or "marketed" in (chip.peak_basis or ""):
            pytest.skip("no INT8 peak, or no rate to hold it against")
        assert chip.sm_count is not None
        assert chip.tensor_clock_mhz is not None
        expected = chip.sm_count * INT8_RATE[chip.compute_capability] * chip.tensor_clock_mhz * 1e6 / 1e12
        assert chip.int8_tops == pytest.approx(expected, rel=0.03)

    def test_modes_stay_within_the_module(self, path: Path) -> None:
        file = read_target_file(path)
        for name, mode in file.power_modes.items():
            assert (mode.sm_count or 0) <= (file.silicon.sm_count or 0), name
            assert (mode.gpu_mhz or 0) <= (file.silicon.boost_mhz or 0) * 1.2, name
            assert mode.dla_cores in (None, 0, 1, 2), name
        assert sum(mode.default for mode in file.power_modes.values()) == (1 if file.power_modes else 0)

    def test_modes_repeat_their_rows(self, path: Path) -> None:
        file = read_target_file(path)
        module = DEVICES[path.stem]["power_modes_of"]
        rows = [row for row in table("jetson_power_modes") if row["module"] == module]
        assert {mode.nvpmodel_name for mode in file.power_modes.values()} == {row["mode_name"] for row in rows}
        for mode in file.power_modes.values():
            same = [r for r in rows if r["mode_name"] == mode.nvpmodel_name and r["l4t"] == mode.l4t]
            assert any(r["gpu_max_mhz"] in ("", f"{mode.gpu_mhz:g}" if mode.gpu_mhz else "") for r in same)
            assert any(r["mode_id"] == str(mode.id) for r in same)

    def test_slices_fit_the_card(self, path: Path) -> None:
        file = read_target_file(path)
        for name, profile in file.mig_profiles.items():
            assert profile.compute_slices <= profile.compute_slices_total, name
            assert profile.max_instances * profile.memory_slices <= profile.memory_slices_total, name
            assert profile.bandwidth_fraction == pytest.approx(profile.memory_slices / profile.memory_slices_total), (
                name
            )
            if profile.sm_count is not None:
                assert profile.sm_count * profile.max_instances <= (file.silicon.sm_count or 0), name

    def test_every_source_is_used(self, path: Path) -> None:
        file = read_target_file(path)
        blocks = [file.silicon, file.memory, file.power, *file.power_modes.values(), *file.mig_profiles.values()]
        assert {block.source for block in blocks if block is not None} == set(file.sources)

    def test_aliases_resolve_to_this_device(self, path: Path) -> None:
        file, catalog = read_target_file(path), load_catalog()
        assert {catalog.resolve(alias).device.device for alias in file.aliases} <= {file.device}
        assert all(catalog.resolve(point.ref) == point for point in points_of(file))


def test_no_alias_is_taken_twice() -> None:
    aliases = [alias for path in FILES for alias in read_target_file(path).aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & {path.stem for path in FILES}
