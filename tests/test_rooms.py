"""`make quick ROOM=...` runs the tests of a room and of all rooms above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rooms import ROOMS, above, folders

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_every_room_has_tests(room: str) -> None:
    assert [name for name in folders(room) if not (ROOT / name).exists()] == []


def test_a_folder_of_tests_has_the_name_of_a_room() -> None:
    """Or of the pages, of what is deployed, or of all rooms at once; a part of a room may have one inside."""
    names = {str(file.parent.relative_to(ROOT / "tests")).replace("/", ".") for file in ROOT.glob("tests/**/test_*.py")}
    rooms = {room.removeprefix("fugu.") for room in ROOMS} | {".", "deploy", "docs", "mutants", "system"}
    inside = {"privacy.accountant", "system.faults"}
    assert names - rooms - inside == set()


def test_the_rooms_above_are_those_that_import_it_directly_or_not() -> None:
    assert above("papers") == {"papers"}
    assert above("gateway.releases") >= {"gateway.releases", "gateway.page", "fugu_cli"}
    assert "gateway.cluster" in above("gateway.store")
    assert not {"fugu.contract", "fugu.chains", "edge_agent"} & above("gateway.releases")
    lower = {
        *("fugu.chains", "fugu.core", "fugu.lanes", "fugu.audit.exact", "fugu.audit.exact.chains"),
        "fugu.audit.exact.guesses",
    }
    assert above("fugu.contract") == ROOMS.keys() - lower


def test_what_is_no_room_is_refused() -> None:
    with pytest.raises(SystemExit, match="is no room"):
        above("kitchen")
