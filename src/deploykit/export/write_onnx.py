"""An exported program → `model.onnx`, named for people, inferred, checked, within protobuf's limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit import __version__
from deploykit.base.artifact import MODEL_FILE
from deploykit.base.errors import DeploykitError, UsageError
from deploykit.export.explain import explained
from deploykit.export.naming import name_nodes, name_values
from deploykit.export.quiet import quiet
from deploykit.export.torch_program import Program, source_files

if TYPE_CHECKING:
    import onnx

DEFAULT_OPSET = 18
"""The exporter's own set, so that nothing is converted; TensorRT 10.3 (JetPack 6) and onnxruntime 1.18 read it."""

SINGLE_FILE_BYTES = 1_900_000_000
"""Above this, weights go to `model.onnx.data`: protobuf ends at 2 GiB, and the graph itself needs room too."""


def write_program(program: Program, outputs: Sequence[str], opset: int | None, folder: Path, model: str) -> None:
    """Convert, name and save.

    Args:
        program: What to convert.
        outputs: A name for each output.
        opset: ONNX operator set; None for `DEFAULT_OPSET`.
        folder: Gets `model.onnx`, and `model.onnx.data` where the weights are too large for one file.
        model: The model's name, for messages.

    Raises:
        UsageError: An operator has no ONNX form, or the operator set cannot be had.
    """
    converted = _converted(program, opset or DEFAULT_OPSET, model)
    graph_model = converted.model
    name_values(graph_model, [spec.name for spec in program.inputs], outputs)
    name_nodes(graph_model)
    graph_model.producer_name, graph_model.producer_version = "deploykit", __version__
    graph_model.metadata_props["torch"] = _version_of_torch()
    with quiet():
        converted.save(str(folder / MODEL_FILE), external_data=_weight_bytes(graph_model) > SINGLE_FILE_BYTES)
    infer_and_check(folder / MODEL_FILE, strict=True)


def infer_and_check(path: Path, *, strict: bool) -> None:
    """Write every inner tensor's type and shape into a file, and let ONNX's checker read it.

    Args:
        path: The file, rewritten in place.
        strict: Also refuse shapes that contradict each other, which runtimes put up with in files of others.

    Raises:
        DeploykitError: The file is not valid ONNX.
    """
    import onnx

    try:
        with quiet():
            onnx.shape_inference.infer_shapes_path(str(path), data_prop=True)
            onnx.checker.check_model(str(path), full_check=strict)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise DeploykitError(f"{path} is not valid ONNX: {' '.join(str(error).split())[:400]}") from error


def opset_of(model: onnx.ModelProto) -> int:
    """Version of ONNX's own operator set that a model uses."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def _converted(program: Program, opset: int, model: str) -> Any:
    import torch

    if opset < DEFAULT_OPSET:
        raise UsageError(
            f"--opset {opset}: torch's exporter writes {DEFAULT_OPSET} or later, and going back loses operators; "
            f"give {DEFAULT_OPSET} or more"
        )
    words = {spec.name: {axis: size for axis, size in enumerate(spec.shape) if isinstance(size, str)}
             for spec in program.inputs}  # fmt: skip
    with quiet() as log:
        try:
            converted = torch.onnx.export(
                program.exported,
                dynamo=True,
                verbose=False,
                opset_version=opset,
                dynamic_shapes=tuple(words.values()),
            )
        except Exception as error:
            # The exporter wraps whatever a translation raises in classes of its own, some of them private.
            raise explained(error, log, source_files(program.module), model) from error
    if converted is None or converted.model.opset_imports.get("") != opset:
        raise UsageError(
            f"--opset {opset}: this torch's exporter does not write it; leave --opset out for {DEFAULT_OPSET}"
        )
    return converted


def _weight_bytes(model: Any) -> int:
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)


def _version_of_torch() -> str:
    import torch

    return str(torch.__version__)
