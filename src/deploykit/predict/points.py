"""A question or an observation: one network on one machine under one scenario, and its analytic time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.kernels import Kind, ModelFeatures, sized
from deploykit.predict.machine import Floats, Machine, fleet
from deploykit.predict.names import Network
from deploykit.predict.roofline import BatchTime, Constants, batch_time, dla_rate

THROUGHPUT = (Scenario.OFFLINE, Scenario.SERVER)
MLPERF = "mlperf"
OWN = "own"
"""Sources whose clock is LoadGen's."""
_TIMED_ON_DEVICE = frozenset({"NVIDIA/TensorRT"})
"""Tables whose clock is the device's own, between two events on its stream."""
_SLOW_HOST = 1.5
"""Time of a host call on a Jetson's cores ÷ on a server's."""
_OFFLINE_FLOPS = 4e12
"""Work of a batch that fills the largest card: Offline runs choose about that (2048 of ResNet-50 on an A100)."""
_OFFLINE_MOST = 1024
_DECODING_BATCH = 64
_HALVINGS = 11
"""Engine batches that are tried: the largest, half of it, and so on to a thousandth."""
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
    """Speed of light of many points, one vectorised pass a network and size of samples."""
    log_ms, shares = np.zeros(len(points)), np.zeros((len(points), 8))
    alike: dict[ModelFeatures, list[int]] = defaultdict(list)
    for i, point in enumerate(points):
        alike[sized(point.network.features, _size(point))].append(i)
    for features, indices in alike.items():
        some = [points[i] for i in indices]
        log_ms[indices], shares[indices] = _one_network(some, features, constants)
    return Analytic(log_ms, shares)


def _size(point: Point) -> float:
    """Size of the samples that a figure speaks of ÷ the mean: a latency is the 90th percentile of queries.

    The sizes of a batch's samples average out with the root of their number.
    """
    if point.scenario in THROUGHPUT:
        return 1.0
    return round(1.0 + (point.network.features.p90_size - 1.0) / math.sqrt(point.batch), 4)


def _one_network(points: list[Point], features: ModelFeatures, constants: Constants) -> tuple[Floats, Floats]:
    machines = fleet([point.machine for point in points])
    precision = [point.precision for point in points]
    batch = _engine_batches(points, features, constants)
    time = batch_time(features, machines, batch, precision, constants)
    copies = time.copy_s * np.array([point.copies for point in points])
    overlapped = (time.device_s**4 + copies**4) ** 0.25 / batch
    extra = dla_rate(features, machines, constants) * np.array([point.dla for point in points])
    per_sample = 1.0 / (1.0 / overlapped + extra)
    rate = np.array([point.scenario in THROUGHPUT for point in points])
    host = np.where(rate, 0.0, [_host_s(point, constants) for point in points])
    seconds = np.where(rate, per_sample, time.device_s + host + copies)
    return np.log(seconds * 1e3), _shares(time, batch, host)


def _host_s(point: Point, constants: Constants) -> float:
    """Seconds of a query outside the device, as far as its source's clock sees them."""
    if point.source in _TIMED_ON_DEVICE:
        return 0.0
    one = constants.host_us if point.source in (MLPERF, OWN) else constants.script_us
    return one * 1e-6 * (_SLOW_HOST if point.machine.integrated else 1.0)


def _engine_batches(points: list[Point], features: ModelFeatures, constants: Constants) -> Floats:
    """The batch an engine runs at: as asked, but for rates the best one up to that.

    A large batch fills the device, a small one stays in L2: NVIDIA's own Offline runs take 2048 of ResNet-50 on an A100
    and 32 on an L4. A Server batch must also leave room within the limit.
    """
    batch = np.array([float(point.batch) for point in points])
    rates = [i for i, point in enumerate(points) if point.scenario in THROUGHPUT]
    if not rates:
        return batch
    sizes = np.maximum(batch[rates] / 2.0 ** np.arange(_HALVINGS)[:, None], 1.0)
    machines = fleet([points[i].machine for i in rates] * _HALVINGS)
    precision = [points[i].precision for i in rates] * _HALVINGS
    time = batch_time(features, machines, sizes.ravel(), precision, constants).device_s.reshape(sizes.shape)
    room = np.array([(points[i].limit_ms or math.inf) * 1e-3 * _SERVER_SHARE_OF_LIMIT for i in rates])
    per_sample = np.where(time <= room, time / sizes, np.inf)
    per_sample[-1] = np.where(np.isfinite(per_sample).any(0), per_sample[-1], 0.0)
    batch[rates] = sizes[per_sample.argmin(0), np.arange(len(rates))]
    return batch


def _shares(time: BatchTime, batch: Floats, host_s: Floats) -> Floats:
    """Which bound a point sits on: the residual is smooth in these, whatever the network."""
    whole = time.compute + time.dram + time.cache + time.launch
    return np.column_stack(
        [
            time.compute / whole,
            time.dram / whole,
            time.cache / whole,
            time.launch / whole,
            host_s / (host_s + time.device_s),
            np.log2(batch) / 8.0,
            np.clip(time.power, 0.0, 2.0),
            np.log(time.device_s * 1e3) / 4.0,
        ]
    )
