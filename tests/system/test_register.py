"""The register of docs/privacy.md against the code: nothing leaves that is not in it, and nothing is in it in vain."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from paho.mqtt.client import topic_matches_sub

from fugu.contract.descriptions import Description
from fugu.contract.envelope import Envelope, Roots
from fugu.contract.errors import FrameError, Reason
from fugu.contract.frames import Committed, PolicyStatus, Status, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.reports import (
    Estimate,
    Health,
    ReleaseFrame,
    StateEstimate,
    ValueEstimate,
    WindowCount,
    decode_estimate,
)
from fugu.contract.topics import Kind, available_topic, discovery_topic, parse_topic, topic_of
from gateway.deployment.mosquitto import Account, access_list
from gateway.fleet.registry import Registry
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.home_assistant import check_document
from tests.support.register import messages, observables, rows
from tests.support.whole_fleet import WholeFleet
from tests.support.wiretap import CANARIES, traces


def reports(kind: type[Estimate]) -> Callable[[bytes], object]:
    """Parses estimates of one kind only."""

    def decode(payload: bytes) -> object:
        if not isinstance(estimate := decode_estimate(payload), kind):
            raise FrameError("another estimate", Reason.WRONG_TYPE)
        return estimate

    return decode


DECODERS: dict[str, Callable[[bytes], object]] = {
    "SymbolFrame": SymbolFrame.decode,
    "MeasureFrame": MeasureFrame.decode,
    "WindowFrame": WindowFrame.decode,
    "Status": Status.decode,
    "PolicyStatus": PolicyStatus.decode,
    "Committed": Committed.decode,
    "Envelope": Envelope.decode,
    "StateEstimate": reports(StateEstimate),
    "ValueEstimate": reports(ValueEstimate),
    "WindowCount": WindowCount.decode,
    "Description": Description.decode,
    "ReleaseFrame": ReleaseFrame.decode,
    "Health": Health.decode,
}
OF_A_GROUP = {"report", "group_document", "group_key", "group_request", "group_answer"}
"""Whose messages `tests/system/test_street.py` has on a broker."""
ROOTS = "root"
MALFORMED = "canary-c05a7e"
"""In messages that a gateway refuses, and says by whom."""


def test_every_topic_of_the_contract_is_in_the_register_and_no_other() -> None:
    assert {row.kind for row in rows()} == set(typing.get_args(Kind))


def test_every_field_of_every_message_is_in_the_register_and_no_other() -> None:
    fields_of: dict[str, set[str]] = {}
    for row in rows():
        (message,) = row.messages
        fields_of.setdefault(message, set()).update(row.fields)
    assert fields_of == messages()


def test_a_field_that_nobody_has_entered_is_noticed() -> None:
    """The test above can fail: the fields that it sees are those that the contract encodes."""
    assert messages()["SymbolFrame"] >= {"symbols", "shift", "padding"}
    assert messages()["Signature"] == {"key", "signature"}
    assert {"Staircase", "Gap", "Released", "StreamStatus"} <= set(messages())


def test_every_row_says_what_it_may_depend_on_and_why_that_is_no_reading() -> None:
    for row in rows():
        assert row.depends
        assert row.covered
        assert row.fields
        if "readings" in row.depends:
            assert "no reading" not in row.covered
    assert all(all(row) for row in observables())
    covered = {field for row in rows() if row.depends == "readings" for field in row.fields}
    assert covered == {"symbols", "released", "point", "counts", "parts"}


def test_readers_are_those_of_the_access_list() -> None:
    accounts = [Account(name=name, role=role) for name, role in (("gw", "gateway"), ("op", "operator"), ("si", "site"))]
    accounts += [Account(name="sh", role="shard"), Account(name="he", role="helper")]
    accounts.append(Account(name="reader", role="reader", audiences=("public",), epsilon=1.0, adversary="informed"))
    granted: dict[str, set[str]] = {
        "gw": set(),
        "op": set(),
        "si": set(),
        "sh": set(),
        "he": set(),
        "reader": set(),
        "device": set(),
    }
    user = "device"
    for line in access_list("home", accounts).splitlines():
        match line.split():
            case ["user", name]:
                user = name
            case ["pattern", "read", topic]:
                granted["device"].add(topic.replace("%u", "watch"))
            case ["topic", "read", topic]:
                granted[user].add(topic)
    assert granted.pop("sh") < granted["gw"]
    names = {"gw": "gateway", "op": "operator", "si": "site", "he": "helper", "reader": "audience", "device": "device"}
    for row in rows():
        may = {names[user] for user, topics in granted.items() if any(topic_matches_sub(t, row.topic) for t in topics)}
        assert row.readers == may, row.topic


def test_what_running_programs_publish_is_what_the_register_names_and_holds_no_reading(
    broker: Mosquitto, tmp_path: Path
) -> None:
    """Gateway, operator and an enrolled device with symbols, windows and points: every row is somebody's message.

    Neither in one of them nor in any file of device, gateway or broker is a reading.
    """
    places = ("c0", "canary-7f3a9c", "71.53194726", "", "c5")
    readings = [(value, places[i % len(places)]) for i, value in enumerate(CANARIES * 5)]
    named = {row.kind for row in rows()} - OF_A_GROUP
    with WholeFleet(broker, tmp_path, readings) as fleet:
        wait_until(lambda: fleet.heard.kinds() >= named - {"stop"}, "a message of every topic but one")
        wait_until(lambda: messages_seen(fleet.heard.messages) >= set(DECODERS), "every message")
        sent = fleet.malform(MALFORMED.encode())
        wait_until(lambda: fleet.alarm("malformed") == ("watch",), "an alarm of what is malformed")
        fleet.contradict()
        wait_until(lambda: "stop" in fleet.heard.kinds(), "a stop")
        with urlopen(f"http://127.0.0.1:{fleet.metrics}/metrics", timeout=PATIENCE) as answer:
            metrics = answer.read()
        assert b"fugu_gateway_frames_stored_total" in metrics
        assert not any(b'"%b"' % name in metrics for name in (b"watch", b"hr", b"home", b"active"))
        assert fleet.agent.stop() == 0
        during = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
        messages_seen([message for message in fleet.heard.messages if message not in sent])
        assert fleet.heard.kinds() == named
        topics = {topic for topic, _ in fleet.heard.messages if not topic.startswith("fugu/")}
        assert topics == {
            *(discovery_topic("home", name) for name in ("watch", "health")),
            available_topic("home", "watch"),
        }
        with closing(Registry(tmp_path / "fleet.sqlite")) as registry:
            registry.remove("watch", actor="me", time_us=2)
        gone = {(topic_of("description", "home", "watch", stream), b"") for stream in ("hr", "place")}
        wait_until(lambda: gone <= set(fleet.heard.messages), "no description of a device that has left")
        fleet.gateway.process.terminate()
        assert fleet.gateway.process.wait(PATIENCE) == 0
        heard = [message for message in fleet.heard.messages if message not in sent]
    assert len(heard) == len(fleet.heard.messages) - len(sent)
    broker.stop()
    everywhere = [*heard, *during.items(), ("metrics", metrics)]
    for folder in (tmp_path, broker.folder):
        everywhere += [(str(file), file.read_bytes()) for file in folder.rglob("*") if file.is_file()]
    names = {Path(place).name for place, _ in everywhere}
    assert names >= {"outbox.sqlite", "trust", "gateway.sqlite", "fleet.sqlite", "mosquitto.db", "mosquitto.log"}
    assert any("ledger" in name for name in names), names
    for canary in (*CANARIES, MALFORMED):
        for trace in traces(canary):
            with_trace = [place for place, data in everywhere if trace in data and not place.endswith("readings.csv")]
            assert with_trace == [], f"{canary} as {trace!r} in {with_trace}"
    assert any(traces(CANARIES[0])[0] in data for _, data in everywhere), "the readings themselves are found"


def messages_seen(heard: Sequence[tuple[str, bytes]]) -> set[str]:
    """The messages that were published; fails if one is none of those that the register names for its topic."""
    named: dict[str, set[str]] = {}
    for row in rows():
        named.setdefault(row.kind, set()).update(row.messages)
    matching = set()
    for topic, payload in list(heard):
        if topic.endswith("/available"):
            assert payload in (b"online", b"offline", b"")
            continue
        if not topic.startswith("fugu/"):
            check_document(json.loads(payload))
            continue
        kind = parse_topic(topic).kind
        if kind == ROOTS:
            (payload,) = Roots.decode(payload).roots
        fitting = {message for message in named[kind] & set(DECODERS) if decodes(message, payload)}
        assert len(fitting) == 1, f"{topic}: {payload[:1].hex()} is {fitting or 'no message of the register'}"
        matching |= fitting
    return matching


def decodes(message: str, payload: bytes) -> bool:
    """True if a payload is one of these messages."""
    try:
        DECODERS[message](payload)
    except FrameError:
        return False
    return True


def test_a_message_that_is_not_of_its_topic_is_noticed() -> None:
    """The test above can fail."""
    with pytest.raises(AssertionError, match="no message of the register"):
        messages_seen([("fugu/2/home/watch/symbols/hr", b"\x03\x90")])
