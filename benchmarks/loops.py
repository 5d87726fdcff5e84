"""What several benchmarks do: time a session in a loop that does nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np


def bare_p50_ms(session: Any, feeds: Sequence[Any], seconds: float) -> float:
    """Median of one call, in ms, of a loop that only runs and looks at the clock."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        feed = feeds[len(times) % len(feeds)]
        start = time.perf_counter_ns()
        session.infer(feed)
        times.append(time.perf_counter_ns() - start)
    return float(np.median(times)) / 1e6
