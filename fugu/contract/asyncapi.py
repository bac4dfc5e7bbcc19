"""The protocol as an AsyncAPI 3 document, from the gateway's side: every topic, its readers and its messages."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from pydantic.json_schema import models_json_schema

from fugu.contract._document import FORMAT_NAME
from fugu.contract.descriptions import Description
from fugu.contract.envelope import Envelope, Roots
from fugu.contract.frames import Committed, PolicyStatus, Status, SymbolFrame, WindowFrame
from fugu.contract.group_frames import OpeningAnswer, OpeningKey, OpeningRequest, Report
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.measure_table import TimedTable
from fugu.contract.message import Message, Schema
from fugu.contract.reports import Health, PlaceEstimate, ReleaseFrame, StateEstimate, ValueEstimate, WindowCount
from fugu.contract.topics import ADDRESSES, NAME_PATTERN, Kind

__all__ = ["asyncapi_json"]

_MESSAGES: tuple[type[Message], ...] = (
    *(SymbolFrame, MeasureFrame, WindowFrame, Report, Status, PolicyStatus, Committed, TimedTable, Envelope),
    *(OpeningRequest, Roots),
)
_ENVELOPED: tuple[type[Message], ...] = (OpeningKey, OpeningAnswer)
"""Messages that are payloads of envelopes."""
_JSON_MESSAGES: tuple[type[Any], ...] = (
    *(StateEstimate, PlaceEstimate, ValueEstimate, WindowCount, ReleaseFrame, Health, Description),
)
_MSGPACK, _JSON = "application/x-msgpack", "application/json"
_DESCRIPTION = """\
Private sensor streams over MQTT (5.0, or 3.1.1). Everything is QoS 1: a message may come twice, and out of order.

Payloads of content type application/json are UTF-8 JSON. Those of application/x-msgpack are two msgpack values. The \
first is the schema number, which says which message it is, the second an array of fields; `title` names each. A \
byte string with `x-fugu-packed` holds numbers, the highest bit first: `count` times the `parts` (or as often as they \
fit). Each is a `uint` or `int` of `bits` bits, `times` over. A word there names the field that says how many. \
`x-fugu-readers` are the accounts that may read a topic where there are access lists. Not here is what a gateway says \
to Home Assistant, under homeassistant/, in the words of Home Assistant."""

_PARAMETERS = {
    "fleet": "Name of the fleet",
    "device": "Name of the device",
    "stream": "Name of the stream",
    "audience": "Name of an audience",
    "name": "Name of the release",
    "group": "Name of a group of homes",
}


class _Channel(NamedTuple):
    """A topic: names of its messages and accounts that may read it, separated by spaces, and what it is about."""

    messages: str
    readers: str
    summary: str
    retained: bool = False


_RECEIVED: dict[Kind, _Channel] = {
    "symbols": _Channel(
        "SymbolFrame MeasureFrame", "gateway site", "Randomised symbols, or points of a measured stream"
    ),
    "window": _Channel("WindowFrame", "gateway site", "Noisy counts of states over windows of ticks"),
    "report": _Channel(
        "Report", "gateway", "A home's part of a sum over homes: random numbers for whoever has it alone"
    ),
    "status": _Channel("Status", "gateway operator site", "How a device is; its last will", True),
    "policy_status": _Channel(
        "PolicyStatus", "gateway operator", "Which policy document a device follows, and the newest verdict", True
    ),
    "group_document": _Channel(
        *("Envelope", "device gateway operator"),
        *("What a group counts, and with how much noise; signed by its helper", True),
    ),
    "group_key": _Channel("Envelope", "device", "The key that reports are encrypted to, signed by the helper", True),
    "group_answer": _Channel(
        "Envelope", "gateway", "What the helper adds to a sum, so that it opens; signed by the helper"
    ),
}
"""Topics that the gateway reads."""
_SENT: dict[Kind, _Channel] = {
    "committed": _Channel("Committed", "device", "What is durable and may be forgotten"),
    "table": _Channel(
        *("TimedTable Envelope", "device"),
        "A table for coming ticks of a measured stream; in an envelope, to a device that is enrolled",
    ),
    "policy_set": _Channel("Envelope", "device operator", "Signed policy document that a device is to follow", True),
    "stop": _Channel("Envelope", "device", "Tells a device to draw nothing more, signed", True),
    "root": _Channel("Roots", "device", "The fleet's root documents, one after the other", True),
    "time": _Channel("Envelope", "device", "The time, signed", True),
    "health": _Channel("Health", "operator site", "How the gateway is, and its alarms; its last will", True),
    "description": _Channel(
        *("Description", "gateway site"),
        *("What a stream is, and what it promises; without a gateway, from its device", True),
    ),
    "estimate": _Channel("StateEstimate PlaceEstimate ValueEstimate", "site", "What the gateway believes"),
    "count": _Channel("WindowCount", "site", "A window that a device has counted"),
    "release": _Channel("ReleaseFrame", "audience site", "Noisy statistic of a window", True),
    "group_request": _Channel("OpeningRequest", "helper", "Which homes of a window the site asks the helper to add up"),
}
_CHANNELS = _RECEIVED | _SENT


def asyncapi_document() -> dict[str, Any]:
    """Describe the protocol. The document has no time, address or program version, so only the protocol changes it."""
    msgpack_types = {message.__name__: message.schema() for message in _MESSAGES}
    enveloped_schemas = {message.__name__: message.schema() for message in _ENVELOPED}
    json_types = {message.__name__: _JSON for message in _JSON_MESSAGES}
    content_types = dict.fromkeys(msgpack_types, _MSGPACK) | json_types
    return {
        "asyncapi": "3.0.0",
        "id": "urn:fugu-edge:" + FORMAT_NAME.replace("/", ":"),
        "info": {
            "title": "Fugu Edge",
            "version": FORMAT_NAME.partition("/")[2],
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _JSON,
        "servers": {
            "broker": {
                "host": "{broker}",
                "protocol": "mqtt",
                "description": "The fleet's broker; with TLS and accounts where `fugu deploy broker` has made it.",
                "variables": {"broker": {"default": "127.0.0.1:1883"}},
            }
        },
        "channels": {kind: _channel(kind, _CHANNELS[kind]) for kind in ADDRESSES},
        "operations": dict(_operation(kind, _CHANNELS[kind]) for kind in ADDRESSES),
        "components": {
            "parameters": {
                name: {"description": f"{summary}: {NAME_PATTERN}"} for name, summary in _PARAMETERS.items()
            },
            "messages": {
                name: {"name": name, "contentType": content_type, "payload": {"$ref": f"#/components/schemas/{name}"}}
                for name, content_type in content_types.items()
            },
            "schemas": {**msgpack_types, **enveloped_schemas, **_json_schemas()},
        },
    }


def asyncapi_json() -> str:
    """Write the AsyncAPI document as JSON, as it is shipped."""
    return json.dumps(asyncapi_document(), indent=1, ensure_ascii=False) + "\n"


def _channel(kind: Kind, channel: _Channel) -> Schema:
    address = f"{FORMAT_NAME}/{{fleet}}/{ADDRESSES[kind]}"
    parameters = re.findall("{([a-z]+)}", address)
    return {
        "address": address,
        "title": channel.summary,
        "parameters": {name: {"$ref": f"#/components/parameters/{name}"} for name in parameters},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in channel.messages.split()},
        "x-fugu-readers": channel.readers.split(),
    }


def _operation(kind: Kind, channel: _Channel) -> tuple[str, Schema]:
    action = "receive" if kind in _RECEIVED else "send"
    return f"{action}_{kind}", {
        "action": action,
        "channel": {"$ref": f"#/channels/{kind}"},
        "summary": channel.summary,
        "bindings": {"mqtt": {"qos": 1, "retain": channel.retained, "bindingVersion": "0.2.0"}},
    }


def _json_schemas() -> dict[str, Schema]:
    """Return the schemas of JSON messages and their parts."""
    _, schemas = models_json_schema(
        [(message, "validation") for message in _JSON_MESSAGES], ref_template="#/components/schemas/{model}"
    )
    return {name: _draft_7(schema) for name, schema in schemas["$defs"].items()}


def _draft_7(schema: Any) -> Any:
    """Convert a schema to JSON Schema draft 7, the draft of AsyncAPI, without titles: they only repeat names."""
    if isinstance(schema, list):
        return [_draft_7(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    draft = {name: _draft_7(value) for name, value in schema.items() if name != "title"}
    if "prefixItems" in draft:
        draft["items"] = draft.pop("prefixItems")
    if "oneOf" in draft:
        draft.pop("discriminator", None)  # in AsyncAPI a name only, where this is a mapping; each choice has its `kind`
    return draft
