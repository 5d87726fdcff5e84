"""The store on a real PostgreSQL server, started for the test in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploykit.base.errors import UsageError
from deploykit.results.measurement import Measurement
from deploykit.results.store import Store, StoreError

pytest.importorskip("psycopg")


def find_server() -> Path | None:
    """Folder of `initdb` and `pg_ctl`: on the path, or where Debian keeps them."""
    folders = [*map(Path, os.environ["PATH"].split(os.pathsep)), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return next((f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists()), None)


def as_ordinary_user(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return command if os.geteuid() else ["runuser", "-u", "postgres", "--", *command]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    binaries = find_server()
    if binaries is None:
        pytest.skip("needs a PostgreSQL server: initdb and pg_ctl are not here (apt-get install postgresql)")
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL refuses to run as root and runuser is not here")
    # Not tmp_path: the server's user must be able to reach it, and a socket's path may have 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    folder.chmod(0o777)
    data = folder / "data"

    def control(*arguments: str) -> None:
        command = as_ordinary_user([str(binaries / arguments[0]), *arguments[1:]])
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, timeout=60)

    control("initdb", "-D", str(data), "-U", "tester", "-A", "trust", "--no-sync")
    control("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -h ''", "start")
    try:
        yield f"postgresql://tester:secret@/postgres?host={folder}"
    finally:
        control("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def measured(name: str, **change: object) -> Measurement:
    fields = {"id": name, "model": "resnet50", "target": "host", "scenario": "SingleStream", "source": "test"}
    return Measurement.model_validate(fields | change)


def test_append_query_and_once_only(url: str) -> None:
    rows = [measured("one", remarks=("größer ≥ 1",)), measured("two", model="vit", precision="int8")]
    with Store(url) as store:
        assert store.append(rows) == 2
        assert store.append(rows) == 0
        assert store.find("on") == rows[0]
        assert store.measurements(model="vit", precision="int8", valid=True) == [rows[1]]


def test_several_processes_start_and_write_at_once(url: str) -> None:
    fresh = url.replace("/postgres?", "/fresh?")
    with Store(url) as store, store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("CREATE DATABASE fresh")
    script = (
        "import sys\nfrom deploykit.results.measurement import Measurement\nfrom deploykit.results.store import Store\n"
        "with Store(sys.argv[1]) as store:\n"
        "    for n in range(20):\n"
        "        store.append([Measurement(id=f'{n}', model='m', target='host', scenario='Offline', source='test')])\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, fresh]) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    with Store(fresh) as store:
        assert len(store.measurements()) == 20


def test_a_database_that_is_not_there_is_named_without_the_password(url: str) -> None:
    with pytest.raises((StoreError, UsageError), match='"nowhere" does not exist') as caught:
        Store(url.replace("/postgres?", "/nowhere?"))
    assert "secret" not in str(caught.value)
