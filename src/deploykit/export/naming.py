"""Names that people gave: inputs after `forward`'s arguments, outputs after dict keys, nodes after module paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from deploykit.base.errors import UsageError
from deploykit.base.onnx_specs import LINE, SCOPE

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def output_names(program: Any, inputs: Sequence[str]) -> list[str]:
    """A name for each tensor that an exported program returns.

    `{"scores": s, "aux": (a, b)}` gives `scores`, `aux_0`, `aux_1`; a tuple gives `output_0`, `output_1`; a lone tensor
    gives `output`. Where that is an input's name, `_out` is appended.
    """
    from torch.utils import _pytree as pytree

    spec = program.call_spec.out_spec
    leaves = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = [path for path, _ in pytree.tree_flatten_with_path(leaves)[0]]
    tensors = [hasattr(output.arg, "name") and type(output.arg).__name__ == "TensorArgument"
               for output in program.graph_signature.output_specs if output.kind.name == "USER_OUTPUT"]  # fmt: skip
    names = [_path_name(path) for path, is_tensor in zip(paths, tensors, strict=True) if is_tensor]
    return _unique([f"{name}_out" if name in inputs else name for name in names])


def _path_name(path: Sequence[Any]) -> str:
    # Keys of dicts, of sequences and of named tuples carry their word under three names.
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    joined = re.sub(r"\W+", "_", "_".join(parts))
    return joined if joined and not joined[0].isdigit() else "_".join(filter(None, ["output", joined]))


def _unique(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(name if count == 0 else f"{name}_{count}")
    return result


def name_values(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give a graph's inputs and outputs their names; whatever held such a name before steps aside.

    An output that is also an input, an initializer or another output gets an Identity of its own.

    Args:
        model: An `onnx_ir.Model`, changed in place.
        inputs: One name an input.
        outputs: One name an output.

    Raises:
        UsageError: The graph returns another number of tensors.
    """
    graph = model.graph
    if len(outputs) != len(graph.outputs):
        raise UsageError(
            f"the exported graph returns {len(graph.outputs)} tensors where the model returns "
            f"{len(outputs)} ({', '.join(outputs)}): return tensors only"
        )
    _separate_outputs(graph)
    wanted = {id(value): name for value, name in [*zip(graph.inputs, inputs, strict=True),
                                                  *zip(graph.outputs, outputs, strict=True)]}  # fmt: skip
    taken = set(wanted.values())
    others = [value for value in _values(graph) if id(value) not in wanted and value.name in taken]
    for value in others:
        value.name = f"{value.name}_inner"
    for position, value in enumerate([*graph.inputs, *graph.outputs]):
        value.name = f"deploykit_{position}"  # Out of each other's way first.
    for value in [*graph.inputs, *graph.outputs]:
        value.name = wanted[id(value)]


def _separate_outputs(graph: Any) -> None:
    import onnx_ir

    seen = {id(value) for value in graph.inputs}
    for position, value in enumerate(list(graph.outputs)):
        if id(value) in seen or value.producer() is None:
            node = onnx_ir.node("Identity", inputs=[value])
            node.outputs[0].shape, node.outputs[0].type = value.shape, value.type
            graph.append(node)
            graph.outputs[position] = node.outputs[0]
        seen.add(id(graph.outputs[position]))


def _values(graph: Any) -> list[Any]:
    return [*graph.initializers.values(), *(output for node in graph.all_nodes() for output in node.outputs)]


def name_nodes(model: Any) -> None:
    """Call each node `<module path>/<operator>` and keep its line of code; the exporter's longer notes go.

    Args:
        model: An `onnx_ir.Model`, changed in place.
    """
    seen: dict[str, int] = {}
    for node in model.graph.all_nodes():
        scope = _scope(node.metadata_props.get("pkg.torch.onnx.name_scopes", ""))
        line = _last_line(node.metadata_props.get("pkg.torch.onnx.stack_trace", ""))
        node.metadata_props.clear()
        node.metadata_props.update({key: value for key, value in ((SCOPE, scope), (LINE, line)) if value})
        name = f"{scope}/{node.op_type}" if scope else node.op_type
        seen[name] = seen.get(name, 0) + 1
        node.name = name if seen[name] == 1 else f"{name}_{seen[name] - 1}"
    for value in _values(model.graph):
        value.metadata_props.clear()


def _scope(text: str) -> str:
    """`["", "layer1", "layer1.0", "conv2d_1"]` → `layer1.0`: the last entry is the operator's own name."""
    try:
        scopes = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError):
        return ""
    scope = str(scopes[-2]) if len(scopes) > 1 else ""
    # torch's word for operators that no module called, such as reading a size.
    return "" if scope.startswith("_empty_nn_module_stack") else scope


def _last_line(trace: str) -> str:
    """`model.py:14`: the innermost frame outside torch, without the folders of this machine."""
    frames = [(file, line) for file, line in _FRAME.findall(trace) if "/torch/" not in file]
    return f"{PurePath(frames[-1][0]).name}:{frames[-1][1]}" if frames else ""
