"""`make quick ROOM=...` runs the tests of a room and of all rooms above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rooms import ALLOWED, ROOMS, above, folders

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("room", sorted((ALLOWED.keys() | ROOMS.keys()) - {"gateway"}))
def test_every_room_has_tests(room: str) -> None:
    assert [name for name in folders(room) if not (ROOT / name).exists()] == []


def test_the_rooms_above_are_those_that_import_it_directly_or_not() -> None:
    assert above("fugu") == {"fugu"}
    assert above("gateway.release") >= {"gateway.release", "gateway.dashboard", "fugu"}
    assert "gateway.cluster" in above("gateway.database")
    assert not {"contract", "gateway.chain", "edge_agent"} & above("gateway.release")
    assert above("contract") == (ALLOWED.keys() | ROOMS.keys()) - {"gateway"}


def test_what_is_no_room_is_refused() -> None:
    with pytest.raises(SystemExit, match="is no room"):
        above("kitchen")
