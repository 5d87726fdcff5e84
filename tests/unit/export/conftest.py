from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploykit.base.artifact import Artifact
from deploykit.export import export_fp32
from deploykit.runtime.ort import OnnxRuntime
from deploykit.sources import resolve


def open_one_thread(path: Path, threads: int | None = 1) -> Any:
    return OnnxRuntime().open(path, threads=threads)


@pytest.fixture
def exported(tmp_path: Path) -> Callable[..., Artifact]:
    """Resolve and export a reference, as the pipeline does."""

    def export(reference: str, **settings: Any) -> Artifact:
        resolving = {key: settings.pop(key) for key in ("weights", "inputs") if key in settings}
        artifact, _ = export_fp32(
            resolve(reference, **resolving), root=tmp_path / "artifacts", open_session=open_one_thread, **settings
        )
        return artifact

    return export


@pytest.fixture
def python_model(tmp_path: Path) -> Callable[[str], str]:
    """Write a module's code to a file and give the reference of its `make`."""

    def write(code: str) -> str:
        path = tmp_path / "net.py"
        path.write_text("import torch\nfrom torch import nn\n\n" + code)
        return f"{path}:make"

    return write
