"""What `deploykit bench` does: open, check, measure each scenario, keep, compare with fp32."""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from deploykit.base.cpus import usable_cores
from deploykit.base.errors import UsageError
from deploykit.base.progress import SILENT, Progress
from deploykit.base.protocols import SampleSource, Session
from deploykit.base.vocab import Scenario
from deploykit.bench.inputs import feeds_from, random_feeds
from deploykit.bench.run import Settings, measure
from deploykit.bench.subject import subject_of
from deploykit.bench.watch import DeviceInHand, device_in_hand
from deploykit.results.compare import Comparison, against_fp32
from deploykit.results.measurement import Measurement
from deploykit.results.store import Store, StoreError
from deploykit.runtime import runtime as runtime_of

_GPU_PROVIDER = "cuda"
_CONCURRENT = frozenset((Scenario.OFFLINE, Scenario.SERVER))
"""Scenarios with more than one query in flight."""


@dataclass(frozen=True)
class Request:
    """What is asked of `run_bench`. Fields as in `run.Settings`, and:

    Attributes:
        target: Reference of what the machine at hand is.
        scenarios: One measurement each.
        streams: Sessions that run at the same time; scenarios with one query in flight use one.
        threads: Of one session; None: this process's physical cores ÷ streams.
        runtime: Name in `deploykit.runtime`.
        provider: Of that runtime; None: its CPU on the host, CUDA on a target that is a GPU.
        store: URL of the store; None: the usual one.
        allow_mismatch: Measure a machine that is not the target: the measurement is invalid.
    """

    target: str = "host"
    scenarios: tuple[Scenario, ...] = (Scenario.SINGLE_STREAM,)
    batch_size: int = 1
    duration_s: float | None = None
    warmup_ms: float = 500.0
    request_rate: float | None = None
    latency_bound_ms: float | None = None
    streams: int = 1
    threads: int | None = None
    runtime: str = "onnxruntime"
    provider: str | None = None
    percentiles: tuple[float, ...] = ()
    store: str | None = None
    allow_mismatch: bool = False

    def __post_init__(self) -> None:
        if Scenario.SERVER not in self.scenarios:
            for option, value in (("--request-rate", self.request_rate), ("--latency-ms", self.latency_bound_ms)):
                if value is not None:
                    raise UsageError(f"{option} is of Server, which decides when samples come: add --scenario Server")
        if self.streams > 1 and not _CONCURRENT.intersection(self.scenarios):
            raise UsageError(f"{self.scenarios[0]} has one query in flight: --streams is for Offline and Server")

    def settings(self, scenario: Scenario, inputs: str) -> Settings:
        """Of one scenario. `batch_size` is for those in which a batch is free."""
        batched = scenario in _CONCURRENT or len(self.scenarios) == 1
        return Settings(
            scenario=scenario,
            batch_size=self.batch_size if batched else 1,
            duration_s=self.duration_s,
            warmup_ms=self.warmup_ms,
            request_rate=self.request_rate,
            latency_bound_ms=self.latency_bound_ms,
            percentiles=self.percentiles,
            inputs=inputs,
        )


@dataclass(frozen=True)
class Benched:
    """One measurement.

    Attributes:
        against_fp32: How it compares with the newest fp32 run of the same kind; None where there is none.
        not_stored: Why the store would not take it; None: it did.
    """

    measurement: Measurement
    against_fp32: Comparison | None
    not_stored: StoreError | None = None


def run_bench(
    path: Path, request: Request, *, samples: SampleSource | None = None, progress: Progress = SILENT
) -> list[Benched]:
    """Measure an artifact or ONNX file on the machine at hand and keep the results.

    Args:
        path: Artifact folder or ONNX file.
        request: How.
        samples: Inputs; None: noise, which is as fast as anything else on a dense network.
        progress: Shows how far it is.

    Raises:
        DeviceAbsent: This machine is not the target.
        DeviceMismatch: It is, in another state than the target names.
        ProviderUnavailable: The provider would not run. Nothing is stored.
        UsageError: The request does not fit the model.
        NegativeAnswer: No rate holds the latency limit.
    """
    inputs = samples.description if samples else "random"
    settings = [request.settings(scenario, inputs) for scenario in request.scenarios]
    subject, done = subject_of(path), []
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(device_in_hand(request.target, allow_mismatch=request.allow_mismatch))
        store = stack.enter_context(Store(request.store))
        sessions = _sessions(subject.path, request, device, stack)
        feeds = feeds_from(samples) if samples else random_feeds(sessions[0].inputs)
        for one in settings:
            used = sessions if one.scenario in _CONCURRENT else sessions[:1]
            made = measure(subject, used, feeds, one, device, runtime=request.runtime, now=_now, progress=progress)
            done.append(_kept(made, store))
    return done


def _kept(made: Measurement, store: Store) -> Benched:
    """A store that fails after the run does not take the measurement with it."""
    try:
        store.append([made])
        return Benched(made, _against_fp32(made, store))
    except StoreError as error:
        return Benched(made, None, error)


def _sessions(path: Path, request: Request, device: DeviceInHand, stack: contextlib.ExitStack) -> list[Session]:
    """The model opened once a stream, all closed when the stack is."""
    chosen = runtime_of(request.runtime)
    if (why := chosen.unavailable()) is not None:
        raise UsageError(why)
    provider = request.provider or (_GPU_PROVIDER if device.on_gpu and request.runtime == "onnxruntime" else None)
    threads = request.threads or max(1, usable_cores() // request.streams)
    opened = (chosen.open(path, provider=provider, threads=threads) for _ in range(request.streams))
    return [stack.enter_context(session) for session in opened]


def _against_fp32(made: Measurement, store: Store) -> Comparison | None:
    alike = store.measurements(model=made.model, target=made.target, scenario=made.scenario.value, valid=True)
    return against_fp32(made, alike)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)
