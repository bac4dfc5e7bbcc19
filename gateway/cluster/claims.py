"""Which parts of a fleet's gateway nobody has: a host on each node looks for them, and a process claims each.

A claim is a lease in the shards' channel, by a session that says something to the server twice a second. When a process
is killed the server closes its session at once; when it is frozen or cut off, its session is silent. So all others see
both long before anything that asks machines how they are.

A claim only says who has a part at present. It keeps nobody from writing: that does the store, whose newest holder has
it. A claim on what a living process has, by mistake, costs that process its part and the devices a few seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from fugu.host.database import DatabaseError
from fugu.host.held_files import FileLostError
from gateway.database import Lease
from gateway.database.postgresql import PostgresDatabase
from gateway.location import Server
from gateway.service.shard_channel import KIND

__all__ = ["Claim", "Vacancies"]

_log = logging.getLogger(__name__)
_SAY_SECONDS = 0.5
_SILENT_SECONDS = 5.0
_SURE_SECONDS = 2.0
_AGAIN_SECONDS = 7.0
"""More than what a gateway waits at most before it tries again to reach a server that was away."""


class Vacancies:
    """Looks for parts that nobody has; one thread uses it.

    A part is vacant if nobody has a claim on it, or who has one says nothing, at every look for two seconds. After the
    server was away all sessions are gone, also of those that live: then nothing is vacant for a while.

    Args:
        channel: of the fleet's shards.
        parts: their names.

    Raises:
        FuguError: the channel cannot be opened.
    """

    def __init__(self, channel: Server, parts: Sequence[str]) -> None:
        self._parts = parts
        self._db = PostgresDatabase(channel, KIND, create=True)
        self._since: dict[str, float] = {}
        self._not_before = float("-inf")

    def close(self) -> None:
        """Look no more."""
        self._db.close()

    def look(self, now: float, more: float = 0.0) -> list[str]:
        """Look once; the parts that are vacant.

        Args:
            now: seconds of a steady clock, from before the call.
            more: seconds for which they must have been vacant.
        """
        try:
            silence = self._db.silence([_lease_of(part).name for part in self._parts])
        except DatabaseError:
            self._since, self._not_before = {}, now + _AGAIN_SECONDS
            return []
        quiet = [part for part in self._parts if silence.get(_lease_of(part).name, _SILENT_SECONDS) >= _SILENT_SECONDS]
        self._since = {part: self._since.get(part, now) for part in quiet}
        return [part for part in quiet if now - self._since[part] >= _SURE_SECONDS + more and now >= self._not_before]


class Claim:
    """That this process has a part, until it is closed or the process ends.

    Args:
        channel: of the fleet's shards.
        part: its name.

    Raises:
        ShardChannelError: another process has it and says so, or the server is away.
    """

    def __init__(self, channel: Server, part: str) -> None:
        self.part = part
        self._db = PostgresDatabase(channel, KIND, create=True, lease=_lease_of(part))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._say, name="claim", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give it back."""
        self._ending.set()
        self._thread.join()
        self._db.close()

    def _say(self) -> None:
        while not self._ending.wait(_SAY_SECONDS):
            try:
                self._db.check()
            except FileLostError:
                _log.warning("another process has claimed %s", self.part)
                return
            except DatabaseError:
                continue  # it says so again when there is a connection


def _lease_of(part: str) -> Lease:
    return Lease(f"part {part}", silent=_SILENT_SECONDS)
