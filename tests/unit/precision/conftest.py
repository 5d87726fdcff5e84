"""How the tests of this room run graphs, and quantize small ones."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from deploykit.base.artifact import Artifact, BatchRange, Manifest, ModelInfo, read_artifact, seal
from deploykit.base.onnx_specs import graph_inputs, graph_outputs
from deploykit.base.vocab import CalibrationMethod, Dialect, Precision
from deploykit.precision.calibrate import calibrate
from deploykit.precision.int8 import quantize_model
from deploykit.precision.recipe import Int8Recipe
from deploykit.precision.samples import Samples
from deploykit.runtime.ort import OnnxRuntime

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
VNNI = "x86-avx512-vnni"
SIDES = {"DequantizeLinear", "QuantizeLinear", "Clip"}


@pytest.fixture(scope="session")
def open_session():
    return lambda path, threads=1: OnnxRuntime().open(path, threads=threads)


@pytest.fixture
def fp32_artifact(tmp_path):
    """An fp32 artifact around a graph given as ONNX text, with weights given as arrays."""

    def make(text: str, weights: Mapping[str, np.ndarray] | None = None, opset: int = 17) -> Artifact:
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
        model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in (weights or {}).items())
        return sealed(model, tmp_path / "fp32", opset)

    return make


def sealed(model: onnx.ModelProto, folder: Path, opset: int) -> Artifact:
    folder.mkdir()
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    manifest = Manifest(
        key="k",
        model=ModelInfo(name="net", reference="net", source="test"),
        precision=Precision.FP32,
        opset=opset,
        inputs=graph_inputs(model.graph),
        outputs=graph_outputs(model.graph),
        batch=BatchRange(min=1, opt=1, max=8),
        created=NOW,
    )
    seal(folder, manifest)
    return read_artifact(folder)


@pytest.fixture
def int8(fp32_artifact, tmp_path, open_session):
    """Quantize a graph given as text over samples."""

    def make(text: str, samples: Sequence[Mapping[str, np.ndarray]], weights=None, *, opset: int = 17, **options):
        return Int8(fp32_artifact(text, weights, opset), samples, tmp_path, open_session, **options)

    return make


class Int8:
    """An INT8 file made from a small graph, and questions about it.

    Args:
        parent: The fp32 artifact.
        samples: To calibrate on.
        folder: Where files go.
        open_session: Loads an ONNX file.
        method: How a histogram becomes a threshold; minmax clips nothing.
        exclude_nodes: Nodes that stay float.
    """

    def __init__(self, parent, samples, folder, open_session, *, method=CalibrationMethod.MINMAX, exclude_nodes=()):
        self.parent, self._folder, self._open = parent, folder, open_session
        self._exclude, self._method = exclude_nodes, method
        source = Samples("rows", range(len(samples)), samples.__getitem__)
        self.calibration = calibrate(
            parent, source, method=method, samples=len(samples), data_digest="d", open_session=open_session
        )
        self.written = {dialect: self.write(dialect) for dialect in Dialect}

    def write(self, dialect: Dialect, isa: str | None = VNNI) -> Written:
        target = self._folder / f"{dialect}-{isa}.onnx"
        recipe = Int8Recipe(
            dialect=dialect,
            data="rows",
            data_digest="d",
            samples=self.calibration.asked,
            method=self._method,
            isa=isa if dialect is Dialect.ORT_CPU else None,
            exclude_nodes=self._exclude,
        )
        done = quantize_model(self.parent.onnx_path, target, self.calibration, recipe)
        return Written(target, done, self._open)

    @property
    def tensorrt(self) -> Written:
        return self.written[Dialect.TENSORRT]

    @property
    def ort(self) -> Written:
        return self.written[Dialect.ORT_CPU]

    def fp32(self, feeds, name="y"):
        with self._open(self.parent.onnx_path) as session:
            return session.infer(feeds)[name]


class Written:
    """One dialect as it was written."""

    def __init__(self, path: Path, done, open_session) -> None:
        self.path, self.done, self._open = path, done, open_session
        self.model = onnx.load(path)
        onnx.checker.check_model(self.model, full_check=True)
        self.nodes = {node.name: node for node in self.model.graph.node}
        self.constants = {t.name: numpy_helper.to_array(t) for t in self.model.graph.initializer}
        self._writers = {name: node for node in self.model.graph.node for name in node.output}

    def run(self, feeds, name="y"):
        with self._open(self.path) as session:
            return session.infer(feeds)[name]

    def pairs(self) -> set[str]:
        """Activations that a QuantizeLinear reads."""
        return {node.input[0] for node in self.model.graph.node if node.op_type == "QuantizeLinear"}

    def inputs(self, node: str) -> list[str]:
        """How each input of a node comes: "int8 activation", "int8 weight", "constant" or "float"."""
        return [self._kind(name) for name in self.nodes[node].input]

    def _kind(self, name: str) -> str:
        if name in self.constants:
            return "constant"
        writer = self._writers.get(name)
        if writer is None or writer.op_type != "DequantizeLinear":
            return "float"
        return "int8 weight" if writer.input[0] in self.constants else "int8 activation"

    def grid(self, tensor: str) -> tuple[float, int, type]:
        """Scale, zero point and type of the pair that reads an activation."""
        quantizer = next(n for n in self.nodes.values() if n.op_type == "QuantizeLinear" and n.input[0] == tensor)
        scale, zero = self.constants[quantizer.input[1]], self.constants[quantizer.input[2]]
        return float(scale), int(zero), zero.dtype.type

    def weight(self, node: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Integers, scales, zero points and axis of a node's weights."""
        dequantizer = self._writers[self.nodes[node].input[1]]
        axis = next((helper.get_attribute_value(a) for a in dequantizer.attribute if a.name == "axis"), 1)
        return (*(self.constants[name] for name in dequantizer.input), axis)

    def fused(self) -> Counter[str]:
        """Operators that onnxruntime really runs, after all of its own rewriting."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        optimized = self.path.with_suffix(".optimized.onnx")
        options.optimized_model_filepath = str(optimized)
        onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        return Counter(node.op_type for node in onnx.load(optimized).graph.node)


def sqnr_db(wanted: np.ndarray, got: np.ndarray) -> float:
    """Signal to noise in dB, over everything."""
    wanted, got = wanted.astype(np.float64), got.astype(np.float64)
    return float(10 * np.log10(np.sum(wanted**2) / max(np.sum((wanted - got) ** 2), 1e-300)))


@pytest.fixture
def images():
    """Standard normal samples."""

    def make(*shape: int, count: int = 8, seed: int = 0, scale: float = 1.0, name: str = "x"):
        rng = np.random.default_rng(seed)
        return [{name: (rng.standard_normal(shape) * scale).astype(np.float32)} for _ in range(count)]

    return make


@pytest.fixture
def normal():
    """Standard normal weights."""

    def make(*shape: int, seed: int = 1, scale: float = 0.3) -> np.ndarray:
        return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)

    return make


@pytest.fixture
def decibels():
    return sqnr_db
