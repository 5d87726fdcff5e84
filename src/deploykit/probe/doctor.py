"""What stands between this machine and a measurement that means something. Pure: facts in, findings out.

Each rule is a function that yields findings; a rule that lacks its facts yields nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deploykit.base.errors import DeviceAbsent
from deploykit.probe.device import Look
from deploykit.probe.driver_tables import driver_needed, shipped_with, version_tuple
from deploykit.probe.mig import VISIBLE_VARIABLE, choose
from deploykit.probe.software import Software, software_of
from deploykit.probe.tree import Tree
from deploykit.targets.match import cap_mhz, needs_reboot
from deploykit.targets.state import DeviceState, JetsonState, NvpMode

Level = Literal["problem", "warning", "note"]
_ORDER = ("problem", "warning", "note")

_NVIDIA = 0x10DE
_DISPLAY_CLASS = 0x03


@dataclass(frozen=True)
class Finding:
    """One thing.

    Attributes:
        level: `problem`: does not work or gives wrong numbers. `warning`: works worse than it could. `note`.
        mend: The command or step that mends it.
    """

    level: Level
    what: str
    why: str
    mend: str | None = None


@dataclass(frozen=True)
class Facts:
    """All that the rules know.

    Attributes:
        software: None for a snapshot that did not record it.
        pci_gpus: NVIDIA display devices on the PCI bus.
        denied: Files that are there and may not be read.
        in_video_group: Whether this process may use a Jetson's GPU nodes; None where that is not known.
    """

    state: DeviceState
    software: Software | None = None
    pci_gpus: int = 0
    denied: tuple[str, ...] = ()
    in_video_group: bool | None = None
    visible: str | None = None


@dataclass(frozen=True)
class Report:
    """Findings, worst first."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> int:
        """How many findings are problems."""
        return sum(finding.level == "problem" for finding in self.findings)


def gather(look: Look, root: Path, environment: Mapping[str, str] = os.environ) -> Facts:
    """The facts of a machine, or of its snapshot."""
    live = root.resolve() == Path("/")
    return Facts(
        state=look.state,
        software=software_of(look.tree, root),
        pci_gpus=_pci_gpus(look.tree),
        denied=tuple(sorted(look.tree.denied)),
        in_video_group=_in_video_group() if live else None,
        visible=environment.get(VISIBLE_VARIABLE) if live else None,
    )


def examine(facts: Facts) -> Report:
    """Every rule's findings."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return Report(tuple(sorted(found, key=lambda finding: _ORDER.index(finding.level))))


def _driver(facts: Facts) -> Iterator[Finding]:
    fault = facts.state.nvml.fault
    if facts.state.jetson is not None or fault is None:
        return
    if facts.pci_gpus and facts.state.container:
        yield Finding(
            "problem",
            "this container has no access to the GPU",
            f"the machine has an NVIDIA GPU, and in here there is {fault}",
            "start it with: docker run --gpus all … (needs nvidia-container-toolkit on the host)",
        )
    elif facts.pci_gpus or "permission" in fault:
        mend = (
            "sudo usermod -aG video $USER, then log in again"
            if "permission" in fault
            else "sudo apt install nvidia-driver-580, then reboot"
        )
        yield Finding("problem", fault, "no CUDA program can run", mend)
    else:
        yield Finding(
            "note",
            "no NVIDIA GPU and no Jetson",
            "only the CPU can be measured here; other targets are predicted",
            None,
        )


def _driver_for_torch(facts: Facts) -> Iterator[Finding]:
    software, driver = facts.software, facts.state.nvml.driver
    if software is None or facts.state.jetson is not None or driver is None:
        return
    if "torch" in software.packages and software.torch_cuda is None:
        yield Finding(
            "warning", "torch is a CPU build", "torch and torch.compile run on the CPU here", "pip install torch"
        )
    for what, cuda in _built_for(software):
        needed = driver_needed(cuda)
        if needed is not None and version_tuple(driver) < needed:
            least = ".".join(map(str, needed))
            yield Finding(
                "problem",
                f"{what} is built for CUDA {cuda}, and the driver is {driver}",
                f"CUDA {cuda.split('.')[0]} needs driver {least} or later",
                f"install driver {least} or later, or a build for CUDA {facts.state.nvml.cuda or 'of this driver'}",
            )


def _built_for(software: Software) -> Iterator[tuple[str, str]]:
    """Package → the CUDA it is built for."""
    if software.torch_cuda:
        yield f"torch {software.packages.get('torch', '')}".strip(), software.torch_cuda
    for name in ("tensorrt_cu12", "tensorrt_cu13"):
        if name in software.packages:
            yield f"TensorRT {software.packages[name]}", name[-2:]


def _tensorrt_of_jetpack(facts: Facts) -> Iterator[Finding]:
    board, software = facts.state.jetson, facts.software
    if board is None or board.jetpack is None or software is None:
        return
    shipped = shipped_with(board.jetpack)
    found = software.packages.get("tensorrt") or software.system_tensorrt
    if shipped is None:
        return
    if found is None:
        yield Finding(
            "warning",
            "TensorRT is not to be seen from this Python",
            f"JetPack {board.jetpack} carries TensorRT {shipped[0]}, in the system's own Python packages",
            "sudo apt install nvidia-jetpack, and make the environment with: python3 -m venv --system-site-packages",
        )
    elif version_tuple(found)[:2] != version_tuple(shipped[0]):
        yield Finding(
            "warning",
            f"TensorRT {found} on JetPack {board.jetpack}, which carries {shipped[0]}",
            "engines of one TensorRT do not load in another, and its figures are not comparable",
            "use the system's own: pip uninstall tensorrt",
        )


def _two_onnxruntimes(facts: Facts) -> Iterator[Finding]:
    packages = facts.software.packages if facts.software else {}
    if {"onnxruntime", "onnxruntime-gpu"} <= packages.keys():
        yield Finding(
            "problem",
            "both onnxruntime {onnxruntime} and onnxruntime-gpu {onnxruntime-gpu} are installed".format_map(packages),
            "they write into one folder: which one is imported depends on the order of installation",
            "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu",
        )


def _providers(facts: Facts) -> Iterator[Finding]:
    providers = facts.software.providers if facts.software else None
    has_gpu = bool(facts.state.nvml.gpus) or facts.state.jetson is not None
    for name, fault in (providers or {}).items():
        if fault is not None:
            yield Finding(
                "problem" if has_gpu and name == "CUDAExecutionProvider" else "note",
                f"onnxruntime has {name} and cannot load it",
                fault,
                "install what it links to: CUDA and cuDNN of its release (pip install onnxruntime-gpu[cuda,cudnn])",
            )
    if has_gpu and providers is not None and "CUDAExecutionProvider" not in providers:
        yield Finding(
            "warning",
            "onnxruntime is a CPU build",
            "the GPU is not used by the runtime onnxruntime",
            "pip uninstall -y onnxruntime && pip install onnxruntime-gpu",
        )


def _mig(facts: Facts) -> Iterator[Finding]:
    for gpu in facts.state.nvml.gpus:
        if gpu.mig_enabled and not gpu.mig_devices:
            yield Finding(
                "problem",
                f"GPU {gpu.index} is in MIG mode and has no instances",
                "CUDA sees no device on it",
                f"sudo nvidia-smi mig -i {gpu.index} -cgi <profile> -C, or sudo nvidia-smi -i {gpu.index} -mig 0",
            )
        if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
            yield Finding(
                "warning",
                f"GPU {gpu.index}: MIG will be {'on' if gpu.mig_pending else 'off'} after a reset",
                "what is measured now is not what will be there then",
                f"sudo nvidia-smi -i {gpu.index} --gpu-reset, with no process on it",
            )


def _cards(facts: Facts) -> Iterator[Finding]:
    for gpu in facts.state.nvml.gpus:
        if gpu.persistence is False and facts.state.jetson is None:
            yield Finding(
                "warning",
                f"GPU {gpu.index}: persistence mode is off",
                "the driver unloads between processes: the first run is slow and limits that were set are lost",
                f"sudo nvidia-smi -i {gpu.index} -pm 1",
            )
        if gpu.power_limit_w and gpu.power_limit_default_w and gpu.power_limit_w < 0.97 * gpu.power_limit_default_w:
            yield Finding(
                "warning",
                f"GPU {gpu.index}: power limit {gpu.power_limit_w:g} W, its default is {gpu.power_limit_default_w:g} W",
                "it is slower than a card of its name",
                f"sudo nvidia-smi -i {gpu.index} -pl {gpu.power_limit_default_w:g}",
            )


def _visible(facts: Facts) -> Iterator[Finding]:
    if facts.visible is None or not facts.state.nvml.gpus:
        return
    try:
        choose(facts.visible, facts.state.nvml.gpus)
    except DeviceAbsent as absent:
        yield Finding("problem", f"{VISIBLE_VARIABLE} shows no GPU", str(absent), f"unset {VISIBLE_VARIABLE}")


def _power_mode(facts: Facts) -> Iterator[Finding]:
    board = facts.state.jetson
    if board is None:
        return
    if board.conf_fault:
        yield Finding(
            "problem",
            f"the power modes cannot be read: {board.conf_fault}",
            "nobody can say which mode a measurement is of",
            "in a container: -v /etc/nvpmodel.conf:/etc/nvpmodel.conf:ro -v /var/lib/nvpmodel:/var/lib/nvpmodel:ro",
        )
        return
    mode, best = board.mode, _fastest(board)
    if mode is None:
        yield Finding(
            "problem", "the saved power mode is none of the board's", "the mode is unknown", "sudo nvpmodel -q"
        )
    elif needs_reboot(board, mode):
        yield Finding(
            "problem",
            f"{mode.name} is saved, and the GPU's power gating is still that of another mode",
            "a measurement now would be of neither mode",
            "sudo reboot",
        )
    elif best is not None and best.id != mode.id:
        yield Finding(
            "note",
            f"the power mode is {mode.name}, not the fastest ({best.name})",
            "figures of this mode are right for this mode only",
            f"deploykit targets apply, or sudo nvpmodel -m {best.id}",
        )


def _fastest(board: JetsonState) -> NvpMode | None:
    """The mode with the highest GPU cap, with the most CPUs among those: ids are in no order."""

    def rank(mode: NvpMode) -> tuple[float, int]:
        cap = cap_mhz("GPU MAX_FREQ", mode.settings.get("GPU MAX_FREQ", "-1"))
        cpus = sum(key.startswith("CPU_ONLINE") and value == "1" for key, value in mode.settings.items())
        return (float("inf") if cap is None else cap, cpus)

    return max(board.modes, key=rank, default=None)


def _board_sensors(facts: Facts) -> Iterator[Finding]:
    board = facts.state.jetson
    if board is None:
        return
    if facts.in_video_group is False:
        yield Finding(
            "problem",
            "this user is not in the group `video`",
            "the GPU's device nodes are for root and that group",
            "sudo usermod -aG video $USER, then log in again",
        )
    if board.power.total_w is None:
        rails = ", ".join(board.power.unreadable)
        yield Finding(
            "warning",
            f"the rails {rails} cannot be read" if rails else "no rail is known to be the module's total",
            "power and energy will be missing from measurements",
            "in a container: -v /sys:/sys:ro; else: sudo chmod a+r /sys/bus/i2c/drivers/ina3221/*/hwmon/*/*_input",
        )


def _cpu(facts: Facts) -> Iterator[Finding]:
    denied = [path for path in facts.denied if path.endswith("energy_uj")]
    if denied and facts.state.jetson is None:
        yield Finding(
            "note",
            "the CPU's energy counter is for root only",
            "power is missing from measurements on the CPU",
            f"sudo chmod a+r /{denied[0]}",
        )
    if (
        facts.state.cpu.governor == "powersave"
        and facts.state.jetson is None
        and facts.state.cpu.architecture != "x86_64"
    ):
        yield Finding(
            "warning", "the CPU governor is powersave", "clocks stay low", "sudo cpupower frequency-set -g performance"
        )


Rule = Callable[[Facts], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    _driver,
    _driver_for_torch,
    _tensorrt_of_jetpack,
    _two_onnxruntimes,
    _providers,
    _mig,
    _cards,
    _visible,
    _power_mode,
    _board_sensors,
    _cpu,
)


def _pci_gpus(tree: Tree) -> int:
    """NVIDIA display devices: vendor 0x10de, class 0x03…. Containers see the bus too."""
    return sum(
        tree.number(f"{device}/vendor") == _NVIDIA and (tree.number(f"{device}/class") or 0) >> 16 == _DISPLAY_CLASS
        for device in tree.paths("sys/bus/pci/devices/*")
    )


def _in_video_group() -> bool:
    import grp

    if os.geteuid() == 0:
        return True
    try:
        return grp.getgrnam("video").gr_gid in os.getgroups()
    except KeyError:
        return True
