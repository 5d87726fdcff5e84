"""What is benched: an artifact, or an ONNX file that nobody described."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploykit.base.artifact import MANIFEST, read_artifact
from deploykit.base.errors import UsageError
from deploykit.base.files import sha256_file
from deploykit.base.vocab import Dialect, Precision
from deploykit.sources import onnx_file

_QUANTIZING = frozenset(("QuantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger"))


@dataclass(frozen=True)
class Subject:
    """A model file and what is known of it.

    Attributes:
        model: Name in tables and in the store.
        path: The ONNX file.
        precision: None where a file does not show it.
        digest: Of the artifact, or of the file.
        remarks: What a reader of its measurements should know.
    """

    model: str
    path: Path
    precision: Precision | None
    digest: str
    dialect: Dialect | None = None
    remarks: tuple[str, ...] = ()


def is_path(text: str) -> bool:
    """Whether `bench MODEL` names something on disk rather than a model to be exported."""
    path = Path(text)
    return path.suffix == ".onnx" or (path / MANIFEST).is_file() or path.name == MANIFEST


def subject_of(path: Path) -> Subject:
    """Describe an artifact folder or an ONNX file.

    Raises:
        UsageError: It is neither.
    """
    folder = path if path.is_dir() else path.parent
    if (folder / MANIFEST).is_file():
        artifact = read_artifact(path)
        manifest = artifact.manifest
        remarks = ("random weights: speed only",) if manifest.model.random_weights else ()
        return Subject(
            manifest.model.name, artifact.onnx_path, manifest.precision, artifact.digest, manifest.dialect, remarks
        )
    if not path.is_file():
        raise UsageError(f"{path} is neither an artifact folder nor an ONNX file")
    return Subject(path.stem, path, precision_of(path), sha256_file(path))


def precision_of(path: Path) -> Precision | None:
    """The precision that a graph shows: quantizing nodes, else the type of most of its weights; None without weights.

    Raises:
        UsageError: It is no ONNX file, or files that it needs are gone.
    """
    import onnx

    graph = onnx_file.read_graph(path).graph
    if any(node.op_type in _QUANTIZING for node in graph.node):
        return Precision.INT8
    types = {
        onnx.TensorProto.FLOAT: Precision.FP32,
        onnx.TensorProto.FLOAT16: Precision.FP16,
        onnx.TensorProto.BFLOAT16: Precision.BF16,
    }
    elements = dict.fromkeys(types, 0)
    for tensor in graph.initializer:
        if tensor.data_type in elements:
            elements[tensor.data_type] += _elements(tuple(tensor.dims))
    most = max(elements, key=lambda kind: elements[kind])
    return types[most] if elements[most] else None


def _elements(dims: tuple[int, ...]) -> int:
    count = 1
    for size in dims:
        count *= size
    return count
