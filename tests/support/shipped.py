"""A real Mosquitto with the configuration that `fugu deploy` writes, and clients that hear every answer of it."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from fugu.mqtt import Broker
from fugu_cli.main import main
from gateway.cluster.duties import shard_account
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.release_scenes import FLEET, scheduled, write_config
from tests.support.scenes import write_policies

__all__ = ["DENIED", "Client", "Shipped", "promises"]

DENIED = 135
_ATTEMPTS = 3
NOBODY = 16


def fugu(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def promises(folder: Path) -> tuple[object, ...]:
    """The options of a reader of the audience `public`, whose files are written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    policies = write_policies(folder / "policies", FLEET)
    return ("--audience", "public", "--releases", write_config(folder, scheduled()), "--policies", policies)


class Shipped(Mosquitto):
    """The broker of `fugu deploy broker`, on a loopback port of its own; `mutual`: by certificates."""

    def __init__(self, folder: Path, *words: str, mutual: bool = False) -> None:
        self._temporary = None
        self._process = None
        self.root = folder
        self.folder = folder / "broker"
        self.mutual = mutual
        self.port = free_port()
        self._file = Path("mosquitto.conf")
        place = ["--fleet", "home", "--host", "127.0.0.1", "--port", self.port, "--bind", "127.0.0.1", "--in-place"]
        fugu("deploy", "broker", self.folder, *place, *words, *(["--mutual"] if mutual else []))

    def start(self) -> Self:
        """Start it in its own folder, as its configuration demands."""
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            return super().start()
        finally:
            os.chdir(before)

    def add(self, kind: str, name: str, *words: object) -> Path:
        """Add an account before the broker starts, of a device one with a stream `hr`; returns its folder."""
        if kind == "device" and not {"--stream", "--policy"} & set(words):
            words = (*words, "--stream", "hr")
        fugu("deploy", kind, self.root / name, "--broker", self.folder, "--name", name, *words)
        return self.root / name

    def address(self, name: str) -> Broker:
        """How an account connects; NAME-rollout and NAME-0 are further accounts in the folder of the gateway NAME."""
        owner, _, part = name.rpartition("-")
        if part.isdecimal() and (self.root / owner).exists():
            return shard_account(self.address(owner), int(part), int(part) + 1)
        stem = "rollout-" if part == "rollout" else ""
        folder = self.root / (owner if stem else name)
        if self.mutual:
            files = {"cert_file": f"{folder}/{stem}client.pem", "key_file": f"{folder}/{stem}client.key"}
        else:
            files = {"username": name, "password_file": f"{folder}/{stem}password"}
        return Broker("127.0.0.1", self.port, ca_file=f"{folder}/ca.pem", **files, max_backoff=1)

    def publish(
        self, name: str, topic: str, payload: bytes = b"x", *, retain: bool = False, client_id: str = ""
    ) -> int:
        """Publish over a connection of its own, which Mosquitto may end when it denies; returns the reason code."""
        with self.client(name, client_id=client_id) as client:
            return client.publish(topic, payload, retain=retain)

    def client(self, name: str, **options: Any) -> Client:
        """A client with an account's credentials, not yet connected."""
        return Client(self.address(name), **options)


class Client:
    """A connection in MQTT 5 that keeps every answer, and never comes back by itself; it lives while it is waited for.

    Only a connection that ends before there is an answer to CONNECT is begun again, twice. Whoever waits for something
    on a connection that has ended fails at once.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        client_id: str = "",
        will: str | None = None,
        context: ssl.SSLContext | None = None,
        version: int = mqtt.MQTTv5,
        durable: bool = False,
        keep_alive: int = 30,
    ) -> None:
        self._broker = broker
        self._keep_alive = keep_alive
        self._session: dict[str, Any] = {}
        if durable:
            properties = mqtt.Properties(mqtt.PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3600
            self._session = {"clean_start": False, "properties": properties}
        self.reason: int | None = None
        self.lost = 0
        self.received: list[tuple[str, bytes]] = []
        self._answers: dict[int, int] = {}
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version)
        if broker.username is not None:
            self._client.username_pw_set(broker.username, broker.password())
        if (settings := context or broker.tls_context()) is not None:
            self._client.tls_set_context(settings)
        if will is not None:
            self._client.will_set(will, b"will", qos=1, retain=True)
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._disconnected
        self._client.on_publish = self._answered
        self._client.on_subscribe = self._answered_all
        self._client.on_message = lambda _client, _data, message: self.received.append((message.topic, message.payload))

    def __enter__(self) -> Self:
        """Connect, and wait for the answer; ConnectionError if there is none three times."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
                self._client.connect(self._broker.host, self._broker.port, self._keep_alive, **self._session)
                self._until(lambda: self.reason is not None or self.lost, "an answer to CONNECT")
            if self.reason is not None:
                return self
            self.lost = 0
        raise ConnectionError(f"{_ATTEMPTS} connections ended before there was an answer to CONNECT")

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()

    @property
    def keep_alive(self) -> int:
        """Seconds without traffic that hold, by the client or by the broker's answer."""
        return self._client.keepalive

    def publish(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> int:
        """Publish at QoS 1; returns the broker's reason code, 0 also for what nobody is subscribed to."""
        reason = self._wait(self._client.publish(topic, payload, qos=1, retain=retain).mid)
        return 0 if reason == NOBODY else reason

    def attempt(self, topic: str, payload: bytes) -> int | None:
        """Publish, retained; returns the reason code, none if the broker ends the connection without one."""
        mid = self._client.publish(topic, payload, qos=1, retain=True).mid
        self._until(lambda: mid in self._answers or self.lost, "an answer or an end")
        reason = self._answers.pop(mid, None)
        return 0 if reason == NOBODY else reason

    def subscribe_many(self, topics: list[str]) -> None:
        """Subscribe at QoS 1; returns at an answer, or when the broker ends the connection."""
        mid = self._client.subscribe([(topic, 1) for topic in topics])[1]
        self._until(lambda: mid in self._answers or self.lost, "an answer or an end")

    def subscribe(self, topic: str) -> int:
        """Subscribe at QoS 1; returns the broker's reason code."""
        mid = self._client.subscribe(topic, 1)[1]
        assert mid is not None
        return self._wait(mid)

    def live(self) -> None:
        """Read what has come, and let the broker know that it is there, for a test that waits for something else."""
        self._client.loop(0.0)

    def drop(self) -> None:
        """Close the socket without a word, so that the broker publishes the last will."""
        self._client.socket().close()

    def wait_for(self, topic: str, payload: bytes) -> None:
        """Wait until a message has arrived."""
        self._until(lambda: (topic, payload) in self.received, f"{payload!r} on {topic}")

    def _wait(self, mid: int) -> int:
        self._until(lambda: mid in self._answers, f"an answer to packet {mid}")
        return self._answers.pop(mid)

    def _until(self, condition: Callable[[], object], what: str) -> None:
        def reached() -> bool:
            if not condition():
                self._client.loop(0.05)
            if not condition() and self.lost:
                raise AssertionError(f"the connection ended while {what} was waited for: there is {self._came()}")
            return bool(condition())

        wait_until(reached, what, instead=self._came)

    def _came(self) -> str:
        counts = Counter(topic for topic, _ in self.received)
        return f"{sum(counts.values())} messages {dict(counts)}, and answers to packets {sorted(self._answers)}"

    def _connected(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self.reason = reason.value

    def _disconnected(self, _client: Any, _data: Any, _flags: Any, _reason: Any, _properties: Any) -> None:
        self.lost += 1

    def _answered(self, _client: Any, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        self._answers[mid] = reason.value

    def _answered_all(self, _client: Any, _data: Any, mid: int, reasons: Any, _properties: Any) -> None:
        self._answers[mid] = reasons[0].value
