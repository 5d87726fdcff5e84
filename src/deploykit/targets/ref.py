"""The grammar of a target reference: `<device>[@<power mode>][:<MIG profile>]`. Pure: knows no catalogue."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deploykit.base.errors import UsageError

GRAMMAR = "<device>[@<power mode>][:<MIG profile>], like orin-agx-64gb@30w, rtx-4090 or a100-sxm4-80gb:1g.10gb"

NAME_PATTERN = r"[a-z0-9][a-z0-9.\-]*"
MODE_PATTERN = NAME_PATTERN
PROFILE_PATTERN = r"[a-z0-9][a-z0-9.+\-]*"

_PATTERN = re.compile(f"(?P<device>{NAME_PATTERN})(?:@(?P<mode>{MODE_PATTERN}))?(?::(?P<profile>{PROFILE_PATTERN}))?")


@dataclass(frozen=True)
class TargetRef:
    """A reference as written, in lower case.

    Attributes:
        device: Slug or alias.
        mode: Power mode, as in `orin-agx-64gb@30w`.
        profile: MIG profile, as in `a100-sxm4-80gb:1g.10gb`.
    """

    device: str
    mode: str | None = None
    profile: str | None = None

    def __str__(self) -> str:
        mode = f"@{self.mode}" if self.mode else ""
        profile = f":{self.profile}" if self.profile else ""
        return f"{self.device}{mode}{profile}"


def parse_ref(text: str) -> TargetRef:
    """Read a reference; letter case and surrounding blanks do not matter.

    Raises:
        UsageError: The text is not of the grammar.
    """
    match = _PATTERN.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"target {text!r} {_fault(text)}; write it as {GRAMMAR}")
    return TargetRef(match["device"], match["mode"], match["profile"])


def _fault(text: str) -> str:
    """What keeps a text from being a reference."""
    for sign, what in (("@", "power modes"), (":", "MIG profiles")):
        if text.count(sign) > 1:
            return f"names {text.count(sign)} {what}"
    if ":" in text and "@" in text.partition(":")[2]:
        return "has the MIG profile before the power mode"
    if text.strip().endswith(("@", ":")):
        return f"ends in {text.strip()[-1]!r} with nothing behind it"
    return "is not a target's name"


def squeezed(name: str) -> str:
    """A name without what people write in many ways: `RTX4090`, `rtx_4090` and `NVIDIA RTX 4090` are one."""
    plain = re.sub(r"[^a-z0-9]+", "", name.lower())
    return re.sub(r"^(nvidia)?(geforce|jetson|tesla)?", "", plain)
