"""MLPerf's LoadGen drives the load; this module is the system under test that it calls.

LoadGen decides when queries are issued and whether a run is valid by its rules. Latencies are taken here, at the two
ends of what LoadGen itself measures: from the moment it issues a query (in Server, at the query's scheduled arrival) to
the moment the response is handed back. Its own percentiles are kept beside ours (`loadgen` in the conditions).

It is one run at a time and a process-wide thing: it writes log files, which go to a temporary folder and are read and
thrown away, and it calls back from its own threads.
"""

from __future__ import annotations

import json
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.base.errors import DeploykitError, MissingExtraError
from deploykit.base.vocab import Scenario

Infer = Callable[[Sequence[int]], None]
"""Run the samples of these indices as one batch; returns when their outputs are in host memory."""

_LOG_PREFIX = ":::MLLOG "
_KEPT_KEYS = (
    "result_validity",
    "result_invalid_reason",
    "early_stopping_met",
    "num_errors",
    "result_perf_constraints_met",
)


@dataclass(frozen=True)
class Load:
    """One LoadGen run.

    Attributes:
        scenario: What is asked of LoadGen.
        duration_s: Shortest run.
        samples: How many different samples there are.
        batch_size: Largest batch that is run at once. Server: as many of the waiting queries as fit.
        samples_per_query: MultiStream only: 8.
        expected_latency_ms: Of one query, from the warm-up; LoadGen plans its queries by it.
        expected_ips: Offline only: rate from the warm-up, which sizes the one query that Offline is.
        request_rate: Server only: arrivals per second.
        latency_ms: Server only: limit at p99.
        streams: Server and Offline: batches in flight at once.
        seed: Of the sample order and of the arrivals.
    """

    scenario: Scenario
    duration_s: float
    samples: int
    batch_size: int = 1
    samples_per_query: int = 1
    expected_latency_ms: float = 1.0
    expected_ips: float = 1.0
    request_rate: float = 1.0
    latency_ms: float = 1000.0
    streams: int = 1
    seed: int = 0


@dataclass(frozen=True)
class LoadResult:
    """What a run gave.

    Attributes:
        latencies_ms: float64 [queries], in the order of completion.
        samples: Samples done.
        wall_s: From the first query issued to the last response.
        loadgen: LoadGen's own verdict and percentiles (ns), as its log has them.
    """

    latencies_ms: np.ndarray[Any, np.dtype[np.float64]]
    samples: int
    wall_s: float
    loadgen: dict[str, Any]


@dataclass
class _Clock:
    """When queries were issued and answered; appended to from LoadGen's and our threads."""

    latencies_ns: list[int] = field(default_factory=list)
    samples: int = 0
    first_ns: int | None = None
    last_ns: int = 0

    def issued(self) -> int:
        now = time.perf_counter_ns()
        if self.first_ns is None:
            self.first_ns = now
        return now

    def answered(self, issued_ns: Sequence[int], samples: int) -> None:
        self.last_ns = time.perf_counter_ns()
        self.latencies_ns += [self.last_ns - issued for issued in issued_ns]
        self.samples += samples


def drive(load: Load, infer: Infer) -> LoadResult:
    """Let LoadGen issue one scenario's queries.

    Raises:
        MissingExtraError: LoadGen is not installed.
        DeploykitError: LoadGen refused the run, or answered nothing.
        Exception: What `infer` raised; the run is let end first, since LoadGen cannot be stopped.
    """
    lg = _import()
    clock = _Clock()
    system = _SYSTEMS[load.scenario](lg, load, infer, clock)
    with tempfile.TemporaryDirectory(prefix="deploykit-loadgen-") as folder, system.running():
        _start(lg, load, system, Path(folder))
        log = _read_log(Path(folder) / "mlperf_log_detail.txt")
    if system.failure is not None:
        raise system.failure
    if not clock.latencies_ns or clock.first_ns is None:
        raise DeploykitError(f"LoadGen ran no query: {log.get('errors') or 'it gave no reason'}")
    return LoadResult(
        latencies_ms=np.array(clock.latencies_ns, dtype=np.float64) / 1e6,
        samples=clock.samples,
        wall_s=(clock.last_ns - clock.first_ns) / 1e9,
        loadgen=log,
    )


class _System:
    """A system under test: answers the queries in the thread that LoadGen calls from."""

    def __init__(self, lg: Any, load: Load, infer: Infer, clock: _Clock) -> None:
        self._lg = lg
        self._load = load
        self._infer = infer
        self._clock = clock
        self.failure: Exception | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around a run: start and end what it needs."""
        yield

    def issue(self, queries: Sequence[Any]) -> None:
        """LoadGen's call: one query of one or more samples."""
        issued = self._clock.issued()
        for start in range(0, len(queries), self._load.batch_size):
            self._run([query.index for query in queries[start : start + self._load.batch_size]])
        self._clock.answered([issued], len(queries))
        self._complete(queries)

    def flush(self) -> None:
        """LoadGen's call at the end of a series: nothing waits here."""

    def _run(self, indices: list[int]) -> None:
        """Run a batch; after a failure only answer, so that LoadGen comes to its end."""
        if self.failure is not None:
            return
        try:
            self._infer(indices)
        except Exception as error:  # noqa: BLE001 - an exception must not cross LoadGen's C++; `drive` raises it again
            self.failure = error

    def _complete(self, queries: Sequence[Any]) -> None:
        self._lg.QuerySamplesComplete([self._lg.QuerySampleResponse(query.id, 0, 0) for query in queries])


class _Offline(_System):
    """One query holds all samples; batches of it are answered as they are done."""

    def issue(self, queries: Sequence[Any]) -> None:
        for start in range(0, len(queries), self._load.batch_size):
            batch = queries[start : start + self._load.batch_size]
            issued = self._clock.issued()
            self._run([query.index for query in batch])
            self._clock.answered([issued], len(batch))
            self._complete(batch)


class _Server(_System):
    """Queries wait in a queue; each stream takes as many as wait, up to the batch size."""

    @contextmanager
    def running(self) -> Iterator[None]:
        self._waiting: queue.SimpleQueue[tuple[Any, int] | None] = queue.SimpleQueue()
        streams = [threading.Thread(target=self._serve, daemon=True) for _ in range(self._load.streams)]
        for stream in streams:
            stream.start()
        try:
            yield
        finally:
            for _ in streams:
                self._waiting.put(None)
            for stream in streams:
                stream.join()

    def issue(self, queries: Sequence[Any]) -> None:
        issued = self._clock.issued()
        for query in queries:
            self._waiting.put((query, issued))

    def _serve(self) -> None:
        while (batch := self._take()) is not None:
            queries = [query for query, _ in batch]
            self._run([query.index for query in queries])
            self._clock.answered([issued for _, issued in batch], len(batch))
            self._complete(queries)

    def _take(self) -> list[tuple[Any, int]] | None:
        """The next batch: waits for one query, then takes what is there. None at the end."""
        first = self._waiting.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < self._load.batch_size:
            try:
                following = self._waiting.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._waiting.put(None)
                break
            batch.append(following)
        return batch


_SYSTEMS: dict[Scenario, type[_System]] = {
    Scenario.SINGLE_STREAM: _System,
    Scenario.MULTI_STREAM: _System,
    Scenario.OFFLINE: _Offline,
    Scenario.SERVER: _Server,
}


def _import() -> Any:
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise MissingExtraError("mlcommons-loadgen", "cpu", "bench") from error
    return mlperf_loadgen


def _start(lg: Any, load: Load, system: _System, folder: Path) -> None:
    settings, logs = _settings(lg, load), lg.LogSettings()
    logs.enable_trace = False
    logs.log_output.outdir = str(folder)
    logs.log_output.copy_summary_to_stdout = False
    under_test = lg.ConstructSUT(system.issue, system.flush)
    library = lg.ConstructQSL(load.samples, load.samples, _nothing, _nothing)
    try:
        # An `audit.config` in the user's folder must not change the run: name one that is not there.
        lg.StartTestWithLogSettings(under_test, library, settings, logs, str(folder / "no-audit.config"))
    finally:
        lg.DestroyQSL(library)
        lg.DestroySUT(under_test)


def _nothing(_indices: list[int]) -> None:
    """Samples are in memory before LoadGen starts."""


def _settings(lg: Any, load: Load) -> Any:
    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, str(load.scenario))
    settings.mode = lg.TestMode.PerformanceOnly
    settings.min_duration_ms = round(load.duration_s * 1000)
    settings.min_query_count = 1
    settings.single_stream_expected_latency_ns = round(load.expected_latency_ms * 1e6)
    settings.multi_stream_expected_latency_ns = round(load.expected_latency_ms * 1e6)
    settings.multi_stream_samples_per_query = load.samples_per_query
    settings.offline_expected_qps = load.expected_ips
    settings.server_target_qps = load.request_rate
    settings.server_target_latency_ns = round(load.latency_ms * 1e6)
    for name in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        setattr(settings, name, load.seed)
    return settings


def _read_log(path: Path) -> dict[str, Any]:
    """LoadGen's verdict and percentiles; what it called errors."""
    found: dict[str, Any] = {}
    errors = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith(_LOG_PREFIX):
            continue
        entry = json.loads(line[len(_LOG_PREFIX) :])
        if entry["metadata"]["is_error"]:
            errors.append(str(entry["value"]))
        if entry["key"] in _KEPT_KEYS or entry["key"].endswith("_percentile_latency_ns"):
            found[entry["key"]] = entry["value"]
    return found | ({"errors": errors} if errors else {})
