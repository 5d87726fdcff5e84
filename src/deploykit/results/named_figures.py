"""`p50 latency (usec)` → the median in ms: figures and units as the names of foreign fields state them. Pure.

A unit comes from the field's own name, from a `unit` beside it, or from the user; never from how large a number looks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from deploykit.base.errors import UsageError

Per = Literal["sample", "query", "inference"]
"""What a rate counts. `inference` is Triton's word: a request in its server, a sample in perf_analyzer's tables."""

MS_PER_UNIT = {
    "ns": 1e-6, "nsec": 1e-6, "nanosecond": 1e-6, "nanoseconds": 1e-6,
    "us": 1e-3, "µs": 1e-3, "usec": 1e-3, "microsecond": 1e-3, "microseconds": 1e-3,
    "ms": 1.0, "msec": 1.0, "millisecond": 1.0, "milliseconds": 1.0, "millis": 1.0,
    "s": 1e3, "sec": 1e3, "secs": 1e3, "second": 1e3, "seconds": 1e3,
}  # fmt: skip
_SECONDS = frozenset(("s", "sec", "secs", "second", "seconds"))
_RATES: dict[str, Per] = {
    "fps": "sample", "ips": "sample", "images": "sample", "image": "sample", "frames": "sample", "samples": "sample",
    "sample": "sample", "qps": "query", "queries": "query", "rps": "query", "requests": "query", "batches": "query",
    "inferences": "inference", "infer": "inference", "inference": "inference",
}  # fmt: skip
_ABBREVIATED = frozenset(("fps", "ips", "qps", "rps"))
_LATENCY = frozenset(("latency", "latencies", "time", "times", "response"))
# What happens before or beside an inference, and limits that were asked for.
_OTHER_TIMES = frozenset((
    "load", "loading", "warmup", "warm", "build", "compile", "duration", "total", "target", "queue", "timestamp",
    "preprocess", "postprocess", "token", "tokens", "ttft", "tpot", "first", "scheduled", "values", "count", "date",
))  # fmt: skip
_STATISTICS = {
    "mean": "mean", "avg": "mean", "average": "mean", "median": "p50", "min": "min", "minimum": "min", "max": "max",
    "maximum": "max", "std": "std", "stdev": "std", "stddev": "std",
}  # fmt: skip
_PERCENTILES = {"50": "p50", "90": "p90", "95": "p95", "99": "p99", "99.9": "p99_9", "999": "p99_9"}
_WORDS = re.compile(r"p\d+(?:[._]\d+)?|\d+(?:[._]\d+)?|[a-zµ]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class NamedFigure:
    """What a field's name says of it.

    Attributes:
        statistic: A field of `Latency`, or `rate`.
        factor: Value × factor is in ms, or in 1/s.
        per: What a rate counts; None for a latency.
    """

    statistic: str
    factor: float
    per: Per | None = None


def named_figure(name: str, unit: str | None = None, default_unit: str | None = None) -> NamedFigure | None:
    """Read a field's name; None where it is neither a latency nor a rate.

    Args:
        name: With the names of the objects around it: `latency.p50`, `Inference time (ms/im)`.
        unit: What a `unit` field beside it says.
        default_unit: Of latencies whose name says none: the user's word, or the format's.

    Raises:
        UsageError: It is a latency and nothing says in which unit.
    """
    words = _words(name)
    unit_words = _words(unit or "")
    rate = _rate(words, unit_words)
    if rate is not None:
        return rate
    statistic = _statistic(words)
    is_latency = bool(_LATENCY.intersection(words)) or (statistic or "").startswith(("p", "mean"))
    if not is_latency or _OTHER_TIMES.intersection(words) or (statistic is None and _names_a_percentile(words)):
        return None
    factor = _time_factor([*words, *unit_words], default_unit)
    if factor is None:
        if not _LATENCY.intersection(words):
            return None
        raise UsageError(f"{name!r} has no unit: give it with --latency-unit ns|us|ms|s")
    return NamedFigure(statistic or "mean", factor)


def _words(text: str) -> list[str]:
    return [word.replace("_", ".") for word in _WORDS.findall(_CAMEL.sub(" ", text).lower())]


def _rate(words: list[str], unit_words: list[str]) -> NamedFigure | None:
    """A rate names what it counts: `fps`, `images_per_s`, `throughput` with the unit `samples/s`."""
    counted = next((w for w in [*words, *unit_words] if w in _RATES), None)
    if counted is None or "scheduled" in words or "target" in words:
        return None
    if counted in _ABBREVIATED or "throughput" in words or _per_second(words) or _per_second(unit_words):
        return NamedFigure("rate", 1.0, _RATES[counted])
    return None


def _per_second(words: list[str]) -> bool:
    """`samples/s` and `samples_per_second`, but not `inference_time_s`."""
    return bool(words) and words[-1] in _SECONDS and len(words) > 1 and (words[-2] == "per" or words[-2] in _RATES)


def _statistic(words: list[str]) -> str | None:
    for word in words:
        if word in _STATISTICS:
            return _STATISTICS[word]
    number = _percentile_number(words)
    return None if number is None else _PERCENTILES.get(number)


def _percentile_number(words: list[str]) -> str | None:
    for index, word in enumerate(words):
        if re.fullmatch(r"p\d+(\.\d+)?", word):
            return _trimmed(word[1:])
        if word[0].isdigit() and {"percentile", "th", "quantile"}.intersection(words[index + 1 : index + 3]):
            return _trimmed(word)
    return None


def _names_a_percentile(words: list[str]) -> bool:
    """p97 is a percentile that we keep no field for."""
    return _percentile_number(words) is not None


def _trimmed(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _time_factor(words: list[str], default_unit: str | None) -> float | None:
    found = next((MS_PER_UNIT[word] for word in words if word in MS_PER_UNIT), None)
    return MS_PER_UNIT[default_unit] if found is None and default_unit else found
