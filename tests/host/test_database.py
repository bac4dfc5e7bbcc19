"""Database files: made whole or not at all, by one of several processes; what is another's is not touched."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import product
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from fugu.host.database import FORMAT, LEDGER, STORE, FileLostError, damage, open_database, snapshot, transaction
from tests.support.brokers import PATIENCE

SCHEMA = """
CREATE TABLE drops (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TRIGGER stay BEFORE DELETE ON drops BEGIN SELECT RAISE(ABORT, 'drops; stay'); END;
INSERT INTO drops (text) VALUES ('first; of all');
"""
FORK = multiprocessing.get_context("fork")


class RefusedError(FuguError):
    """The file cannot be used."""


def opened(path: Path, **options: object) -> sqlite3.Connection:
    return open_database(path, LEDGER, SCHEMA, RefusedError, **options)


def rows(db: sqlite3.Connection) -> list[str]:
    return [text for (text,) in db.execute("SELECT text FROM drops ORDER BY number")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a file that is not there yet."""
    return tmp_path / "drops.sqlite"


def test_a_new_file_says_what_it_is_and_survives_a_power_cut(path: Path) -> None:
    for _ in range(2):  # the second time it is there
        with closing(opened(path)) as db:
            assert rows(db) == ["first; of all"]
            facts = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
            assert facts == {"journal_mode": "wal", "synchronous": 2}
            assert db.execute("PRAGMA application_id").fetchone() == (LEDGER.application_id,)
            assert db.execute("PRAGMA user_version").fetchone() == (FORMAT,)
            with pytest.raises(sqlite3.IntegrityError, match="drops; stay"):
                db.execute("DELETE FROM drops")


def open_with_others(path: Path, all_are_there: Barrier) -> None:
    all_are_there.wait(PATIENCE)
    opened(path, wait_seconds=60).close()


def test_several_processes_make_it_once(path: Path) -> None:
    four = FORK.Barrier(4)
    processes = [FORK.Process(target=open_with_others, args=(path, four)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
    assert [process.exitcode for process in processes] == [0] * 4
    with closing(opened(path)) as db:
        assert rows(db) == ["first; of all"]


@pytest.mark.parametrize("script", ["CREATE TABLE others (a)", "PRAGMA user_version=1;CREATE TABLE others (a)"])
def test_what_is_of_another_kind_is_refused_and_stays_as_it_was(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)
    before = path.read_bytes()
    with pytest.raises(RefusedError, match=r"drops\.sqlite"):
        opened(path)
    assert path.read_bytes() == before


def test_a_file_of_another_kind_of_this_project_is_refused(path: Path) -> None:
    opened(path).close()
    with pytest.raises(RefusedError, match=r"drops\.sqlite is no store"):
        open_database(path, STORE, SCHEMA, RefusedError)


def test_what_may_not_be_made_has_to_be_there(path: Path) -> None:
    with pytest.raises(RefusedError, match=r"there is no ledger drops\.sqlite"):
        opened(path, create=False)
    path.touch()
    with pytest.raises(RefusedError, match=r"drops\.sqlite is no ledger"):
        opened(path, create=False)
    assert path.read_bytes() == b""


def test_no_database_and_no_folder_are_one_clear_line(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"no database, and long enough to be seen as none" * 100)
    with pytest.raises(RefusedError, match=r"cannot open the ledger drops\.sqlite: file is not a database"):
        opened(path)
    with pytest.raises(
        RefusedError, match=r"cannot open the ledger here: there is no folder nowhere: make it, or name another$"
    ):
        opened(tmp_path / "nowhere" / "l", label="here")


def test_a_file_that_another_holds_is_refused_in_the_words_of_the_caller(path: Path) -> None:
    exclusive = ("locking_mode=EXCLUSIVE",)
    with closing(opened(path, pragmas=exclusive)) as db:
        db.execute("INSERT INTO drops (text) VALUES ('mine')")
        with pytest.raises(RefusedError, match="it is taken"):
            opened(path, pragmas=exclusive, wait_seconds=0, busy_message="it is taken")
    opened(path, pragmas=exclusive, busy_message="it is taken").close()


def test_a_schema_that_fails_leaves_nothing_behind(path: Path) -> None:
    with pytest.raises(RefusedError, match="cannot open the ledger"):
        open_database(path, LEDGER, "CREATE TABLE a (b);CREATE TABLE a (b);", RefusedError)
    with closing(opened(path)) as db:
        assert rows(db) == ["first; of all"]


def test_a_transaction_is_all_or_nothing_also_inside_another(path: Path) -> None:
    with closing(opened(path)) as db, closing(opened(path)) as other:

        def fails() -> None:
            with transaction(db):
                with transaction(db):
                    db.execute("INSERT INTO drops (text) VALUES ('inner')")
                assert len(rows(db)) == 2
                assert len(rows(other)) == 1, "the inner one has not ended anything"
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fails()
        assert len(rows(db)) == 1
        with transaction(db):
            db.execute("INSERT INTO drops (text) VALUES ('second')")
        assert rows(other) == ["first; of all", "second"]


def test_a_snapshot_sees_one_state_and_changes_nothing(path: Path) -> None:
    with closing(opened(path)) as db, closing(opened(path)) as other:
        with snapshot(db):
            assert len(rows(db)) == 1
            other.execute("INSERT INTO drops (text) VALUES ('meanwhile')")
            assert len(rows(db)) == 1
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                db.execute("INSERT INTO drops (text) VALUES ('lost')")
        assert len(rows(db)) == 2
        db.execute("INSERT INTO drops (text) VALUES ('third')")
        assert len(rows(other)) == 3


@pytest.mark.parametrize(
    ("what", "when"), [("overwrite", "before"), *product(("delete", "replace", "cut", "log"), ("before", "within"))]
)
def test_a_file_that_is_lost_meanwhile_is_never_called_durable(path: Path, what: str, when: str) -> None:
    db = opened(path)

    def lose() -> None:
        if what == "overwrite":
            with path.open("r+b") as file:
                file.seek(4096)
                file.write(b"\x5a" * (path.stat().st_size - 4096))
        elif what == "cut":
            with path.open("r+b") as file:
                file.truncate(4096)
        elif what == "log":
            path.with_name("drops.sqlite-wal").unlink()
        else:
            copy = path.read_bytes()
            path.unlink()
            if what == "replace":
                path.write_bytes(copy)

    with transaction(db):
        db.executemany("INSERT INTO drops (text) VALUES (?)", [("x" * 900,)] * 100)
    db.execute("PRAGMA wal_checkpoint")
    with transaction(db):
        db.execute("INSERT INTO drops (text) VALUES ('more')")
    if when == "before":
        lose()

    def write() -> None:
        with transaction(db):
            db.execute("INSERT INTO drops (text) VALUES ('much more')")
            if when == "within":
                lose()

    with pytest.raises(FileLostError, match=r"drops\.sqlite"):
        write()
    if what in ("cut", "overwrite"):
        with closing(sqlite3.connect(path)) as other:
            assert damage(other)


def test_a_file_that_cannot_be_read_now_is_not_called_damaged(path: Path) -> None:
    with closing(opened(path)) as db:
        db.set_progress_handler(lambda: 1, 1)  # interrupts every statement
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            db.execute("PRAGMA quick_check")
        assert damage(db) == ""


@pytest.mark.long
def test_too_many_open_files_are_said_with_what_to_do(tmp_path: Path) -> None:
    script = (
        "import os, resource, sys\nfrom fugu_cli.main import guarded\n"
        "from pathlib import Path\nfrom edge_agent.outbox import Outbox\n"
        "given = {'outbox': lambda: Outbox(Path(sys.argv[2]), 'home', 'watch'), 'file': lambda: open('/dev/null')}\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))\n"
        "held = [os.open('/dev/null', os.O_RDONLY) for _ in range(7)]\n"
        "sys.exit(guarded(given[sys.argv[1]]))"
    )
    for what in ("outbox", "file"):
        words = [sys.executable, "-c", script, what, str(tmp_path / "outbox.sqlite")]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 1
        assert "too many open files: let this process have more (ulimit -n, or LimitNOFILE" in done.stderr
        assert done.stderr.count("\n") == 1
