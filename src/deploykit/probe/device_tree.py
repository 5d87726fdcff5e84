"""Which module a Jetson is: from its device tree and release files. Pure: text in, facts out.

The part number decides (`p3701-0005`). RAM never does: the original AGX Orin developer kit reports 32 GB and is the
full chip. Nor does the model text: carrier makers write their own, and an Orin Nano was seen under an Orin NX's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Modules, and the chip each carries (NVIDIA Jetson Linux Developer Guide, "Jetson Modules and Configurations").
MODULE_CHIPS = {
    "p3448": "tegra210",
    "p3310": "tegra186",
    "p2888": "tegra194",
    "p3668": "tegra194",
    "p3701": "tegra234",
    "p3767": "tegra234",
    "p3834": "tegra264",
}

# Developer kits of the older modules have a number of their own, which their device tree shows instead of the module's.
KIT_MODULES = {"p3450-0000": "p3448-0000", "p2771-0000": "p3310-1000", "p2972-0000": "p2888-0001"}

TPCS_OF_CHIP = {"tegra194": 4, "tegra234": 8}
"""Bits of the power gating mask; a TPC holds 2 SMs. Thor and the older chips show no mask."""

_PART = re.compile(r"(?<![0-9a-z])p?(?P<board>[0-9]{4})[-:](?P<sku>[0-9]{4})(?![0-9])", re.IGNORECASE)
_CHIP = re.compile(r"^nvidia,(?P<chip>tegra[0-9]{3})$")
_RELEASE = re.compile(
    r"^#\s*R(?P<major>[0-9]{1,3})\s*\(release\),\s*REVISION:\s*(?P<minor>[0-9]{1,3}(?:\.[0-9]{1,3})?)\s*,"
)
_SPEC = re.compile(r"^\s*(?:TNSPEC|COMPATIBLE_SPEC)\s+(?P<spec>\S+)", re.MULTILINE)


def strings(data: bytes) -> tuple[str, ...]:
    """The strings of a device tree property, which end in NULs."""
    parts = (part.decode("utf-8", errors="replace").strip() for part in data.split(b"\0"))
    return tuple(part for part in parts if part)


def chip_of(compatible: Iterable[str]) -> str | None:
    """`tegra234` of `nvidia,tegra234`."""
    return next((match["chip"] for text in compatible if (match := _CHIP.match(text))), None)


def module_in(texts: Iterable[str]) -> str | None:
    """The one module whose part number the texts hold: `nvidia,p3737-0000+p3701-0005` → `p3701-0005`.

    Returns:
        None where they hold none, or several that differ: then nothing is known.
    """
    parts = {f"p{match['board']}-{match['sku']}" for text in texts for match in _PART.finditer(text)}
    # A kit's number says less than the module's own beside it.
    modules = {part for part in parts if part[:5] in MODULE_CHIPS} or {
        KIT_MODULES[p] for p in parts if p in KIT_MODULES
    }
    return modules.pop() if len(modules) == 1 else None


def module_of_conf(file_name: str | None) -> str | None:
    """The module of `nvpmodel_p3701_0004.conf` or `nvpmodel_p3767_0000_super.conf`.

    The file of p3701-0000 serves p3701-0005 too: enough to tell the device, not the exact part.
    """
    match = re.search(r"nvpmodel_(p[0-9]{4})_([0-9]{4})(?:_super)?\.conf$", file_name or "")
    return f"{match[1]}-{match[2]}" if match and match[1] in MODULE_CHIPS else None


def parse_release(text: str) -> str | None:
    """Jetson Linux version of /etc/nv_tegra_release: `# R36 (release), REVISION: 4.3, …` → `36.4.3`."""
    match = _RELEASE.match(text)
    return f"{match['major']}.{match['minor']}" if match else None


def is_thor_t4000(boot_control: str) -> bool:
    """Whether /etc/nv_boot_control.conf names the smaller Thor module, which shares the larger one's model text."""
    return any("t4000" in match["spec"].lower() for match in _SPEC.finditer(boot_control))
