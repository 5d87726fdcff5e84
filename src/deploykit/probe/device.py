"""The whole state of the machine under a root: the one call that others make."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.probe.cpu_host import container, read_cpu, read_memory, read_temperatures, thermal_files
from deploykit.probe.jetson import is_jetson, read_jetson
from deploykit.probe.nvml import no_nvml, read_nvml
from deploykit.probe.nvml_answers import NvmlRefusal, live_nvml, recorded_nvml
from deploykit.probe.tree import Tree
from deploykit.targets.state import DeviceState, NvmlState

ROOT_VARIABLE = "DEPLOYKIT_ROOT"
THIS_MACHINE = Path("/")


@dataclass(frozen=True)
class Look:
    """One look at a machine: its state, and the raw material that a snapshot keeps.

    Attributes:
        nvml_record: Question → answer of the NVIDIA library.
    """

    state: DeviceState
    tree: Tree
    nvml_record: dict[str, Any] = field(default_factory=dict)


def default_root() -> Path:
    """`DEPLOYKIT_ROOT`, else `/`."""
    return Path(os.environ.get(ROOT_VARIABLE) or "/")


def device_state(root: Path = THIS_MACHINE) -> DeviceState:
    """What the machine under a root says of itself.

    Args:
        root: `/`, or the folder of an unpacked snapshot (`snapshot.opened` unpacks one).
    """
    return look_at(root).state


def look_at(root: Path = THIS_MACHINE) -> Look:
    """As `device_state`, with what was read."""
    tree = Tree(root)
    live = root.resolve() == THIS_MACHINE
    nvml, record = _live_nvml_state() if live else _recorded_nvml_state(root)
    state = DeviceState(
        jetson=read_jetson(tree) if is_jetson(tree) else None,
        nvml=nvml,
        cpu=read_cpu(tree, len(os.sched_getaffinity(0)) if live else None),
        memory=read_memory(tree),
        temperatures_c=read_temperatures(tree, thermal_files(tree)),
        container=container(tree),
    )
    return Look(state, tree, record)


def _live_nvml_state() -> tuple[NvmlState, dict[str, Any]]:
    try:
        with live_nvml() as nvml:
            return read_nvml(nvml), nvml.record
    except NvmlRefusal as refusal:
        return no_nvml(refusal), {"nvmlDeviceGetCount": {"refused": refusal.code, "text": str(refusal)}}


def _recorded_nvml_state(root: Path) -> tuple[NvmlState, dict[str, Any]]:
    nvml = recorded_nvml(root)
    try:
        return read_nvml(nvml), nvml.record
    except NvmlRefusal as refusal:
        return no_nvml(refusal), nvml.record
