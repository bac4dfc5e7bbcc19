"""The connection beside paho-mqtt's own: the same bytes, however they are cut, mean the same."""

from __future__ import annotations

import ast
import gc
import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
import trustme
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

import fugu.mqtt
from fugu.mqtt import Broker, Link, LinkError
from fugu.mqtt.client import PRIVATE_NAMES, Client, private_names_fit
from fugu.mqtt.packets import ClientOptions, Message
from tests.support.brokers import Mosquitto, await_end, wait_until
from tests.support.mqtt_packets import Splitter, remaining_length

FOUR, FIVE = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
VERSIONS = (FOUR, FIVE)
MOST = 70_000
CONNACK = {FOUR: b"\x20\2\0\0", FIVE: b"\x20\3\0\0\0"}


class Peer(mqtt.Client):
    """paho-mqtt itself, on a connection that a test has made."""

    def __init__(
        self, version: MQTTProtocolVersion, messages: list[Message], dial: Callable[[], socket.socket]
    ) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, "test", protocol=version)
        self.on_message = lambda _client, _data, message: messages.append(
            (message.topic, bytes(message.payload), message.retain)
        )
        self._dial = dial

    def _create_socket_connection(self) -> socket.socket:
        return self._dial()


class Scene:
    """A client whose loop the test turns, and the broker's end of its connection."""

    def __init__(self, version: MQTTProtocolVersion, *, plain: bool = False, in_flight: int = 3) -> None:
        self.version = version
        self.messages: list[Message] = []
        self.refusals: list[str] = []
        self.published: list[tuple[int, str]] = []
        self.turns: list[int] = []
        self.broker: socket.socket
        if plain:
            self.client: mqtt.Client = Peer(version, self.messages, self._dialled)
        else:
            options = ClientOptions(
                max_payload=MOST,
                max_in_flight=in_flight,
                on_refused=self.refusals.append,
                on_received=self._received,
                on_answered=lambda *answer: self.published.append(answer),
                dial=self._dialled,
            )
            self.client = Client("test", True if version == FOUR else None, version, options)
        self.client.connect_async("nowhere")
        self.connect()

    def connect(self) -> None:
        """Make a connection, which the broker accepts."""
        if not isinstance(self.client, Peer):
            self.client._thread = threading.current_thread()
            self.client._sockpairR, self.client._sockpairW = socket.socketpair()
            self.client._sockpairR.setblocking(False)
        self.client.reconnect()
        self.turn()
        self.broker.recv(1 << 16)
        self.feed(CONNACK[self.version])

    def _dialled(self) -> socket.socket:
        ours, self.broker = socket.socketpair()
        self.broker.setblocking(False)
        return ours

    def _received(self, messages: list[Message]) -> None:
        self.messages += messages
        self.turns.append(len(messages))

    def turn(self) -> MQTTErrorCode:
        return self.client._loop(0.0)

    def feed(self, data: bytes) -> bool:
        """Let it take bytes; false if it has closed the connection."""
        while data:
            try:
                data = data[self.broker.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                return False
            if not self._taken():
                return False
        return True

    def _taken(self) -> bool:
        for _ in range(1 + (1 << 16)):
            try:
                failed = self.turn()
            except Exception:  # paho-mqtt's thread would end
                assert isinstance(self.client, Peer)
                return False
            if failed or (connection := self.client._sock) is None:
                return False
            try:
                connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return True
        raise AssertionError("it does not read")

    def sent(self) -> bytes:
        received = b""
        while True:
            try:
                more = self.broker.recv(1 << 16)
            except OSError:
                return received
            if not more:
                return received
            received += more


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + remaining_length(len(body)) + body


def published(topic: bytes, payload: bytes, version: MQTTProtocolVersion, mid: int = 0, more: bytes = b"") -> bytes:
    """The body of a publication, at QoS 1 if it has a message id, with properties."""
    identity = mid.to_bytes(2, "big") if mid else b""
    return (
        len(topic).to_bytes(2, "big")
        + topic
        + identity
        + (remaining_length(len(more)) + more if version == FIVE else b"")
        + payload
    )


def some_packets(chance: random.Random, version: MQTTProtocolVersion) -> Iterator[bytes]:
    """Messages of an honest broker to somebody who has subscribed."""
    sizes = (0, 1, 70, 90, 100, 110, 125, 127, 128, 200, 16_300, 16_383, 16_384, 40_000)
    for _ in range(chance.randrange(1, 40)):
        topic = chance.choice([b"t", b"fugu/2/home/watch/symbols/hr", "größe".encode(), b"x" * 200])
        payload = chance.randbytes(chance.choice(sizes))
        mid = chance.randrange(1, 65_536)
        more = chance.choice([b"", b"", b"\x02\0\0\0\x09", b"\x26\0\1a\0\1b"])
        match chance.randrange(8):
            case 0:
                yield b"\xd0\0"
            case 1:
                yield packet(
                    0x40, mid.to_bytes(2, "big") + (chance.choice([b"", b"\0", b"\x10"]) if version == FIVE else b"")
                )
            case 2:
                yield packet(0x30 | chance.randrange(2), published(topic, payload, version, more=more))
            case 3:
                yield packet(0x90, mid.to_bytes(2, "big") + (b"\0" if version == FIVE else b"") + b"\1")
            case _:
                first = 0x32 | chance.choice([0, 1, 8, 9])
                yield packet(first, published(topic, payload, version, mid, more))


def cut(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """The same bytes in parts."""
    at = 0
    while at < len(data):
        size = chance.choice([1, 2, 3, 7, 50, 1_000, 100_000])
        yield data[at : at + size]
        at += size


def taken(data: bytes, scene: Scene, chance: random.Random) -> tuple[list[Message], bytes, bool]:
    """Messages, what was sent back, and whether the connection is still open."""
    is_open = all(scene.feed(part) for part in cut(data, chance))
    with closing(scene.broker):
        return scene.messages, scene.sent() if is_open else b"", is_open


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(8))
def test_an_honest_broker_is_understood_and_answered_as_by_paho_mqtt(seed: int, version: MQTTProtocolVersion) -> None:
    chance = random.Random(seed)
    data = b"".join(some_packets(chance, version))
    assert taken(data, Scene(version), chance) == taken(data, Scene(version, plain=True), chance)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(60))
def test_damaged_packets_mean_the_same_however_they_are_cut_and_no_more_than_to_paho_mqtt(
    seed: int, version: MQTTProtocolVersion
) -> None:
    """Either it goes, which paho-mqtt may do later or by an exception, or there is no difference.

    Properties are not read: where paho-mqtt goes because of them, messages go on.
    """
    chance = random.Random(seed)
    data = bytearray(b"\xd0\0" + b"".join(part for part in some_packets(chance, version) if len(part) < 300))
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 0x30, 0x32, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    whole, parts = Scene(version), Scene(version)
    ours = taken(bytes(data), whole, chance)
    assert taken(bytes(data), parts, chance) == ours
    assert whole.refusals == parts.refusals
    theirs = taken(bytes(data), Scene(version, plain=True), chance)
    if ours[2] and (version == FOUR or theirs[2]):
        assert ours == theirs
    elif ours[2]:
        assert ours[0][: len(theirs[0])] == theirs[0]
    else:
        assert theirs[0][: len(ours[0])] == ours[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(lambda version: packet(0x30, published(b"", b"x", version)), id="an empty topic"),
        pytest.param(
            lambda version: b"\x30\x84\0" + published(b"t", b"x", version)[:4], id="a length of a byte in two"
        ),
        pytest.param(lambda version: b"\x30\x80\x80\x80\x80\1", id="a length of five bytes"),
        pytest.param(lambda version: b"\x30\x80\0", id="nothing at all"),
        pytest.param(lambda version: b"\x30\0", id="nothing"),
        pytest.param(lambda version: b"\xe0\0", id="a DISCONNECT"),
        pytest.param(lambda version: b"\xe0\2\x8e\0", id="a DISCONNECT with a reason"),
        pytest.param(lambda version: packet(0x32, published(b"t", b"x", version)[:-1]), id="no message id"),
        pytest.param(lambda version: packet(0x32, b"\0\1t\0\0\0x"), id="a message id of zero"),
        pytest.param(lambda version: packet(0x40, b"\0\1\0\0"), id="a PUBACK with properties"),
        pytest.param(lambda version: b"\xc0\0", id="a PINGREQ"),
    ],
)
def test_what_is_strange_is_taken_as_by_paho_mqtt(
    strange: Callable[[MQTTProtocolVersion], bytes], version: MQTTProtocolVersion
) -> None:
    """Between two plain publications, all in one read."""
    plain = packet(0x32, published(b"t", b"x", version, 9))
    data = plain + strange(version) + plain
    ours, theirs = Scene(version), Scene(version, plain=True)
    is_open = ours.feed(data)
    assert (is_open, ours.messages) == (theirs.feed(data), theirs.messages)
    if is_open:
        assert sorted(Splitter().feed(ours.sent())) == sorted(Splitter().feed(theirs.sent()))


LONG = b"\x26\x03\xe8" + b"k" * 1_000 + b"\x03\xe8" + b"v" * 1_000


@pytest.mark.parametrize("properties", [b"\x26\0\0\0\0" * 10_000, LONG * 3], ids=["many", "long"])
def test_properties_of_any_size_that_a_client_adds_end_nobodys_connection(broker: Mosquitto, properties: bytes) -> None:
    """Brokers hand them on, as large as a packet may be; at QoS 1 the message would come again with each connection."""
    messages: list[Message] = []
    link = Link(broker.broker, "reader", durable=True, subscriptions=("t/#",), on_messages=messages.extend)
    link.start()
    wait_until(lambda: link.subscribed)
    with closing(socket.create_connection((broker.broker.host, broker.broker.port))) as sender:
        sender.sendall(packet(0x10, b"\0\4MQTT\5\2\0\x3c\0\0\6sender"))
        for number, more in enumerate((properties, b""), start=1):
            sender.sendall(packet(0x32, published(b"t/x", b"%d" % number, FIVE, number, more)))
        wait_until(lambda: len(messages) == 2, "both messages", instead=lambda: (messages, link.last_error))
    assert [payload for _, payload, _ in messages] == [b"1", b"2"]
    assert (link.connected, link.client_count) == (True, 1)


def test_what_was_half_sent_does_not_begin_the_next_connection() -> None:
    scene = Scene(FOUR)
    for _ in range(20):
        scene.client.publish("t", bytes(60_000), qos=0)
    scene.turn()
    assert 0 < len(scene.client._unsent) < 130_000  # paho-mqtt keeps the rest as it is
    scene.broker.close()
    scene.turn()
    scene.client.reconnect()
    scene.turn()
    assert scene.sent()[:1] == b"\x10"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_came_together_is_handed_over_together_and_acknowledged_at_once(version: MQTTProtocolVersion) -> None:
    scene = Scene(version)
    scene.feed(b"".join(packet(0x32, published(b"t", b"x", version, mid)) for mid in range(1, 201)))
    assert scene.turns == [200]
    answers = scene.broker.recv(1 << 16)
    assert answers == b"".join(b"\x40\2" + mid.to_bytes(2, "big") for mid in range(1, 201))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_whole_is_handed_over_when_the_broker_dies_in_the_middle_of_a_packet(
    version: MQTTProtocolVersion,
) -> None:
    scene = Scene(version)
    sent_packet = packet(0x32, published(b"t", b"x", version, 7))
    scene.feed(sent_packet + sent_packet[:-1])
    scene.broker.close()
    assert scene.turn() == MQTTErrorCode.MQTT_ERR_CONN_LOST
    assert scene.messages == [("t", b"x", False)]
    scene.connect()
    scene.feed(sent_packet)
    assert scene.messages == [("t", b"x", False)] * 2
    assert scene.refusals == []


def publications_in(data: bytes) -> list[tuple[int, int]]:
    """First byte and message id of each."""
    publications = []
    for sent in Splitter().feed(data):
        assert sent[2:5] == b"\0\1t"
        publications.append((sent[0], int.from_bytes(sent[5:7], "big")))
    return publications


@pytest.mark.parametrize("version", VERSIONS)
def test_no_more_is_in_flight_than_may_be_and_each_answer_lets_another_go(version: MQTTProtocolVersion) -> None:
    scene = Scene(version, in_flight=2)
    mids = [scene.client.send("t", bytes([number]), retain=number == 1) for number in range(4)]
    scene.turn()
    assert publications_in(scene.sent()) == [(0x32, mids[0]), (0x33, mids[1])]
    scene.feed(packet(0x40, (mids[3] or 0).to_bytes(2, "big")))  # nobody has sent that
    assert scene.published == []
    for mid in mids[:2] * 2:  # twice: the second answers nothing
        scene.feed(packet(0x40, (mid or 0).to_bytes(2, "big")))
    assert scene.published == [(mids[0], ""), (mids[1], "")]
    assert publications_in(scene.sent()) == [(0x32, mids[2]), (0x32, mids[3])]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_not_answered_is_sent_again_as_a_duplicate_and_what_waited_for_the_first_time(
    version: MQTTProtocolVersion,
) -> None:
    scene = Scene(version, in_flight=2)
    mids = [scene.client.send("t", b"x", retain=False) for _ in range(3)]
    scene.turn()
    scene.feed(packet(0x40, (mids[0] or 0).to_bytes(2, "big")))
    scene.sent()
    scene.broker.close()
    scene.turn()
    late = scene.client.send("t", b"late", retain=False)
    scene.connect()
    assert publications_in(scene.sent()) == [(0x3A, mids[1]), (0x3A, mids[2])]
    for mid in mids[1:]:
        scene.feed(packet(0x40, (mid or 0).to_bytes(2, "big")))
    assert publications_in(scene.sent()) == [(0x32, late)]
    assert scene.published == [(mid, "") for mid in mids]


def test_a_thousand_may_wait_and_no_message_id_is_used_twice() -> None:
    scene = Scene(FIVE, in_flight=1)
    first = scene.client.send("t", b"", retain=False)
    scene.client._last_mid = 65_534
    rest = [scene.client.send("t", b"", retain=False) for _ in range(999)]
    assert len({first, *rest}) == 1_000
    assert None not in rest
    assert scene.client.send("t", b"", retain=False) is None


@pytest.mark.parametrize(("code", "why"), [(0x87, "Not authorized"), (0x10, "")])
def test_why_the_broker_refuses_a_publication_is_said(code: int, why: str) -> None:
    scene = Scene(FIVE)
    mid = scene.client.send("t", b"", retain=False) or 0
    scene.turn()
    scene.feed(packet(0x40, mid.to_bytes(2, "big") + bytes([code])))
    assert scene.published == [(mid, why)]


def test_a_broker_that_reads_slowly_gets_everything_in_order() -> None:
    """Partial writes: what a connection holds is far less than what is sent."""
    scene = Scene(FIVE, in_flight=200)
    sizes = [1 + 37 * number % 20_000 for number in range(200)]
    mids = [scene.client.send("t", bytes(size), retain=False) for size in sizes]
    scene.feed(b"".join(packet(0x32, published(b"t", b"x", FIVE, mid)) for mid in range(1, 100)))
    splitter, packets = Splitter(), []
    while len(packets) < len(mids) + 99:
        scene.turn()
        packets += splitter.feed(scene.sent())
    assert [packet for packet in packets if packet[0] == 0x40] == [
        b"\x40\2" + mid.to_bytes(2, "big") for mid in range(1, 100)
    ]
    assert [len(packet) for packet in packets if packet[0] == 0x32] == [
        len(packet(0x32, published(b"t", bytes(size), FIVE, 1))) for size in sizes
    ]
    assert not scene.client.want_write()


def test_leaving_is_said_after_everything_else() -> None:
    scene = Scene(FOUR)
    scene.client.send("t", b"x", retain=False)
    scene.client.disconnect()
    scene.turn()
    assert [sent[0] for sent in Splitter().feed(scene.sent())] == [0x32, 0xE0]
    assert scene.client._sock is None


def test_a_connection_works_where_select_does_not(tmp_path: Path) -> None:
    """File descriptors above 1023, as in a process of many clients."""
    gc.collect()  # what other tests left open is closed now, not below, where it would make room
    files = [(tmp_path / "file").open("wb") for _ in range(1_030)]
    try:
        scene = Scene(FIVE)
        assert scene.broker.fileno() > 1_023
        scene.feed(packet(0x30, published(b"t", b"x", FIVE)))
        assert scene.messages == [("t", b"x", False)]
    finally:
        for file in files:
            file.close()


@contextmanager
def encrypted() -> Iterator[tuple[socket.socket, ssl.SSLSocket]]:
    """A connection with TLS: the client's end, and the broker's."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        accepted: list[ssl.SSLSocket] = []
        thread = threading.Thread(target=lambda: accepted.append(server.wrap_socket(theirs, server_side=True)))
        thread.start()
        wrapped = client.wrap_socket(ours, server_hostname="localhost")
        await_end(thread)
        with wrapped, accepted[0]:
            yield wrapped, accepted[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_many_small_writes_over_tls_are_read_in_one_turn(version: MQTTProtocolVersion) -> None:
    with encrypted() as (ours, theirs):
        scene = Scene(version)
        scene._dialled = lambda: ours
        scene.client._options = replace(scene.client._options, dial=lambda: ours)
        scene.client.reconnect()
        scene.turn()
        theirs.recv(1 << 16)
        theirs.sendall(CONNACK[version])
        scene.turn()
        messages = [(f"t/{mid}", bytes(mid % 40 * 1_000), False) for mid in range(1, 41)]
        for mid, (topic, payload, _) in enumerate(messages, 1):
            theirs.sendall(packet(0x32, published(topic.encode(), payload[:1_000], version, mid)))
        scene.turn()
        assert scene.turns == [40]
        packets = b"".join(packet(0x32, published(b"t", bytes(60_000), version, mid)) for mid in range(1, 10))
        writer = threading.Thread(target=theirs.sendall, args=(packets,))
        writer.start()
        while len(scene.messages) < 49:
            scene.client._loop(1.0)
        await_end(writer)
        answers = b""
        while len(answers) < 49 * 4:
            answers += theirs.recv(1 << 16)


def private_names(file: Path) -> set[str]:
    """The private names of paho-mqtt's client in a file: attributes of any object, and methods."""
    theirs = {name for name in {*dir(mqtt.Client), *vars(mqtt.Client(CallbackAPIVersion.VERSION2))} if name[:2] != "__"}
    nodes = list(ast.walk(ast.parse(file.read_text())))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return {name for name in used & theirs if name.startswith("_")}


def test_each_private_name_of_paho_mqtt_is_listed_and_in_one_module() -> None:
    listed = {inside.partition("(")[0] for inside in PRIVATE_NAMES}
    replaced = {"_create_socket_connection", "_handle_connack", "_loop", "_packet_queue", "_packet_write"}
    replaced |= {"_send_puback", "_sock_close", "_sock_send"}
    shared = vars(Client).keys() & vars(mqtt.Client).keys()
    assert {name for name in shared if not name.startswith("__")} == {*replaced, "loop_read", "want_write"}
    for file in Path(fugu.mqtt.__file__ or "").parent.glob("*.py"):
        if file.name == "client.py":
            assert private_names(file) == listed
            assert len(file.read_text().splitlines()) <= 300


@pytest.mark.parametrize("change", ["a parameter", "a name"])
def test_no_link_starts_with_a_paho_mqtt_of_other_insides(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    assert private_names_fit()
    private_names_fit.cache_clear()
    try:
        if change == "a parameter":
            monkeypatch.setattr(mqtt.Client, "_loop", lambda _self, _timeout, _more: None)
        else:
            monkeypatch.delattr(mqtt.Client, "_mid_generate")
        assert not private_names_fit()
        with pytest.raises(LinkError, match="install paho-mqtt"):
            Link(Broker(port=9), "test").start()
    finally:
        private_names_fit.cache_clear()


class Stubborn(socket.socket):
    """A connection of which nothing can be set, as one that the broker has closed already on some systems."""

    def setsockopt(self, *_: object) -> None:
        raise ValueError("not here")


def test_a_connection_that_takes_no_options_does_not_end_the_network_thread(broker: Mosquitto) -> None:
    def dial() -> socket.socket:
        opened = Stubborn(socket.AF_INET, socket.SOCK_STREAM)
        opened.connect((broker.broker.host, broker.broker.port))
        return opened

    link = Link(broker.broker, "test", subscriptions=("t",), dial=dial)
    link.start()
    wait_until(lambda: link.subscribed)
