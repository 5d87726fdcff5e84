import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.base.errors import UsageError
from deploykit.engine.calibration_cache import format_cache, parse_cache, version_word


def test_the_format_is_pinned_by_its_bytes() -> None:
    # 0x3cf1a2b3 and 0x3d4c0000 are the single-precision scales 0.0294965263… and 0.0498046875.
    scales = {"x": struct.unpack(">f", bytes.fromhex("3cf1a2b3"))[0], "y": 0.0498046875}
    assert format_cache(scales, "10.3.0") == "TRT-100300-EntropyCalibration2\nx: 3cf1a2b3\ny: 3d4c0000\n"


@given(st.dictionaries(st.text("abc:/_.", min_size=1), st.floats(2.0**-100, 2.0**100, width=32), max_size=5))
def test_what_is_written_is_read(scales: dict[str, float]) -> None:
    assert parse_cache(format_cache(scales, "10.3.0")).scales == scales


def test_every_unusable_scale_is_named() -> None:
    with pytest.raises(UsageError, match=r"r = inf; bad: zz"):
        parse_cache("TRT-100300-EntropyCalibration2\nx: 3cf1a2b3\nr: 7f800000\nbad: zz\n")


@given(st.text())
def test_no_text_gives_a_traceback(text: str) -> None:
    for candidate in (text, "TRT-100300-EntropyCalibration2\n" + text):
        try:
            cache = parse_cache(candidate)
        except UsageError:
            continue
        assert all(scale > 0 for scale in cache.scales.values())


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 1e39, 1e-60])
def test_scales_that_tensorrt_would_choke_on_are_refused(scale: float) -> None:
    with pytest.raises(UsageError, match="positive and finite"):
        format_cache({"x": scale}, "10.3.0")


@pytest.mark.parametrize(("version", "word"), [("10.3.0", "100300"), ("8.6.1", "8601"), ("10.13.3.9", "101303")])
def test_version_words(version: str, word: str) -> None:
    assert version_word(version) == word
