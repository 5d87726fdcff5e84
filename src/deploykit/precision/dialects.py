"""A plan written into the graph: DequantizeLinear on weights, QuantizeLinear and DequantizeLinear on activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deploykit.precision.bias_correction import corrected_bias, find_bias
from deploykit.precision.fp16_graph import captured
from deploykit.precision.graph import Graph
from deploykit.precision.int8_weights import SMALLEST_SCALE, QuantizedWeight, quantize_weights
from deploykit.precision.qdq import U8_ZERO, Plan

if TYPE_CHECKING:
    import onnx


def write_plan(
    graph: Graph, plan: Plan, channel_means: Mapping[str, Sequence[float]], smallest_scale: float = SMALLEST_SCALE
) -> None:
    """Rewrite the graph's model in place. The look-up tables of `graph` are stale afterwards.

    Args:
        graph: The float graph.
        plan: Where pairs go, and how weights are written.
        channel_means: Of each activation that a layer reads, as far as they are known.
        smallest_scale: Of weights: what the type that their scales are going to have still holds.
    """
    _Writer(graph, plan, channel_means, smallest_scale).write()


class _Writer:
    def __init__(
        self, graph: Graph, plan: Plan, channel_means: Mapping[str, Sequence[float]], smallest_scale: float
    ) -> None:
        self._graph = graph
        self._plan = plan
        self._channel_means = channel_means
        self._smallest_scale = smallest_scale
        self._taken = {*graph.producer, *graph.initializers, *graph.inputs, *graph.nodes}
        self._constants: list[onnx.TensorProto] = []
        # The graph returns a dequantized output under the output's own name; what its writer computes is renamed.
        self._raw = {name: self._fresh(f"{name}_raw") if name in plan.returned else name for name in plan.pairs}
        self._dequantized = {
            name: name if name in plan.returned else self._fresh(f"{name}_dequantized") for name in plan.pairs
        }

    def write(self) -> None:
        model = self._graph.model.graph
        sources = {pair.source or name: name for name, pair in self._plan.pairs.items()}
        # Pairs on inputs of the graph come first, the others behind the node that writes their tensor.
        nodes = [*self._weights(), *(n for v in model.input if v.name in sources for n in self._pair(sources[v.name]))]
        for node in model.node:
            if node.name in self._plan.dropped:
                continue
            self._rewire(node)
            nodes.append(node)
            for position, tensor in enumerate(node.output):
                if tensor in sources:
                    name = sources[tensor]
                    node.output[position] = self._source(name)
                    nodes += self._pair(name)
        del model.node[:]
        model.node.extend(nodes)
        model.initializer.extend(self._constants)
        _drop_unread(self._graph.model)

    def _source(self, name: str) -> str:
        """The tensor that a pair's QuantizeLinear reads."""
        return self._plan.pairs[name].source or self._raw[name]

    def _rewire(self, node: onnx.NodeProto) -> None:
        for position, tensor in enumerate(node.input):
            if (node.name, position) in self._plan.reads:
                node.input[position] = self._dequantized[tensor]
        if (layer := self._plan.layers.get(node.name)) is not None:
            node.input[1] = self._weight_names[layer.weight, layer.axis, node.name in self._plan.unsigned_weights]

    def _pair(self, name: str) -> list[onnx.NodeProto]:
        from onnx import helper

        pair = self._plan.pairs[name]
        dtype = np.uint8 if pair.unsigned else np.int8
        scale = self._constant(f"{name}_scale", np.asarray(pair.scale, np.float32))
        zero = self._constant(f"{name}_zero_point", np.asarray(pair.zero_point, dtype))
        steps = self._fresh(f"{name}_quantized")
        nodes = [
            helper.make_node("QuantizeLinear", [self._source(name), scale, zero], [steps], f"{name}_QuantizeLinear")
        ]
        if pair.highest is not None:
            steps, unclipped = self._fresh(f"{name}_clipped"), steps
            limit = self._constant(f"{name}_highest", np.asarray(pair.highest, dtype))
            nodes.append(helper.make_node("Clip", [unclipped, "", limit], [steps], f"{name}_ClipQuantized"))
        target = self._dequantized[name]
        nodes.append(helper.make_node("DequantizeLinear", [steps, scale, zero], [target], f"{name}_DequantizeLinear"))
        return nodes

    def _weights(self) -> list[onnx.NodeProto]:
        plan = self._plan
        scales = {name: plan.pairs[layer.data].scale for name, layer in plan.layers.items()}
        quantized = quantize_weights(self._graph, plan.layers, scales, self._smallest_scale)
        forms = dict.fromkeys(
            (layer.weight, layer.axis, name in plan.unsigned_weights) for name, layer in plan.layers.items()
        )
        self._correct_biases(quantized)
        self._weight_names: dict[tuple[str, int | None, bool], str] = {}
        nodes = []
        for name, axis, unsigned in forms:
            nodes.append(self._dequantized_weight(name, quantized[name, axis], unsigned))
            self._weight_names[name, axis, unsigned] = nodes[-1].output[0]
        return nodes

    def _dequantized_weight(self, name: str, weight: QuantizedWeight, unsigned: bool) -> onnx.NodeProto:
        from onnx import helper

        values = (weight.values.astype(np.int16) + U8_ZERO).astype(np.uint8) if unsigned else weight.values
        zero = np.full(weight.scales.shape, U8_ZERO if unsigned else 0, values.dtype)
        inputs = [
            self._constant(f"{name}_quantized", values),
            self._constant(f"{name}_scale", weight.scales),
            self._constant(f"{name}_zero_point", zero),
        ]
        target = self._fresh(f"{name}_dequantized")
        given = {} if weight.axis is None else {"axis": weight.axis}
        return helper.make_node("DequantizeLinear", inputs, [target], f"{target}_DequantizeLinear", **given)

    def _correct_biases(self, quantized: Mapping[tuple[str, int | None], QuantizedWeight]) -> None:
        for layer in self._plan.layers.values():
            means, site = self._channel_means.get(layer.data), find_bias(self._graph, layer)
            if means is None or site is None:
                continue
            weight = quantized[layer.weight, layer.axis]
            bias = corrected_bias(self._graph, layer, site, weight, np.asarray(means))
            if bias is not None:
                name = self._constant(f"{layer.node}_corrected_bias", bias)
                _set_input(site.node, site.position, name)

    def _constant(self, wish: str, value: np.ndarray[Any, Any]) -> str:
        from onnx import numpy_helper

        name = self._fresh(wish)
        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def _fresh(self, wish: str) -> str:
        """A name that nothing in the graph has."""
        name = wish
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _set_input(node: onnx.NodeProto, position: int, name: str) -> None:
    while len(node.input) <= position:
        node.input.append("")
    node.input[position] = name


def _drop_unread(model: onnx.ModelProto) -> None:
    """Remove constants that nobody reads any more: float weights, and the bounds of dropped Clips."""
    read = {name for node in model.graph.node for name in (*node.input, *captured(node))}
    read |= {value.name for value in model.graph.output}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
