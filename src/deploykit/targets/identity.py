"""Which device of the catalogue the machine in hand is. Pure: state and catalogue in, slug out.

A Jetson is known by its module's part number; where two devices share one (a module flashed with and without the super
profile) its power modes decide. A card is known by NVML's name, with the memory size only between variants of one name.
"""

from __future__ import annotations

import re

from deploykit.base.errors import DeviceMismatch
from deploykit.targets.catalog import Catalog, resolve
from deploykit.targets.ref import squeezed
from deploykit.targets.spec import TargetFile, TargetSpec
from deploykit.targets.state import DeviceState, GpuState, JetsonState

# What NVML calls cards that the catalogue spells differently (names seen in public nvidia-smi listings).
NVML_NAMES = {
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm5-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H100 NVL": "h100-nvl-94gb",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA B200": "b200-180gb",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla V100-SXM2-32GB": "v100-sxm2-32gb",
    "Tesla V100-PCIE-16GB": "v100-pcie-16gb",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
}

_GB = 1e9
# NVML reports a few percent less than sold (ECC, firmware) or more (GiB sold as GB).
_MEMORY_TOLERANCE = 0.12


def jetson_device(state: JetsonState, catalog: Catalog) -> str | None:
    """The slug of a board; None where the catalogue does not have its module."""
    if state.variant is not None:
        return None
    candidates = [file for file in catalog.files.values() if _has_module(file, state.board_id)]
    known = {(mode.id, mode.name) for mode in state.modes}
    plain = min(candidates, key=lambda file: _strangers(file, known), default=None)
    return plain.device if plain else None


def gpu_device(gpu: GpuState, catalog: Catalog) -> str | None:
    """The slug of a card; None where the catalogue does not have it."""
    if gpu.name is None:
        return None
    if (slug := NVML_NAMES.get(gpu.name)) is not None:
        return slug if slug in catalog.files else None
    wanted = _bare(gpu.name)
    fitting = [file for file in catalog.files.values() if wanted in map(_bare, (file.device, file.name))]
    sized = [file for file in fitting if _memory_fits(file, gpu.memory_bytes)]
    return sized[0].device if len(sized) == 1 else None


def devices_of(state: DeviceState, catalog: Catalog) -> list[str]:
    """Every device of the catalogue that this machine is or holds, without `host`."""
    if state.jetson is not None:
        found = [jetson_device(state.jetson, catalog)]
    else:
        found = [gpu_device(gpu, catalog) for gpu in state.nvml.gpus]
    return list(dict.fromkeys(slug for slug in found if slug is not None))


def resolve_here(text: str, catalog: Catalog, state: DeviceState) -> tuple[TargetSpec, str | None]:
    """What a reference means on this machine.

    A family name such as `orin-30w` means the 64 GB module away from a board, and on an AGX Orin that board's own 30 W
    mode: 32 GB, 64 GB and super-flashed modules differ in SMs and clocks. An exact slug always means itself.

    Returns:
        The target, and a sentence that says so where the name means another device here than elsewhere.

    Raises:
        UsageError: As `catalog.resolve`.
        DeviceMismatch: The board is of that family and has no such mode.
    """
    meant = resolve(text)
    board = jetson_device(state.jetson, catalog) if state.jetson else None
    if board is None or board == meant.device.device or _is_exact(text, meant):
        return meant, None
    file = catalog.files[board]
    if product_of(file.device) != product_of(meant.device.device):
        return meant, None
    mode = meant.mode_name if "@" in catalog.aliases.get(text.strip().lower(), text) else file.default_mode
    if mode not in file.power_modes:
        raise DeviceMismatch(
            f"target {text!r}: this board is {file.name} ({board}), which has no mode {mode!r}; "
            f"it has {', '.join(file.power_modes)}: name one, like {board}@{next(iter(file.power_modes))}"
        )
    here = catalog.resolve(f"{board}@{mode}")
    return here, f"{text} means {here.ref} on this board ({file.name}); elsewhere it is {meant.ref}"


def product_of(slug: str) -> str:
    """The product that a device is a variant of: `orin-nx-16gb-super` → `orin-nx`."""
    return re.sub(r"-[0-9]+gb(?:-super)?$", "", slug)


def _is_exact(text: str, meant: TargetSpec) -> bool:
    return re.split("[@:]", text.strip().lower())[0] == meant.device.device


def _has_module(file: TargetFile, board_id: str | None) -> bool:
    """`p2888-000x` in the catalogue stands for any last digit."""
    return board_id is not None and any(
        re.fullmatch(re.escape(sku).replace("x", "[0-9]"), board_id) for sku in file.module_skus
    )


def _strangers(file: TargetFile, known: set[tuple[int, str]]) -> int:
    """How many power modes are only in the catalogue's file or only on the board."""
    listed = {(mode.id, mode.nvpmodel_name) for mode in file.power_modes.values()}
    return len(listed ^ known) if known else 0


def _bare(name: str) -> str:
    """A card's name without its memory size."""
    return squeezed(re.sub(r"[-_ ]?[0-9]+ ?GB\b", "", name, flags=re.IGNORECASE))


def _memory_fits(file: TargetFile, memory_bytes: int | None) -> bool:
    if memory_bytes is None or file.memory is None:
        return True
    sold = file.memory.size_gb
    return min(abs(memory_bytes / unit / sold - 1) for unit in (_GB, 1 << 30)) <= _MEMORY_TOLERANCE
