"""Hearing some topics for some time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fugu.mqtt.broker import Broker, LinkError
from fugu.mqtt.link import Link

__all__ = ["listen"]

_CONNECT_SECONDS = 60.0
_LOOK_SECONDS = 0.05


def listen(broker: Broker, topics: Sequence[str], seconds: float) -> list[tuple[str, bytes]]:
    """What is published on some topics.

    Args:
        seconds: for how long, from when the broker has answered for all topics.

    Returns:
        Topics and payloads, in order.

    Raises:
        LinkError: there was no connection within a minute, it was lost, or the broker has refused something.
    """
    heard: list[tuple[str, bytes]] = []
    link = Link(
        broker,
        f"audit-{time.time_ns()}",
        tuple(topics),
        on_message=lambda topic, payload, _retained: heard.append((topic, payload)),
    )
    link.start()
    try:
        end = time.monotonic() + _CONNECT_SECONDS
        while not link.subscribed and time.monotonic() < end:
            link.maintain()
            time.sleep(_LOOK_SECONDS)
        end = time.monotonic() + seconds
        while link.subscribed and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
        if not link.subscribed or link.last_error:
            raise LinkError(link.last_error or f"no connection to {broker.address}")
    finally:
        link.stop()
    return heard
