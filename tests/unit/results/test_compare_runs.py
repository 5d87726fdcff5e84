"""Conditions first, then change beyond noise. Synthetic runs with known differences."""

from __future__ import annotations

import numpy as np
import pytest

from deploykit.base.errors import UsageError
from deploykit.results.compare import against_fp32, compare, condition_differences, is_regression
from deploykit.results.measurement import Measurement


def run(p50: float = 10.0, scatter: float = 0.01, seed: int = 0, **change: object) -> Measurement:
    blocks = p50 * np.random.default_rng(seed).normal(1.0, scatter, 20)
    fields = {
        "id": f"run-{p50}-{seed}",
        "model": "resnet50",
        "precision": "fp32",
        "target": "host",
        "runtime": "onnxruntime",
        "scenario": "SingleStream",
        "batch_size": 1,
        "latency_ms": {"p50": float(np.median(blocks)), "mean": float(blocks.mean())},
        "blocks_p50_ms": tuple(blocks),
        "throughput_ips": 1000 / p50,
        "conditions": {"threads": 2, "transfers": "host", "cuda_graph": False},
        "device": {"cpu": "a"},
        "source": "test",
    }
    return Measurement.model_validate(fields | change)


def summary_only(p50: float, **change: object) -> Measurement:
    return run(p50, **({"blocks_p50_ms": ()} | change))


@pytest.mark.parametrize(
    ("after", "scatter", "outcome"),
    [
        (10.0, 0.01, "same"),
        (10.1, 0.01, "same"),
        (12.0, 0.01, "slower"),
        (8.0, 0.01, "faster"),
        (10.6, 0.12, "unclear"),
    ],
)
def test_change_and_noise_are_told_apart(after: float, scatter: float, outcome: str) -> None:
    found = compare([run(10.0, scatter, seed=1)], [run(after, scatter, seed=2)])
    assert found.outcome == outcome
    assert found.decisive == "latency_ms.p50"
    assert found.interval is not None
    assert found.interval[0] <= 10.0 / after * 1.05


def test_equal_runs_are_rarely_called_different() -> None:
    outcomes = [compare([run(10.0, 0.05, seed=2 * n)], [run(10.0, 0.05, seed=2 * n + 1)]).outcome for n in range(100)]
    assert sum(outcome in ("faster", "slower") for outcome in outcomes) <= 2


def test_several_runs_a_side_widen_what_one_run_does_not_show() -> None:
    # Each run is steady in itself, but runs of one build differ by 10 %: a lone pair would look like a real change.
    before = [run(p50, 0.001, seed=n) for n, p50 in enumerate((9.5, 10.0, 10.5))]
    after = [run(p50, 0.001, seed=9 + n) for n, p50 in enumerate((9.6, 10.1, 10.6))]
    assert compare(before[:1], after[2:]).outcome == "slower"
    assert compare(before, after).outcome == "unclear"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model": "vit_b_16"}, "model"),
        ({"target": "rtx-4090"}, "target"),
        ({"scenario": "Offline"}, "scenario"),
        ({"conditions": {"power_mode": "MAXN"}}, "power_mode"),
    ],
)
def test_unlike_things_are_not_compared(change: dict[str, object], key: str) -> None:
    before = run(conditions={"power_mode": "MODE_30W"})
    with pytest.raises(UsageError, match=f"different things .*{key}"):
        compare([before], [run(**change)])


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"conditions": {"transfers": "none"}}, "transfers"),
        ({"conditions": {"cuda_graph": True}}, "cuda_graph"),
        ({"conditions": {"threads": 1}}, "threads"),
        ({"batch_size": 2}, "batch_size"),
        ({"device": {"cpu": "b"}}, "cpu"),
        ({"provenance": "published"}, "provenance"),
    ],
)
def test_what_was_timed_differently_gets_figures_and_no_verdict(change: dict[str, object], key: str) -> None:
    found = compare([run()], [run(5.0, **change)])
    assert found.differences[0].key == key
    assert found.outcome == "not comparable"
    assert found.figures
    with pytest.raises(UsageError, match=f"cannot be told: .*{key}"):
        is_regression(found)


def test_what_is_compared_on_purpose_is_listed_and_judged() -> None:
    versions = (
        {"conditions": {"versions": {"onnxruntime": "1.20"}}},
        {"conditions": {"versions": {"onnxruntime": "1.32"}}},
    )
    found = compare([run(**versions[0])], [run(8.0, precision="int8", **versions[1])])
    assert [difference.key for difference in found.differences] == ["precision", "versions.onnxruntime"]
    assert found.outcome == "faster"


def test_a_condition_that_one_side_leaves_open_is_no_difference() -> None:
    assert condition_differences(run(), run(conditions={}, device={})) == ()


def test_an_invalid_side_is_named() -> None:
    found = compare([run()], [run(20.0, valid=False, invalid_reasons=("the GPU throttled",))])
    assert found.outcome == "not comparable"
    assert "the GPU throttled" in found.why


@pytest.mark.parametrize(("after", "outcome"), [(10.5, "same"), (12.0, "slower"), (8.0, "faster")])
def test_lone_figures_need_a_larger_change(after: float, outcome: str) -> None:
    found = compare([summary_only(10.0)], [summary_only(after)])
    assert found.interval is None
    assert found.outcome == outcome


def test_servers_at_one_rate_are_judged_by_their_tail_and_else_by_the_rate() -> None:
    server = {"scenario": "Server", "latency_ms": {"p50": 5.0, "p99": 9.0}, "offered_ips": 50.0}
    slower = server | {"latency_ms": {"p50": 5.0, "p99": 12.0}}
    assert compare([run(**server)], [run(**slower)]).decisive == "latency_ms.p99"
    assert compare([run(**server)], [run(**slower)]).outcome == "slower"
    other_rate = compare([run(**server)], [run(**slower | {"offered_ips": 80.0, "throughput_ips": 80.0})])
    assert other_rate.decisive == "throughput_ips"


def test_int8_against_the_newest_fp32_of_the_same_kind() -> None:
    int8 = run(4.0, precision="int8")
    others = [int8, run(5.0, conditions={"threads": 1}), run(10.0), run(20.0)]
    found = against_fp32(int8, others)
    assert found is not None
    assert found.speedup == pytest.approx(2.5, rel=0.02)
    assert against_fp32(int8, others[:2]) is None
    assert against_fp32(run(), others) is None


def test_a_side_of_unlike_runs_is_refused() -> None:
    with pytest.raises(UsageError, match="runs of the first side are not of one thing: threads"):
        compare([run(), run(conditions={"threads": 1})], [run()])
    with pytest.raises(UsageError, match="second side"):
        compare([run()], [])
