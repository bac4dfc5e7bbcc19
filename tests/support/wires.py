"""A connection without a broker."""

from __future__ import annotations

__all__ = ["Wire"]


class Wire:
    """Takes everything while it is `connected`; `sent` is what was published."""

    def __init__(self, breaks_after: int | None = None) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.connected, self.breaks_after = True, breaks_after

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        del retain
        if self.breaks_after is not None:
            self.connected = len(self.sent) < self.breaks_after
        if not self.connected:
            return None
        self.sent.append((topic, payload))
        return len(self.sent)

    def mend(self) -> None:
        """Be connected again, and break no more."""
        self.connected, self.breaks_after = True, None
