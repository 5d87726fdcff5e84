import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.base.artifact import BatchRange
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.export import shapes


def spec(name: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=shape)


def test_the_batch_is_the_first_dimension_that_inputs_share() -> None:
    inputs = (spec("a", 1, 3), spec("b", 1), spec("table", 50, 16), spec("n", "N", 2))
    named = shapes.with_batch_named(inputs, also_numbers=True)
    assert [s.shape for s in named] == [("batch", 3), ("batch",), (50, 16), ("batch", 2)]


def test_a_number_in_a_file_is_a_fixed_batch() -> None:
    inputs = (spec("a", 1, 3),)
    assert shapes.with_batch_named(inputs, also_numbers=False) == inputs


@pytest.mark.parametrize(
    ("batch", "checked", "traced"),
    [
        ((1, 8, 32), (8, 1), 2),
        ((1, 1, 32), (1, 3), 2),
        ((1, 1, 2), (1, 2), 2),
        ((4, 4, 4), (4,), 4),
        ((4, 8, 16), (8, 4), 4),
    ],
)
def test_a_range_is_checked_at_two_sizes_inside_it(
    batch: tuple[int, int, int], checked: tuple[int, ...], traced: int
) -> None:
    low, opt, high = batch
    found = BatchRange(min=low, opt=opt, max=high)
    assert shapes.check_batches(found) == checked
    assert shapes.trace_batch(found) == traced


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 50))
def test_check_and_trace_sizes_are_always_in_range(low: int, to_opt: int, to_max: int) -> None:
    batch = BatchRange(min=low, opt=low + to_opt, max=low + to_opt + to_max)
    sizes = shapes.check_batches(batch)
    assert all(batch.min <= size <= batch.max for size in (*sizes, shapes.trace_batch(batch)))
    assert batch.fixed or len(set(sizes)) == 2


@pytest.mark.parametrize(
    ("word", "size"),
    [("height", 100), ("height - 2", 98), ("2*height//3 + 1", 67), ("width", 64), ("not an expression!", 64)],
)
def test_open_words_get_sizes(word: str, size: int) -> None:
    assert shapes.concrete_shape(spec("x", "batch", word), {"batch": 3, "height": 100}) == (3, size)


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'x'.*--input"):
        shapes.concrete_shape(spec("x", "batch", "height - 64"), {"batch": 1})


@given(st.text(max_size=20))
def test_no_word_crashes(word: str) -> None:
    with contextlib.suppress(UsageError):
        assert all(size >= 1 for size in shapes.concrete_shape(spec("x", word), {}))


@pytest.mark.parametrize(
    ("asked", "limits", "chosen"),
    [
        (None, (1, None), "1:8:32"),
        (None, (1, 1), "1"),
        (None, (2, 8), "2:8:8"),
        (None, (64, None), "64"),
        ((1, 1, 100), (1, None), "1:1:100"),
        ((4, 4, 4), (2, 8), "4"),
    ],
)
def test_a_files_own_limits_hold(
    asked: tuple[int, int, int] | None, limits: tuple[int, int | None], chosen: str
) -> None:
    batch = BatchRange(min=asked[0], opt=asked[1], max=asked[2]) if asked else None
    assert str(shapes.chosen_batch(batch, *limits, "m.onnx")) == chosen


def test_more_than_a_file_takes_is_refused() -> None:
    with pytest.raises(UsageError, match=r"m\.pt2 takes batches 2 to 8, so --batch 1"):
        shapes.chosen_batch(BatchRange(min=1, opt=1, max=1), 2, 8, "m.pt2")
