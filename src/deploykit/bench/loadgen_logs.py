"""What LoadGen wrote about a run: one record a query from its trace, its verdict from its detail log. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

_SAMPLE = re.compile(rb'"name":"Sample".*"ph":"b".*"ts":([0-9.]+).*"query_seq":([0-9]+).*"complete_ns":([0-9]+)')
"""Begin of a sample: `ts` in µs is when the query was issued (Server: scheduled), `complete_ns` counts from there."""
_LOG_MARK = ":::MLLOG "
_KEPT = (
    "loadgen_version", "result_validity", "result_invalid_reason", "result_perf_constraints_met",
    "result_min_duration_met", "result_min_queries_met", "early_stopping_met", "num_errors", "num_warnings",
)  # fmt: skip


@dataclass(frozen=True)
class Queries:
    """Every query of a run, in the order in which LoadGen issued them.

    Attributes:
        start_ms: When each was issued; in Server, when it was due: float64 [queries].
        latency_ms: From there until its last sample was answered: float64 [queries].
    """

    start_ms: Floats
    latency_ms: Floats

    @property
    def wall_s(self) -> float:
        """From the first query's start to the last answer."""
        return float((self.start_ms + self.latency_ms).max() - self.start_ms.min()) / 1e3


def queries_from_trace(lines: Iterable[bytes]) -> Queries:
    """Read the samples of an `mlperf_log_trace.json`; those of one query end with its slowest."""
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    for line in lines:
        if (match := _SAMPLE.search(line)) is not None:
            query, latency_ms = int(match[2]), int(match[3]) / 1e6
            starts[query] = float(match[1]) / 1e3
            ends[query] = max(ends.get(query, 0.0), latency_ms)
    order = sorted(starts)
    return Queries(np.array([starts[q] for q in order]), np.array([ends[q] for q in order]))


def verdict_from_detail(lines: Iterable[str]) -> dict[str, Any]:
    """LoadGen's own verdict and percentiles (ns) from an `mlperf_log_detail.txt`, and what it called an error."""
    found: dict[str, Any] = {}
    errors = []
    for line in lines:
        if not line.startswith(_LOG_MARK):
            continue
        entry = json.loads(line[len(_LOG_MARK) :])
        if entry["metadata"]["is_error"]:
            errors.append(str(entry["value"]))
        if entry["key"] in _KEPT or entry["key"].endswith(("_percentile_latency_ns", "_samples_per_second")):
            found[entry["key"]] = entry["value"]
    return found | ({"errors": errors} if errors else {})
