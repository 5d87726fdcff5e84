import pytest

from deploykit.base.artifact import parse_batch
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.engine.options import shape_ranges

IMAGE = TensorSpec(name="image", dtype="float32", shape=("batch", 3, 224, 224))
OPEN = TensorSpec(name="image", dtype="float32", shape=("batch", 3, "height", "width"))


def test_the_batch_range_fills_the_profile() -> None:
    (shapes,) = shape_ranges((IMAGE,), parse_batch("1:8:32"))
    assert (shapes.min, shapes.opt, shapes.max) == ((1, 3, 224, 224), (8, 3, 224, 224), (32, 3, 224, 224))


def test_given_shapes_win() -> None:
    given = {"max": ["image:64x3x224x224"]}
    (shapes,) = shape_ranges((IMAGE,), parse_batch("1:8:32"), given)
    assert shapes.max == (64, 3, 224, 224)
    assert shapes.opt == (8, 3, 224, 224)


def test_open_dimensions_are_listed_with_the_options_to_give() -> None:
    with pytest.raises(UsageError, match=r"'height' \(axis 2\), 'width' \(axis 3\).*--min-shapes.*image:NxNx|N"):
        shape_ranges((OPEN,), parse_batch("1"))


def test_open_dimensions_can_be_given() -> None:
    given = {edge: [f"image:1x3x{size}x{size}"] for edge, size in (("min", 64), ("opt", 128), ("max", 256))}
    (shapes,) = shape_ranges((OPEN,), parse_batch("1"), given)
    assert shapes.opt == (1, 3, 128, 128)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min": ["other:1x3x224x224"]}, "no such input"),
        ({"min": ["image:1x3x225x224"]}, "does not fit"),
        ({"min": ["image:1x3x224"]}, "does not fit"),
        ({"min": ["image:batchx3x224x224"]}, "must be a number"),
        ({"min": ["image:16x3x224x224"]}, "must rise"),
    ],
)
def test_shapes_that_cannot_be_are_refused(given: dict[str, list[str]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        shape_ranges((IMAGE,), parse_batch("1:8:32"), given)
