"""Whatever the files of a board hold: it is in the mode that it saved, or in none that is known, and nothing raises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploykit.base.errors import DeploykitError
from deploykit.bench.conditions import device_record
from deploykit.probe.detect import Detected, detect
from deploykit.probe.device import look_at
from deploykit.probe.doctor import examine, gather
from deploykit.probe.export import target_file, yaml_of
from deploykit.probe.nvml_answers import RECORD_FILE
from deploykit.probe.sampling import sensors_of
from deploykit.probe.snapshot import opened
from deploykit.targets.catalog import load_catalog
from deploykit.targets.state import DeviceState

pytestmark = pytest.mark.usefixtures("in_memory")

BOARDS = Path(__file__).resolve().parents[1] / "fixtures" / "boards"
CATALOG = load_catalog()
few = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def use(root: Path) -> tuple[DeviceState, Detected | None]:
    """Everything that the commands do with a machine; only errors that are meant for the user may come out."""
    look = look_at(root)
    examine(gather(look, root, {}))
    found = None
    try:
        found = detect(look.state, CATALOG, {})
        device_record(look.state, found.chosen)
        with sensors_of(root, found.chosen) as sensors:
            sensors.read()
        yaml_of(target_file(look.state, CATALOG, found.chosen))
    except DeploykitError as error:
        assert str(error)
    return look.state, found


def changed(text: bytes, data: st.DataObject) -> bytes:
    """The file with a piece cut out, put elsewhere, or replaced by something else."""
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    piece = data.draw(st.sampled_from([b"", text[start:end] * 2, b"\xff\xfe", b"-1\n", b"9" * 40, b"\0\0"]))
    place = data.draw(st.sampled_from([start, 0, len(text)]))
    cut = text[:start] + text[end:]
    return cut[:place] + piece + cut[place:]


@pytest.mark.parametrize(("name", "mode"), [("orin-agx-64gb-jp6.MODE_30W", 2), ("xavier-nx.MODE_15W_2CORE", 0)])
def test_a_board_with_broken_files(name: str, mode: int) -> None:
    with opened(BOARDS / f"{name}.tar.gz") as root:
        files = sorted(path for path in root.rglob("*") if path.is_file())
        whole, found = use(root)
        assert whole.jetson is not None
        assert whole.jetson.mode_id == mode
        assert found is not None
        assert found.now is not None

        @few
        @given(st.data())
        def broken(data: st.DataObject) -> None:
            victims = data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3, unique=True))
            before = {path: path.read_bytes() for path in victims}
            try:
                for path, text in before.items():
                    path.write_bytes(changed(text, data))
                state, seen = use(root)
            finally:
                for path, text in before.items():
                    path.write_bytes(text)
            status = root / "var/lib/nvpmodel/status"
            if state.jetson is not None and status not in victims:
                assert state.jetson.mode_id in (mode, None)
            if seen is not None and seen.now not in (None, "host") and not set(victims) & deciding(root):
                assert seen.now == found.now

        broken()


def deciding(root: Path) -> set[Path]:
    """The files that say which module this is and which mode was saved."""
    names = ("proc/device-tree/compatible", "var/lib/nvpmodel/status", "etc/nvpmodel.conf", "deploykit/links.json")
    return {root / name for name in names}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", ["rtx-4090", "a100-80gb-mixed"])
def test_a_card_with_broken_answers(name: str) -> None:
    with opened(BOARDS / f"{name}.tar.gz") as root:
        record: dict[str, Any] = json.loads((root / RECORD_FILE).read_text())

        @few
        @given(st.dictionaries(st.sampled_from(sorted(record)), anything, min_size=1, max_size=4), st.booleans())
        def broken(answers: dict[str, Any], wrapped: bool) -> None:
            new = {question: {"answer": answer} if wrapped else answer for question, answer in answers.items()}
            (root / RECORD_FILE).write_text(json.dumps({**record, **new}))
            use(root)

        broken()


@pytest.mark.parametrize("text", ["", "[" * 100_000, "null", "[]", "{", '{"nvmlDeviceGetCount": {"answer": 1e400}}'])
def test_a_record_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "deploykit").mkdir()
    (tmp_path / RECORD_FILE).write_text(text)
    state, _ = use(tmp_path)
    assert state.nvml.gpus == ()
