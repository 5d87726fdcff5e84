"""Each rule of the doctor: what sets it off, and that it is silent without its facts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploykit.probe.device import look_at
from deploykit.probe.doctor import examine, gather
from deploykit.probe.findings import Facts
from deploykit.probe.software import Software, recorded
from deploykit.targets.state import DeviceState, GpuState, NvmlState

StateOf = Callable[[str], DeviceState]


def software(
    *, torch_cuda: str | None = None, providers: dict[str, str | None] | None = None, **packages: str
) -> Software:
    names = {name.replace("__", "-"): version for name, version in packages.items()}
    return Software(python="3.10.12", packages=names, torch_cuda=torch_cuda, providers=providers)


def said(facts: Facts, level: str = "problem") -> list[str]:
    return [finding.what for finding in examine(facts).findings if finding.level == level]


CARD = DeviceState(
    nvml=NvmlState(driver="550.54.15", cuda="12.4", gpus=(GpuState(index=0, uuid="GPU-1", name="Tesla T4"),))
)
NOTHING = DeviceState(nvml=NvmlState(fault="no NVIDIA driver: libnvidia-ml.so.1 is not there"))


def test_a_machine_with_nothing_has_no_problem() -> None:
    report = examine(Facts(NOTHING))
    assert report.problems == 0
    assert [finding.what for finding in report.findings] == ["no NVIDIA GPU and no Jetson"]


def test_a_card_whose_driver_is_silent() -> None:
    assert said(Facts(NOTHING, pci_gpus=1)) == ["no NVIDIA driver: libnvidia-ml.so.1 is not there"]


def test_a_container_without_the_gpu() -> None:
    inside = NOTHING.model_copy(update={"container": "/.dockerenv is there"})
    assert said(Facts(inside, pci_gpus=1)) == ["this container has no access to the GPU"]


def test_a_driver_without_permission(state_of: StateOf) -> None:
    report = examine(Facts(state_of("driver-no-permission")))
    assert report.problems == 1
    assert "usermod -aG video" in (report.findings[0].mend or "")


@pytest.mark.parametrize(
    ("torch_cuda", "package", "problems"),
    [("12.4", {}, 0), ("13.0", {}, 1), (None, {"tensorrt_cu13": "10.13.0"}, 1), (None, {"tensorrt_cu12": "10.3.0"}, 0)],
)
def test_a_driver_older_than_the_cuda_that_packages_are_built_for(
    torch_cuda: str | None, package: dict[str, str], problems: int
) -> None:
    found = said(Facts(CARD, software(torch_cuda=torch_cuda, **package)))
    assert len(found) == problems
    assert all("the driver is 550.54.15" in text for text in found)


def test_a_cpu_torch_beside_a_gpu_is_a_warning() -> None:
    assert "torch is a CPU build" in said(Facts(CARD, software(torch="2.7.0")), "warning")


def test_both_onnxruntimes() -> None:
    found = said(Facts(NOTHING, software(onnxruntime="1.20.0", onnxruntime__gpu="1.20.0")))
    assert found == ["both onnxruntime 1.20.0 and onnxruntime-gpu 1.20.0 are installed"]


def test_a_machine_without_a_runtime() -> None:
    found = said(Facts(NOTHING, software(numpy="2.0.0")), "warning")
    assert found == ["no runtime is installed"]
    assert said(Facts(NOTHING, software(onnxruntime="1.20.0")), "warning") == []


def test_a_provider_that_does_not_load_is_a_problem_where_there_is_a_gpu() -> None:
    providers = {"CUDAExecutionProvider": "libcudnn.so.9 is missing", "CPUExecutionProvider": None}
    assert len(said(Facts(CARD, software(providers=providers)))) == 1
    assert said(Facts(NOTHING, software(providers=providers))) == []


def test_a_cpu_onnxruntime_beside_a_gpu_is_a_warning() -> None:
    assert "onnxruntime is a CPU build" in said(
        Facts(CARD, software(providers={"CPUExecutionProvider": None})), "warning"
    )


@pytest.mark.parametrize(("tensorrt", "warnings"), [("10.3.0", 0), ("10.13.3", 1), (None, 1)])
def test_tensorrt_goes_with_jetpack(tensorrt: str | None, warnings: int, state_of: StateOf) -> None:
    packages = {} if tensorrt is None else {"tensorrt": tensorrt}
    facts = Facts(state_of("orin-agx-64gb-jp6.MAXN"), software(**packages), in_video_group=True)
    assert len([text for text in said(facts, "warning") if "TensorRT" in text]) == warnings


@pytest.mark.parametrize(
    ("python", "system", "said"),
    [
        ("3.10.12", None, "sudo apt install tensorrt"),
        ("3.10.12", "10.3.0", "--system-site-packages"),
        ("3.11.7", "10.3.0", "Python 3.10"),
    ],
)
def test_the_way_to_the_systems_tensorrt(python: str, system: str | None, said: str, state_of: StateOf) -> None:
    installed = Software(python=python, system_tensorrt=system)
    report = examine(Facts(state_of("orin-agx-64gb-jp6.MAXN"), installed, in_video_group=True))
    mends = [finding.mend or "" for finding in report.findings if "TensorRT" in finding.what]
    assert len(mends) == 1
    assert said in mends[0]


@pytest.mark.parametrize(("cuda", "problems"), [("12.6", 0), ("12.8", 0), ("13.0", 1), (None, 1)])
def test_torch_goes_with_jetpack(cuda: str | None, problems: int, state_of: StateOf) -> None:
    facts = Facts(state_of("orin-nx-16gb-super.40W"), software(torch_cuda=cuda, torch="2.7.0"), in_video_group=True)
    assert len([text for text in said(facts) if text.startswith("torch")]) == problems


def test_a_toolkit_that_the_driver_does_not_run() -> None:
    installed = Software(python="3.10.12", packages={"tensorrt": "10.3.0"}, system_cuda="13.0.1")
    assert said(Facts(CARD, installed), "warning") == ["/usr/local/cuda is CUDA 13.0.1, and the driver is 550.54.15"]


def test_a_cuda_runtime_that_the_driver_does_not_run() -> None:
    installed = Software(python="3.10.12", packages={"nvidia-cuda-runtime": "13.0.96"})
    assert len(said(Facts(CARD, installed))) == 1


def test_a_saved_mode_that_may_not_be_read(state_of: StateOf) -> None:
    facts = Facts(state_of("orin-nx-16gb.MAXN"), denied=("var/lib/nvpmodel/status",), in_video_group=True)
    assert said(facts) == ["the saved power mode cannot be read (/var/lib/nvpmodel/status)"]


def test_mig_without_instances(state_of: StateOf) -> None:
    state = state_of("a100-80gb-7x1g")
    gpu = state.nvml.gpus[0].model_copy(update={"mig_devices": ()})
    empty = state.model_copy(update={"nvml": state.nvml.model_copy(update={"gpus": (gpu,)})})
    assert said(Facts(empty)) == ["GPU 0 is in MIG mode and has no instances"]
    assert said(Facts(state)) == []


def test_persistence_and_a_lowered_power_limit(state_of: StateOf) -> None:
    assert said(Facts(state_of("rtx-4090")), "warning") == ["GPU 0: persistence mode is off"]
    gpu = CARD.nvml.gpus[0].model_copy(update={"power_limit_w": 60.0, "power_limit_default_w": 70.0})
    lowered = CARD.model_copy(update={"nvml": CARD.nvml.model_copy(update={"gpus": (gpu,)})})
    assert said(Facts(lowered), "warning") == ["GPU 0: power limit 60 W, its default is 70 W"]


def test_a_variable_that_hides_every_gpu() -> None:
    assert said(Facts(CARD, visible="")) == ["CUDA_VISIBLE_DEVICES shows no GPU"]
    assert said(Facts(CARD, visible="0")) == []


def test_the_fastest_mode_is_known_by_its_caps_and_not_by_its_id(state_of: StateOf) -> None:
    # MAXN_SUPER is mode 2 on this module.
    notes = said(Facts(state_of("orin-nano-8gb-super.25W"), in_video_group=True), "note")
    assert "the power mode is 25W, not the fastest (MAXN_SUPER)" in notes
    fastest = said(Facts(state_of("orin-nano-8gb-super.MAXN_SUPER"), in_video_group=True), "note")
    assert fastest == ["the clocks follow the load"]


def test_a_mode_that_waits_for_a_reboot(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-agx-64gb-jp6.MODE_30W")
    (root / "sys/devices/platform/gpu.0/tpc_pg_mask").write_text("0\n")
    assert "still that of another mode" in said(gather(look_at(root), root))[0]


def test_a_container_without_the_power_mode_files(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-agx-64gb-jp6.MODE_30W")
    (root / "etc/nvpmodel.conf").unlink()
    report = examine(gather(look_at(root), root))
    assert "cannot be read" in report.findings[0].what
    assert "-v /etc/nvpmodel.conf" in (report.findings[0].mend or "")


def test_rails_that_cannot_be_read(board_root: Callable[[str], Path]) -> None:
    root = board_root("orin-nx-16gb.MAXN")
    for file in root.glob("sys/bus/i2c/drivers/ina3221/*/hwmon/*/curr1_input"):
        file.write_text("")
    assert "the rails VDD_IN cannot be read" in said(gather(look_at(root), root), "warning")


def test_a_user_outside_the_video_group(state_of: StateOf) -> None:
    assert said(Facts(state_of("orin-nx-16gb.MAXN"), in_video_group=False)) == ["this user is not in the group `video`"]


def test_gpus_on_the_bus_are_counted_by_vendor_and_class(tmp_path: Path) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x1002", "0x030000")):
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
    assert gather(look_at(tmp_path), tmp_path).pci_gpus == 1


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"python": 3}'])
def test_releases_of_a_broken_snapshot_are_not_known(text: str, tmp_path: Path) -> None:
    (tmp_path / "deploykit").mkdir()
    (tmp_path / "deploykit/software.json").write_text(text)
    assert recorded(tmp_path) is None


def test_this_machine_is_examined_whatever_it_has() -> None:
    report = examine(gather(look_at(), Path("/")))
    assert all(finding.what and finding.why for finding in report.findings)
