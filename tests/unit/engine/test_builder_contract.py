"""The builder against the recorded names of four releases.

Names only: these stand-ins have exactly the attributes that a release has and raise AttributeError for all others, so
what is shown is that no name is touched unguarded, not that a build succeeds. Real builds: tests/integration.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from deploykit.base.errors import UsageError
from deploykit.engine.builder import build_engine, supported_capabilities
from deploykit.engine.options import BuildOptions, ShapeRange
from deploykit.engine.timing_cache import TimingCache, timing_file

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tensorrt"
RELEASES = ("tensorrt-10.3", "tensorrt-10.13", "tensorrt-11.4", "tensorrt-rtx-1.7")
SHAPES = (ShapeRange(name="x", min=(1, 3), opt=(1, 3), max=(1, 3)),)
RESULTS = {
    "create_network": "INetworkDefinition",
    "create_builder_config": "IBuilderConfig",
    "create_optimization_profile": "IOptimizationProfile",
    "create_timing_cache": "ITimingCache",
    "get_timing_cache": "ITimingCache",
    "get_layer": "ILayer",
}
PROPERTIES: dict[str, Any] = {"num_layers": 2}
ANSWERS: dict[str, Any] = {}


class Member(int):
    """An enum member."""


class Recorded:
    """An object of a release: only the listed names can be touched."""

    def __init__(self, api: "Api", names: list[str]) -> None:
        object.__setattr__(self, "_api", api)
        object.__setattr__(self, "_names", set(names))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(name)
        if name == "build_serialized_network":
            return lambda network, config: b"plan"
        if name in PROPERTIES:
            return PROPERTIES[name]
        if name == "serialize":
            return lambda: b"learned"
        if name in RESULTS:
            return lambda *arguments: self._api.make(RESULTS[name])
        return lambda *arguments, **options: ANSWERS.get(name, True)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._names:
            raise AttributeError(name)


class Api:
    """A module of a release."""

    def __init__(self, release: str) -> None:
        self._known: dict[str, list[str] | None] = json.loads((FIXTURES / f"{release}.json").read_text())
        self.__name__, self.__version__ = release.rsplit("-", 1)

    def make(self, name: str) -> Recorded:
        return Recorded(self, self._known[name] or [])

    def __getattr__(self, name: str) -> Any:
        members = self._known.get(name, "absent") if not name.startswith("_") else "absent"
        if members == "absent":
            raise AttributeError(name)
        if name == "ILogger":
            severity = {level: Member(i) for i, level in enumerate(("INTERNAL_ERROR", "ERROR", "WARNING"))}
            return type("ILogger", (), {"Severity": type("Severity", (), severity)})
        if name in ("Builder", "OnnxParser"):
            return lambda *arguments: self.make(name)
        found = {member: Member(i) for i, member in enumerate(members or [])}
        return type(name, (), {**found, "__members__": found})


OPTIONS = {
    "defaults": BuildOptions(),
    "optimization level": BuildOptions(builder_optimization_level=5),
    "workspace": BuildOptions(workspace_mib=512, tactic_dram_mib=1024),
    "ampere+": BuildOptions(hardware_compatibility_level="ampere+"),
    "same compute capability": BuildOptions(hardware_compatibility_level="same-compute-capability"),
    "version compatible": BuildOptions(version_compatible=True),
    "strip and refit": BuildOptions(strip_plan=True, refit=True),
    "sparse": BuildOptions(sparse_weights=True),
    "no tf32": BuildOptions(tf32=False),
    "dla": BuildOptions(use_dla_core=0, allow_gpu_fallback=True),
}
ABSENT = {("tensorrt-10.3", "same compute capability")}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_uses_names_that_the_release_has_or_is_refused(release: str, name: str) -> None:
    api = Api(release)
    if (release, name) in ABSENT:
        with pytest.raises(UsageError, match="leave that option out"):
            build_engine(api, Path("model.onnx"), SHAPES, OPTIONS[name])
    else:
        assert build_engine(api, Path("model.onnx"), SHAPES, OPTIONS[name])[1] == b"plan"


@pytest.mark.parametrize("release", RELEASES)
def test_the_timing_cache_uses_names_that_the_release_has(release: str, tmp_path: Path) -> None:
    cache = TimingCache(timing_file(tmp_path, *release.rsplit("-", 1), "board"))
    for _ in range(2):
        build_engine(Api(release), Path("model.onnx"), SHAPES, BuildOptions(), timing_cache=cache)
    assert cache.path.read_bytes() == b"learned"


@pytest.mark.parametrize("release", RELEASES)
def test_layers_that_the_dla_cannot_run_are_refused_or_go_to_the_gpu(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "can_run_on_DLA", False)
    monkeypatch.setitem(PROPERTIES, "name", "conv1")
    with pytest.raises(UsageError, match=r"DLA core 1 cannot run conv1, conv1: .*--allow-gpu-fallback"):
        build_engine(Api(release), Path("model.onnx"), SHAPES, BuildOptions(use_dla_core=1))
    fallback = BuildOptions(use_dla_core=1, allow_gpu_fallback=True)
    assert build_engine(Api(release), Path("model.onnx"), SHAPES, fallback)[0].gpu_fallback == ("conv1", "conv1")


@pytest.mark.parametrize("release", RELEASES)
def test_only_rtx_builds_for_a_gpu_that_is_not_here(release: str) -> None:
    api = Api(release)
    if release == "tensorrt-rtx-1.7":
        assert supported_capabilities(api) == ["7.5", "8.0", "8.6", "8.9", "12.0", "12.1"]
        assert build_engine(api, Path("model.onnx"), SHAPES, BuildOptions(), compute_capability="8.9")[1] == b"plan"
        with pytest.raises(UsageError, match=r"does not build for compute capability 8\.7"):
            build_engine(api, Path("model.onnx"), SHAPES, BuildOptions(), compute_capability="8.7")
    else:
        assert supported_capabilities(api) == []
        with pytest.raises(UsageError, match="run `deploykit build` on the target"):
            build_engine(api, Path("model.onnx"), SHAPES, BuildOptions(), compute_capability="8.9")
