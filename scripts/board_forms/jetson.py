"""Jetson boards as file trees: identity, power mode, clocks, rails and sensors in the forms of JetPack 4 to 7."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field, replace
from pathlib import Path

from board_forms.conf import Layout, Row, conf_text, cpus_on, paths_of, settings_of

ROOT = Path(__file__).resolve().parents[2]
LINKS = "deploykit/links.json"

_ORIN_DLA = {"DLA0_CORE": "15880000.nvdla0", "DLA1_CORE": "158c0000.nvdla1"}


def _orin(clusters: int, *, newer: bool, dla: int, fbp: bool) -> Layout:
    host = "bus@0/13e00000.host1x/{}/clk_cap" if newer else "13e40000.host1x/{}/acm/clk_cap"
    gpu = ("", "/sys/devices/platform/17000000.gpu/devfreq_dev")
    old = "/sys/devices/17000000.ga10b"
    emc = "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
    return Layout(
        cpu={f"CPU_A78_{n}": (4 * n, 4) for n in range(clusters)},
        gpu=(f"{old}/devfreq/17000000.ga10b", gpu[1] if newer else f"{old}/devfreq_dev"),
        tpc_mask=("/sys/devices/gpu.0/tpc_pg_mask", *(["/sys/devices/platform/gpu.0/tpc_pg_mask"] if newer else [])),
        emc=(emc, "/sys/kernel/nvpmodel_clk_cap/emc" if newer else emc),
        emc_uncapped="-1" if newer else "0",
        dla={
            name: f"/sys/devices/platform/{host.format(_ORIN_DLA[name])}/{name.lower()}"
            for name in list(_ORIN_DLA)[:dla]
        },
        fbp=fbp,
    )


def _xavier(clusters: int) -> Layout:
    gpu = "/sys/devices/17000000.gv11b"
    host = "/sys/devices/platform/13e10000.host1x"
    return Layout(
        cpu={f"CPU_DENVER_{n}": (2 * n, 2) for n in range(clusters)},
        gpu=(f"{gpu}/devfreq/17000000.gv11b", f"{gpu}/devfreq_dev"),
        tpc_mask=("/sys/devices/gpu.0/tpc_pg_mask",),
        emc=("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",),
        emc_uncapped="0",
        dla={
            "DLA0_CORE": f"{host}/15880000.nvdla0/acm/clk_cap/dla0_core",
            "DLA1_CORE": f"{host}/158c0000.nvdla1/acm/clk_cap/dla1_core",
        },
    )


_NANO = Layout(
    cpu={"CPU_A57": (0, 4)},
    gpu=("/sys/devices/57000000.gpu/devfreq/57000000.gpu", ""),
    emc=("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",),
)
# CPU 0 is an A57 and always on, 1 and 2 are the Denvers, 3 to 5 the other A57s.
_TX2 = Layout(
    cpu={"CPU_A57": (3, 3), "CPU_DENVER": (1, 2)},
    gpu=("/sys/devices/17000000.gp10b/devfreq/17000000.gp10b", ""),
    emc=("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",),
    cpus_off={"MAXN": set(), "MAXQ": {1, 2}, "MAXP_CORE_ALL": set(), "MAXP_CORE_ARM": {1, 2}},
)
_THOR = Layout(cpu={"CPU_0": (0, 14)}, gpu=("", "/sys/class/devfreq/gpu-gpc-0"))


@dataclass(frozen=True)
class Board:
    """A module on a carrier with one release of Jetson Linux.

    Attributes:
        module, l4t_rows: Rows of the mode table.
        rails_mw: Rail → mW; in the order of the monitor's channels.
        conf: Name of the file that /etc/nvpmodel.conf links to.
    """

    name: str
    module: str
    l4t_rows: tuple[str, ...]
    release: str
    model: str
    compatible: tuple[str, ...]
    conf: str
    layout: Layout
    cpus: int
    cpu_ceiling_khz: int
    gpu_ceiling_hz: int
    gpu_step_hz: int
    ram_kib: int
    rails_mw: dict[str, int]
    monitor: str = "hwmon"
    extra: dict[str, str] = field(default_factory=dict)


def _release(major: int, revision: str, gcid: int, board: str) -> str:
    """/etc/nv_tegra_release; from R36 on a second line names the kernel."""
    first = f"# R{major} (release), REVISION: {revision}, GCID: {gcid}, BOARD: {board}, EABI: aarch64, "
    return first + "DATE: Wed Jan  1 00:00:00 UTC 2025\n" + ("# KERNEL_VARIANT: oot\n" if major >= 36 else "")


_AGX_RAILS = {"VDD_GPU_SOC": 5139, "VDD_CPU_CV": 3268, "VIN_SYS_5V0": 5500}
_SMALL_RAILS = {"VDD_IN": 7256, "VDD_CPU_GPU_CV": 1711, "VDD_SOC": 2511}

_AGX_JP6 = Board(
    name="orin-agx-64gb-jp6",
    module="agx-orin-64gb",
    l4t_rows=("36.x",),
    release=_release(36, "4.3", 38968081, "generic"),
    model="NVIDIA Jetson AGX Orin Developer Kit",
    compatible=("nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"),
    conf="nvpmodel_p3701_0000.conf",
    layout=_orin(3, newer=True, dla=2, fbp=False),
    cpus=12,
    cpu_ceiling_khz=2_201_600,
    gpu_ceiling_hz=1_300_500_000,
    gpu_step_hz=102_000_000,
    ram_kib=64_324_332,
    rails_mw=_AGX_RAILS,
)
_AGX_JP5 = replace(
    _AGX_JP6,
    name="orin-agx-64gb-jp5",
    l4t_rows=("35.x",),
    release=_release(35, "4.1", 33958178, "t186ref"),
    layout=_orin(3, newer=False, dla=2, fbp=False),
)
_NX_JP5 = replace(
    _AGX_JP5,
    name="orin-nx-16gb",
    module="orin-nx-16gb",
    model="NVIDIA Jetson Orin NX Engineering Reference Developer Kit",
    compatible=("nvidia,p3768-0000+p3767-0000", "nvidia,p3767-0000", "nvidia,tegra234"),
    conf="nvpmodel_p3767_0000.conf",
    layout=_orin(2, newer=False, dla=2, fbp=True),
    cpus=8,
    cpu_ceiling_khz=1_984_000,
    gpu_ceiling_hz=918_000_000,
    ram_kib=15_902_232,
    rails_mw=_SMALL_RAILS,
)
_NX_SUPER = replace(
    _NX_JP5,
    name="orin-nx-16gb-super",
    module="orin-nx-16gb-super",
    l4t_rows=("36.4.3+", "36.4.x"),
    release=_AGX_JP6.release,
    model="NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super",
    compatible=("nvidia,p3768-0000+p3767-0000-super", "nvidia,p3767-0000", "nvidia,tegra234"),
    conf="nvpmodel_p3767_0000_super.conf",
    layout=_orin(2, newer=True, dla=2, fbp=True),
    gpu_ceiling_hz=1_173_000_000,
)
_NANO_SUPER = replace(
    _NX_SUPER,
    name="orin-nano-8gb-super",
    module="orin-nano-8gb-super",
    model="NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
    compatible=("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234"),
    conf="nvpmodel_p3767_0003_super.conf",
    layout=_orin(2, newer=True, dla=0, fbp=True),
    cpus=6,
    cpu_ceiling_khz=1_728_000,
    gpu_ceiling_hz=1_020_000_000,
    ram_kib=7_803_000,
)
_NANO_JP5 = replace(
    _NANO_SUPER,
    name="orin-nano-8gb",
    module="orin-nano-8gb",
    l4t_rows=("35.x",),
    release=_AGX_JP5.release,
    model="NVIDIA Jetson Orin Nano Engineering Reference Developer Kit",
    compatible=("nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0005", "nvidia,tegra234"),
    conf="nvpmodel_p3767_0003.conf",
    layout=_orin(2, newer=False, dla=0, fbp=True),
    cpu_ceiling_khz=1_510_400,
    gpu_ceiling_hz=624_750_000,
)

BOARDS = (
    _AGX_JP5,
    _AGX_JP6,
    replace(
        _AGX_JP6,
        name="orin-agx-devkit-32gb",
        compatible=("nvidia,p3737-0000+p3701-0000", "nvidia,p3701-0000", "nvidia,tegra234"),
        ram_kib=31_270_000,
    ),
    # The first release: its GPU caps are up to 3 % above the later ones.
    replace(
        _AGX_JP5,
        name="orin-agx-devkit-32gb-jp50dp",
        l4t_rows=("34.x (JetPack 5.0 DP era)",),
        release=_release(34, "1.0", 30102743, "t186ref"),
        compatible=("nvidia,p3737-0000+p3701-0000", "nvidia,p3701-0000", "nvidia,tegra234"),
        gpu_step_hz=103_937_500,
        ram_kib=31_270_000,
    ),
    replace(
        _AGX_JP5,
        name="orin-agx-32gb",
        module="agx-orin-32gb",
        model="NVIDIA Jetson AGX Orin",
        compatible=("nvidia,p3737-0000+p3701-0004", "nvidia,p3701-0004", "nvidia,tegra234"),
        conf="nvpmodel_p3701_0004.conf",
        layout=_orin(2, newer=False, dla=2, fbp=False),
        cpus=8,
        cpu_ceiling_khz=2_188_800,
        gpu_ceiling_hz=930_750_000,
        ram_kib=31_270_000,
    ),
    _NX_JP5,
    replace(
        _NX_JP5,
        name="orin-nx-8gb",
        module="orin-nx-8gb",
        compatible=("nvidia,p3768-0000+p3767-0001", "nvidia,p3767-0001", "nvidia,tegra234"),
        conf="nvpmodel_p3767_0001.conf",
        layout=_orin(2, newer=False, dla=1, fbp=True),
        cpus=6,
        gpu_ceiling_hz=765_000_000,
        ram_kib=7_803_000,
    ),
    _NX_SUPER,
    replace(
        _NX_SUPER,
        name="orin-nx-8gb-super",
        module="orin-nx-8gb-super",
        compatible=("nvidia,p3768-0000+p3767-0001-super", "nvidia,p3767-0001", "nvidia,tegra234"),
        conf="nvpmodel_p3767_0001_super.conf",
        layout=_orin(2, newer=True, dla=1, fbp=True),
        cpus=6,
        ram_kib=7_803_000,
    ),
    _NANO_JP5,
    _NANO_SUPER,
    replace(
        _NANO_JP5,
        name="orin-nano-4gb",
        module="orin-nano-4gb",
        compatible=("nvidia,p3768-0000+p3767-0004", "nvidia,p3767-0004", "nvidia,tegra234"),
        conf="nvpmodel_p3767_0004.conf",
        ram_kib=3_903_000,
    ),
    replace(
        _NANO_SUPER,
        name="orin-nano-4gb-super",
        module="orin-nano-4gb-super",
        compatible=("nvidia,p3768-0000+p3767-0004-super", "nvidia,p3767-0004", "nvidia,tegra234"),
        conf="nvpmodel_p3767_0004_super.conf",
        ram_kib=3_903_000,
    ),
    replace(
        _AGX_JP5,
        name="xavier-agx",
        module="agx-xavier",
        l4t_rows=("32.x",),
        release=_release(32, "7.1", 29818004, "t186ref"),
        model="Jetson-AGX",
        compatible=("nvidia,p2972-0000", "nvidia,tegra194"),
        conf="nvpmodel_t194.conf",
        layout=_xavier(4),
        cpus=8,
        cpu_ceiling_khz=2_265_600,
        gpu_ceiling_hz=1_377_000_000,
        gpu_step_hz=51_000_000,
        ram_kib=32_600_000,
        rails_mw={"GPU": 1152, "CPU": 768, "SOC": 1536, "CV": 0, "VDDRQ": 384, "SYS5V": 1680},
        monitor="iio",
    ),
    replace(
        _AGX_JP5,
        name="xavier-nx",
        module="xavier-nx",
        l4t_rows=("32.x",),
        release=_release(32, "7.1", 29818004, "t186ref"),
        model="NVIDIA Jetson Xavier NX Developer Kit",
        compatible=("nvidia,p3509-0000+p3668-0000", "nvidia,tegra194"),
        conf="nvpmodel_t194_p3668.conf",
        layout=_xavier(3),
        cpus=6,
        cpu_ceiling_khz=1_907_200,
        gpu_ceiling_hz=1_109_250_000,
        gpu_step_hz=51_000_000,
        ram_kib=7_990_000,
        rails_mw={"VDD_IN": 4000, "VDD_CPU_GPU_CV": 600, "VDD_SOC": 1100},
        monitor="iio",
    ),
    replace(
        _AGX_JP5,
        name="jetson-tx2",
        module="tx2",
        l4t_rows=("32.x",),
        release=_release(32, "7.1", 29818004, "t186ref"),
        model="quill",
        compatible=("nvidia,p2597-0000+p3310-1000", "nvidia,quill", "nvidia,tegra186"),
        conf="nvpmodel_t186.conf",
        layout=_TX2,
        cpus=6,
        cpu_ceiling_khz=2_035_200,
        gpu_ceiling_hz=1_300_500_000,
        gpu_step_hz=76_500_000,
        ram_kib=8_045_000,
        rails_mw={"VDD_IN": 6000, "VDD_CPU": 600, "VDD_GPU": 500, "VDD_SOC": 900, "VDD_DDR": 1100, "VDD_WIFI": 0},
        monitor="iio",
    ),
    replace(
        _AGX_JP5,
        name="jetson-nano",
        module="nano-4gb",
        l4t_rows=("32.x",),
        release=_release(32, "7.1", 29818004, "t210ref"),
        model="NVIDIA Jetson Nano Developer Kit",
        compatible=("nvidia,p3449-0000-b00+p3448-0000-b00", "nvidia,jetson-nano", "nvidia,tegra210"),
        conf="nvpmodel_t210_jetson-nano.conf",
        layout=_NANO,
        cpus=4,
        cpu_ceiling_khz=1_479_000,
        gpu_ceiling_hz=921_600_000,
        gpu_step_hz=76_800_000,
        ram_kib=4_059_000,
        rails_mw={"POM_5V_IN": 4000, "POM_5V_GPU": 1200, "POM_5V_CPU": 900},
        monitor="iio",
    ),
    replace(
        _AGX_JP6,
        name="thor-t5000",
        module="agx-thor-t5000",
        l4t_rows=("38.x",),
        release=_release(38, "4.0", 43443517, "generic"),
        model="NVIDIA Jetson AGX Thor Developer Kit",
        compatible=("nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"),
        conf="nvpmodel_p3834_0008.conf",
        layout=_THOR,
        cpus=14,
        cpu_ceiling_khz=2_601_000,
        gpu_ceiling_hz=1_575_000_000,
        gpu_step_hz=105_000_000,
        ram_kib=128_790_000,
        rails_mw={"VDD_GPU": 1962, "VDD_CPU_SOC_MSS": 5887, "VIN_SYS_5V0": 5635, "VIN": 19780},
        extra={"etc/nv_boot_control.conf": "TNSPEC 3834-400-0008-M.0-1-0-jetson-agx-thor-devkit-\n"},
    ),
)


def rows_of(board: Board) -> list[Row]:
    """The board's rows of the mode table, in the order of their ids."""
    with (ROOT / "targets/tables/jetson_power_modes.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["module"] == board.module]
    fitting = [row for row in rows if row["l4t"] in board.l4t_rows]
    return sorted(fitting, key=lambda row: int(row["mode_id"]))


def in_mode(board: Board, mode: Row, *, locked: bool = False) -> dict[str, bytes]:
    """The files of the board in one of its modes.

    Args:
        locked: Whether jetson_clocks has been run: floors are raised to the caps, clocks stand there.
    """
    rows = rows_of(board)
    texts = {
        **_identity(board, mode),
        "etc/nvpmodel.conf": conf_text(rows, board.layout, board.cpus),
        "var/lib/nvpmodel/status": f"pmode:{int(mode['mode_id']):04d}\n",
        **_clocks(board, mode, locked),
        **_rails(board),
        **_sensors(board),
        **board.extra,
        LINKS: f'{{"etc/nvpmodel.conf": "/etc/nvpmodel/{board.conf}"}}',
    }
    return {path.lstrip("/"): text.encode("utf-8") for path, text in texts.items()}


def _identity(board: Board, mode: Row) -> dict[str, str]:
    cpuinfo = "".join(
        f"processor\t: {n}\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm "
        f"lrcpc dcpop asimddp uscat ilrcpc flagm\nCPU implementer\t: 0x41\nCPU part\t: 0xd42\n\n"
        for n in sorted(cpus_on(mode, board.layout, board.cpus))
    )
    free = board.ram_kib // 2
    return {
        "etc/nv_tegra_release": board.release,
        "proc/device-tree/model": board.model + "\0",
        "proc/device-tree/compatible": "".join(text + "\0" for text in board.compatible),
        "proc/cpuinfo": cpuinfo,
        "proc/meminfo": f"MemTotal: {board.ram_kib} kB\nMemAvailable: {free} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/vmstat": "pswpin 0\npswpout 0\n",
        "sys/devices/system/cpu/present": f"0-{board.cpus - 1}\n",
    }


def _clocks(board: Board, mode: Row, locked: bool) -> dict[str, str]:
    """What the kernel holds once nvpmodel has set the mode."""
    online = cpus_on(mode, board.layout, board.cpus)
    texts = _frequency_files(board, online, locked)
    for param, argument, value in settings_of(mode, board.layout, board.cpus):
        held = _held(board, param, argument, value)
        for path in _everywhere(board, param, paths_of(param, argument, board.layout), online):
            texts[path] = f"{held}\n"
    for path in [p for p in texts if locked and p.endswith(("min_freq", "cur_freq"))]:
        texts[path] = texts[path.replace("min_freq", "max_freq").replace("cur_freq", "max_freq")]
    return texts


def _everywhere(board: Board, param: str, paths: list[str], online: set[int]) -> list[str]:
    """The CPUs of a cluster that are on show one policy under each of their numbers."""
    if param not in board.layout.cpu:
        return paths
    first, count = board.layout.cpu[param]
    cpus = sorted(set(range(first, first + count)) & online)
    return [path.replace(f"/cpu{first}/", f"/cpu{cpu}/") for path in paths for cpu in cpus]


def _frequency_files(board: Board, online: set[int], locked: bool) -> dict[str, str]:
    governor = "performance" if locked else "schedutil"
    cpu_steps = _steps(115_200, 76_800, board.cpu_ceiling_khz)
    gpu_steps = _steps(board.gpu_step_hz * 3, board.gpu_step_hz, board.gpu_ceiling_hz)
    texts: dict[str, str] = {}
    for first, count in board.layout.cpu.values():
        for cpu in sorted(set(range(first, first + count)) & online):
            folder = f"/sys/devices/system/cpu/cpu{cpu}/cpufreq"
            texts[f"{folder}/scaling_available_frequencies"] = " ".join(map(str, cpu_steps)) + " \n"
            texts[f"{folder}/cpuinfo_max_freq"] = f"{board.cpu_ceiling_khz}\n"
            texts[f"{folder}/scaling_min_freq"] = f"{cpu_steps[0]}\n"
            texts[f"{folder}/scaling_max_freq"] = f"{board.cpu_ceiling_khz}\n"
            texts[f"{folder}/scaling_cur_freq"] = "729600\n"
            texts[f"{folder}/scaling_governor"] = f"{governor}\n"
    for folder in filter(None, board.layout.gpu):
        texts[f"{folder}/available_frequencies"] = " ".join(map(str, gpu_steps)) + "\n"
        texts[f"{folder}/min_freq"] = texts[f"{folder}/cur_freq"] = f"{gpu_steps[0]}\n"
        texts[f"{folder}/max_freq"] = f"{board.gpu_ceiling_hz}\n"
    return texts


def _held(board: Board, param: str, argument: str, value: str) -> str:
    """The kernel's value for a setting: caps are rounded down to a step, `-1` is the ceiling."""
    if argument == "MIN_FREQ" and param == "GPU":
        return str(board.gpu_step_hz * 3)
    if not argument.endswith("_FREQ"):
        return value
    if param == "GPU":
        return str(_rounded(int(value), _steps(board.gpu_step_hz * 3, board.gpu_step_hz, board.gpu_ceiling_hz)))
    if param in board.layout.cpu:
        return str(_rounded(int(value), _steps(115_200, 76_800, board.cpu_ceiling_khz)))
    return value


def _rounded(value: int, steps: list[int]) -> int:
    return steps[-1] if value < 0 else max((step for step in steps if step <= value), default=steps[0])


def _steps(first: int, step: int, ceiling: int) -> list[int]:
    return [*range(first, ceiling, step), ceiling]


def _rails(board: Board) -> dict[str, str]:
    return _hwmon_rails(board) if board.monitor == "hwmon" else _iio_rails(board)


def _hwmon_rails(board: Board) -> dict[str, str]:
    """JetPack 5 and later. One monitor has three channels; a fourth rail is on the next one."""
    texts: dict[str, str] = {}
    for number, (rail, milliwatts) in enumerate(board.rails_mw.items()):
        chip, channel = divmod(number, 3)
        folder = f"sys/bus/i2c/drivers/ina3221/1-004{chip}/hwmon/hwmon{3 + chip}"
        millivolts = 5000 if "5V" in rail or rail == "VDD_IN" else 20_000
        texts[f"{folder}/name"] = "ina3221\n"
        texts[f"{folder}/in{channel + 1}_label"] = f"{rail}\n"
        texts[f"{folder}/in{channel + 1}_input"] = f"{millivolts}\n"
        texts[f"{folder}/curr{channel + 1}_input"] = f"{round(milliwatts * 1000 / millivolts)}\n"
        texts[f"{folder}/in7_label"] = "sum of shunt voltages\n"
        texts[f"{folder}/in7_input"] = "40\n"
    return texts


def _iio_rails(board: Board) -> dict[str, str]:
    """JetPack 4."""
    texts: dict[str, str] = {}
    for number, (rail, milliwatts) in enumerate(board.rails_mw.items()):
        chip, channel = divmod(number, 3)
        folder = f"sys/bus/i2c/drivers/ina3221x/1-004{chip}/iio:device{chip}"
        texts[f"{folder}/rail_name_{channel}"] = f"{rail}\n"
        texts[f"{folder}/in_voltage{channel}_input"] = "5000\n"
        texts[f"{folder}/in_current{channel}_input"] = f"{milliwatts // 5}\n"
        texts[f"{folder}/in_power{channel}_input"] = f"{milliwatts}\n"
    return texts


def _sensors(board: Board) -> dict[str, str]:
    texts = {}
    zones = {"cpu-thermal": 52_968, "gpu-thermal": 49_000, "cv0-thermal": -256_000, "tj-thermal": 52_968}
    for number, (zone, millidegrees) in enumerate(zones.items()):
        texts[f"sys/class/thermal/thermal_zone{number}/type"] = f"{zone}\n"
        texts[f"sys/class/thermal/thermal_zone{number}/temp"] = f"{millidegrees}\n"
    if "tegra234" in board.compatible[-1]:
        texts["sys/class/hwmon/hwmon5/name"] = "soctherm_oc\n"
        for number in (1, 2, 3):
            texts[f"sys/class/hwmon/hwmon5/oc{number}_event_cnt"] = "0\n"
    return texts
