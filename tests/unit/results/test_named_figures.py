"""Names of foreign fields as they are met, and what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.base.errors import UsageError
from deploykit.results.named_figures import named_figure


@pytest.mark.parametrize(
    ("name", "unit", "statistic", "factor"),
    [
        ("p50 latency (usec)", None, "p50", 1e-3),
        ("latency.p99", "s", "p99", 1e3),
        ("50.00 percentile latency (ns)", None, "p50", 1e-6),
        ("99.90 percentile latency (ns)", None, "p99_9", 1e-6),
        ("90.0th percentile latency (ns)", None, "p90", 1e-6),
        ("result_95.00_percentile_latency_ns", None, "p95", 1e-6),
        ("p99_9_latency_us", None, "p99_9", 1e-3),
        ("latencyMs", None, "mean", 1.0),
        ("medianMs latency", None, "p50", 1.0),
        ("Inference time (ms/im)", None, "mean", 1.0),
        ("inference_time_milliseconds", None, "mean", 1.0),
        ("batch_time_ms.p50", None, "p50", 1.0),
        ("p50_ms", None, "p50", 1.0),
        ("latency.stdev", "s", "std", 1e3),
    ],
)
def test_latencies(name: str, unit: str | None, statistic: str, factor: float) -> None:
    found = named_figure(name, unit)
    assert found is not None
    assert (found.statistic, found.factor, found.per) == (statistic, factor, None)


@pytest.mark.parametrize(
    ("name", "unit", "per"),
    [
        ("fps", None, "sample"),
        ("images_per_s", None, "sample"),
        ("Samples per second", None, "sample"),
        ("throughput.value", "samples/s", "sample"),
        ("QPS w/o loadgen overhead", None, "query"),
        ("batches_per_s", None, "query"),
        ("Inferences/Second", None, "inference"),
    ],
)
def test_rates_say_what_they_count(name: str, unit: str | None, per: str) -> None:
    found = named_figure(name, unit)
    assert found is not None
    assert (found.statistic, found.per) == ("rate", per)


@pytest.mark.parametrize(
    "name",
    [
        "97.00 percentile latency (ns)", "metrics/mAP50-95(B)", "Size (MB)", "min_duration (ms)", "target_latency (ns)",
        "Scheduled samples per second", "samples_per_query", "load_time_s", "forward.latency.total", "batch", "p50", "",
    ],
)  # fmt: skip
def test_other_fields_are_left_alone(name: str) -> None:
    assert named_figure(name, "s" if name.endswith("total") else None) is None


def test_a_latency_without_a_unit_is_asked_for_and_never_guessed() -> None:
    with pytest.raises(UsageError, match="'avg_latency' has no unit: give it with --latency-unit"):
        named_figure("avg_latency")
    found = named_figure("avg_latency", default_unit="us")
    assert found is not None
    assert (found.statistic, found.factor) == ("mean", 1e-3)


@given(st.text(max_size=60))
def test_any_text_is_read_or_left(name: str) -> None:
    try:
        found = named_figure(name)
    except UsageError:
        return
    assert found is None or found.factor > 0
