"""Measurements as training rows: which are comparable, and what each says of network, machine and software age.

Left out, with the reason: invalid rows (mixed use of a card, MaxQ clocks), runs through another server, runtimes other
than TensorRT, targets whose operating point nobody states, models without layer features, percentiles where the mean
of the same run is there too.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from deploykit.base.errors import UnknownNameError
from deploykit.base.vocab import Precision, Provenance, Scenario
from deploykit.predict.machine import Machine
from deploykit.predict.names import Network, network_named
from deploykit.predict.points import MLPERF, OWN, Point, offline_batch
from deploykit.results.measurement import Measurement
from deploykit.results.published import server_bound_ms

ROUND_YEAR = {
    "0.5": 2019.85, "0.7": 2020.8, "1.0": 2021.3, "1.1": 2021.7, "2.0": 2022.27, "2.1": 2022.7, "3.0": 2023.27,
    "3.1": 2023.7, "4.0": 2024.25, "4.1": 2024.65, "5.0": 2025.25, "5.1": 2025.7,
}  # fmt: skip
"""MLPerf Inference round → when its results came out."""
FIRST_ROUND_YEAR = {
    "resnet50": 2019.85, "mobilenet-v1": 2019.85, "ssd-mobilenet": 2019.85, "ssd-resnet34": 2019.85,
    "bert-large-99": 2020.8, "dlrm": 2020.8, "3d-unet-brats": 2020.8, "rnnt": 2020.8, "3d-unet-kits19": 2022.27,
    "retinanet": 2022.7, "gptj-6b": 2023.7, "dlrm-v2": 2023.7, "stable-diffusion-xl": 2024.25,
}  # fmt: skip
"""Network → the round it came into the benchmark with."""
UNDATED_YEAR = 2022.5
ERAS = ((2022.9, 2021.6), (math.inf, 2024.4))
"""Rounds up to v2.1 and from v3.0 on are pooled: (end, the year the pool is filed under)."""
TABLE_BATCHES = frozenset({1, 4, 16, 64, 128})
"""Batches that are kept of NVIDIA's tables of one model on one card, which list up to fourteen."""
CAREFUL_TABLES = ("NVIDIA/TensorRT", "NVIDIA/DeepLearningExamples")
"""Sources whose tables come from fixed clocks and a thousand iterations or more."""
_TENSORRT = frozenset({"tensorrt", "tensorrt-rtx"})
_MLPERF_SOURCE = re.compile(r"^MLPerf Inference v([0-9.]+)$")
_MLPERF_RUNTIMES = _TENSORRT | {None, ""}
"""MLPerf rows of NVIDIA's harness whose submitters left the framework out."""


@dataclass(frozen=True)
class Observation:
    """Comparable measurements of one point, pooled.

    Attributes:
        point: What was measured.
        log_ms: Natural logarithm of the ms of a query, or of one sample in throughput scenarios: the median.
        count: Measurements behind it.
        ids: Theirs.
    """

    point: Point
    log_ms: float
    count: int
    ids: tuple[str, ...]


def point_of(
    measurement: Measurement, machine: Machine, named: Mapping[str, Network] = MappingProxyType({})
) -> Point | str:
    """The point that a measurement speaks of, or in words why it cannot be used.

    Args:
        measurement: Published or own.
        machine: Its target.
        named: Networks by name that no table lists; they go first.
    """
    source = source_of(measurement)
    if not measurement.valid:
        return measurement.invalid_reasons[0]
    if measurement.runtime not in (_MLPERF_RUNTIMES if source == MLPERF else _TENSORRT):
        return f"runtime {measurement.runtime}: the predictor knows TensorRT engines only"
    if measurement.conditions.get("harness") == "Triton":
        return "served through Triton, whose own cost counts too"
    if measurement.streams > 1:
        return "several queries in flight at once"
    try:
        network = named.get(measurement.model) or network_named(network_name(measurement))
    except UnknownNameError:
        return f"no layer features of {measurement.model}"
    precision = measurement.precision or network.precision or Precision.FP16
    if not machine.supports(precision):
        return f"{machine.ref} has no {precision}"
    batch = _batch(measurement, offline_batch(network.features))
    if batch is None:
        return "the batch is not stated"
    if source.startswith(CAREFUL_TABLES) and batch not in TABLE_BATCHES:
        return "a batch between two that are kept"
    year = round_year(measurement)
    return Point(
        network=network,
        machine=machine,
        precision=precision,
        scenario=measurement.scenario,
        batch=batch,
        source=source,
        year=era(year),
        copies=_copies(measurement, source),
        dla=measurement.conditions.get("engines") == "GPU and both DLAs",
        fresh=source == MLPERF and year < FIRST_ROUND_YEAR.get(network.network, 0.0) + 0.2,
        limit_ms=_limit(measurement),
    )


def _copies(measurement: Measurement, source: str) -> bool:
    """Whether copies to the device count: in MLPerf unless a row says otherwise, in an own run where it says so."""
    transfers = measurement.conditions.get("transfers")
    return transfers is None if source == MLPERF else transfers == "host"


def network_name(measurement: Measurement) -> str:
    """The name to look features up by: sequence length is part of it where a table has several."""
    length = str(measurement.conditions.get("input_shape", ""))
    return (
        f"{measurement.model}-{length}"
        if length.startswith("seq") and "99" not in measurement.model
        else measurement.model
    )


def source_of(measurement: Measurement) -> str:
    """Whose way of measuring: rows of one source share their habits."""
    if measurement.provenance is Provenance.MEASURED:
        return OWN
    if _MLPERF_SOURCE.match(measurement.round or ""):
        return MLPERF
    return measurement.source.split(":")[1] if ":" in measurement.source else measurement.source


def round_year(measurement: Measurement) -> float:
    """When the software was current."""
    match = _MLPERF_SOURCE.match(measurement.round or "")
    if match and match[1] in ROUND_YEAR:
        return ROUND_YEAR[match[1]]
    return measurement.date.year + measurement.date.month / 12 if measurement.date else UNDATED_YEAR


def era(year: float) -> float:
    """The year a pool of rounds is filed under."""
    return next(filed for end, filed in ERAS if year < end)


def _limit(measurement: Measurement) -> float | None:
    """The limit a Server rate was held to: where a round's table leaves it out, the benchmark's own."""
    if measurement.scenario is not Scenario.SERVER:
        return None
    return measurement.latency_bound_ms or server_bound_ms(measurement.model)


def _batch(measurement: Measurement, offline: int) -> int | None:
    if measurement.scenario is Scenario.SINGLE_STREAM:
        return 1
    if measurement.scenario in (Scenario.OFFLINE, Scenario.SERVER):
        return offline
    return measurement.batch_size


def value_ms(measurement: Measurement) -> float | None:
    """ms of a query, or of one sample in throughput scenarios; None where the row holds neither."""
    if measurement.scenario in (Scenario.OFFLINE, Scenario.SERVER):
        return 1000.0 / measurement.throughput_ips if measurement.throughput_ips else None
    latency = measurement.latency_ms
    if measurement.scenario is Scenario.SINGLE_STREAM:
        return latency.p90
    if measurement.scenario is Scenario.MULTI_STREAM:
        return latency.p99
    if latency.mean or latency.p50:
        return latency.mean or latency.p50
    if measurement.throughput_ips and measurement.batch_size:
        return 1000.0 * measurement.batch_size / measurement.throughput_ips
    return None


def observations(
    measurements: Iterable[Measurement],
    machine_of: Callable[[str], Machine | str],
    named: Mapping[str, Network] = MappingProxyType({}),
) -> tuple[list[Observation], dict[str, int]]:
    """Pool comparable measurements: the median of each point.

    Args:
        measurements: Published or own.
        machine_of: Target slug → machine, or in words why there is none.
        named: Networks by name that no table lists.

    Returns:
        The observations, and reason → rows left out for it.
    """
    pools: dict[Point, list[tuple[float, str]]] = defaultdict(list)
    same: dict[str, Network] = {}
    left_out: dict[str, int] = defaultdict(int)
    for measurement in measurements:
        machine = machine_of(measurement.target)
        point = machine if isinstance(machine, str) else point_of(measurement, machine, named)
        value = value_ms(measurement)
        if isinstance(point, str) or value is None:
            left_out[point if isinstance(point, str) else "holds neither this scenario's latency nor a rate"] += 1
            continue
        network = same.setdefault(point.network.network, point.network)
        pools[replace(point, network=network)].append((value, measurement.id))
    return [_pooled(point, values) for point, values in pools.items()], dict(left_out)


def _pooled(point: Point, values: Sequence[tuple[float, str]]) -> Observation:
    median = float(np.median([value for value, _ in values]))
    return Observation(point, math.log(median), len(values), tuple(identity for _, identity in values))
