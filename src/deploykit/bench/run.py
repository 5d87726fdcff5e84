"""Warm up, let LoadGen measure, watch the device, record."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deploykit.base.errors import NegativeAnswer, UsageError
from deploykit.base.progress import SILENT, Progress
from deploykit.base.protocols import Session
from deploykit.base.vocab import Precision, Scenario
from deploykit.bench import stats
from deploykit.bench.conditions import versions
from deploykit.bench.guard import CLOSED, remarks_on_run
from deploykit.bench.inputs import Feeds, batched, fixed_batch, stacked
from deploykit.bench.loadgen import Infer, Load, LoadResult, drive
from deploykit.bench.search import falling_rates, highest_rate
from deploykit.bench.subject import Subject
from deploykit.bench.watch import DeviceInHand, Watch
from deploykit.results.measurement import Measurement
from deploykit.results.store import measurement_id

DEFAULT_S = 10.0
LONGEST_S = 60.0
"""Without --duration a run goes on past `DEFAULT_S` until p99 has the queries that it takes, and ends here."""
MULTI_STREAM_SAMPLES = 8
"""MLPerf's MultiStream."""
_LEAST_WARM_UPS = 3
_SHORT_S = 1.5
"""Of a run in the search for the highest rate, at least."""
_SHORT_QUERIES = 100
_TICK_S = 0.25
_ALLOWED_ABOVE = 0.01
"""Share of queries that may miss the limit: p99."""


@dataclass(frozen=True)
class Settings:
    """What is asked of a run.

    Attributes:
        scenario: MLPerf's scenario.
        batch_size: Offline: samples run at once. Server: as many of those that wait, at most.
        duration_s: Of the run; None: `DEFAULT_S`, longer where p99 takes longer.
        warmup_ms: Unmeasured running before it.
        request_rate: Server: arrivals in samples/s; None: search the highest that holds `latency_bound_ms`.
        latency_bound_ms: Server: limit at p99.
        percentiles: Further percentiles to record, in percent.
        inputs: What the inputs are, for the record.
    """

    scenario: Scenario = Scenario.SINGLE_STREAM
    batch_size: int = 1
    duration_s: float | None = None
    warmup_ms: float = 500.0
    request_rate: float | None = None
    latency_bound_ms: float | None = None
    percentiles: tuple[float, ...] = ()
    inputs: str = "random"

    def __post_init__(self) -> None:
        for name in ("duration_s", "request_rate", "latency_bound_ms"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"{name.replace('_', ' ')} {value:g} is not a number above 0")
        if wrong := [p for p in self.percentiles if not 0 < p < 100]:
            raise UsageError(f"--percentile {wrong[0]:g} does not lie between 0 and 100")
        if self.scenario is Scenario.FIXED_BATCH:
            raise UsageError("LoadGen has no FixedBatch: Offline with --batch runs one batch after another")
        if self.scenario is Scenario.SERVER and self.request_rate is None and self.latency_bound_ms is None:
            raise UsageError(
                "Server needs --request-rate, or --latency-ms to search the highest rate that holds it at p99"
            )
        if self.scenario in (Scenario.SINGLE_STREAM, Scenario.MULTI_STREAM) and self.batch_size != 1:
            each = 1 if self.scenario is Scenario.SINGLE_STREAM else MULTI_STREAM_SAMPLES
            raise UsageError(
                f"a {self.scenario} query holds {each} samples, whatever --batch says: batches of "
                f"{self.batch_size} are measured with --scenario Offline"
            )


@dataclass(frozen=True)
class WarmUp:
    """What the warm-up showed.

    Attributes:
        runs: How many.
        batch_ms: Median time of one batch, the first runs left out.
    """

    runs: int
    batch_ms: float


def measure(
    subject: Subject,
    sessions: Sequence[Session],
    samples: Sequence[Feeds],
    settings: Settings,
    device: DeviceInHand,
    *,
    runtime: str,
    now: Callable[[], dt.datetime],
    progress: Progress = SILENT,
) -> Measurement:
    """Measure one scenario.

    Args:
        subject: What is measured.
        sessions: The model opened once for each stream.
        samples: Batches of one, as many different ones as there are.
        settings: How.
        device: What it runs on.
        runtime: Name of what opened the sessions.
        now: The clock on the wall.
        progress: Shows how far it is.

    Raises:
        UsageError: The model cannot run the scenario.
        NegativeAnswer: No rate holds the latency limit.
    """
    batch = _batch_size(settings, fixed_batch(sessions[0].inputs))
    infer = [_infer_of(session, samples, batch) for session in sessions]
    warmed = [warm_up(one, batch, settings.warmup_ms) for one in infer]
    warm = warmed[0]
    load = _load(settings, batch, warm, len(samples), len(sessions))
    started = now()
    if settings.scenario is Scenario.SERVER and settings.request_rate is None:
        load, result, watch = _search(load, infer, device, batch / warm.batch_ms * 1e3 * len(infer), progress)
    else:
        result, watch = _watched(load, infer, device, progress)
    seen = device.fields(
        watch,
        result.samples,
        provider=sessions[0].provider,
        latencies_ms=result.queries.latency_ms.tolist() if settings.scenario in CLOSED else (),
    )
    made = _measurement(subject, sessions, settings, load, warm, result, seen)
    made = made.model_copy(update={"runtime": runtime, "date": started})
    return made.model_copy(update={"id": measurement_id(made.model_dump(mode="json", exclude_defaults=True))})


def _batch_size(settings: Settings, fixed: int | None) -> int:
    """Samples run at once.

    Raises:
        UsageError: The model's batch is fixed to another size.
    """
    wanted = MULTI_STREAM_SAMPLES if settings.scenario is Scenario.MULTI_STREAM else settings.batch_size
    if fixed is None or fixed == wanted:
        return wanted
    if settings.scenario is Scenario.MULTI_STREAM and fixed == 1:
        return 1
    raise UsageError(
        f"the model's batch is fixed to {fixed}, and {settings.scenario} runs batches of {wanted}: "
        + (f"give --scenario Offline --batch {fixed}, or " if fixed > 1 else "")
        + "export it again with an open batch"
    )


def _infer_of(session: Session, samples: Sequence[Feeds], batch: int) -> Infer:
    """What LoadGen's indices run. A batch that a fixed shape leaves unfilled is filled up with its last sample."""
    fixed, names = fixed_batch(session.inputs), batched(session.inputs)

    def infer(indices: Sequence[int]) -> None:
        chosen = [samples[index] for index in indices]
        if fixed is not None and len(chosen) < batch:
            chosen += chosen[-1:] * (batch - len(chosen))
        session.infer(stacked(chosen, names))

    return infer


def warm_up(infer: Infer, batch: int, warmup_ms: float) -> WarmUp:
    """Run the first sample's batch for a while; errors of the model show here, outside LoadGen."""
    times: list[float] = []
    until = time.perf_counter() + warmup_ms / 1e3
    while len(times) < _LEAST_WARM_UPS or time.perf_counter() < until:
        start = time.perf_counter()
        infer([0] * batch)
        times.append((time.perf_counter() - start) * 1e3)
    return WarmUp(len(times), float(np.median(times[len(times) // 2 :])))


def _load(settings: Settings, batch: int, warm: WarmUp, samples: int, streams: int) -> Load:
    per_query = MULTI_STREAM_SAMPLES if settings.scenario is Scenario.MULTI_STREAM else 1
    duration_s = settings.duration_s or DEFAULT_S
    return Load(
        scenario=settings.scenario,
        duration_s=duration_s,
        longest_s=settings.duration_s or LONGEST_S,
        least_queries=1 if settings.duration_s else stats.needed_samples(99.0),
        samples=samples,
        batch_size=batch,
        samples_per_query=per_query,
        expected_latency_ms=warm.batch_ms * max(1, per_query / batch),
        expected_ips=batch / warm.batch_ms * 1e3 * streams,
        request_rate=settings.request_rate or 1.0,
        latency_bound_ms=settings.latency_bound_ms,
    )


def _watched(load: Load, infer: Sequence[Infer], device: DeviceInHand, progress: Progress) -> tuple[LoadResult, Watch]:
    with device.watching() as watch, _ticking(progress, str(load.scenario), load.duration_s):
        result = drive(load, infer)
    return result, watch


def _search(
    load: Load, infer: Sequence[Infer], device: DeviceInHand, most_ips: float, progress: Progress
) -> tuple[Load, LoadResult, Watch]:
    """Short runs find the rate, long ones confirm it."""
    bound_ms = load.latency_bound_ms
    assert bound_ms is not None
    short_s = max(_SHORT_S, load.duration_s / 6)
    short = replace(load, duration_s=short_s, longest_s=2 * short_s, least_queries=_SHORT_QUERIES)

    def holds(rate: float) -> bool:
        with _ticking(progress, f"Server at {rate:.3g}/s", short_s):
            return _held(drive(replace(short, request_rate=rate), infer), bound_ms)

    rate = highest_rate(holds, most_ips)
    if rate is None:
        raise NegativeAnswer(
            f"no rate holds {bound_ms:g} ms at p99 here: a lone query takes about {load.expected_latency_ms:.3g} ms"
        )
    for attempt in falling_rates(rate):
        full = replace(load, request_rate=attempt)
        result, watch = _watched(full, infer, device, progress)
        if _held(result, bound_ms):
            break
    return full, result, watch


def _held(result: LoadResult, bound_ms: float) -> bool:
    return float(np.mean(result.queries.latency_ms > bound_ms)) <= _ALLOWED_ABOVE


@contextlib.contextmanager
def _ticking(progress: Progress, description: str, seconds: float) -> Iterator[None]:
    """A bar that moves with time: LoadGen keeps the calling thread until it is done. It only sleeps and draws."""
    if progress is SILENT:
        yield
        return
    done = threading.Event()
    ticks = max(1, round(seconds / _TICK_S))

    def tick() -> None:
        for _ in progress.track(range(ticks), description):
            if done.wait(_TICK_S):
                return

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _measurement(
    subject: Subject,
    sessions: Sequence[Session],
    settings: Settings,
    load: Load,
    warm: WarmUp,
    result: LoadResult,
    seen: dict[str, Any],
) -> Measurement:
    session, queries = sessions[0], result.queries
    server = settings.scenario is Scenario.SERVER
    per_query = load.batch_size if settings.scenario is Scenario.OFFLINE else load.samples_per_query
    remarks = (*subject.remarks, *_remarks(subject, session, settings, load, result), *seen.pop("remarks"))
    return Measurement(
        id="not known yet",
        model=subject.model,
        precision=subject.precision,
        dialect=subject.dialect.value if subject.dialect else None,
        provider=session.provider,
        scenario=settings.scenario,
        batch_size=per_query,
        streams=len(sessions),
        latency_ms=stats.latency_from_samples(queries.latency_ms),
        blocks_p50_ms=stats.block_medians(queries.latency_ms),
        latency_bound_ms=settings.latency_bound_ms if server else None,
        throughput_ips=result.samples / result.wall_s,
        offered_ips=load.request_rate if server else None,
        samples=result.samples,
        queries=len(queries.latency_ms),
        duration_s=result.wall_s,
        artifact=subject.digest,
        source="this machine",
        remarks=remarks,
        **seen | {"conditions": _conditions(session, settings, load, warm, result) | seen["conditions"]},
    )


def _conditions(session: Session, settings: Settings, load: Load, warm: WarmUp, result: LoadResult) -> dict[str, Any]:
    ordered = np.sort(result.queries.latency_ms)
    named = stats.PERCENTILES | {f"p{p:g}".replace(".", "_"): p for p in settings.percentiles}
    bounds = {name: stats.upper_bound(ordered, percent) for name, percent in named.items()}
    return {
        **session.settings,
        "transfers": "host",
        "cuda_graph": False,
        "inputs": settings.inputs,
        "different_samples": load.samples,
        "latency_of": "batch" if settings.scenario is Scenario.OFFLINE else "query",
        "run_at_once": load.batch_size,
        "batch_limit": load.batch_size if settings.scenario is Scenario.SERVER else None,
        "warm_up": {"runs": warm.runs, "ms": settings.warmup_ms, "batch_ms": warm.batch_ms},
        "asked_duration_s": settings.duration_s,
        "percentiles_ms": {name: stats.percentile(ordered, named[name]) for name in named},
        "upper_bounds_ms": bounds,
        "needed_queries": {name: stats.needed_samples(named[name]) for name, bound in bounds.items() if bound is None},
        "quantiles_ms": stats.quantile_sketch(ordered),
        "loadgen": result.verdict,
        "versions": versions(),
    }


def _remarks(subject: Subject, session: Session, settings: Settings, load: Load, result: LoadResult) -> Iterator[str]:
    if subject.precision is Precision.FP16 and session.provider == "CPUExecutionProvider":
        yield "onnxruntime's CPU provider computes FP16 graphs in FP32: this is no FP16 speed"
    if load.samples_per_query > load.batch_size:
        yield f"the {load.samples_per_query} samples of a query ran one after another: the model's batch is fixed to 1"
    if settings.scenario is Scenario.SERVER and settings.latency_bound_ms is not None:
        if not _held(result, settings.latency_bound_ms):
            yield f"{load.request_rate:.4g} samples/s missed the limit of {settings.latency_bound_ms:g} ms at p99"
        elif result.verdict.get("result_validity") != "VALID":
            yield "LoadGen asks for more queries before it calls the limit held with 99 % confidence: run longer"
    yield from remarks_on_run(settings.scenario, result)
