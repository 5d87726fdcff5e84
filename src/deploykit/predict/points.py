"""A question or an observation: one network on one machine under one scenario, and its analytic time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.kernels import Kind, ModelFeatures
from deploykit.predict.machine import Floats, Machine, fleet
from deploykit.predict.names import Network
from deploykit.predict.roofline import BatchTime, Constants, batch_time, dla_rate

THROUGHPUT = (Scenario.OFFLINE, Scenario.SERVER)
_OFFLINE_FLOPS = 4e12
"""Work of a batch that fills the largest card: Offline runs choose about that (2048 of ResNet-50 on an A100)."""
_OFFLINE_MOST = 1024
_DECODING_BATCH = 64
_SERVER_MOST_LOG2 = 10
_SERVER_SHARE_OF_LIMIT = 0.5
"""A query waits for the batch before its own, so that a batch may take half the limit."""


@dataclass(frozen=True)
class Point:
    """What is asked, or was measured.

    Attributes:
        network: The model.
        machine: The target.
        precision: Of the engine.
        scenario: SingleStream, MultiStream, FixedBatch: latency of a query; Offline, Server: a rate.
        batch: Samples a query; for Offline the engine's batch.
        source: Whose way of measuring: `mlperf`, a table's repository, `own`.
        year: When the software was current; MLPerf rounds have dates.
        copies: Whether host-to-device copies count.
        dla: Whether the DLAs work beside the GPU.
        fresh: Whether the network was in its first MLPerf round, before anybody had tuned it.
        limit_ms: Latency limit of a Server run.
    """

    network: Network
    machine: Machine
    precision: Precision
    scenario: Scenario
    batch: int
    source: str
    year: float
    copies: bool = True
    dla: bool = False
    fresh: bool = False
    limit_ms: float | None = None


@dataclass(frozen=True)
class Analytic:
    """Speed of light of N points, shapes [N].

    Attributes:
        log_ms: Natural logarithm of the ms of a query, or of one sample in throughput scenarios.
        shares: Which bound it is: [N, 8] inputs of the learned correction.
    """

    log_ms: Floats
    shares: Floats


def offline_batch(features: ModelFeatures) -> int:
    """The engine batch that an Offline run would choose: a power of two with about 4 TFLOP of work."""
    if any(group.kind is Kind.GEMM and group.steps > 1 for group in features.groups):
        return _DECODING_BATCH
    wanted = 2 ** round(math.log2(_OFFLINE_FLOPS / max(features.flops, 1.0)))
    return int(min(max(wanted, 1), _OFFLINE_MOST))


def analytic(points: Sequence[Point], constants: Constants) -> Analytic:
    """Speed of light of many points, one vectorised pass a network."""
    log_ms, shares = np.zeros(len(points)), np.zeros((len(points), 8))
    by_network: dict[int, list[int]] = defaultdict(list)
    for i, point in enumerate(points):
        by_network[id(point.network.features)].append(i)
    for indices in by_network.values():
        some = [points[i] for i in indices]
        log_ms[indices], shares[indices] = _one_network(some, constants)
    return Analytic(log_ms, shares)


def _one_network(points: list[Point], constants: Constants) -> tuple[Floats, Floats]:
    features = points[0].network.features
    machines = fleet([point.machine for point in points])
    precision = [point.precision for point in points]
    batch = _engine_batches(points, features, constants)
    time = batch_time(features, machines, batch, precision, constants)
    copies = time.copy_s * np.array([point.copies for point in points])
    overlapped = (time.device_s**4 + copies**4) ** 0.25 / batch
    extra = dla_rate(features, machines, constants) * np.array([point.dla for point in points])
    per_sample = 1.0 / (1.0 / overlapped + extra)
    rate = np.array([point.scenario in THROUGHPUT for point in points])
    seconds = np.where(rate, per_sample, time.device_s + time.host_s + copies)
    return np.log(seconds * 1e3), _shares(time, batch, rate)


def _engine_batches(points: list[Point], features: ModelFeatures, constants: Constants) -> Floats:
    """The batch an engine runs at: as asked, and for Server the largest whose time leaves room within the limit."""
    batch = np.array([float(point.batch) for point in points])
    served = [i for i, point in enumerate(points) if point.scenario is Scenario.SERVER and point.limit_ms]
    if served:
        machines = fleet([points[i].machine for i in served])
        precision = [points[i].precision for i in served]
        limit = np.array([points[i].limit_ms or math.inf for i in served]) * 1e-3 * _SERVER_SHARE_OF_LIMIT
        most = np.minimum(np.log2(np.maximum(batch[served], 1.0)).astype(int), _SERVER_MOST_LOG2)
        low, high = np.zeros(len(served), int), most + 1
        for _ in range(_SERVER_MOST_LOG2.bit_length()):
            middle = (low + high) // 2
            fits = batch_time(features, machines, 2.0**middle, precision, constants).device_s <= limit
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        best = 2.0**low
        batch[served] = best
    return batch


def _shares(time: BatchTime, batch: Floats, rate: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """Which bound a point sits on: the residual is smooth in these, whatever the network."""
    whole = time.compute + time.dram + time.cache + time.launch
    host = np.where(rate, 0.0, time.host_s / (time.host_s + time.device_s))
    return np.column_stack(
        [
            time.compute / whole,
            time.dram / whole,
            time.cache / whole,
            time.launch / whole,
            host,
            np.log2(batch) / 8.0,
            np.clip(time.power, 0.0, 2.0),
            np.log(time.device_s * 1e3) / 4.0,
        ]
    )
