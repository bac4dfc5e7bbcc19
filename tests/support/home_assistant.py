"""Home Assistant as far as discovery goes: the fields it documents, its templates, and somebody who listens as it does.

Its own package needs a newer Python than this project. Fields are those of the manual's pages on MQTT (devices, sensor,
binary sensor, device tracker), without what is deprecated there. Unknown ones are refused here, where Home Assistant
drops them in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fugu.mqtt import Broker
from tests.support.brokers import wait_until
from tests.support.processes import Recorder

__all__ = ["Listener", "check_document", "rendered"]

Check = Callable[[Any], bool]
_ENVIRONMENT = ImmutableSandboxedEnvironment()
_TOPIC = re.compile(r"homeassistant/(\w+)/(?:([a-zA-Z0-9_-]+)/)?([a-zA-Z0-9_-]+)/config")


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 255


def _number(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _one_of(*values: str) -> Check:
    return lambda value: value in values


def _topic(value: Any) -> bool:
    return _text(value) and not set("+#\0") & set(value)


def _template(value: Any) -> bool:
    """True if it is one, and looks at nothing but the message."""
    tree = _ENVIRONMENT.parse(value)
    return {name.name for name in tree.find_all(nodes.Name) if name.ctx == "load"} <= {"value_json"}


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


_SECONDS = _number(0, 2**31)
_DEVICE: dict[str, Check] = {
    "identifiers": _list(_text),
    "connections": _list(_list(_text)),
    **dict.fromkeys(("name", "manufacturer", "model", "model_id", "serial_number", "via_device"), _text),
    **dict.fromkeys(("hw_version", "sw_version", "suggested_area", "configuration_url"), _text),
}
_ORIGIN: dict[str, Check] = dict.fromkeys(("name", "sw_version", "support_url"), _text)
_AVAILABILITY: dict[str, Check] = {
    "topic": _topic,
    "value_template": _template,
    "payload_available": _text,
    "payload_not_available": _text,
}
_SHARED: dict[str, Check] = {
    "availability": lambda value: (
        isinstance(value, list) and all(not _problems(part, _AVAILABILITY, ("topic",)) for part in value)
    ),
    "availability_mode": _one_of("all", "any", "latest"),
    "qos": _number(0, 2),
    "encoding": _text,
}
_COMPONENT: dict[str, Check] = {
    **_SHARED,
    "platform": _one_of("sensor", "binary_sensor", "device_tracker"),
    "unique_id": _text,
    "name": _text,
    "default_entity_id": _text,
    "entity_category": _one_of("diagnostic"),
    "enabled_by_default": _boolean,
    "icon": _text,
    "json_attributes_topic": _topic,
    "json_attributes_template": _template,
}
_READ: dict[str, Check] = {
    "state_topic": _topic,
    "value_template": _template,
    "expire_after": _SECONDS,
    "force_update": _boolean,
}
_PLATFORMS: dict[str, tuple[dict[str, Check], tuple[str, ...]]] = {
    "sensor": (
        {
            **_READ,
            "state_class": _one_of("measurement", "measurement_angle", "total", "total_increasing"),
            "suggested_display_precision": _number(0, 10),
            "unit_of_measurement": _text,
        },
        ("state_topic",),
    ),
    "binary_sensor": (
        {
            **_READ,
            "device_class": _one_of("motion", "occupancy", "opening", "presence", "problem"),
            "off_delay": _SECONDS,
            "payload_on": _text,
            "payload_off": _text,
        },
        ("state_topic",),
    ),
    "device_tracker": (
        {"source_type": _one_of("gps", "router", "bluetooth", "bluetooth_le")},
        ("json_attributes_topic",),
    ),
}


def _problems(document: Any, allowed: Mapping[str, Check], required: tuple[str, ...]) -> list[str]:
    if not isinstance(document, dict):
        return ["no mapping"]
    missing = [f"{name} is missing" for name in required if name not in document]
    unknown = [f"{name} is no field" for name in document if name not in allowed]
    return [
        *missing,
        *unknown,
        *(f"{name}: {document[name]!r}" for name in document if name in allowed and not allowed[name](document[name])),
    ]


def check_document(document: Mapping[str, Any]) -> None:
    """Refuse a document that Home Assistant would not take as it is meant, with all that is wrong."""
    mapping: Check = lambda value: isinstance(value, dict)  # noqa: E731
    wrong = _problems(dict(document), {**_SHARED, "dev": mapping, "o": mapping, "cmps": mapping}, ("dev", "o", "cmps"))
    assert not wrong, wrong
    wrong += _problems(document["dev"], _DEVICE, ("identifiers", "name")) + _problems(document["o"], _ORIGIN, ("name",))
    for name, component in document["cmps"].items():
        if set(component) == {"platform"}:  # says that it is no more
            continue
        own, required = _PLATFORMS[component["platform"]]
        wrong += [
            f"{name}: {problem}" for problem in _problems(component, {**_COMPONENT, **own}, ("unique_id", *required))
        ]
        if not re.fullmatch(rf"{component['platform']}\.[a-z0-9_]+", component["default_entity_id"]):
            wrong.append(f"{name}: {component['default_entity_id']} is no name of an entity")
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            wrong.append(f"{name!r} is no name of a component")
    assert not wrong, wrong


def rendered(template: str, payload: bytes) -> str:
    text = payload.decode()
    read = json.loads(text) if "value_json" in template else None
    return _ENVIRONMENT.from_string(template).render(value=text, value_json=read).strip()


class Listener(Recorder):
    """Listens as Home Assistant does, and keeps what it would show, and the problems that it would log."""

    def __init__(self, broker: Broker) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.configured = self.removed = 0
        self.problems: list[str] = []
        self.topics: set[str] = set()
        self._newest: dict[str, bytes] = {}
        self._states: dict[str, str] = {}
        super().__init__(broker, "homeassistant/#", "fugu/2/#")

    def received(self, topic: str, payload: bytes, _retained: bool) -> None:
        self.topics.add(topic)
        try:
            if topic.startswith("homeassistant/"):
                self._configure(topic, payload)
            else:
                self._newest[topic] = payload
                for component in self.components().values():
                    if component.get("state_topic") == topic:
                        self._update(component)
        except Exception as error:
            self.problems.append(f"{topic}: {type(error).__name__}: {error}")

    def _configure(self, topic: str, payload: bytes) -> None:
        if topic == "homeassistant/status":
            return
        if topic.endswith("/available"):
            self._newest[topic] = payload
            return
        assert _TOPIC.fullmatch(topic), topic
        if not payload:
            self.removed += self.documents.pop(topic, None) is not None  # it may be said twice
            return
        document = json.loads(payload)
        check_document(document)
        self.documents[topic] = document
        self.configured += 1
        names = [
            component["unique_id"]
            for other in self.documents.values()
            for component in other["cmps"].values()
            if len(component) > 1
        ]
        assert len(set(names)) == len(names), names
        for component in document["cmps"].values():
            if component.get("state_topic") in self._newest:
                self._update(component)

    def _update(self, component: Mapping[str, Any]) -> None:
        if value := rendered(component["value_template"], self._newest[component["state_topic"]]):
            self._states[component["unique_id"]] = value

    def components(self) -> dict[str, dict[str, Any]]:
        """Entities, by the name that each has if it is the first of that name."""
        every = [component for document in list(self.documents.values()) for component in document["cmps"].values()]
        return {component["default_entity_id"]: component for component in every if len(component) > 1}

    def state(self, entity: str) -> str | None:
        """State of an entity; none before its first value, `unavailable` if that is said."""
        for document in self.documents.values():
            for component in document["cmps"].values():
                if component.get("default_entity_id") == entity:
                    assert document["availability_mode"] == "all"
                    for availability in document["availability"]:
                        message = self._newest.get(availability["topic"], b"")
                        template = availability.get("value_template", "{{ value }}")
                        if not message or rendered(template, message) != "online":
                            return "unavailable"
                    return self._states.get(component["unique_id"])
        return None

    def attributes(self, entity: str) -> dict[str, Any]:
        component = self.components()[entity]
        message = self._newest[component["json_attributes_topic"]]
        return json.loads(rendered(component["json_attributes_template"], message))

    def say_online(self) -> None:
        wait_until(lambda: self.link.publish("homeassistant/status", b"online") is not None)
