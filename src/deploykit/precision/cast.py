"""fp32 artifact → fp16 artifact: types written into the graph, float32 kept where FP16 would lose the value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deploykit.base.artifact import MODEL_FILE, Artifact, Manifest
from deploykit.base.errors import DeploykitError, UsageError
from deploykit.base.files import sha256_json
from deploykit.base.tensors import TensorSpec
from deploykit.base.vocab import Precision
from deploykit.precision import onnx_files
from deploykit.precision.fp16_choice import HEADROOM, MASK_VALUE, Ranges, choose
from deploykit.precision.fp16_graph import Fp16Graph, prepare
from deploykit.precision.fp16_rewrite import rewrite

if TYPE_CHECKING:
    import onnx

# Goes into the key of every artifact: raised whenever the same graph and ranges would be cast in another way.
RECIPE_VERSION = 1

OLDEST_OPSET = 18
"""Of an INT8 graph whose rest can become FP16."""
_HALF_QDQ_OPSET = 19


@dataclass(frozen=True)
class Fp16Cast:
    """What a cast did.

    Attributes:
        kept: Node → why it stays FP32.
        masks: Mask constants that became `fp16_choice.MASK_VALUE`.
        half_nodes: Nodes that compute in FP16.
    """

    kept: Mapping[str, str]
    masks: tuple[str, ...]
    half_nodes: int


def cast_model(source: Path, target: Path, *, ranges: Ranges | None, keep_io_types: bool = True) -> Fp16Cast:
    """Cast one ONNX file into another.

    Args:
        source: A float32 model.
        target: Where the FP16 model is written, in a folder that is being filled.
        ranges: Tensor → lowest and highest value seen, from `ranges.collect_ranges`; None: no data was there, so
            overflow of activations is not looked at.
        keep_io_types: Inputs and outputs stay float32.

    Raises:
        UsageError: The file is no float32 ONNX model.
    """
    model, skeleton = onnx_files.load(source), onnx_files.load_skeleton(source)
    prepare(model)
    prepare(skeleton)
    graph = Fp16Graph(model, skeleton)
    if not any(graph.touches_float(node) for node in graph.nodes.values()):
        raise UsageError(f"{source} has no float32 tensor: there is nothing to cast to fp16")
    choice = choose(graph, ranges)
    half_nodes = sum(
        name not in choice.kept and graph.half_form(node) is not None for name, node in graph.nodes.items()
    )
    rewrite(graph, choice, keep_io_types=keep_io_types)
    onnx_files.save(model, target)
    # Some files that run have always broken a rule of ONNX; the cast must not break another.
    if (fault := onnx_files.fault(target)) is not None and onnx_files.fault(source) is None:
        raise DeploykitError(f"the fp16 cast of {source} broke its graph: {fault}; please report this")
    return Fp16Cast(choice.kept, tuple(sorted(choice.masks)), half_nodes)


def cast_rest(int8: Manifest, folder: Path, ranges: Ranges) -> Manifest:
    """Cast what an INT8 model in this folder leaves in float32; its Q/DQ then take and give FP16.

    Args:
        int8: Manifest of the model, as `quantize` returns it.
        folder: Where the model is; it is replaced.
        ranges: Of the fp32 model that it was quantized from.

    Returns:
        The manifest of the cast model.

    Raises:
        UsageError: The graph's operator set is older than `OLDEST_OPSET`.
    """
    path = folder / MODEL_FILE
    loaded = onnx_files.load(path)
    _raise_opset(loaded, int8.opset)
    with TemporaryDirectory(dir=folder) as temporary:
        raised = Path(temporary) / MODEL_FILE
        onnx_files.save(loaded, raised)
        for left in folder.glob(f"{MODEL_FILE}*"):
            left.unlink()
        done = cast_model(raised, path, ranges=ranges)
    half = {name: f"{why}; computes in fp16" for name, why in int8.kept_fp32.items() if name not in done.kept}
    changes = {
        "opset": max(int8.opset, _HALF_QDQ_OPSET),
        "kept_fp32": {**done.kept, **int8.kept_fp32, **half},
        "warnings": (*int8.warnings, *_mask_warnings(done)),
    }
    return int8.model_copy(update=changes)


def _raise_opset(model: onnx.ModelProto, opset: int) -> None:
    """Q/DQ take FP16 since operator set 19, which only added to the operators of 18: all else means the same."""
    if opset < OLDEST_OPSET:
        raise UsageError(
            f"a graph of operator set {opset} cannot hold FP16 beside INT8: export it again with --opset "
            f"{OLDEST_OPSET} or later, or leave the rest in fp32 with --high-precision-dtype fp32"
        )
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = max(entry.version, _HALF_QDQ_OPSET)


@dataclass(frozen=True)
class Fp16Recipe:
    """Settings of a cast: what decides, together with the parent, what comes out.

    Attributes:
        keep_io_types: Inputs and outputs stay float32.
        data: What the ranges were gathered from; None: from nothing, so overflow of activations is not looked at.
        data_digest: SHA-256 over the samples as fed.
        samples: How many.
    """

    keep_io_types: bool = True
    data: str | None = None
    data_digest: str | None = None
    samples: int = 0

    def document(self) -> dict[str, object]:
        """As the manifest keeps it."""
        return {"step": "cast-fp16", "version": RECIPE_VERSION, "headroom": HEADROOM, **asdict(self)}

    def key(self, parent: Artifact) -> str:
        """What the artifact cache looks the cast of a parent up by."""
        return sha256_json({"parent": parent.digest, "recipe": self.document()})


def cast_fp16(
    parent: Artifact, folder: Path, recipe: Fp16Recipe, *, ranges: Ranges | None, created: dt.datetime
) -> Manifest:
    """Fill a folder with the fp16 form of an artifact.

    Args:
        parent: The fp32 artifact.
        folder: Where to write; `artifact_cache.find_or_make` hands one out.
        recipe: Settings.
        ranges: From `ranges.collect_ranges` over the data that the recipe names.
        created: Time for the manifest.

    Returns:
        The manifest, without `files` and without accuracy.

    Raises:
        UsageError: The parent is not float32.
    """
    before = parent.manifest
    if before.precision is not Precision.FP32:
        raise UsageError(f"{parent.path} is {before.precision}; fp16 is cast from an fp32 artifact")
    done = cast_model(parent.onnx_path, folder / MODEL_FILE, ranges=ranges, keep_io_types=recipe.keep_io_types)
    changes = {
        "key": recipe.key(parent),
        "precision": Precision.FP16,
        "inputs": tuple(_retyped(spec, recipe) for spec in before.inputs),
        "outputs": tuple(_retyped(spec, recipe) for spec in before.outputs),
        "files": {},
        "parents": (parent.digest, *before.parents),
        "recipe": recipe.document(),
        "parity": (),
        "kept_fp32": dict(done.kept),
        "warnings": (*before.warnings, *_warnings(done, ranges)),
        "created": created,
    }
    return before.model_copy(update=changes)


def _retyped(spec: TensorSpec, recipe: Fp16Recipe) -> TensorSpec:
    if recipe.keep_io_types or spec.dtype != "float32":
        return spec
    return spec.model_copy(update={"dtype": "float16"})


def _mask_warnings(done: Fp16Cast) -> list[str]:
    if not done.masks:
        return []
    return [f"fp16: mask constants {', '.join(done.masks)} became {MASK_VALUE:.0f}, which FP16 can hold"]


def _warnings(done: Fp16Cast, ranges: Ranges | None) -> list[str]:
    said = []
    if ranges is None:
        said.append("fp16: no calibration data, so nobody looked whether activations overflow; give --calibration-data")
    said += _mask_warnings(done)
    if done.half_nodes == 0:
        said.append("fp16: every node stays FP32, see kept_fp32: this artifact is no faster than fp32")
    return said
