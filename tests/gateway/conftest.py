"""Tests of what a store promises run twice: with stores in files, and with the same stores in schemas of a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store import store
from gateway.store.engine import Database, DatabaseKind, Lease
from gateway.store.location import Location, Server
from tests.support.postgres import Postgres

ON_BOTH = {"test_forgetting", "test_history", "test_recorder", "test_retention", "test_tracker", "test_windows"}
ONCE = {
    "test_a_batch_of_all_kinds_is_stored_whole_or_not_at_all",
    "test_a_full_disk_keeps_frames_out_of_the_watermark_until_there_is_room",
    "test_a_device_never_forgets_a_frame_that_is_not_stored",
    "test_any_order_repetition_batching_and_restart_ends_in_the_same_bits",
    "test_what_has_gone_is_not_in_the_file_and_its_room_is_used_again",
    "test_the_bytes_of_a_forgotten_device_are_in_no_file_and_those_of_others_are",
    "test_every_table_that_knows_of_a_forgotten_device_is_one_of_those_that_stay",
    "test_a_store_in_use_or_without_the_device_is_refused_and_nothing_is_erased",
    "test_a_store_that_is_not_there_is_not_made",
    "test_somebody_who_reads_the_store_meanwhile_is_named_and_it_may_be_done_again",
}
"""Tests that fill a disk, look into a file, or take long."""
SHOWN = {
    "test_a_conflicting_frame_is_neither_stored_nor_claimed_and_stops_nobody",
    "test_a_frame_that_was_missing_when_its_device_was_forgotten_is_acknowledged_and_forgotten",
    "test_a_new_table_carries_the_belief_over_and_does_not_count_for_earlier_ticks",
    "test_a_window_is_stored_once_and_known_by_its_index",
    "test_each_kind_goes_at_its_own_age_to_the_frame_or_chunk",
    "test_of_a_long_chunk_what_has_been_too_old_for_an_hour_is_cut_off_to_the_tick",
    "test_points_are_told_with_and_without_later_ones",
    "test_points_go_as_symbols_do",
}
"""Tests that show every statement on a server, beside `test_engines`; others are run there by `make soak`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests an engine, unless once is enough."""
    here = metafunc.module.__name__.rpartition(".")[2] in ON_BOTH and metafunc.function.__name__ not in ONCE
    if here and "tmp_path" in metafunc.fixturenames and "broker" not in metafunc.fixturenames:
        marks = [pytest.mark.processes, *([] if metafunc.function.__name__ in SHOWN else [pytest.mark.soak])]
        metafunc.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=marks)], indirect=True)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where stores are that a test names by a path: in that file, or in a schema of its own on a server."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    opened, schemas = store.open_engine, dict[Location, Server]()

    def on_server(
        location: Location, kind: DatabaseKind, *, create: bool = True, lease: Lease | None = None
    ) -> Database:
        if isinstance(location, Path) and (create or location in schemas):
            if location not in schemas:
                schemas[location] = postgres.fresh()
            location = schemas[location]
        return opened(location, kind, create=create, lease=lease)

    monkeypatch.setattr(store, "open_engine", on_server)
    yield
    assert schemas, "this test has no store: once is enough"
