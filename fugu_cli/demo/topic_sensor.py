"""The sensor of a plan on a live topic, with the recording's column and its treatment of silence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fugu.host.payload import quoted_key
from fugu.host.toml_file import toml_lines
from fugu.planning.auto_places import PlacePlan
from fugu.recordings.forms.mqtt_log import LOG

if TYPE_CHECKING:
    from edge_agent.config_schema import Mqtt
    from fugu.library.plans import Plan

__all__ = ["column_path", "topic_of_recording", "topic_sensor"]

_NO_KEY = {"value", "_value", "state", "payload"}
"""Usual names of columns that are no keys of a payload."""
_KEY = re.compile(r"[^\W\d][^\s.,\"]*(\.[^\s.,\"]+)*")
"""Names that may be paths; a name of digits and dots is a key."""
_USUAL = "zigbee2mqtt/sensor"


def topic_sensor(plan: Plan, sensor: Mqtt) -> list[str]:
    """Return the TOML lines of `[streams.sensor]` for a topic with readings like those of the plan's recording."""
    readings = getattr(plan.details, "readings", None)
    silence = "changes" if readings is not None and readings.changes else "samples"
    codes = readings.facts[0].codes if readings is not None and readings.facts else ()
    missing_values = {"missing_values": list(codes)} if codes else {}
    return toml_lines(sensor.model_dump(exclude_defaults=True) | {"silence": silence} | missing_values)


def topic_of_recording(plan: Plan) -> tuple[str, str | None]:
    """Return the topic and the path of readings in an MQTT log; for other forms a usual topic and the column's path.

    The path is None if the whole payload is the reading.
    """
    details = plan.details
    if isinstance(details, PlacePlan):
        return _USUAL, ",".join(column_path(name) or name for name in details.traces.columns)
    readings = details.readings
    facts = readings.facts[0] if readings.facts else None
    column = readings.column if facts is None else facts.column
    if facts is not None and facts.form == LOG:
        return dict(facts.only).get("topic", readings.column), None if column == "payload" else column
    return _USUAL, column_path(column)


def column_path(column: str) -> str | None:
    """Return the path in a payload that a column's name gives; None if the column has a usual name."""
    if column.lower() in _NO_KEY:
        return None
    return column if _KEY.fullmatch(column) else quoted_key(column)
