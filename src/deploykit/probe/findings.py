"""What the doctor says, and what its rules know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from deploykit.probe.software import Software
from deploykit.targets.state import DeviceState

Level = Literal["problem", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing.

    Attributes:
        level: `problem`: does not work or gives wrong numbers. `warning`: works worse than it could. `note`.
        mend: The command or step that mends it.
    """

    level: Level
    what: str
    why: str
    mend: str | None = None


@dataclass(frozen=True)
class Facts:
    """All that the rules know.

    Attributes:
        software: None for a snapshot that did not record it.
        pci_gpus: NVIDIA display devices on the PCI bus.
        denied: Files that are there and may not be read.
        in_video_group: Whether this process may use a Jetson's GPU nodes; None where that is not known.
    """

    state: DeviceState
    software: Software | None = None
    pci_gpus: int = 0
    denied: tuple[str, ...] = ()
    in_video_group: bool | None = None
    visible: str | None = None


Rule = Callable[[Facts], Iterator[Finding]]
"""One rule; without its facts it yields nothing."""
