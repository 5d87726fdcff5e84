"""Which of onnxruntime's providers really load: `python -m deploykit.probe.provider_check` prints one JSON object.

A process of its own, since a GPU library that does not suit the driver may take the process down with it, and since
onnxruntime keeps what it loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys

_LIMIT_S = 120


def loading_providers() -> dict[str, str | None] | None:
    """Provider → None where a session runs on it, else what stood in the way; None where there is no onnxruntime."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "deploykit.probe.provider_check"],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def _try_all() -> dict[str, str | None]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    model = _relu_model()
    return {name: _try(onnxruntime, model, name) for name in onnxruntime.get_available_providers()}


def _try(onnxruntime: object, model: bytes, name: str) -> str | None:
    try:
        session = onnxruntime.InferenceSession(model, providers=[name])  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - whatever a provider raises is the answer
        return " ".join(str(error).split())[:300]
    ran = session.get_providers()[0]
    return None if ran == name else f"onnxruntime fell back to {ran}"


def _relu_model() -> bytes:
    """The smallest model: one Relu."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    serialized: bytes = model.SerializeToString()
    return serialized


if __name__ == "__main__":
    print(json.dumps(_try_all()))
