"""The exception tree. Each branch owns one exit code of the command line.

    DeploykitError                1  unexpected failure
    ├── UsageError                2  wrong usage or bad input: the user can mend it
    │   ├── MissingExtraError        a package is needed that the base install leaves out
    │   └── UnknownNameError         a name that no catalogue has; carries the near misses
    ├── NegativeAnswer            3  the work was done and the answer is no
    │   ├── AccuracyBelowFloor
    │   ├── NoTargetMeetsSla
    │   └── Regression
    └── DeviceError               4  the device is absent or not in the state that the target names
        ├── DeviceAbsent
        ├── DeviceMismatch
        └── ProviderUnavailable      an execution provider was asked for and is not what runs

A message is one paragraph: what was wrong, where, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DeploykitError(Exception):
    """Base of every error that deploykit raises on purpose."""

    exit_code = 1


class UsageError(DeploykitError):
    """Wrong usage or bad input; the message says what to change."""

    exit_code = 2


class MissingExtraError(UsageError):
    """A command needs a package that an extra of deploykit installs."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}; install it with: pip install 'deploykit[{extra}]'")
        self.package = package
        self.extra = extra


class UnknownNameError(UsageError):
    """A name that no catalogue has.

    Args:
        kind: What was looked for, as the user would say it ("target", "model").
        name: What was asked for.
        known: Every name that would have been accepted.
        hint: The command that lists more.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.name = name
        self.near = near_misses(name, known)
        parts = [f"unknown {kind} {name!r}"]
        if self.near:
            parts.append("did you mean " + ", ".join(self.near) + "?")
        if hint:
            parts.append(hint)
        super().__init__("; ".join(parts))


class NegativeAnswer(DeploykitError):
    """The work was done and the answer is no."""

    exit_code = 3


class AccuracyBelowFloor(NegativeAnswer):
    """The accuracy report misses a floor that the user set."""


class NoTargetMeetsSla(NegativeAnswer):
    """No candidate holds the SLA."""


class Regression(NegativeAnswer):
    """A measurement is worse than the one it is compared with, beyond noise."""


class DeviceError(DeploykitError):
    """The device is absent or not in the state that the target names."""

    exit_code = 4


class DeviceAbsent(DeviceError):
    """The hardware that the target names is not in this machine."""


class DeviceMismatch(DeviceError):
    """The hardware is here, but in another state than the target names."""


class ProviderUnavailable(DeviceError):
    """An execution provider was asked for and is not what would run."""


def near_misses(name: str, known: Iterable[str], count: int = 4) -> list[str]:
    """The known names closest to a mistyped one, best first."""
    lowered = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=count, cutoff=0.5)
    prefixed = [k for k in lowered if k.startswith(name.lower()) and k not in close] if name else []
    return [lowered[k] for k in (close + sorted(prefixed))[:count]]
