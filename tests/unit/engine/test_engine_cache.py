import datetime as dt
import hashlib
from pathlib import Path

import pytest

from deploykit.base.errors import DeviceMismatch, UsageError
from deploykit.base.vocab import Precision
from deploykit.engine.cache import (
    Engine,
    EngineDevice,
    EngineManifest,
    EngineRequest,
    differences,
    engine_folder,
    engines,
    other_conditions,
    read_engine,
    require_loadable,
    write_engine,
)
from deploykit.engine.options import BuildOptions, ShapeRange

PLAN = b"plan" * 100
ORIN = EngineDevice(target="orin-agx-64gb@maxn", compute_capability="8.7", name="Orin", sm_count=16, power_mode="MAXN")


def request(device: EngineDevice = ORIN, **changes: object) -> EngineRequest:
    fields: dict[str, object] = {
        "artifact": "a" * 64,
        "runtime": "tensorrt",
        "runtime_version": "10.3.0",
        "device": device,
        "shapes": (ShapeRange(name="x", min=(1, 3), opt=(8, 3), max=(32, 3)),),
        "options": BuildOptions(),
    }
    return EngineRequest.model_validate({**fields, **changes})


def write(root: Path, wanted: EngineRequest | None = None) -> Engine:
    wanted = wanted or request()
    manifest = EngineManifest(
        request=wanted,
        model="resnet50",
        precision=Precision.INT8,
        sha256=hashlib.sha256(PLAN).hexdigest(),
        size_bytes=len(PLAN),
        seconds=1.5,
        created=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    )
    return write_engine(engine_folder(root, "resnet50", wanted, Precision.INT8), PLAN, manifest)


def test_an_engine_is_read_back(tmp_path: Path) -> None:
    engine = write(tmp_path)
    assert read_engine(engine.path).manifest == engine.manifest
    assert read_engine(engine.plan_path).plan_path.read_bytes() == PLAN
    assert [found.path for found in engines(tmp_path)] == [engine.path]


@pytest.mark.parametrize(
    "other",
    [
        request(artifact="b" * 64),
        request(runtime_version="10.3.1"),
        request(device=ORIN.model_copy(update={"power_mode": "MODE_30W"})),
        request(options=BuildOptions(tf32=False)),
        request(shapes=(ShapeRange(name="x", min=(1, 3), opt=(8, 3), max=(64, 3)),)),
    ],
)
def test_whatever_changes_an_engine_changes_its_key(other: EngineRequest) -> None:
    assert other.key != request().key


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (request(device=ORIN.model_copy(update={"compute_capability": "8.9"})), "built for 8.7, here 8.9"),
        (request(device=ORIN.model_copy(update={"sm_count": 8})), "SM count: built for 16, here 8"),
        (request(device=ORIN.model_copy(update={"mig_profile": "1g.5gb"})), None),
        (request(runtime_version="10.16.2"), "built for 10.3.0, here 10.16.2"),
        (request(artifact="b" * 64), "artifact digest"),
    ],
)
def test_an_engine_of_elsewhere_is_refused_with_what_differs(
    tmp_path: Path, here: EngineRequest, words: str | None
) -> None:
    engine = write(tmp_path)
    if words is None:
        assert differences(engine.manifest.request, here) == []
        return
    with pytest.raises(DeviceMismatch, match=words) as caught:
        require_loadable(engine, here)
    assert "rebuild" in str(caught.value)


def test_another_power_mode_loads_and_is_said() -> None:
    here = request(device=ORIN.model_copy(update={"power_mode": "MODE_15W"}))
    assert differences(request(), here) == []
    assert other_conditions(request(), here) == ["built in power mode MAXN, runs in MODE_15W"]


def test_a_cut_engine_is_damaged(tmp_path: Path) -> None:
    engine = write(tmp_path)
    engine.plan_path.write_bytes(PLAN[:100])
    with pytest.raises(UsageError, match="damaged: size 100"):
        read_engine(engine.path)
    assert list(engines(tmp_path)) == []


def test_an_engine_with_other_bytes_is_damaged(tmp_path: Path) -> None:
    engine = write(tmp_path)
    engine.plan_path.write_bytes(PLAN[:-1] + b"!")
    with pytest.raises(UsageError, match="digest"):
        read_engine(engine.path)


def test_an_engine_without_a_manifest_is_of_unknown_origin(tmp_path: Path) -> None:
    (tmp_path / "engine.plan").write_bytes(PLAN)
    with pytest.raises(UsageError, match="origin is unknown"):
        read_engine(tmp_path / "engine.plan")
