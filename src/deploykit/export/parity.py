"""The exported graph against what it was made from, output by output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deploykit.base.artifact import ParityCheck
from deploykit.base.errors import DeploykitError
from deploykit.base.protocols import Session

RELATIVE_TOLERANCE = 5e-4
"""Largest error allowed, as a share of the largest magnitude in the output.

Two correct float32 programs differ by the order of their sums. A wrong operator, attribute or branch is off by
percents: a resize without its antialiasing by 0.1 of the scale, an untraced branch by more. The models of the cards
come out between 1e-7 and 6e-5 with random weights.
"""

HALF_TOLERANCE = 1e-2
"""The same where the original computes in half precision: ten bits of mantissa, rounded after every operator."""

DIFFERING_SHARE = 1e-3
"""Share of an integer output's values that may differ: an arg-max over values a rounding apart."""

Reference = Callable[[dict[str, "np.ndarray[Any, Any]"]], Mapping[str, "np.ndarray[Any, Any]"]]


class ParityFailed(DeploykitError):
    """The exported graph does not compute what its source does."""


@dataclass(frozen=True)
class Batch:
    """Inputs of one check: what they are (`random` or the data's name), how many samples, the arrays."""

    label: str
    size: int
    feeds: dict[str, np.ndarray[Any, Any]]


def compare(
    wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any], batch: Batch, output: str, share: float
) -> ParityCheck:
    """Compare one output.

    Args:
        wanted: The source's answer.
        got: The graph's answer.
        batch: The inputs of the check.
        output: The output's name.
        share: Error allowed, as a share of the output's largest magnitude.

    Raises:
        ParityFailed: Shapes differ, values are finite in one only, or the error is above the tolerance.
    """
    where = f"output {output!r} at batch {batch.size} on {batch.label} inputs"
    if wanted.shape != got.shape:
        raise ParityFailed(f"{where} has shape {got.shape} in the exported graph, {wanted.shape} in the source")
    a, b = wanted.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        raise ParityFailed(
            f"{where} is NaN or infinite in other places than the source's: the graph is not equal to it"
        )
    a, b = a[finite], b[finite]
    error = float(np.max(np.abs(a - b), initial=0.0))
    tolerance = share * float(np.max(np.abs(a), initial=0.0))
    check = ParityCheck(batch_size=batch.size, inputs=batch.label, output=output, max_abs_error=error,
                        cosine=cosine(a, b), tolerance=tolerance)  # fmt: skip
    if not _within(wanted, got, check):
        raise ParityFailed(
            f"{where} differs from the source by up to {error:.3g}, where {tolerance:.3g} is allowed "
            f"(cosine {check.cosine if check.cosine is None else round(check.cosine, 6)}): the exported graph is wrong"
        )
    return check


def cosine(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float | None:
    """Cosine between two flat arrays; None where either is all zero."""
    norms = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return None if norms == 0.0 else min(1.0, float(np.dot(a, b)) / norms)


def check_parity(
    reference: Reference, session: Session, batches: list[Batch], share: float = RELATIVE_TOLERANCE
) -> tuple[ParityCheck, ...]:
    """Run both on every batch and compare every output.

    Raises:
        ParityFailed: They differ, or the graph does not run at a batch size.
    """
    return tuple(check for batch in batches for check in _check_batch(reference, session, batch, share))


def _check_batch(reference: Reference, session: Session, batch: Batch, share: float) -> list[ParityCheck]:
    wanted = reference({name: array.copy() for name, array in batch.feeds.items()})
    try:
        got = session.infer(batch.feeds)
    except Exception as error:
        # Each runtime has exceptions of its own for a graph that fails; all mean that the artifact is no good.
        reason = " ".join(str(error).split())[:300]
        raise ParityFailed(
            f"the exported graph fails at batch {batch.size} on {batch.label} inputs: {reason}"
        ) from error
    if list(wanted) != list(got):
        raise ParityFailed(f"the exported graph returns {', '.join(got)}, the source {', '.join(wanted)}")
    return [compare(wanted[name], got[name], batch, name, share) for name in wanted]


def _within(wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any], check: ParityCheck) -> bool:
    if np.issubdtype(wanted.dtype, np.floating):
        return check.max_abs_error <= check.tolerance
    differing = float(np.mean(wanted != got)) if wanted.size else 0.0
    return differing <= DIFFERING_SHARE
