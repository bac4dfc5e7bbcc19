"""Hearing some topics for some time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mqtt_link.broker import Broker, LinkError
from mqtt_link.link import Link

__all__ = ["listen"]


def listen(broker: Broker, topics: Sequence[str], seconds: float) -> list[tuple[str, bytes]]:
    """What is published on some topics.

    Args:
        seconds: for how long.

    Returns:
        Topics and payloads, in order.

    Raises:
        LinkError: there was no connection, or the broker has refused something.
    """
    heard: list[tuple[str, bytes]] = []
    connected: list[bool] = []
    link = Link(
        broker,
        f"audit-{time.time_ns()}",
        tuple(topics),
        on_message=lambda topic, payload, _retained: heard.append((topic, payload)),
        on_connected=lambda: connected.append(True),
    )
    link.start()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        link.maintain()
        time.sleep(min(left, 0.2))
    link.stop()
    if not connected or link.last_error:
        raise LinkError(link.last_error or f"no connection to {broker.host}:{broker.port}")
    return heard
