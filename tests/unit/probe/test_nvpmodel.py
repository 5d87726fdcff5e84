"""nvpmodel.conf and its status file: the real grammar, every known mode, and files that are broken."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.probe.nvpmodel import Conf, NvpmodelFault, parse_conf, parse_status
from deploykit.probe.snapshot import unpacked
from deploykit.targets.match import cap_mhz, sms_on

ROOT = Path(__file__).resolve().parents[3]
BOARDS = ROOT / "tests" / "fixtures" / "boards"

CONF = """\
# comment
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_0 /sys/devices/system/cpu/cpu0/online
CORE_1 /sys/devices/system/cpu/cpu1/online

<PARAM TYPE=CLOCK NAME=EMC >
MAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap
MAX_FREQ_KNEXT /sys/kernel/nvpmodel_clk_cap/emc
< PARAM TYPE=HWMON NAME=VDDIN_OC_LIMIT >
WARN /sys/devices/platform/c250000.i2c/i2c-7/7-0040/hwmon curr1_max

< POWER_MODEL ID=1 NAME=MODE_15W >   # behind a header
CPU_ONLINE CORE_0 1
CPU_ONLINE CORE_1 0
EMC MAX_FREQ 2133000000   # behind a value
VDDIN_OC_LIMIT WARN 3000
< POWER_MODEL ID=0 NAME=MAXN >
CPU_ONLINE CORE_0 1
CPU_ONLINE CORE_1 1
EMC MAX_FREQ -1
< FAN_CONFIG DEFAULT=quiet >
whatever stands here is of the fan
< PM_CONFIG DEFAULT=1 >
"""


def test_the_grammar_of_the_real_files() -> None:
    conf = parse_conf(CONF)
    assert [(mode.id, mode.name) for mode in conf.modes] == [(1, "MODE_15W"), (0, "MAXN")]
    assert conf.default_id == 1
    assert conf.modes[0].settings["EMC", "MAX_FREQ"] == "2133000000"
    assert conf.params["EMC"].paths_of("MAX_FREQ") == [
        "/sys/kernel/nvpmodel_clk_cap/emc",
        "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
    ]


def test_a_clock_beyond_32_bits_is_kept() -> None:
    conf = parse_conf(CONF.replace("2133000000", "3199000000"))
    assert cap_mhz("EMC MAX_FREQ", conf.modes[0].settings["EMC", "MAX_FREQ"]) == 3199


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ID=0 NAME=MAXN", "ID=1 NAME=MAXN", "two power modes"),
        ("ID=0 NAME=MAXN", "ID=0 NAME=MODE_15W", "two power modes"),
        ("ID=0 NAME=MAXN", "ID=x NAME=MAXN", "ID=<number>"),
        ("< POWER_MODEL ID=0 NAME=MAXN >", "< POWER_MODEL ID=0 NAME=MAXN", "no section header"),
        ("< POWER_MODEL ID=0 NAME=MAXN >", "POWER_MODEL ID=0 NAME=MAXN >", "a value"),
        ("EMC MAX_FREQ -1", "EMC MAX_FREQ", "a value"),
        ("EMC MAX_FREQ -1", "EMC MAX_FREQ fast", "no whole number"),
        ("EMC MAX_FREQ -1", "EMC MAX_FREQ -1\nEMC MAX_FREQ 1", "twice"),
        ("< PM_CONFIG DEFAULT=1 >", "", "cut short"),
        ("< PM_CONFIG DEFAULT=1 >", "< PM_CONFIG DEFAULT=7 >", "not among its modes"),
        ("< PM_CONFIG DEFAULT=1 >", "< PM_CONFIG DEFAULT=1 >\n< PM_CONFIG DEFAULT=0 >", "twice"),
        ("NAME=EMC >", "NAME=CPU_ONLINE >", "twice"),
        ("MAX_FREQ /sys/kernel", "MAX_FREQ sys/kernel", "absolute path"),
    ],
)
def test_what_could_make_one_mode_look_like_another_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(NvpmodelFault, match=said):
        parse_conf(CONF.replace(old, new))


def test_an_empty_file_has_no_modes() -> None:
    with pytest.raises(NvpmodelFault, match="no power mode"):
        parse_conf("")


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("pmode:0002", 2),
        ("pmode:0010\n", 10),
        ("pmode:0001 fmode:quiet", 1),
        ("fmode:cool\npmode:0003\n", 3),
        ("", None),
        ("pmode:", None),
        ("pmode:two", None),
        ("pmode:-1", None),
        ("pmode:0001\npmode:0002", None),
        ("xpmode:0001", None),
    ],
)
def test_the_saved_mode(text: str, mode: int | None) -> None:
    assert parse_status(text) == mode


MODE_TABLE = list(
    csv.DictReader((ROOT / "targets/tables/jetson_power_modes.csv").read_text(encoding="utf-8").splitlines())
)
CONFS = {
    path.name.removesuffix(".tar.gz"): parse_conf(unpacked(path)["etc/nvpmodel.conf"].decode())
    for path in sorted(BOARDS.glob("*.*.tar.gz"))
}
TPCS = {"nvpmodel_t194.conf": 4, "nvpmodel_t194_p3668.conf": 4}
# Modes that no file was read for: the TX2's Denver mode is known from a note on L4T alone.
WITHOUT_A_FILE = {("tx2", "MAXP_CORE_DENVER")}


@pytest.mark.parametrize("name", CONFS)
def test_each_mode_of_a_board_is_its_row_in_the_table(name: str) -> None:
    assert rows_of(name), f"no row of the table has the figures of {name}"


def test_each_row_of_the_table_is_a_mode_of_some_board() -> None:
    met = {key_of(row) for name in CONFS for row in rows_of(name)}
    assert {key_of(row) for row in MODE_TABLE if key_of(row) not in met} == {
        key_of(row) for row in MODE_TABLE if (row["module"], row["mode_name"]) in WITHOUT_A_FILE
    }


def key_of(row: dict[str, str]) -> tuple[str, ...]:
    return row["module"], row["conf_file"], row["l4t"], row["mode_name"]


def rows_of(board: str) -> list[dict[str, str]]:
    """The table's rows that a board's present mode equals in every figure that its file sets."""
    conf = CONFS[board]
    mode = next(mode for mode in conf.modes if mode.name == board.partition(".")[2])
    settings = {f"{param} {argument}": value for (param, argument), value in mode.settings.items()}
    return [row for row in MODE_TABLE if is_row_of(row, conf, mode.id, mode.name, settings)]


def is_row_of(row: dict[str, str], conf: Conf, mode_id: int, name: str, settings: dict[str, str]) -> bool:
    online = sum(value == "1" for key, value in settings.items() if key.startswith("CPU_ONLINE"))
    mask = settings.get("TPC_POWER_GATING TPC_PG_MASK", "")
    sms = sms_on(mask, TPCS.get(row["conf_file"], 8)) if mask else None
    return (
        (str(mode_id), name) == (row["mode_id"], row["mode_name"])
        and (row["is_default"] == "yes") == (conf.default_id == mode_id)
        and row["online_cpus"] in ("", str(online))
        and all(caps_of(clock, settings) <= {capped(row, clock)} for clock in ("cpu", "gpu", "emc", "dla"))
        and (sms is None or str(sms) == row["sm_on"])
    )


def caps_of(clock: str, settings: dict[str, str]) -> set[float | None]:
    """What the mode caps the clock at, in MHz: one value for all its CPUs or DLA cores; None: it does not."""
    named = [key for key in settings if key.startswith(clock.upper()) and key.endswith(" MAX_FREQ")]
    return {cap_mhz(key, settings[key]) for key in named}


def capped(row: dict[str, str], clock: str) -> float | None:
    if row[f"{clock}_capped"] != "yes":
        return None
    raw = row["gpu_cap_raw_hz"] if clock == "gpu" else ""
    return int(raw) / 1e6 if raw else float(row[f"{clock}_max_mhz"])


LINES = CONF.splitlines(keepends=True)
WHOLE = {mode.name: mode for mode in parse_conf(CONF).modes}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refused(text)
    assert parse_status(text) is None or "pmode:" in text


@given(st.integers(min_value=0, max_value=len(CONF)))
def test_a_file_cut_short_gives_its_modes_whole_or_none(end: int) -> None:
    conf = read_or_refused(CONF[:end])
    assert conf is None or conf.modes == parse_conf(CONF).modes


@given(st.lists(st.sampled_from(LINES), max_size=40))
def test_lines_in_any_order_never_give_a_mode_another_ones_values(lines: list[str]) -> None:
    conf = read_or_refused("".join(lines))
    for mode in conf.modes if conf else ():
        assert mode.id == WHOLE[mode.name].id


@given(st.sets(st.integers(min_value=0, max_value=len(LINES) - 1), max_size=4))
def test_missing_lines_never_change_a_value(missing: set[int]) -> None:
    conf = read_or_refused("".join(line for number, line in enumerate(LINES) if number not in missing))
    headers = [number for number in missing if LINES[number].startswith("<")]
    for mode in conf.modes if conf and not headers else ():
        assert mode.settings.items() <= WHOLE[mode.name].settings.items()


@given(st.integers(min_value=0, max_value=len(CONF) - 1), st.characters())
def test_one_wrong_character(place: int, character: str) -> None:
    read_or_refused(CONF[:place] + character + CONF[place + 1 :])


def read_or_refused(text: str) -> Conf | None:
    try:
        conf = parse_conf(text)
    except NvpmodelFault:
        return None
    assert any(mode.id == conf.default_id for mode in conf.modes)
    assert len({mode.id for mode in conf.modes}) == len({mode.name for mode in conf.modes}) == len(conf.modes)
    return conf
