"""The page's connections: silent connections, however many, keep no other from being answered.

A connection is a stranger until it sends a request with a session, or any request if the page has no login. The head of
each request must come within `HEAD_SECONDS`, which for the first one include TLS. A network may have at most
`MOST_OF_NETWORK` strangers, all networks together `MOST_STRANGERS`: a new stranger then displaces an old one. Nothing
displaces a session's connection; further ones than `MOST_MEMBERS` stay strangers.
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
"""With all other open files, the connections stay below the usual limit of 1024 files."""


class Connections(socket.socket):
    """The listening socket of an event loop's server. It takes over the descriptor of `listener`."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(fileno=listener.detach())
        self._connections: dict[tuple[str, int], _Connection] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. If its network, or all networks, have too many strangers, end the oldest stranger."""
        accepted_socket, address = super().accept()
        peer, network = address[:2], network_of(address[0])
        strangers = [other for other in self._connections.values() if not other.is_signed_in]
        candidates = [stranger for stranger in strangers if stranger.network == network]
        if len(candidates) >= MOST_OF_NETWORK:
            candidates[0].end()
        elif len(strangers) >= MOST_STRANGERS:
            ((largest_network, _),) = Counter(stranger.network for stranger in strangers).most_common(1)
            next(stranger for stranger in strangers if stranger.network == largest_network).end()
        self._connections[peer] = connection = _Connection(accepted_socket, self._connections, peer, network)
        return connection, address

    @contextmanager
    def answering(self, peer: tuple[str, int], *, is_signed_in: bool) -> Iterator[None]:
        """Count a peer's request as unanswered within the context; the next head's deadline begins at its end."""
        if (connection := self._connections.get(peer)) is None:  # the connection has ended
            yield
            return
        if is_signed_in and not connection.is_signed_in:
            connection.is_signed_in = sum(other.is_signed_in for other in self._connections.values()) < MOST_MEMBERS
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
        """Add 1 or -1 to the number of unanswered requests. At 0 the next head's deadline begins."""
        self._requests += increment
        self._deadline.cancel()
        if not self._requests and self._connections.get(self._peer) is self:
            self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.end)

    def end(self) -> None:
        """Shut the connection down: the server finds that the other side is gone, and closes it."""
        self._leave()
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, and free its place."""
        self._leave()
        super().close()

    def _leave(self) -> None:
        self._deadline.cancel()
        if self._connections.get(self._peer) is self:
            del self._connections[self._peer]
