"""A fleet end to end: registry, gateway and an enrolled device on a real broker; everything that counts is signed."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from edge_agent.outbox import Outbox
from edge_agent.policy_history import DrawnTicks
from fugu.contract.descriptions import Description
from fugu.contract.discretisers import Categories
from fugu.contract.frames import Status
from fugu.contract.noise_table import NoiseTable
from fugu.contract.reports import AlarmCode, Health
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.mqtt import Link
from gateway.fleet.registry import Registry
from tests.support.brokers import Mosquitto, wait_until
from tests.support.enrolled import Gateway, add, write_gateway_files
from tests.support.measured import measure_policy
from tests.support.processes import AgentProcess, Recorder, policy, troubles
from tests.support.signing import REPLAY, Keys, policy_document
from tests.support.whole_fleet import Everything

PERIOD_US = 20_000


def test_policies_reach_a_device_and_it_answers(broker: Mosquitto, tmp_path: Path) -> None:
    keys = Keys()
    write_gateway_files(tmp_path, keys)
    place = '{kind = "replay", file = "readings.csv", column = "place"}'
    config = keys.enrolled(
        tmp_path,
        "status_seconds = 0.2",
        port=broker.port,
        sensor=f'{REPLAY}\n[[streams]]\nstream = "place"\nsensor = {place}',
        rows="value,place\n0,c0\n1,c1\n0,c1\n",
        measurement_ceiling=1.0,
        fresh_seconds=3600,
    )
    registry = Registry(tmp_path / "fleet.sqlite", fleet="home")
    registry.enrol("watch", ["wrists"], actor="me", time_us=1)
    symbols = policy(epoch_us=0, period_us=PERIOD_US)
    add(registry, keys, policy_document(symbols, version=1))
    described = Recorder(broker.broker, topic_of("description", "home", "watch", "hr"))
    gateway = Gateway(tmp_path, broker.port)
    agent = AgentProcess(config, tmp_path / "agent.log")
    wait_until(lambda: (r := registry.device("watch").reported) and r.in_force == 1, "version 1")
    assert registry.device("watch").online
    measured = measure_policy(
        3,
        version=2,
        start=4,
        tables=False,
        discretiser=Categories(categories={f"c{x}": x for x in range(9)}, states=tuple(f"c{x}" for x in range(9))),
        clock={"epoch_us": time.time_ns() // 1000, "period_us": PERIOD_US},
    )
    add(registry, keys, policy_document(symbols, measured, version=2))
    wait_until(lambda: (r := registry.device("watch").reported) and r.in_force == 2, "version 2")
    wait_until(
        lambda: any(point is not None and point.table > 0 for frame in gateway.points() for point in frame.released),
        "a point from a table that the gateway has signed",
    )
    assert {frame.policy_version for frame in gateway.points()} == {2}
    wait_until(lambda: gateway.versions() == {1, 2})
    too_much = symbols.model_copy(update={"guarantee": symbols.guarantee.model_copy(update={"epsilon": 2.0})})
    add(registry, keys, policy_document(too_much, version=3))
    wait_until(lambda: registry.refusals(), "a refusal")
    assert "ceiling" in registry.refusals()[0].reason
    device = registry.device("watch")
    assert (device.reported.in_force, device.reported.stale) == (2, False)
    late = Recorder(broker.broker, topic_of("description", "home", "watch", "+"))
    wait_until(lambda: len(late.payloads) == 2, "descriptions for a late subscriber")
    late.link.stop()
    assert {Description.decode(payload).version for payload in late.payloads} == {2}
    descriptions = [Description.decode(payload) for payload in described.payloads]
    assert (descriptions[-1].version, descriptions[-1].guarantee.epsilon) == (2, symbols.guarantee.epsilon)
    assert max(description.version for description in descriptions) == 2, "the refused policy was never described"
    assert agent.stop() == 0
    wait_until(lambda: not registry.device("watch").online)
    assert gateway.stop() == 0
    (trouble,) = troubles(tmp_path / "agent.log")
    assert " WARNING a policy is refused (ceiling): " in trouble


def test_a_gateway_refuses_to_start_with_what_it_cannot_use(broker: Mosquitto, tmp_path: Path) -> None:
    keys, others = Keys(), Keys()
    (tmp_path / "passphrase").write_text("correct horse\n")
    secret = others.gateway[0].private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"correct horse")
    )
    (tmp_path / "gateway.key").write_bytes(secret)
    (tmp_path / "root.envelope").write_bytes(keys.root_envelope())

    def output() -> str:
        gateway = Gateway(tmp_path, broker.port)
        assert gateway.ended() == 1
        return gateway.log.splitlines()[-1]

    assert "that others may read" in output()
    for name in ("passphrase", "gateway.key"):
        (tmp_path / name).chmod(0o600)
    assert "is not a gateway key of root version 1" in output()
    (tmp_path / "passphrase").write_text("wrong\n")
    assert "the passphrase is not the one of this key" in output()
    (tmp_path / "gateway.key").write_bytes(b"?")
    (tmp_path / "root.envelope").write_bytes(b"?")
    assert "root.envelope" in output()


def test_an_enrolled_device_that_has_no_policy_yet_is_no_stranger(broker: Mosquitto, tmp_path: Path) -> None:
    """In the order of docs/fleet.md: enrolled, started, and only then sent a document."""
    write_gateway_files(tmp_path, Keys())
    with closing(Registry(tmp_path / "fleet.sqlite", fleet="home")) as registry:
        registry.enrol("watch", ["wrists"], actor="me", time_us=1)
    heard = Everything(broker)
    gateway = Gateway(tmp_path, broker.port)
    link = Link(broker.broker, client_id="devices")
    link.start()

    def alarms() -> list[tuple[AlarmCode, tuple[str, ...]]]:
        healths = heard.of("health", Health.decode)
        return [(alarm.code, alarm.names) for alarm in healths[-1].alarms] if healths and healths[-1].online else []

    wait_until(lambda: heard.of("health", Health.decode), "a gateway")
    birth = Status(True, "1", 0, (), ()).encode()
    for device in ("watch", "stranger"):
        wait_until(lambda name=device: link.publish(topic_of("status", "home", name), birth, retain=True) is not None)
    wait_until(alarms, "an alarm")
    assert alarms() == [(AlarmCode.UNKNOWN_DEVICE, ("stranger",))]
    assert gateway.process.poll() is None


@pytest.mark.long
def test_a_push_that_the_device_refuses_ends_no_release_and_one_that_it_accepts_is_dated(
    broker: Mosquitto, tmp_path: Path
) -> None:
    """Its counts would take all that the audience is allowed; they never ran, so nothing is charged for them."""
    keys = Keys()
    write_gateway_files(tmp_path, keys)
    config = keys.enrolled(tmp_path, "status_seconds = 0.2", port=broker.port, ceiling=20.0, fresh_seconds=3600)
    (tmp_path / "releases.toml").write_text(
        '[audiences.public]\nepsilon = 1.0\nadversary = "informed"\n'
        '[[releases]]\nname = "active"\nstream = "hr"\nquery = "count"\nstates = ["high"]\n'
        'length = 20\naudience = "public"\nshare = 1.0\n'
    )
    counted = Window(name="ten", length=10, stride=10, states=("high",), scale="200")
    first = policy(epoch_us=0, period_us=PERIOD_US, windows=(counted,), epsilon=19.0)
    loud = policy(epoch_us=0, period_us=PERIOD_US, windows=(counted.model_copy(update={"scale": "1/2"}),), epsilon=40.0)
    quieter = first.model_copy(update={"table": NoiseTable.binary(2_100_000_000, 2_100_000_000)})
    registry = Registry(tmp_path / "fleet.sqlite", fleet="home")
    registry.enrol("watch", ["wrists"], actor="me", time_us=1)
    add(registry, keys, policy_document(first, version=1))
    released = Recorder(broker.broker, topic_of("release", "home", "public", "active"))
    described = Recorder(broker.broker, topic_of("description", "home", "watch", "hr"))
    gateway = Gateway(tmp_path, broker.port, releases="releases.toml")
    agent = AgentProcess(config, tmp_path / "agent.log")

    def newest() -> Description:
        return Description.decode(described.payloads[-1])

    def more_are_released() -> None:
        count = len(set(released.payloads))
        wait_until(lambda: len(set(released.payloads)) >= count + 2, "releases")

    wait_until(lambda: (r := registry.device("watch").reported) and r.in_force == 1, "version 1")
    more_are_released()
    add(registry, keys, policy_document(loud, version=2))
    wait_until(lambda: registry.refusals(), "a refusal")
    assert "ceiling" in registry.refusals()[0].reason
    more_are_released()
    assert newest().guarantee.holds_always, "a version that never ran changes no promise"
    add(registry, keys, policy_document(quieter, version=3))
    wait_until(lambda: (r := registry.device("watch").reported) and r.in_force == 3, "version 3")
    more_are_released()
    wait_until(lambda: newest().version == 3 and newest().guarantee.since is not None, "a date")
    assert agent.stop() == 0
    drawn = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    rows = DrawnTicks(drawn._db, "hr").document()
    drawn.close()
    assert [edition.version for edition in rows["editions"].values()] == [1, 3], "the device says the same"
    begin = next(row[0] for row in rows["rows"] if rows["editions"][row[2]].version == 3)
    since = newest().guarantee.since
    assert since >= begin
    assert gateway.stop() == 0
    (trouble,) = troubles(tmp_path / "agent.log")
    assert " WARNING a policy is refused (ceiling): " in trouble
