"""The page's connections: no number of silent ones keeps others from being answered.

A connection is a stranger until it has asked with a session; a page without a login knows all who ask. Strangers have a
deadline for the head of each request, which begins before TLS does. An address may have so many of them, and all
together so many: an older one gives way to a new one. A connection of a session gives way to none.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gateway.page.login import network_of

__all__ = ["Connections"]

HEAD_SECONDS = 10.0
MOST_OF_NETWORK, MOST_STRANGERS, MOST_MEMBERS = 64, 256, 256
"""Together with what else is open, below the 1024 files that a process may usually have."""


class Connections(socket.socket):
    """The listening socket of an event loop's server: it takes the place of the one that it is made of."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(fileno=listener.detach())
        self._open: dict[tuple[str, int], _Connection] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; if its address, or all together, have too many, the oldest of them ends."""
        accepted_socket, address = super().accept()
        peer, network = address[:2], network_of(address[0])
        strangers = [other for other in self._open.values() if not other.is_signed_in]
        candidates = [stranger for stranger in strangers if stranger.network == network]
        if len(candidates) < MOST_OF_NETWORK and len(strangers) >= MOST_STRANGERS:
            ((largest_network, _),) = Counter(stranger.network for stranger in strangers).most_common(1)
            candidates = [stranger for stranger in strangers if stranger.network == largest_network]
        if len(candidates) >= MOST_OF_NETWORK or len(strangers) >= MOST_STRANGERS:
            candidates[0].end()
        self._open[peer] = connection = _Connection(accepted_socket, self._open, peer, network)
        return connection, address

    @contextmanager
    def answering(self, peer: tuple[str, int], *, is_signed_in: bool) -> Iterator[None]:
        """Answer a request of a peer while the context lasts; then the deadline of the next one's head begins."""
        if (connection := self._open.get(peer)) is None:  # it has been ended
            yield
            return
        if is_signed_in and not connection.is_signed_in:
            connection.is_signed_in = sum(other.is_signed_in for other in self._open.values()) < MOST_MEMBERS
        connection.count_request(1)
        try:
            yield
        finally:
            connection.count_request(-1)


class _Connection(socket.socket):
    def __init__(
        self,
        accepted_socket: socket.socket,
        connections: dict[tuple[str, int], _Connection],
        peer: tuple[str, int],
        network: str,
    ) -> None:
        super().__init__(fileno=accepted_socket.detach())
        self.is_signed_in = False
        self.network = network
        self._connections = connections
        self._peer = peer
        self._requests = 0
        self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.end)

    def count_request(self, increment: int) -> None:
        """Note that a request has come, or is answered."""
        self._requests += increment
        self._deadline.cancel()
        if not self._requests and self._connections.get(self._peer) is self:
            self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.end)

    def end(self) -> None:
        """Let the server find that the other side is gone: it closes what is its own."""
        self._leave()
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it, and give its place away."""
        self._leave()
        super().close()

    def _leave(self) -> None:
        self._deadline.cancel()
        if self._connections.get(self._peer) is self:
            del self._connections[self._peer]
