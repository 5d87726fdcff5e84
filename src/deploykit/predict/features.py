"""Layer features of an ONNX file. The only step of the room that needs onnx."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploykit.predict.fusion import fused_groups, live_elements, unknown_ops
from deploykit.predict.graph import read_graph
from deploykit.predict.kernels import ModelFeatures, merged


def features_of(
    path: Path, model: str, shapes: Mapping[str, tuple[int, ...]] | None = None, source: str = ""
) -> ModelFeatures:
    """Layer features of a graph.

    Args:
        path: ONNX file; external weights need not be there.
        model: Name to file it under.
        shapes: Input name → full shape, where the file leaves more than the batch open.
        source: Where the graph is from.

    Raises:
        UsageError: Not ONNX, or its shapes cannot be known.
    """
    graph = read_graph(path, shapes)
    return ModelFeatures(
        model=model,
        groups=merged(fused_groups(graph)),
        input_elements=graph.input_elements // graph.batch,
        input_bytes=graph.input_bytes,
        live_elements=live_elements(graph),
        parameters=graph.parameters,
        source=source or f"ONNX graph {path.name}",
        unknown_ops=unknown_ops(graph),
    )
