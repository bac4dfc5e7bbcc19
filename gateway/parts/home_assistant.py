"""Home Assistant: one retained discovery document for each device, made from the descriptions of its streams.

Home Assistant evaluates a document's templates on the messages of a stream. Names of states may be any text. In
templates they are literals of letters, digits and escapes only, so that no name can act as code. A counted share is
shown with its interval. A likely state is shown only for a stream that its plan calls useful for that.

Documents are published again whenever Home Assistant starts. The store has their components, so that documents are
cleared when the device leaves or discovery is switched off. A document also names components that are gone, so that
Home Assistant removes them.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

from fugu.contract.descriptions import Description
from fugu.contract.errors import FrameError, TopicError
from fugu.contract.frames import Status
from fugu.contract.sentences import promised_words
from fugu.contract.stretches import STRETCHES, Stretch
from fugu.contract.topics import available_topic, discovery_topic, topic_of
from gateway.parts import Loop, Message, Part

__all__ = ["HomeAssistant"]

STATUS_TOPIC = "homeassistant/status"
"""The topic on which Home Assistant publishes `online` when it has started."""
LIKELY = 0.8
"""A state whose probability is lower is shown as unknown."""
MOST_STATES = 16
"""Most states of a stream whose shares are shown; of more states, only the shares of sets are shown."""
GATEWAY = "health"
"""Name of the gateway's document, which no device can have."""

Component = dict[str, Any]
_MOST_NAMED = 3
_MISSED_MESSAGES = 3
"""Number of missed messages after which a value expires."""
_LEAST_SECONDS = 60
_DEVICE_CLASSES = {"home": "presence", "open": "opening", "occupied": "occupancy"}
_ON_LABELS = frozenset({"on", "true", "yes", "detected", "active", *_DEVICE_CLASSES})


def gateway_document(fleet: str, page_url: str | None = None) -> dict[str, Any]:
    """Return the document of the gateway itself, which shows whether it has an alarm."""
    alarms = "value_json.alarms | default([])"
    problem = _entity(
        *("binary_sensor", "alarm", topic_of("health", fleet), f"{{{{ 'ON' if {alarms} else 'OFF' }}}}"),
        {
            "codes": f"{alarms} | map(attribute='code') | join(', ')",
            "advice": f"{alarms} | map(attribute='advice') | join(' ')",
        },
        device_class="problem",
        entity_category="diagnostic",
    )
    return _document(fleet, GATEWAY, f"Fugu gateway of {fleet}", {"alarm": problem}, page_url)


def device_document(streams: Sequence[Description], page_url: str | None = None) -> dict[str, Any]:
    """Return the document of a device, from at least one description of a stream."""
    fleet, device = streams[0].fleet, streams[0].device
    components: dict[str, Component] = {}
    for stream in streams:
        components |= {f"{stream.stream}.{name}": component for name, component in _components(stream).items()}
    # A page inside Home Assistant has no address for each device.
    if page_url is not None and page_url.startswith("http"):
        page_url = f"{page_url.rstrip('/')}/device/{device}"
    document = _document(fleet, device, device, components, page_url)
    document["availability"].append({"topic": available_topic(fleet, device)})
    return document


def _document(
    fleet: str, device: str, name: str, components: Mapping[str, Component], page_url: str | None
) -> dict[str, Any]:
    device_info: dict[str, Any] = {"identifiers": [_fugu_id(fleet, device)], "name": name, "manufacturer": "Fugu Edge"}
    if page_url is not None:
        device_info["configuration_url"] = page_url
    if device != GATEWAY:
        device_info["via_device"] = _fugu_id(fleet, GATEWAY)
    for component_key, component in components.items():
        domain = component["platform"]
        component["unique_id"] = f"{_fugu_id(fleet, device)}.{component_key}"
        component["default_entity_id"] = f"{domain}.{_slug(fleet)}_{_slug(device)}_{_slug(component_key)}"
    return {
        "dev": device_info,
        "o": {"name": "fugu-edge", "sw_version": _version("fugu-edge")},
        "availability": [
            {"topic": topic_of("health", fleet), "value_template": "{{ 'online' if value_json.online else 'offline' }}"}
        ],
        "availability_mode": "all",
        "qos": 1,
        "cmps": dict(components),
    }


_SURENESS = (
    "{% if value_json.guarantee.epsilon is number %}"
    "{{ (100 / (1 + 2.718281828 ** (0 - value_json.guarantee.epsilon))) | round(1, 'ceil') }}"
    "{% else %}100.0{% endif %}"
)
"""Template of the highest belief, in per cent, in a secret that had a probability of one half before."""


_version = cache(version)


def _components(description: Description) -> dict[str, Component]:
    """Return the entities of a stream by key: its protection, and its values."""
    ticks = description.guarantee.stretch_ticks
    seconds = dict(STRETCHES)
    stretches = [
        Stretch(row.name, row.ticks, math.inf if row.epsilon is None else row.epsilon, row.floor, seconds.get(row.name))
        for row in description.guarantee.stretches
    ]
    promise_text = promised_words(description.guarantee.epsilon, ticks, stretches)
    promise = "; ".join([promise_text, *(shared.condition for shared in description.sums)])
    guarantee_fields = ("epsilon", "adversary", "since", "until", "outside")
    members = _members(*(f"guarantee.{name}" for name in guarantee_fields), "confirmed", "protects", "does_not_protect")
    components = {
        "privacy": _entity(
            *("sensor", f"{description.stream} privacy", _topic("description", description), _SURENESS),
            {"promise": _literal(promise)} | members,
            unit_of_measurement="%",
            entity_category="diagnostic",
            icon="mdi:shield-lock-outline",
        )
    }
    if description.kind == "points":
        return components | _point_entity(description)
    if description.windows or description.kind != "windows":  # a device of only sums of homes shows no values
        components |= _count_sensors(description) if description.windows else _share_sensors(description)
    if description.useful_for == "state" and description.kind != "windows" and len(description.states) == 2:
        components["state"] = _state_entity(description)
    return components


def _topic(kind: Literal["description", "count", "estimate"], description: Description) -> str:
    return topic_of(kind, description.fleet, description.device, description.stream)


def _entity(
    platform: str, name: str, topic: str, jinja: str, attributes: Mapping[str, str] | None = None, **options: object
) -> Component:
    """Return an entity whose state is the value of the template `jinja` for the messages on a topic.

    Attributes are expressions by name. An empty template stands for an entity without a state.
    """
    entity = {"platform": platform, "name": name} | ({"state_topic": topic, "value_template": jinja} if jinja else {})
    if attributes:
        members = ", ".join(f"'{key}': {expression}" for key, expression in attributes.items())
        entity |= {"json_attributes_topic": topic, "json_attributes_template": f"{{{{ {{{members}}} | tojson }}}}"}
    return entity | options


def _members(*names: str) -> dict[str, str]:
    """Return attributes for members of a message: `a.b` is called `b`."""
    return {name.rpartition(".")[2]: f"value_json.{name}" for name in names}


def _share_sensor(name: str, topic: str, jinja: str, attributes: Mapping[str, str] | None, seconds: float) -> Component:
    return _entity(
        *("sensor", name, topic, jinja, attributes),
        unit_of_measurement="%",
        state_class="measurement",
        suggested_display_precision=1,
        expire_after=_expire_seconds(seconds),
        icon="mdi:chart-donut",
    )


def _count_sensors(description: Description) -> dict[str, Component]:
    """Return by key a sensor for each share that a stream's windows count."""
    topic, is_single, components = _topic("count", description), len(description.windows) == 1, {}
    for window in description.windows:
        if window.query.per_state:
            shares = {f".{index}": (f"_{label}", label) for index, label in _shown_states(description.states)}
        else:
            states, *other_groups = window.groups(description.states)
            group_label = " or ".join(states) if len(states) <= _MOST_NAMED else f"{len(states)} states"
            shares = {"": ("", group_label)}
            if other_groups:  # a profile, whose blocks have equal parts of the day
                count_names = window.count_names(description.states)
                shares = {f".{index}": (f"_{name}", f"{group_label} {name}") for index, name in enumerate(count_names)}
        scale = f" * {len(shares)}" if window.blocks else ""
        expression = _if_useful(f"(100 * {{}}{scale} / value_json.observed) | round(2)")
        for key_ending, (ending, group_label) in shares.items():
            members = {name: _member(f"{name}{ending}") for name in ("value", "low", "high")}
            expressions = {name: expression.format(member) for name, member in members.items()}
            condition = f"value_json.window == {_literal(window.name)} and {members['value']} is defined"
            template = f"{{% if {condition} %}}{{{{ {expressions.pop('value')} }}}}{{% endif %}}"
            group_label += "" if is_single else f" ({window.name})"
            # With several windows, a message of another window would clear the attributes.
            attributes = expressions | _members("confidence", "since", "time", "useful") if is_single else None
            name, seconds = f"{description.stream} share of {group_label}", window.stride * description.period_seconds
            components[f"window.{window.name}{key_ending}"] = _share_sensor(name, topic, template, attributes, seconds)
    return components


def _share_sensors(description: Description) -> dict[str, Component]:
    """Return by key a sensor for each state's share, estimated from a stream's symbols."""
    topic, attributes = _topic("estimate", description), _members("since", "time", "useful")
    components = {}
    for index, label in _shown_states(description.states):
        member = _member(f"share_{label}")
        share = _if_useful(f"(100 * {member}) | round(2)")
        template = f"{{% if {member} is defined %}}{{{{ {share} }}}}{{% endif %}}"
        name, seconds = f"{description.stream} share of {label}", description.frame_ticks * description.period_seconds
        components[f"share.{index}"] = _share_sensor(name, topic, template, attributes, seconds)
    return components


def _state_entity(description: Description) -> Component:
    """Return the binary sensor of a stream with two states."""
    label = description.states[_on_state(description.states)]
    state = _entity(
        *("binary_sensor", f"{description.stream} {label}", _topic("estimate", description)),
        f"{{% if value_json.probability >= {LIKELY} %}}"
        f"{{{{ 'ON' if value_json.state == {_literal(label)} else 'OFF' }}}}{{% else %}}None{{% endif %}}",
        expire_after=_expire_seconds(description.frame_ticks * description.period_seconds),
    )
    device_class = _DEVICE_CLASSES.get(label.casefold())  # a device class has its own icon
    return state | ({"device_class": device_class} if device_class else {"icon": "mdi:eye-outline"})


def _point_entity(description: Description) -> dict[str, Component]:
    """Return by key the entity of a place with its accuracy, or of a value with its interval."""
    topic = _topic("estimate", description)
    if description.place is not None:
        attributes = _members("time", "useful") | {"gps_accuracy": "value_json.accuracy"}
        attributes |= {name: _if_useful(f"value_json.{name}") for name in ("latitude", "longitude")}
        options = {"source_type": "gps", "icon": "mdi:map-marker-radius"}
        return {"place": _entity("device_tracker", description.stream, topic, "", attributes, **options)}
    sensor = _entity(
        *("sensor", description.stream, topic, "{% if value_json.value is defined %}{{ value_json.value }}{% endif %}"),
        _members("low", "high", "time", "useful"),
        state_class="measurement",
        expire_after=_expire_seconds(description.frame_ticks * description.period_seconds),
        icon="mdi:chart-bell-curve",
        **({"unit_of_measurement": description.unit} if description.unit else {}),
    )
    return {"value": sensor}


def _if_useful(expression: str) -> str:
    """Return an expression that is None if the message is not marked as useful."""
    return f"{expression} if value_json.useful else None"


def _shown_states(states: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return index and name of the states whose shares are shown: of two only the "on" state, of too many no state."""
    pairs = list(enumerate(states))
    return pairs[_on_state(states) :][:1] if len(states) == 2 else pairs if len(states) <= MOST_STATES else []


def _on_state(states: tuple[str, ...]) -> int:
    """Return the index of the "on" state of two: the second, unless a name says otherwise."""
    return next((index for index, label in enumerate(states) if label.casefold() in _ON_LABELS), 1)


def _expire_seconds(seconds: float) -> int:
    """Return the seconds after which a value expires, given the seconds between its messages."""
    return max(_LEAST_SECONDS, math.ceil(_MISSED_MESSAGES * seconds))


def _member(key: str) -> str:
    return f"value_json[{_literal(key)}]"


def _literal(text: str) -> str:
    """Return a text as a template's literal, in which all but letters and digits is escaped."""
    return "'" + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text) + "'"


def _fugu_id(fleet: str, device: str) -> str:
    return f"fugu.{fleet}.{device}"


def _slug(text: str) -> str:
    return re.sub("[^a-z0-9]+", "_", text.lower()).strip("_") or "_"


_SOONEST_SECONDS, _LATEST_SECONDS = 1.0, 10.0
"""Bounds of the random wait after a start of Home Assistant, so that not all publishers begin at once."""


class HomeAssistant(Part):
    """Publishes discovery documents; used by the gateway's worker.

    `describe` gives the descriptions of each device's streams, or `None` until all are made. The `pump` after a `renew`
    calls it, and makes new documents of changed descriptions. If `describe` itself is `None`, all published documents
    are cleared. `pause` gives the seconds to wait after Home Assistant has started. The loop's counters count
    `discovery`: documents that were published or cleared.
    """

    def __init__(
        self,
        loop: Loop,
        describe: Callable[[], Mapping[str, Sequence[Description]] | None] | None,
        page_url: str | None = None,
        pause: Callable[[], float] = lambda: random.uniform(_SOONEST_SECONDS, _LATEST_SECONDS),
    ) -> None:
        super().__init__(loop)
        self._describe = describe
        self._page_url = page_url
        self._pause = pause
        self._platforms_of = loop.store.discovered.all_components()
        self._documents: dict[str, dict[str, Any]] = {}
        self._described: dict[str, Sequence[Description]] = {}
        self._is_stale = True
        self._due_devices: set[str] = set()
        self._is_online: dict[str, bool] = {}
        self._moved_devices: set[str] = set()
        self._cleared_devices: dict[int, str] = {}
        self._publish_at: float | None = None
        self.topics = () if describe is None else (STATUS_TOPIC, topic_of("status", self._fleet, "+"))

    def heard(self, message: Message) -> bool:
        """Note a start of Home Assistant, or a device's status. Return whether the message is on the former's topic."""
        if message.topic != STATUS_TOPIC:
            if self._describe is not None:
                self._note_status(message)
            return False
        if message.payload == b"online" and self._publish_at is None:
            self._publish_at = self._seconds() + self._pause()
        return True

    def _note_status(self, message: Message) -> None:
        with suppress(TopicError, FrameError):  # an unreadable message is counted by the part that stores it
            parsed = message.parsed
            device = parsed.device
            if parsed.kind != "status" or not (self._catalogue.has(device) or self._registered.has(device)):
                return
            status = message.decode(Status)
            if self._is_online.get(parsed.device) != status.online:
                self._is_online[parsed.device] = status.online
                self._moved_devices.add(parsed.device)

    def connected(self, *, begun_anew: bool = False) -> None:
        """Note a new connection, to a broker that may have lost its retained messages."""
        self._moved_devices |= self._is_online.keys()
        self._cleared_devices.clear()
        self._due_devices = {*self._documents, *self._platforms_of}

    def renew(self) -> None:
        """Note that descriptions have changed, or devices have come or gone."""
        self._is_stale = True

    def _make_documents(self) -> None:
        """Make new documents of devices whose descriptions have changed, once there are descriptions."""
        described, old_described, old_documents = {}, self._described, self._documents
        if self._describe is not None:
            if (all_streams := self._describe()) is None:
                return
            described = {device: streams for device, streams in all_streams.items() if streams}
        self._is_stale = False
        changed_devices = {device for device, streams in described.items() if old_described.get(device) != streams}
        self._described = described
        self._documents = {device: old_documents[device] for device in described if device not in changed_devices}
        for device in changed_devices:
            document = device_document(described[device], self._page_url)
            if old_documents.get(device) != document:
                self._due_devices.add(device)
                self._moved_devices |= {device} & self._is_online.keys()
            self._documents[device] = document
        if self._describe is not None:
            self._documents[GATEWAY] = gateway_document(self._fleet, self._page_url)
            if GATEWAY not in old_documents:
                self._due_devices.add(GATEWAY)
        self._due_devices |= self._platforms_of.keys() - self._documents.keys()

    def acknowledged(self, message_id: int, accepted: bool) -> None:
        """Forget a device whose document is cleared. DatabaseError: it is cleared again at the next connection."""
        device = self._cleared_devices.pop(message_id, None)
        if device is not None and accepted and device not in self._documents:
            with self._store.transaction():
                self._store.discovered.forget(device)
            self._platforms_of.pop(device, None)

    def pump(self, *, idle: bool = False) -> None:
        """Publish due documents, and whether devices are online. Raises DatabaseError; a later call tries again."""
        if self._is_stale:
            self._make_documents()
        if self._is_stale:
            return
        if self._publish_at is not None and self._seconds() >= self._publish_at:
            self._publish_at = None
            self._due_devices |= self._documents.keys()
        for device in sorted(self._due_devices):
            if not self._link.connected or not self._publish(device):
                return
            self._due_devices.discard(device)
            self._counters["discovery"] += 1
        for device in sorted(self._moved_devices & self._documents.keys()):
            payload, topic = b"online" if self._is_online[device] else b"offline", available_topic(self._fleet, device)
            if not self._link.connected or self._link.publish(topic, payload, retain=True) is None:
                return
            self._moved_devices.discard(device)

    def _publish(self, device: str) -> bool:
        topic, document = discovery_topic(self._fleet, device), self._documents.get(device)
        if document is None:
            if device != GATEWAY and self._link.publish(available_topic(self._fleet, device), b"", retain=True) is None:
                return False
            if (message_id := self._link.publish(topic, b"", retain=True)) is not None:
                self._cleared_devices[message_id] = device
            return message_id is not None
        platforms = {name: component["platform"] for name, component in document["cmps"].items()}
        all_platforms = self._platforms_of.get(device, {}) | platforms
        if all_platforms != self._platforms_of.get(device):
            with self._store.transaction():  # before publishing, so that the store knows all published components
                self._store.discovered.keep(device, all_platforms)
            self._platforms_of[device] = all_platforms
        removals = {name: {"platform": domain} for name, domain in all_platforms.items() if name not in platforms}
        payload = json.dumps({**document, "cmps": {**document["cmps"], **removals}}, ensure_ascii=False)
        return self._link.publish(topic, payload.encode(), retain=True) is not None
