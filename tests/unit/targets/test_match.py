"""A board in every mode against every target of its device, and states that no mode is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploykit.probe.device import device_state
from deploykit.probe.snapshot import opened
from deploykit.targets.catalog import Catalog, load_catalog
from deploykit.targets.identity import gpu_device, jetson_device, resolve_here
from deploykit.targets.match import Difference, match, mends, sms_on, wrong
from deploykit.targets.state import DeviceState, GpuState, JetsonState, MigDevice

pytestmark = pytest.mark.usefixtures("in_memory")

BOARDS = Path(__file__).resolve().parents[2] / "fixtures" / "boards"
JETSONS = sorted(path.name.removesuffix(".tar.gz") for path in BOARDS.glob("*.*.tar.gz"))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def state_of(name: str, change: Callable[[Path], None] = lambda root: None) -> DeviceState:
    with opened(BOARDS / f"{name}.tar.gz") as root:
        change(root)
        return device_state(root)


def differences(state: DeviceState, target: str, catalog: Catalog) -> list[Difference]:
    assert state.jetson is not None
    return match(state, catalog.resolve(target), jetson_device(state.jetson, catalog))


@pytest.mark.parametrize("name", JETSONS)
def test_a_board_is_the_target_of_its_mode_and_no_other(name: str, catalog: Catalog) -> None:
    state = state_of(name)
    assert state.jetson is not None
    slug = jetson_device(state.jetson, catalog)
    assert slug is not None
    for key, mode in catalog.files[slug].power_modes.items():
        found = wrong(differences(state, f"{slug}@{key}", catalog))
        if mode.nvpmodel_name == name.partition(".")[2]:
            assert found == []
        else:
            assert found[0].what == "power mode"
            # MAXP_CORE_DENVER is not in the file that was read for the TX2: no command reaches it there.
            reachable = (found[0].mend or "").startswith("sudo nvpmodel -m ")
            assert reachable == (mode.nvpmodel_name != "MAXP_CORE_DENVER")


def writes(file: str, text: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / file).write_text(text)

    return change


GPU_CAP = "sys/devices/platform/17000000.gpu/devfreq_dev/max_freq"
MASK = "sys/devices/platform/gpu.0/tpc_pg_mask"


@pytest.mark.parametrize(
    ("file", "text", "what", "said"),
    [
        (MASK, "0\n", "TPCs", "8 TPCs on (16 SMs, mask 0) instead of 4 TPCs on (8 SMs, mask 240)"),
        (GPU_CAP, "420750000\n", "GPU clock cap", "420.75 MHz instead of 612 MHz"),
        (GPU_CAP, "1300500000\n", "GPU clock cap", "1300.5 MHz instead of 612 MHz"),
        ("sys/devices/system/cpu/cpu9/online", "1\n", "online CPUs", "cpu9 astray instead of 8"),
        ("sys/devices/system/cpu/cpu7/online", "0\n", "online CPUs", "cpu7 astray instead of 8"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq",
            "1113600\n",
            "CPU clock cap (CPU_A78_0)",
            "1113.6 MHz",
        ),
        ("var/lib/nvpmodel/status", "pmode:0099\n", "power mode", "id 99, which its file does not have"),
        ("var/lib/nvpmodel/status", "rubbish\n", "power mode", "unreadable"),
        (
            "etc/nvpmodel.conf",
            "< POWER_MODEL ID=2 NAME=MODE_30W >\n",
            "power mode",
            "unknown, since /etc/nvpmodel.conf",
        ),
    ],
)
def test_a_saved_mode_that_is_not_in_force(file: str, text: str, what: str, said: str, catalog: Catalog) -> None:
    state = state_of("orin-agx-64gb-jp6.MODE_30W", writes(file, text))
    found = wrong(differences(state, "orin-agx-64gb@30w", catalog))
    assert [difference.what for difference in found] == [what]
    assert said in str(found[0])


def test_a_changed_mask_waits_for_a_reboot(catalog: Catalog) -> None:
    state = state_of("orin-agx-64gb-jp6.MODE_30W", writes(MASK, "0\n"))
    assert "reboot" in mends(differences(state, "orin-agx-64gb@30w", catalog))[-1]


def test_a_cap_that_lies_below_the_ceiling_of_an_uncapped_mode(catalog: Catalog) -> None:
    state = state_of("orin-agx-64gb-jp6.MAXN", writes(GPU_CAP, "816000000\n"))
    found = wrong(differences(state, "orin-agx-64gb@maxn", catalog))
    assert [str(difference) for difference in found] == ["GPU clock cap: 816 MHz instead of no cap (1300.5 MHz)"]


def test_the_kernel_rounds_a_cap_to_its_frequency_table(catalog: Catalog) -> None:
    # 670 MHz is no step of the GPU: the board holds 663, the next below.
    state = state_of("xavier-agx.MODE_15W")
    assert state.jetson is not None
    assert state.jetson.gpu.cap_mhz == 663
    assert wrong(differences(state, "xavier-agx@15w", catalog)) == []


def test_the_caps_of_another_release_are_noted_and_taken_from_the_board(catalog: Catalog) -> None:
    def first_release(root: Path) -> None:
        conf = root / "etc/nvpmodel.conf"
        conf.write_text(conf.read_text().replace("GPU MAX_FREQ 612000000", "GPU MAX_FREQ 624750000"))
        (root / GPU_CAP).write_text("624750000\n")

    found = differences(state_of("orin-agx-64gb-jp6.MODE_30W", first_release), "orin-agx-64gb@30w", catalog)
    assert wrong(found) == []
    assert any("624.75 MHz in this board's nvpmodel.conf instead of 612 MHz" in str(item) for item in found)


def test_a_mode_that_is_another_under_the_same_name_is_wrong(catalog: Catalog) -> None:
    def edited(root: Path) -> None:
        conf = root / "etc/nvpmodel.conf"
        conf.write_text(conf.read_text().replace("GPU MAX_FREQ 612000000", "GPU MAX_FREQ 1020000000"))
        (root / GPU_CAP).write_text("1020000000\n")

    found = wrong(differences(state_of("orin-agx-64gb-jp6.MODE_30W", edited), "orin-agx-64gb@30w", catalog))
    assert [item.what for item in found] == ["GPU clock cap"]


@pytest.mark.parametrize(("mask", "sms"), [("0", 16), ("128", 14), ("240", 8), ("248", 6), ("252", 4), ("-1", None)])
def test_sms_that_a_mask_leaves_on(mask: str, sms: int | None) -> None:
    assert sms_on(mask, 8) == sms


# --- what the device is


def test_ram_does_not_decide_what_a_board_is(catalog: Catalog) -> None:
    state = state_of("orin-agx-devkit-32gb.MODE_50W")
    assert state.memory.total_bytes is not None
    assert state.memory.total_bytes < 33e9
    assert state.jetson is not None
    assert jetson_device(state.jetson, catalog) == "orin-agx-64gb"


def test_two_devices_of_one_module_are_told_apart_by_their_modes(catalog: Catalog) -> None:
    for name in ("orin-nx-16gb.10W", "orin-nx-16gb-super.10W"):
        state = state_of(name)
        assert state.jetson is not None
        assert jetson_device(state.jetson, catalog) == name.partition(".")[0]


def test_the_smaller_thor_is_not_the_larger(catalog: Catalog) -> None:
    board = JetsonState(board_id="p3834-0008", variant="t4000")
    assert jetson_device(board, catalog) is None


@pytest.mark.parametrize(
    ("name", "gigabytes", "slug"),
    [
        ("NVIDIA GeForce RTX 3060", 12.9, "rtx-3060-12gb"),
        # The 8 GB card has the same name and is another.
        ("NVIDIA GeForce RTX 3060", 8.6, None),
        ("NVIDIA GeForce RTX 4090", 25.8, "rtx-4090"),
        ("NVIDIA A100 80GB PCIe", 85.9, "a100-pcie-80gb"),
        ("NVIDIA A100-SXM4-40GB", 42.5, "a100-sxm4-40gb"),
        ("NVIDIA H100 80GB HBM3", 85.5, "h100-sxm5-80gb"),
        ("Tesla T4", 16.1, "t4"),
        ("NVIDIA L4", 24.2, "l4"),
        ("Quadro K2100M", 2.1, None),
        (None, 24.0, None),
    ],
)
def test_what_a_card_is(name: str | None, gigabytes: float, slug: str | None, catalog: Catalog) -> None:
    assert gpu_device(GpuState(index=0, name=name, memory_bytes=int(gigabytes * 1e9)), catalog) == slug


@pytest.mark.parametrize(
    ("board", "text", "ref"),
    [
        ("orin-agx-64gb-jp6.MAXN", "orin-30w", "orin-agx-64gb@30w"),
        ("orin-agx-devkit-32gb.MAXN", "orin-30w", "orin-agx-64gb@30w"),
        ("orin-agx-32gb.MAXN", "orin-30w", "orin-agx-32gb@30w"),
        ("orin-agx-32gb.MAXN", "orin", "orin-agx-32gb@30w"),
        ("orin-nx-16gb-super.10W", "orin-nx-15w", "orin-nx-16gb-super@15w"),
        # An exact slug means itself, wherever it is said; so does a family that the board is not of.
        ("orin-agx-32gb.MAXN", "orin-agx-64gb@30w", "orin-agx-64gb@30w"),
        ("orin-agx-32gb.MAXN", "orin-nx-15w", "orin-nx-16gb@15w"),
        ("orin-agx-32gb.MAXN", "rtx-4090", "rtx-4090"),
    ],
)
def test_a_family_name_means_the_board_in_hand(board: str, text: str, ref: str, catalog: Catalog) -> None:
    spec, said = resolve_here(text, catalog, state_of(board))
    assert spec.ref == ref
    assert (said is not None) == (ref != catalog.resolve(text).ref)


def test_a_mode_that_the_board_does_not_have_is_refused_with_those_it_has(catalog: Catalog) -> None:
    from deploykit.base.errors import DeviceMismatch

    with pytest.raises(DeviceMismatch, match="it has maxn, 15w, 30w, 40w"):
        resolve_here("orin-50w", catalog, state_of("orin-agx-32gb.MODE_30W"))


# --- cards

CARD = GpuState(
    index=0,
    uuid="GPU-1",
    name="NVIDIA A100-SXM4-80GB",
    mig_enabled=False,
    power_limit_w=400,
    power_limit_default_w=400,
    persistence=True,
)
SMALL = MigDevice(uuid="MIG-1", profile="1g.10gb")
LARGE = MigDevice(uuid="MIG-2", profile="3g.40gb")
SLICED = CARD.model_copy(update={"mig_enabled": True, "mig_devices": (SMALL, LARGE)})


@pytest.mark.parametrize(
    ("target", "gpu", "slice_", "what"),
    [
        ("a100-sxm4-80gb", CARD, None, []),
        ("a100-sxm4-80gb", SLICED, None, ["MIG"]),
        ("a100-sxm4-80gb:1g.10gb", SLICED, SMALL, []),
        ("a100-sxm4-80gb:1g.10gb", CARD, None, ["MIG"]),
        ("a100-sxm4-80gb:2g.20gb", SLICED, None, ["MIG profile"]),
        # The profile is there, and CUDA would use another slice.
        ("a100-sxm4-80gb:1g.10gb", SLICED, LARGE, ["MIG profile"]),
        ("a100-sxm4-80gb", CARD.model_copy(update={"power_limit_w": 250}), None, ["power limit"]),
        ("rtx-4090", CARD, None, ["device"]),
        ("rtx-4090", None, None, ["device"]),
        ("orin-agx-64gb@30w", CARD, None, ["device"]),
        ("host", None, None, []),
    ],
)
def test_a_card(target: str, gpu: GpuState | None, slice_: MigDevice | None, what: list[str], catalog: Catalog) -> None:
    slug = gpu_device(gpu, catalog) if gpu else None
    found = wrong(match(DeviceState(), catalog.resolve(target), slug, gpu, slice_))
    assert [difference.what for difference in found] == what


def test_a_slice_with_media_engines_computes_the_same(catalog: Catalog) -> None:
    media = MigDevice(uuid="MIG-3", profile="1g.10gb+me")
    gpu = SLICED.model_copy(update={"mig_devices": (media,)})
    assert wrong(match(DeviceState(), catalog.resolve("a100-sxm4-80gb:1g.10gb"), "a100-sxm4-80gb", gpu, media)) == []
