"""`export --precision fp32`: a loaded model → an artifact that was checked against it at two batch sizes."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from deploykit import __version__
from deploykit.base import files
from deploykit.base.artifact import MODEL_FILE, Artifact, BatchRange, Manifest, ParityCheck
from deploykit.base.artifact_cache import find_or_make
from deploykit.base.loaded import LoadedModel
from deploykit.base.onnx_specs import graph_inputs, graph_outputs
from deploykit.base.progress import SILENT, Progress
from deploykit.base.protocols import OpenSession, SampleSource, Session
from deploykit.base.tensors import TensorSpec
from deploykit.base.vocab import Precision
from deploykit.export import naming, onnx_graph, parity, program_file, shapes, torch_program, write_onnx
from deploykit.export.feeds import random_feeds, real_feeds

EXPORTER_VERSION = 1
"""Raise it when the exporter writes another graph from the same model, so that old artifacts are made anew."""


@dataclass(frozen=True)
class Written:
    """What stands in the folder after a graph was written.

    Attributes:
        reference: Answers as the source does.
        inputs: What the graph takes.
        outputs: What it returns.
        opset: Its operator set.
        share: Tolerance, as a share of the output's scale.
        sizes: Open dimensions other than the batch, where something is known of them.
        warnings: What the user should know.
        recipe: What was done to the source, for the manifest.
    """

    reference: parity.Reference
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    opset: int
    share: float = parity.RELATIVE_TOLERANCE
    sizes: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One export: everything that decides what comes out, and the tools that it needs."""

    model: LoadedModel
    batch: BatchRange
    opset: int | None
    samples: SampleSource | None
    open_session: OpenSession
    progress: Progress


def export_fp32(
    model: LoadedModel,
    *,
    root: Path,
    open_session: OpenSession,
    batch: BatchRange | None = None,
    opset: int | None = None,
    samples: SampleSource | None = None,
    progress: Progress = SILENT,
) -> tuple[Artifact, bool]:
    """Make the fp32 artifact of a model, or find the one that was made before.

    Args:
        model: What `sources.resolve` returned.
        root: Folder of all artifacts.
        open_session: Loads an ONNX file into a runtime, for the checks.
        batch: Sizes to serve. None: what the model's file serves, else `shapes.DEFAULT_BATCH`.
        opset: ONNX operator set. None: 18 from torch; the file's own from ONNX, raised to 13 where it is older.
        samples: Real inputs to check on, beside random ones.
        progress: Is told of the steps.

    Returns:
        The artifact, and whether it was there already.

    Raises:
        UsageError: The model cannot be exported as asked; the message says at which line and what to do.
        ParityFailed: The graph does not compute what the model does.
    """
    model = replace(model, inputs=shapes.with_batch_named(model.inputs, also_numbers=model.kind == "module"))
    chosen = _batch_of(model, batch)
    if chosen.fixed and model.kind == "module":
        model = replace(model, inputs=shapes.with_batch_fixed(model.inputs, chosen.min))
    job = Job(model, chosen, opset, samples, open_session, progress)
    return find_or_make(root, model.info.name, "fp32", export_key(job), lambda folder: _make(job, folder))


def export_key(job: Job) -> str:
    """Digest over all that decides what an export writes. Real samples only check it, and are left out."""
    model = job.model
    return files.sha256_json(
        {
            "step": "export-fp32",
            "exporter": EXPORTER_VERSION,
            "fingerprint": model.fingerprint,
            "info": model.info.model_dump(mode="json", exclude={"reference"}),
            "preprocessing": model.preprocessing.model_dump(mode="json") if model.preprocessing else None,
            "inputs": [spec.model_dump(mode="json") for spec in model.inputs],
            "batch": str(job.batch),
            "opset": job.opset,
            "versions": versions(model.kind),
        }
    )


def versions(kind: str) -> dict[str, str]:
    """Releases of everything that takes part in an export of this kind."""
    packages = ["onnx"] if kind == "onnx" else ["onnx", "torch", "onnxscript", "onnx-ir"]
    found = {"deploykit": __version__}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _batch_of(model: LoadedModel, asked: BatchRange | None) -> BatchRange:
    if model.kind == "module":
        return asked or shapes.DEFAULT_BATCH
    if model.kind == "exported-program":
        lowest, highest = program_file.batch_limits(model.payload)
    else:
        lowest, highest = onnx_graph.batch_limits(model.inputs)
    return shapes.chosen_batch(asked, lowest, highest, model.info.reference)


def _make(job: Job, folder: Path) -> Manifest:
    path = folder / MODEL_FILE
    with _written(job, folder) as written:
        job.progress.step("Checking the graph against its source")
        with job.open_session(path) as session:
            checks = parity.check_parity(written.reference, session, _batches(job, written), written.share)
    return _manifest(job, written, checks)


@contextlib.contextmanager
def _written(job: Job, folder: Path) -> Iterator[Written]:
    """Write the graph; what the reference needs is freed when the block ends."""
    if job.model.kind == "onnx":
        job.progress.step("Reading the ONNX file")
        with job.open_session(job.model.payload) as source:
            yield _from_onnx(job, folder, source)
        return
    job.progress.step("Tracing the model with torch.export")
    yield _from_torch(job, folder)


def _from_torch(job: Job, folder: Path) -> Written:
    model, name = job.model, job.model.info.reference
    if model.kind == "module":
        program = torch_program.program_from_module(model.payload, model.inputs, job.batch, name)
        sizes: dict[str, int] = {}
    else:
        program = program_file.program_from_file(model.payload, model.inputs, name)
        sizes = program_file.example_sizes(model.payload, model.inputs)
    names = naming.output_names(program.exported, [spec.name for spec in program.inputs])
    job.progress.step("Converting to ONNX")
    write_onnx.write_program(program, names, job.opset, folder, name)
    graph = onnx_graph.read_without_weights(folder / MODEL_FILE)
    return Written(
        reference=torch_program.reference(program, names),
        inputs=graph_inputs(graph.graph),
        outputs=graph_outputs(graph.graph),
        opset=write_onnx.opset_of(graph),
        sizes=sizes,
        warnings=(*_dtype_warning(job.model), *program.warnings),
        recipe={"exporter": "torch.onnx dynamo"},
    )


def _from_onnx(job: Job, folder: Path, source: Session) -> Written:
    changes = onnx_graph.normalise(job.model.payload, job.model.inputs, job.opset, folder, job.model.info.source_dtype)
    graph = onnx_graph.read_without_weights(folder / MODEL_FILE)
    inputs = graph_inputs(graph.graph)
    half = job.model.info.source_dtype in ("float16", "bfloat16")
    return Written(
        reference=onnx_graph.reference(source, job.model.payload),
        inputs=inputs,
        outputs=onnx_graph.ranked_outputs(graph, source, random_feeds(inputs, job.batch.opt)),
        opset=write_onnx.opset_of(graph),
        share=parity.HALF_TOLERANCE if half else parity.RELATIVE_TOLERANCE,
        warnings=(*_dtype_warning(job.model), *changes),
        recipe={"exporter": "onnx file", "changes": list(changes)},
    )


def _batches(job: Job, written: Written) -> list[parity.Batch]:
    """Random inputs, and real ones where there are some, at each batch size."""
    batches = []
    for size in shapes.check_batches(job.batch):
        batches.append(parity.Batch("random", size, random_feeds(written.inputs, size, written.sizes)))
        real = real_feeds(written.inputs, job.samples, size) if job.samples is not None else None
        if real is not None and job.samples is not None:
            batches.append(parity.Batch(job.samples.description, size, real))
    return batches


def _manifest(job: Job, written: Written, checks: tuple[ParityCheck, ...]) -> Manifest:
    return Manifest(
        key=export_key(job),
        model=job.model.info,
        precision=Precision.FP32,
        opset=written.opset,
        inputs=written.inputs,
        outputs=written.outputs,
        batch=job.batch,
        preprocessing=job.model.preprocessing,
        recipe={"step": "export", "opset_asked": job.opset, **written.recipe},
        parity=checks,
        warnings=written.warnings,
        versions=versions(job.model.kind),
        created=dt.datetime.now(dt.timezone.utc),
    )


def _dtype_warning(model: LoadedModel) -> tuple[str, ...]:
    dtype = model.info.source_dtype
    return () if dtype == "float32" else (f"the source's weights are {dtype}: this artifact holds them as float32",)
