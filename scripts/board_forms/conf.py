"""nvpmodel.conf of a module, written from targets/tables/jetson_power_modes.csv by the grammar of the real files.

Layout (sections, argument names, paths) as in NVIDIA's board support files in the LineageOS device trees
android_device_nvidia_concord and android_device_nvidia_galen; the figures are the table's.
"""

from __future__ import annotations

from dataclasses import dataclass

Row = dict[str, str]


@dataclass(frozen=True)
class Layout:
    """Where a chip and kernel keep what modes set.

    Attributes:
        cpu: CPU keyword → (first CPU of the cluster, its CPUs).
        gpu: Folder of the GPU's frequency files, older and newer kernel.
        tpc_mask: Files of the power gating mask, older and newer kernel; empty where the chip has none.
        emc: Files of the EMC cap, older and newer kernel.
        emc_uncapped: How the file writes "no EMC cap".
        dla: DLA core → file of its cap.
        fbp: Whether the file sets FBP_PG_MASK, as those of Orin NX and Nano do.
        cpus_off: Mode → CPUs that it switches off, where they are not simply the last ones. CPU 0 is not listed then.
    """

    cpu: dict[str, tuple[int, int]]
    gpu: tuple[str, str]
    tpc_mask: tuple[str, ...] = ()
    emc: tuple[str, ...] = ()
    emc_uncapped: str = "-1"
    dla: dict[str, str] | None = None
    fbp: bool = False
    cpus_off: dict[str, set[int]] | None = None


def conf_text(rows: list[Row], layout: Layout, cpus: int) -> str:
    """The file that defines the modes of the given rows."""
    lines = ["# Power modes, re-created from their documented values.", ""]
    lines += _params(layout, cpus)
    for row in rows:
        lines += _mode(row, layout, cpus)
    default = next(row["mode_id"] for row in rows if row["is_default"] == "yes")
    return "\n".join(
        [*lines, "# mandatory section to configure the default power mode", f"< PM_CONFIG DEFAULT={default} >", ""]
    )


def cpus_on(row: Row, layout: Layout, cpus: int) -> set[int]:
    """The CPUs that a mode leaves on."""
    if layout.cpus_off is not None:
        return set(range(cpus)) - layout.cpus_off[row["mode_name"]]
    return set(range(int(row["online_cpus"] or cpus)))


def _listed_cpus(layout: Layout, cpus: int) -> range:
    return range(0 if layout.cpus_off is None else 1, cpus)


def settings_of(row: Row, layout: Layout, cpus: int) -> list[tuple[str, str, str]]:
    """(param, argument, value) of one mode."""
    on = cpus_on(row, layout, cpus)
    settings = [("CPU_ONLINE", f"CORE_{cpu}", "1" if cpu in on else "0") for cpu in _listed_cpus(layout, cpus)]
    if layout.fbp:
        settings.append(("FBP_POWER_GATING", "FBP_PG_MASK", "2"))
    if layout.tpc_mask and row["tpc_pg_mask"]:
        settings.append(("TPC_POWER_GATING", "TPC_PG_MASK", row["tpc_pg_mask"]))
    if layout.tpc_mask:
        settings.append(("GPU_POWER_CONTROL_ENABLE", "GPU_PWR_CNTL_EN", "on"))
    for name, (first, _) in layout.cpu.items():
        # Clusters that a mode switches off are not set in it.
        if first in on:
            settings.append((name, "MIN_FREQ", "729600"))
            settings.append((name, "MAX_FREQ", _value(row, "cpu", 1000)))
    settings += [("GPU", "MIN_FREQ", "0"), ("GPU", "MAX_FREQ", _gpu_value(row))]
    if layout.emc:
        emc = _value(row, "emc", 1_000_000)
        settings.append(("EMC", "MAX_FREQ", layout.emc_uncapped if emc == "-1" else emc))
    for name in layout.dla or {}:
        settings.append((name, "MAX_FREQ", _value(row, "dla", 1_000_000)))
    return settings


def paths_of(param: str, argument: str, layout: Layout) -> list[str]:
    """The files of a setting, older kernel's first."""
    if param == "CPU_ONLINE":
        return [f"/sys/devices/system/cpu/cpu{argument.removeprefix('CORE_')}/online"]
    if param == "TPC_POWER_GATING":
        return list(layout.tpc_mask)
    if param == "FBP_POWER_GATING":
        return [path.replace("tpc_pg_mask", "fbp_pg_mask") for path in layout.tpc_mask]
    if param.startswith("GPU_POWER_CONTROL"):
        return [path.replace("tpc_pg_mask", "power/control") for path in layout.tpc_mask]
    if param in layout.cpu:
        name = {"MIN_FREQ": "scaling_min_freq", "MAX_FREQ": "scaling_max_freq"}[argument]
        return [f"/sys/devices/system/cpu/cpu{layout.cpu[param][0]}/cpufreq/{name}"]
    if param == "GPU":
        return [f"{folder}/{argument.lower()}" for folder in layout.gpu if folder]
    if param == "EMC":
        return list(layout.emc)
    return [(layout.dla or {})[param]]


def _params(layout: Layout, cpus: int) -> list[str]:
    online = [("CPU_ONLINE", [f"CORE_{cpu}" for cpu in _listed_cpus(layout, cpus)])]
    masks = [("TPC_POWER_GATING", ["TPC_PG_MASK"])] if layout.tpc_mask else []
    masks += [("FBP_POWER_GATING", ["FBP_PG_MASK"])] if layout.fbp else []
    control = [("GPU_POWER_CONTROL_ENABLE", ["GPU_PWR_CNTL_EN"])] if layout.tpc_mask else []
    clocks = [*((name, ["MAX_FREQ", "MIN_FREQ"]) for name in layout.cpu), ("GPU", ["MAX_FREQ", "MIN_FREQ"])]
    clocks += [(name, ["MAX_FREQ"]) for name in (*(["EMC"] if layout.emc else []), *(layout.dla or {}))]
    lines: list[str] = []
    for kind, params in (("FILE", [*online, *masks, *control]), ("CLOCK", clocks)):
        for name, arguments in params:
            # The EMC header lacks the blank in every Orin file.
            lines.append(f"<{'' if name == 'EMC' else ' '}PARAM TYPE={kind} NAME={name} >")
            for argument in arguments:
                for suffix, path in zip(("", "_KNEXT"), paths_of(name, argument, layout), strict=False):
                    lines.append(f"{argument}{suffix} {path}")
            lines.append("")
    return lines


def _mode(row: Row, layout: Layout, cpus: int) -> list[str]:
    header = f"< POWER_MODEL ID={row['mode_id']} NAME={row['mode_name']} >"
    return [header, *(" ".join(setting) for setting in settings_of(row, layout, cpus)), ""]


def _value(row: Row, clock: str, unit: int) -> str:
    """A cap in the file's unit; -1 where the table says that the file sets none, or knows none."""
    capped = row[f"{clock}_capped"] == "yes" and row[f"{clock}_max_mhz"]
    return str(round(float(row[f"{clock}_max_mhz"]) * unit)) if capped else "-1"


def _gpu_value(row: Row) -> str:
    raw = row["gpu_cap_raw_hz"]
    return raw if raw not in ("", "2147483647") else _value(row, "gpu", 1_000_000)
