"""What is said of runs and hosts, odd cases first."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from deploykit.base.vocab import Scenario
from deploykit.bench.conditions import Moment, moment
from deploykit.bench.guard import neighbours, remarks_on_host, remarks_on_run
from deploykit.bench.loadgen import LoadResult
from deploykit.bench.loadgen_logs import Queries

START = Moment(t_s=0.0, load_average=0.1, own_cpu_s=1.0, busy_cpu_s=100.0, throttled_s=0.0, pages_swapped=7)
END = dataclasses.replace(START, t_s=10.0, own_cpu_s=11.0, busy_cpu_s=110.5)


def result(latencies_ms: np.ndarray) -> LoadResult:
    starts = np.concatenate([[0.0], np.cumsum(latencies_ms)[:-1]])
    queries = Queries(starts, latencies_ms)
    return LoadResult(queries, len(latencies_ms), queries.wall_s, {})


def test_a_quiet_host_needs_no_words() -> None:
    assert remarks_on_host(START, END, cpus=4) == ()


def test_neighbours_are_what_this_process_did_not_use() -> None:
    busy = dataclasses.replace(END, busy_cpu_s=125.0)
    assert neighbours(START, busy) == pytest.approx(1.5)
    assert "other processes kept 1.5 CPUs busy" in remarks_on_host(START, busy, cpus=4)[0]


def test_where_the_kernel_tells_nothing_the_load_average_speaks() -> None:
    before, after = (dataclasses.replace(m, busy_cpu_s=None, load_average=9.0) for m in (START, END))
    assert "load average was 9.0 on 4 CPUs" in remarks_on_host(before, after, cpus=4)[0]


def test_quota_and_swap_are_named() -> None:
    after = dataclasses.replace(END, throttled_s=2.0, pages_swapped=107)
    assert [word for text in remarks_on_host(START, after, cpus=4) for word in ("quota", "swapped 100") if word in text]
    assert len(remarks_on_host(START, after, cpus=4)) == 2


def test_a_steady_run_of_enough_queries_needs_no_words() -> None:
    assert remarks_on_run(Scenario.SINGLE_STREAM, result(np.full(700, 3.0))) == ()


@pytest.mark.parametrize(
    ("latencies", "said"),
    [
        (np.full(20, 3.0), "too short to trust"),
        (np.full(400, 3.0), "400 queries are too few for p99, which takes 662: about --duration 2 would do"),
        (np.repeat([3.0, 4.8], 400), "last third of the run was 60% slower"),
        (np.repeat([4.8, 3.0], 400), "38% faster"),
        (np.repeat([3.0, 3.6, 3.0], 300), "wandered by 20%"),
    ],
)
def test_what_is_shaky_is_said(latencies: np.ndarray, said: str) -> None:
    assert any(said in text for text in remarks_on_run(Scenario.SINGLE_STREAM, result(latencies)))


def test_a_queue_is_no_drift() -> None:
    growing = np.linspace(1.0, 50.0, 700)
    assert remarks_on_run(Scenario.SERVER, result(growing)) == ()


def test_counters_of_a_recorded_host(tmp_path: Path) -> None:
    for name, text in {
        "proc/stat": "cpu  1000 0 500 90000 77 0 0 0 0 0\ncpu0 1 2 3\n",
        "proc/vmstat": "pgpgin 5\npswpin 3\npswpout 4\n",
        "sys/fs/cgroup/cpu.stat": "usage_usec 5\nthrottled_usec 2500000\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen = moment(tmp_path)
    assert seen.busy_cpu_s == pytest.approx(15.0)
    assert seen.pages_swapped == 7
    assert seen.throttled_s == 2.5
    nothing = moment(tmp_path / "empty")
    assert (nothing.busy_cpu_s, nothing.pages_swapped, nothing.throttled_s) == (None, None, None)
