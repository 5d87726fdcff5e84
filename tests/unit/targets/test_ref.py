import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.base.errors import UsageError
from deploykit.targets.ref import TargetRef, parse_ref, squeezed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rtx-4090", TargetRef("rtx-4090")),
        (" Orin-AGX-64GB@30W ", TargetRef("orin-agx-64gb", mode="30w")),
        ("a100-sxm4-80gb:1g.10gb", TargetRef("a100-sxm4-80gb", profile="1g.10gb")),
        ("h100:1g.10gb+me", TargetRef("h100", profile="1g.10gb+me")),
        ("x@30w:1g.5gb", TargetRef("x", "30w", "1g.5gb")),
    ],
)
def test_references(text: str, expected: TargetRef) -> None:
    assert parse_ref(text) == expected
    assert parse_ref(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "@30w", "a@", "a:", "a@b@c", "a:b:c", "a:b@c", "a b", "a/b", "-a", "ä"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"write it as <device>\[@<power mode>\]"):
        parse_ref(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("orin@30w@50w", "names 2 power modes"),
        ("a100:1g.10gb:2g.20gb", "names 2 MIG profiles"),
        ("a:1g.5gb@30w", "has the MIG profile before the power mode"),
        ("orin@", "ends in '@' with nothing behind it"),
        ("rtx 4090", "is not a target's name"),
    ],
)
def test_the_fault_is_named(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_ref(text)


@given(st.text(max_size=40))
def test_any_text_gives_a_reference_or_a_usage_error(text: str) -> None:
    try:
        ref = parse_ref(text)
    except UsageError:
        return
    assert parse_ref(str(ref)) == ref


@pytest.mark.parametrize("name", ["rtx4090", "RTX 4090", "NVIDIA GeForce RTX 4090", "rtx_4090", "rtx-4090"])
def test_spellings_of_one_card_are_one(name: str) -> None:
    assert squeezed(name) == "rtx4090"
