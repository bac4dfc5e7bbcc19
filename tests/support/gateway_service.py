"""A gateway in a process of its own, and a plain MQTT client that plays a device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from fugu.contract.frames import Committed, Status, SymbolFrame
from fugu.contract.reports import StateEstimate, decode_estimate
from fugu.contract.topics import topic_of
from gateway.config import GatewayConfig
from gateway.loop.gateway import Gateway
from tests.support.brokers import PATIENCE, Mosquitto
from tests.support.gateway_files import gateway_file
from tests.support.outboxes import is_committed
from tests.support.processes import Program


@contextmanager
def gateway_here(settings: GatewayConfig) -> Iterator[Gateway]:
    """A gateway in this process."""
    gateway = Gateway(settings)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


class GatewayProcess(Program):
    """A running gateway; its folder holds its store `s.sqlite`, its `policies`, its `gateway.log` and other files."""

    def __init__(self, mosquitto: Mosquitto, folder: Path, **files: str) -> None:
        files = {"policies": "policies", "store": "s.sqlite", **files}
        file = gateway_file(folder / "gateway.toml", mosquitto.broker, **files)
        super().__init__(folder / "gateway.log", "fugu", "gateway", "run", file, "--verbose")


class Device:
    """Publishes frames, keeps them until the watermark covers them, and listens to its own estimates."""

    def __init__(self, mosquitto: Mosquitto, name: str = "watch") -> None:
        self.name = name
        self.outbox: list[SymbolFrame] = []
        self._lock = threading.Lock()  # watermarks come while frames are added
        self.estimates: list[StateEstimate] = []
        self.watermarks = 0
        self._subscribed = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"device-{name}", clean_session=False)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._connected
        self._client.on_message = self._received
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.connect_async("127.0.0.1", mosquitto.port)
        self._client.loop_start()
        assert self._subscribed.wait(PATIENCE)

    def send(self, frames: Sequence[SymbolFrame]) -> None:
        for frame in frames:
            with self._lock:
                self.outbox.append(frame)
            self._publish(frame)

    def send_again(self, forgotten: Sequence[SymbolFrame] = ()) -> None:
        """Publish what is not known to be durable, and frames of which that is known no more."""
        with self._lock:
            again = self.outbox = [*self.outbox, *forgotten]
        for frame in again:  # all of it: an answer may come at any time
            self._publish(frame)

    def answered_after(self, watermarks: int) -> Callable[[], bool]:
        """A condition: there have been more watermarks than so many."""
        return lambda: self.watermarks > watermarks

    @property
    def ticks_told(self) -> set[int]:
        """The ticks that it has heard estimates of."""
        return {
            tick
            for estimate in list(self.estimates)
            for tick in range(estimate.tick - estimate.ticks + 1, estimate.tick + 1)
        }

    @property
    def connected(self) -> bool:
        return self._client.is_connected()

    def say(self, topic: str, payload: bytes) -> None:
        self._client.publish(topic, payload, qos=1)

    def say_birth(self) -> None:
        payload = Status(True, "1.0", len(self.outbox), (), ()).encode()
        self._client.publish(topic_of("status", "home", self.name), payload, qos=1, retain=True)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, frame: SymbolFrame) -> None:
        self._client.publish(topic_of("symbols", "home", self.name, "hr"), frame.encode(), qos=1)

    def _connected(self, client: mqtt.Client, *_: object) -> None:
        topics = (topic_of("committed", "home", self.name), topic_of("estimate", "home", self.name, "hr"))
        client.subscribe([(topic, 1) for topic in topics])

    def _received(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        if "estimate" in message.topic:
            estimate = decode_estimate(bytes(message.payload))
            assert isinstance(estimate, StateEstimate)
            self.estimates.append(estimate)
            return
        (commit,) = (stream for stream in Committed.decode(bytes(message.payload)).streams if stream.stream == "hr")
        with self._lock:
            self.outbox = [frame for frame in self.outbox if not is_committed(commit, frame)]
        self.watermarks += 1
