"""The file of a timing cache: filled by one build, merged by the next, and never half written.

TensorRT's cache is stood in for by a set of lines: `combine` is what TensorRT documents, a union of both.
"""

from __future__ import annotations

from pathlib import Path

from deploykit.engine.timing_cache import TimingCache, timing_file


class Lines:
    def __init__(self, data: bytes) -> None:
        self.lines = set(data.split())

    def combine(self, other: Lines, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.lines |= other.lines
        return True

    def serialize(self) -> bytes:
        return b"\n".join(sorted(self.lines))


class Config:
    def __init__(self) -> None:
        self.cache: Lines | None = None

    def create_timing_cache(self, data: bytes) -> Lines:
        return Lines(data)

    def set_timing_cache(self, cache: Lines, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.cache = cache
        return True

    def get_timing_cache(self) -> Lines | None:
        return self.cache


def test_what_two_builds_at_once_learned_is_kept(tmp_path: Path) -> None:
    cache = TimingCache(timing_file(tmp_path, "tensorrt", "10.3.0", "NVIDIA A100-SXM4-80GB 1g.10gb"))
    first, second = Config(), Config()
    for config, learned in ((first, b"conv1"), (second, b"conv2")):
        cache.attach(config)
        assert config.cache is not None and config.cache.lines == set()
        config.cache.lines.add(learned)
    cache.merge(first)
    cache.merge(second)
    third = Config()
    cache.attach(third)
    assert third.cache is not None and third.cache.lines == {b"conv1", b"conv2"}
    assert cache.path.name == "tensorrt-10.3.0-NVIDIA-A100-SXM4-80GB-1g.10gb.timing"


def test_devices_and_releases_have_files_of_their_own(tmp_path: Path) -> None:
    paths = {
        timing_file(tmp_path, *names)
        for names in (("tensorrt", "10.3.0", "a"), ("tensorrt", "10.13.0", "a"), ("tensorrt", "10.3.0", "b"))
    }
    assert len(paths) == 3


def test_a_build_that_has_no_cache_writes_none(tmp_path: Path) -> None:
    cache = TimingCache(timing_file(tmp_path, "tensorrt", "10.3.0", "a"))
    cache.merge(Config())
    assert list(tmp_path.iterdir()) == []
