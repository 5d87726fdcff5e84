import logging
import sys
import warnings

import pytest

from deploykit.export.quiet import quiet


def test_prints_warnings_and_log_lines_stay_off_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("torch.onnx.some_part")
    with quiet() as log:
        print("progress")
        print("page of graph", file=sys.stderr)
        warnings.warn("deprecated", stacklevel=1)
        logger.warning("fell back")
    assert capfd.readouterr() == ("", "")
    assert log == ["fell back"]


def test_everything_is_as_it_was_afterwards() -> None:
    logger = logging.getLogger("torch")
    before = (list(logger.handlers), logger.propagate, sys.stdout)
    with pytest.raises(KeyError), quiet(guards=True):
        raise KeyError
    assert (list(logger.handlers), logger.propagate, sys.stdout) == before


def test_debug_sends_prints_to_stderr(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DEPLOYKIT_DEBUG", "1")
    with quiet():
        print("progress")
    assert capfd.readouterr() == ("", "progress\n")
