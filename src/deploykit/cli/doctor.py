"""`deploykit doctor`: what stands between this machine and a measurement that means something."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def doctor(
    root: Annotated[
        Path,
        typer.Option(envvar="DEPLOYKIT_ROOT", help="Examine this snapshot (.tar.gz) or folder instead of the machine."),
    ] = Path("/"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check driver, CUDA, TensorRT, onnxruntime, MIG, power mode and permissions; exit code 3 where something is wrong.

    Example: deploykit doctor
    """
    from dataclasses import asdict

    from deploykit.base.errors import NegativeAnswer
    from deploykit.cli.device_tables import doctor_table
    from deploykit.cli.output import emit
    from deploykit.probe.device import look_at
    from deploykit.probe.doctor import examine, gather
    from deploykit.probe.snapshot import opened

    with opened(root) as folder:
        facts = gather(look_at(folder), folder)
    report = examine(facts)
    document = {
        "problems": report.problems,
        "findings": [asdict(finding) for finding in report.findings],
        "software": facts.software.model_dump(mode="json") if facts.software else None,
    }
    emit(document, lambda: doctor_table(report), as_json=as_json)
    if report.problems:
        count = f"{report.problems} problem" + ("s" if report.problems > 1 else "")
        raise NegativeAnswer(f"{count} found: see the findings for what mends them")
