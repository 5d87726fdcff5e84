from pathlib import Path

import pytest
import torch
from torch import nn

from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.sources import resolve
from deploykit.sources.request import Request
from deploykit.sources.resolve import route


def routed(reference: str) -> tuple[str, str]:
    source, request = route(Request(reference=reference, target=reference))
    return source, request.target


@pytest.mark.parametrize(
    ("reference", "source", "target"),
    [
        ("resnet50", "torchvision", "resnet50"),
        ("efficientnet-lite0", "efficientnet-lite", "lite0"),
        ("torchvision:resnet50", "torchvision", "resnet50"),
        ("timm:resnet50.a1_in1k", "timm", "resnet50.a1_in1k"),
        ("some/where/net.py:make", "python-file", "some/where/net.py:make"),
        ("package.module:make", "python-module", "package.module:make"),
    ],
)
def test_who_answers(reference: str, source: str, target: str) -> None:
    assert routed(reference) == (source, target)


def test_a_card_brings_its_options() -> None:
    _, request = route(Request(reference="bert-base", target="bert-base"))
    assert request.options["num_hidden_layers"] == 12
    assert request.card is not None


@pytest.mark.parametrize("reference", ["resnet5O", "resnt50", "ResNet50"])
def test_a_mistyped_name_gets_near_misses(reference: str) -> None:
    with pytest.raises(UnknownNameError, match=r"resnet50.*deploykit models list"):
        routed(reference)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("", "empty"),
        ("net.onnx", "no file net.onnx"),
        ("a/b", "no file a/b"),
        ("net.pth", "no file net.pth"),
        ("onnx-file:x/y", "no file"),
    ],
)
def test_what_is_no_reference(reference: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        routed(reference)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    net = nn.Linear(3, 2)
    torch.save(net, tmp_path / "whole_module.pt")
    torch.save(net.state_dict(), tmp_path / "state_dict.pth")
    torch.jit.save(torch.jit.trace(net, torch.ones(1, 3)), tmp_path / "script.pt")
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "net.py").write_text("")
    (tmp_path / "cut.pt2").write_bytes(b"PK\x03\x04....")
    (tmp_path / "page.pt2").write_bytes(b"<html>")
    return tmp_path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("whole_module.pt", r"pickle.*refused.*trust.*package\.module:function"),
        ("state_dict.pth", r"weights without an architecture.*--weights .*state_dict\.pth"),
        ("script.pt", r"TorchScript archive.*\.pt2"),
        ("empty.pt", "empty file"),
        ("net.py", r"net\.py:FUNCTION"),
        ("cut.pt2", r"cut\.pt2 is not an exported program but a damaged archive"),
        ("page.pt2", "HTML page"),
    ],
)
def test_a_file_that_is_no_model_is_told_for_what_it_is(folder: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(str(folder / name))
