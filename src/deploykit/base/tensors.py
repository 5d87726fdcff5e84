"""Names, types and shapes of what goes in and out of a graph."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from deploykit.base.errors import UsageError

DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
"""NumPy spellings; ONNX's are translated at the border."""

# A word for an open dimension holds no `x`, which separates dimensions.
_SIZE = r"(?:[0-9]+|[A-Za-wy-z_][A-Za-wy-z0-9_]*)"
_PATTERN = re.compile(rf"^(?P<name>[^:]+):(?P<shape>{_SIZE}(?:x{_SIZE})*)(?::(?P<dtype>[a-z0-9]+))?$")


class TensorSpec(BaseModel):
    """One input or output.

    Attributes:
        name: As in the graph.
        dtype: A NumPy spelling of `DTYPES`.
        shape: A number for a fixed dimension, a word for an open one: `["batch", 3, 224, 224]`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def dynamic_axes(self) -> tuple[int, ...]:
        """Positions of the open dimensions."""
        return tuple(i for i, size in enumerate(self.shape) if isinstance(size, str))

    def sized(self, batch_size: int) -> tuple[int, ...]:
        """The shape with the first dimension, where open, set to a batch size.

        Raises:
            UsageError: Another dimension is open, so the batch size alone does not fix the shape.
        """
        open_axes = [i for i in self.dynamic_axes if i != 0]
        if open_axes:
            raise UsageError(f"input {self.name!r} has open dimensions {self.shape}: give them with --input")
        return tuple(batch_size if isinstance(size, str) else size for size in self.shape)


def parse_tensor(text: str, default_dtype: str = "float32") -> TensorSpec:
    """Read `NAME:1x3x224x224[:dtype]`; a word instead of a number leaves that dimension open.

    Raises:
        UsageError: The text is not of that form, or the dtype is not one of `DTYPES`.
    """
    match = _PATTERN.match(text)
    if match is None:
        raise UsageError(f"--input {text!r} is not of the form NAME:1x3x224x224[:dtype]")
    dtype = match["dtype"] or default_dtype
    if dtype not in DTYPES:
        raise UsageError(f"--input {text!r}: unknown dtype {dtype!r}; known are {', '.join(DTYPES)}")
    shape = tuple(int(size) if size.isdigit() else size for size in match["shape"].split("x"))
    if any(size == 0 for size in shape):
        raise UsageError(f"--input {text!r}: a dimension of 0 holds no data")
    return TensorSpec(name=match["name"], dtype=dtype, shape=shape)
