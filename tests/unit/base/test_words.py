"""Errors, registry, units, tensor specs: the small shared words."""

import pytest

from deploykit.base import errors, units
from deploykit.base.registry import Registry
from deploykit.base.tensors import TensorSpec, parse_tensor


def test_every_error_owns_one_exit_code() -> None:
    codes = {
        errors.DeploykitError: 1,
        errors.UsageError: 2,
        errors.MissingExtraError: 2,
        errors.UnknownNameError: 2,
        errors.AccuracyBelowFloor: 3,
        errors.NoTargetMeetsSla: 3,
        errors.Regression: 3,
        errors.DeviceAbsent: 4,
        errors.DeviceMismatch: 4,
        errors.ProviderUnavailable: 4,
    }
    assert {kind: kind.exit_code for kind in codes} == codes


def test_a_mistyped_name_gets_its_neighbours_and_the_way_to_more() -> None:
    error = errors.UnknownNameError("target", "orin-30", ["orin-30w", "orin-15w", "l4"], "list: deploykit targets list")
    assert error.near[0] == "orin-30w"
    assert str(error).startswith("unknown target 'orin-30'; did you mean orin-30w")
    assert str(error).endswith("deploykit targets list")


def test_a_name_like_nothing_gets_no_neighbours() -> None:
    assert errors.near_misses("zzzz", ["orin-30w", "l4"]) == []


def test_a_missing_extra_says_what_to_install() -> None:
    error = errors.MissingExtraError("numba", "quantize", "INT8 calibration")
    assert (
        str(error) == "INT8 calibration needs the package 'numba'; install it with: pip install 'deploykit[quantize]'"
    )


def test_a_registry_imports_on_first_use_and_knows_near_names() -> None:
    registry = Registry("thing", "deploykit.no-such-group", {"decimal": "decimal:Decimal"})
    assert registry.names() == ["decimal"]
    assert registry.get("decimal").__name__ == "Decimal"
    with pytest.raises(errors.UnknownNameError, match="did you mean decimal"):
        registry.get("decimals")


@pytest.mark.parametrize(
    ("value", "text"), [(0.344, "0.344 ms"), (12.94, "12.9 ms"), (1234.5, "1,234 ms"), (None, "–"), (0, "0 ms")]
)
def test_latency_is_shown_with_three_digits(value: float | None, text: str) -> None:
    assert units.format_ms(value) == text


@pytest.mark.parametrize(("value", "text"), [(12717.4, "12,717/s"), (3.14159, "3.14/s"), (None, "–")])
def test_rates(value: float | None, text: str) -> None:
    assert units.format_rate(value) == text


@pytest.mark.parametrize(("value", "text"), [(1999.4, "$1,999"), (12.9, "$12.90"), (0.0123, "$0.012"), (None, "–")])
def test_money(value: float | None, text: str) -> None:
    assert units.format_usd(value) == text


def test_bytes_name_their_unit() -> None:
    assert units.format_bytes(97.5 * units.MIB) == "97.5 MiB"
    assert units.format_bytes(3 * units.GIB) == "3.0 GiB"


def test_an_input_is_read_as_typed() -> None:
    assert parse_tensor("x:1x3x224x224") == TensorSpec(name="x", dtype="float32", shape=(1, 3, 224, 224))
    assert parse_tensor("ids:batchx128:int64") == TensorSpec(name="ids", dtype="int64", shape=("batch", 128))


@pytest.mark.parametrize("text", ["", "x", "x:", "x:1x", "x:1x3:float33", "x:0x3", ":1x3", "x:1,3"])
def test_odd_inputs_are_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match="--input"):
        parse_tensor(text)


def test_a_batch_size_fills_the_first_open_dimension_only() -> None:
    assert TensorSpec(name="x", dtype="float32", shape=("batch", 3, 8)).sized(4) == (4, 3, 8)
    assert TensorSpec(name="x", dtype="float32", shape=(1, 3, 8)).sized(4) == (1, 3, 8)
    with pytest.raises(errors.UsageError, match="open dimensions"):
        TensorSpec(name="x", dtype="float32", shape=("batch", 3, "height")).sized(4)
