"""A small machine, and makers of small networks and points, for the tests of this room."""

from typing import Any

import pytest

from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.kernels import KernelGroup, Kind, ModelFeatures
from deploykit.predict.machine import Machine
from deploykit.predict.names import Network
from deploykit.predict.points import MLPERF, Point

PLAIN = Machine("plain", "8.0", 10, 1000, 1000, 0.001, 1e6, 16)


class Make:
    """Makers. The machine: ten SMs at 1 GHz (2.048 TFLOPS of FP16 each), 1000 GB/s, hardly any L2, endless power."""

    machine = PLAIN

    def network(self, *groups: KernelGroup, name: str = "net", input_elements: int = 0, **rest: Any) -> Network:
        return Network(name, name, name, None, ModelFeatures(name, groups, input_elements, **rest))

    def gemm(self, m: int, n: int, k: int, **rest: Any) -> KernelGroup:
        return KernelGroup(Kind.GEMM, m, n, k, **rest)

    def point(
        self, net: Network, machine: Machine = PLAIN, scenario: Scenario = Scenario.OFFLINE, **rest: Any
    ) -> Point:
        given: dict[str, Any] = {"precision": Precision.FP16, "batch": 1, "source": MLPERF, "year": 2024.4, **rest}
        return Point(network=net, machine=machine, scenario=scenario, **given)


@pytest.fixture
def make() -> Make:
    return Make()
