"""The disk that fails, which other tests believe: what was synced outlasts a power cut, and nothing else."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

from tests.support.faulty_disk import FaultyDisk, disks_can_fail

pytestmark = [pytest.mark.long, pytest.mark.skipif(not disks_can_fail(), reason="no C compiler is installed")]
ROWS = """
import os, signal, sqlite3
db = sqlite3.connect("state/rows.sqlite", isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
for level in ("FULL", "{level}"):
    db.execute(f"PRAGMA synchronous={{level}}")
    db.execute("CREATE TABLE IF NOT EXISTS rows (one)")
    db.execute("INSERT INTO rows VALUES (?)", (level,))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FaultyDisk]:
    (tmp_path / "state").mkdir()
    return FaultyDisk(tmp_path / "state", tmp_path)


def run(disk: FaultyDisk, folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **disk.environment}
    return subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("level", "rows"), [("FULL", 2), ("OFF", 1)])
def test_a_row_outlasts_a_power_cut_if_it_was_synced(disk: FaultyDisk, tmp_path: Path, level: str, rows: int) -> None:
    run(disk, tmp_path, ROWS.format(level=level))
    disk.lose_power()
    with closing(connect(tmp_path / "state" / "rows.sqlite")) as db:
        assert db.execute("SELECT COUNT(*) FROM rows").fetchone() == (rows,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


PUT = """
import os
def put(name, *parts, sync=True):
    number = os.open(name, os.O_RDWR | os.O_CREAT)
    for at, data in parts:
        os.pwrite(number, data, at)
    if sync:
        os.fsync(number)
    os.close(number)
def sync_folder():
    number = os.open(here, os.O_RDONLY)
    os.fsync(number)
    os.close(number)
os.chdir("state")
here = os.getcwd()
"""


def test_parts_of_files_names_and_ends_are_as_they_were_synced(disk: FaultyDisk, tmp_path: Path) -> None:
    for steps in (
        "put('a', (0, b'0123456789')); put('a', (2, b'xy'), (8, b'z')); put('a', (0, b'--'), sync=False)",
        "put('b', (0, b'new')); os.rename(f'{here}/b', f'{here}/c'); put('never', (0, b'x'), sync=False)",
        "put('d', (0, b'12345')); os.truncate('d', 2); put('gone', (0, b'x')); os.unlink(f'{here}/gone')",
        "sync_folder()",  # by whoever comes later
        "put('back', (0, b'x')); os.unlink(f'{here}/back'); put('e', (0, b'old')); put('f', (0, b'new'))",
        "os.rename(f'{here}/f', f'{here}/e')",
        "put('g', (0, b'1')); os.unlink(f'{here}/g'); put('g', (0, b'2'))",
    ):
        assert run(disk, tmp_path, PUT + steps).returncode == 0
    disk.lose_power()
    contents = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
    durable = {"a": b"01xy4567z9", "c": b"new", "d": b"12345", "g": b"2"}
    assert contents == {**durable, "back": b"x", "e": b"old", "f": b"new"}, "names that nobody synced are as before"


def test_sectors_of_a_database_are_written_or_not(disk: FaultyDisk, tmp_path: Path) -> None:
    steps = (
        "put('x.sqlite', (0, b's' * 8192)); put('x.sqlite', (0, b'w' * 8192), sync=False); put('y', (0, b's' * 8192))"
    )
    assert run(disk, tmp_path, PUT + steps + "; put('y', (0, b'w' * 8192), sync=False)").returncode == 0
    disk.lose_power(0.9)
    content = (tmp_path / "state" / "x.sqlite").read_bytes()
    sectors = {content[at : at + 512] for at in range(0, len(content), 512)}
    assert sectors == {b"s" * 512, b"w" * 512}
    assert len(set((tmp_path / "state" / "y").read_bytes())) == 1


def test_a_slow_disk_syncs_later_and_one_that_refuses_takes_nothing(disk: FaultyDisk, tmp_path: Path) -> None:
    sync = "import os; f = open('state/a', 'ab', buffering=0); f.write(b'x'); os.fsync(f.fileno())"
    begun = time.monotonic()
    disk.slow(400_000)
    assert run(disk, tmp_path, sync).returncode == 0
    assert time.monotonic() - begun > 0.4
    disk.slow(0)
    disk.refuse(True)
    assert f"[Errno {errno.EROFS}]" in run(disk, tmp_path, sync).stderr
    assert (
        f"[Errno {errno.EROFS}]"
        in run(disk, tmp_path, "import os; os.rename(os.path.abspath('state/a'), os.path.abspath('state/b'))").stderr
    )
    assert run(disk, tmp_path, "open('state/a').read()").returncode == 0
    disk.refuse(False)
    assert run(disk, tmp_path, sync).returncode == 0
    assert (tmp_path / "state" / "a").read_bytes() == b"xx"
