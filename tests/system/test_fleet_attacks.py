"""Attacks on a real device over a real broker with TLS: each is refused with its own reason, and nothing changes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trustme

from fugu.contract.chains import BinaryChains
from fugu.contract.envelope import encode_roots
from fugu.contract.fleet_documents import PolicyDocument
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.pins import pins_of
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.core.trust import unpack
from fugu.mqtt import Broker
from tests.support.brokers import Mosquitto, wait_until
from tests.support.enrolled import Operator
from tests.support.measured import measure_policy
from tests.support.processes import AgentProcess, by_tick, policy
from tests.support.signing import Keys, policy_document
from tests.support.soak import only

PERIOD_US = 20_000


@pytest.fixture
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    lines = f"allow_anonymous true\ncafile {folder}/ca.pem\ncertfile {folder}/server.pem\nkeyfile {folder}/server.pem\n"
    with Mosquitto(folder, lines) as running:
        yield Broker("127.0.0.1", running.port, ca_file=str(folder / "ca.pem"), max_backoff=1)


def enrol(folder: Path, broker: Broker, keys: Keys, **fields: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "enrolment.json").write_text(keys.enrolment(**fields).model_dump_json())
    (folder / "readings.csv").write_text("value\n" + "0\n1\n" * 200)
    sensor = 'sensor = {kind = "replay", file = "readings.csv"}'
    (folder / "agent.toml").write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nenrolment = "enrolment.json"\n'
        'forget = "puback"\nstatus_seconds = 0.2\n'
        f'[broker]\nport = {broker.port}\nca_file = "{broker.ca_file}"\nmax_backoff = 1\n'
        f'[[streams]]\nstream = "hr"\n{sensor}\n[[streams]]\nstream = "place"\n{sensor}\n'
    )
    return folder / "agent.toml"


def document(version: int, *, frame_ticks: int = 10, period_us: int = PERIOD_US, **fields: Any) -> PolicyDocument:
    """A document whose only policy is good."""
    return policy_document(policy(epoch_us=0, period_us=period_us, frame_ticks=frame_ticks), version=version, **fields)


def false_policy() -> Policy:
    """One that claims what is not true."""
    good = policy(epoch_us=0, period_us=PERIOD_US)
    return Policy.model_construct(**{**dict(good), "table": NoiseTable.binary(1_000_000_000, 1_000_000_000)})


def strong_policy() -> Policy:
    """One that is true, and more than the owner accepts."""
    good = policy(epoch_us=0, period_us=PERIOD_US, epsilon=3.0)
    return good.model_copy(update={"guarantee": Guarantee(epsilon=3.0, adversary="universal")})


def flipped(payload: bytes) -> bytes:
    return payload[: len(payload) // 2] + bytes([payload[len(payload) // 2] ^ 4]) + payload[len(payload) // 2 + 1 :]


POLICY = policy(epoch_us=0, period_us=PERIOD_US)
COINS = BinaryChains(q=(0.5, 0.5), r=(0.5, 0.5))
PINS = {"hr": pins_of(POLICY), "x": pins_of(policy(epoch_us=0, period_us=1000)), "place": pins_of(measure_policy(3))}
KEYS = Keys()
THIEF = Keys()
SIGNED = KEYS.signed(document(8))
SOON = int(time.time())
ATTACKS: dict[str, tuple[bytes, str]] = {
    "arbitrary document": (b"\x01{}", "malformed"),
    "wrong role's key": (KEYS.signed(document(8), KEYS.gateway), "wrong_role"),
    "threshold not met": (KEYS.signed(document(8), KEYS.policy[:1]), "threshold"),
    "replayed old version": (KEYS.signed(document(6)), "replayed"),
    "same version with other content": (KEYS.signed(document(7, on_expiry="stop")), "same_version"),
    "other device's policy": (KEYS.signed(document(8, to={"device": "ring"})), "not_addressed"),
    "expired": (KEYS.signed(document(8, valid_until=SOON - 10)), "expired"),
    "not yet valid": (KEYS.signed(document(8, valid_from=SOON + 100_000)), "not_yet_valid"),
    "bit flipped": (flipped(SIGNED), "bad_signature"),
    "false guarantee": (KEYS.signed(policy_document(false_policy(), version=8)), "guarantee"),
    "epsilon above the ceiling": (KEYS.signed(policy_document(strong_policy(), version=8)), "ceiling"),
    "a class of chains that leaves the owner's out": (
        KEYS.signed(policy_document(POLICY.model_copy(update={"chains": COINS}), version=8)),
        "pinned",
    ),
    "another clock for a known stream": (KEYS.signed(document(8, period_us=PERIOD_US * 2)), "outbox"),
}
"""Of each reason one."""


def test_every_attack_is_refused_with_its_reason_and_the_stream_goes_on(secured: Broker, tmp_path: Path) -> None:
    """One device, one attack after the other; `test_trust.py` has all of them without a device."""
    keys = KEYS
    config = enrol(tmp_path / "watch", secured, keys, pins=PINS)
    operator = Operator(secured)
    agent = AgentProcess(config, tmp_path / "agent.log")
    operator.until(lambda status: status.version == 0)
    operator.say(keys.signed(document(7)))
    operator.until(lambda status: status.version == 7)
    wait_until(operator.frames)
    trusted = (tmp_path / "watch" / "trust").read_bytes()
    for number, (name, (payload, reason)) in enumerate(ATTACKS.items(), start=1):
        operator.say(payload)
        status = operator.until(lambda status, number=number: status.refused >= number)
        assert (status.reason, status.version, status.refused) == (reason, 7, number), f"{name}: {status}"
        assert (tmp_path / "watch" / "trust").read_bytes() == trusted, name
    operator.say(encode_roots([THIEF.root_envelope(2)]), topic_of("root", "home"))
    status = operator.until(lambda status: status.refused > len(ATTACKS))
    assert status.reason == "root", "a root that the old one did not sign"
    assert (tmp_path / "watch" / "trust").read_bytes() == trusted
    before = len(operator.frames())
    wait_until(lambda: len(operator.frames()) > before + 2)
    assert {frame.policy_version for frame in operator.frames()} == {7}
    by_tick(operator.frames())
    operator.say(keys.signed(document(9, frame_ticks=5)))
    operator.until(lambda status: status.version == 9)
    wait_until(lambda: operator.frames()[-1].policy_version == 9)
    wait_until(lambda: len(by_tick(operator.frames())) >= 100, "a hundred ticks")
    assert agent.stop() == 0
    ticks = sorted(by_tick(operator.frames()))
    assert len(ticks) >= 100
    versions = [frame.policy_version for frame in sorted(operator.frames(), key=lambda frame: frame.first)]
    assert versions == sorted(versions)
    assert "Traceback" not in (tmp_path / "agent.log").read_text()


@pytest.mark.parametrize("on_expiry", only(["stop"], ["hold", "stop"]))
def test_an_expired_policy_does_as_its_own_text_says_and_is_called_stale(
    secured: Broker, tmp_path: Path, on_expiry: str
) -> None:
    keys = Keys()
    config = enrol(tmp_path / "watch", secured, keys)
    operator = Operator(secured)
    agent = AgentProcess(config, tmp_path / "agent.log")
    operator.until(lambda status: status.version == 0)
    for version in count(1):  # until its end is later than a slow machine's first frame
        until = int(time.time()) + 3 * version
        operator.say(keys.signed(document(version, frame_ticks=5, valid_until=until, on_expiry=on_expiry)))
        operator.until(lambda status, n=version: status.version == n or status.refused == n)
        if operator.now.version != version:
            assert operator.now.reason == "expired"
            continue
        wait_until(lambda: operator.frames() or operator.now.stale)
        if operator.frames():
            break
    assert operator.until(lambda status: status.stale).version == version
    end_tick = until * 1_000_000 // PERIOD_US
    if on_expiry == "hold":
        wait_until(lambda: operator.frames()[-1].last > end_tick + 50)
    assert agent.stop() == 0
    if on_expiry == "stop":
        assert max(by_tick(operator.frames())) < end_tick


def test_a_root_is_rotated_over_the_air(secured: Broker, tmp_path: Path) -> None:
    keys, new = Keys(), Keys()
    config = enrol(tmp_path / "watch", secured, keys)
    operator = Operator(secured)
    agent = AgentProcess(config, tmp_path / "agent.log")
    trust = tmp_path / "watch" / "trust"
    operator.say(keys.signed(document(1)))
    operator.until(lambda status: status.version == 1)
    operator.say(new.signed(document(2)))
    assert operator.until(lambda status: status.refused == 1).reason == "wrong_role", "its keys are not known yet"
    operator.say(encode_roots([new.root_envelope(2, *keys.root[:2])]), topic_of("root", "home"))
    operator.until(lambda status: status.version == 2)
    assert unpack(trust.read_bytes()).version == 2
    operator.say(keys.signed(document(3)), retain=False)
    assert operator.until(lambda status: status.refused == 2).reason == "wrong_role"
    agent.kill()
    agent = AgentProcess(config, tmp_path / "agent.log")
    operator.say(new.signed(document(3)))
    operator.until(lambda status: status.version == 3)
    assert agent.stop() == 0
    with sqlite3.connect(tmp_path / "watch" / "outbox.sqlite") as db:
        assert db.execute("SELECT COUNT(*) FROM pending").fetchone() == (0,)
