"""A Jetson's state from its files: which module, which power mode, and what the kernel really holds."""

from __future__ import annotations

import re
from collections.abc import Iterable

from deploykit.probe.device_tree import (
    TPCS_OF_CHIP,
    chip_of,
    is_thor_t4000,
    module_in,
    module_of_conf,
    parse_release,
    strings,
)
from deploykit.probe.driver_tables import jetpack_of
from deploykit.probe.ina3221 import find_channels, read_power
from deploykit.probe.nvpmodel import Conf, NvpmodelFault, parse_conf, parse_status
from deploykit.probe.tree import Tree, whole_number
from deploykit.targets.state import Clock, JetsonState, NvpMode

CONF_FILE = "etc/nvpmodel.conf"
STATUS_FILE = "var/lib/nvpmodel/status"
RELEASE_FILE = "etc/nv_tegra_release"
_TREES = ("proc/device-tree", "sys/firmware/devicetree/base")
_BOOT_CONTROL = "etc/nv_boot_control.conf"

# GPU frequency folders: Orin and Thor of JetPack 6 and 7, Orin of JetPack 5, Xavier, Nano, TX2.
_GPU_FOLDERS = (
    "sys/class/devfreq/17000000.gpu",
    "sys/devices/platform/17000000.gpu/devfreq_dev",
    "sys/class/devfreq/gpu-gpc-0",
    "sys/class/devfreq/17000000.ga10b",
    "sys/devices/17000000.ga10b/devfreq_dev",
    "sys/devices/17000000.ga10b/devfreq/17000000.ga10b",
    "sys/class/devfreq/17000000.gv11b",
    "sys/devices/17000000.gv11b/devfreq/17000000.gv11b",
    "sys/class/devfreq/57000000.gpu",
    "sys/devices/57000000.gpu/devfreq/57000000.gpu",
    "sys/class/devfreq/17000000.gp10b",
    "sys/devices/17000000.gp10b/devfreq/17000000.gp10b",
)
_TPC_MASKS = ("sys/devices/platform/gpu.0/tpc_pg_mask", "sys/devices/gpu.0/tpc_pg_mask")
_EMC_NOW = ("sys/kernel/debug/bpmp/debug/clk/emc/rate", "sys/kernel/debug/clk/emc/clk_rate")
_HZ_IN_MHZ = 1e6
_KHZ_IN_MHZ = 1e3


def is_jetson(tree: Tree) -> bool:
    """Whether this is a Jetson: its device tree says so, or NVIDIA's release file is there."""
    return chip_of(_compatible(tree)) is not None or tree.text(RELEASE_FILE) is not None


def read_jetson(tree: Tree) -> JetsonState:
    """Read everything that a Jetson tells without a command and without root."""
    compatible = _compatible(tree)
    board_id, board_id_from = _module(tree, compatible)
    chip, l4t = chip_of(compatible), parse_release(tree.text(RELEASE_FILE) or "")
    conf, conf_fault = _conf(tree)
    saved, mode_id = _mode_ids(tree, conf)
    cpus = _cpus(tree)
    online = tuple(cpu for cpu in cpus if _is_online(tree, cpu))
    clocks = [cpu_clock(tree, cpu) for cpu in online]
    gpu, live = gpu_clock(tree), _live(tree, conf)
    return JetsonState(
        board_id=board_id,
        board_id_from=board_id_from,
        model=_first_text(tree, (f"{folder}/model" for folder in _TREES)),
        compatible=compatible,
        chip=chip,
        variant="t4000" if is_thor_t4000(tree.text(_BOOT_CONTROL) or "") else None,
        l4t=l4t,
        jetpack=jetpack_of(l4t),
        conf_file=_conf_link(tree),
        conf_fault=conf_fault,
        modes=_modes(conf),
        default_mode_id=conf.default_id if conf else None,
        saved_mode_id=saved,
        mode_id=mode_id,
        cpus=cpus,
        cpus_online=online,
        tpc_mask=_first_number(tree, _TPC_MASKS),
        tpc_total=TPCS_OF_CHIP.get(chip or ""),
        live=live,
        cpu=max(clocks, key=lambda clock: clock.cap_mhz or 0.0, default=Clock()),
        gpu=gpu,
        emc=_emc_clock(tree),
        dla=_dla_clocks(live),
        clocks_locked=_locked([*clocks, gpu]),
        power=read_power(tree, find_channels(tree), board_id),
        overcurrent_events=overcurrent_events(tree),
        fan=_fan(tree),
        unavailable=_unavailable(tree),
    )


def gpu_folder(tree: Tree) -> str | None:
    """The folder of the GPU's frequency files; Thor has one a GPC, of which the first speaks."""
    return next((folder for folder in _GPU_FOLDERS if tree.number(f"{folder}/cur_freq") is not None), None)


def gpu_clock(tree: Tree) -> Clock:
    """The GPU's clock from devfreq, which counts in Hz."""
    folder = gpu_folder(tree)
    if folder is None:
        return Clock()
    steps = _steps(tree.text(f"{folder}/available_frequencies"), _HZ_IN_MHZ)
    return Clock(
        now_mhz=_scaled(tree.number(f"{folder}/cur_freq"), _HZ_IN_MHZ),
        floor_mhz=_scaled(tree.number(f"{folder}/min_freq"), _HZ_IN_MHZ),
        cap_mhz=_scaled(tree.number(f"{folder}/max_freq"), _HZ_IN_MHZ),
        ceiling_mhz=steps[-1] if steps else None,
        steps_mhz=steps,
    )


def cpu_clock(tree: Tree, cpu: int) -> Clock:
    """The clock of one CPU from cpufreq, which counts in kHz."""
    folder = f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
    steps = _steps(tree.text(f"{folder}/scaling_available_frequencies"), _KHZ_IN_MHZ)
    return Clock(
        now_mhz=_scaled(tree.number(f"{folder}/scaling_cur_freq"), _KHZ_IN_MHZ),
        floor_mhz=_scaled(tree.number(f"{folder}/scaling_min_freq"), _KHZ_IN_MHZ),
        cap_mhz=_scaled(tree.number(f"{folder}/scaling_max_freq"), _KHZ_IN_MHZ),
        ceiling_mhz=_scaled(tree.number(f"{folder}/cpuinfo_max_freq"), _KHZ_IN_MHZ),
        steps_mhz=steps,
    )


def overcurrent_events(tree: Tree) -> dict[str, int]:
    """Over-current events since boot by counter, `oc1`: files of the soctherm monitor (Jetson Developer Guide)."""
    counts: dict[str, int] = {}
    for path in overcurrent_files(tree):
        count = tree.number(path)
        if count is not None:
            counts[path.rpartition("/")[2].removesuffix("_event_cnt")] = count
    return counts


def overcurrent_files(tree: Tree) -> list[str]:
    """Where the over-current counters are."""
    return tree.paths("sys/class/hwmon/hwmon*/oc[0-9]*_event_cnt")


def _compatible(tree: Tree) -> tuple[str, ...]:
    return next((strings(data) for folder in _TREES if (data := tree.data(f"{folder}/compatible"))), ())


def _module(tree: Tree, compatible: tuple[str, ...]) -> tuple[str | None, str | None]:
    """The part number, and the file that says so: the device tree first, older images by other properties."""
    if module := module_in(compatible):
        return module, "device tree, compatible"
    for folder in _TREES:
        for name in ("nvidia,boardids", "nvidia,dtsfilename"):
            if module := module_in(strings(tree.data(f"{folder}/{name}") or b"")):
                return module, f"device tree, {name}"
    if module := module_of_conf(_conf_link(tree)):
        return module, "the file that /etc/nvpmodel.conf links to"
    return None, None


def _conf(tree: Tree) -> tuple[Conf | None, str | None]:
    text = tree.text(CONF_FILE)
    if text is None:
        denied = CONF_FILE in tree.denied
        return None, f"/{CONF_FILE} {'may not be read' if denied else 'is not there'}"
    try:
        return parse_conf(text), None
    except NvpmodelFault as fault:
        return None, f"/{CONF_FILE}: {fault}"


def _conf_link(tree: Tree) -> str | None:
    target = tree.link(CONF_FILE)
    return target.rpartition("/")[2] if target else None


def _mode_ids(tree: Tree, conf: Conf | None) -> tuple[int | None, int | None]:
    """The saved mode, and the one that holds: the saved one, or the file's default before the first switch."""
    text = tree.text(STATUS_FILE)
    saved = parse_status(text) if text is not None else None
    if conf is None:
        return saved, None
    if text is None and STATUS_FILE not in tree.denied:
        return None, conf.default_id
    return saved, saved if any(mode.id == saved for mode in conf.modes) else None


def _modes(conf: Conf | None) -> tuple[NvpMode, ...]:
    return tuple(
        NvpMode(id=m.id, name=m.name, settings={f"{param} {arg}": value for (param, arg), value in m.settings.items()})
        for m in (conf.modes if conf else ())
    )


def _live(tree: Tree, conf: Conf | None) -> dict[str, str]:
    """What the kernel holds for everything that the modes set."""
    values: dict[str, str] = {}
    for name, argument in conf.arguments() if conf else []:
        param = conf.params.get(name) if conf else None
        for path in param.paths_of(argument) if param else []:
            # The file comes from a snapshot as often as from NVIDIA: it names kernel files and nothing else.
            value = tree.text(path) if path.startswith("/sys/") else None
            if value is not None:
                values[f"{name} {argument}"] = value
                break
    return values


def _cpus(tree: Tree) -> tuple[int, ...]:
    numbers = (re.fullmatch(r".*/cpu([0-9]{1,4})", path) for path in tree.paths("sys/devices/system/cpu/cpu[0-9]*"))
    found = {int(match[1]) for match in numbers if match}
    return tuple(sorted(found | set(_listed(tree.text("sys/devices/system/cpu/present")))))


def _listed(text: str | None) -> list[int]:
    """The numbers of a kernel list: `0-3,8` → 0 1 2 3 8; nothing where the text is no list."""
    numbers: list[int] = []
    for part in (text or "").split(","):
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        if match is None:
            return []
        numbers.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers


def _is_online(tree: Tree, cpu: int) -> bool:
    """CPU 0 often has no such file: it cannot be switched off."""
    listed = _listed(tree.text("sys/devices/system/cpu/online"))
    own = tree.number(f"sys/devices/system/cpu/cpu{cpu}/online")
    return own == 1 if own is not None else (cpu in listed if listed else True)


def _emc_clock(tree: Tree) -> Clock:
    """The memory clock; its rate stands in debugfs, which takes root, and its cap in nvpmodel's own files."""
    cap = _first_number(tree, ("sys/kernel/nvpmodel_clk_cap/emc", "sys/kernel/nvpmodel_emc_cap/emc_iso_cap"))
    capped = cap is not None and cap > 0
    return Clock(
        now_mhz=_scaled(_first_number(tree, _EMC_NOW), _HZ_IN_MHZ),
        cap_mhz=_scaled(cap, _HZ_IN_MHZ) if capped else None,
    )


def _dla_clocks(live: dict[str, str]) -> dict[str, Clock]:
    """Caps of the DLA cores, from the files that nvpmodel.conf names: their place changes with every release."""
    keys = (key for key in live if re.fullmatch(r"DLA[0-9]_CORE MAX_FREQ", key))
    return {key.split("_")[0].lower(): Clock(cap_mhz=_scaled(whole_number(live[key]), _HZ_IN_MHZ)) for key in keys}


def _locked(clocks: Iterable[Clock]) -> bool | None:
    """Locked where every clock that tells is; the EMC's minimum does not move, so it is not asked."""
    told = [clock.locked for clock in clocks if clock.locked is not None]
    return all(told) if told else None


def _fan(tree: Tree) -> dict[str, int]:
    files = [
        *tree.paths("sys/devices/platform/pwm-fan/hwmon/hwmon*/pwm1"),
        *tree.paths("sys/devices/pwm-fan/target_pwm"),
    ]
    values = {path.rpartition("/")[2]: tree.number(path) for path in files}
    return {name: value for name, value in values.items() if value is not None}


def _unavailable(tree: Tree) -> dict[str, str]:
    return dict.fromkeys(sorted(tree.denied), "permission denied")


def _steps(text: str | None, per_mhz: float) -> tuple[float, ...]:
    numbers = (whole_number(word) for word in (text or "").split())
    return tuple(sorted(number / per_mhz for number in numbers if number is not None and number > 0))


def _scaled(value: int | None, per_mhz: float) -> float | None:
    return None if value is None else value / per_mhz


def _first_text(tree: Tree, paths: Iterable[str]) -> str | None:
    return next((text for path in paths if (text := tree.text(path))), None)


def _first_number(tree: Tree, paths: Iterable[str]) -> int | None:
    return next((number for path in paths if (number := tree.number(path)) is not None), None)
