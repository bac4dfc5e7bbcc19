"""What streams say of themselves: a few versions of each, within bounds that no broker can exceed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fugu.contract.descriptions import DescribedVersion, Description, decode_description
from fugu.contract.errors import FrameLengthError, TopicError

__all__ = ["Descriptions"]

VERSIONS = 4
"""Of a stream: frames of an older version may still come when a new one is described."""
MOST_STREAMS = 1024
MOST_BYTES = 1 << 24
"""Of all messages together; what they decode to takes several times as much."""


class _Entry(NamedTuple):
    """Of a version that came with another's message, `payload` is empty: its bytes are counted there."""

    description: DescribedVersion
    payload: bytes


class Descriptions:
    """The newest descriptions of each stream; the last to come is in force.

    A description that is withdrawn takes all of them with it.
    """

    def __init__(self) -> None:
        self._in_force: dict[tuple[str, str], Description] = {}
        self._streams: dict[tuple[str, str], dict[int, _Entry]] = {}
        self._bytes = 0

    def __iter__(self) -> Iterator[Description]:
        """The description in force of each stream: the one that came last, also after a rollback."""
        return iter([*self._in_force.values()])

    def of(self, device: str, stream: str, version: int) -> DescribedVersion | None:
        """The description of a stream under a version of its policy, if it is known."""
        entry = self._streams.get((device, stream), {}).get(version)
        return entry.description if entry else None

    def take(self, fleet: str, device: str, stream: str, payload: bytes) -> Description | None:
        """Store a message on a stream's topic.

        Returns:
            The description, if it says something new; none for one that was withdrawn, or is in force already.

        Raises:
            FrameError: it is no valid description, or too much is stored already.
            TopicError: it is another stream's.
        """
        versions = self._streams.get((device, stream), {})
        if not payload:
            self._bytes -= sum(len(entry.payload) for entry in versions.values())
            self._streams.pop((device, stream), None)
            self._in_force.pop((device, stream), None)
            return None
        if versions and [*versions.values()][-1].payload == payload:
            return None
        described = decode_description(payload)
        if (described.fleet, described.device, described.stream) != (fleet, device, stream):
            raise TopicError(f"a description of {described.device}/{described.stream} under {device}/{stream}")
        others = versions | {one.version: _Entry(one, b"") for one in described.others}
        others.pop(described.version, None)
        following = others | {described.version: _Entry(described, payload)}
        for version in [*following][:-VERSIONS]:
            del following[version]
        grown = sum(len(entry.payload) for entry in following.values())
        grown -= sum(len(entry.payload) for entry in versions.values())
        if (not versions and len(self._streams) >= MOST_STREAMS) or self._bytes + grown > MOST_BYTES:
            raise FrameLengthError("more descriptions than are remembered")
        self._bytes += grown
        self._streams[device, stream] = following
        self._in_force[device, stream] = described
        return described
