"""The operator's connection on a real broker: documents get to devices, answers into the registry, whatever happens."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from fugu.contract.errors import StatusCode
from fugu.contract.frames import PolicyStatus, Status
from fugu.contract.topics import parse_topic, topic_of
from fugu.host.files import is_held
from fugu.mqtt import Link
from gateway.config import FleetConfig
from gateway.fleet.registry import Registry, lock_path
from gateway.fleet.rollouts import Rollouts
from gateway.fleet.service import FleetService
from gateway.parts import Message
from tests.support.brokers import Mosquitto, wait_until
from tests.support.containers import held
from tests.support.scenes import loop_of
from tests.support.signing import Keys
from tests.support.simulated_fleets import START, names, new_registry, plan

WHO = {"actor": "ann", "time_us": START}
ONLINE = Status(True, "0.1.0", 3, (), ())


class Devices:
    """Devices on one connection: they note down what they get, and answer when a test lets them."""

    def __init__(self, broker: Mosquitto, name: str = "+", client_id: str = "devices") -> None:
        self.got: list[tuple[str, bytes, bool]] = []
        topic = topic_of("policy_set", "home", name)
        self.link = Link(broker.broker, client_id, (topic,), on_message=self._received)
        self.link.start()
        wait_until(lambda: self.link.subscribed)

    def _received(self, topic: str, payload: bytes, retained: bool) -> None:
        self.got.append((parse_topic(topic).device, payload, retained))


class Operator:
    """A fleet's part in this thread, whose seconds and time are a test's."""

    def __init__(self, path: Path, broker: Mosquitto, refused: Callable[[str, str], None] = lambda *_: None) -> None:
        self.counters = Counter[str]()
        self.now = 0.0
        self.connection = Link(broker.broker, "operator")
        self.gateway: Any = SimpleNamespace(connected=True)
        enrolled: Any = SimpleNamespace(roots=[(None, b"root")], signer=None, has=names(20).__contains__)
        loop = loop_of(
            link=self.gateway,
            counters=self.counters,
            monitor=Mock(note_refusal=refused, clock_ahead=lambda: None),
            seconds=lambda: self.now,
            now_us=lambda: START + int(self.now * 1e6),
        )
        files = FleetConfig(registry=path, roots=(path,))
        self.link = FleetService(loop, files, self.connection, enrolled)
        self.link.start()
        wait_until(lambda: self.connection.connected)

    def seen(self, device: str) -> None:
        """Take a device's status."""
        self.link.heard(Message(topic_of("status", "home", device), ONLINE.encode()))

    def reported(self, device: str, payload: bytes) -> None:
        """Take a device's answer to a document."""
        self.link.heard(Message(topic_of("policy_status", "home", device), payload))

    def pass_seconds(self, count: int = 1) -> None:
        """Let time pass, and work once a second."""
        for _ in range(count):
            self.now += 1.0
            self.link.pump()

    def until(self, condition: Callable[[], object], what: str = "a condition") -> None:
        """Work until a condition holds."""

        def step() -> object:
            self.pass_seconds()
            return condition()

        wait_until(step, what=what)


def accepted(version: int) -> bytes:
    """The answer of a device that follows a document."""
    judged = hashlib.sha256(b"signed %d" % version).digest()[:8]
    return PolicyStatus(version, judged, "", "", 0, False).encode()


def refused(envelope: bytes, *, following: int = 0, reason: str = "ceiling") -> bytes:
    """The answer of a device that refuses one."""
    judged = hashlib.sha256(envelope).digest()[:8]
    return PolicyStatus(following, judged, reason, "epsilon 3 of 2", 1, True).encode()


@pytest.fixture(autouse=True)
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a connection it is listened for two seconds."""
    monkeypatch.setattr("gateway.fleet.service._SETTLE_SECONDS", 2.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Twenty devices, two documents."""
    new_registry(tmp_path / "fleet.sqlite", names(20), versions=2).close()
    return tmp_path / "fleet.sqlite"


@pytest.fixture
def registry(path: Path) -> Iterator[Registry]:
    """The registry, as the command line has it."""
    opened = Registry(path)
    yield opened
    opened.close()


def test_who_sends_documents_holds_the_registry_until_it_stops(broker: Mosquitto, path: Path) -> None:
    assert is_held(lock_path(path)) is False
    operator = Operator(path, broker)
    assert is_held(lock_path(path)) is True
    operator.link.close()
    assert is_held(lock_path(path)) is False


def test_nothing_is_sent_before_devices_could_be_heard_and_never_more_than_so_many_a_second(
    broker: Mosquitto, path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.fleet.service._STEP_DOCUMENTS", 3)
    registry.desire(names(20), 1, **WHO)
    operator = Operator(path, broker)
    operator.pass_seconds(2)
    assert operator.counters["policies_sent"] == 0
    for second in range(1, 10):
        operator.pass_seconds()
        operator.link.pump()  # as often as one likes
        assert operator.counters["policies_sent"] == min(20, 3 * second)
    operator.link.close()


def test_that_a_document_is_sent_is_noted_before_it_is(
    broker: Mosquitto, path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on audiences are charged for what the device may run."""
    registry.desire(["d003", "d007"], 1, **WHO)
    operator = Operator(path, broker)
    publish, noted = operator.connection.publish, []

    def seen(topic: str, payload: bytes, **how: Any) -> int | None:
        if parse_topic(topic).kind == "root":
            return publish(topic, payload, **how)
        noted.append((parse_topic(topic).device, {device for _, device, _ in registry.sent_documents()}))
        return publish(topic, payload, **how)

    monkeypatch.setattr(operator.connection, "publish", seen)
    operator.until(lambda: len(noted) == 2)
    assert all(device in sent for device, sent in noted)
    ((number, *first), _) = registry.sent_documents()
    assert (first, len(registry.sent_documents(number))) == (["d003", 1], 1)
    registry.note_sent([("d003", 1), ("d003", 2)])
    assert [row[1:] for row in registry.sent_documents(number)] == [("d007", 1), ("d003", 2)], "once for each"
    operator.link.close()


def test_while_nobody_listens_no_rollout_goes_on(broker: Mosquitto, path: Path, registry: Registry) -> None:
    rollouts, operator = Rollouts(registry), Operator(path, broker)
    number = rollouts.draft(plan(), **WHO)
    rollouts.start(number, **WHO)
    operator.gateway.connected = False
    operator.pass_seconds(10)
    operator.gateway.connected = True
    assert rollouts.show(number).state.offers == {}
    operator.pass_seconds(2)
    assert rollouts.show(number).state.offers == {}
    operator.pass_seconds(1)
    assert rollouts.show(number).state.offers
    operator.link.close()


def sent_to_three(broker: Mosquitto, path: Path, registry: Registry) -> Operator:
    """An operator whose document the broker has, for three devices."""
    registry.desire(names(3), 1, **WHO)
    operator = Operator(path, broker)
    operator.until(lambda: operator.counters["policies_acknowledged"] == 3)
    return operator


def test_a_broker_that_lost_everything_gets_again_what_it_had_whether_it_was_answered_or_not(
    broker: Mosquitto, path: Path, registry: Registry
) -> None:
    operator = sent_to_three(broker, path, registry)
    operator.reported("d000", accepted(1))
    operator.reported("d001", refused(b"signed 1"))
    operator.pass_seconds()
    broker.stop()
    (broker.folder / "mosquitto.db").unlink()
    wait_until(lambda: not operator.connection.connected)
    operator.pass_seconds()
    broker.start()
    wait_until(lambda: operator.connection.connected)
    operator.until(lambda: operator.counters["policies_acknowledged"] == 6)
    devices = Devices(broker)
    wait_until(lambda: sorted(devices.got) == [(name, b"signed 1", True) for name in names(3)])
    operator.pass_seconds(5)
    assert (operator.counters["policies_sent"], operator.counters["policies_lost"]) == (6, 3)
    operator.link.close()
    devices.link.stop()


def test_a_broker_that_came_back_with_everything_gets_nothing_again(
    broker: Mosquitto, path: Path, registry: Registry
) -> None:
    operator = sent_to_three(broker, path, registry)
    before = operator.link.connections
    broker.restart()
    wait_until(lambda: operator.link.connections > before)
    wait_until(lambda: len(operator.link._held_digests) == 3)
    operator.until(lambda: operator.link._has_compared)
    operator.pass_seconds(5)
    assert (operator.counters["policies_sent"], operator.counters["policies_lost"]) == (3, 0)
    operator.link.close()


def test_a_broker_that_is_put_back_from_a_copy_gets_the_newer_document_again(
    broker: Mosquitto, path: Path, registry: Registry
) -> None:
    """As after a power cut: what it has is what it had when it last ended in order."""
    database = broker.folder / "mosquitto.db"
    operator = Operator(path, broker)
    registry.desire(["d000"], 1, **WHO)
    operator.until(lambda: operator.counters["policies_acknowledged"] == 1)
    broker.restart()
    assert b"signed 1" in database.read_bytes()
    registry.desire(["d000"], 2, **WHO)
    operator.until(lambda: operator.counters["policies_acknowledged"] == 2)
    broker.kill()
    broker.start()
    operator.until(lambda: operator.counters["policies_acknowledged"] == 3)
    assert operator.counters["policies_lost"] == 1
    devices = Devices(broker)
    wait_until(lambda: devices.got == [("d000", b"signed 2", True)])
    operator.link.close()
    devices.link.stop()


def test_what_a_killed_gateway_had_not_sent_its_successor_sends(
    broker: Mosquitto, path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.fleet.service._STEP_DOCUMENTS", 7)
    registry.desire(names(20), 2, **WHO)
    operator = Operator(path, broker)
    operator.pass_seconds(3)
    operator.link.close()
    successor = Operator(path, broker)
    successor.until(lambda: registry.unpublished(1) == [])
    devices = Devices(broker)
    wait_until(lambda: len(devices.got) == 20)
    successor.link.close()
    devices.link.stop()


def test_answers_that_are_none_and_devices_that_are_not_enrolled_are_counted(
    broker: Mosquitto, path: Path, registry: Registry
) -> None:
    refusals: list[tuple[str, str]] = []
    operator = Operator(path, broker, refused=lambda *refusal: refusals.append(refusal))
    for payload in (b"", b"\x0b", b"\xff" * 100, accepted(1) + b"x"):
        operator.reported("d000", payload)
    assert [device for device, _ in refusals] == ["d000"] * 3
    operator.reported("stranger", accepted(1))
    operator.seen("stranger")
    operator.reported("d001", refused(b"an attacker's", following=1, reason="signature"))
    operator.pass_seconds()
    assert operator.counters["fleet_strangers"] == 2
    assert (
        sum(operator.counters[counter] for counter in ("malformed", "wrong_type", "trailing_bytes", "unknown_schema"))
        >= 3
    )
    assert registry.device("d000").reported is None
    (refusal,) = registry.refusals()
    assert (refusal.device, refusal.version, refusal.reason) == ("d001", 0, "signature: epsilon 3 of 2")
    operator.link.close()


def test_a_locked_registry_stops_nothing_and_loses_nothing(
    broker: Mosquitto, path: Path, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.desire(names(2), 1, **WHO)
    operator = Operator(path, broker)
    operator.link._registry.db.execute("PRAGMA busy_timeout=20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    operator.reported("d000", accepted(1))
    operator.seen("d000")
    operator.pass_seconds(3)
    assert operator.counters["fleet_errors"] == 3
    assert caplog.text.count("database is locked") == 1
    other.execute("ROLLBACK")
    operator.until(lambda: operator.counters["policies_acknowledged"] == 2)
    member = registry.device("d000")
    assert member.online
    assert member.reported.in_force == 1
    operator.link.close()


def test_a_broker_that_refuses_the_operator_is_not_asked_again_at_once(tmp_path: Path, path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read fugu/#\ntopic write fugu/2/home/root\ntopic write fugu/2/home/d001/policy/set\n")
    folder = tmp_path / "broker"
    folder.mkdir()
    registry = Registry(path)
    registry.desire(names(2), 1, **WHO)
    with Mosquitto(folder, f"allow_anonymous true\nacl_file {rules}\n") as guarded:
        operator = Operator(path, guarded)
        operator.pass_seconds(3)
        sent = operator.link._in_flight.keys()
        assert len(sent) == 2
        answered = lambda: sent <= {number for number, _ in operator.link._acknowledgements}  # noqa: E731
        wait_until(answered)  # this broker may hang up after a refusal, and is back then
        operator.pass_seconds(50)
        assert (operator.counters["policies_refused"], operator.counters["policies_sent"]) == (1, 2)
        assert [due.device for due in registry.unpublished(5)] == ["d000"]
        operator.link.close()
    registry.close()


def test_a_flood_of_strangers_while_the_registry_is_locked_grows_nothing_without_bound(
    broker: Mosquitto, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.fleet.service._MOST_STRANGERS", 100)
    operator = Operator(path, broker)
    operator.pass_seconds(5)
    wait_until(lambda: operator.connection.subscribed, "the broker's answer")
    wait_until(
        lambda: not any(size for where, size in held(operator.link).items() if where.endswith("_in_flight")),
        "the broker's answer to the root",
    )
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    sizes = []
    for part in range(3):
        for number in range(200 * part, 200 * part + 200):
            operator.seen(f"nobody{number}")
            operator.reported(f"nobody{number}", accepted(1))
        sizes.append(held(operator.link))
    assert sizes[0] == sizes[1] == sizes[2]
    assert operator.counters["fleet_dropped"] == 3 * 2 * 200 - 2 * 100
    holder.execute("ROLLBACK")
    holder.close()
    operator.pass_seconds(2)
    assert operator.counters["fleet_strangers"] == 2 * 100
    after = held(operator.link)
    assert not any(size > sizes[0].get(where, 0) for where, size in after.items() if "counters" not in where)
    operator.link.close()


@pytest.mark.parametrize(
    ("sure", "trusted", "ahead", "signs"),
    [
        (True, False, None, True),
        (True, False, 86_400.0, True),
        (True, False, 86_401.0, False),
        (True, False, -86_401.0, False),
        (False, False, None, False),
        (False, False, 0.0, False),
        (False, True, 0.0, True),
        (False, True, 300 * 86_400.0, False),
    ],
)
@pytest.mark.long
def test_a_time_is_signed_only_by_a_clock_that_may_be_right(
    broker: Mosquitto, tmp_path: Path, sure: bool, trusted: bool, ahead: float | None, signs: bool
) -> None:
    """A time signed a moment too far ahead is never forgotten by any device."""
    new_registry(tmp_path / "fleet.db", ["watch"]).close()
    files = FleetConfig(registry=tmp_path / "fleet.db", roots=(tmp_path / "root",), trusted_clock=trusted)
    keys, link = Keys(), Link(broker.broker, "gateway", (topic_of("time", "home"),))
    heard: list[str] = []
    link.on_message = lambda topic, _payload, _retained: heard.append(topic)
    held: list[tuple[str, ...]] = []
    enrolled: Any = SimpleNamespace(
        roots=[(None, keys.root_envelope())], signer=SimpleNamespace(time=keys.signed_time), has=lambda _device: True
    )
    monitor = SimpleNamespace(hold=lambda _code, names: held.append(tuple(names)), clock_ahead=lambda: ahead)
    operator = Link(broker.broker, "operator")
    service = FleetService(loop_of(link=link, monitor=monitor), files, operator, enrolled, lambda: sure)
    link.start()
    service.start()
    try:
        wait_until(lambda: link.connected)

        def done() -> bool:
            service.pump()
            link.maintain()
            return bool(heard) if signs else ("",) in held

        wait_until(done)
        assert (bool(heard), held[-1]) == (signs, () if signs else ("",))
        doubting = Status(True, "0.1.0", 3, (StatusCode.GATEWAY_CLOCK,), ())
        for status, names in ((doubting, ("watch",)), (ONLINE, ())):
            service.heard(Message(topic_of("status", "home", "watch"), status.encode()))
            service.pump()
            assert held[-1] == (*(() if signs else ("",)), *names)
    finally:
        service.close()
        link.stop()
