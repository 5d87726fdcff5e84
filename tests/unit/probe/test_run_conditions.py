"""What makes a run one of the target, and what does not."""

from collections.abc import Callable

from deploykit.probe.check import Check, check
from deploykit.probe.run_conditions import conditions, judge
from deploykit.probe.trace import Sample, Trace
from deploykit.targets.catalog import load_catalog
from deploykit.targets.state import DeviceState

StateOf = Callable[[str], DeviceState]
QUIET = Trace((Sample(0.0, gpu_mhz=612.0), Sample(1.0, gpu_mhz=612.0)))


def checked(state: DeviceState, target: str) -> Check:
    catalog = load_catalog()
    return check(state, catalog.resolve(target), catalog, {})


def test_a_quiet_run_on_the_right_board(state_of: StateOf) -> None:
    state = state_of("orin-agx-64gb-jp6.MODE_30W")
    found = judge(state, state, checked(state, "orin-agx-64gb@30w"), QUIET, [3.0] * 90, on_gpu=True)
    assert found.reasons == ()
    recorded = conditions(state, checked(state, "orin-agx-64gb@30w"), QUIET)
    assert recorded == {"power_mode": "MODE_30W", "gpu_clock_min_mhz": 612.0, "online_cpus": 8}
    # Unlocked clocks are no fault, and are told.
    assert any("clocks" in remark for remark in found.remarks)


def test_a_board_in_another_mode(state_of: StateOf) -> None:
    state = state_of("orin-agx-64gb-jp6.MAXN")
    found = judge(state, state, checked(state, "orin-agx-64gb@30w"), QUIET, on_gpu=False)
    assert any("power mode" in reason for reason in found.reasons)


def test_an_idle_gpu_is_no_fault_of_a_run_on_the_cpu(state_of: StateOf) -> None:
    state = state_of("orin-agx-64gb-jp6.MODE_30W")
    idle = Trace((Sample(0.0, gpu_mhz=306.0), Sample(1.0, gpu_mhz=306.0)))
    target = checked(state, "orin-agx-64gb@30w")
    assert judge(state, state, target, idle, on_gpu=False).reasons == ()
    assert "clock" in judge(state, state, target, idle, on_gpu=True).reasons[0]


def test_a_mode_that_is_switched_in_the_run(state_of: StateOf) -> None:
    before, after = state_of("orin-nx-16gb.15W"), state_of("orin-nx-16gb.10W")
    found = judge(before, after, checked(before, "orin-nx-16gb@15w"), QUIET, on_gpu=False)
    assert any("power mode changed during the run" in reason for reason in found.reasons)


def test_swapping_in_the_run_is_a_fault_and_old_swap_a_remark(state_of: StateOf) -> None:
    before = state_of("orin-nx-16gb.15W")
    used = before.model_copy(update={"memory": before.memory.model_copy(update={"swap_used_bytes": 1_875_000_000})})
    moved = used.model_copy(update={"memory": used.memory.model_copy(update={"pages_swapped_in": 12})})
    target = checked(before, "orin-nx-16gb@15w")
    quiet = judge(used, used, target, QUIET, on_gpu=False)
    assert quiet.reasons == ()
    assert "1875 MB were in swap before the run" in quiet.remarks
    assert "swapped during the run (12 pages)" in judge(used, moved, target, QUIET, on_gpu=False).reasons[0]


def test_a_neighbour_on_the_same_slice_is_a_fault_and_one_on_another_is_told(state_of: StateOf) -> None:
    state = state_of("a100-80gb-mixed")
    target = checked(state, "a100-sxm4-80gb:1g.10gb")
    assert judge(state, state, target, QUIET, on_gpu=True).reasons == ()
    recorded = conditions(state, target, QUIET)
    assert recorded["mig_device"] == "MIG-33333333-3333-3333-3333-333333333333"
    assert {"profile": "2g.20gb", "state": "busy"} in recorded["mig_neighbours"]
    taken = judge(state, state, checked(state, "a100-sxm4-80gb:2g.20gb"), QUIET, on_gpu=True)
    assert "another process uses the slice" in taken.reasons[0]
    assert "4242" in taken.reasons[0]


def test_a_run_that_slows_down(state_of: StateOf) -> None:
    state = state_of("t4")
    found = judge(state, state, checked(state, "t4"), QUIET, [3.0] * 100 + [4.8] * 100, on_gpu=True)
    assert found.reasons == ("the last third of the run was 60% slower than the first",)


def test_a_run_too_short_for_its_power(state_of: StateOf) -> None:
    state = state_of("t4")
    trace = Trace((Sample(0.0, energy_j=0.0), Sample(0.5, energy_j=30.0)), step_s=0.1)
    found = judge(state, state, checked(state, "t4"), trace, on_gpu=True)
    assert any("too short for its power: 60.0 ± 24.0 W" in remark for remark in found.remarks)


def test_a_process_that_comes_in_the_run_is_a_fault_and_the_runs_own_is_not(state_of: StateOf) -> None:
    before = state_of("t4")
    target = checked(before, "t4")

    def after(*pids: int) -> DeviceState:
        gpu = before.nvml.gpus[0].model_copy(update={"processes": pids})
        return before.model_copy(update={"nvml": before.nvml.model_copy(update={"gpus": (gpu,)})})

    assert judge(before, after(71), target, QUIET, on_gpu=True).reasons == ()
    assert "1 more process" in judge(before, after(71, 72), target, QUIET, on_gpu=True).reasons[0]


def test_drift_and_swap_of_the_shared_host_are_no_faults(state_of: StateOf) -> None:
    before = state_of("no-driver")
    moved = before.model_copy(update={"memory": before.memory.model_copy(update={"pages_swapped_in": 1 << 40})})
    assert judge(before, moved, checked(before, "host"), QUIET, [3.0] * 100 + [4.8] * 100, on_gpu=False).reasons == ()
