from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from deploykit.base.artifact import Artifact, BatchRange
from deploykit.base.errors import UsageError

Export = Callable[..., Artifact]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.fc(x) * scale}


def save(path: Path, **shapes: object) -> str:
    """Save a program; `x` gets the dynamic shape in `shapes`."""
    example = {"x": torch.ones(4, 4), "scale": torch.ones(1)}
    dynamic = {"x": shapes["x"], "scale": None} if shapes else None
    exported = torch.export.export(Net(), (example["x"],), {"scale": example["scale"]}, dynamic_shapes=dynamic)
    torch.export.save(exported, path)
    return str(path)


def test_a_fixed_batch_is_kept_and_said(exported: Export, tmp_path: Path) -> None:
    reference = save(tmp_path / "net.pt2")
    artifact = exported(reference)
    assert str(artifact.manifest.batch) == "4"
    assert artifact.manifest.inputs[0].shape == (4, 4)
    assert [spec.name for spec in artifact.manifest.inputs] == ["x", "scale"]
    assert artifact.manifest.outputs[0].name == "logits"
    with pytest.raises(UsageError, match="takes batch 4 alone, so --batch 1:2:4"):
        exported(reference, batch=BatchRange(min=1, opt=2, max=4))


def test_a_range_is_kept(exported: Export, tmp_path: Path) -> None:
    reference = save(tmp_path / "net.pt2", x={0: torch.export.Dim("n", min=2, max=8)})
    artifact = exported(reference)
    assert str(artifact.manifest.batch) == "2:8:8"
    assert artifact.manifest.inputs[0].shape == ("batch", 4)
    assert sorted({check.batch_size for check in artifact.manifest.parity}) == [2, 8]
    with pytest.raises(UsageError, match="takes batches 2 to 8, so --batch 9"):
        exported(reference, batch=BatchRange(min=9, opt=9, max=9))


def test_an_open_end_serves_what_is_asked(exported: Export, tmp_path: Path) -> None:
    reference = save(tmp_path / "net.pt2", x={0: torch.export.Dim.DYNAMIC})
    assert exported(reference, batch=BatchRange(min=2, opt=3, max=100)).manifest.batch.max == 100


def test_a_half_program_is_refused_with_the_way_out(exported: Export, tmp_path: Path) -> None:
    program = torch.export.export(nn.Linear(4, 2).bfloat16(), (torch.ones(1, 4, dtype=torch.bfloat16),))
    torch.export.save(program, tmp_path / "net.pt2")
    with pytest.raises(UsageError, match=r"bfloat16 program.*module\.float\(\)"):
        exported(str(tmp_path / "net.pt2"))
