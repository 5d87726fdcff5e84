"""fp32 artifact + calibration → int8 artifact: explicit Q/DQ in the dialect of a runtime."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploykit.base.artifact import CALIBRATION_FILE, MODEL_FILE, Artifact, CalibrationInfo, Manifest
from deploykit.base.errors import DeploykitError, UnknownNameError, UsageError
from deploykit.base.vocab import Dialect, Precision
from deploykit.precision import onnx_files
from deploykit.precision.calibration import Calibration, require_fit, write_calibration
from deploykit.precision.dialects import write_plan
from deploykit.precision.graph import Graph, load_graph
from deploykit.precision.int8_weights import SMALLEST_HALF_SCALE, SMALLEST_SCALE
from deploykit.precision.layers import WEIGHTED, refuse_quantized
from deploykit.precision.qdq import choose, place
from deploykit.precision.recipe import Int8Recipe
from deploykit.precision.simplify import bare_gemms, simplify


@dataclass(frozen=True)
class Int8Model:
    """What quantizing a graph did.

    Attributes:
        quantized: Node → its operator, for everything that computes in INT8.
        kept: Node → why it stays float.
        warnings: What the user should know.
    """

    quantized: Mapping[str, str]
    kept: Mapping[str, str]
    warnings: tuple[str, ...]


def quantize_model(source: Path, target: Path, calibration: Calibration, recipe: Int8Recipe) -> Int8Model:
    """Quantize one ONNX file into another.

    Args:
        source: The float32 model that was calibrated.
        target: Where the INT8 model is written, in a folder that is being filled.
        calibration: Ranges.
        recipe: Settings.

    Raises:
        UsageError: The model is quantized already or too old, or the recipe names what it does not have.
    """
    graph = load_graph(source)
    refuse_quantized(graph)
    excluded = excluded_nodes(graph, recipe)
    graph = simplify(graph)
    operators = {name: node.op_type for name, node in graph.nodes.items()}
    if recipe.dialect is Dialect.ORT_CPU:
        graph = bare_gemms(graph, excluded)
    choice = choose(graph, calibration, recipe.dialect, excluded)
    plan = place(graph, calibration, choice, recipe.dialect, recipe.isa)
    quantized = {name: operators[name] for name in (*plan.layers, *plan.others)}
    smallest = SMALLEST_HALF_SCALE if recipe.high_precision_dtype == Precision.FP16 else SMALLEST_SCALE
    write_plan(graph, plan, calibration.channel_means, smallest)
    onnx_files.save(graph.model, target)
    # Some files that run have always broken a rule of ONNX; quantizing must not break another.
    if (fault := onnx_files.fault(target)) is not None and onnx_files.fault(source) is None:
        raise DeploykitError(f"quantizing {source} broke its graph: {fault}; please report this")
    used = {name: calibration.tensors[name] for name in plan.pairs if name in calibration.tensors}
    return Int8Model(quantized, plan.kept, tuple(_tensor_warnings({name: r.kind for name, r in used.items()})))


def quantize(
    parent: Artifact,
    folder: Path,
    calibration: Calibration,
    recipe: Int8Recipe,
    *,
    info: CalibrationInfo,
    created: dt.datetime,
) -> Manifest:
    """Fill a folder with the int8 form of an artifact.

    Args:
        parent: The fp32 artifact.
        folder: Where to write; `artifact_cache.find_or_make` hands one out.
        calibration: Its ranges.
        recipe: Settings.
        info: What the calibration took.
        created: Time for the manifest.

    Returns:
        The manifest, without `files` and without accuracy.

    Raises:
        UsageError: The parent is not fp32, or the calibration is not of it or not of the recipe.
    """
    before = parent.manifest
    if before.precision is not Precision.FP32:
        raise UsageError(f"{parent.path} is {before.precision}; int8 is quantized from an fp32 artifact")
    require_fit(calibration, parent)
    _require_same_settings(calibration, recipe)
    done = quantize_model(parent.onnx_path, folder / MODEL_FILE, calibration, recipe)
    write_calibration(folder / CALIBRATION_FILE, calibration)
    changes = {
        "key": recipe.key(parent),
        "precision": Precision.INT8,
        "dialect": recipe.dialect,
        "isa": recipe.isa,
        "files": {},
        "parents": (parent.digest, *before.parents),
        "recipe": recipe.document(),
        "parity": (),
        "calibration": info,
        "kept_fp32": dict(done.kept),
        "warnings": (*before.warnings, *_calibration_warnings(info), *done.warnings, *_layer_warnings(done)),
        "created": created,
    }
    return before.model_copy(update=changes)


def excluded_nodes(graph: Graph, recipe: Int8Recipe) -> dict[str, str]:
    """Nodes that the recipe leaves in float → why.

    Raises:
        UnknownNameError: The graph has no such node, or no node of such an operator.
    """
    operators = Counter(node.op_type for node in graph.nodes.values())
    for operator in recipe.exclude_ops:
        if operator not in operators:
            raise UnknownNameError("operator in --exclude-ops", operator, operators, "the graph has none of it")
    for name in recipe.exclude_nodes:
        if name not in graph.nodes:
            raise UnknownNameError("node in --exclude-nodes", name, graph.nodes, "names are those of the fp32 graph")
    by_name = dict.fromkeys(recipe.exclude_nodes, "left out by --exclude-nodes")
    by_operator = {
        name: f"left out by --exclude-ops {node.op_type}"
        for name, node in graph.nodes.items()
        if node.op_type in recipe.exclude_ops
    }
    return by_operator | by_name


def _require_same_settings(calibration: Calibration, recipe: Int8Recipe) -> None:
    differs = []
    if calibration.method is not recipe.method:
        differs.append(f"its method is {calibration.method}, {recipe.method} was asked for")
    if calibration.data_digest != recipe.data_digest:
        differs.append(f"it was made from other data ({calibration.data}) than {recipe.data}")
    if calibration.percentile not in (None, recipe.percentile):
        differs.append(f"it is at percentile {calibration.percentile}, {recipe.percentile} was asked for")
    if differs:
        raise UsageError(f"this calibration does not serve: {'; '.join(differs)}; calibrate again")


def _calibration_warnings(info: CalibrationInfo) -> list[str]:
    if info.samples >= info.asked:
        return []
    return [f"int8: calibrated on {info.samples} samples of the {info.asked} asked for: {info.data} has no more usable"]


def _tensor_warnings(kinds: Mapping[str, str]) -> list[str]:
    said = []
    for kind, what in (("dead", "zero in every sample"), ("constant", "one single value in every sample")):
        if names := [name for name, found in kinds.items() if found == kind]:
            said.append(f"int8: {', '.join(sorted(names))}: {what}; often wrong preprocessing or dead weights")
    return said


def _layer_warnings(done: Int8Model) -> list[str]:
    if any(operator in WEIGHTED for operator in done.quantized.values()):
        return []
    return ["int8: every layer stays float, see kept_fp32: this artifact is no faster than fp32"]
