"""A build in a process of its own.

TensorRT-RTX 1.7 keeps state after a build that failed: the next one in the same process builds a quantized convolution
in float (tests/integration/test_build_command.py). A crash of TensorRT ends the child alone, and its memory goes back.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel, ConfigDict

from deploykit.base.errors import DeploykitError, UsageError
from deploykit.engine.builder import BuiltEngine, EngineBuildError, build_engine
from deploykit.engine.options import BuildOptions, ShapeRange
from deploykit.engine.timing_cache import TimingCache

_TASK, _OUTCOME, _PLAN = "task.json", "outcome.json", "engine.plan"
_LAST_WORDS = 300


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BuildTask(_Strict):
    """Arguments of `builder.build_engine`.

    Attributes:
        module: `tensorrt` or `tensorrt_rtx`.
        timing_cache: File of the timing cache; None: without one.
    """

    module: str
    onnx_path: Path
    shapes: tuple[ShapeRange, ...]
    options: BuildOptions
    compute_capability: str | None = None
    timing_cache: Path | None = None


class _Outcome(_Strict):
    """What the child says: a built engine, or an error that was raised on purpose."""

    built: BuiltEngine | None = None
    usage_error: str | None = None
    build_error: str | None = None


def build_in_child(task: BuildTask) -> tuple[BuiltEngine, bytes]:
    """As `builder.build_engine`, in another process.

    Returns:
        The engine's description and its plan.

    Raises:
        UsageError, EngineBuildError: As there; the latter also where TensorRT took the process down.
    """
    with TemporaryDirectory(prefix="deploykit-build-") as name:
        folder = Path(name)
        (folder / _TASK).write_text(task.model_dump_json(), encoding="utf-8")
        done = subprocess.run([sys.executable, "-m", __name__, name], capture_output=True, text=True, check=False)
        if not (folder / _OUTCOME).is_file():
            raise EngineBuildError(_died(task, done))
        outcome = _Outcome.model_validate_json((folder / _OUTCOME).read_text(encoding="utf-8"))
        if outcome.usage_error is not None:
            raise UsageError(outcome.usage_error)
        if outcome.built is None:
            raise EngineBuildError(outcome.build_error or "the build gave no reason")
        return outcome.built, (folder / _PLAN).read_bytes()


def _died(task: BuildTask, done: subprocess.CompletedProcess[str]) -> str:
    how = f"exit code {done.returncode}"
    if done.returncode < 0:
        how = f"signal {signal.Signals(-done.returncode).name}"
    words = " ".join(done.stderr.split())[-_LAST_WORDS:] or "it said nothing"
    return f"{task.module} ended with {how} while it built {task.onnx_path}: {words}"


def run(folder: Path) -> None:
    """The child's side: read the task, build, write the outcome last."""
    task = BuildTask.model_validate_json((folder / _TASK).read_text(encoding="utf-8"))
    try:
        built, plan = build_engine(
            importlib.import_module(task.module),
            task.onnx_path,
            task.shapes,
            task.options,
            compute_capability=task.compute_capability,
            timing_cache=TimingCache(task.timing_cache) if task.timing_cache else None,
        )
        (folder / _PLAN).write_bytes(plan)
        outcome = _Outcome(built=built)
    except UsageError as error:
        outcome = _Outcome(usage_error=str(error))
    except DeploykitError as error:
        outcome = _Outcome(build_error=str(error))
    (folder / _OUTCOME).write_text(json.dumps(outcome.model_dump(mode="json")), encoding="utf-8")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
