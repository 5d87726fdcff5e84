"""`deploykit`: the commands, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from deploykit import __version__
from deploykit.base.errors import DeploykitError
from deploykit.cli import (
    bench,
    build,
    doctor,
    engines,
    export,
    models,
    predict,
    recommend,
    results,
    targets,
    targets_device,
)

DEBUG_VARIABLE = "DEPLOYKIT_DEBUG"
INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""

app = typer.Typer(
    name="deploykit",
    help="Which hardware should this model ship on, and what is the proof?",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


app.command()(export.export)
app.command()(build.build)
app.command()(bench.bench)
app.command()(predict.predict)
app.command()(recommend.recommend)
app.command()(doctor.doctor)
app.add_typer(models.app)
targets_device.register(targets.app)
app.add_typer(targets.app)
app.add_typer(engines.app)
app.add_typer(results.app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deploykit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[
        bool, typer.Option("--debug", envvar=DEBUG_VARIABLE, help="Show tracebacks instead of one paragraph.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def main() -> None:
    """Entry point of the `deploykit` script."""
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        # Native threads (LoadGen's, onnxruntime's) that cannot be stopped would abort an orderly end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line.

    Returns:
        The exit code of `base.errors`; 2 for a command line that does not parse; `INTERRUPTED` after Ctrl-C.
    """
    try:
        app(arguments, prog_name="deploykit")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            _tell("interrupted")
        return stop.code if isinstance(stop.code, int) else 0
    except DeploykitError as error:
        _tell(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our pipe (`| head`) went away: not an error, and stdout can no longer be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last fence: a bug is told in one paragraph, with the way to see more
        _tell(f"unexpected failure: {type(error).__name__}: {error}; run again with `deploykit --debug …` to see where")
        return 1
    return 0


def _tell(message: str) -> None:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    typer.secho("error: ", fg="red", err=True, nl=False)
    typer.echo(message, err=True)
