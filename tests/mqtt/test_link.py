"""The MQTT connection: fall-back, TLS, passwords, brokers that are not there, callbacks that raise."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame
from fugu.mqtt import Broker, EstimateReading, Link, LinkError, Subscription, SymbolReading
from fugu_cli.demo.processes import start_broker
from tests.support.brokers import PATIENCE, Mosquitto, await_end, wait_until
from tests.support.example_frames import STATE_ESTIMATE, SYMBOL_FRAME
from tests.support.soak import only


def open_link(
    broker: Broker, received: list[tuple[str, bytes]] | None = None, *, name: str = "test", durable: bool = False
) -> Link:
    """A started link that subscribes to everything under `t`."""
    into = [] if received is None else received
    link = Link(
        broker,
        client_id=name,
        durable=durable,
        subscriptions=("t/#",),
        on_message=lambda topic, payload, _retained: into.append((topic, payload)),
    )
    link.start()
    return link


def echo(broker: Broker, *, durable: bool = False) -> Link:
    """Check that a message comes back over a link; returns the link, stopped."""
    received: list[tuple[str, bytes]] = []
    link = open_link(broker, received, durable=durable)

    def works() -> bool:
        link.maintain()
        link.publish("t/x", b"hello")
        return ("t/x", b"hello") in received

    wait_until(works)
    link.stop()
    return link


def test_mqtt_5_where_the_broker_knows_it(broker: Mosquitto) -> None:
    assert echo(Broker(port=broker.port)).protocol == "5"


@pytest.mark.parametrize("durable", only([True], [False, True]))
def test_falls_back_to_3_1_1_with_the_embedded_broker(tmp_path: Path, durable: bool) -> None:
    """It answers a plain CONNECT of MQTT 5 with a refusal, and one that asks for a session with silence."""
    with start_broker("embedded", tmp_path) as (port, name):
        assert "amqtt" in name
        assert echo(Broker(port=port), durable=durable).protocol == "3.1.1"


def test_a_password_file_that_is_gone_when_it_falls_back_is_said_and_tried_again(tmp_path: Path) -> None:
    password_file = tmp_path / "password"
    password_file.write_text("secret\n")
    broker = Broker(port=Mosquitto(tmp_path).port, username="watch", password_file=str(password_file))
    with Link(broker, "watch") as link:
        link._must_fall_back = True
        password_file.unlink()
        for _ in range(2):
            link.maintain()
            assert link.falls_back
            assert link.last_error == "cannot read the password file: No such file or directory"
        password_file.write_text("secret\n")
        link.maintain()
        assert link.protocol == "3.1.1"


def test_a_broker_that_is_not_there_is_an_error_in_words_and_no_exception(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    link = open_link(Broker(port=broker.port, max_backoff=1))
    wait_until(lambda: link.last_error == f"no broker at 127.0.0.1:{broker.port}: Connection refused")
    assert link.publish("t/x", b"lost") is None
    with broker:
        wait_until(lambda: link.connected)
        assert link.last_error == ""
        broker.restart()
        wait_until(lambda: link.connected)
    wait_until(lambda: link.last_error.startswith(("connection lost", "no broker")))


def test_a_message_that_the_broker_does_not_take_is_refused_here_and_does_not_end_the_connection(
    tmp_path: Path,
) -> None:
    """Mosquitto ends the connection; the library would send it again after each reconnection, for ever."""
    with Mosquitto(tmp_path, "allow_anonymous true\nmax_packet_size 10000\n") as small:
        answers: list[tuple[int | None, bool]] = []
        link = Link(small.broker, "large", on_published=lambda *answer: answers.append(answer))
        link.start()
        wait_until(lambda: link.connected)
        sent = [link.publish("a/b", bytes(size)) for size in (9_000, 5_000, 9_000)]
        wait_until(lambda: len(answers) == 3)
        assert sorted(answers, key=lambda answer: sent.index(answer[0])) == [
            (sent[0], False),
            (sent[1], True),
            (sent[2], False),
        ]
        assert link.connected
        assert link.last_error == "broker takes messages of 5904 bytes; one of 9000 is not sent"
        link.stop()


def test_a_callback_that_raises_does_not_end_the_connection(broker: Mosquitto) -> None:
    calls: list[bytes] = []

    def fails(_topic: str, payload: bytes, _retained: bool) -> None:
        calls.append(payload)
        raise RuntimeError("secret " + payload.decode())

    link = Link(Broker(port=broker.port), client_id="raiser", subscriptions=("t/#",), on_message=fails)
    link.start()
    wait_until(lambda: link.connected)

    def again() -> bool:
        link.publish("t/x", b"71.5")
        return len(calls) >= 3

    wait_until(again)
    assert link.last_error == "RuntimeError in a callback"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Mosquitto, Path]]:
    """A broker that wants TLS with a client certificate, and the folder of the certificates."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("127.0.0.1", "watch"):
        certificate = authority.issue_cert(name)
        certificate.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
        certificate.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
    options = f"cafile {tmp_path}/ca.pem\ncertfile {tmp_path}/127.0.0.1.pem\nkeyfile {tmp_path}/127.0.0.1.key\n"
    with Mosquitto(tmp_path, f"{options}require_certificate true\nallow_anonymous true\n") as broker:
        yield broker, tmp_path


def test_tls_with_a_client_certificate(secured: tuple[Mosquitto, Path]) -> None:
    broker, folder = secured
    certificate = {"cert_file": str(folder / "watch.pem"), "key_file": str(folder / "watch.key")}
    echo(replace(Broker(port=broker.port, ca_file=str(folder / "ca.pem")), **certificate))


def test_without_a_certificate_there_is_no_connection(secured: tuple[Mosquitto, Path]) -> None:
    broker, folder = secured
    link = open_link(Broker(port=broker.port, ca_file=str(folder / "ca.pem"), max_backoff=1))
    wait_until(partial(getattr, link, "last_error"))
    assert not link.connected


@pytest.mark.long
def test_who_gives_no_authority_or_the_wrong_one_or_the_wrong_port_is_told_so(
    secured: tuple[Mosquitto, Path], broker: Mosquitto, tmp_path: Path
) -> None:
    tls, folder = secured
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    for address, text in (
        (Broker(port=tls.port), "it never answered: if it speaks TLS there, give the certificate of its authority"),
        (Broker(port=tls.port, ca_file=str(other)), "its certificate is not trusted"),
        (
            Broker(port=broker.port, ca_file=str(folder / "ca.pem")),
            "if it speaks no TLS there, name the port where it does",
        ),
    ):
        link = open_link(replace(address, max_backoff=1))
        wait_until(partial(getattr, link, "last_error"))
        assert text in link.last_error
        link.stop()


@pytest.mark.long
@pytest.mark.parametrize(
    ("since", "days", "host", "remedy"),
    [
        (-800, 400, "127.0.0.1", "see whether this machine's clock is right, and renew it if so"),
        (400, 400, "127.0.0.1", "see whether this machine's clock is right, and renew it if so"),
        (-1, 400, "localhost", "give a name that it has, as host"),
    ],
)
def test_a_certificate_out_of_date_or_of_another_name_has_a_remedy_of_its_own(
    tmp_path: Path, since: int, days: int, host: str, remedy: str
) -> None:
    """An authority would not help; a device without a clock of its own begins in 1970."""
    authority, begin = trustme.CA(), datetime.now(UTC) + timedelta(days=since)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1", not_before=begin, not_after=begin + timedelta(days=days))
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    options = f"certfile {tmp_path}/own.pem\nkeyfile {tmp_path}/own.pem\nallow_anonymous true\n"
    with Mosquitto(tmp_path, options) as broker:
        link = open_link(Broker(host=host, port=broker.port, ca_file=str(tmp_path / "ca.pem"), max_backoff=1))
        wait_until(partial(getattr, link, "last_error"))
        assert link.last_error.endswith(remedy)
        link.stop()


@pytest.mark.long
def test_two_with_one_account_are_told_so(broker: Mosquitto) -> None:
    address = replace(broker.broker, max_backoff=1)
    first = open_link(address, name="watch")
    wait_until(lambda: first.connected)
    open_link(address, name="watch")
    wait_until(lambda: "another program seems to use this account: stop that one" in first.last_error)


def test_a_wrong_password_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "password").write_text("wrong\n")
    with Mosquitto(tmp_path, f"allow_anonymous false\npassword_file {tmp_path}/empty\n") as broker:
        address = Broker(port=broker.port, username="watch", password_file=str(tmp_path / "password"), max_backoff=1)
        link = open_link(address)
        wait_until(lambda: link.last_error == "broker refuses the connection: Not authorized")
        link.stop()


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    for broker in (
        Broker(ca_file=str(tmp_path / "none.pem")),
        Broker(username="watch", password_file=str(tmp_path / "none")),
    ):
        with pytest.raises(LinkError, match="cannot"):
            Link(broker, client_id="x").start()


@pytest.mark.parametrize(
    "values",
    [{"port": 0}, {"port": 65536}, {"keepalive": 4}, {"keepalive": 301}, {"max_backoff": 0}, {"max_backoff": 3601}]
    + [{name: "a\0b"} for name in ("password_file", "ca_file", "cert_file", "key_file")],
    ids=str,
)
def test_values_that_no_connection_can_have(values: dict[str, Any]) -> None:
    with pytest.raises(LinkError, match=next(iter(values))):
        Broker(**values)
    assert Broker(port=65535, keepalive=300, max_backoff=1).beside(Path("x")) == Broker(
        port=65535, keepalive=300, max_backoff=1
    )


@pytest.mark.parametrize(
    "address",
    [
        *("", ":1883", "host:", "host:0", "host:65536", "host:x", "host:²", f"host:{'1' * 5000}"),
        *("a..b:1", ".:1", f"{'x' * 64}:1"),  # which would end the network thread
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(FuguError):
        Broker.parse(address)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("pi", "pi", 1883), ("pi:1884", "pi", 1884), ("[::1]:1885", "::1", 1885), ("[::1]", "::1", 1883)],
)
def test_addresses(address: str, host: str, port: int) -> None:
    broker = Broker.parse(address)
    assert (broker.host, broker.port) == (host, port)
    assert Broker.parse(broker.address) == broker


def test_a_subscription_yields_every_reading_once_and_counts_what_is_wrong(broker: Mosquitto) -> None:
    address = Broker(port=broker.port)
    values: list[object] = []
    topic = "fugu/2/home/watch/symbols/hr"
    with Subscription(address, fleet="home", timeout=PATIENCE) as readings:
        sender = open_link(address, name="sender")
        wait_until(lambda: sender.connected and readings.link.connected)
        ready = threading.Event()
        last = EstimateReading("watch", "hr", STATE_ESTIMATE)

        def read() -> None:
            for reading in readings:
                values.append(reading)
                ready.set()
                if reading == last:
                    return

        reader = threading.Thread(target=read)
        reader.start()

        def arrived() -> bool:
            sender.publish(topic, SymbolFrame(1, -1, 0, b"\1").encode())
            return ready.wait(0.1)

        wait_until(arrived)
        frame = SYMBOL_FRAME.encode()
        for payload in (frame, frame, b"\x01junk", b"\xff"):
            sender.publish(topic, payload)
        sender.publish("fugu/2/home/estimate/watch/hr", STATE_ESTIMATE.encode())
        await_end(reader)
        sender.stop()
    assert values == [
        SymbolReading("watch", "hr", 0, 1),
        *(SymbolReading("watch", "hr", 104 + i, symbol, 64) for i, symbol in enumerate((0, 1, 3, 1, 2))),
        last,
    ]
    assert readings.rejected == {"trailing_bytes": 1, "unknown_schema": 1}


def test_what_nobody_iterates_over_does_not_pile_up() -> None:
    readings = Subscription(Broker(port=9), fleet="home")
    topic, payload = "fugu/2/home/watch/symbols/hr", b"\x01" + bytes(10 << 20)
    for _ in range(8):
        readings._queue_message(topic, payload)
    assert readings.rejected == {"not_taken": 2}
    readings._queue_message(topic, SymbolFrame(1, -1, 0, b"\1").encode())
    assert readings.wait(PATIENCE) == SymbolReading("watch", "hr", 0, 1)
    assert readings.rejected == {"not_taken": 2, "trailing_bytes": 6}
    readings._queue_message(topic, payload)
    assert readings.wait(0.0) is None
    assert readings.rejected == {"not_taken": 2, "trailing_bytes": 7}


def test_the_end_of_a_subscription_ends_the_iteration(broker: Mosquitto) -> None:
    with Subscription(broker.broker, fleet="home") as readings:
        assert readings.wait(0.0) is None
        readings._queue_message("fugu/2/home/watch/symbols/hr", SymbolFrame(1, -1, 0, b"\1\0").encode())
    assert [reading.symbol for reading in readings if isinstance(reading, SymbolReading)] == [1, 0]


def test_descriptions_are_subscribed_to_first_and_releases_with_all_devices_only() -> None:
    topics = Subscription(Broker(), fleet="home").link.subscriptions
    assert topics[0] == "fugu/2/home/description/+/+"
    assert len(topics) == 6
    assert "fugu/2/home/release/+/+" in topics
    few = Subscription(Broker(), fleet="home", device="watch", estimates=False, symbols=False, counts=False)
    assert few.link.subscriptions == ("fugu/2/home/description/watch/+", "fugu/2/home/watch/window/+")


def test_messages_may_be_taken_by_the_turn_and_wait_at_the_broker_while_their_owner_does_not_return(
    broker: Mosquitto,
) -> None:
    turns: list[list[tuple[str, bytes, bool]]] = []
    go = threading.Event()

    def take(messages: list[tuple[str, bytes, bool]]) -> None:
        turns.append(messages)
        go.wait(PATIENCE)
        if len(turns) == 1:
            raise RuntimeError("secret")

    taker = Link(broker.broker, "taker", ("t/#",), on_messages=take)
    sender, answers = open_link(broker.broker), list[int]()
    sender.on_published = lambda mid, _accepted: answers.append(mid)
    taker.start()
    wait_until(lambda: taker.subscribed and sender.subscribed)
    sent = [("t/x", bytes([number]), False) for number in range(200)]
    for topic, payload, _ in sent:
        assert sender.publish(topic, payload) is not None
    wait_until(lambda: len(answers) == len(sent) and turns)
    assert sum(map(len, turns)) < len(sent)
    go.set()
    wait_until(lambda: sum(map(len, turns)) == len(sent))
    assert [message for turn in turns for message in turn] == sent
    assert taker.last_error == "RuntimeError in a callback"
