"""LoadGen itself, for fractions of a second each: its records, its verdict, and errors inside its call-backs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploykit.base.errors import DeploykitError, UsageError
from deploykit.base.vocab import Scenario
from deploykit.bench import loadgen
from deploykit.bench.loadgen import Infer, Load, _start, drive
from deploykit.bench.loadgen_logs import queries_from_trace
from deploykit.bench.stats import upper_bound


class Recorder:
    """Sleeps and remembers which samples came in which batches."""

    def __init__(self, ms: float = 0.5) -> None:
        self.batches: list[list[int]] = []
        self._seconds = ms / 1000

    def __call__(self, indices: Sequence[int]) -> None:
        self.batches.append(list(indices))
        time.sleep(self._seconds)


def load(scenario: Scenario, **change: object) -> Load:
    fields = {"duration_s": 0.3, "longest_s": 3.0, "samples": 8, "expected_latency_ms": 0.5, "expected_ips": 2000.0}
    return Load(scenario=scenario, **(fields | change))  # type: ignore[arg-type]


def test_single_stream_latencies_are_loadgens_own(capfd: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder()
    result = drive(load(Scenario.SINGLE_STREAM, least_queries=100), [recorder])
    ordered = np.sort(result.queries.latency_ms)
    assert len(ordered) == len(recorder.batches) == result.samples >= 100
    assert all(len(batch) == 1 for batch in recorder.batches)
    # LoadGen's percentile is the sample after the nearest rank.
    for percent in (50, 90, 99):
        rank = int(len(ordered) * percent / 100)
        assert result.verdict[f"result_{percent}.00_percentile_latency_ns"] == round(ordered[rank] * 1e6)
    assert upper_bound(ordered, 90) is not None
    assert result.queries.wall_s * 1e3 >= result.queries.latency_ms.sum() * 0.99
    assert capfd.readouterr().out == ""


def test_a_run_goes_on_until_it_has_its_queries() -> None:
    result = drive(load(Scenario.SINGLE_STREAM, duration_s=0.01, least_queries=200), [Recorder(0.2)])
    assert len(result.queries.latency_ms) >= 200


def test_a_multi_stream_query_ends_with_its_last_sample() -> None:
    recorder = Recorder(2.0)
    result = drive(load(Scenario.MULTI_STREAM, samples_per_query=8, batch_size=4, expected_latency_ms=4), [recorder])
    assert {len(batch) for batch in recorder.batches} == {4}
    assert result.samples == 8 * len(result.queries.latency_ms)
    assert result.queries.latency_ms.min() >= 4.0


def test_offline_times_full_batches_on_every_stream() -> None:
    threads: set[int] = set()
    recorder = Recorder()

    def stream(indices: Sequence[int]) -> None:
        threads.add(threading.get_ident())
        recorder(indices)

    result = drive(load(Scenario.OFFLINE, batch_size=7), [stream, stream])
    sizes = [len(batch) for batch in recorder.batches]
    assert sum(sizes) == result.samples
    assert len(result.queries.latency_ms) == sizes.count(7)
    assert len(threads) == 2


def test_a_server_batches_what_waits() -> None:
    recorder = Recorder(10.0)
    result = drive(load(Scenario.SERVER, request_rate=500.0, batch_size=4, latency_bound_ms=1000.0), [recorder])
    sizes = {len(batch) for batch in recorder.batches}
    assert max(sizes) == 4
    assert result.samples == sum(len(batch) for batch in recorder.batches)
    # Four samples in 10 ms are 400/s: at 500/s a queue grows, and latency holds the waiting.
    assert result.queries.latency_ms.max() > 20.0
    assert result.samples / result.wall_s < 500.0


@pytest.mark.parametrize("scenario", [Scenario.SINGLE_STREAM, Scenario.MULTI_STREAM, Scenario.OFFLINE, Scenario.SERVER])
def test_an_error_of_the_model_comes_out_as_itself(scenario: Scenario) -> None:
    def fail(indices: Sequence[int]) -> None:
        raise ZeroDivisionError("in the model")

    with pytest.raises(ZeroDivisionError, match="in the model"):
        drive(load(scenario, request_rate=100.0, longest_s=0.3, samples_per_query=8), [fail])


def test_ctrl_c_comes_out_as_itself() -> None:
    def interrupted(indices: Sequence[int]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(load(Scenario.SINGLE_STREAM), [interrupted])


def test_one_run_at_a_time() -> None:
    refused: list[UsageError] = []

    def nested(indices: Sequence[int]) -> None:
        if not refused:
            with pytest.raises(UsageError, match="one test at a time") as caught:
                drive(load(Scenario.SINGLE_STREAM), [Recorder()])
            refused.append(caught.value)

    drive(load(Scenario.SINGLE_STREAM, duration_s=0.05), [nested])
    assert refused


def test_streams_where_one_query_is_in_flight_are_refused() -> None:
    streams: list[Infer] = [Recorder(), Recorder()]
    with pytest.raises(UsageError, match="one stream, not 2"):
        drive(load(Scenario.SINGLE_STREAM), streams)


def test_trace_lines_of_one_query_end_with_the_slowest() -> None:
    line = (
        b'{"name":"Sample","cat":"default","ph":"b","pid":1,"id":%d,"ts":%d.5,'
        b'"args":{"sample_seq":%d,"query_seq":%d,"sample_idx":0,"issue_start_ns":0,"complete_ns":%d}},\n'
    )
    rows = [line % (0, 2000, 0, 1, 500_000), line % (1, 2000, 1, 1, 900_000), line % (2, 100, 2, 0, 300_000)]
    other = b'{"name":"Sample","cat":"default","ph":"e", "pid":1,"id":1,"ts":6585.587},\n'
    queries = queries_from_trace([*rows, other, b'{"name":"IssueQuery","ph":"X","ts":5}\n'])
    assert queries.start_ms.tolist() == [0.1005, 2.0005]
    assert queries.latency_ms.tolist() == [0.3, 0.9]
    assert queries.wall_s == pytest.approx((2.0005 + 0.9 - 0.1005) / 1e3)


def test_a_record_that_the_disk_did_not_take_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that end early, as a full disk leaves them: LoadGen's own are cut after it has written them."""
    for name in ("mlperf_log_detail.txt", "mlperf_log_trace.json"):

        def start(lg: Any, load: Load, system: Any, folder: Path, name: str = name) -> None:
            _start(lg, load, system, folder)
            size = (folder / name).stat().st_size
            os.truncate(folder / name, size // 2)

        with monkeypatch.context() as patch:
            patch.setattr(loadgen, "_start", start)
            with pytest.raises(DeploykitError, match=r"cut off: .* is probably full"):
                drive(load(Scenario.SINGLE_STREAM), [Recorder()])
