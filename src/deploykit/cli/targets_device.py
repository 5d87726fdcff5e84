"""`deploykit targets detect | check | apply | export`: targets and the machine at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from deploykit.probe.check import Check
    from deploykit.probe.detect import Detected
    from deploykit.probe.plan import Plan
    from deploykit.targets.state import DeviceState

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Root = Annotated[
    Path,
    typer.Option(envvar="DEPLOYKIT_ROOT", help="Look at this snapshot (.tar.gz) or folder instead of the machine."),
]
Target = Annotated[str, typer.Argument(help="DEVICE[@MODE][:PROFILE], an alias like orin-30w, or a target file.")]

_MACHINE = Path("/")


def register(group: typer.Typer) -> None:
    """Add the commands to the `targets` group."""
    group.command("detect")(detect)
    group.command("check")(check)
    group.command("apply")(apply)
    group.command("export")(export)


def detect(
    save: Annotated[Path | None, typer.Option(help="Also write a snapshot of this machine, BOARD.tar.gz.")] = None,
    tegrastats: Annotated[Path | None, typer.Option(help="Read a log that tegrastats wrote on this board.")] = None,
    root: Root = _MACHINE,
    as_json: Json = False,
) -> None:
    """What this machine is, which targets fit, which fits now, and what reaches another.

    Example: deploykit targets detect --save board.tar.gz
    """
    from deploykit.cli.device_tables import detected_table
    from deploykit.cli.output import emit, warn
    from deploykit.probe import detect as detecting
    from deploykit.probe.device import look_at
    from deploykit.probe.doctor import gather
    from deploykit.probe.snapshot import opened, save_snapshot
    from deploykit.targets.catalog import load_catalog

    with opened(root) as folder:
        look = look_at(folder)
        if save is not None:
            # The facts of the doctor go in too, so that `doctor --root` says of the snapshot what it says here.
            save_snapshot(look, save, gather(look, folder).software)
    found = detecting.detect(look.state, load_catalog())
    for warning in found.warnings:
        warn(warning)
    document = _detected(found, look.state)
    if tegrastats is not None:
        document["tegrastats"] = _tegrastats(tegrastats, look.state)
    emit(document, lambda: detected_table(found, look.state, document.get("tegrastats")), as_json=as_json)


def check(target: Target, root: Root = _MACHINE, as_json: Json = False) -> None:
    """Is this machine that target now? Every difference is named; exit code 4 where one is wrong.

    Example: deploykit targets check orin-30w
    """
    from deploykit.cli.device_tables import differences_table
    from deploykit.cli.output import emit, warn

    checked, _, said = _checked(target, root)
    for warning in filter(None, (said, *checked.warnings)):
        warn(warning)
    emit(_check_document(checked), lambda: differences_table(checked), as_json=as_json)
    checked.refuse_if_wrong()


def apply(
    target: Target,
    command: Annotated[
        list[str] | None, typer.Argument(help="Behind `--`: run this in that state, then put all back.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run the commands; without it they are only printed.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the machine in that state.")] = False,
    lock: Annotated[bool, typer.Option(help="On a Jetson hold the clocks with jetson_clocks.")] = True,
    create_mig: Annotated[bool, typer.Option("--create-mig", help="Create a MIG instance of the profile.")] = False,
    gpu_clock_mhz: Annotated[float | None, typer.Option(min=1, help="Hold a card's clock at this value.")] = None,
    root: Root = _MACHINE,
    as_json: Json = False,
) -> None:
    """Make this machine that target: prints the commands; with --yes runs them, and puts all back at the end.

    Without a command to run, the state is held until Ctrl-C. Needs root to change anything. Never reboots.

    Example: deploykit targets apply orin-30w --yes -- deploykit bench resnet50 --target orin-30w
    """
    from deploykit.base.errors import UsageError
    from deploykit.base.home import home
    from deploykit.cli.device_tables import plan_table
    from deploykit.cli.output import emit
    from deploykit.probe.plan import plan

    checked, state, _ = _checked(target, root)
    made = plan(
        state,
        checked,
        _new_file(home().absolute()),
        lock_clocks=lock,
        create_mig=create_mig,
        gpu_clock_mhz=gpu_clock_mhz,
    )
    emit(_plan_document(checked, made), lambda: plan_table(checked, made), as_json=as_json)
    if not yes:
        return
    if root.resolve() != _MACHINE:
        raise UsageError("--yes changes this machine, and --root looks at another: leave one of them out")
    raise typer.Exit(_hold(target, made, command or [], keep))


def export(
    out: Annotated[Path | None, typer.Option(help="Write here instead of on stdout.")] = None,
    root: Root = _MACHINE,
) -> None:
    """Write the present device, with the power modes of its own files, as a target file.

    Example: deploykit targets export --out targets/this-board.yaml
    """
    from deploykit.base import files
    from deploykit.base.errors import UsageError
    from deploykit.probe.check import first_gpu
    from deploykit.probe.device import device_state
    from deploykit.probe.export import target_file, yaml_of
    from deploykit.probe.snapshot import opened
    from deploykit.targets.catalog import load_catalog

    with opened(root) as folder:
        state = device_state(folder)
    text = yaml_of(target_file(state, load_catalog(), first_gpu(state)))
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        files.write_text(out, text)
    except OSError as error:
        raise UsageError(f"the target file {out} cannot be written: {error.strerror}") from error


def _checked(target: str, root: Path) -> tuple[Check, DeviceState, str | None]:
    from deploykit.probe import check as checking
    from deploykit.probe.device import device_state
    from deploykit.probe.snapshot import opened
    from deploykit.targets.catalog import load_catalog
    from deploykit.targets.identity import resolve_here

    with opened(root) as folder:
        state = device_state(folder)
    catalog = load_catalog()
    spec, said = resolve_here(target, catalog, state)
    return checking.check(state, spec, catalog), state, said


def _hold(target: str, made: Plan, command: list[str], keep: bool) -> int:
    """Bring the machine into the state, see that it is, and stay there while the command runs."""
    from deploykit.base.home import home
    from deploykit.cli.output import stderr_console
    from deploykit.probe.apply import applied, run_user_command, wait_for_interrupt

    home().mkdir(parents=True, exist_ok=True)
    tell = stderr_console().print
    with applied(made, tell, keep=keep):
        if made.notes:
            tell("\n".join(made.notes))
        checked, _, _ = _checked(target, _MACHINE)
        checked.refuse_if_wrong()
        if command:
            return run_user_command(command)
        if not keep:
            tell(f"this machine is {checked.spec.ref}; Ctrl-C puts it back")
            wait_for_interrupt()
    return 0


def _new_file(folder: Path) -> Path:
    """A name that does not exist: jetson_clocks asks before it overwrites, and nobody is there to answer."""
    import time

    return folder / f"jetson-clocks-{time.time_ns()}.conf"


def _detected(found: Detected, state: DeviceState) -> dict[str, Any]:
    chosen = found.chosen
    return {
        "target": found.now,
        "device": found.devices[0] if found.devices else None,
        "devices": list(found.devices),
        "power_mode": state.jetson.mode.name if state.jetson and state.jetson.mode else None,
        "mig_profile": chosen.slice.profile if chosen and chosen.slice else None,
        "cuda_visible_devices": chosen.uuid if chosen else None,
        "targets": [
            {
                **_check_document(item.checked),
                "commands": [str(command) for command in item.plan.commands] if item.plan else None,
                "reboot": bool(item.plan and item.plan.reboot),
            }
            for item in found.targets
        ],
        "warnings": list(found.warnings),
        "state": state.model_dump(mode="json"),
    }


def _check_document(checked: Check) -> dict[str, Any]:
    from dataclasses import asdict

    spec, chosen = checked.spec, checked.chosen
    return {
        "target": spec.ref,
        "device": checked.device,
        "power_mode": spec.mode_name,
        "mig_profile": spec.profile_name,
        "fits": checked.fits,
        "cuda_visible_devices": chosen.uuid if chosen else None,
        "differences": [asdict(difference) for difference in checked.differences],
    }


def _plan_document(checked: Check, made: Plan) -> dict[str, Any]:
    return {
        **_check_document(checked),
        "commands": [list(command.words) for command in made.commands],
        "restore": [list(command.words) for command in made.restore],
        "reboot": made.reboot,
        "notes": list(made.notes),
    }


def _tegrastats(path: Path, state: DeviceState) -> dict[str, Any]:
    from deploykit.base.errors import UsageError
    from deploykit.probe.tegrastats import parse_log

    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"the tegrastats log {path} cannot be read: {error.strerror}") from error
    log = parse_log(text.splitlines())
    if not log.lines:
        raise UsageError(f"the tegrastats log {path} holds no line that tegrastats writes")
    clocks = [line.gpu_mhz for line in log.lines if line.gpu_mhz is not None]
    return {
        "samples": len(log.lines),
        "passed_over": log.passed_over,
        "power_w": log.power_w(state.jetson.board_id if state.jetson else None),
        "gpu_mhz": {"mean": sum(clocks) / len(clocks), "min": min(clocks)} if clocks else None,
        "temperature_max_c": max((t for line in log.lines for t in line.temperatures_c.values()), default=None),
    }
