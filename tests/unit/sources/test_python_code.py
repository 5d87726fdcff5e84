from pathlib import Path

import pytest

from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.base.tensors import parse_tensor
from deploykit.sources import resolve

CODE = """
import torch
from torch import nn

def make():
    return nn.Linear(4, 2)

def number():
    return 3

def fails():
    raise ValueError("no GPU here")
"""
EXAMPLE = """
def example_inputs():
    return {"input": torch.zeros(1, 4, dtype=torch.float16)}
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(CODE)
    return path


def test_a_factory_without_inputs_has_none(net: Path) -> None:
    loaded = resolve(f"{net}:make")
    assert loaded.inputs == ()
    assert (loaded.info.name, loaded.info.source, loaded.kind) == ("net-make", "python-file", "module")
    assert loaded.default_calibration is None


def test_inputs_come_from_the_command_line_or_the_file(net: Path) -> None:
    net.write_text(CODE + EXAMPLE)
    assert resolve(f"{net}:make").inputs == (parse_tensor("input:batchx4"),)
    asked = parse_tensor("x:2x4")
    assert resolve(f"{net}:make", inputs=[asked]).inputs == (asked,)


def test_random_initial_weights_are_the_same_each_time(net: Path) -> None:
    assert resolve(f"{net}:make").fingerprint == resolve(f"{net}:make").fingerprint


def test_a_changed_file_or_its_neighbour_changes_the_fingerprint(net: Path) -> None:
    (net.parent / "deploykit_test_neighbour.py").write_text("WIDTH = 2\n")
    net.write_text("import deploykit_test_neighbour\n" + CODE)
    first = resolve(f"{net}:make").fingerprint
    net.write_text("import deploykit_test_neighbour\n" + CODE + "# more\n")
    second = resolve(f"{net}:make").fingerprint
    (net.parent / "deploykit_test_neighbour.py").write_text("WIDTH = 2  # wide\n")
    third = resolve(f"{net}:make").fingerprint
    assert len({first, second, third}) == 3


def test_weights_from_a_file_are_put_in(net: Path, tmp_path: Path) -> None:
    import torch

    torch.save({"weight": torch.ones(2, 4), "bias": torch.zeros(2)}, tmp_path / "w.pth")
    loaded = resolve(f"{net}:make", weights=str(tmp_path / "w.pth"))
    assert loaded.payload.weight.sum() == 8.0
    assert (loaded.info.weights, loaded.info.random_weights) == ("w.pth", False)
    assert resolve(f"{net}:make", weights="none").info.random_weights


@pytest.mark.parametrize(
    ("factory", "said"),
    [("number", "returns one int"), ("fails", r"ValueError: no GPU here \(.*net\.py:12\)")],
)
def test_a_factory_that_gives_no_module(net: Path, factory: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(f"{net}:{factory}")


def test_a_factory_that_is_not_there_gets_near_misses(net: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean make"):
        resolve(f"{net}:mak")


def test_a_file_that_does_not_parse_or_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def make(:\n")
    with pytest.raises(UsageError, match=r"SyntaxError.*bad\.py, line 1"):
        resolve(f"{tmp_path / 'bad.py'}:make")
    with pytest.raises(UsageError, match="there is no file"):
        resolve(f"{tmp_path / 'absent.py'}:make")


def test_a_module_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "deploykit_test_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "nets.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    assert resolve("deploykit_test_package.nets:make").info.name == "nets-make"
    with pytest.raises(UsageError, match=r"no Python module 'deploykit_test_package.absent'"):
        resolve("deploykit_test_package.absent:make")


def test_what_the_code_prints_goes_to_stderr(net: Path, capfd: pytest.CaptureFixture[str]) -> None:
    net.write_text("print('hello')\n" + CODE)
    resolve(f"{net}:make")
    assert capfd.readouterr() == ("", "hello\n")
