"""Speed of light of a model on a machine: seconds a batch takes if every kernel ran at a plausible efficiency.

Per fused group, on the unit that computes it:

    compute   the cheapest of a few output tiles and split-K factors; tiles ÷ SMs is rounded up to whole waves, a
              reduction pays a ramp of `ramp_bytes`, small tiles pay for less reuse, the more the faster the cores
    memory    DRAM traffic ÷ bandwidth, where what fits in L2 never leaves it, and all traffic ÷ L2 bandwidth
    launch    a fixed part and a part in clock cycles per kernel

A batch is the sum over groups, slowed where the energy of its operations asks for more than the power limit gives
(tensor-heavy work at 70 W never sees the boost clock). The constants are physical quantities with a prior each; they
are fitted with the learned correction, and their values ship in `data/fitted.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from deploykit.base.vocab import Precision
from deploykit.predict.kernels import PRODUCTS, Kind, ModelFeatures
from deploykit.predict.machine import OPS_PER_SM_CLOCK, Fleet, Floats

BYTES = {
    Precision.INT8: 1.0, Precision.FP8: 1.0, Precision.FP16: 2.0, Precision.BF16: 2.0, Precision.TF32: 4.0,
    Precision.FP32: 4.0,
}  # fmt: skip
"""Bytes of an activation or weight element in an engine of this precision."""

_TILES = ((256, 128), (128, 128), (128, 64), (64, 64), (64, 32), (32, 32), (16, 64))
_SPLITS = (1, 2, 4, 8, 16)
_SPLIT_COST = 0.03
_L2_BYTES_PER_SM_CLOCK = 64.0
_A100_BYTES_WANTED = 4096.0
_DLA_LANES = 64.0
_IDLE_POWER_SHARE = 0.1
_LEAST_POWER_SHARE = 0.25
_TOKEN_BYTES = 4.0
_FEW_ELEMENTS = 5000


@dataclass(frozen=True)
class Constants:
    """Efficiencies and overheads; the defaults are the priors' centres.

    Attributes:
        conv, gemm, attention, recurrent: Share of the tensor peak that a long, full product reaches.
        depthwise: Share of the FP32 peak of a depthwise convolution.
        bandwidth: Share of the DRAM bandwidth.
        l2: Share of 64 bytes per SM and clock.
        l2_reach: Share of L2 that holds one group's tensors; CUDA sets at most 0.75 of it aside for such use.
        ramp_bytes: Bytes of the reduction that a tile loses to fill its pipeline.
        tile: How fast small tiles lose efficiency on an A100, in elements.
        launch_us: Fixed part of a kernel, µs.
        launch_kcycles: Clocked part, thousands of cycles.
        select: Launches that a TopK or NMS amounts to.
        host_us: Per query of a C++ harness, µs.
        script_us: The same of a Python script, µs.
        copy_gbs: Host to device, 10^9 bytes/s.
        half: FP16 and wider relative to INT8.
        dla: Share of the DLA peak.
        dla_bandwidth: Share of the DRAM bandwidth that the DLAs get beside a busy GPU.
        pj: Energy of an INT8 operation with all its data movement at 12 nm and full clock, pJ.
        node_8nm, node_7nm, node_4nm: Energy ÷ that at 12 nm, as foundries state it for logic: Samsung 8 nm from
            14 nm -40 %, -15 % and -10 % in turn; TSMC 7 nm -60 % from 16 nm, 5 nm another -30 %.
        base_w: What a card draws for memory, fans and regulators whatever it computes, W.
        throttle: Exponent by which the clock follows the power limit; power grows with the clock's cube.
    """

    conv: float = 0.75
    gemm: float = 0.75
    attention: float = 0.5
    recurrent: float = 0.5
    depthwise: float = 0.35
    bandwidth: float = 0.80
    l2: float = 0.35
    l2_reach: float = 0.75
    ramp_bytes: float = 96.0
    tile: float = 32.0
    launch_us: float = 1.0
    launch_kcycles: float = 4.0
    select: float = 10.0
    host_us: float = 40.0
    script_us: float = 100.0
    copy_gbs: float = 11.0
    half: float = 1.0
    dla: float = 0.6
    dla_bandwidth: float = 0.3
    pj: float = 1.8
    node_8nm: float = 0.46
    node_7nm: float = 0.40
    node_4nm: float = 0.28
    base_w: float = 20.0
    throttle: float = 0.33


PRIOR_SPREAD: dict[str, float] = {
    "conv": 0.25, "gemm": 0.25, "attention": 0.5, "recurrent": 0.7, "depthwise": 0.5, "bandwidth": 0.05, "l2": 0.5,
    "l2_reach": 0.3, "ramp_bytes": 0.5, "tile": 0.7, "launch_us": 0.7, "launch_kcycles": 0.7, "select": 0.7,
    "host_us": 0.5, "script_us": 0.5, "copy_gbs": 0.3, "half": 0.2, "dla": 0.3, "dla_bandwidth": 0.5, "pj": 0.25,
    "node_8nm": 0.15, "node_7nm": 0.15, "node_4nm": 0.15, "base_w": 0.3, "throttle": 0.1,
}  # fmt: skip
"""Standard deviation of each constant's logarithm around its default."""


@dataclass(frozen=True)
class Columns:
    """A model's groups as arrays, shapes [G]."""

    kind: tuple[Kind, ...]
    m: Floats
    n: Floats
    k: Floats
    groups: Floats
    inputs: Floats
    outputs: Floats
    weights: Floats
    times: Floats
    product: Floats
    """1 where the group is a matrix product."""
    per_head: Floats
    """1 where the batch multiplies the independent products, not the rows."""

    def where(self, kind: Kind) -> Floats:
        """1 where a group is of this kind."""
        return np.array([each is kind for each in self.kind], dtype=float)


@lru_cache(maxsize=512)
def columns(features: ModelFeatures) -> Columns:
    """The groups of a model as arrays."""

    def column(name: str) -> Floats:
        return np.array([getattr(group, name) for group in features.groups], dtype=float)

    kind = tuple(group.kind for group in features.groups)
    per_head = [g.kind is Kind.ATTENTION or (g.kind is Kind.GEMM and g.groups > 1) for g in features.groups]
    return Columns(
        kind=kind,
        m=column("m"),
        n=column("n"),
        k=column("k"),
        groups=column("groups"),
        inputs=column("inputs"),
        outputs=column("outputs"),
        weights=column("weights"),
        times=column("count") * column("steps"),
        product=np.array([each in PRODUCTS for each in kind], dtype=float),
        per_head=np.array(per_head, dtype=float),
    )


@dataclass(frozen=True)
class BatchTime:
    """What one batch takes, shapes [C].

    Attributes:
        device_s: Seconds on the device.
        copy_s: Seconds of input copy over PCIe, which throughput runs hide behind compute.
        compute, dram, cache, launch: Seconds of each bound, before overlap; for the shares that the correction reads.
        power: Power asked for ÷ limit, at unthrottled clocks.
    """

    device_s: Floats
    copy_s: Floats
    compute: Floats
    dram: Floats
    cache: Floats
    launch: Floats
    power: Floats


def batch_time(
    features: ModelFeatures, machines: Fleet, batch: Floats, precision: Sequence[Precision], constants: Constants
) -> BatchTime:
    """Analytic time of one batch.

    Args:
        features: The model.
        machines: C machines.
        batch: Samples in the batch on each, [C].
        precision: Of the engine on each, C long.
        constants: Efficiencies and overheads.
    """
    groups = columns(features)
    width = np.array([BYTES[p] for p in precision])[:, None]
    rows = np.where(groups.per_head, groups.m, groups.m * batch[:, None])
    products = np.where(groups.per_head, groups.groups * batch[:, None], groups.groups)
    compute = _product_s(groups, machines, rows, products, width, precision, constants)
    compute += _depthwise_s(groups, machines, rows, products, constants)
    dram, cache = _memory_s(groups, machines, batch[:, None], width, constants)
    launch = _launch_s(groups, machines, batch[:, None], constants)
    each = np.cbrt(compute**3 + np.maximum(dram, cache) ** 3) + launch
    total = each @ groups.times
    flops = (2.0 * rows * groups.n * groups.k * products * groups.product) @ groups.times
    power = _power_ratio(machines, flops / total, width[:, 0], constants)
    busy = np.clip(compute @ groups.times / total / 0.6, 0.0, 1.0)
    slowdown = (1.0 + power**6) ** (constants.throttle / 6.0)
    return BatchTime(
        device_s=total * (1.0 + (slowdown - 1.0) * busy),
        copy_s=_copy_s(features, machines, batch, width[:, 0], constants),
        compute=compute @ groups.times,
        dram=dram @ groups.times,
        cache=cache @ groups.times,
        launch=launch @ groups.times,
        power=power,
    )


def _product_s(
    groups: Columns, machines: Fleet, rows: Floats, products: Floats, width: Floats,
    precision: Sequence[Precision], constants: Constants,
) -> Floats:  # fmt: skip
    """Seconds of each matrix product, [C, G]: the best tile and split."""
    efficiency = np.ones(len(groups.kind))
    for kind in PRODUCTS:
        efficiency = np.where(groups.where(kind) > 0, getattr(constants, kind.value), efficiency)
    rate = machines.rate(precision)[:, None] * efficiency * np.where(width > 1, constants.half, 1.0)
    appetite = constants.tile * _appetite(machines, precision)[:, None]
    best = np.full(rows.shape, np.inf)
    for tile_m, tile_n in _TILES:
        tiles = np.ceil(rows / tile_m) * np.ceil(groups.n / tile_n) * products
        reuse = np.hypot(1.0, appetite * (1 / tile_m + 1 / tile_n))
        for split in _SPLITS:
            waves = np.ceil(tiles * split / machines.sms[:, None])
            depth = np.ceil(groups.k / split / 32) * 32 + constants.ramp_bytes / width
            seconds = waves * (2.0 * tile_m * tile_n * reuse) * depth * (1 + _SPLIT_COST * np.log2(split))
            best = np.minimum(best, seconds)
    return np.where(groups.product > 0, best / rate, 0.0)


def _appetite(machines: Fleet, precision: Sequence[Precision]) -> Floats:
    """Bytes of operands that an SM's tensor cores want a clock, relative to an A100, [C].

    Shared memory delivers 128 bytes a clock on every generation (CUDA C++ Programming Guide), whatever the tensor
    cores could use: the faster they are, the larger the tile that keeps them busy.
    """
    wanted = [
        OPS_PER_SM_CLOCK[machine.capability].get(each, 0) * BYTES[each]
        for machine, each in zip(machines.machines, precision, strict=True)
    ]
    return np.array(wanted) / _A100_BYTES_WANTED


def _depthwise_s(groups: Columns, machines: Fleet, rows: Floats, products: Floats, constants: Constants) -> Floats:
    """Depthwise convolutions run on the FP32 units, [C, G]."""
    peak = machines.rate([Precision.FP32] * len(machines.machines)) * machines.sms
    flops = 2.0 * rows * groups.n * groups.k * products * groups.where(Kind.DEPTHWISE)
    return flops / (peak[:, None] * constants.depthwise)


def _memory_s(
    groups: Columns, machines: Fleet, batch: Floats, width: Floats, constants: Constants
) -> tuple[Floats, Floats]:
    """Seconds of DRAM and of L2 traffic, [C, G] each."""
    gather = groups.where(Kind.GATHER)
    read_width = np.where(gather > 0, 2.0, width)
    activations = batch * (groups.inputs * read_width + groups.outputs * width)
    weights = groups.weights * width
    reach = machines.l2_bytes[:, None] * constants.l2_reach
    kept = 1.0 / (1.0 + (activations / reach) ** 1.5)
    resident = 1.0 / (1.0 + ((weights @ groups.times)[:, None] / reach) ** 2)
    traffic = weights * (1.0 - resident) + activations * (1.0 - kept)
    dram = traffic / (machines.bandwidth[:, None] * constants.bandwidth)
    port = machines.sms * machines.hz * _L2_BYTES_PER_SM_CLOCK * constants.l2
    return dram, (activations + weights) / port[:, None]


def _launch_s(groups: Columns, machines: Fleet, batch: Floats, constants: Constants) -> Floats:
    """Seconds of launch and drain, [C, G]; a selection is many small kernels; it grows once the batch fills the SMs."""
    one = constants.launch_us * 1e-6 + constants.launch_kcycles * 1e3 / machines.hz[:, None]
    selection = constants.select * np.maximum(1.0, batch / machines.sms[:, None])
    return one * np.where(groups.where(Kind.SELECT) > 0, selection, 1.0)


def _power_ratio(machines: Fleet, ops_per_s: Floats, width: Floats, constants: Constants) -> Floats:
    """Power asked for ÷ limit; energy per operation grows with the operands' width."""
    by_node = constants.pj * np.array([1.0, constants.node_8nm, constants.node_7nm, constants.node_4nm])
    watts = ops_per_s * by_node[machines.node] * width * 1e-12
    base = np.where(machines.integrated, 0.0, constants.base_w) + _IDLE_POWER_SHARE * machines.power_w
    left = np.maximum(machines.power_w - base * machines.share, _LEAST_POWER_SHARE * machines.power_w)
    return np.asarray(watts / left, dtype=float)


def _copy_s(features: ModelFeatures, machines: Fleet, batch: Floats, width: Floats, constants: Constants) -> Floats:
    """Input copy: pictures travel in the engine's input format, tokens as 32-bit numbers."""
    each = np.where(features.input_elements > _FEW_ELEMENTS, width, _TOKEN_BYTES)
    seconds = features.input_elements * each * batch / (constants.copy_gbs * 1e9)
    return np.where(machines.integrated, 0.0, seconds)


def dla_rate(features: ModelFeatures, machines: Fleet, constants: Constants) -> Floats:
    """Samples per second that the DLAs add, [C]: each layer on the bound of their multipliers or of their DRAM traffic.

    They have no L2. A convolution whose groups have one channel keeps one of an array's 64 channel lanes busy (NVDLA
    primer, configuration `nv_full`).
    """
    groups = columns(features)
    lanes = 1.0 + (_DLA_LANES - 1.0) * groups.where(Kind.DEPTHWISE)
    work = 2.0 * groups.m * groups.n * groups.k * groups.groups * lanes
    compute = work / np.maximum(machines.dla_ops * constants.dla, 1.0)[:, None]
    traffic = (groups.inputs + groups.outputs) / (machines.bandwidth * constants.dla_bandwidth)[:, None]
    seconds = np.cbrt(compute**3 + traffic**3) @ groups.times
    return np.where(machines.dla_ops > 0, 1.0 / seconds, 0.0)
