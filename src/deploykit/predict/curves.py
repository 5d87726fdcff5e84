"""One model on many targets as a queue needs it: what a batch takes at each size, and the rate of a full device.

    from deploykit.predict.curves import curves

    for curve in curves("resnet50", specs, [Precision.INT8, Precision.FP16], own=measurements):
        if isinstance(curve, Curve):
            curve.service_ms[8].high, curve.offline_ips.low

The whole catalogue at two precisions is one vectorised pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from deploykit.base.vocab import Confidence, Precision, Provenance, Scenario
from deploykit.predict.answer import Estimate, Refusal
from deploykit.predict.intervals import Rung
from deploykit.predict.kernels import ModelFeatures
from deploykit.predict.model import DEFAULT_LEVEL, Outlook, Predictor
from deploykit.predict.points import THROUGHPUT, Point
from deploykit.predict.question import Question
from deploykit.results.measurement import Measurement
from deploykit.targets.spec import TargetSpec

BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Curve:
    """A model at one precision on one target.

    Attributes:
        target: Reference.
        model: Name.
        precision: Of the engine.
        service_ms: Batch size → ms that a batch occupies the idle device, copies to it included; ascending. Batch 1 is
            the SingleStream scenario's p90. Sizes that do not fit its memory are left out.
        offline_ips: Samples/s of the Offline scenario; no batch of the curve has a higher rate.
        offline_batch: Its engine's batch.
        offline_needs: What that rate uses beyond the GPU (`GPU and both DLAs`), so that it says nothing of the batches.
        confidence: How much stands behind the latency of batch 1.
        rung: What the predictor had seen of this network and target.
        anchors: Identities of the measurements that the latency of batch 1 leans on most, nearest first.
        why: One line of reasons.
        level: Two-sided level of all intervals: at 0.8, `high` is not exceeded in nine of ten cases.
    """

    target: str
    model: str
    precision: Precision
    service_ms: dict[int, Estimate]
    offline_ips: Estimate
    offline_batch: int
    offline_needs: str | None
    confidence: Confidence
    rung: Rung
    anchors: tuple[str, ...]
    why: str
    level: float
    provenance: Literal[Provenance.PREDICTED] = Provenance.PREDICTED


def curves(
    model: str | ModelFeatures,
    targets: Sequence[TargetSpec],
    precisions: Sequence[Precision],
    *,
    batches: Sequence[int] = BATCHES,
    own: Sequence[Measurement] = (),
    level: float = DEFAULT_LEVEL,
) -> list[Curve | Refusal]:
    """Predict batch curves and Offline rates of one model.

    Args:
        model: A name that `names.known_names` lists, or the layer features of a graph.
        targets: Operating points.
        precisions: Of the engines.
        batches: Sizes of the curve; at least one.
        own: The user's measurements of any model on any target; they enter as low-noise rows.
        level: Two-sided level of the intervals.

    Returns:
        A curve or a refusal for each target and precision, precisions of one target side by side, in their order.

    Raises:
        UnknownNameError: `model` is a name without layer features.
    """
    predictor = Predictor.load()
    network = predictor.network(model)
    known = predictor.knowing(own, network, targets)
    habits = predictor.habits(network)
    sizes = sorted(set(batches))
    asked = [
        [Question(network, habits, precision, Scenario.FIXED_BATCH, size, known.own > 0) for size in sizes]
        + [Question(network, habits, precision, Scenario.OFFLINE, None, known.own > 0)]
        for precision in precisions
    ]
    pairs = [[question.to(spec) for question in questions] for spec in targets for questions in asked]
    points = [(i, made) for i, pair in enumerate(pairs) for made in pair if isinstance(made, Point)]
    outlooks = predictor.outlooks([point for _, point in points], known, level)
    by_pair: dict[int, list[Outlook]] = defaultdict(list)
    for (i, _), outlook in zip(points, outlooks, strict=True):
        by_pair[i].append(outlook)
    return [_curve(by_pair[i], pair, level) for i, pair in enumerate(pairs)]


def _curve(outlooks: Sequence[Outlook], pair: Sequence[Point | Refusal], level: float) -> Curve | Refusal:
    """The answers of one target and precision; a refusal where not even the smallest batch was answered.

    Each point has its own correction, so neighbours may disagree a little where the curve is flat. What cannot be is
    mended: a larger batch is no faster, and a full device has at least the rate of its best batch.
    """
    ends = (pair[0], pair[-1])
    refused = next((end for end in ends if isinstance(end, Refusal)), None)
    if refused is not None:
        return refused
    batches = [each for each in outlooks if each.point.scenario not in THROUGHPUT]
    first, offline = batches[0], outlooks[-1]
    service = _rising([(each.point.batch, each.estimate(each.ms)) for each in batches])
    return Curve(
        target=first.point.machine.ref,
        model=first.point.network.name,
        precision=first.point.precision,
        service_ms=service,
        offline_ips=_at_least(offline.estimate(1000.0 / offline.ms), service),
        offline_batch=offline.point.batch,
        offline_needs="GPU and both DLAs" if offline.point.dla else None,
        confidence=first.confidence,
        rung=first.rung,
        anchors=first.anchors,
        why=first.why,
        level=level,
    )


def _rising(points: Sequence[tuple[int, Estimate]]) -> dict[int, Estimate]:
    found: dict[int, Estimate] = {}
    before = Estimate(0.0, 0.0, 0.0)
    for batch, ms in points:
        before = Estimate(max(before.value, ms.value), max(before.low, ms.low), max(before.high, ms.high))
        found[batch] = before
    return found


def _at_least(rate: Estimate, service: Mapping[int, Estimate]) -> Estimate:
    """A rate that no batch of the curve beats."""
    return Estimate(
        value=max(rate.value, *(1000.0 * batch / ms.value for batch, ms in service.items())),
        low=max(rate.low, *(1000.0 * batch / ms.high for batch, ms in service.items())),
        high=max(rate.high, *(1000.0 * batch / ms.low for batch, ms in service.items())),
    )
