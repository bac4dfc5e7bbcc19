"""Readings from a topic of a broker on this machine: Zigbee2MQTT, Tasmota, ESPHome and the like.

The sensor publishes nothing, not even a will. Its messages are raw: whoever reads that broker reads the readings.
"""

from __future__ import annotations

import math
import secrets
import socket
import time
from typing import Any

from edge_agent.local_broker import LocalBrokerError, dial
from edge_agent.sensors.source import LiveSensor, Reading, SensorUpdate
from fugu.host.payload import MalformedError, ResentCheck, message, value_at
from fugu.mqtt import Broker, Link

__all__ = ["MqttSensor"]


class MqttSensor(LiveSensor):
    """The newest message of one topic.

    A sensor of changes takes a retained message as the newest state. A sensor of samples ignores retained messages,
    which may be old, and messages that a bridge sends again from its cache. A malformed message is an unusable reading.
    `config` has the fields of `edge_agent.config_schema.Mqtt`, and `fleet_broker`: host and port of the fleet's broker.
    Raises LinkError if the password cannot be read.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self._dial_arguments = config["host"], config["port"], tuple(config["fleet_broker"])
        self._topic, self._path = config["topic"], config["path"]
        self._availability, self._availability_path = config["availability"], config["availability_path"]
        self._online_word = config["online"]
        self._takes_samples = config["silence"] == "samples"
        self._resent_check = ResentCheck()
        self._is_online = False
        self._message_trouble = ""
        self._refusal = ""
        self._link = Link(
            Broker(
                host="localhost",  # not used: `_dial` connects
                username=config["username"],
                password_file=config["password_file"],
                protocol="3.1.1",  # every broker has it, and it is enough here
                max_backoff=10,
            ),
            client_id=f"fugu-{secrets.token_hex(8)}",
            subscriptions=tuple(topic for topic in (self._topic, self._availability) if topic is not None),
            on_connected=self._on_connected,
            on_message=self._on_message,
            dial=self._dial,
        )
        self._link.start()

    def _dial(self) -> socket.socket:
        try:
            connection = dial(*self._dial_arguments)
        except LocalBrokerError as error:
            self._refusal = str(error)
            raise
        self._refusal = ""
        return connection

    def _on_connected(self) -> None:
        """Forget the state: it may have changed while there was no connection."""
        self._is_online = False
        self._add_update(works=False)

    def _on_message(self, topic: str, payload: bytes, retained: bool) -> None:
        """Take a message; called in the network thread. It raises nothing, as that thread logs types of exceptions."""
        try:
            if topic == self._availability:
                self._is_online = self._availability_word(payload) == self._online_word
            elif topic == self._topic and not (retained and self._takes_samples):
                self._take_payload(payload)
        except Exception:
            self._message_trouble = "a message on its topic cannot be read"

    def _take_payload(self, payload: bytes) -> None:
        try:
            value, last_seen = message(payload, self._path)
        except MalformedError:
            self._message_trouble = "a message on its topic is malformed"
            self._add_update(Reading(math.nan))
            return
        if value is None:
            self._message_trouble = "a message on its topic has nothing at its path"
        else:
            self._message_trouble = ""
            is_new = self._resent_check.is_new(last_seen, time.time())
            if is_new or not self._takes_samples:
                self._add_update(Reading(value))

    def _availability_word(self, payload: bytes) -> str | None:
        try:
            return value_at(payload, self._availability_path)
        except MalformedError:
            return None

    def poll(self, tick: int) -> SensorUpdate:
        """Return the newest value, if one came; the source works if its broker is there and its device available."""
        self._trouble = self._find_trouble()
        update = super().poll(tick)
        if not self._link.connected:
            return update._replace(works=False)
        return update._replace(works=True) if update.works is None and self._is_online else update

    def _find_trouble(self) -> str:
        if not self._link.connected:
            failure = "its broker cannot be reached, or refuses the connection" if self._link.last_error else ""
            return self._refusal or failure
        return "its broker refuses a subscription" if self._link.last_error else self._message_trouble

    def close(self) -> None:
        """End the connection."""
        self._link.stop()
