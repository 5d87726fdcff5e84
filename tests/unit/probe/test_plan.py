"""What would be run to make a machine a target, and what would put it back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploykit.base.errors import DeviceMismatch
from deploykit.probe.check import check
from deploykit.probe.plan import Plan, plan
from deploykit.targets.catalog import load_catalog
from deploykit.targets.state import DeviceState

StateOf = Callable[[str], DeviceState]
CLOCKS = Path("/x/clocks.conf")


def planned(state: DeviceState, target: str, **options: object) -> Plan:
    catalog = load_catalog()
    return plan(state, check(state, catalog.resolve(target), catalog, {}), CLOCKS, **options)  # type: ignore[arg-type]


def words(made: Plan) -> list[str]:
    return [str(command) for command in made.commands]


def back(made: Plan) -> list[str]:
    return [str(command) for command in made.restore]


def test_a_mode_switch_keeps_the_clocks_first_and_puts_both_back(state_of: StateOf) -> None:
    made = planned(state_of("orin-agx-64gb-jp6.MODE_50W"), "orin-agx-64gb@maxn")
    assert words(made) == [f"jetson_clocks --store {CLOCKS}", "nvpmodel -m 0", "jetson_clocks"]
    assert back(made) == ["nvpmodel -m 3", f"jetson_clocks --restore {CLOCKS}"]
    assert not made.reboot


def test_the_id_is_the_boards_own(state_of: StateOf) -> None:
    # 25W is 1 on an Orin Nano super and 3 on an Orin NX.
    assert "nvpmodel -m 1" in words(planned(state_of("orin-nano-8gb-super.15W"), "orin-nano-8gb-super@25w"))
    assert "nvpmodel -m 3" in words(planned(state_of("orin-nx-16gb.MAXN"), "orin-nx-16gb@25w"))


def test_a_switch_of_power_gating_asks_for_a_reboot_and_does_nothing_behind_it(state_of: StateOf) -> None:
    made = planned(state_of("orin-agx-64gb-jp6.MAXN"), "orin-agx-64gb@30w")
    assert (words(made), back(made), made.reboot) == (["nvpmodel -m 2"], [], True)
    assert "does not reboot" in made.notes[0]


def test_a_board_in_the_mode_only_has_its_clocks_locked(state_of: StateOf) -> None:
    state = state_of("orin-agx-64gb-jp6.MODE_30W")
    assert words(planned(state, "orin-agx-64gb@30w")) == [f"jetson_clocks --store {CLOCKS}", "jetson_clocks"]
    assert planned(state, "orin-agx-64gb@30w", lock_clocks=False) == Plan(())


def test_another_device_is_beyond_commands(state_of: StateOf) -> None:
    with pytest.raises(DeviceMismatch, match="nothing makes this machine"):
        planned(state_of("orin-agx-64gb-jp6.MAXN"), "rtx-4090")


def test_an_instance_is_created_only_when_asked_for(state_of: StateOf) -> None:
    state = state_of("a100-80gb-mixed")
    shown = planned(state, "a100-sxm4-80gb:1g.20gb")
    assert shown.commands == ()
    assert "--create-mig" in shown.notes[0]
    assert words(planned(state, "a100-sxm4-80gb:1g.20gb", create_mig=True)) == ["nvidia-smi mig -i 0 -cgi 1g.20gb -C"]


def test_mig_mode_itself_is_left_to_the_user(state_of: StateOf) -> None:
    made = planned(state_of("a100-80gb"), "a100-sxm4-80gb:1g.10gb", create_mig=True)
    assert made.commands == ()
    assert "-mig 1" in made.notes[0]


def test_a_power_limit_is_set_to_the_cards_default_and_back(state_of: StateOf) -> None:
    state = state_of("t4")
    gpu = state.nvml.gpus[0].model_copy(update={"power_limit_w": 60.0})
    lowered = state.model_copy(update={"nvml": state.nvml.model_copy(update={"gpus": (gpu,)})})
    made = planned(lowered, "t4", gpu_clock_mhz=1000.0)
    assert words(made) == [f"nvidia-smi -i {gpu.uuid} -pl 70", f"nvidia-smi -i {gpu.uuid} -lgc 1000,1000"]
    assert back(made) == [f"nvidia-smi -i {gpu.uuid} -pl 60", f"nvidia-smi -i {gpu.uuid} -rgc"]
