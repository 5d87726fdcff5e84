"""The machine at hand as a target file: what `targets export` writes and `--target ./this-board.yaml` reads.

A device of the catalogue keeps its silicon and sources; a Jetson's power modes become those of its own nvpmodel.conf.
A card that the catalogue lacks is written from what its driver says: without peaks, which no driver tells.
"""

from __future__ import annotations

import re

from deploykit.base.errors import DeviceAbsent
from deploykit.probe.mig import Chosen
from deploykit.targets.catalog import Catalog
from deploykit.targets.identity import gpu_device, jetson_device
from deploykit.targets.match import cap_mhz, sms_on
from deploykit.targets.spec import Memory, Power, PowerMode, Silicon, Source, TargetFile
from deploykit.targets.state import DeviceState, GpuState, JetsonState, NvpMode

OWN_SOURCE = "this-machine"


def target_file(state: DeviceState, catalog: Catalog, chosen: Chosen | None) -> TargetFile:
    """Describe the device in hand.

    Raises:
        DeviceAbsent: There is neither a Jetson of the catalogue nor a GPU.
    """
    if state.jetson is not None:
        slug = jetson_device(state.jetson, catalog)
        if slug is None:
            raise DeviceAbsent(
                f"the module {state.jetson.board_id or 'of this board'} is not in the catalogue, and a board does not "
                "tell its own peaks: copy a file of the same chip (deploykit targets show --help) and edit it"
            )
        return _board_file(catalog.files[slug], state.jetson)
    if chosen is None:
        raise DeviceAbsent("there is no Jetson and no GPU here to describe; the CPU is the target `host`")
    slug = gpu_device(chosen.gpu, catalog)
    return _own(catalog.files[slug], state) if slug else _card_file(chosen.gpu, state)


def yaml_of(file: TargetFile) -> str:
    """The text of a target file, without what is unset."""
    import yaml

    document = file.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return yaml.safe_dump({"version": file.version, **document}, sort_keys=False, allow_unicode=True, width=110)


def _board_file(file: TargetFile, board: JetsonState) -> TargetFile:
    modes = {_mode_key(file, mode): _power_mode(file, mode, board) for mode in board.modes}
    default = next(
        (key for mode in board.modes for key in [_mode_key(file, mode)] if mode.id == board.default_mode_id), None
    )
    return file.model_copy(
        update={
            "power_modes": modes or file.power_modes,
            "default_mode": default or file.default_mode,
            "sources": {**file.sources, OWN_SOURCE: _own_source(f"Jetson Linux {board.l4t}, /etc/nvpmodel.conf")},
        }
    )


def _own(file: TargetFile, state: DeviceState) -> TargetFile:
    driver = f"driver {state.nvml.driver}"
    return file.model_copy(
        update={
            "sources": {**file.sources, OWN_SOURCE: _own_source(driver)},
        }
    )


def _card_file(gpu: GpuState, state: DeviceState) -> TargetFile:
    name = gpu.name or "unknown GPU"
    return TargetFile(
        version=1,
        device=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown-gpu",
        name=name,
        kind="desktop",
        silicon=Silicon(
            source=OWN_SOURCE,
            architecture=f"compute capability {gpu.compute_capability or 'unknown'}",
            compute_capability=gpu.compute_capability,
            boost_mhz=gpu.sm_clock_max_mhz,
            note="no peaks: the driver does not tell them; fill them in from the maker's data sheet, with its source",
        ),
        memory=Memory(source=OWN_SOURCE, size_gb=round(gpu.memory_bytes / 1e9, 1)) if gpu.memory_bytes else None,
        power=Power(source=OWN_SOURCE, tdp_w=gpu.power_limit_default_w) if gpu.power_limit_default_w else None,
        sources={OWN_SOURCE: _own_source(f"driver {state.nvml.driver}")},
    )


def _own_source(what: str) -> Source:
    return Source(citation=f"this machine: {what}", trust="high")


def _mode_key(file: TargetFile, mode: NvpMode) -> str:
    """The catalogue's word for the mode where it has one, else one made of the board's."""
    known = (key for key, listed in file.power_modes.items() if listed.nvpmodel_name == mode.name)
    return next(known, re.sub(r"[^a-z0-9]+", "-", mode.name.lower().removeprefix("mode_")).strip("-"))


def _power_mode(file: TargetFile, mode: NvpMode, board: JetsonState) -> PowerMode:
    """The catalogue's mode with the caps of this board's file over it."""
    key = _mode_key(file, mode)
    base = file.power_modes.get(key) or PowerMode(source=OWN_SOURCE, nvpmodel_name=mode.name)
    gpu = cap_mhz("GPU MAX_FREQ", mode.settings.get("GPU MAX_FREQ", "-1"))
    emc = cap_mhz("EMC MAX_FREQ", mode.settings.get("EMC MAX_FREQ", "-1"))
    sm_count = sms_on(mode.settings.get("TPC_POWER_GATING TPC_PG_MASK", ""), board.tpc_total)
    update = {
        "source": OWN_SOURCE,
        "id": mode.id,
        "default": mode.id == board.default_mode_id,
        "l4t": board.l4t,
        **({"gpu_mhz": gpu} if gpu else {}),
        **({"emc_mhz": emc} if emc else {}),
        **({"sm_count": sm_count} if sm_count else {}),
    }
    changed = base.model_copy(update=update)
    # Derived figures hold for the clocks that they were derived from.
    same = (changed.gpu_mhz, changed.sm_count) == (base.gpu_mhz, base.sm_count)
    return changed if same else changed.model_copy(update={"int8_tops": None})
