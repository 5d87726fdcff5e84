"""A target as the roofline sees it: units, clocks and memories, with power mode and MIG share already applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deploykit.base.vocab import Precision
from deploykit.targets.spec import TargetSpec

OPS_PER_SM_CLOCK: dict[str, dict[Precision, int]] = {
    "5.3": {Precision.FP32: 256, Precision.FP16: 512},
    "6.2": {Precision.FP32: 256, Precision.FP16: 512},
    "7.0": {Precision.FP32: 128, Precision.FP16: 1024, Precision.INT8: 512},
    "7.2": {Precision.FP32: 128, Precision.FP16: 1024, Precision.INT8: 2048},
    "7.5": {Precision.FP32: 128, Precision.FP16: 1024, Precision.INT8: 2048},
    "8.0": {
        Precision.FP32: 128, Precision.TF32: 1024, Precision.FP16: 2048, Precision.BF16: 2048, Precision.INT8: 4096,
    },
    "8.6": {Precision.FP32: 256, Precision.TF32: 512, Precision.FP16: 1024, Precision.BF16: 1024, Precision.INT8: 2048},
    "8.7": {
        Precision.FP32: 256, Precision.TF32: 1024, Precision.FP16: 2048, Precision.BF16: 2048, Precision.INT8: 4096,
    },
    "8.9": {
        Precision.FP32: 256, Precision.TF32: 512, Precision.FP16: 1024, Precision.BF16: 1024, Precision.INT8: 2048,
        Precision.FP8: 2048,
    },
    "9.0": {
        Precision.FP32: 256, Precision.TF32: 2048, Precision.FP16: 4096, Precision.BF16: 4096, Precision.INT8: 8192,
        Precision.FP8: 8192,
    },
    "10.0": {
        Precision.FP32: 256, Precision.TF32: 4096, Precision.FP16: 8192, Precision.BF16: 8192, Precision.INT8: 16384,
        Precision.FP8: 16384,
    },
    "11.0": {
        Precision.FP32: 256, Precision.TF32: 4096, Precision.FP16: 8192, Precision.BF16: 8192, Precision.INT8: 16384,
        Precision.FP8: 16384,
    },
    "12.0": {
        Precision.FP32: 256, Precision.TF32: 512, Precision.FP16: 1024, Precision.BF16: 1024, Precision.INT8: 2048,
        Precision.FP8: 2048,
    },
}  # fmt: skip
"""Dense operations per SM and clock by compute capability; a multiply-add is 2.

They reproduce the data sheets of A100 (312 FP16, 624 INT8), A30, A40, A2, L4, RTX 4090, H100 SXM (1979 INT8 at
1830 MHz), AGX Orin (85 INT8) and B200 (4500 FP8) within 1 %. Before tensor cores (5.3, 6.2) FP16 is packed in pairs
and TensorRT has no INT8; 7.0 has INT8 only as DP4A. GeForce halves the rate with FP32 accumulation, which FP16 in
TensorRT can avoid.
"""

_NODE = {"5": 0, "6": 0, "7": 0, "8.6": 1, "8.7": 1, "8.0": 2, "8.9": 3, "9": 3, "10": 3, "11": 3, "12": 3}
"""Compute capability or its major → process: 0 TSMC 20 to 12 nm, 1 Samsung 8 nm, 2 TSMC 7 nm, 3 TSMC 4 nm."""
_YEAR = {
    "5.3": 2015.0, "6.2": 2017.0, "7.0": 2017.5, "7.2": 2018.5, "7.5": 2018.8, "8.0": 2020.4, "8.6": 2021.0,
    "8.7": 2022.0, "8.9": 2022.9, "9.0": 2022.8, "10.0": 2024.9, "11.0": 2025.6, "12.0": 2025.1,
}  # fmt: skip
"""When the first product of a compute capability shipped."""
_UNKNOWN_L2_MB = 4.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Machine:
    """One target.

    Attributes:
        ref: Target reference.
        capability: CUDA compute capability.
        sms: Streaming multiprocessors.
        mhz: Clock, MHz.
        bandwidth_gbs: DRAM, 10^9 bytes/s.
        l2_mb: L2 cache that is its own, MB.
        power_w: Limit of the board, module or mode; a MIG slice draws on the whole card's.
        memory_gb: GB that a model can use.
        integrated: CPU and GPU share memory: no copy over PCIe, and the operating system lives there too.
        dla_tops: Dense INT8 peak of the DLAs, TOPS.
        share: Share of the device, 1 unless a MIG slice.
    """

    ref: str
    capability: str
    sms: float
    mhz: float
    bandwidth_gbs: float
    l2_mb: float
    power_w: float
    memory_gb: float
    integrated: bool = False
    dla_tops: float = 0.0
    share: float = 1.0

    @property
    def precisions(self) -> list[Precision]:
        """What the silicon computes in, widest first."""
        return list(OPS_PER_SM_CLOCK[self.capability])

    def supports(self, precision: Precision) -> bool:
        """Whether the silicon computes in this format."""
        return precision in OPS_PER_SM_CLOCK[self.capability]

    @property
    def peak_tops(self) -> float:
        """Peak of its densest format that every generation has (INT8, else FP16), 10^12 operations per second."""
        rates = OPS_PER_SM_CLOCK[self.capability]
        return self.sms * self.mhz * rates.get(Precision.INT8, rates[Precision.FP16]) * 1e-6

    @property
    def year(self) -> float:
        """When its compute capability first shipped."""
        return _YEAR[self.capability]

    @property
    def node(self) -> int:
        """Index of its process, for energy per operation."""
        return _NODE.get(self.capability, _NODE.get(self.capability.split(".")[0], 3))


@dataclass(frozen=True)
class Fleet:
    """Many machines side by side, for vectorised arithmetic; shapes [C]."""

    machines: tuple[Machine, ...]
    sms: Floats
    hz: Floats
    bandwidth: Floats
    l2_bytes: Floats
    power_w: Floats
    dla_ops: Floats
    share: Floats
    integrated: NDArray[np.bool_]
    node: NDArray[np.int64]

    def rate(self, precisions: Sequence[Precision]) -> Floats:
        """Peak operations per second of one SM at each machine's precision, [C]."""
        pairs = zip(self.machines, precisions, strict=True)
        return np.array([_rate(machine, precision) for machine, precision in pairs]) * self.hz


def _rate(machine: Machine, precision: Precision) -> float:
    rates = OPS_PER_SM_CLOCK[machine.capability]
    return float(rates.get(precision, rates[Precision.FP32]))


def fleet(machines: Sequence[Machine]) -> Fleet:
    """Machines as arrays."""

    def column(name: str) -> Floats:
        return np.array([getattr(machine, name) for machine in machines], dtype=float)

    return Fleet(
        machines=tuple(machines),
        sms=column("sms"),
        hz=column("mhz") * 1e6,
        bandwidth=column("bandwidth_gbs") * 1e9,
        l2_bytes=column("l2_mb") * 1e6,
        power_w=column("power_w"),
        dla_ops=column("dla_tops") * 1e12,
        share=column("share"),
        integrated=np.array([machine.integrated for machine in machines], dtype=bool),
        node=np.array([machine.node for machine in machines], dtype=np.int64),
    )


def machine_of(spec: TargetSpec) -> Machine | str:
    """A target as the roofline sees it, or in words why it cannot be seen."""
    capability = spec.device.silicon.compute_capability
    if capability is None:
        return "it is no NVIDIA GPU, and the predictor knows no other kind"
    if capability not in OPS_PER_SM_CLOCK:
        return f"compute capability {capability} is not one whose rates per SM and clock are known"
    missing = [
        name for name in ("sm_count", "gpu_mhz", "bandwidth_gbs", "memory_gb", "power_w") if getattr(spec, name) is None
    ]
    if missing:
        return f"its table does not state {', '.join(missing)}, which the roofline is made of"
    assert spec.sm_count and spec.gpu_mhz and spec.bandwidth_gbs and spec.memory_gb and spec.power_w
    return Machine(
        ref=spec.ref,
        capability=capability,
        sms=float(spec.sm_count),
        mhz=spec.gpu_mhz,
        bandwidth_gbs=spec.bandwidth_gbs,
        l2_mb=(spec.device.silicon.l2_mb or _UNKNOWN_L2_MB) * _l2_share(spec),
        power_w=spec.power_w,
        memory_gb=spec.memory_gb,
        integrated=spec.device.kind == "jetson",
        dla_tops=_dla_tops(spec),
        share=spec.share_of_device,
    )


def _dla_tops(spec: TargetSpec) -> float:
    """Dense INT8 peak of the DLAs; where the mode's is not stated, the chip's at the mode's share of its top clock."""
    mode, chip = spec.mode, spec.device.silicon
    if spec.dla_int8_tops or mode is None or not mode.dla_cores:
        return spec.dla_int8_tops or 0.0
    top = max(each.dla_mhz or 0.0 for each in spec.device.power_modes.values())
    if not mode.dla_mhz or not chip.dla_int8_tops or not chip.dla_cores:
        return 0.0
    return chip.dla_int8_tops * mode.dla_mhz / top * mode.dla_cores / chip.dla_cores


def _l2_share(spec: TargetSpec) -> float:
    """A memory slice owns its share of L2 (NVIDIA MIG User Guide)."""
    profile = spec.profile
    return profile.memory_slices / profile.memory_slices_total if profile else 1.0
