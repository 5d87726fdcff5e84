"""fp32 artifact + samples → calibration: every activation that INT8 may need, streamed into histograms."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from deploykit.base.artifact import Artifact
from deploykit.base.cpus import usable_cores, usable_cpus
from deploykit.base.errors import UsageError
from deploykit.base.progress import SILENT, Progress
from deploykit.base.protocols import Arrays, OpenSession, SampleSource, Session
from deploykit.base.vocab import CalibrationMethod, Precision
from deploykit.precision import calibrators
from deploykit.precision.calibration import Calibration, Kind, TensorRange
from deploykit.precision.fitness import input_sqnr_db
from deploykit.precision.graph import Graph, load_graph
from deploykit.precision.histogram import Histogram, NotFinite, compiled
from deploykit.precision.layers import data_channel_axis, find_layers, refuse_quantized, weight_energy
from deploykit.precision.qdq import candidate_tensors
from deploykit.precision.simplify import simplify
from deploykit.precision.watch import write_watched

MOST_AT_ONCE = 4
"""Samples in flight, each on its share of the cores: as fast as all cores on one sample, and histograms are not waited
for. More would need more memory: the activations of a sample are held until they are counted."""

SMALLEST_THRESHOLD = 2.0**-60
"""Scales stay far from denormal numbers, also when a runtime multiplies two of them in single precision."""

DEAD_THRESHOLD = 1.0
"""Of a tensor that was zero throughout: any step writes zero as zero."""

_FOLDER_PREFIX = ".calibration-"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Observations:
    """What all samples together showed, before any method has had its say.

    Attributes:
        histograms: Activation → what was kept of it.
        weight_energy: Layer → activation it reads, and the squared weights that meet each channel of it.
        samples: Samples seen.
    """

    histograms: Mapping[str, Histogram]
    weight_energy: Mapping[str, tuple[str, Array]]
    samples: int


def calibrate(
    parent: Artifact,
    source: SampleSource,
    *,
    method: CalibrationMethod,
    samples: int,
    data_digest: str,
    open_session: OpenSession,
    percentile: float = calibrators.PERCENTILE,
    progress: Progress = SILENT,
) -> Calibration:
    """Gather the ranges of an artifact's activations.

    Args:
        parent: An fp32 artifact.
        source: Inputs, fed one at a time: every model takes a batch of 1 or can be told so.
        method: How a histogram becomes a threshold.
        samples: How many to use at most.
        data_digest: Of those samples, from `calib_data.data_digest`.
        open_session: Loads an ONNX file for `infer` calls from several threads, each on so many threads of its own.
        percentile: Of the percentile method.
        progress: Told of each sample.

    Raises:
        UsageError: The artifact is not fp32, is quantized already, or an activation is NaN or Inf.
        MissingExtraError: numba is not installed.
    """
    seen = observe(parent, source, samples=samples, open_session=open_session, progress=progress)
    progress.step("Choosing thresholds")
    ranges = choose_ranges(seen, method, percentile)
    return Calibration(
        model=parent.digest,
        preprocessing=parent.manifest.preprocessing,
        data=source.description,
        data_digest=data_digest,
        method=method,
        percentile=percentile if method is CalibrationMethod.PERCENTILE else None,
        asked=samples,
        samples=seen.samples,
        tensors=ranges,
        channel_means=channel_means(seen),
        input_sqnr_db=layer_fitness(seen, ranges),
    )


def observe(
    parent: Artifact,
    source: SampleSource,
    *,
    samples: int,
    open_session: OpenSession,
    progress: Progress = SILENT,
) -> Observations:
    """Run the samples and keep a histogram of each activation; the same observations serve every method.

    Raises:
        UsageError: As `calibrate`.
    """
    if parent.manifest.precision is not Precision.FP32:
        raise UsageError(f"{parent.path} is {parent.manifest.precision}; int8 is calibrated on an fp32 artifact")
    compiled()  # before anything long: numba may be missing
    graph = load_graph(parent.onnx_path)
    refuse_quantized(graph)
    shown = graph.readers.keys() | graph.producer.keys()
    graph = simplify(graph)
    watchers = [_Watcher(graph, shown) for _ in range(min(usable_cores(), MOST_AT_ONCE))]
    with TemporaryDirectory(prefix=_FOLDER_PREFIX, dir=_beside(parent.path)) as folder:
        watched = Path(folder) / parent.onnx_path.name
        write_watched(parent.onnx_path, watchers[0].histograms, watched)
        energies = watchers[0].weight_energy(graph)
        del graph  # the session has the weights too
        threads = usable_cores() // len(watchers)
        with open_session(watched, threads) as session, ThreadPoolExecutor(len(watchers)) as pool:
            feeds = progress.track(
                itertools.islice(source.samples(), samples), "calibration", total=min(samples, len(source))
            )
            count = _watch(enumerate(feeds, 1), watchers, session, pool)
    if count == 0:
        raise UsageError(f"{source.description} gave no sample to calibrate on")
    for other in watchers[1:]:
        watchers[0].merge(other)
    return Observations(watchers[0].histograms, energies, count)


def _watch(
    feeds: Iterator[tuple[int, Arrays]], watchers: Sequence[_Watcher], session: Session, pool: ThreadPoolExecutor
) -> int:
    """One sample for each watcher at a time, and always the same ones, so that sums are rounded alike every time."""
    count = 0
    while at_once := list(itertools.islice(feeds, len(watchers))):
        jobs = [
            pool.submit(watcher.add, session, number, sample)
            for watcher, (number, sample) in zip(watchers, at_once, strict=False)
        ]
        for job in jobs:
            job.result()
        count += len(jobs)
    return count


def _beside(folder: Path) -> Path | None:
    """Where weight files can be linked to: the same file system, where it may be written; else the temporary folder."""
    return folder.parent if os.access(folder.parent, os.W_OK) else None


class _Watcher:
    """The histograms of a graph's activations."""

    def __init__(self, graph: Graph, shown: Collection[str]) -> None:
        self._layers, _ = find_layers(graph)
        # A layer that is left out of quantization later is still worth a range: the choice is the recipe's.
        self.histograms = {name: Histogram() for name in candidate_tensors(graph) if name in shown}
        self._axes = {layer.data: data_channel_axis(layer) for layer in self._layers.values()}

    def weight_energy(self, graph: Graph) -> dict[str, tuple[str, Array]]:
        return {name: (layer.data, weight_energy(graph, layer)) for name, layer in self._layers.items()}

    def add(self, session: Session, number: int, sample: Arrays) -> None:
        """Run and add one sample; the runtime and the compiled loops let other threads run."""
        tensors = {**sample, **session.infer(sample)}
        for name, histogram in self.histograms.items():
            try:
                histogram.add(tensors[name], self._axes.get(name))
            except NotFinite as error:
                raise UsageError(
                    f"activation {name!r} holds {error} in calibration sample {number}: the float model itself "
                    "overflows there; look at that sample and at the model's preprocessing"
                ) from error

    def merge(self, other: _Watcher) -> None:
        for name, histogram in self.histograms.items():
            histogram.merge(other.histograms[name])


def choose_ranges(seen: Observations, method: CalibrationMethod, percentile: float) -> dict[str, TensorRange]:
    """Threshold of each activation that held a value, in the order of the graph."""
    filled = {name: histogram for name, histogram in seen.histograms.items() if histogram.values}
    with ThreadPoolExecutor(usable_cpus()) as pool:
        ranges = pool.map(lambda histogram: _range(histogram, method, percentile), filled.values())
        return dict(zip(filled, ranges, strict=True))


def _range(histogram: Histogram, method: CalibrationMethod, percentile: float) -> TensorRange:
    largest = max(abs(histogram.low), abs(histogram.high))
    kind = _kind(histogram)
    if kind == "dead":
        limit = DEAD_THRESHOLD
    elif kind == "constant":
        limit = largest
    else:
        limit = calibrators.threshold(histogram.magnitudes(), largest, method, percentile=percentile)
    # Adding 0.0 makes the negative zero that Relu may leave a plain one.
    return TensorRange(
        low=float(histogram.low) + 0.0,
        high=float(histogram.high) + 0.0,
        threshold=max(float(limit), SMALLEST_THRESHOLD),
        kind=kind,
        values=histogram.values,
    )


def _kind(histogram: Histogram) -> Kind:
    if histogram.low == histogram.high:
        return "dead" if histogram.high == 0 else "constant"
    return "signed" if histogram.low < 0 else "never-negative"


def channel_means(seen: Observations) -> dict[str, tuple[float, ...]]:
    """Mean of each channel of the activations that layers read, to six digits."""
    return {
        name: tuple(float(f"{mean:.6g}") for mean in histogram.sums * histogram.sums.size / histogram.values)
        for name, histogram in seen.histograms.items()
        if histogram.sums is not None
    }


def layer_fitness(seen: Observations, ranges: Mapping[str, TensorRange]) -> dict[str, float]:
    """`fitness.input_sqnr_db` of each layer whose input has a range and a signal."""
    found: dict[str, float] = {}
    for name, (tensor, energy) in seen.weight_energy.items():
        channels = seen.histograms[tensor].energy if tensor in seen.histograms else None
        if tensor not in ranges or channels is None or ranges[tensor].kind in ("constant", "dead"):
            continue
        values = seen.histograms[tensor].values
        if (sqnr_db := input_sqnr_db(channels, energy, values, ranges[tensor].scale)) is not None:
            found[name] = round(sqnr_db, 3)
    return found
