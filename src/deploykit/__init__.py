"""deploykit: which hardware should this model ship on, and what is the proof?

    import deploykit

    settings = deploykit.ExportSettings(precision=deploykit.Precision.INT8)
    exported = deploykit.export("efficientnet-lite0", settings)
    print(exported.artifact.manifest.accuracy)

Names are imported when they are first used, so that `import deploykit` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Artifact": "deploykit.base.artifact",
    "CalibrationMethod": "deploykit.base.vocab",
    "DeploykitError": "deploykit.base.errors",
    "ExportSettings": "deploykit.pipeline",
    "Exported": "deploykit.pipeline",
    "Measurement": "deploykit.results.measurement",
    "Precision": "deploykit.base.vocab",
    "Scenario": "deploykit.base.vocab",
    "Store": "deploykit.results.store",
    "TargetSpec": "deploykit.targets.spec",
    "export": "deploykit.pipeline",
    "read_artifact": "deploykit.base.artifact",
}

if TYPE_CHECKING:
    from deploykit.base.artifact import Artifact as Artifact
    from deploykit.base.artifact import read_artifact as read_artifact
    from deploykit.base.errors import DeploykitError as DeploykitError
    from deploykit.base.vocab import CalibrationMethod as CalibrationMethod
    from deploykit.base.vocab import Precision as Precision
    from deploykit.base.vocab import Scenario as Scenario
    from deploykit.pipeline import Exported as Exported
    from deploykit.pipeline import ExportSettings as ExportSettings
    from deploykit.pipeline import export as export
    from deploykit.results.measurement import Measurement as Measurement
    from deploykit.results.store import Store as Store
    from deploykit.targets.spec import TargetSpec as TargetSpec


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deploykit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
