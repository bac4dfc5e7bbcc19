"""Home Assistant: one retained discovery document for each device, made from the descriptions of its streams.

Home Assistant evaluates a document's templates on what is published of a stream. Names of states may be any text. In
templates they are literals of letters, digits and escapes only, so that none can become a part of a template. A share
is shown with the interval that it is in; a likely state only of a stream that its plan calls useful for that.

Documents are published again whenever Home Assistant starts. The store knows them, so that they are taken back with the
device, or when discovery is switched off. A document names components that are gone: so Home Assistant removes a single
one.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from fugu.contract.descriptions import Description
from fugu.contract.errors import FrameError, TopicError
from fugu.contract.frames import Status
from fugu.contract.sentences import promised_words
from fugu.contract.stretches import STRETCHES, Stretch
from fugu.contract.topics import available_topic, discovery_topic, topic_of
from fugu.mqtt import Link
from gateway.parts import Message, Part

if TYPE_CHECKING:
    from gateway.store.store import Store

__all__ = ["HomeAssistant"]

STATUS_TOPIC = "homeassistant/status"
"""On which Home Assistant says `online` when it has started."""
LIKELY = 0.8
"""A state is unknown where its probability is below this."""
MOST_STATES = 16
"""Of streams with more states no shares are shown, but for those of sets of them."""
GATEWAY = "health"
"""Name of the gateway's document; no device can have it."""

Component = dict[str, Any]
_MOST_NAMED = 3
_MISSED = 3
"""A value expires when so many of its messages have not come."""
_LEAST_SECONDS = 60
_CLASSES = {"home": "presence", "open": "opening", "occupied": "occupancy"}
_ON = frozenset({"on", "true", "yes", "detected", "active", *_CLASSES})


def gateway_document(fleet: str, page_url: str | None = None) -> dict[str, Any]:
    """The document of the gateway itself: whether it has an alarm."""
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


def device_document(streams: Iterable[Description], page_url: str | None = None) -> dict[str, Any]:
    """The document of a device, from at least one description of a stream."""
    every = list(streams)
    components = {
        f"{stream.stream}.{name}": component for stream in every for name, component in _components(stream).items()
    }
    if page_url is not None and page_url.startswith("http"):  # a page inside Home Assistant has no address for each
        page_url = f"{page_url.rstrip('/')}/device/{every[0].device}"
    document = _document(every[0].fleet, every[0].device, every[0].device, components, page_url)
    document["availability"].append({"topic": available_topic(every[0].fleet, every[0].device)})
    return document


def _document(
    fleet: str, device: str, name: str, components: Mapping[str, Component], page_url: str | None
) -> dict[str, Any]:
    about: dict[str, Any] = {"identifiers": [_unique(fleet, device)], "name": name, "manufacturer": "Fugu Edge"}
    if page_url is not None:
        about["configuration_url"] = page_url
    if device != GATEWAY:
        about["via_device"] = _unique(fleet, GATEWAY)
    for key, component in components.items():
        domain = component["platform"]
        component["unique_id"] = f"{_unique(fleet, device)}.{key}"
        component["default_entity_id"] = f"{domain}.{_slug(fleet)}_{_slug(device)}_{_slug(key)}"
    return {
        "dev": about,
        "o": {"name": "fugu-edge", "sw_version": _version("fugu-edge")},
        "availability": [
            {"topic": topic_of("health", fleet), "value_template": "{{ 'online' if value_json.online else 'offline' }}"}
        ],
        "availability_mode": "all",
        "qos": 1,
        "cmps": dict(components),
    }


_WHEN = ("guarantee.since", "guarantee.until", "guarantee.outside")


_MOST_SURE = (
    "{% if value_json.guarantee.epsilon is number %}"
    "{{ (100 / (1 + 2.718281828 ** (0 - value_json.guarantee.epsilon))) | round(1, 'ceil') }}"
    "{% else %}100.0{% endif %}"
)
"""How sure anybody becomes of a secret that was as likely as not, in per cent."""


_version = cache(version)


def _components(description: Description) -> dict[str, Component]:
    """Entities about a tick or a stretch, with its protection in words; and their values."""
    ticks = description.guarantee.stretch_ticks
    seconds = dict(STRETCHES)
    rows = [
        Stretch(row.name, row.ticks, math.inf if row.epsilon is None else row.epsilon, row.floor, seconds.get(row.name))
        for row in description.guarantee.stretches
    ]
    words = promised_words(description.guarantee.epsilon, ticks, rows)
    promise = "; ".join([words, *(shared.condition for shared in description.sums)])
    components = {
        "privacy": _entity(
            *("sensor", f"{description.stream} privacy", _topic("description", description), _MOST_SURE),
            {"promise": _literal(promise)}
            | _members("guarantee.epsilon", "guarantee.adversary", "confirmed", "protects", "does_not_protect", *_WHEN),
            unit_of_measurement="%",
            entity_category="diagnostic",
            icon="mdi:shield-lock-outline",
        )
    }
    if description.kind == "points":
        return components | _points(description)
    if description.windows or description.kind != "windows":  # of sums of homes a device says nothing by itself
        components |= _counted(description) if description.windows else _estimated(description)
    if description.useful_for == "state" and description.kind != "windows" and len(description.states) == 2:
        components["state"] = _state(description)
    return components


def _topic(kind: Literal["description", "count", "estimate"], description: Description) -> str:
    return topic_of(kind, description.fleet, description.device, description.stream)


def _entity(
    platform: str, name: str, topic: str, value: str, attributes: Mapping[str, str] | None = None, **more: object
) -> Component:
    """Show what a template makes of the messages on a topic, and as attributes what expressions do."""
    entity = {"platform": platform, "name": name, **({"state_topic": topic, "value_template": value} if value else {})}
    if attributes:
        pairs = ", ".join(f"'{key}': {expression}" for key, expression in attributes.items())
        entity |= {"json_attributes_topic": topic, "json_attributes_template": f"{{{{ {{{pairs}}} | tojson }}}}"}
    return entity | more


def _members(*names: str) -> dict[str, str]:
    """Members of a message as attributes, each under its last name."""
    return {name.rpartition(".")[2]: f"value_json.{name}" for name in names}


def _number(
    name: str, topic: str, value: str, attributes: Mapping[str, str] | None, seconds: float, unit: str
) -> Component:
    return _entity(
        *("sensor", name, topic, value, attributes),
        unit_of_measurement=unit,
        state_class="measurement",
        suggested_display_precision=1,
        expire_after=_expires(seconds),
        icon="mdi:chart-donut" if unit == "%" else "mdi:counter",
    )


def _counted(description: Description) -> dict[str, Component]:
    topic, single, components = _topic("count", description), len(description.windows) == 1, {}
    for window in description.windows:
        if window.query.each:
            every = {f".{index}": (f"_{label}", label) for index, label in _shown_states(description.states)}
        else:
            states, *others = window.groups(description.states)
            of = " or ".join(states) if len(states) <= _MOST_NAMED else f"{len(states)} states"
            every = {"": ("", of)}
            if others:  # of a profile, whose blocks have equal parts of the day
                names = window.named(description.states)
                every = {f".{index}": (f"_{name}", f"{of} {name}") for index, name in enumerate(names)}
        parts = f" * {len(every)}" if window.blocks else ""
        number = _useful(f"(100 * {{}}{parts} / value_json.observed) | round(2)")
        for key, (ending, of) in every.items():
            members = {name: _member(f"{name}{ending}") for name in ("value", "low", "high")}
            numbers = {name: number.format(member) for name, member in members.items()}
            ours = f"value_json.window == {_literal(window.name)} and {members['value']} is defined"
            value = f"{{% if {ours} %}}{{{{ {numbers.pop('value')} }}}}{{% endif %}}"
            of += "" if single else f" ({window.name})"
            # With several windows the messages of another would have no such attributes.
            attributes = numbers | _members("confidence", "since", "time", "useful") if single else None
            name, unit = f"share of {of}", "%"
            seconds = window.stride * description.period_seconds
            sensor = _number(f"{description.stream} {name}", topic, value, attributes, seconds, unit)
            components[f"window.{window.name}{key}"] = sensor
    return components


def _estimated(description: Description) -> dict[str, Component]:
    topic, attributes = _topic("estimate", description), _members("since", "time", "useful")
    components = {}
    for index, label in _shown_states(description.states):
        member = _member(f"share_{label}")
        share = _useful(f"(100 * {member}) | round(2)")
        value = f"{{% if {member} is defined %}}{{{{ {share} }}}}{{% endif %}}"
        name, seconds = f"{description.stream} share of {label}", description.frame_ticks * description.period_seconds
        components[f"share.{index}"] = _number(name, topic, value, attributes, seconds, "%")
    return components


def _state(description: Description) -> Component:
    label = description.states[_on_state(description.states)]
    state = _entity(
        *("binary_sensor", f"{description.stream} {label}", _topic("estimate", description)),
        f"{{% if value_json.probability >= {LIKELY} %}}"
        f"{{{{ 'ON' if value_json.state == {_literal(label)} else 'OFF' }}}}{{% else %}}None{{% endif %}}",
        expire_after=_expires(description.frame_ticks * description.period_seconds),
    )
    device_class = _CLASSES.get(label.casefold())  # which has an icon of its own
    return state | ({"device_class": device_class} if device_class else {"icon": "mdi:eye-outline"})


def _points(description: Description) -> dict[str, Component]:
    """A place on the map, with how far off it can be; or a value, with the interval that it is in."""
    topic = _topic("estimate", description)
    if description.place is not None:
        attributes = _members("time", "useful") | {"gps_accuracy": "value_json.accuracy"}
        attributes |= {name: _useful(f"value_json.{name}") for name in ("latitude", "longitude")}
        more = {"source_type": "gps", "icon": "mdi:map-marker-radius"}
        return {"place": _entity("device_tracker", description.stream, topic, "", attributes, **more)}
    value = _entity(
        *("sensor", description.stream, topic, "{% if value_json.value is defined %}{{ value_json.value }}{% endif %}"),
        _members("low", "high", "time", "useful"),
        state_class="measurement",
        expire_after=_expires(description.frame_ticks * description.period_seconds),
        icon="mdi:chart-bell-curve",
        **({"unit_of_measurement": description.unit} if description.unit else {}),
    )
    return {"value": value}


def _useful(value: str) -> str:
    """A value that is unknown where the plan found it no better than a guess."""
    return f"{value} if value_json.useful else None"


def _shown_states(states: tuple[str, ...]) -> list[tuple[int, str]]:
    """The states whose shares are shown, with their numbers: of two the one that is on, of too many none."""
    every = list(enumerate(states))
    return every[_on_state(states) :][:1] if len(states) == 2 else every if len(states) <= MOST_STATES else []


def _on_state(states: tuple[str, ...]) -> int:
    """Which of two states is the one that is on; the second, unless names say otherwise."""
    return next((index for index, label in enumerate(states) if label.casefold() in _ON), 1)


def _expires(seconds: float) -> int:
    """Seconds after which a value is none any more, if a message comes every so many."""
    return max(_LEAST_SECONDS, math.ceil(_MISSED * seconds))


def _member(key: str) -> str:
    return f"value_json[{_literal(key)}]"


def _literal(text: str) -> str:
    """Any text in a template; everything but letters and digits is escaped."""
    return "'" + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text) + "'"


def _unique(fleet: str, device: str) -> str:
    return f"fugu.{fleet}.{device}"


def _slug(text: str) -> str:
    return re.sub("[^a-z0-9]+", "_", text.lower()).strip("_") or "_"


_SOONEST_SECONDS, _LATEST_SECONDS = 1.0, 10.0
"""After a start of Home Assistant everybody who has something to say waits for a moment of their own."""


class HomeAssistant(Part):
    """Used by the gateway's worker; `pause` is seconds to wait after Home Assistant has started.

    `describe` gives the descriptions of each device's streams, or `None` as long as there are none; without it,
    whatever was published before is taken back. It is asked in the `pump` after a `renew`, and documents are made of
    devices whose descriptions are others.
    `counters` counts `discovery`: documents that were published or taken back. `knows` is whether a device may get one.
    """

    def __init__(
        self,
        fleet: str,
        link: Link,
        store: Store,
        describe: Callable[[], Mapping[str, Sequence[Description]] | None] | None,
        counters: Counter[str],
        *,
        page_url: str | None = None,
        seconds: Callable[[], float] = time.monotonic,
        pause: Callable[[], float] = lambda: random.uniform(_SOONEST_SECONDS, _LATEST_SECONDS),
        knows: Callable[[str], bool] = lambda _device: True,
    ) -> None:
        self._fleet = fleet
        self._link = link
        self._store = store
        self._describe = describe
        self._counters = counters
        self._page_url = page_url
        self._seconds = seconds
        self._pause = pause
        self._knows = knows
        self._known = store.discovered.every()
        self._documents: dict[str, dict[str, Any]] = {}
        self._described: dict[str, Sequence[Description]] = {}
        self._stale = True
        self._due: set[str] = set()
        self._online: dict[str, bool] = {}
        self._moved: set[str] = set()
        self._clearing: dict[int, str] = {}
        self._again_at: float | None = None
        self.topics = () if describe is None else (STATUS_TOPIC, topic_of("status", fleet, "+"))

    def heard(self, message: Message) -> bool:
        """Take note of a start of Home Assistant, or of a device; whether the message was for nobody else."""
        if message.topic != STATUS_TOPIC:
            if self._describe is not None:
                self._seen(message)
            return False
        if message.payload == b"online" and self._again_at is None:
            self._again_at = self._seconds() + self._pause()
        return True

    def _seen(self, message: Message) -> None:
        with suppress(TopicError, FrameError):  # whoever stores it counts what cannot be read
            parsed = message.parsed
            if parsed.kind != "status" or not self._knows(parsed.device):
                return
            status = message.words(Status)
            if self._online.get(parsed.device) != status.online:
                self._online[parsed.device] = status.online
                self._moved.add(parsed.device)

    def connected(self, *, begun_anew: bool = False) -> None:
        """Note a new connection, to a broker that may have lost what it had."""
        self._moved |= self._online.keys()
        self._clearing.clear()
        self._due = {*self._documents, *self._known}

    def renew(self) -> None:
        """Note that descriptions are others, or devices have come or gone."""
        self._stale = True

    def _look(self) -> None:
        """Make the documents of devices whose descriptions are others, once there are descriptions."""
        described, before, documents = {}, self._described, self._documents
        if self._describe is not None:
            if (every := self._describe()) is None:
                return
            described = {device: streams for device, streams in every.items() if streams}
        self._stale = False
        changed = {device for device, streams in described.items() if before.get(device) != streams}
        self._described = described
        self._documents = {device: documents[device] for device in described if device not in changed}
        for device in changed:
            document = device_document(described[device], self._page_url)
            if documents.get(device) != document:
                self._due.add(device)
                self._moved |= {device} & self._online.keys()
            self._documents[device] = document
        if self._describe is not None:
            self._documents[GATEWAY] = gateway_document(self._fleet, self._page_url)
            if GATEWAY not in documents:
                self._due.add(GATEWAY)
        self._due |= self._known.keys() - self._documents.keys()

    def acknowledged(self, message_id: int, accepted: bool) -> None:
        """Take the broker's answer. Raises DatabaseError; the store is asked again with the next connection."""
        device = self._clearing.pop(message_id, None)
        if device is not None and accepted and device not in self._documents:
            with self._store.transaction():
                self._store.discovered.forget(device)
            self._known.pop(device, None)

    def pump(self, *, idle: bool = False) -> None:
        """Publish what is due. Raises DatabaseError if the store cannot be used; it is tried again."""
        if self._stale:
            self._look()
        if self._stale:
            return
        if self._again_at is not None and self._seconds() >= self._again_at:
            self._again_at = None
            self._due |= self._documents.keys()
        for device in sorted(self._due):
            if not self._link.connected or not self._publish(device):
                return
            self._due.discard(device)
            self._counters["discovery"] += 1
        for device in sorted(self._moved & self._documents.keys()):
            state, topic = b"online" if self._online[device] else b"offline", available_topic(self._fleet, device)
            if not self._link.connected or self._link.publish(topic, state, retain=True) is None:
                return
            self._moved.discard(device)

    def _publish(self, device: str) -> bool:
        topic, document = discovery_topic(self._fleet, device), self._documents.get(device)
        if document is None:
            if device != GATEWAY and self._link.publish(available_topic(self._fleet, device), b"", retain=True) is None:
                return False
            if (message_id := self._link.publish(topic, b"", retain=True)) is not None:
                self._clearing[message_id] = device
            return message_id is not None
        components = {name: component["platform"] for name, component in document["cmps"].items()}
        every = self._known.get(device, {}) | components
        if every != self._known.get(device):
            with self._store.transaction():  # first, so that nothing is published that is not stored
                self._store.discovered.keep(device, every)
            self._known[device] = every
        gone = {name: {"platform": platform} for name, platform in every.items() if name not in components}
        payload = json.dumps({**document, "cmps": {**document["cmps"], **gone}}, ensure_ascii=False)
        return self._link.publish(topic, payload.encode(), retain=True) is not None
