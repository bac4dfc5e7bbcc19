"""Words of the page about devices, from the messages that devices, operators and gateways publish."""

from __future__ import annotations

import hashlib

import msgpack
import pytest

from fugu.contract.envelope import Envelope
from fugu.contract.errors import StatusCode
from fugu.contract.frames import PolicyStatus, Status, StreamStatus
from fugu.contract.reports import AlarmCode, Health, HealthAlarm
from fugu.contract.topics import parse_topic, topic_of
from gateway.page import fleet_view
from gateway.page.fleet_view import FleetQuery, FleetView
from tests.support.processes import policy
from tests.support.signing import Keys, policy_document


def take(view: FleetView, topic: str, payload: bytes) -> None:
    view.take(parse_topic(topic), payload, 5.0)


def status(view: FleetView, name: str, *codes: StatusCode, online: bool = True) -> None:
    take(view, topic_of("status", "home", name), Status(online, "1.0", 3, codes, ()).encode())


def conditions(view: FleetView, **asked: object) -> dict[str, str]:
    return {row["name"]: row["condition"] for row in view.page(FleetQuery(**asked))["rows"]}


def test_the_sick_come_first_whatever_makes_them_sick() -> None:
    view = FleetView()
    for name in ("a", "b", "c", "d", "e"):
        status(view, name)
    status(view, "b", StatusCode.CONNECTION_LOST, online=False)
    status(view, "c", StatusCode.STORAGE)
    refused = PolicyStatus(1, b"", "ceiling", "too much", 1, False)
    take(view, topic_of("policy_status", "home", "d"), refused.encode())
    alarm = HealthAlarm(AlarmCode.CONFLICT, 1, 1, ("e",), 0, "look")
    take(view, topic_of("health", "home"), Health(True, alarms=(alarm,)).encode())
    assert list(conditions(view).items()) == [("c", "sick"), ("d", "sick"), ("e", "sick"), ("b", "away"), ("a", "well")]
    assert conditions(view, condition="away") == {"b": "away"}
    assert view.page(FleetQuery())["counts"] == {"sick": 3, "away": 1, "well": 1}
    take(view, topic_of("status", "home", "c"), b"")
    assert "c" not in conditions(view)


def test_a_document_that_was_sent_is_waited_for_until_it_is_judged() -> None:
    view = FleetView()
    status(view, "a")
    sent = Envelope("policy", b"{}", ()).encode()
    take(view, topic_of("policy_set", "home", "a"), sent)
    assert view.page(FleetQuery())["waiting"] == 0  # this account cannot know
    take(view, topic_of("policy_status", "home", "a"), PolicyStatus(1, b"", "", "", 0, False).encode())
    assert view.page(FleetQuery())["waiting"] == 1
    judged = hashlib.sha256(sent).digest()[:8]
    take(view, topic_of("policy_status", "home", "a"), PolicyStatus(2, judged, "", "", 0, False).encode())
    page = view.page(FleetQuery())
    assert (page["waiting"], page["policies"]) == (0, [{"version": 2, "devices": 1}])


def test_a_wave_counts_each_device_once_and_by_the_document_that_it_was_sent() -> None:
    view = FleetView()
    keys, body = Keys(), policy(epoch_us=0, period_us=1_000_000)
    old, new = (keys.signed(policy_document(body, version=version)) for version in (6, 7))
    judged = hashlib.sha256(new).digest()[:8]
    sent = dict.fromkeys(("runs", "refuses", "silent", "late", "away", "unheard"), new) | {"old": old}
    for name, payload in sent.items():
        take(view, topic_of("policy_set", "home", name), payload)
    for name in ("runs", "refuses", "silent", "late", "old", "other"):
        status(view, name)
    status(view, "away", StatusCode.CONNECTION_LOST, online=False)
    statuses = {
        "runs": PolicyStatus(7, judged, "", "", 0, False),
        "refuses": PolicyStatus(6, judged, "ceiling", "too much", 1, False),
        "silent": PolicyStatus(6, b"", "", "", 0, False),
        "late": PolicyStatus(6, bytes(8), "ceiling", "of another document", 1, False),
        "old": PolicyStatus(6, hashlib.sha256(old).digest()[:8], "", "", 0, False),
    }
    for name, online in statuses.items():
        take(view, topic_of("policy_status", "home", name), online.encode())
    page = view.page(FleetQuery())
    assert page["waves"] == [
        {"version": 7, "sent": 6, "runs": 1, "refused": 1, "silent": 2, "away": 2},
        {"version": 6, "sent": 1, "runs": 1, "refused": 0, "silent": 0, "away": 0},
    ]
    assert {row["name"]: row["wanted"] for row in page["rows"]}["silent"] == 7


def test_a_document_without_a_version_is_no_wave() -> None:
    view = FleetView()
    packed = [
        msgpack.packb(body) for body in ([], 1, {"version": True}, {"version": 0}, {"version": "1"}, {"other": 1})
    ]
    for number, document in enumerate([b"{", b"\x91" * 9000, *packed]):
        take(view, topic_of("policy_set", "home", f"d{number}"), Envelope("policy", document, ()).encode())
    assert view.page(FleetQuery())["waves"] == []
    assert view.refused_count == 0


def test_devices_that_an_alarm_does_not_name_are_said_to_be_more() -> None:
    view = FleetView()
    names = tuple(f"d{number}" for number in range(8))
    silent = HealthAlarm(AlarmCode.SILENT, 1, 1, names, 30, "look")
    store = HealthAlarm(AlarmCode.CERTIFICATE, 1, 1, ("ca.pem",), 400, "renew")
    take(view, topic_of("health", "home"), Health(True, alarms=(silent, store)).encode())
    assert view.page(FleetQuery())["unnamed"] == 30
    take(view, topic_of("health", "home"), Health(True).encode())
    assert view.page(FleetQuery())["unnamed"] == 0


def test_pages_and_what_is_no_message() -> None:
    view = FleetView()
    for number in range(120):
        status(view, f"d{number:03}")
    page = view.page(FleetQuery(page=9))
    assert (page["page"], page["pages"], len(page["rows"])) == (2, 3, 20)
    assert conditions(view, search="D11") == {f"d11{i}": "well" for i in range(10)}
    take(view, topic_of("status", "home", "d000"), b"\x03\x00")
    assert view.refused_count == 1


def test_what_devices_say_is_bounded_in_bytes_and_who_says_no_more_than_before_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, empty = FleetView(), (Status(True, "1", 0, (), ()), PolicyStatus(1, b"", "", "", 0, False))
    streams = tuple(StreamStatus(f"{part:064d}", 1, 1) for part in range(64))
    large = Status(True, "1", 0, (), streams)
    monkeypatch.setattr(fleet_view, "MOST_BYTES", 3 * len(large.encode()) + 100)
    for name in "abcde":
        take(view, topic_of("status", "home", name), large.encode())
    heard = [name for name in "abcde" if view.statuses(name)]
    assert (heard, view.refused_count) == (["a", "b", "c"], 2)
    take(view, topic_of("status", "home", "a"), large.encode())
    assert view.refused_count == 2, "as many bytes as before"
    take(view, topic_of("policy_status", "home", "d"), empty[1].encode())
    take(view, topic_of("status", "home", "b"), b"")
    take(view, topic_of("status", "home", "c"), empty[0].encode())
    for name in "de":
        take(view, topic_of("status", "home", name), large.encode())
    take(view, topic_of("status", "home", "c"), large.encode())
    heard = [name for name in "abcde" if "status" in view.statuses(name)]
    assert (heard, view.statuses("c")["status"][0]) == (["a", "c", "d", "e"], empty[0].encode())
