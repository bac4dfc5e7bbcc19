"""Readings from a topic of a broker on this machine: Zigbee2MQTT, Tasmota, ESPHome and the like.

The sensor publishes nothing, not even a will. What it hears is raw: whoever reads that broker reads the readings.
"""

from __future__ import annotations

import json
import math
import secrets
import socket
from typing import Any

from edge_agent.local_broker import LocalBrokerError, dial
from edge_agent.sensors.source import LiveSensor, Reading, SensorUpdate
from fugu.mqtt import Broker, Link

__all__ = ["MqttSensor"]

MAX_PAYLOAD_BYTES = 1 << 16


class MalformedError(ValueError):
    """A payload is too long, no text, not JSON, or has something at the path that is no single value."""


def value_at(payload: bytes, path: str | None) -> str | None:
    """The value in a UTF-8 payload of at most 64 KiB, as it was written; None where it has nothing at a path.

    A path is keys and indices of lists, joined by dots; several, joined by commas, give values joined by commas.
    Without a path, the payload is the value. Raises MalformedError, which holds nothing of the payload.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MalformedError
    try:
        text = payload.decode()
        if path is not None:
            document = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
            values = [_walk(document, one.strip().split(".")) for one in path.split(",")]
            if None in values:
                return None
            text = ",".join(value for value in values if value is not None)
    except (ValueError, RecursionError):
        raise MalformedError from None
    if not (text := text.strip()):
        raise MalformedError
    return text


def _walk(found: Any, keys: list[str]) -> str | None:
    for key in keys:
        if isinstance(found, dict):
            if key not in found:
                return None
            found = found[key]
        elif isinstance(found, list) and key.isascii() and key.isdigit():
            if len(key) > 9 or int(key) >= len(found):
                return None
            found = found[int(key)]
        else:
            return None
    if isinstance(found, bool):
        return "true" if found else "false"
    if not isinstance(found, str):
        raise MalformedError
    return found


class MqttSensor(LiveSensor):
    """The newest message of one topic.

    A sensor of changes takes a retained message as the newest state. It is no sample: it may be of any time, and comes
    anew with every connection. A malformed message is a reading that is of no use. `config` is
    `edge_agent.config_schema.Mqtt` with `fleet_broker`: host and port of the fleet's. Raises LinkError if the password
    cannot be read.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self._host, self._port = config["host"], config["port"]
        host, port = config["fleet_broker"]
        self._fleet: tuple[str, int] = host, port
        self._topic, self._path = config["topic"], config["path"]
        self._availability, self._availability_path = config["availability"], config["availability_path"]
        self._online_word = config["online"]
        self._samples = config["silence"] == "samples"
        self._online = False
        self._malformed = ""
        self._refusal = ""
        self._link = Link(
            Broker(
                host="localhost",  # the rest is for `_dial`
                username=config["username"],
                password_file=config["password_file"],
                protocol="3.1.1",  # every broker has it, and it is enough here
                max_backoff=10,
            ),
            client_id=f"fugu-{secrets.token_hex(8)}",
            subscriptions=tuple(topic for topic in (self._topic, self._availability) if topic is not None),
            on_connected=self._connected,
            on_message=self._received,
            dial=self._dial,
        )
        self._link.start()

    def _dial(self) -> socket.socket:
        try:
            opened = dial(self._host, self._port, self._fleet)
        except LocalBrokerError as error:
            self._refusal = error.trouble
            raise
        self._refusal = ""
        return opened

    def _connected(self) -> None:
        """Forget the state: it may have changed since."""
        self._online = False
        self._leave(works=False)

    def _received(self, topic: str, payload: bytes, retained: bool) -> None:
        """Take a message; called in the network thread, which logs the types of exceptions, so there are none."""
        try:
            if topic == self._availability:
                self._online = self._word(payload) == self._online_word
            elif topic == self._topic and not (retained and self._samples):
                self._take(payload)
        except Exception:
            self._malformed = "a message on its topic cannot be read"

    def _take(self, payload: bytes) -> None:
        try:
            value = value_at(payload, self._path)
        except MalformedError:
            self._malformed = "a message on its topic is malformed"
            self._leave(Reading(math.nan))
            return
        if value is None:
            self._malformed = "a message on its topic has nothing at its path"
        else:
            self._malformed = ""
            self._leave(Reading(value))

    def _word(self, payload: bytes) -> str | None:
        try:
            return value_at(payload, self._availability_path)
        except MalformedError:
            return None

    def poll(self, tick: int) -> SensorUpdate:
        """The newest value, if one came; a broker that is lost does not work, a device that is available does."""
        self._trouble = self._wrong()
        update = super().poll(tick)
        if not self._link.connected:
            return update._replace(works=False)
        return update._replace(works=True) if update.works is None and self._online else update

    def _wrong(self) -> str:
        if not self._link.connected:
            failed = "its broker cannot be reached, or refuses the connection" if self._link.last_error else ""
            return self._refusal or failed
        return "its broker refuses a subscription" if self._link.last_error else self._malformed

    def close(self) -> None:
        """End the connection."""
        self._link.stop()
