"""The roofline against times worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deploykit.base.vocab import Precision, Scenario
from deploykit.predict.kernels import KernelGroup, Kind, ModelFeatures, sized
from deploykit.predict.machine import Machine, fleet
from deploykit.predict.points import analytic
from deploykit.predict.roofline import BatchTime, Constants, batch_time, dla_rate

IDEAL = Constants(
    conv=1, gemm=1, attention=1, bandwidth=1, l2=1e9, ramp_bytes=1e-9, tile=1e-9, launch_us=1e-9,
    launch_kcycles=1e-9, host_us=100, copy_gbs=1e9, dla=1, dla_bandwidth=1, depthwise=1,
)  # fmt: skip
FP16_OPS_PER_S = 10 * 2048 * 1e9
PLAIN = Machine("plain", "8.0", 10, 1000, 1000, 0.001, 1e6, 16)


def time(
    features: ModelFeatures, machine: Machine = PLAIN, batch: float = 1, constants: Constants = IDEAL
) -> BatchTime:
    return batch_time(features, fleet([machine]), np.array([batch]), [Precision.FP16], constants)


def test_a_product_of_whole_waves_takes_its_operations_over_the_peak(make: Any) -> None:
    net = make.network(make.gemm(2560, 128, 1024)).features
    assert time(net).device_s[0] == pytest.approx(2 * 2560 * 128 * 1024 / FP16_OPS_PER_S, rel=1e-6)


def test_a_tile_too_many_is_a_wave_more(make: Any) -> None:
    """11 tiles of 256 × 128 on 10 SMs would be two waves; 88 of 64 × 64 are nine instead of 8.8."""
    eleven = make.network(make.gemm(2816, 128, 1024)).features
    assert time(eleven).compute[0] == pytest.approx(9 * 2 * 64 * 64 * 1024 / 2048e9, rel=1e-6)


def test_a_small_product_is_split_along_its_reduction(make: Any) -> None:
    """One 16 × 64 tile would leave nine SMs idle: eight splits of the reduction occupy eight, at 3 % a doubling."""
    tiny = make.network(make.gemm(16, 64, 1024)).features
    assert time(tiny).compute[0] == pytest.approx(2 * 16 * 64 * 128 / 2048e9 * (1 + 0.03 * 3), rel=1e-6)


def test_the_batch_multiplies_rows_of_a_layer_but_heads_of_attention(make: Any) -> None:
    layer = make.network(make.gemm(2560, 128, 1024)).features
    heads = make.network(KernelGroup(Kind.ATTENTION, 256, 128, 1024, groups=10)).features
    for net in (layer, heads):
        assert time(net, batch=4).compute[0] == pytest.approx(4 * time(net).compute[0], rel=1e-6)


def test_pointwise_work_moves_its_bytes_once_in_and_once_out(make: Any) -> None:
    net = make.network(KernelGroup(Kind.POINTWISE, inputs=10**9, outputs=10**9)).features
    assert time(net).device_s[0] == pytest.approx(2 * 2e9 / 1000e9, rel=1e-3)


def test_what_fits_in_l2_does_not_leave_it(make: Any) -> None:
    net = make.network(KernelGroup(Kind.POINTWISE, inputs=10**6, outputs=10**6)).features
    small, large = time(net), time(net, replace(PLAIN, l2_mb=1000))
    assert large.dram[0] < 0.01 * small.dram[0]


def test_each_launch_costs_a_fixed_part_and_a_part_in_cycles(make: Any) -> None:
    net = make.network(KernelGroup(Kind.POINTWISE, count=3, steps=2)).features
    constants = replace(IDEAL, launch_us=2.0, launch_kcycles=4.0)
    assert time(net, constants=constants).device_s[0] == pytest.approx(6 * (2e-6 + 4e3 / 1e9), rel=1e-6)
    assert time(net, replace(PLAIN, mhz=500), constants=constants).device_s[0] == pytest.approx(6 * (2e-6 + 8e-6))


def test_depthwise_runs_on_the_fp32_units(make: Any) -> None:
    net = make.network(KernelGroup(Kind.DEPTHWISE, m=10**6, n=1, k=9, groups=100)).features
    assert time(net).compute[0] == pytest.approx(2 * 9e8 / (10 * 128 * 1e9), rel=1e-6)


def test_faster_tensor_cores_want_larger_tiles(make: Any) -> None:
    """An H100's cores ask for twice an A100's operands a clock, of the same shared memory."""
    constants = replace(IDEAL, tile=100.0)
    net = make.network(make.gemm(2560, 32, 1024)).features
    a100, h100 = (time(net, replace(PLAIN, capability=c), constants=constants).compute[0] for c in ("8.0", "9.0"))
    assert 0.5 * a100 < h100 < a100


def test_a_power_limit_slows_by_its_exponent(make: Any) -> None:
    net = make.network(make.gemm(25600, 1280, 1024)).features
    free = time(net)
    tight = time(net, replace(PLAIN, power_w=30.0))
    assert tight.power[0] > 1
    assert tight.device_s[0] > free.device_s[0] == pytest.approx(free.compute[0], rel=1e-3)


def test_dlas_take_a_convolution_at_their_peak_and_add_their_rate(make: Any) -> None:
    conv = KernelGroup(Kind.CONV, m=1000, n=64, k=576)
    machine = replace(PLAIN, dla_tops=1.0, integrated=True)
    net = make.network(conv)
    ops = 2 * 1000 * 64 * 576
    assert dla_rate(net.features, fleet([machine, PLAIN]), IDEAL) == pytest.approx([1e12 / ops, 0.0], rel=1e-6)
    alone, both = (
        analytic([make.point(net, machine, precision=Precision.INT8, dla=dla)], IDEAL).log_ms for dla in (False, True)
    )
    assert np.exp(-both) == pytest.approx(np.exp(-alone) + 1e-3 * 1e12 / ops, rel=1e-6)


def test_a_query_pays_for_host_and_copies_a_rate_does_not(make: Any) -> None:
    net = make.network(make.gemm(2560, 128, 1024), input_elements=10**6)
    constants = replace(IDEAL, copy_gbs=10.0)
    device = 2 * 2560 * 128 * 1024 / FP16_OPS_PER_S
    single = make.point(net, scenario=Scenario.SINGLE_STREAM)
    script = replace(single, source="somebody/else", copies=False)
    table = replace(single, source="NVIDIA/TensorRT", copies=False)
    seconds = np.exp(analytic([single, script, table], constants).log_ms) / 1e3
    expected = [device + 100e-6 + 2e6 / 10e9, device + constants.script_us * 1e-6, device]
    assert seconds == pytest.approx(expected, rel=1e-4)


def test_offline_takes_the_batch_that_stays_in_l2_where_that_is_faster(make: Any) -> None:
    net = make.network(*[KernelGroup(Kind.POINTWISE, inputs=10**6, outputs=10**6)] * 2)
    constants = replace(IDEAL, launch_us=1.0, l2=1.0)
    log2_batch = analytic(
        [make.point(net, replace(PLAIN, l2_mb=mb, sms=100), batch=1024) for mb in (0.001, 100.0)], constants
    ).shares[:, 5] * 8  # fmt: skip
    assert log2_batch[0] == 10
    assert 0 < log2_batch[1] < 8


def test_a_server_batch_leaves_half_of_the_limit(make: Any) -> None:
    net = make.network(make.gemm(2560, 128, 1024))
    one_ms = 1e3 * 2 * 2560 * 128 * 1024 / FP16_OPS_PER_S
    asked = [make.point(net, scenario=Scenario.SERVER, batch=64, limit_ms=limit * one_ms) for limit in (1.0, 17.0, 1e9)]
    batches = 2.0 ** (8 * analytic(asked, replace(IDEAL, launch_us=1.0)).shares[:, 5])
    assert batches == pytest.approx([1, 8, 64])


def test_a_latency_speaks_of_a_larger_sample_where_samples_differ(make: Any) -> None:
    net = make.network(make.gemm(2560, 128, 1024), dynamic=True, p90_size=2.0)
    device = 1e3 * 2 * 2560 * 128 * 1024 / FP16_OPS_PER_S
    points = [
        make.point(net),
        make.point(net, scenario=Scenario.SINGLE_STREAM),
        make.point(net, scenario=Scenario.SINGLE_STREAM, batch=4),
    ]
    assert np.exp(analytic(points, IDEAL).log_ms) == pytest.approx(
        [device, 2 * device + 0.1, 6 * device + 0.1], rel=1e-4
    )


def test_larger_samples_mean_more_rows_longer_attention_or_more_steps(make: Any) -> None:
    groups = (make.gemm(10, 4, 4), KernelGroup(Kind.ATTENTION, 10, 10, 4), make.gemm(1, 4, 4, steps=10))
    rows, attention, decoding = sized(ModelFeatures("net", groups, 0), 1.5).groups
    assert (rows.m, rows.n) == (15, 4)
    assert (attention.m, attention.n) == (15, 15)
    assert (decoding.m, decoding.steps) == (1, 15)
