"""Clears what a removed device has left at the broker; the only part of a deployment that talks to it."""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Sequence

from fugu.mqtt import Broker, Link
from gateway.deployment.units import DeploymentError

__all__ = ["clear_retained"]

_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.1


def clear_retained(broker: Broker, topics: Sequence[str], waiting: Callable[[str], None] = lambda _why: None) -> None:
    """Let the broker forget what is retained on some topics.

    Args:
        broker: its address, with an operator's credentials.
        waiting: told once why, if there has been no connection for 3 seconds.

    Raises:
        LinkError: the credentials cannot be read.
        DeploymentError: the broker cannot be reached, or denies it.
    """
    answers: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
    link = Link(
        broker,
        client_id=f"clear-{secrets.token_hex(6)}",
        on_published=lambda *answer: answers.put(answer),
        on_absent=waiting,
    )
    link.start()
    unsent, sent = set(topics), set[int]()
    deadline = time.monotonic() + _ANSWER_SECONDS
    try:
        while unsent or sent:
            link.maintain()
            for topic in sorted(unsent):
                if (message_id := link.publish(topic, b"", retain=True)) is not None:
                    unsent.discard(topic)
                    sent.add(message_id)
            try:
                message_id, accepted = answers.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if time.monotonic() > deadline or link.last_error.startswith("broker refuses the connection"):
                    raise DeploymentError(link.last_error or "the broker does not answer") from None
                continue
            if not accepted:
                raise DeploymentError(
                    "the broker denies it: these are no operator's credentials, or it has not started anew"
                )
            sent.discard(message_id)
    finally:
        link.stop()
