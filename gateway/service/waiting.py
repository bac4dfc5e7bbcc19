"""Which frames are reported next: the newest of every stream in turn.

A live subscriber needs what is newest, and none of them should wait for a device that sends much. So streams take
turns, each with the newest frames that wait, as many as fit its share, at most `MOST_WAITING`. Older ones are not
reported any more: they are in the store, for whoever asks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.service.store import Outgoing

__all__ = ["Waiting"]

MOST_WAITING = 32
"""Frames of one sequence that wait, at most."""


@dataclass
class _Line:
    """One sequence of frames: whose it is, and the serials of what waits, by frame."""

    of: Outgoing
    serials: dict[int, int] = field(default_factory=dict)


class Waiting:
    """What waits, by sequence; the store has the same."""

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}

    def __len__(self) -> int:
        return sum(len(line.serials) for line in self._lines.values())

    def put(self, outgoing: Outgoing) -> int | None:
        """Add one, in place of what waits of the same frame.

        Returns:
            The serial of one that is not published any more, if there are too many of its sequence.
        """
        line = self._lines.setdefault(outgoing.stream_id, _Line(outgoing))
        line.serials[outgoing.frame] = outgoing.serial
        return line.serials.pop(min(line.serials)) if len(line.serials) > MOST_WAITING else None

    def take(self, capacity: int) -> tuple[list[Outgoing], list[int]]:
        """Remove so many, the newest of each sequence in turn; those of one sequence in their order.

        Returns:
            Them, and the serials of those that are not published any more, because newer ones of their sequence are.
        """
        taken: list[Outgoing] = []
        overtaken: list[int] = []
        share = max(1, capacity // max(1, len(self._lines)))
        while self._lines and (left := capacity - len(taken)) > 0:
            line = self._lines.pop(next(iter(self._lines)))
            frames = sorted(line.serials)
            newest = frames[-min(share, left) :]
            taken += [line.of._replace(serial=line.serials.pop(frame), frame=frame) for frame in newest]
            overtaken += line.serials.values()
        return taken, overtaken
