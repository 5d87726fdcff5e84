"""Every file in targets/: its invariants, and the rows of the tables that it came from."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from deploykit.targets.catalog import load_catalog
from deploykit.targets.ref import squeezed
from deploykit.targets.resolve import points_of
from deploykit.targets.spec import TargetFile
from deploykit.targets.target_file import read_target_file

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ROOT / "targets"
PATHS = sorted(TARGETS.glob("*.yaml"))

# Dense tensor operations per SM and clock by compute capability: INT8, FP16 (targets/README.md has the table).
RATES = {
    "7.0": (512, 1024),
    "7.2": (2048, 1024),
    "7.5": (2048, 1024),
    "8.0": (4096, 2048),
    "8.6": (2048, 1024),
    "8.7": (4096, 2048),
    "8.9": (2048, 1024),
    "9.0": (8192, 4096),
    "12.0": (2048, 1024),
}


def table(name: str) -> list[dict[str, str]]:
    with (TARGETS / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


GPUS = {row["slug"]: row for row in table("gpus")}
DEVICES = {row["slug"]: row for row in table("devices")}
MODES = table("jetson_power_modes")
SLICES = table("mig_profiles")


def figure(cell: str) -> float | None:
    return float(cell) if cell else None


def test_the_files_are_what_the_tables_give() -> None:
    command = [sys.executable, ROOT / "scripts" / "make_targets", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"stale, run scripts/make_targets: {done.stdout}{done.stderr}"


def test_every_row_of_the_tables_is_in_a_target() -> None:
    assert {row["gpus_slug"] for row in DEVICES.values()} == set(GPUS)
    assert {row["power_modes_of"] for row in DEVICES.values()} - {""} == {row["module"] for row in MODES}
    assert {row["mig_gpu"] for row in DEVICES.values()} - {""} == {row["gpu"] for row in SLICES}
    measured = {name for row in DEVICES.values() for name in row["measured_as"].split(";") if name}
    assert measured == {row["module"] for row in table("jetson_power_measured")}
    assert {row["device"] for row in table("notes")} <= set(DEVICES)
    assert set(DEVICES) == {path.stem for path in PATHS}


def test_no_name_means_two_things() -> None:
    files = [read_target_file(path) for path in PATHS]
    aliases = [alias for file in files for alias in file.aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & {file.device for file in files}
    owners: dict[str, str] = {}
    for file in files:
        for spelling in {squeezed(text) for text in (file.device, file.name, *file.spellings)}:
            assert owners.setdefault(spelling, file.device) == file.device, spelling
    published = [name for file in files for name in file.published_as]
    assert len(published) == len(set(published))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
class TestTargetFile:
    """What holds for every file; a new file is held to it by being there."""

    @pytest.fixture
    def file(self, path: Path) -> TargetFile:
        return read_target_file(path)

    def test_it_is_named_after_its_device(self, path: Path, file: TargetFile) -> None:
        assert file.device == path.stem

    def test_editors_find_the_schema_and_it_takes_the_file(self, path: Path, file: TargetFile) -> None:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# yaml-language-server: $schema=./schema.json\n")
        schema = json.loads((TARGETS / "schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))
        jsonschema.Draft202012Validator(schema).validate(file.model_dump(mode="json", exclude_none=True))

    def test_it_survives_being_written_and_read(self, path: Path, file: TargetFile, tmp_path: Path) -> None:
        again = tmp_path / path.name
        again.write_text(yaml.safe_dump(file.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
        assert read_target_file(again) == file

    def test_peaks_are_sms_times_rate_times_clock(self, path: Path, file: TargetFile) -> None:
        chip = file.silicon
        if chip.compute_capability not in RATES or chip.sm_count is None or chip.tensor_clock_mhz is None:
            assert chip.compute_capability in {"5.3", "6.2", "10.0", "11.0"}, "a capability without a rate"
            return
        per_rate = chip.sm_count * chip.tensor_clock_mhz * 1e6 / 1e12
        int8, fp16 = RATES[chip.compute_capability]
        assert chip.int8_tops == pytest.approx(per_rate * int8, rel=0.03)
        assert chip.fp16_tflops == pytest.approx(per_rate * fp16, rel=0.03)
        assert chip.fp32_tflops is not None

    def test_bandwidth_is_what_the_bus_can_carry(self, path: Path, file: TargetFile) -> None:
        memory = file.memory
        assert memory is not None
        assert memory.bandwidth_gbs is not None
        assert memory.bus_bits is not None
        per_pin_gbits = memory.bandwidth_gbs * 8 / memory.bus_bits
        assert 1.4 < per_pin_gbits < 35, "no memory is as slow or as fast as that"

    def test_modes_stay_within_the_device(self, path: Path, file: TargetFile) -> None:
        for name, mode in file.power_modes.items():
            assert (mode.sm_count or 0) <= (file.silicon.sm_count or 0), name
            assert (mode.gpu_mhz or 0) <= (file.silicon.boost_mhz or 0), name
            assert (mode.bandwidth_gbs or 0) <= (file.memory.bandwidth_gbs or 0 if file.memory else 0), name
            assert (mode.budget_w or 0) <= (file.power.tdp_w if file.power else 0), name
            assert (mode.dla_cores or 0) <= file.silicon.dla_cores, name
        assert sum(mode.default for mode in file.power_modes.values()) == (1 if file.power_modes else 0)

    def test_peaks_of_a_mode_are_sms_times_rate_times_clock(self, path: Path, file: TargetFile) -> None:
        for point in points_of(file):
            if point.mode is None or point.int8_tops is None or file.silicon.compute_capability not in RATES:
                continue
            assert point.sm_count is not None
            assert point.gpu_mhz is not None
            int8, fp16 = RATES[file.silicon.compute_capability]
            per_rate = point.sm_count * point.gpu_mhz * 1e6 / 1e12
            assert point.int8_tops == pytest.approx(per_rate * int8, rel=0.03, abs=0.06), point.ref
            assert point.fp16_tflops == pytest.approx(per_rate * fp16, rel=0.03, abs=0.06), point.ref

    def test_slices_fit_the_card(self, path: Path, file: TargetFile) -> None:
        for name, profile in file.mig_profiles.items():
            assert profile.compute_slices <= profile.compute_slices_total, name
            assert profile.max_instances * profile.compute_slices <= profile.compute_slices_total, name
            assert profile.max_instances * profile.memory_slices <= profile.memory_slices_total, name
            share = profile.memory_slices / profile.memory_slices_total
            assert profile.bandwidth_fraction == pytest.approx(share), name
            assert file.memory is not None
            # Names round up: four slices of "24gb" are a card of 94 GB.
            assert profile.max_instances * profile.memory_gb <= file.memory.size_gb * 1.03, name
            assert profile.sm_count is not None
            assert profile.sm_count * profile.max_instances <= (file.silicon.sm_count or 0), name
            compute, memory = re.fullmatch(r"(\d)g\.(\d+)gb(\+me)?", name).groups()[:2]  # type: ignore[union-attr]
            assert int(compute) == profile.compute_slices
            assert float(memory) == pytest.approx(profile.memory_gb, abs=0.5)

    def test_every_source_is_used_and_says_something(self, path: Path, file: TargetFile) -> None:
        assert {block.source for block in file.blocks()} == set(file.sources)
        assert all(len(source.citation) > 10 for source in file.sources.values())

    def test_names_lead_back_to_the_device(self, path: Path, file: TargetFile) -> None:
        catalog = load_catalog()
        assert {catalog.resolve(alias).device.device for alias in file.aliases} <= {file.device}
        assert {catalog.device_slug(text) for text in (file.name, *file.spellings)} == {file.device}
        assert all(catalog.resolve(point.ref) == point for point in points_of(file))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
class TestAgainstTheTables:
    """Each figure is its table's."""

    @pytest.fixture
    def file(self, path: Path) -> TargetFile:
        return read_target_file(path)

    def test_silicon_memory_and_power(self, path: Path, file: TargetFile) -> None:
        row = GPUS[DEVICES[path.stem]["gpus_slug"]]
        chip, memory = file.silicon, file.memory
        assert memory is not None
        assert file.name.startswith(row["name"])
        assert (file.kind, chip.architecture) == (row["class"], row["architecture"])
        assert chip.compute_capability == row["compute_capability"]
        assert (chip.sm_count, chip.l2_mb) == (int(row["sm_count"]), figure(row["l2_mb"]))
        assert (memory.size_gb, memory.kind) == (float(row["mem_gb"]), row["mem_type"])
        assert file.sources["silicon"].citation == row["source"]
        if not path.stem.endswith("-super"):
            peaks = (chip.int8_tops, chip.fp16_tflops, chip.fp32_tflops, chip.fp8_tflops, chip.dla_int8_tops)
            columns = ("int8_tops_dense", "fp16_tensor_tflops_dense", "fp32_tflops", "fp8_tflops_dense")
            dla = figure(row["dla_int8_tops_dense_total"])
            assert peaks == (*(figure(row[column]) for column in columns), dla)
            assert memory.bandwidth_gbs == pytest.approx(float(row["mem_bw_gbs"]), rel=0.002)

    def test_power_modes(self, path: Path, file: TargetFile) -> None:
        rows = [row for row in MODES if row["module"] == DEVICES[path.stem]["power_modes_of"]]
        assert {mode.nvpmodel_name for mode in file.power_modes.values()} == {row["mode_name"] for row in rows}
        for name, mode in file.power_modes.items():
            (row,) = (row for row in rows if (row["mode_name"], row["l4t"]) == (mode.nvpmodel_name, mode.l4t))
            assert (str(mode.id), file.sources[mode.source].citation) == (row["mode_id"], row["source"]), name
            assert (mode.online_cpus, mode.cpu_mhz) == (figure(row["online_cpus"]), figure(row["cpu_max_mhz"])), name
            assert (mode.sm_count, mode.emc_mhz) == (figure(row["sm_on"]), figure(row["emc_max_mhz"])), name
            assert (mode.budget_w, mode.note or "") == (figure(row["power_budget_w"]), row["notes"]), name
            if row["gpu_max_mhz"]:
                assert mode.gpu_mhz == float(row["gpu_max_mhz"]), name
            else:
                # Only MAXN, which has no cap, is given the module's own clock, and that as unverified.
                assert mode.gpu_mhz is None or f"power_modes/{name}/gpu_mhz" in file.unverified

    def test_the_latest_release_is_the_one_used(self, path: Path, file: TargetFile) -> None:
        if path.stem == "orin-agx-64gb":
            assert {mode.l4t for mode in file.power_modes.values()} == {"36.x"}

    def test_mig_profiles(self, path: Path, file: TargetFile) -> None:
        rows = {row["profile"]: row for row in SLICES if row["gpu"] == DEVICES[path.stem]["mig_gpu"]}
        assert set(file.mig_profiles) == set(rows)
        for name, profile in file.mig_profiles.items():
            row = rows[name]
            assert (profile.sm_count, profile.memory_gb) == (int(row["sm_count"]), float(row["mem_gb_nominal"])), name
            assert profile.max_instances == int(row["max_instances"]), name
            assert file.sources[profile.source].citation == row["source"], name
            assert row["notes"] in (profile.note or ""), name

    def test_what_a_table_calls_unverified_stays_unverified(self, path: Path, file: TargetFile) -> None:
        row = GPUS[DEVICES[path.stem]["gpus_slug"]]
        said = "unverified" in row["notes"] + row["tensor_basis"]
        flagged = any(not text.startswith("mig_profiles/") for text in file.unverified)
        # Two notes call something unverified that is no figure of the file: a lower TDP bound and a missing INT4 path.
        assert flagged == (said and path.stem not in {"a2", "h100-sxm5-80gb"})
        read = {row["profile"] for row in SLICES if row["sm_count_basis"].startswith(("assumed", "go-nvml mock"))}
        assumed = {text.split("/")[1] for text in file.unverified if text.startswith("mig_profiles/")}
        if DEVICES[path.stem]["mig_gpu"].startswith(("H100 94GB", "H100 96GB", "B200")):
            assert assumed == set(file.mig_profiles) <= read
