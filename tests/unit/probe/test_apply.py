"""Plans run for real, with small programs in place of nvpmodel and jetson_clocks that note what they are told."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploykit.base.errors import UsageError
from deploykit.probe.apply import CommandFailed, applied, run_user_command
from deploykit.probe.plan import Command, Plan

PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >> {log}
[ "$*" = "-m 9" ] && echo "NVPM ERROR: invalid mode" && exit {code}
exit 0
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What the stand-in programs were told so far."""
    log = tmp_path / "log"
    log.touch()
    for name, code in (("nvpmodel", 1), ("jetson_clocks", 0)):
        program = tmp_path / name
        program.write_text(PROGRAM.format(log=log, code=code))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return lambda: log.read_text().splitlines()


def command(text: str) -> Command:
    return Command(tuple(text.split()), "")


PLAN = Plan(
    (command("jetson_clocks --store f"), command("nvpmodel -m 2"), command("jetson_clocks")),
    (command("nvpmodel -m 0"), command("jetson_clocks --restore f")),
)
THERE = ["jetson_clocks --store f", "nvpmodel -m 2", "jetson_clocks "]
BACK = ["nvpmodel -m 0", "jetson_clocks --restore f"]


def silent(text: str) -> None:
    pass


def test_there_and_back(told: Callable[[], list[str]]) -> None:
    with applied(PLAN, silent):
        assert told() == THERE
    assert told() == THERE + BACK


def test_back_after_an_error(told: Callable[[], list[str]]) -> None:
    with pytest.raises(ZeroDivisionError), applied(PLAN, silent):
        raise ZeroDivisionError
    assert told() == THERE + BACK


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as in a terminal: a shell that starts the tests in the background has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_back_after_a_signal(number: signal.Signals, told: Callable[[], list[str]]) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), applied(PLAN, silent):
        os.kill(os.getpid(), number)
    assert told() == THERE + BACK
    assert signal.getsignal(number) == before


def test_kept_where_all_went_well_and_only_there(told: Callable[[], list[str]]) -> None:
    with applied(PLAN, silent, keep=True):
        pass
    assert told() == THERE
    with pytest.raises(ZeroDivisionError), applied(PLAN, silent, keep=True):
        raise ZeroDivisionError
    assert told() == THERE + THERE + BACK


def test_a_command_that_fails_is_told_and_what_was_done_is_put_back(told: Callable[[], list[str]]) -> None:
    broken = Plan((PLAN.commands[0], command("nvpmodel -m 9")), PLAN.restore)
    with pytest.raises(CommandFailed, match="invalid mode"), applied(broken, silent):
        pytest.fail("the block must not be reached")
    assert told() == ["jetson_clocks --store f", "nvpmodel -m 9", *BACK]


def test_where_the_first_command_fails_nothing_was_done_and_nothing_is_put_back(
    told: Callable[[], list[str]],
) -> None:
    with pytest.raises(CommandFailed), applied(Plan((command("nvpmodel -m 9"),), PLAN.restore), silent):
        pass
    assert told() == ["nvpmodel -m 9"]


def test_every_way_back_is_tried_whatever_becomes_of_the_others(told: Callable[[], list[str]]) -> None:
    said: list[str] = []
    with applied(Plan(PLAN.commands, (command("nvpmodel -m 9"), command("jetson_clocks --restore f"))), said.append):
        pass
    assert told()[-2:] == ["nvpmodel -m 9", "jetson_clocks --restore f"]
    assert any(line.startswith("warning") for line in said)


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandFailed, match="not on the PATH"), applied(PLAN, silent):
        pass


def test_the_users_command_gives_its_exit_code() -> None:
    assert run_user_command(["sh", "-c", "exit 7"]) == 7
    with pytest.raises(UsageError, match="no program"):
        run_user_command(["no-such-program-here"])
