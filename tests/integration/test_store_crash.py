"""Real processes write one store at the same time and are killed in the middle of it."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploykit.results.store import Store

# Prints an id only after the store said that it is in: what was printed must be there whatever happens next.
WRITER = """
import sys
from deploykit.results.measurement import Measurement
from deploykit.results.store import Store
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store(url) as store:
    for number in range(count):
        rows = [Measurement(id=f"{name}-{number}-{part}", model="m", target="host", scenario="Offline", source="test",
                            conditions={"filler": "x" * 2000}) for part in range(3)]
        store.append(rows)
        print(rows[0].id, flush=True)
"""


def writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, url, name, str(count)], stdout=subprocess.PIPE, text=True)


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'results.db'}"
    writers = [writer(url, name, 20) for name in ("a", "b", "c")]
    assert [process.wait(60) for process in writers] == [0, 0, 0]
    for process in writers:
        assert process.stdout is not None
        process.stdout.close()
    with Store(url) as store:
        assert len(store.measurements()) == 3 * 20 * 3


@pytest.mark.slow
def test_killed_writers_lose_nothing_that_was_promised(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'results.db'}"
    draw = random.Random(0)
    promised: set[str] = set()
    for attempt in range(6):
        process = writer(url, f"k{attempt}", 100_000)
        assert process.stdout is not None
        promised.add(process.stdout.readline().strip())
        time.sleep(draw.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0]
        assert process.returncode == -signal.SIGKILL
        promised |= {line for line in rest.splitlines(keepends=True) if line.endswith("\n")}
    promised = {line.strip() for line in promised}
    with Store(url) as store:
        ids = {measurement.id for measurement in store.measurements()}
    assert len(promised) > 6
    assert promised <= ids
    # A transaction is in whole or not at all.
    assert {i.rsplit("-", 1)[0] + f"-{part}" for i in ids for part in range(3)} == ids
    with sqlite3.connect(tmp_path / "results.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
