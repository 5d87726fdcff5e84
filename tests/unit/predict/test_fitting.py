"""Fitting finds what made-up measurements were made from, and a refit sees nothing of what is held out."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deploykit.base.vocab import Scenario
from deploykit.predict import splits
from deploykit.predict.correction import DEFAULT_SPREAD
from deploykit.predict.fitting import fit_constants, fit_settings
from deploykit.predict.holdout import silicon_of
from deploykit.predict.kernels import KernelGroup, Kind
from deploykit.predict.observe import Observation
from deploykit.predict.points import analytic
from deploykit.predict.roofline import Constants
from deploykit.predict.training import read_training

TRUE = replace(Constants(), gemm=0.5, host_us=80.0, launch_us=2.0)


def rows(make: Any, noise: float = 0.0) -> list[Observation]:
    """Products of several sizes on machines of several sizes, as `TRUE` has them."""
    nets = [
        make.network(
            make.gemm(m, n, 1024, inputs=m * 64, outputs=m * 64, weights=n * 1024, count=4),
            KernelGroup(Kind.POINTWISE, inputs=m * 64, outputs=m * 64, count=8),
            name=f"net{m}x{n}",
        )
        for m in (256, 4096, 65536)
        for n in (64, 1024)
    ]
    machines = [replace(make.machine, ref=f"m{sms}", sms=sms, bandwidth_gbs=20 * sms, l2_mb=10) for sms in (8, 30, 100)]
    points = [
        make.point(net, machine, scenario, batch=batch)
        for net in nets
        for machine in machines
        for scenario, batch in ((Scenario.SINGLE_STREAM, 1), (Scenario.OFFLINE, 64))
    ]
    random = np.random.default_rng(0)
    log_ms = analytic(points, TRUE).log_ms + noise * random.standard_normal(len(points))
    return [Observation(p, float(ms), 1, (f"row{i}",)) for i, (p, ms) in enumerate(zip(points, log_ms, strict=True))]


def test_constants_that_the_rows_speak_of_come_near_the_truth(make: Any) -> None:
    """All the way they do not come: a network's offset and the priors take their part."""
    found, default = fit_constants(rows(make)), Constants()
    for name in ("gemm", "host_us"):
        true = getattr(TRUE, name)
        left, began = (abs(math.log(getattr(each, name) / true)) for each in (found, default))
        assert left < 0.6 * began, name


def test_constants_that_no_row_speaks_of_stay_at_their_prior(make: Any) -> None:
    found, default = fit_constants(rows(make)), Constants()
    for name in ("attention", "depthwise", "dla", "script_us", "node_8nm"):
        assert getattr(found, name) == pytest.approx(getattr(default, name), rel=1e-3)


def test_without_rows_the_priors_stand() -> None:
    assert fit_constants([]) == Constants()


def test_settings_see_the_noise(make: Any) -> None:
    quiet, loud = (fit_settings(rows(make, noise), TRUE).noise["Offline"] for noise in (0.02, 0.25))
    assert quiet < loud
    assert math.log(loud / quiet) > 0.5
    assert fit_settings(rows(make), TRUE).spread.keys() == DEFAULT_SPREAD.keys()


@pytest.fixture(scope="module")
def shipped() -> Sequence[Observation]:
    return read_training().rows


def test_a_refit_without_a_die_has_no_row_of_it(shipped: Sequence[Observation]) -> None:
    left = splits.kept(shipped, "silicon GA100")
    assert left
    assert "GA100" not in {silicon_of(row.point.machine.ref) for row in left}


def test_a_refit_without_a_network_has_no_row_of_its_family(shipped: Sequence[Observation]) -> None:
    assert "bert" not in {row.point.network.family for row in splits.kept(shipped, "network bert")}


def test_a_refit_of_the_past_knows_no_newer_target(shipped: Sequence[Observation]) -> None:
    left = splits.kept(shipped, "newer targets")
    assert not {row.point.machine.ref for row in left} & {"l4", "l40s", "h100-pcie-80gb"}
    assert max(row.point.year for row in left) < 2023
