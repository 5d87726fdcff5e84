"""Run a plan, hold the state while something else runs, put everything back: on exit, Ctrl-C, SIGTERM and errors."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from types import FrameType

from deploykit.base.errors import DeviceError, UsageError
from deploykit.probe.plan import Command, Plan

_LIMIT_S = 60
Tell = Callable[[str], None]


class CommandFailed(DeviceError):
    """A command that sets the device's state did not do it."""


def run(command: Command) -> None:
    """Run one command, without a shell and without standard input: nvpmodel asks there whether to reboot.

    Raises:
        CommandFailed: It is not there, fails, or does not end.
    """
    program = shutil.which(command.words[0])
    if program is None:
        raise CommandFailed(f"{command.words[0]} is not on the PATH; on a Jetson it comes with nvidia-l4t-nvpmodel")
    try:
        done = subprocess.run(
            [program, *command.words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"`{command}` could not be run: {error}") from error
    if done.returncode != 0 or "NVPM ERROR" in done.stdout + done.stderr:
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        raise CommandFailed(
            f"`{command}` failed with exit code {done.returncode}: {said or 'it said nothing'}; it needs root"
        )


@contextlib.contextmanager
def applied(plan: Plan, tell: Tell, *, keep: bool = False) -> Iterator[None]:
    """The machine in the plan's state for as long as the block runs.

    Args:
        tell: Shown each command before it runs.
        keep: Leave the state when the block ends well; an error still puts it back.

    Raises:
        CommandFailed: A command of the plan failed; what was done before it is put back.
    """
    with _stoppable():
        changed = done = False
        try:
            for command in plan.commands:
                tell(f"{command}   # {command.why}")
                run(command)
                changed = True
            yield
            done = True
        finally:
            if changed and not (keep and done):
                _restore(plan, tell)


def run_user_command(words: list[str]) -> int:
    """Run what the user wrote behind the target, with his terminal; returns its exit code.

    Raises:
        UsageError: There is no such program.
    """
    program = shutil.which(words[0])
    if program is None:
        raise UsageError(f"{words[0]!r} is no program on the PATH")
    return subprocess.run([program, *words[1:]], check=False).returncode


def wait_for_interrupt() -> None:
    """Sleep until Ctrl-C or SIGTERM."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def _restore(plan: Plan, tell: Tell) -> None:
    """Every command, whatever becomes of the others."""
    for command in plan.restore:
        tell(f"{command}   # {command.why}")
        try:
            run(command)
        except CommandFailed as failure:
            tell(f"warning: {failure}")


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block like Ctrl-C does, so that its `finally` is reached."""

    def stop(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
