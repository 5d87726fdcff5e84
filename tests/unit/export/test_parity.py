from typing import Any

import numpy as np
import pytest

from deploykit.base.errors import UsageError
from deploykit.export import parity
from deploykit.export.parity import Batch, ParityFailed, compare

BATCH = Batch("random", 2, {})


def check(wanted: Any, got: Any, share: float = 1e-3) -> Any:
    return compare(np.asarray(wanted), np.asarray(got), BATCH, "y", share)


def test_the_tolerance_follows_the_outputs_scale() -> None:
    found = check([100.0, 0.0], [100.05, 0.0])
    assert found.max_abs_error == pytest.approx(0.05)
    assert found.tolerance == pytest.approx(0.1)
    with pytest.raises(ParityFailed, match=r"'y' at batch 2 on random inputs differs.*0\.05"):
        check([1.0, 0.0], [1.05, 0.0])


def test_shapes_must_agree() -> None:
    with pytest.raises(ParityFailed, match=r"shape \(3,\).*\(2,\)"):
        check([1.0, 2.0], [1.0, 2.0, 3.0])


def test_nan_in_the_same_place_is_equal_and_elsewhere_is_not() -> None:
    assert check([np.nan, 1.0, np.inf], [np.nan, 1.0, np.inf]).max_abs_error == 0.0
    with pytest.raises(ParityFailed, match="NaN"):
        check([np.nan, 1.0], [1.0, np.nan])
    with pytest.raises(ParityFailed, match="infinite"):
        check([np.inf, 1.0], [-np.inf, 1.0])


def test_an_output_without_rows_is_equal_to_itself() -> None:
    found = check(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32))
    assert (found.max_abs_error, found.cosine) == (0.0, None)


def test_integers_may_differ_in_one_of_a_thousand() -> None:
    wanted = np.zeros(2000, np.int64)
    got = wanted.copy()
    got[:2] = 900
    assert check(wanted, got).max_abs_error == 900.0
    got[:3] = 1
    with pytest.raises(ParityFailed):
        check(wanted, got)


def test_all_zero_has_no_cosine() -> None:
    assert parity.cosine(np.zeros(3), np.zeros(3)) is None
    assert parity.cosine(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0.0


class Session:
    """A session whose graph doubles; it fails above batch 4."""

    inputs = outputs = ()

    def infer(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if len(feeds["x"]) > 4:
            raise UsageError("Reshape wants 4")
        return {"y": feeds["x"] * 2}


def test_the_runtime_is_fed_what_the_source_was_fed_before_it_changed_it() -> None:
    def source(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        feeds["x"] *= 2
        return {"y": feeds["x"]}

    fed = np.ones((2, 2))
    found = parity.check_parity(source, Session(), [Batch("random", 2, {"x": fed})])  # type: ignore[arg-type]
    assert found[0].max_abs_error == 0.0
    assert (fed == 1.0).all()


def test_a_graph_that_fails_at_a_batch_size_is_told_with_it() -> None:
    batch = Batch("photos", 5, {"x": np.ones((5, 2))})
    with pytest.raises(ParityFailed, match="fails at batch 5 on photos inputs: Reshape wants 4"):
        parity.check_parity(lambda feeds: {"y": feeds["x"] * 2}, Session(), [batch])  # type: ignore[arg-type]
