"""The words that files, flags and tables share. Values are what is written to JSON."""

from __future__ import annotations

from enum import Enum

DEFAULT_MODEL = "resnet50"
"""The field's yardstick: what `bench` and `recommend` take where no model is given and none is at hand."""


class _Word(str, Enum):
    def __str__(self) -> str:
        return str(self.value)


class Precision(_Word):
    """Numeric format of the weights and the bulk of the arithmetic."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    FP8 = "fp8"


class Dialect(_Word):
    """How INT8 is written for a runtime. Both are the same grid at the same scale.

    `tensorrt`: S8 activations, zero point 0. `ort-cpu`: U8 activations, zero point 0 on a tensor that is never
    negative and 128 elsewhere.
    """

    TENSORRT = "tensorrt"
    ORT_CPU = "ort-cpu"


class CalibrationMethod(_Word):
    """How a histogram of an activation becomes its clipping range."""

    MINMAX = "minmax"
    ENTROPY = "entropy"
    PERCENTILE = "percentile"
    MSE = "mse"


class Scenario(_Word):
    """MLPerf Inference scenarios, with LoadGen's meaning.

    SingleStream: one sample at a time, the next when the last is done (p90).
    MultiStream: eight samples a query, the next when the last is done (p99).
    Server: Poisson arrivals at a rate, under a latency limit (p99).
    Offline: all samples at once (throughput).
    """

    SINGLE_STREAM = "SingleStream"
    MULTI_STREAM = "MultiStream"
    SERVER = "Server"
    OFFLINE = "Offline"
    # Published tables only: one batch of a fixed size, over and over, without LoadGen.
    FIXED_BATCH = "FixedBatch"


class Provenance(_Word):
    """Where a number is from, strongest first."""

    MEASURED = "measured"
    PUBLISHED = "published"
    PREDICTED = "predicted"


class Verdict(_Word):
    """What is said of a candidate under an SLA.

    meets: the bound is within every limit. likely: the point estimate is, the bound is not. unknown: too little
    evidence. fails: a limit is missed.
    """

    MEETS = "meets"
    LIKELY = "likely"
    UNKNOWN = "unknown"
    FAILS = "fails"


class Confidence(_Word):
    """How much stands behind a figure: `high` for a valid measurement of exactly this, `low` for a stretch."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
