"""MLPerf's LoadGen drives the load; this module is the system under test that it calls.

LoadGen decides when queries are issued, and its own records say how long each took: from its issue (in Server, from the
moment it was due) to the moment its answer was handed back. Only Offline, where one query holds all samples, is timed
here, a batch at a time: LoadGen's figure would say how long a sample stood in a queue of our own making.

LoadGen is a process-wide thing that runs one test at a time, writes log files (to a temporary folder, read and thrown
away) and calls back from its own threads. An exception must not cross its C++ frames: it is kept, the remaining queries
are answered unrun, and it is raised when LoadGen has come to its end. Nothing stops LoadGen earlier, and Ctrl-C would
be raised inside a call-back: so LoadGen has a thread of its own, and the caller's is the one that is interrupted.
"""

from __future__ import annotations

import gc
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.base.errors import DeploykitError, UsageError
from deploykit.base.vocab import Scenario
from deploykit.bench.loadgen_logs import Queries, queries_from_trace, verdict_from_detail

Infer = Callable[[Sequence[int]], None]
"""Run the samples of these indices as one batch; returns when their outputs are in host memory."""

MOST_QUERIES = 200_000
"""A run ends there whatever its duration: the trace takes room."""
_TRACE_BYTES = 700
"""Of LoadGen's trace, a query."""
_PLANNED_TOO_MANY = 2.0
"""LoadGen plans queries ahead from the expected latency and stops early, calling the run invalid, when they run out."""
_OFFLINE_MARGIN = 1.1
"""LoadGen makes Offline's query that much larger than rate × duration."""
_SEED = 3_066_443_479
"""Of the arrivals and of the order of samples. Any fixed number: the same run twice asks the same."""
_RUNNING = threading.Lock()


@dataclass(frozen=True)
class Load:
    """One LoadGen run.

    Attributes:
        scenario: What is asked of LoadGen.
        duration_s: Shortest run.
        longest_s: Where `least_queries` take longer than `duration_s`, stop there.
        least_queries: Go on until there are so many.
        samples: How many different samples there are.
        batch_size: Largest batch that is run at once. Server: as many of the waiting queries as fit.
        samples_per_query: MultiStream only: 8.
        expected_latency_ms: Of one query, from the warm-up.
        expected_ips: Offline only: rate from the warm-up, which sizes the one query that Offline is.
        request_rate: Server only: arrivals a second.
        latency_bound_ms: Server only: limit at p99; None: none.
    """

    scenario: Scenario
    duration_s: float
    longest_s: float
    least_queries: int = 1
    samples: int = 1
    batch_size: int = 1
    samples_per_query: int = 1
    expected_latency_ms: float = 1.0
    expected_ips: float = 1.0
    request_rate: float = 1.0
    latency_bound_ms: float | None = None


@dataclass(frozen=True)
class LoadResult:
    """What a run gave.

    Attributes:
        queries: What was timed: LoadGen's queries, in Offline our full batches.
        samples: Samples done.
        wall_s: From the start of the first to the end of the last.
        verdict: LoadGen's own verdict and percentiles, as its log has them.
    """

    queries: Queries
    samples: int
    wall_s: float
    verdict: dict[str, Any]


def drive(load: Load, infer: Sequence[Infer]) -> LoadResult:
    """Let LoadGen issue one scenario's queries.

    Args:
        load: The run.
        infer: One function a stream: batches of different streams run at the same time. SingleStream and MultiStream
            have one query in flight, and so one stream.

    Raises:
        UsageError: Another run is going on in this process, or a scenario without concurrency was given streams.
        DeploykitError: LoadGen refused the run or ran nothing.
        KeyboardInterrupt: At once. LoadGen comes to its end in the background, without running anything more; until
            then the next run is refused, and the process had better end by `os._exit`.
        BaseException: What `infer` raised.
    """
    if len(infer) > 1 and load.scenario in (Scenario.SINGLE_STREAM, Scenario.MULTI_STREAM):
        raise UsageError(f"{load.scenario} has one query in flight: it takes one stream, not {len(infer)}")
    with tempfile.TemporaryDirectory(prefix="deploykit-loadgen-", ignore_cleanup_errors=True) as folder:
        return _drive(load, infer, Path(folder))


def _drive(load: Load, infer: Sequence[Infer], folder: Path) -> LoadResult:
    import mlperf_loadgen

    system = _SYSTEMS[load.scenario](mlperf_loadgen, load, infer)
    with _without_collector():
        _to_its_end(system, lambda: _start(mlperf_loadgen, load, system, folder))
    if system.failure is not None:
        raise system.failure
    verdict = _verdict(folder)
    queries = system.queries(folder / "mlperf_log_trace.json")
    if not system.samples:
        raise DeploykitError(f"LoadGen ran no query: {verdict.get('errors') or 'it gave no reason'}")
    if system.traced and len(queries.latency_ms) * load.samples_per_query != system.samples:
        raise _cut_off(folder)
    return LoadResult(system.kept(queries), system.samples, queries.wall_s, verdict)


def _verdict(folder: Path) -> dict[str, Any]:
    try:
        with (folder / "mlperf_log_detail.txt").open(encoding="utf-8", errors="replace") as lines:
            return verdict_from_detail(lines)
    except ValueError as error:
        raise _cut_off(folder) from error


def _cut_off(folder: Path) -> DeploykitError:
    """LoadGen does not look whether its files took what it wrote."""
    return DeploykitError(
        f"LoadGen's record of the run was cut off: {folder.parent} is probably full. It takes up to "
        f"{MOST_QUERIES * _TRACE_BYTES >> 20} MB: make room there, or name another folder with TMPDIR"
    )


def _to_its_end(system: _System, start: Callable[[], None]) -> None:
    """Run LoadGen in a thread of its own and wait for it. What goes wrong there is the system's `failure`."""
    ended = threading.Event()

    def run() -> None:
        try:
            with system.running():
                start()
        except BaseException as error:  # noqa: BLE001 - raised by who waits
            system.failure = system.failure or error
        finally:
            _RUNNING.release()
            ended.set()

    if not _RUNNING.acquire(blocking=False):
        raise UsageError("another bench runs in this process, or one that was stopped: LoadGen runs one test at a time")
    threading.Thread(target=run, name="LoadGen", daemon=True).start()
    try:
        ended.wait()
    except BaseException as interrupt:
        system.failure = interrupt
        raise


@contextmanager
def _without_collector() -> Iterator[None]:
    """No garbage collection in the run: with torch loaded one pass takes tens of ms. The loop makes no cycles."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _System:
    """A system under test that answers in the thread that LoadGen calls from."""

    traced = True

    def __init__(self, lg: Any, load: Load, infer: Sequence[Infer]) -> None:
        self._lg = lg
        self._load = load
        self._infer = infer
        self.failure: BaseException | None = None
        self.samples = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around a run: start and end what it needs."""
        yield

    def queries(self, trace: Path) -> Queries:
        """What was timed."""
        with trace.open("rb") as lines:
            return queries_from_trace(lines)

    def kept(self, queries: Queries) -> Queries:
        """Those that are alike."""
        return queries

    def issue(self, queries: Sequence[Any]) -> None:
        """LoadGen's call: one query of one or more samples."""
        for start in range(0, len(queries), self._load.batch_size):
            self._run(self._infer[0], queries[start : start + self._load.batch_size])
        self._answer(queries)

    def flush(self) -> None:
        """LoadGen's call at the end of a series: nothing waits here."""

    def _run(self, infer: Infer, queries: Sequence[Any]) -> None:
        """Run a batch; after a failure only answer, so that LoadGen comes to its end."""
        if self.failure is not None:
            return
        try:
            infer([query.index for query in queries])
        except BaseException as error:  # noqa: BLE001 - nothing may cross LoadGen's C++; raised later
            self.failure = error

    def _answer(self, queries: Sequence[Any]) -> None:
        self.samples += len(queries)
        response = self._lg.QuerySampleResponse
        self._lg.QuerySamplesComplete([response(query.id, 0, 0) for query in queries])


class _Queued(_System):
    """A system whose streams take work from a queue, each in a thread of its own."""

    @contextmanager
    def running(self) -> Iterator[None]:
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._counting = threading.Lock()
        streams = [threading.Thread(target=self._serve, args=(infer,), daemon=True) for infer in self._infer]
        for stream in streams:
            stream.start()
        try:
            yield
        finally:
            for _ in streams:
                self._waiting.put(None)
            for stream in streams:
                stream.join()

    def _serve(self, infer: Infer) -> None:
        while (batch := self._take()) is not None:
            self._run(infer, batch)
            self._answer(batch)

    def _take(self) -> Sequence[Any] | None:
        """The next batch; None at the end."""
        raise NotImplementedError

    def _answer(self, queries: Sequence[Any]) -> None:
        with self._counting:
            super()._answer(queries)


class _Server(_Queued):
    """Queries wait; a stream takes as many as wait, up to the batch size, and never waits for more."""

    def issue(self, queries: Sequence[Any]) -> None:
        for query in queries:
            self._waiting.put(query)

    def _take(self) -> Sequence[Any] | None:
        first = self._waiting.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < self._load.batch_size:
            try:
                following = self._waiting.get_nowait()
            except queue.Empty:
                break
            if following is None:  # the end is for the next look
                self._waiting.put(None)
                break
            batch.append(following)
        return batch


class _Offline(_Queued):
    """One query holds all samples; streams take full batches of it, and each batch is timed."""

    traced = False

    def __init__(self, lg: Any, load: Load, infer: Sequence[Infer]) -> None:
        super().__init__(lg, load, infer)
        self._times_ns: list[tuple[int, int]] = []
        self._sizes: list[int] = []

    def issue(self, queries: Sequence[Any]) -> None:
        for start in range(0, len(queries), self._load.batch_size):
            self._waiting.put(queries[start : start + self._load.batch_size])

    def queries(self, trace: Path) -> Queries:
        """Our batches."""
        times = np.array(self._times_ns, dtype=np.float64).reshape(-1, 2) / 1e6
        return Queries(times[:, 0], times[:, 1] - times[:, 0])

    def kept(self, queries: Queries) -> Queries:
        """The last batch holds what is left, and is as fast as it is small."""
        full = np.array(self._sizes) == self._load.batch_size
        return Queries(queries.start_ms[full], queries.latency_ms[full]) if full.any() else queries

    def _take(self) -> Sequence[Any] | None:
        batch: Sequence[Any] | None = self._waiting.get()
        return batch

    def _run(self, infer: Infer, queries: Sequence[Any]) -> None:
        start = time.perf_counter_ns()
        super()._run(infer, queries)
        end = time.perf_counter_ns()
        with self._counting:
            self._times_ns.append((start, end))
            self._sizes.append(len(queries))


_SYSTEMS: dict[Scenario, type[_System]] = {
    Scenario.SINGLE_STREAM: _System,
    Scenario.MULTI_STREAM: _System,
    Scenario.OFFLINE: _Offline,
    Scenario.SERVER: _Server,
}


def _start(lg: Any, load: Load, system: _System, folder: Path) -> None:
    logs = lg.LogSettings()
    logs.enable_trace = system.traced
    logs.log_output.outdir = str(folder)
    logs.log_output.copy_summary_to_stdout = False
    under_test = lg.ConstructSUT(system.issue, system.flush)
    library = lg.ConstructQSL(load.samples, load.samples, _nothing, _nothing)
    try:
        # An `audit.config` in the user's folder must not change the run: name one that is not there.
        lg.StartTestWithLogSettings(under_test, library, _settings(lg, load), logs, str(folder / "no-audit.config"))
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
    settings.max_duration_ms = round(max(load.longest_s, load.duration_s) * 1000)
    settings.min_query_count = min(load.least_queries, MOST_QUERIES)
    settings.max_query_count = 0 if load.scenario is Scenario.OFFLINE else MOST_QUERIES
    expected_ns = max(1, round(load.expected_latency_ms / _PLANNED_TOO_MANY * 1e6))
    settings.single_stream_expected_latency_ns = expected_ns
    settings.multi_stream_expected_latency_ns = expected_ns
    settings.multi_stream_samples_per_query = load.samples_per_query
    settings.offline_expected_qps = load.expected_ips / _OFFLINE_MARGIN
    settings.server_target_qps = load.request_rate
    settings.server_target_latency_ns = round((load.latency_bound_ms or load.longest_s * 1e4) * 1e6)
    for name in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        setattr(settings, name, _SEED)
    return settings
