"""Engines kept on disk, each with the manifest that decides whether it may be loaded.

An engine belongs to one artifact, one device, one TensorRT release, one set of shapes and options. The manifest decides
before the runtime sees a byte; an engine without one is a file from a stranger, and loading it runs its code.

Version history of engine.json:
    1  first
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from deploykit.base import files
from deploykit.base.errors import DeviceMismatch, UsageError
from deploykit.base.vocab import Precision
from deploykit.engine.fusion import ComputeNode
from deploykit.engine.layers import EngineLayer
from deploykit.engine.options import BuildOptions, ShapeRange

PLAN_FILE = "engine.plan"
ENGINE_MANIFEST = "engine.json"
ENGINE_VERSION = 1
_KEY_CHARACTERS = 12


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineDevice(_Strict):
    """What an engine was built for.

    Attributes:
        target: Canonical target reference.
        compute_capability: Like `8.9`.
        name: GPU name as the driver gives it; None for a build made away from the device.
        sm_count: Multiprocessors; None as above.
        power_mode: nvpmodel mode that the tactics were timed in, on a Jetson.
        mig_profile: Slice that it was built on.
    """

    target: str
    compute_capability: str
    name: str | None = None
    sm_count: int | None = None
    power_mode: str | None = None
    mig_profile: str | None = None


class EngineRequest(_Strict):
    """Everything that changes an engine.

    Attributes:
        artifact: Digest of the artifact.
        runtime: `tensorrt` or `tensorrt-rtx`.
        runtime_version: As the module states it.
    """

    artifact: str
    runtime: str
    runtime_version: str
    device: EngineDevice
    shapes: tuple[ShapeRange, ...]
    options: BuildOptions

    @property
    def key(self) -> str:
        """Digest over all of it."""
        return files.sha256_json(self.model_dump(mode="json"))


class EngineManifest(_Strict):
    """`engine.json` beside `engine.plan`.

    Attributes:
        compute: Every convolution and matrix product of the graph, with the precision that the engine runs it in.
        gpu_fallback: Layers that the DLA asked for cannot run.
    """

    version: int = ENGINE_VERSION
    request: EngineRequest
    model: str
    precision: Precision
    sha256: str
    size_bytes: int
    seconds: float
    memory_bytes: dict[str, int] = {}
    layers: tuple[EngineLayer, ...] = ()
    compute: tuple[ComputeNode, ...] = ()
    gpu_fallback: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    created: dt.datetime


@dataclass(frozen=True)
class Engine:
    """A built engine on disk."""

    path: Path
    manifest: EngineManifest

    @property
    def plan_path(self) -> Path:
        """The serialized engine."""
        return self.path / PLAN_FILE


def engine_folder(root: Path, model: str, request: EngineRequest, precision: Precision) -> Path:
    """Where an engine lives: `<root>/<model>/<target>-<precision>-<first 12 of key>`."""
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{request.device.target}-{precision}")
    return root / re.sub(r"[^A-Za-z0-9._-]+", "-", model) / f"{label}-{request.key[:_KEY_CHARACTERS]}"


def write_engine(folder: Path, plan: bytes, manifest: EngineManifest) -> Engine:
    """Write an engine whole or not at all."""
    with files.new_folder(folder) as temporary:
        (temporary / PLAN_FILE).write_bytes(plan)
        files.write_json(temporary / ENGINE_MANIFEST, manifest.model_dump(mode="json"))
    return Engine(folder, manifest)


def read_engine(path: Path) -> Engine:
    """Read an engine folder (or a file in it) and check that the plan is the one described.

    Raises:
        UsageError: No manifest (an engine of unknown origin), a manifest that does not parse, or a plan of another
            size or digest.
    """
    folder = path if path.is_dir() else path.parent
    try:
        document = json.loads((folder / ENGINE_MANIFEST).read_text(encoding="utf-8"))
        manifest = EngineManifest.model_validate(document)
    except FileNotFoundError as error:
        raise UsageError(
            f"{path} has no {ENGINE_MANIFEST}: its origin is unknown, and loading an engine runs its code; build it "
            "with `deploykit build`"
        ) from error
    except (ValueError, ValidationError) as error:
        raise UsageError(f"{folder / ENGINE_MANIFEST} cannot be read ({error}); build the engine again") from error
    _check_plan(folder / PLAN_FILE, manifest)
    return Engine(folder, manifest)


def _check_plan(plan: Path, manifest: EngineManifest) -> None:
    if not plan.is_file():
        raise UsageError(f"{plan} is missing; build the engine again")
    size = plan.stat().st_size
    if size != manifest.size_bytes:
        raise UsageError(f"{plan} is damaged: size {size} bytes, built with {manifest.size_bytes}; build it again")
    if files.sha256_file(plan) != manifest.sha256:
        raise UsageError(f"{plan} is damaged: its digest is not the one it was built with; build it again")


def differences(built: EngineRequest, here: EngineRequest) -> list[str]:
    """What keeps an engine from being loaded here, in words; empty where nothing does.

    Another power mode of the same board is no hindrance (`other_conditions` names it).
    """
    pairs = [
        ("artifact digest", built.artifact[:12], here.artifact[:12]),
        ("runtime", built.runtime, here.runtime),
        ("TensorRT version", built.runtime_version, here.runtime_version),
        ("compute capability", built.device.compute_capability, here.device.compute_capability),
        ("SM count", built.device.sm_count, here.device.sm_count),
        ("MIG profile", built.device.mig_profile, here.device.mig_profile),
    ]
    # What a build made away from the device leaves open (None) holds for any device of its kind.
    return [f"{what}: built for {old}, here {new}" for what, old, new in pairs if old != new and old is not None]


def other_conditions(built: EngineRequest, here: EngineRequest) -> list[str]:
    """What a measurement of this engine must say although the engine loads: tactics were timed at other clocks."""
    old, new = built.device.power_mode, here.device.power_mode
    return [] if old == new or old is None else [f"built in power mode {old}, runs in {new}"]


def require_loadable(engine: Engine, here: EngineRequest) -> None:
    """Refuse an engine of another artifact, device or release before the runtime sees it.

    Raises:
        DeviceMismatch: What differs, and the way to a fitting engine.
    """
    if found := differences(engine.manifest.request, here):
        raise DeviceMismatch(f"{engine.path} does not fit: {'; '.join(found)}; rebuild it with `deploykit build`")


def engines(root: Path) -> Iterator[Engine]:
    """Every intact engine under a folder, in the order of their paths; damaged ones are left out."""
    for folder in _folders(root):
        try:
            yield read_engine(folder)
        except UsageError:
            continue


def damaged(root: Path) -> list[str]:
    """What is wrong with the others, a sentence each."""
    return [fault for folder in _folders(root) if (fault := _fault(folder)) is not None]


def damaged_folders(root: Path) -> list[Path]:
    """Folders of engines that can no longer be loaded."""
    return [folder for folder in _folders(root) if _fault(folder) is not None]


def size_of(folder: Path) -> int:
    """Bytes of the files in an engine's folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove(folder: Path) -> None:
    """Delete an engine: its manifest goes first, so that what a kill leaves is no engine."""
    (folder / ENGINE_MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder)


def _folders(root: Path) -> list[Path]:
    found = {path.parent for name in (ENGINE_MANIFEST, PLAN_FILE) for path in root.glob(f"*/*/{name}")}
    return sorted(found)


def _fault(folder: Path) -> str | None:
    try:
        read_engine(folder)
    except UsageError as error:
        return str(error)
    return None
