"""A plain onnxruntime session in the shape of `base.protocols.Session`."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest

from deploykit.base.onnx_specs import graph_inputs, graph_outputs


class PlainSession:
    provider = "CPUExecutionProvider"

    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(path), options, providers=[self.provider])
        graph = onnx.load(str(path), load_external_data=False).graph
        self.inputs, self.outputs, self.settings = graph_inputs(graph), graph_outputs(graph), {}

    def infer(self, feeds):
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture(scope="session")
def open_session():
    return PlainSession
