"""What the agent says of itself on its own device: a small file beside the outbox, which `fugu-agent --status` shows.

Here, and not over the network, is where a sensor's troubles are told, since they may depend on what it measures. The
file holds counts and fixed words, never a reading.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import FuguError, StatusCode
from edge_agent.stream import Stream

__all__ = ["LocalStatus", "LocalStatusError", "show_status"]


class LocalStatusError(FuguError):
    """There is no local status, or it cannot be read."""


class LocalStatus:
    """The file that an agent writes.

    Args:
        device: `fleet/device`.
    """

    def __init__(self, outbox: str | Path, device: str) -> None:
        self._path = _beside(outbox)
        self._device = device

    def write(
        self,
        now: float,
        *,
        connected: bool,
        depth: int,
        codes: Sequence[StatusCode],
        refused: Mapping[str, int],
        streams: Sequence[Stream],
    ) -> None:
        """Replace the file as a whole; a disk that does not take it changes nothing.

        Args:
            now: Unix time in seconds.
            codes: the troubles that the published status names.
            refused: messages that were of no use, by reason.
        """
        document = {
            "device": self._device,
            "written": round(now),
            "connected": connected,
            "outbox_depth": depth,
            "codes": list(codes),
            "refused": dict(refused),
            "streams": [
                {
                    "stream": stream.plan.stream,
                    "policy_version": stream.plan.version,
                    "next_tick": stream.next_tick,
                    "ticks": stream.ticks,
                    "silent": stream.silent,
                    "unusable": stream.discretiser.unusable,
                    "sensor": stream.sensor.trouble,
                }
                for stream in streams
            ],
        }
        beside = self._path.with_name(self._path.name + ".new")
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(document), encoding="utf-8")
            beside.replace(self._path)


def show_status(outbox: str | Path, now: float) -> str:
    """The local status of the agent that has an outbox, as lines for people.

    Args:
        now: Unix time in seconds.

    Raises:
        LocalStatusError: there is none.
    """
    path = _beside(outbox)
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return "\n".join(_lines(found, now))
    except OSError as error:
        raise LocalStatusError(
            f"cannot read {path}: {error.strerror}; an agent writes it while it runs, with the outbox"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise LocalStatusError(f"{path} is damaged; the agent replaces it while it runs") from None


def _lines(found: dict[str, Any], now: float) -> list[str]:
    link = "connected" if found["connected"] else "not connected"
    age = max(0, round(now - found["written"]))
    lines = [f"{found['device']}: {age} s ago {link}, {found['outbox_depth']} frames in the outbox"]
    if found["codes"]:
        lines.append(f"  trouble: {', '.join(found['codes'])}")
    if found["refused"]:
        counts = ", ".join(f"{number} {reason}" for reason, number in sorted(found["refused"].items()))
        lines.append(f"  messages that were of no use: {counts}")
    for stream in found["streams"]:
        lines.append(
            f"  stream {stream['stream']}: policy version {stream['policy_version']}, next tick {stream['next_tick']}; "
            f"{stream['silent']} of {stream['ticks']} ticks without a reading, {stream['unusable']} unusable readings"
        )
        if stream["sensor"]:
            lines.append(f"    sensor: {stream['sensor']}")
    return lines


def _beside(outbox: str | Path) -> Path:
    return Path(f"{outbox}.status")
