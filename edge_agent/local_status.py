"""What the agent says of itself on its own device, which `fugu-agent --status` shows.

Here, and not over the network, is where a sensor's troubles are told, since they may depend on what it measures, and
what the watch over a stream's class has found, the owner's own epsilon too, which follows from true states without
noise. So none of it is in a file: the running agent is asked over a socket beside the outbox that only the agent's own
account can open. It tells counts and fixed words, never a reading.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edge_agent.stream import Stream
from fugu.contract.errors import FuguError
from fugu.host.asking import Answering, ask

__all__ = ["NO_USE", "LocalStatus", "LocalStatusError", "ask_status", "described", "told"]


NO_USE = "what came is no number, category or place of its policy"
"""The words for a sensor whose readings are all unusable."""


class LocalStatusError(FuguError):
    """No agent answers."""


class LocalStatus:
    """The agent's end of the socket."""

    def __init__(self, outbox: str | Path) -> None:
        self._asked = Answering(_beside(outbox))

    def answer(self, status: Callable[[], dict[str, Any]]) -> None:
        """Tell those who wait, if anybody does."""
        while self._asked.answer(lambda: json.dumps(status())):
            pass

    def close(self) -> None:
        """Answer nobody any more."""
        self._asked.close()


def ask_status(outbox: str | Path) -> dict[str, Any]:
    """What the running agent that has an outbox says of itself.

    Raises:
        LocalStatusError: none answers.
    """
    path = _beside(outbox)
    try:
        found: dict[str, Any] = json.loads(ask(path) or "")
    except ValueError:
        raise LocalStatusError(
            f"no agent answers at {path}: none runs with this configuration, or another account than yours runs it"
        ) from None
    return found


def told(streams: Sequence[Stream]) -> list[dict[str, Any]]:
    """What an agent says of its streams."""
    return [
        {
            "stream": stream.plan.stream,
            "policy_version": stream.plan.version,
            "next_tick": stream.next_tick,
            "ticks": stream.ticks,
            "silent": stream.silent,
            "unusable": stream.discretiser.unusable,
            "sensor": stream.sensor.trouble,
            "watch": stream.watch.sentence() if stream.watch else "",
            "own_epsilon": stream.watch.own_epsilon if stream.watch else None,
        }
        for stream in streams
    ]


def described(found: dict[str, Any]) -> str:
    """A status as lines for people."""
    link = "connected" if found["connected"] else "not connected"
    lines = [
        f"{found['device']}: {link}, {found['outbox_depth']} frames in the outbox, "
        f"{found['outbox_bytes'] / 1e6:.1f} of {found['max_bytes'] / 1e6:.1f} MB used"
    ]
    if found["codes"]:
        lines.append(f"  trouble: {', '.join(found['codes'])}")
    if found["not_drawn"] or found["dropped"]:
        lines.append(
            f"  since the start {found['not_drawn']} ticks were not drawn for, as the outbox had no room, "
            f"and {found['dropped']} frames were dropped"
        )
    if found["refused"]:
        counts = ", ".join(f"{number} {reason}" for reason, number in sorted(found["refused"].items()))
        lines.append(f"  messages that were of no use: {counts}")
    for stream in found["streams"]:
        lines.append(
            f"  stream {stream['stream']}: policy version {stream['policy_version']}, next tick {stream['next_tick']}; "
            f"{stream['silent']} of {stream['ticks']} ticks without a reading, {stream['unusable']} unusable readings"
        )
        if stream["unusable"] and stream["unusable"] == stream["ticks"] - stream["silent"]:
            lines.append(f"    sensor: {NO_USE}: compare the names in its policy with those of the sensor")
        if stream["sensor"]:
            lines.append(f"    sensor: {stream['sensor']}")
    nothing = "nothing that the guarantee assumes of the readings' chain could be seen to be wrong"
    for stream in found["streams"]:
        lines.append(f"  model watch, stream {stream['stream']}: {stream['watch'] or nothing}")
        if stream["own_epsilon"] is not None:
            lines.append(f"    by your own states of the last day this noise has epsilon {stream['own_epsilon']:.2g}")
    return "\n".join(lines)


def _beside(outbox: str | Path) -> Path:
    return Path(f"{outbox}.socket")
