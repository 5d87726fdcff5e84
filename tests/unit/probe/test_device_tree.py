"""Which module: part numbers in device trees of every age, and texts that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.probe.device_tree import (
    MODULE_CHIPS,
    chip_of,
    is_thor_t4000,
    module_in,
    module_of_conf,
    parse_release,
    strings,
)
from deploykit.probe.driver_tables import driver_needed, jetpack_of, shipped_with


@pytest.mark.parametrize(
    ("texts", "module"),
    [
        (("nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"), "p3701-0005"),
        (("nvidia,p3737-0000+p3701-0000", "nvidia,tegra234"), "p3701-0000"),
        (("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234"), "p3767-0005"),
        (("nvidia,p3509-0000+p3668-0000", "nvidia,tegra194"), "p3668-0000"),
        (("nvidia,p2972-0000", "nvidia,tegra194"), "p2888-0001"),
        (("nvidia,p2972-0000+p2888-0004", "nvidia,tegra194"), "p2888-0004"),
        (("nvidia,p3450-0000", "nvidia,tegra210"), "p3448-0000"),
        (("tegra194-p2888-0001-p2822-0000.dts",), "p2888-0001"),
        (("2888:0004:0600:L.0",), "p2888-0004"),
        # Two modules that differ say nothing.
        (("nvidia,p3701-0005", "nvidia,p3701-0004"), None),
        (("Lanner EAI-I233", "nvidia,tegra234"), None),
        (("built 2023-0101",), None),
        ((), None),
    ],
)
def test_the_part_number(texts: tuple[str, ...], module: str | None) -> None:
    assert module_in(texts) == module


def test_the_power_mode_file_says_which_module_it_is_for() -> None:
    assert module_of_conf("nvpmodel_p3701_0004.conf") == "p3701-0004"
    assert module_of_conf("nvpmodel_p3767_0000_super.conf") == "p3767-0000"
    assert module_of_conf("nvpmodel.conf") is None
    assert module_of_conf(None) is None


@pytest.mark.parametrize(
    ("text", "l4t", "jetpack"),
    [
        ("# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t186ref, EABI: aarch64", "32.7.1", "4.6.1"),
        ("# R34 (release), REVISION: 1.0, GCID: 30102743, BOARD: t186ref", "34.1.0", "5.0 DP"),
        ("# R36 (release), REVISION: 4.4, GCID: 41062509, BOARD: generic\n# KERNEL_VARIANT: oot", "36.4.4", "6.2.1"),
        ("# R39 (release), REVISION: 2.0, GCID: 45755727, BOARD: generic", "39.2.0", "7.2"),
        ("# R99 (release), REVISION: 9.9, GCID: 1", "99.9.9", None),
        ("R36.4.4", None, None),
        ("", None, None),
    ],
)
def test_the_release(text: str, l4t: str | None, jetpack: str | None) -> None:
    assert parse_release(text) == l4t
    assert jetpack_of(parse_release(text)) == jetpack


def test_what_each_jetpack_carries_holds_until_the_next() -> None:
    assert shipped_with("5.1.2") == ("8.5", "11.4")
    assert shipped_with("6.2.1") == ("10.3", "12.6")
    assert shipped_with("4.2") is None


def test_the_driver_that_a_cuda_needs() -> None:
    assert driver_needed("12.8") == (525,)
    assert driver_needed("13") == (580,)
    assert driver_needed("10.2") is None
    assert driver_needed("") is None


def test_the_smaller_thor_is_told_by_the_boot_configuration() -> None:
    assert is_thor_t4000("TNSPEC 3834-0000-jetson-agx-thor-t4000-\nCOMPATIBLE_SPEC x\n")
    assert not is_thor_t4000("TNSPEC 3834-0008-jetson-agx-thor-devkit-\n")


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_texts_give_a_known_module_or_none(texts: list[str]) -> None:
    module = module_in(texts)
    assert module is None or module[:5] in MODULE_CHIPS


@given(st.binary(max_size=200))
def test_any_property_is_read(data: bytes) -> None:
    found = strings(data)
    assert all(found)
    assert chip_of(found) is None or chip_of(found) in set(MODULE_CHIPS.values()) or b"nvidia,tegra" in data
    assert parse_release("".join(found)) is None or "release" in "".join(found)
