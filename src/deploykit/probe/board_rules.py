"""The doctor's rules of a Jetson: releases that belong together, power mode, clocks, permissions. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from deploykit.probe.driver_tables import python_of, shipped_with, version_tuple
from deploykit.probe.findings import Facts, Finding, Rule
from deploykit.probe.jetson import STATUS_FILE
from deploykit.probe.software import Software
from deploykit.targets.match import cap_mhz, needs_reboot
from deploykit.targets.state import JetsonState, NvpMode


def _tensorrt_of_jetpack(facts: Facts) -> Iterator[Finding]:
    board, software = facts.state.jetson, facts.software
    shipped = shipped_with(board.jetpack) if board and board.jetpack else None
    if board is None or board.jetpack is None or software is None or shipped is None:
        return
    own = software.packages.get("tensorrt")
    if own is None:
        yield _unseen_tensorrt(board.jetpack, shipped[0], software)
    elif version_tuple(own)[:2] != version_tuple(shipped[0]):
        yield Finding(
            "warning",
            f"TensorRT {own} on JetPack {board.jetpack}, which carries {shipped[0]}",
            "engines of one TensorRT do not load in another, and its figures are not comparable",
            "use the system's own: pip uninstall tensorrt",
        )


def _unseen_tensorrt(jetpack: str, tensorrt: str, software: Software) -> Finding:
    what, python = "TensorRT is not to be seen from this Python", python_of(jetpack)
    if software.system_tensorrt is None:
        why, mend = f"JetPack {jetpack} carries TensorRT {tensorrt}; it is not installed", "sudo apt install tensorrt"
    elif python is not None and not software.python.startswith(f"{python}."):
        why = f"the system's bindings are for Python {python}, and this is {software.python}"
        mend = f"docs/jetson.md: a Python {python} environment where deploykit runs on it, else build the bindings"
    else:
        why = f"the system has TensorRT {software.system_tensorrt}, in its own Python packages"
        mend = "make the environment with: python3 -m venv --system-site-packages"
    return Finding("warning", what, why, mend)


def _torch_of_jetpack(facts: Facts) -> Iterator[Finding]:
    board, software = facts.state.jetson, facts.software
    shipped = shipped_with(board.jetpack) if board and board.jetpack else None
    if board is None or software is None or shipped is None or "torch" not in software.packages:
        return
    built = software.torch_cuda
    if built is None or version_tuple(built)[:1] != version_tuple(shipped[1])[:1]:
        yield Finding(
            "problem",
            f"torch {software.packages['torch']} is " + (f"built for CUDA {built}" if built else "a CPU build"),
            f"JetPack {board.jetpack} carries CUDA {shipped[1]}: torch does not reach the GPU",
            "install the build for this JetPack (docs/jetson.md); pip's own index has none",
        )


def _power_mode(facts: Facts) -> Iterator[Finding]:
    board = facts.state.jetson
    if board is None:
        return
    if board.conf_fault:
        yield Finding(
            "problem",
            f"the power modes cannot be read: {board.conf_fault}",
            "nobody can say which mode a measurement is of",
            "in a container: -v /etc/nvpmodel.conf:/etc/nvpmodel.conf:ro -v /var/lib/nvpmodel:/var/lib/nvpmodel:ro",
        )
        return
    mode, best = board.mode, _fastest(board)
    if STATUS_FILE in facts.denied:
        yield Finding(
            "problem",
            f"the saved power mode cannot be read (/{STATUS_FILE})",
            "nobody can say which mode a measurement is of",
            f"sudo chmod a+r /{STATUS_FILE}",
        )
    elif mode is None:
        yield Finding(
            "problem", "the saved power mode is none of the board's", "the mode is unknown", "sudo nvpmodel -q"
        )
    elif needs_reboot(board, mode):
        yield Finding(
            "problem",
            f"{mode.name} is saved, and the GPU's power gating is still that of another mode",
            "a measurement now would be of neither mode",
            "sudo reboot",
        )
    elif best is not None and best.id != mode.id:
        yield Finding(
            "note",
            f"the power mode is {mode.name}, not the fastest ({best.name})",
            "figures of this mode are right for this mode only",
            f"sudo nvpmodel -m {best.id}; `deploykit targets detect` says what each mode takes",
        )


def _clocks(facts: Facts) -> Iterator[Finding]:
    board = facts.state.jetson
    if board is not None and board.clocks_locked is False:
        yield Finding(
            "note",
            "the clocks follow the load",
            "short runs see clocks that are still rising: figures scatter and are lower than those of a busy board",
            "sudo jetson_clocks (its --store and --restore put them back)",
        )


def _fastest(board: JetsonState) -> NvpMode | None:
    """The mode with the highest GPU cap, with the most CPUs among those: ids are in no order."""

    def rank(mode: NvpMode) -> tuple[float, int]:
        cap = cap_mhz("GPU MAX_FREQ", mode.settings.get("GPU MAX_FREQ", "-1"))
        cpus = sum(key.startswith("CPU_ONLINE") and value == "1" for key, value in mode.settings.items())
        return (float("inf") if cap is None else cap, cpus)

    return max(board.modes, key=rank, default=None)


def _board_sensors(facts: Facts) -> Iterator[Finding]:
    board = facts.state.jetson
    if board is None:
        return
    if facts.in_video_group is False:
        yield Finding(
            "problem",
            "this user is not in the group `video`",
            "the GPU's device nodes are for root and that group",
            "sudo usermod -aG video $USER, then log in again",
        )
    if board.power.total_w is None:
        rails = ", ".join(board.power.unreadable)
        yield Finding(
            "warning",
            f"the rails {rails} cannot be read" if rails else "no rail is known to be the module's total",
            "power and energy will be missing from measurements",
            "in a container: -v /sys:/sys:ro; else: sudo chmod a+r /sys/bus/i2c/drivers/ina3221/*/hwmon/*/*_input",
        )


BOARD_RULES: tuple[Rule, ...] = (_tensorrt_of_jetpack, _torch_of_jetpack, _power_mode, _clocks, _board_sensors)
