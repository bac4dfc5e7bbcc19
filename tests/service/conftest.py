"""Tests of what a store promises run twice: with stores in files, and with the same stores in schemas of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.service.store import Location, Server, store
from gateway.service.store.database import Database
from tests.support.postgres import Postgres

ON_BOTH = {"test_history", "test_recorder", "test_retention", "test_tracker", "test_windows"}
ONCE = {
    "test_a_batch_of_all_kinds_is_stored_whole_or_not_at_all",
    "test_a_full_disk_keeps_frames_out_of_the_watermark_until_there_is_room",
    "test_a_device_that_sends_what_is_missing_gets_rid_of_everything_in_the_end",
    "test_nobody_waits_for_frames_that_a_full_outbox_had_to_drop",
    "test_what_cannot_be_stored_is_not_in_the_watermark",
    "test_what_has_gone_is_not_in_the_file_and_its_room_is_used_again",
}
"""Tests that fill a disk, look into a file, or take long."""
_POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.processes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests an engine, unless once is enough."""
    here = metafunc.module.__name__.rpartition(".")[2] in ON_BOTH and metafunc.function.__name__ not in ONCE
    names = {mark.name for mark in metafunc.definition.iter_markers()}
    if here and "long" not in names and "broker" not in metafunc.fixturenames:
        metafunc.fixturenames.append("engine")
        metafunc.parametrize("engine", ["sqlite", _POSTGRESQL], indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stores are that a test names by a path: in that file, or in a schema of its own on a server."""
    if request.param == "sqlite":
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    opened, schemas = store.open_engine, dict[Location, Server]()

    def on_server(location: Location, schema: str = "", *, create: bool = False, hold: str | None = None) -> Database:
        if isinstance(location, Path) and (create or location in schemas):
            if location not in schemas:
                schemas[location] = postgres.fresh()
            location = schemas[location]
        return opened(location, schema, create=create, hold=hold)

    monkeypatch.setattr(store, "open_engine", on_server)
