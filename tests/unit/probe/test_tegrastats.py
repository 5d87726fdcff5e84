"""Lines of tegrastats of JetPack 4 to 7, re-created from their documented forms, and lines that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.probe.tegrastats import parse_line, parse_log

XAVIER_JP4 = (
    "RAM 408/15823MB (lfb 3702x4MB) SWAP 0/7911MB (cached 0MB) CPU [5%@2265,0%@2265,off,off] EMC_FREQ 0%@2133 "
    "GR3D_FREQ 0%@1377 APE 150 MTS fg 0% bg 0% AO@26.5C GPU@28C Tdiode@31.25C PMIC@100C "
    "GPU 1152/1152 CPU 768/768 SOC 1536/1536 CV 0/0 VDDRQ 384/384 SYS5V 1680/1680"
)
NANO_JP4 = (
    "RAM 331/3964MB (lfb 758x4MB) SWAP 0/1982MB (cached 0MB) IRAM 0/252kB(lfb 252kB) CPU [1%@204,off,off,off] "
    "EMC_FREQ 3%@204 GR3D_FREQ 0%@76 APE 25 PLL@20.5C CPU@23.5C POM_5V_IN 933/933 POM_5V_GPU 0/0 POM_5V_CPU 84/105"
)
ORIN_JP5 = (
    "01-03-2023 16:07:54 RAM 2257/30536MB (lfb 5392x4MB) SWAP 0/15268MB (cached 0MB) CPU [1%@729,0%@729] "
    "EMC_FREQ 0%@204 GR3D_FREQ 0%@0 CV0@-256C CPU@38.5C VDD_GPU_SOC 1600mW/1600mW VDD_CPU_CV 400mW/400mW "
    "VIN_SYS_5V0 2823mW/2823mW"
)
NANO_SUPER_JP6 = (
    "RAM 2161/7620MB (lfb 149x4MB) SWAP 1875/12002MB (cached 43MB) CPU [2%@1728] GR3D_FREQ 0% cpu@55.093C tj@56.562C "
    "VDD_IN 7256mW/7256mW VDD_CPU_GPU_CV 1711mW/1711mW VDD_SOC 2511mW/2511mW"
)
ORIN_JP7 = (
    "07-25-2026 09:08:28 RAM 20642/62817MB (lfb 1x2MB) CPU [23%@2201] EMC_FREQ 3%@3199 GR3D_FREQ 12%@[1300,1298] "
    "NVENC0 off APE 174 cpu@52.968C/52.968C VDD_GPU_SOC 5139mW/5139mW/5139mW VDD_CPU_CV 3268mW/3268mW/3268mW "
    "VIN_SYS_5V0 5500mW/5500mW/5500mW"
)
THOR_JP7 = (
    "04-21-2026 15:50:52 RAM 105265/125772MB (lfb 34x4MB) CPU [0%@972] EMC_FREQ 0%@2750 GR3D_FREQ @[314,314,314] "
    "NVENC0_FREQ @314 cpu@37.343C gpu@38.875C VDD_GPU 1962mW/1962mW VDD_CPU_SOC_MSS 5887mW/5887mW "
    "VIN_SYS_5V0 5635mW/5635mW VIN 19780mW/19780mW"
)


@pytest.mark.parametrize(
    ("text", "board", "power_w", "gpu_mhz", "hottest_c"),
    [
        (XAVIER_JP4, "p2888-0001", 5.52, 1377, 100.0),
        (NANO_JP4, "p3448-0000", 0.933, 76, 23.5),
        (ORIN_JP5, "p3701-0000", 4.823, 0, 38.5),
        (NANO_SUPER_JP6, "p3767-0005", 7.256, None, 56.562),
        (ORIN_JP7, "p3701-0005", 13.907, 1298, 52.968),
        (THOR_JP7, "p3834-0008", 19.78, 314, 38.875),
    ],
    ids=["xavier-jp4", "nano-jp4", "orin-jp5", "nano-super-jp6", "orin-jp7", "thor-jp7"],
)
def test_each_release(text: str, board: str, power_w: float, gpu_mhz: float | None, hottest_c: float) -> None:
    log = parse_log([text, ""])
    assert log.passed_over == 0
    assert log.power_w(board) == pytest.approx(power_w)
    assert log.lines[0].gpu_mhz == gpu_mhz
    assert max(log.lines[0].temperatures_c.values()) == hottest_c


def test_memory_is_no_rail() -> None:
    line = parse_line(NANO_JP4)
    assert line is not None
    assert set(line.rails_w) == {"POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU"}


def test_a_part_that_is_off_has_no_temperature() -> None:
    line = parse_line(ORIN_JP5)
    assert line is not None
    assert line.temperatures_c == {"cpu": 38.5}


def test_lines_that_are_no_samples_are_counted() -> None:
    log = parse_log(["tegrastats: command not found", ORIN_JP5])
    assert (len(log.lines), log.passed_over) == (1, 1)


def test_an_unknown_board_has_no_total() -> None:
    assert parse_log([ORIN_JP5]).power_w(None) is None


@given(st.text())
def test_any_text(text: str) -> None:
    line = parse_line(text)
    assert line is None or "RAM" in text or "GR3D_FREQ" in text


@given(st.sampled_from([XAVIER_JP4, ORIN_JP5, ORIN_JP7, THOR_JP7]), st.integers(0, 400), st.integers(0, 400))
def test_a_broken_line_gives_no_figure_that_it_does_not_hold(text: str, start: int, length: int) -> None:
    cut = text[:start] + text[start + length :]
    line = parse_line(cut)
    for rail, watts in (line.rails_w if line else {}).items():
        assert f"{rail} {round(watts * 1000)}" in cut
    for zone, degrees in (line.temperatures_c if line else {}).items():
        assert zone in cut.lower()
        assert f"{degrees:g}".rstrip("0").rstrip(".") in cut
