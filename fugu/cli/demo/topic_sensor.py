"""The sensor of a plan on a live topic: it treats silence as the recording did, and finds the recording's column."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fugu.host.payload import quoted_key
from fugu.host.toml_file import toml_lines

if TYPE_CHECKING:
    from edge_agent.config_schema import Mqtt
    from fugu.library.plans import Plan

__all__ = ["column_path", "topic_sensor"]

_NO_KEY = re.compile(r"_?value|state|[a-z_]+\.[a-z0-9_]+", re.IGNORECASE)
"""Names of columns that are no keys of a payload: a usual name, or an entity of Home Assistant."""


def topic_sensor(plan: Plan, topic: Mqtt) -> list[str]:
    """Lines of `[streams.sensor]`, in TOML, for a topic whose readings are like those of the plan's recording."""
    readings = getattr(plan.details, "readings", None)
    silence = "changes" if readings is not None and readings.changes else "samples"
    return toml_lines(topic.model_dump(exclude_defaults=True) | {"silence": silence})


def column_path(column: str) -> str | None:
    """The path in a payload that a column is named after, if it is named after one."""
    return None if _NO_KEY.fullmatch(column) else ",".join(map(quoted_key, column.split(",")))
