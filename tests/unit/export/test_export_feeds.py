from collections.abc import Iterator

import numpy as np
import pytest

from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.export import feeds


def spec(name: str, dtype: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def test_random_feeds_fit_and_repeat() -> None:
    inputs = [spec("x", "float32", "batch", 3), spec("ids", "int64", "batch", "length"), spec("m", "bool", 2)]
    first, second = (feeds.random_feeds(inputs, 2, {"length": 5}) for _ in range(2))
    assert {name: (array.dtype.name, array.shape) for name, array in first.items()} == {
        "x": ("float32", (2, 3)),
        "ids": ("int64", (2, 5)),
        "m": ("bool", (2,)),
    }
    assert all((first[name] == second[name]).all() for name in first)


def test_token_ids_are_inside_any_table_and_bytes_use_their_range() -> None:
    made = feeds.random_feeds([spec("ids", "int64", 1000), spec("image", "uint8", 5000)], 1)
    assert set(made["ids"].tolist()) == {0, 1}
    assert (made["image"].min(), made["image"].max()) == (0, 255)


def test_bfloat16_is_refused() -> None:
    with pytest.raises(UsageError, match="'x' is bfloat16"):
        feeds.random_feeds([spec("x", "bfloat16", 1)], 1)


class Samples:
    description = "three.npz"
    skipped: dict[str, str] = {}  # noqa: RUF012 - part of the protocol

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def samples(self) -> Iterator[dict[str, np.ndarray]]:
        return ({"x": np.full((1, 2), i, np.float64)} for i in range(self._count))

    def labels(self) -> list[int] | None:
        return None


def test_real_feeds_begin_again_where_there_are_fewer() -> None:
    made = feeds.real_feeds([spec("x", "float32", "batch", 2)], Samples(3), 5)
    assert made is not None
    assert made["x"][:, 0].tolist() == [0.0, 1.0, 2.0, 0.0, 1.0]
    assert made["x"].dtype == np.float32


def test_no_samples_are_no_feeds_and_a_missing_input_is_named() -> None:
    assert feeds.real_feeds([spec("x", "float32", "batch", 2)], Samples(0), 2) is None
    with pytest.raises(UsageError, match=r"three\.npz has no values for the input 'z'; it has x"):
        feeds.real_feeds([spec("z", "float32", "batch", 2)], Samples(1), 2)
