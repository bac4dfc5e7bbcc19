"""A file by an older version, or by another program, is refused in one line and left as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.outbox import Outbox
from fugu.contract.errors import FuguError, PolicyError
from fugu.contract.fleet_documents import read_enrolment
from gateway.fleet.registry import Registry
from gateway.releases.ledger import Ledger
from gateway.store.store import Store
from tests.support.signing import Keys

FILES: dict[str, Callable[[Path], object]] = {
    "outbox": lambda path: Outbox(path, "home", "watch"),
    "store": Store,
    "ledger": Ledger,
    "fleet registry": lambda path: Registry(path, fleet="home"),
}


def numbers(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as database:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
    return application, version


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    ("keeps_application", "version", "says"),
    [
        (True, 1, "older version"),
        (False, 1, "older version"),
        (False, 3, "is of version 3, this program knows 2"),
        (True, 3, "is of version 3"),
        (False, 0, "is no "),
    ],
)
def test_a_file_of_another_version_is_refused_in_a_line_and_left_alone(
    tmp_path: Path, kind: str, keeps_application: bool, version: int, says: str
) -> None:
    path = tmp_path / "file.sqlite"
    FILES[kind](path).close()
    application, current = numbers(path)
    assert (application > 0, current) == (True, 2)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"PRAGMA user_version={version}")
        if not keeps_application:
            database.execute("PRAGMA application_id=0")
    before = path.read_bytes()
    with pytest.raises(FuguError, match=says) as refusal:
        FILES[kind](path)
    assert kind in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_one_kind_is_not_taken_for_another(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file.sqlite"
    FILES[kind](path).close()
    for other in FILES.keys() - {kind}:
        with pytest.raises(FuguError, match=f"is no {other}"):
            FILES[other](path)


def test_an_enrolment_of_an_older_version_is_refused_in_a_line() -> None:
    text = Keys().enrolment().model_dump_json(exclude={"format"})
    with pytest.raises(PolicyError) as refusal:
        read_enrolment(text)
    assert str(refusal.value).endswith("not of format fugu/2, as this program's files are: enrol the device anew")
