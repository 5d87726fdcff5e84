"""`deploykit export`: a model to an ONNX artifact of one precision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploykit.base.vocab import CalibrationMethod, Precision

if TYPE_CHECKING:
    from rich.console import RenderableType

    from deploykit.pipeline import Exported


def export(
    model: Annotated[
        str,
        typer.Argument(
            help="Model card name, torchvision:NAME, timm:NAME, FILE.py:factory, package.module:factory, a .onnx or "
            ".pt2 file."
        ),
    ],
    precision: Annotated[Precision, typer.Option(help="Numeric format of the artifact.")] = Precision.FP32,
    target: Annotated[str, typer.Option(help="Where it will run; decides the INT8 dialect.")] = "host",
    weights: Annotated[str, typer.Option(help="default, none (random: speed only) or a FILE.")] = "default",
    input_: Annotated[
        list[str] | None, typer.Option("--input", help="NAME:1x3x224x224[:dtype]; once for each input.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="MIN:OPT:MAX, or one number for a fixed batch; default 1:8:32.")
    ] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX operator set; default: the exporter's own.")] = None,
    preprocessing: Annotated[
        str | None, typer.Option(help="CARD or FILE.yaml: how pictures become the input of a model without a card.")
    ] = None,
    calibration_data: Annotated[
        str | None,
        typer.Option(help="DIR of images, FILE.npz, module:function, builtin:photos, or random (speed only)."),
    ] = None,
    calibration_method: Annotated[
        CalibrationMethod, typer.Option(help="How a histogram becomes a clipping range.")
    ] = CalibrationMethod.ENTROPY,
    calibration_samples: Annotated[int, typer.Option(min=1, help="Samples to calibrate on.")] = 128,
    eval_samples: Annotated[int, typer.Option(min=1, help="Held-out samples to judge accuracy on.")] = 64,
    accuracy_floor: Annotated[
        list[str] | None,
        typer.Option(help="METRIC=VALUE, e.g. top1_agreement=0.98; exit 3 where the report is below."),
    ] = None,
    exclude_ops: Annotated[list[str] | None, typer.Option(help="Operator type to leave unquantized.")] = None,
    exclude_nodes: Annotated[list[str] | None, typer.Option(help="Node to leave unquantized.")] = None,
    keep_io_types: Annotated[str, typer.Option(help="yes: fp16 artifacts keep fp32 inputs and outputs; no.")] = "yes",
    high_precision_dtype: Annotated[
        str | None,
        typer.Option(help="int8: fp16 or fp32 for what does not become INT8. Default: fp16 for NVIDIA targets."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="A broken calibration image is an error.")] = False,
    seed: Annotated[int, typer.Option(help="Of random weights, crops and the order of a folder.")] = 0,
    output_dir: Annotated[
        Path | None, typer.Option(help="Also put the artifact here, as MODEL-PRECISION[-DIALECT].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Export a model to an ONNX artifact, cast or quantized, with its accuracy against fp32.

    Example: deploykit export resnet50 --precision int8 --weights none
    """
    from deploykit import pipeline
    from deploykit.base.artifact import parse_batch
    from deploykit.base.errors import UsageError
    from deploykit.base.tensors import parse_tensor
    from deploykit.cli.output import emit, progress_bars, warn

    if keep_io_types not in ("yes", "no"):
        raise UsageError(f"--keep-io-types {keep_io_types!r} is neither yes nor no")
    settings = pipeline.ExportSettings(
        precision=precision,
        target=target,
        weights=weights,
        inputs=tuple(parse_tensor(text) for text in input_ or ()),
        batch=parse_batch(batch) if batch else None,
        opset=opset,
        preprocessing=preprocessing,
        calibration_data=calibration_data,
        calibration_method=calibration_method,
        calibration_samples=calibration_samples,
        eval_samples=eval_samples,
        accuracy_floors=tuple(accuracy_floor or ()),
        exclude_ops=tuple(exclude_ops or ()),
        exclude_nodes=tuple(exclude_nodes or ()),
        keep_io_types=keep_io_types == "yes",
        high_precision_dtype=high_precision_dtype,
        strict=strict,
        seed=seed,
        output_dir=output_dir,
    )
    with progress_bars() as progress:
        exported = pipeline.export(model, settings, progress=progress)
    for text in exported.artifact.manifest.warnings:
        warn(text)
    emit(document(exported), lambda: table(exported), as_json=as_json)
    exported.require_floors()


def document(exported: Exported) -> dict[str, Any]:
    """The JSON of `export`."""
    manifest = exported.artifact.manifest
    plain = manifest.model_dump(mode="json")
    return {
        "artifact": str(exported.artifact.path),
        "model": manifest.model.name,
        "precision": plain["precision"],
        "dialect": plain["dialect"],
        "high_precision_dtype": manifest.recipe.get("high_precision_dtype"),
        "onnx": str(exported.artifact.onnx_path),
        "digest": exported.artifact.digest,
        "reused": exported.reused,
        "random_weights": manifest.model.random_weights,
        **{key: plain[key] for key in ("inputs", "outputs", "batch", "opset", "accuracy", "calibration", "parity")},
        "kept_fp32": [{"node": node, "why": why} for node, why in manifest.kept_fp32.items()],
        "warnings": plain["warnings"],
    }


def table(exported: Exported) -> RenderableType:
    """What people see: one row a fact."""
    from rich.table import Table

    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold")
    rows.add_column(overflow="fold")
    for name, text in _rows(exported):
        rows.add_row(name, text)
    return rows


def _rows(exported: Exported) -> list[tuple[str, str]]:
    from deploykit.base.units import format_bytes

    manifest = exported.artifact.manifest
    size = sum(info.size_bytes for info in manifest.files.values())
    precision = str(manifest.precision) + (f" ({manifest.dialect} dialect)" if manifest.dialect else "")
    if manifest.recipe.get("high_precision_dtype") == "fp16":
        precision += ", the rest fp16"
    weights = "random: speed only" if manifest.model.random_weights else manifest.model.weights
    rows = [
        ("artifact", f"{exported.artifact.path}{' (already there)' if exported.reused else ''}"),
        ("model", f"{manifest.model.name}, {weights} weights, batch {manifest.batch}, {format_bytes(size)}"),
        ("precision", precision),
    ]
    if manifest.parity:
        worst = max(manifest.parity, key=lambda check: check.max_abs_error)
        sizes = sorted({check.batch_size for check in manifest.parity})
        rows.append(("parity", f"max abs error {worst.max_abs_error:.2g} against the source, batch sizes {sizes}"))
    return rows + _calibration_rows(exported) + _accuracy_rows(exported)


def _calibration_rows(exported: Exported) -> list[tuple[str, str]]:
    manifest = exported.artifact.manifest
    rows = []
    if (info := manifest.calibration) is not None:
        text = f"{info.method}, {info.samples} samples of {info.data}, {info.seconds:.1f} s, {info.peak_rss_mb:.0f} MB"
        rows.append(("calibration", text))
    if manifest.kept_fp32:
        shown = "; ".join(f"{node}: {why}" for node, why in list(manifest.kept_fp32.items())[:5])
        more = f" … and {len(manifest.kept_fp32) - 5} more" if len(manifest.kept_fp32) > 5 else ""
        rows.append((f"kept fp32 ({len(manifest.kept_fp32)})", shown + more))
    return rows


def _accuracy_rows(exported: Exported) -> list[tuple[str, str]]:
    report = exported.artifact.manifest.accuracy
    if report is None:
        return []
    parts = [f"{report.samples} samples of {report.data}"]
    parts += [f"cosine {report.cosine:.5f}"] if report.cosine is not None else []
    parts += [f"SQNR {report.sqnr_db:.1f} dB"] if report.sqnr_db is not None else []
    parts += [f"top-1 agreement {report.top1_agreement:.1%}"] if report.top1_agreement is not None else []
    if report.top1 is not None and report.top1_fp32 is not None:
        parts.append(f"top-1 {report.top1:.1%} (fp32 {report.top1_fp32:.1%})")
    rows = [("accuracy", ", ".join(parts))]
    if report.worst_layers:
        worst = [f"{layer.name} ({layer.op_type}) {layer.sqnr_db:.1f} dB" for layer in report.worst_layers[:3]]
        rows.append(("worst layers", ", ".join(worst)))
    return rows
