"""Recorded boards through the probe, and trees that are broken."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.probe.device import device_state
from deploykit.targets.state import DeviceState

StateOf = Callable[[str], DeviceState]


@pytest.mark.parametrize(
    ("name", "module", "jetpack", "total_w", "cpus"),
    [
        ("orin-agx-64gb-jp5.MODE_30W", "p3701-0005", "5.1.2", 13.9, 8),
        ("orin-agx-64gb-jp6.MODE_50W", "p3701-0005", "6.2", 13.9, 12),
        ("orin-agx-devkit-32gb.MAXN", "p3701-0000", "6.2", 13.9, 12),
        ("orin-nx-16gb.10W", "p3767-0000", "5.1.2", 7.255, 4),
        ("orin-nano-8gb-super.MAXN_SUPER", "p3767-0005", "6.2", 7.255, 6),
        ("xavier-agx.MODE_15W", "p2888-0001", "4.6.1", 5.52, 4),
        ("jetson-nano.5W", "p3448-0000", "4.6.1", 4.0, 2),
        ("thor-t5000.MAXN", "p3834-0008", "7.1", 19.78, 14),
    ],
)
def test_a_recorded_board(state_of: StateOf, name: str, module: str, jetpack: str, total_w: float, cpus: int) -> None:
    board = state_of(name).jetson
    assert board is not None
    assert (board.board_id, board.jetpack, len(board.cpus_online)) == (module, jetpack, cpus)
    assert board.mode is not None
    assert board.mode.name == name.partition(".")[2]
    assert board.power.total_w == pytest.approx(total_w)
    assert board.clocks_locked is False


def test_a_part_that_is_off_has_no_temperature(state_of: StateOf) -> None:
    degrees = state_of("orin-agx-64gb-jp6.MAXN").temperatures_c
    assert "cv0-thermal" not in degrees
    assert degrees["cpu-thermal"] == pytest.approx(52.968)


def test_clocks_in_megahertz_whatever_the_kernel_counts_in(state_of: StateOf) -> None:
    board = state_of("orin-agx-64gb-jp6.MODE_50W").jetson
    assert board is not None
    assert (board.cpu.cap_mhz, board.gpu.cap_mhz, board.gpu.ceiling_mhz) == (1497.6, 816, 1300.5)
    assert {name: clock.cap_mhz for name, clock in board.dla.items()} == {"dla0": 1369.6, "dla1": 1369.6}
    assert (board.tpc_mask, board.tpc_total) == (0, 8)
    assert board.overcurrent_events == {"oc1": 0, "oc2": 0, "oc3": 0}


def test_before_the_first_switch_the_default_of_the_file_holds(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-agx-64gb-jp6.MODE_30W")
    (root / "var/lib/nvpmodel/status").unlink()
    board = device_state(root).jetson
    assert board is not None
    assert (board.saved_mode_id, board.mode_id) == (None, 2)


def test_a_status_that_cannot_be_read_is_no_default(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-agx-64gb-jp6.MODE_30W")
    (root / "var/lib/nvpmodel/status").write_text("pmode:0007\n")
    board = device_state(root).jetson
    assert board is not None
    assert (board.saved_mode_id, board.mode_id, board.mode) == (7, None, None)


def test_locked_clocks_are_seen(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-agx-64gb-jp6.MODE_30W")
    for low in [*root.rglob("scaling_min_freq"), *root.rglob("min_freq")]:
        shutil.copy(low.with_name(low.name.replace("min", "max")), low)
    board = device_state(root).jetson
    assert board is not None
    assert board.clocks_locked is True


def test_the_module_is_known_by_the_power_mode_file_where_the_carrier_says_nothing(
    board_root: Callable[[str], Path],
) -> None:
    root = board_root("orin-agx-32gb.MODE_30W")
    (root / "proc/device-tree/compatible").write_bytes(b"lanner,eai-i233\0nvidia,tegra234\0")
    board = device_state(root).jetson
    assert board is not None
    assert board.board_id == "p3701-0004"
    assert board.board_id_from is not None
    assert "nvpmodel.conf" in board.board_id_from


def test_a_file_that_climbs_out_of_sysfs_is_not_read(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-agx-64gb-jp6.MODE_30W")
    conf = root / "etc/nvpmodel.conf"
    secret = root / "etc/secret"
    secret.write_text("4242\n")
    conf.write_text(conf.read_text().replace("/sys/devices/gpu.0/tpc_pg_mask", "/etc/secret"))
    board = device_state(root).jetson
    assert board is not None
    assert "4242" not in board.live.values()


BROKEN = ("etc/nvpmodel.conf", "var/lib/nvpmodel/status", "proc/device-tree/compatible", "etc/nv_tegra_release")


def test_no_broken_file_gives_a_wrong_mode(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-nx-16gb.15W")

    @settings(deadline=None, max_examples=40)
    @given(file=st.sampled_from(BROKEN), data=st.binary(max_size=300))
    def broken(file: str, data: bytes) -> None:
        whole = (root / file).read_bytes()
        (root / file).write_bytes(data)
        board = device_state(root).jetson
        (root / file).write_bytes(whole)
        if board is None:
            return
        # The mode that was saved, the board's own default where the file of saved modes is the broken one, or unknown.
        assert board.mode_id in (2, None) or file == "var/lib/nvpmodel/status"
        assert board.mode_id is None or board.mode is not None
        assert board.board_id in ("p3767-0000", None) or file == "proc/device-tree/compatible"

    broken()
