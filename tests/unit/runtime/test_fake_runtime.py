"""The runtime without a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deploykit.base.errors import UnknownNameError
from deploykit.runtime import runtime


def test_it_returns_its_input() -> None:
    with runtime("fake").open(Path("anything")) as session:
        outputs = session.infer({"x": np.full((2, 4), 3.0, np.float32)})
    assert outputs["y"].tolist() == [[3.0] * 4] * 2


def test_an_unknown_runtime_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean onnxruntime"):
        runtime("onnxruntim")
