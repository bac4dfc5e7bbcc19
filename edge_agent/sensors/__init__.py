"""Sources of readings: a recording, lines, a Python function, a command, a local MQTT topic, a pin, a monitor.

A sensor answers `read(tick)` at once and never raises: the moment at which a symbol leaves must not depend on the
reading. Failures are told in fixed words, on the device only: messages of foreign code, and even the types of its
exceptions, may depend on a reading.

The sensor's configuration says what silence means. "samples": a tick without a reading is missing. "changes": a reading
holds until the next, or until the source shows, independently of what it measures, that it does not work.
"""

from __future__ import annotations

from edge_agent.sensors.source import UnavailableError

__all__ = ["UnavailableError"]
