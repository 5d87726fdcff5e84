"""CUDA_VISIBLE_DEVICES in all its spellings, on a host with a whole GPU and a sliced one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.base.errors import DeviceAbsent
from deploykit.probe.mig import choose, choose_profile, neighbours
from deploykit.targets.state import GpuState, MigDevice

WHOLE = GpuState(
    index=0, uuid="GPU-11111111-1111-1111-1111-111111111111", name="NVIDIA A100-SXM4-80GB", mig_enabled=False
)
SMALL = MigDevice(
    uuid="MIG-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", profile="1g.10gb", gpu_instance=7, compute_instance=0
)
LARGE = MigDevice(
    uuid="MIG-bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb", profile="3g.40gb", gpu_instance=2, compute_instance=0
)
SLICED = GpuState(
    index=1,
    uuid="GPU-22222222-2222-2222-2222-222222222222",
    name="NVIDIA A100-SXM4-80GB",
    mig_enabled=True,
    mig_devices=(SMALL, LARGE),
)
GPUS = (WHOLE, SLICED)


@pytest.mark.parametrize(
    ("visible", "gpu", "slice_"),
    [
        (None, WHOLE, None),
        ("0", WHOLE, None),
        ("1", SLICED, SMALL),
        ("GPU-1111", WHOLE, None),
        ("GPU-11111111-1111-1111-1111-111111111111", WHOLE, None),
        (SMALL.uuid, SLICED, SMALL),
        (LARGE.uuid, SLICED, LARGE),
        ("MIG-GPU-22222222-2222-2222-2222-222222222222/2/0", SLICED, LARGE),
        (" 0 , 1", WHOLE, None),
        ("0,junk", WHOLE, None),
    ],
)
def test_what_cuda_will_use(visible: str | None, gpu: GpuState, slice_: MigDevice | None) -> None:
    chosen = choose(visible, GPUS)
    assert (chosen.gpu, chosen.slice) == (gpu, slice_)
    assert chosen.uuid == (slice_.uuid if slice_ else gpu.uuid)


@pytest.mark.parametrize(
    ("visible", "said"),
    [
        ("", "no device"),
        ("-1", "no device"),
        ("7", "no device"),
        ("NoDevFiles", "no device"),
        ("0,0", "twice"),
        ("MIG-cccc", "no such slice"),
        ("GPU-", "more than one"),
        ("GPU-3", "fits no GPU"),
    ],
)
def test_what_shows_no_device(visible: str, said: str) -> None:
    with pytest.raises(DeviceAbsent, match=said):
        choose(visible, GPUS)


def test_only_the_first_of_two_slices_is_used_and_that_is_said() -> None:
    chosen = choose(f"{SMALL.uuid},{LARGE.uuid}", GPUS)
    assert chosen.slice == SMALL
    assert "first of the list" in chosen.warnings[0]


def test_ordinals_of_unlike_gpus_are_doubtful() -> None:
    other = GpuState(index=1, uuid="GPU-9", name="Tesla T4")
    assert "PCI_BUS_ID" in choose("0", (WHOLE, other)).warnings[0]
    assert choose("0", (WHOLE, other), order="PCI_BUS_ID").warnings == ()
    assert choose("GPU-9", (WHOLE, other)).warnings == ()


def test_a_gpu_in_mig_mode_without_slices_is_no_device() -> None:
    empty = GpuState(index=0, uuid="GPU-5", name="NVIDIA A100-SXM4-80GB", mig_enabled=True)
    with pytest.raises(DeviceAbsent, match="no slices"):
        choose(None, (empty,))


def test_an_idle_slice_of_the_profile_is_taken() -> None:
    busy = SMALL.model_copy(update={"processes": (7,)})
    idle = SMALL.model_copy(update={"uuid": "MIG-idle", "processes": ()})
    gpu = SLICED.model_copy(update={"mig_devices": (busy, idle)})
    assert choose_profile("1g.10gb", (gpu,), None).slice == idle
    # Unless the user names the other.
    assert choose_profile("1g.10gb", (gpu,), busy.uuid).slice == busy


def test_a_profile_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(DeviceAbsent, match=r"3g\.40gb MIG-bbbb"):
        choose_profile("2g.20gb", GPUS, None)


def test_neighbours_are_idle_busy_or_unknown() -> None:
    busy = LARGE.model_copy(update={"processes": (7,)})
    quiet = LARGE.model_copy(update={"uuid": "MIG-quiet", "processes": ()})
    silent = LARGE.model_copy(update={"uuid": "MIG-silent"})
    gpu = SLICED.model_copy(update={"mig_devices": (SMALL, busy, quiet, silent)})
    assert [state for _, state in neighbours(choose(SMALL.uuid, (gpu,)))] == [True, False, None]


@given(st.text(max_size=60))
def test_any_value_is_a_device_that_is_there_or_a_refusal(visible: str) -> None:
    try:
        chosen = choose(visible, GPUS)
    except DeviceAbsent:
        return
    assert chosen.gpu in GPUS
    assert chosen.slice is None or chosen.slice in chosen.gpu.mig_devices
