import pytest

from deploykit.base.errors import UsageError
from deploykit.recommend.sla import parse_limit, parse_percentile, read_sla


@pytest.mark.parametrize(("text", "value"), [("5", 5.0), ("5ms", 5.0), (" 5 MS ", 5.0), ("1e3", 1000.0), (None, None)])
def test_limits_as_typed(text: str | None, value: float | None) -> None:
    assert parse_limit("--latency-ms", text, "ms") == value


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "five", "", "5s", "1_000"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--latency-ms"):
        parse_limit("--latency-ms", text, "ms")


@pytest.mark.parametrize(
    ("text", "share"), [("p99", 0.99), ("99", 0.99), ("99.9", 0.999), ("p99_9", 0.999), ("0.99", 0.99), ("P50", 0.5)]
)
def test_percentiles_as_typed(text: str, share: float) -> None:
    assert parse_percentile(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["100", "p0", "1", "p101", "nan", "99%", "p-99", "max"])
def test_what_is_no_percentile_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--percentile"):
        parse_percentile(text)


def test_an_sla_needs_a_limit() -> None:
    with pytest.raises(UsageError, match="--latency-ms, --fps"):
        read_sla(None, None)


def test_an_sla_in_words() -> None:
    assert read_sla("5", "500", power_w="40").describe() == "p99 ≤ 5 ms at 500 samples/s within 40 W"
