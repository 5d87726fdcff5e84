"""What stands between this machine and a measurement that means something. Pure: facts in, findings out.

Each rule is a function that yields findings; a rule that lacks its facts yields nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploykit.base.errors import DeviceAbsent
from deploykit.probe.board_rules import BOARD_RULES
from deploykit.probe.device import Look
from deploykit.probe.driver_tables import driver_needed, version_tuple
from deploykit.probe.findings import Facts, Finding, Rule
from deploykit.probe.mig import VISIBLE_VARIABLE, choose
from deploykit.probe.software import Software, software_of
from deploykit.probe.tree import Tree

_NVIDIA = 0x10DE
_DISPLAY_CLASS = 0x03
_ORDER = ("problem", "warning", "note")


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


def _driver_for_packages(facts: Facts) -> Iterator[Finding]:
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
                f"{what} uses CUDA {cuda}, and the driver is {driver}",
                f"CUDA {cuda.split('.')[0]} needs driver {least} or later",
                f"install driver {least} or later, or a build for CUDA {facts.state.nvml.cuda or 'of this driver'}",
            )


def _toolkit(facts: Facts) -> Iterator[Finding]:
    toolkit = facts.software.system_cuda if facts.software else None
    driver, needed = facts.state.nvml.driver, driver_needed(toolkit or "")
    if needed is not None and driver is not None and version_tuple(driver) < needed and facts.state.jetson is None:
        yield Finding(
            "warning",
            f"/usr/local/cuda is CUDA {toolkit}, and the driver is {driver}",
            f"programs that are built here need driver {'.'.join(map(str, needed))} or later to run",
            f"install that driver, or the toolkit of CUDA {facts.state.nvml.cuda or 'this driver'}",
        )


def _built_for(software: Software) -> Iterator[tuple[str, str]]:
    """What brings a CUDA of its own → which."""
    if software.torch_cuda:
        yield f"torch {software.packages.get('torch', '')}".strip(), software.torch_cuda
    for name in ("tensorrt_cu12", "tensorrt_cu13"):
        if name in software.packages:
            yield f"TensorRT {software.packages[name]}", name[-2:]
    for name in _RUNTIMES:
        if name in software.packages:
            yield f"the CUDA runtime of the package {name}", software.packages[name]


_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12")


def _two_onnxruntimes(facts: Facts) -> Iterator[Finding]:
    packages = facts.software.packages if facts.software else {}
    if {"onnxruntime", "onnxruntime-gpu"} <= packages.keys():
        yield Finding(
            "problem",
            "both onnxruntime {onnxruntime} and onnxruntime-gpu {onnxruntime-gpu} are installed".format_map(packages),
            "they write into one folder: which one is imported depends on the order of installation",
            "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu",
        )


def _no_runtime(facts: Facts) -> Iterator[Finding]:
    packages = facts.software.packages if facts.software else {}
    if facts.software is not None and not packages.keys() & _RUNTIME_PACKAGES:
        yield Finding(
            "warning",
            "no runtime is installed",
            "`deploykit bench` has neither onnxruntime nor TensorRT nor torch to run a model",
            "pip install 'deploykit[cpu]', or 'deploykit[gpu]' beside an NVIDIA GPU",
        )


_RUNTIME_PACKAGES = {"onnxruntime", "onnxruntime-gpu", "tensorrt", "tensorrt_rtx", "torch"}


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
            "install the build for this JetPack (docs/jetson.md); pip's own index has none"
            if facts.state.jetson
            else "pip uninstall -y onnxruntime && pip install onnxruntime-gpu",
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


RULES: tuple[Rule, ...] = (
    _driver,
    _driver_for_packages,
    _toolkit,
    _two_onnxruntimes,
    _no_runtime,
    _providers,
    _mig,
    _cards,
    _visible,
    *BOARD_RULES,
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
