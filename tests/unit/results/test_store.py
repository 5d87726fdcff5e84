"""The store on real SQLite files."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from pathlib import Path

import pytest

from deploykit.base.errors import UsageError
from deploykit.results.measurement import Measurement
from deploykit.results.store import Store, StoreError, exists, measurement_id, stored


def measured(number: int = 0, **change: object) -> Measurement:
    fields = {
        "id": f"{number:032x}",
        "model": "resnet50",
        "target": "host",
        "precision": "fp32",
        "scenario": "SingleStream",
        "throughput_ips": 10.0 + number,
        "source": "this machine",
        "date": dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(days=number),
    }
    return Measurement.model_validate(fields | change)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'deep' / 'results.db'}"


def test_what_went_in_comes_out_newest_first(url: str) -> None:
    rows = [measured(n, conditions={"threads": n}) for n in range(3)]
    with Store(url) as store:
        assert store.append(rows) == 3
    with Store(url) as store:
        assert store.measurements() == rows[::-1]


def test_storing_twice_adds_nothing(url: str) -> None:
    with Store(url) as store:
        assert store.append([measured(1), measured(1), measured(2)]) == 2
        assert store.append([measured(2)]) == 0
        assert len(store.measurements()) == 2


def test_filters(url: str) -> None:
    rows = [
        measured(0),
        measured(1, model="vit_b_16"),
        measured(2, target="rtx-4090", precision="int8"),
        measured(3, valid=False, invalid_reasons=("throttled",), scenario="Offline"),
    ]
    with Store(url) as store:
        store.append(rows)
        assert [m.id for m in store.measurements(model="vit_b_16")] == [rows[1].id]
        assert [m.id for m in store.measurements(target="rtx-4090", precision="int8")] == [rows[2].id]
        assert [m.id for m in store.measurements(valid=False)] == [rows[3].id]
        assert [m.id for m in store.measurements(scenario="Offline")] == [rows[3].id]
        assert [m.id for m in store.measurements(limit=1)] == [rows[3].id]


def test_dates_sort_across_time_zones(url: str) -> None:
    early = measured(1, date="2026-01-01T23:00:00+00:00")
    late = measured(2, date="2026-01-01T20:00:00-05:00")
    with Store(url) as store:
        store.append([late, early])
        assert [m.id for m in store.measurements()] == [late.id, early.id]


def test_an_id_is_found_by_its_beginning(url: str) -> None:
    with Store(url) as store:
        store.append([measured(0, id="abcd"), measured(1, id="abff")])
        assert store.find("abc").id == "abcd"
        with pytest.raises(UsageError, match="several measurements"):
            store.find("ab")
        with pytest.raises(UsageError, match="no measurement"):
            store.find("a%")


def test_one_bad_row_keeps_the_others_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = measured(1).model_copy(update={"throughput_ips": float("nan")})
    with Store(url) as store:
        with pytest.raises(ValueError, match="JSON compliant"):
            store.append([measured(0), bad])
        assert store.measurements() == []


def test_no_store_is_made_by_asking(url: str, tmp_path: Path) -> None:
    assert stored(url) == []
    assert not exists(url)
    assert list(tmp_path.iterdir()) == []


def test_a_newer_schema_is_refused(url: str, tmp_path: Path) -> None:
    Store(url).close()
    with sqlite3.connect(tmp_path / "deep" / "results.db") as connection:
        connection.execute("UPDATE deploykit_store SET schema_version = 99")
    with pytest.raises(StoreError, match="schema 99"):
        Store(url)


def test_a_record_of_a_newer_form_is_named(url: str, tmp_path: Path) -> None:
    with Store(url) as store:
        store.append([measured(7)])
        with sqlite3.connect(tmp_path / "deep" / "results.db") as connection:
            document = measured(7).model_dump(mode="json") | {"colour": "red"}
            connection.execute("UPDATE measurements SET document = ?", [json.dumps(document)])
        with pytest.raises(StoreError, match=rf"record {measured(7).id} .*update deploykit"):
            store.measurements()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "results.db").write_text("hello, I am a text file, long enough to be read as one" * 20)
    with pytest.raises(StoreError, match=r"results\.db cannot be used: file is not a database"):
        Store(f"sqlite:///{tmp_path / 'results.db'}")


@pytest.mark.parametrize("url", ["mysql://me:secret@somewhere/db", "me:secret@somewhere", "oracle2://me:secret@x/y"])
def test_other_urls_are_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///FILE") as caught:
        Store(url)
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer_is_named_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1") as caught:
        Store("postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)


def test_the_id_is_of_the_content() -> None:
    one = measured(1).model_dump(mode="json")
    assert measurement_id(one) == measurement_id(one | {"id": "something else"})
    assert measurement_id(one) != measurement_id(one | {"batch_size": 2})


def test_the_newest_and_those_before_it_have_names(url: str) -> None:
    with Store(url) as store:
        store.append([measured(n) for n in range(3)])
        assert [store.find(name) for name in ("latest", "latest~1", "latest~2")] == [measured(n) for n in (2, 1, 0)]
        for name in ("latest~3", "latest~", "latest~-1"):
            with pytest.raises(UsageError, match="latest"):
                store.find(name)
