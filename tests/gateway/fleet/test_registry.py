"""The registry: versions only go up, documents go where they are addressed, failed writes leave nothing behind."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from fugu.host import database
from fugu.host.database import add_functions
from gateway.fleet.entries import DueDocument, FleetError, PolicyReport, RegistryError, Sighting, Target
from gateway.fleet.registry import MOST_REFUSALS, DesiredVersion, Registry
from tests.support.simulated_fleets import SECOND, START, document, names, new_registry


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """Three devices and three documents."""
    registry = new_registry(tmp_path / "fleet.sqlite", names(3), canaries=["d000"], versions=3)
    yield registry
    registry.close()


def test_devices_and_groups(registry: Registry) -> None:
    assert [device.name for device in registry.devices()] == names(3)
    assert [device.name for device in registry.devices("canary")] == ["d000"]
    registry.set_groups("d001", ["yard", "canary", "yard"], actor="bob", time_us=START)
    assert registry.device("d001").groups == {"yard", "canary"}
    assert registry.groups() == {"canary": 2, "yard": 1}
    registry.remove("d000", actor="bob", time_us=START)
    assert registry.groups() == {"canary": 1, "yard": 1}
    for call in (
        lambda: registry.device("d000"),
        lambda: registry.remove("d000", actor="bob", time_us=START),
        lambda: registry.enrol("d001", actor="bob", time_us=START),
        lambda: registry.enrol("no/name", actor="bob", time_us=START),
        lambda: registry.enrol("release", actor="bob", time_us=START),
        lambda: registry.set_groups("d001", ["a,b"], actor="bob", time_us=START),
    ):
        with pytest.raises(FuguError):
            call()
    assert [(event.who, event.what, event.subject) for event in registry.history()][-2:] == [
        ("bob", "groups", "d001"),
        ("bob", "remove", "d000"),
    ]


def test_health_and_the_time_of_the_last_sign_of_life(registry: Registry) -> None:
    birth = Sighting("d000", True, 7, "clock storage", "0.1.0", START)
    assert registry.note_sightings([birth, birth._replace(device="stranger")]) == 1
    member = registry.device("d000")
    assert (member.online, member.last_seen_us, member.outbox_depth) == (True, START, 7)
    assert (member.codes, member.agent_version) == ("clock storage", "0.1.0")
    will = birth._replace(online=False, time_us=START + SECOND)
    registry.note_sightings([will])
    registry.note_sightings([will._replace(time_us=START + 2 * SECOND)])  # the retained will, at the gateway's restart
    member = registry.device("d000")
    assert (member.online, member.last_seen_us) == (False, START + SECOND)
    assert registry.device("d001").last_seen_us == 0


def test_versions_of_documents_only_go_up(registry: Registry) -> None:
    for wrong in (document(2), document(3)):
        registry.add_document(wrong, actor="ann", time_us=START + SECOND)  # the same bytes again
    assert [document.added_us for document in registry.documents()] == [START] * 3
    for changed in (document(3, payload=b"other"), document(3, digest="ffffffff")):
        with pytest.raises(FleetError, match="taken by another document"):
            registry.add_document(changed, actor="ann", time_us=START)
    registry.add_document(document(7), actor="ann", time_us=START)
    with pytest.raises(FleetError, match="version 7 is there already"):
        registry.add_document(document(6), actor="ann", time_us=START)
    assert registry.newest_version() == 7


def test_a_way_back_is_a_new_version_that_names_the_old_one(registry: Registry) -> None:
    registry.add_document(document(4, restores=2), actor="ann", time_us=START)
    assert registry.document(4).restores == 2
    assert registry.history()[-1].detail.endswith("restores 2")
    with pytest.raises(FleetError, match="not older"):
        document(5, restores=5)
    registry.add_document(document(9), actor="ann", time_us=START)
    with pytest.raises(FuguError, match="no document of version 6"):
        registry.add_document(document(10, restores=6), actor="ann", time_us=START)
    assert registry.newest_version() == 9


@pytest.mark.parametrize("fields", [{"version": 0}, {"version": 2**32}, {"digest": "xyz"}, {"payload": b""}])
def test_documents_that_cannot_be_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(FleetError):
        document(**fields)


def test_what_a_device_should_have_never_goes_down(registry: Registry) -> None:
    registry.desire(["d000", "d001"], 2, actor="ann", time_us=START)
    registry.note_published([("d000", 2)])
    registry.desire(["d000"], 2, actor="ann", time_us=START + SECOND)
    assert registry.device("d000").desired == DesiredVersion(2, START, True)
    with pytest.raises(FleetError, match="should have version 2 already"):
        registry.desire(["d002", "d000"], 1, actor="ann", time_us=START)
    assert registry.device("d002").desired is None
    registry.desire(["d000"], 3, actor="ann", time_us=START)
    registry.note_published([("d000", 2)])  # the broker's late answer to the older one
    assert registry.device("d000").desired == DesiredVersion(3, START, False)


def test_documents_go_only_where_they_are_addressed(registry: Registry) -> None:
    registry.add_document(document(4, Target("device", "d001")), actor="ann", time_us=START)
    registry.add_document(document(5, Target("group", "canary")), actor="ann", time_us=START)
    for version, wrong in ((4, "d000"), (5, "d001")):
        with pytest.raises(FleetError, match=f"not for device {wrong}"):
            registry.desire([wrong], version, actor="ann", time_us=START)
    registry.desire(["d001"], 4, actor="ann", time_us=START)
    registry.desire(["d000"], 5, actor="ann", time_us=START)
    assert registry.unpublished(10) == [DueDocument("d000", 5, b"signed 5"), DueDocument("d001", 4, b"signed 4")]


def test_what_the_broker_has_lost_is_published_again_and_the_rest_is_not(registry: Registry) -> None:
    registry.desire(names(3), 2, actor="ann", time_us=START)
    registry.note_published((name, 2) for name in names(3))
    registry.note_reports(
        [PolicyReport("d000", 2, "accepted", "", START), PolicyReport("d001", 2, "refused", "x", START)]
    )
    assert registry.publish_again({"d000": 2, "d001": 2, "d002": 3}) == 0
    assert registry.unpublished(10) == []
    assert registry.publish_again({"d000": 2, "d001": 1}) == 2
    assert registry.unpublished(10) == [DueDocument("d001", 2, b"signed 2"), DueDocument("d002", 2, b"signed 2")]


def test_answers_and_the_refusals_that_stay(registry: Registry) -> None:
    accepted = PolicyReport("d000", 1, "accepted", "", START)
    refused = PolicyReport("d000", 2, "refused", "epsilon above the ceiling", START + SECOND, stale=True)
    assert registry.note_reports([accepted, refused, refused._replace(device="stranger")]) == 1
    registry.note_reports([refused._replace(time_us=START + 9 * SECOND)])  # retained, at the gateway's restart
    expected = refused._replace(in_force=1)
    assert registry.device("d000").reported == expected
    registry.note_reports([PolicyReport("d000", 2, "accepted", "", START + 10 * SECOND)])
    reported = registry.device("d000").reported
    assert (reported.in_force, reported.outcome, reported.stale) == (2, "accepted", False)
    (refusal,) = registry.refusals()
    assert refusal[1:] == (START + SECOND, "d000", 2, "refused", "epsilon above the ceiling")
    assert registry.refusals(refusal.number) == []


def test_what_a_device_says_does_not_fill_the_disk(registry: Registry) -> None:
    for i in range(20):
        registry.note_reports(PolicyReport("d000", 1, "refused", f"{100 * i + k}", START) for k in range(100))
    assert len(registry.refusals(limit=5000)) == MOST_REFUSALS == 1000
    reported = registry.device("d000").reported
    assert reported.reason == "1999"
    registry.note_reports([PolicyReport("d001", 1, "refused", "another device's", START)])
    assert [refusal.device for refusal in registry.refusals(limit=5000)].count("d001") == 1


def test_history_refusals_and_documents_cannot_be_changed(registry: Registry, tmp_path: Path) -> None:
    registry.note_reports([PolicyReport("d000", 1, "refused", "x", START)])
    other = sqlite3.connect(tmp_path / "fleet.sqlite")
    add_functions(other)
    for table in ("history", "refusals", "documents"):
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET rowid=rowid+1000"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                other.execute(statement)


def test_another_fleet_s_file_or_a_later_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="there is no fleet registry"):
        Registry(tmp_path / "none.sqlite")
    new_registry(tmp_path / "fleet.sqlite").close()
    with pytest.raises(RegistryError, match="of fleet home, not of away"):
        Registry(tmp_path / "fleet.sqlite", fleet="away")
    with sqlite3.connect(tmp_path / "fleet.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(RegistryError, match="is of version 99, this program knows 2"):
        Registry(tmp_path / "fleet.sqlite")


def test_a_change_inside_a_snapshot_is_refused_and_not_lost_silently(registry: Registry) -> None:
    with pytest.raises(RegistryError, match="cannot be read"), registry.snapshot():
        registry.enrol("d003", actor="ann", time_us=START)
    registry.enrol("d003", actor="ann", time_us=START)


def test_a_file_that_another_process_is_making_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself does not wait before it changes a file to WAL."""
    other = sqlite3.connect(tmp_path / "fleet.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegistryError, match="locked"):
        Registry(tmp_path / "fleet.sqlite", fleet="home", busy_seconds=0.0)
    pauses: list[float] = []

    def let_go(seconds: float) -> None:
        pauses.append(seconds)
        other.execute("ROLLBACK")

    monkeypatch.setattr(database.time, "sleep", let_go)
    Registry(tmp_path / "fleet.sqlite", fleet="home").close()
    assert len(pauses) == 1
