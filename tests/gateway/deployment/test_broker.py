"""Attacks on a real Mosquitto with the shipped configuration: by strangers, devices, subscribers and the gateway."""

from __future__ import annotations

import shutil
import socket
import ssl
from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest

from fugu.contract.topics import available_topic, discovery_topic, topic_of
from fugu.mqtt import Broker
from fugu_cli.main import main
from gateway.deployment.doctor import mosquitto_version
from gateway.deployment.mosquitto import MAX_KEEP_ALIVE
from gateway.health.shared_subscriptions import SharedSubscriptions
from tests.support.brokers import wait_until
from tests.support.shipped import DENIED, Client, Shipped

SYMBOLS, WINDOWS, REPORT = (topic_of(kind, "home", "watch", "hr") for kind in ("symbols", "window", "report"))
STATUS, POLICY, REPORTED = (topic_of(kind, "home", "watch") for kind in ("status", "policy_set", "policy_status"))
TOLD = {
    topic_of("committed", "home", "watch"),
    topic_of("stop", "home", "watch"),
    topic_of("table", "home", "watch", "hr"),
}
REPORTS = {topic_of(kind, "home", "watch", "hr") for kind in ("estimate", "count", "description")}
HEALTH, TIME, ROOT = (topic_of(kind, "home") for kind in ("health", "time", "root"))
RELEASE = topic_of("release", "home", "public", "active")
RELEASES = {RELEASE, topic_of("release", "home", "site", "active")}
DISCOVERY = {discovery_topic("home", "watch"), available_topic("home", "watch")}
DOCUMENT, KEY, REQUEST, ANSWER = (
    topic_of(kind, "home", "street") for kind in ("group_document", "group_key", "group_request", "group_answer")
)
SAID = {
    **dict.fromkeys((SYMBOLS, WINDOWS, REPORT, STATUS, REPORTED), "watch"),
    **dict.fromkeys((*TOLD, *REPORTS, *RELEASES, *DISCOVERY, HEALTH, REQUEST, TIME), "gateway"),
    **dict.fromkeys((POLICY, ROOT), "gateway-rollout"),
    **dict.fromkeys((DOCUMENT, KEY, ANSWER), "helper"),
}
"""Every kind of message, and an account that publishes it."""
FRAME = 74
EVERYTHING = ("#", "fugu/#", "fugu/2/home/+/symbols/+", "fugu/2/home/group/#", "$SYS/#", "$share/group/fugu/#")
EVERYBODY = {TIME, ROOT, DOCUMENT, KEY}
"""Signed and no secret: the lines for devices are patterns, which the broker applies to all accounts."""


def delivered(fleet: Shipped, name: str) -> set[str]:
    """Topics that an account gets when every kind of message is published while it is subscribed to all of them.

    A subscription itself is granted to everybody by Mosquitto; its access list counts when a message is delivered. The
    last message published is one that the account may read, so that nothing can still be on its way.
    """
    writer, last = ("watch", STATUS) if name == "gateway" else ("gateway", TIME)
    with ExitStack() as open_clients:
        reader = open_clients.enter_context(fleet.client(name))
        writers = {other: open_clients.enter_context(fleet.client(other)) for other in {*SAID.values()} - {name}}
        for wanted in (*EVERYTHING, *SAID):
            reader.subscribe(wanted)
        for topic, other in SAID.items():
            assert other == name or writers[other].publish(topic) == 0
        writers[writer].publish(last, b"end")
        reader.wait_for(last, b"end")
        return {topic for topic, payload in reader.received if payload != b"end"}


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("watch", {POLICY, *TOLD}),
        ("ring", set()),
        ("public", {RELEASE}),
        ("site", {SYMBOLS, WINDOWS, STATUS, *REPORTS, HEALTH, *RELEASES}),
        ("gateway", {SYMBOLS, WINDOWS, REPORT, STATUS, REPORTED, ANSWER, *SharedSubscriptions.topics}),
        ("gateway-1", {SYMBOLS, WINDOWS, REPORT, STATUS}),
        ("operator", {POLICY, REPORTED, STATUS, HEALTH}),
        ("ha", {*REPORTS, HEALTH, *DISCOVERY}),
        ("helper", {REQUEST}),
    ],
)
def test_an_account_reads_what_it_has_to_and_nothing_else(fleet: Shipped, name: str, topics: set[str]) -> None:
    """The site no policies, the gateway neither, an operator no symbols, a device nothing of another one."""
    assert delivered(fleet, name) == topics | {topic for topic in EVERYBODY if SAID[topic] != name}


def test_a_device_cannot_leave_a_last_will_as_another(fleet: Shipped) -> None:
    topic = topic_of("status", "home", "watch")
    with fleet.client("site") as site:
        site.subscribe("fugu/2/home/+/status")
        with fleet.client("ring", will=topic) as ring:
            refused = ring.reason != 0
            if not refused:
                ring.drop()
        with fleet.client("ring", will=topic_of("status", "home", "ring")) as ring:
            assert ring.reason == 0
            ring.drop()
        site.wait_for(topic_of("status", "home", "ring"), b"will")
        assert (topic, b"will") not in site.received


@pytest.mark.parametrize("version", [mqtt.MQTTv5, mqtt.MQTTv311])
def test_an_anonymous_client_can_do_nothing(fleet: Shipped, version: int) -> None:
    stranger = Broker("127.0.0.1", fleet.port, ca_file=str(fleet.root / "watch" / "ca.pem"))
    if fleet.mutual:
        assert refused(stranger, stranger.tls_context())
        return
    with Client(stranger, version=version) as client:
        assert client.reason == DENIED
        assert client.received == []


def test_without_tls_there_is_no_answer(fleet: Shipped) -> None:
    assert refused(Broker("127.0.0.1", fleet.port), None)


def test_a_wrong_password_or_a_name_with_the_password_of_another_is_refused(fleet: Shipped) -> None:
    if fleet.mutual:
        pytest.skip("there are no passwords")
    for username, of in (("watch", "ring"), ("watch\x00", "watch"), ("+", "watch"), ("nobody", "watch")):
        files = {"ca_file": str(fleet.root / of / "ca.pem"), "password_file": str(fleet.root / of / "password")}
        try:
            with Client(Broker("127.0.0.1", fleet.port, username=username, **files)) as client:
                assert client.reason != 0
        except OSError:  # closed at once
            continue


def test_a_client_of_another_authority_is_refused_by_the_broker(fleet: Shipped, tmp_path: Path) -> None:
    if not fleet.mutual:
        pytest.skip("there are no certificates of clients")
    other = Shipped(tmp_path, mutual=True)
    other.add("device", "watch")
    context = other.address("watch").tls_context()
    context.load_verify_locations(fleet.root / "watch" / "ca.pem")
    assert refused(fleet.address("watch"), context)


def test_the_name_comes_from_the_certificate_and_not_from_the_client(fleet: Shipped) -> None:
    if not fleet.mutual:
        pytest.skip("there are no certificates of clients")
    (fleet.root / "guess").write_text("guess\n")
    files = {"ca_file": fleet.root / "ring" / "ca.pem", "cert_file": fleet.root / "ring" / "client.pem"}
    files |= {"key_file": fleet.root / "ring" / "client.key", "password_file": fleet.root / "guess"}
    texts = {key: str(value) for key, value in files.items()}
    with Client(Broker("127.0.0.1", fleet.port, username="watch", **texts)) as ring:
        assert ring.publish(topic_of("symbols", "home", "ring", "hr")) == 0
        assert ring.publish(SYMBOLS) == DENIED


def test_a_broker_of_another_authority_is_refused_by_the_client(fleet: Shipped, tmp_path: Path) -> None:
    other = Shipped(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError), Client(other_trust(fleet, other.folder / "ca.pem")):
        pass


def test_the_certificate_of_a_device_cannot_stand_in_for_the_broker(fleet: Shipped, tmp_path: Path) -> None:
    """A stolen device with a false broker: its certificate is from the right authority, for another purpose."""
    if not fleet.mutual:
        pytest.skip("there are no certificates of clients")
    false = Shipped(tmp_path)
    for name, stolen in (("server.pem", "client.pem"), ("server.key", "client.key")):
        shutil.copy(fleet.root / "ring" / stolen, false.folder / name)
    with (
        false,
        pytest.raises(ssl.SSLCertVerificationError),
        Client(Broker("127.0.0.1", false.port, ca_file=str(fleet.root / "watch" / "ca.pem"))),
    ):
        pass


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_below_1_3_is_refused(fleet: Shipped, version: ssl.TLSVersion) -> None:
    address = fleet.address("watch")
    context = address.tls_context()
    context.maximum_version = version
    assert refused(address, context) == (version == ssl.TLSVersion.TLSv1_2)


def test_nobody_ends_the_connection_of_another_by_its_client_id(fleet: Shipped) -> None:
    with fleet.client("gateway", client_id="gateway-home") as gateway:
        for claimed in ("gateway-home", "gateway"):
            with fleet.client("public", client_id=claimed) as thief:
                thief.subscribe("fugu/#")
        assert gateway.publish(RELEASE) == 0
        assert gateway.lost == 0


def test_a_removed_account_can_do_nothing(tmp_path: Path, fleet: Shipped) -> None:
    broker = Shipped(tmp_path, mutual=fleet.mutual)
    for name in ("watch", "ring"):
        broker.add("device", name)
    assert main(["deploy", "remove", "--broker", str(broker.folder), "ring"]) == 0
    with broker:
        with broker.client("watch") as watch:
            assert watch.publish(SYMBOLS) == 0
        with broker.client("ring") as ring:
            assert ring.reason == (0 if fleet.mutual else DENIED)
            assert ring.reason != 0 or ring.publish(topic_of("symbols", "home", "ring", "hr")) == DENIED


def test_the_database_is_written_once_and_not_with_every_message(tmp_path: Path) -> None:
    """Messages that wait for a gateway that is away cost at most four times their size, and nothing before."""
    broker = Shipped(tmp_path)
    broker.add("device", "watch")
    broker.add("gateway", "gateway")
    database, sizes = broker.folder / "mosquitto.db", {}
    for count in (100, 400):
        with broker:
            with broker.client("gateway", durable=True) as gateway:
                assert gateway.subscribe("fugu/2/home/+/symbols/+") == 1
            with broker.client("watch") as watch:
                for number in range(count):
                    assert watch.publish(SYMBOLS, number.to_bytes(FRAME, "big")) == 0
            assert not database.exists()
        sizes[count] = database.stat().st_size
        assert database.read_bytes().count((count - 1).to_bytes(FRAME, "big")) == 1
        database.unlink()
    assert sizes[400] < 4 * FRAME * 400
    assert sizes[400] < 4.1 * sizes[100]


def test_a_renewed_certificate_of_the_broker_is_accepted_by_clients_with_the_old_authority(
    tmp_path: Path, fleet: Shipped
) -> None:
    """Also while it runs: Mosquitto reads its certificate again at a hangup signal."""
    broker = Shipped(tmp_path, mutual=fleet.mutual)
    broker.add("device", "watch")
    old = (tmp_path / "watch" / "ca.pem").read_bytes()

    def presented() -> bytes:
        context = broker.address("watch").tls_context()
        with (
            socket.create_connection(("127.0.0.1", broker.port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""

    with broker:
        before = presented()
        assert main(["deploy", "renew", "--broker", str(broker.folder)]) == 0
        assert presented() == before
        broker.reload()
        wait_until(lambda: presented() != before)
        assert broker.publish("watch", SYMBOLS) == 0
        broker.restart()
        assert broker.publish("watch", SYMBOLS) == 0
    assert (tmp_path / "watch" / "ca.pem").read_bytes() == old == (broker.folder / "ca.pem").read_bytes()


def test_a_client_that_asks_for_no_end_is_told_when_its_silence_ends_the_connection(fleet: Shipped) -> None:
    """Those of MQTT 3.1.1, which has no word for it, are refused; Mosquitto before 2.0.12 does not bound them."""
    version = mosquitto_version()
    for asked, granted in ((0, MAX_KEEP_ALIVE), (MAX_KEEP_ALIVE + 1, MAX_KEEP_ALIVE), (300, 300)):
        with fleet.client("watch", keep_alive=asked) as client:
            assert client.reason == 0
            assert client.keep_alive == granted
    with fleet.client("watch", version=mqtt.MQTTv311, keep_alive=MAX_KEEP_ALIVE + 1) as older:
        assert (older.reason != 0) == (version >= (2, 0, 12))


def refused(address: Broker, context: ssl.SSLContext | None) -> bool:
    """True if no connection comes about, whether during the handshake or after it."""
    try:
        with Client(address, context=context) as client:
            return client.reason != 0
    except OSError:
        return True


def other_trust(fleet: Shipped, ca_file: Path) -> Broker:
    """The address of a device that trusts another authority."""
    return replace(fleet.address("watch"), ca_file=str(ca_file))


OF_A_DEVICE = (
    "status",
    "symbols/hr",
    "symbols/other",
    "window/hr",
    "window/other",
    "report/hr",
    "report/other",
    "policy/status",
    "policy/set",
    "committed",
    "table/hr",
    "stop",
    "anything",
)
OF_THE_FLEET = (
    "estimate/watch/hr",
    "count/watch/hr",
    "description/watch/hr",
    "release/public/active",
    "release/site/active",
    "time",
    "root",
    "health",
    *("group/street/document", "group/street/key", "group/street/request", "group/street/answer"),
    "anything",
)
TOPICS = [
    *(
        f"fugu/2/home/{name}/{kind}"
        for name in ("watch", "ring", "stranger", "gateway", "gateway-1")
        for kind in OF_A_DEVICE
    ),
    *(f"fugu/2/home/{kind}" for kind in OF_THE_FLEET),
    *(f"fugu/2/other/{kind}" for kind in ("watch/symbols/hr", "watch/status", "time", "root")),
    *("fugu/1/home/watch/symbols/hr", "fugu/2/home", "watch/symbols/hr", "anything"),
    *(*DISCOVERY, discovery_topic("away", "watch"), "homeassistant/status"),
]
_OWN_KINDS = ("status", "symbols/hr", "window/hr", "report/hr", "policy/status")
OWN = {
    **{name: [f"fugu/2/home/{name}/{kind}" for kind in _OWN_KINDS] for name in ("watch", "ring")},
    "gateway": [
        *("fugu/2/home/*/" + kind for kind in ("committed", "table/hr", "stop")),
        *("fugu/2/home/" + kind for kind in ("estimate/*", "count/*", "description/*", "release/*", "time", "health")),
        *("fugu/2/home/group/*/request", *(f"homeassistant/device/home/*/{kind}" for kind in ("config", "available"))),
    ],
    "gateway-1": [
        *("fugu/2/home/*/" + kind for kind in ("committed", "table/hr", "stop")),
        *("fugu/2/home/" + kind for kind in ("estimate/*", "count/*")),
    ],
    "operator": ["fugu/2/home/*/policy/set", "fugu/2/home/root"],
    "gateway-rollout": ["fugu/2/home/*/policy/set", "fugu/2/home/root"],
    "helper": ["fugu/2/home/group/*/" + kind for kind in ("document", "key", "answer")],
    "ha": ["homeassistant/status"],
    "site": [],
    "public": [],
}
"""Topics that each account may publish; of the gateway and its shards none under its own name."""


@pytest.mark.long
def test_hundreds_of_spoofed_publications_are_refused(fleet: Shipped) -> None:
    refused = 0
    for name, own in OWN.items():
        with fleet.client(name) as client:
            for topic in TOPICS:
                mine = any(fnmatchcase(topic, pattern) for pattern in own)
                mine = mine and not (name.startswith("gateway") and topic.startswith(f"fugu/2/home/{name}/"))
                assert client.attempt(topic, b"") == (0 if mine else DENIED), (name, topic)
                refused += not mine
    assert refused > 300


@pytest.mark.long
def test_accounts_may_be_called_like_topics_of_the_fleet(tmp_path: Path) -> None:
    """Topics under an account's name are denied to it, but not the topic of that name."""
    broker = Shipped(tmp_path)
    broker.add("gateway", "time")
    broker.add("operator", "root")
    with broker:
        for name in ("time", "root"):
            assert broker.publish(name, f"fugu/2/home/{name}") == 0
            for kind in OF_A_DEVICE:
                assert broker.publish(name, f"fugu/2/home/{name}/{kind}") == DENIED
