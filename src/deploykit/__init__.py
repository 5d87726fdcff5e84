"""deploykit: which hardware should this model ship on, and what is the proof?

    import deploykit

    settings = deploykit.ExportSettings(precision=deploykit.Precision.INT8)
    exported = deploykit.export("efficientnet-lite0", settings)
    print(exported.artifact.manifest.accuracy)

Names are imported when they are first used, so that `import deploykit` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Artifact": "deploykit.base.artifact",
    "BenchRequest": "deploykit.bench.command:Request",
    "BuildSettings": "deploykit.pipeline",
    "Built": "deploykit.pipeline",
    "CalibrationMethod": "deploykit.base.vocab",
    "DeploykitError": "deploykit.base.errors",
    "ExportSettings": "deploykit.pipeline",
    "Exported": "deploykit.pipeline",
    "Measurement": "deploykit.results.measurement",
    "Precision": "deploykit.base.vocab",
    "Question": "deploykit.recommend.question",
    "Recommendation": "deploykit.recommend.answer",
    "Scenario": "deploykit.base.vocab",
    "Sla": "deploykit.recommend.sla",
    "Store": "deploykit.results.store",
    "TargetSpec": "deploykit.targets.spec",
    "bench": "deploykit.bench.command:run_bench",
    "build": "deploykit.pipeline",
    "export": "deploykit.pipeline",
    "read_artifact": "deploykit.base.artifact",
    "recommend": "deploykit.recommend.ask",
}
"""Public name → module it lives in, with `:name` where it has another name there."""

if TYPE_CHECKING:
    from deploykit.base.artifact import Artifact as Artifact
    from deploykit.base.artifact import read_artifact as read_artifact
    from deploykit.base.errors import DeploykitError as DeploykitError
    from deploykit.base.vocab import CalibrationMethod as CalibrationMethod
    from deploykit.base.vocab import Precision as Precision
    from deploykit.base.vocab import Scenario as Scenario
    from deploykit.bench import command as _bench
    from deploykit.pipeline import BuildSettings as BuildSettings
    from deploykit.pipeline import Built as Built
    from deploykit.pipeline import Exported as Exported
    from deploykit.pipeline import ExportSettings as ExportSettings
    from deploykit.pipeline import build as build
    from deploykit.pipeline import export as export
    from deploykit.recommend.answer import Recommendation as Recommendation
    from deploykit.recommend.ask import recommend as recommend
    from deploykit.recommend.question import Question as Question
    from deploykit.recommend.sla import Sla as Sla
    from deploykit.results.measurement import Measurement as Measurement
    from deploykit.results.store import Store as Store
    from deploykit.targets.spec import TargetSpec as TargetSpec

    BenchRequest = _bench.Request
    bench = _bench.run_bench


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deploykit' has no attribute {name!r}")
    home, _, other = _HOMES[name].partition(":")
    return getattr(importlib.import_module(home), other or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


class _Room(ModuleType):
    """A package that shares its name with a verb: calling it is calling the verb."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return __getattr__(self.__name__.rpartition(".")[2])(*arguments, **options)


class _Facade(ModuleType):
    """`deploykit.export(...)` works, also once the package of that name has been imported and is bound here."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Facade
