"""Who keeps whom out of the page: silent and slow ones give way, a session's connection to nobody."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from gateway.page import connections as connections_module
from gateway.page.connections import MOST_MEMBERS, MOST_OF_NETWORK, MOST_STRANGERS, Connections
from tests.support.brokers import PATIENCE


def run(scene: Callable[[Door], Awaitable[None]]) -> None:
    """Play a scene against a listening socket of a server that answers nobody."""

    async def played() -> None:
        door = Door()
        async with await asyncio.start_server(door.hold, sock=door.connections):
            await asyncio.wait_for(scene(door), PATIENCE)
            door.leave()
            for _ in range(9):
                await asyncio.sleep(0)
            assert door.connections._connections == {}

    asyncio.run(played())


class Door:
    """The page's socket, and what has come in by it."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self._port = listener.getsockname()[1]
        self.connections = Connections(listener)
        self._inside: list[asyncio.StreamWriter] = []

    def hold(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep a connection."""
        self._inside.append(writer)

    async def come(self, host: int) -> tuple[asyncio.StreamReader, tuple[str, int]]:
        """Connect from an address of this machine."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(f"127.0.0.{host}", 0))
        self._inside.append(writer)
        peer = writer.get_extra_info("sockname")
        while peer not in self.connections._connections:
            await asyncio.sleep(0)
        return reader, peer

    def leave(self) -> None:
        """Close all of it."""
        for connection in self._inside:
            connection.close()


def ended(reader: asyncio.StreamReader) -> bool:
    return reader.at_eof()


async def ends(reader: asyncio.StreamReader) -> None:
    assert await reader.read() == b""


def test_the_oldest_of_an_address_gives_way_and_no_other() -> None:
    async def scene(door: Door) -> None:
        other, _ = await door.come(9)
        first, *rest = [(await door.come(7))[0] for _ in range(MOST_OF_NETWORK)]
        assert not ended(first)
        await door.come(7)
        await ends(first)
        assert not any(map(ended, [other, *rest]))

    run(scene)


@pytest.mark.long
def test_of_too_many_addresses_the_one_with_the_most_gives_way() -> None:
    async def scene(door: Door) -> None:
        lone, _ = await door.come(100)
        first, *_ = [(await door.come(50))[0] for _ in range(MOST_OF_NETWORK - 1)]
        others = [(await door.come(51 + i % 40))[0] for i in range(MOST_STRANGERS - MOST_OF_NETWORK)]
        assert not any(map(ended, [lone, first, *others]))
        await door.come(101)
        await ends(first)
        assert not any(map(ended, [lone, *others]))

    run(scene)


def test_a_connection_of_a_session_gives_way_to_nobody_and_there_are_so_many() -> None:
    async def scene(door: Door) -> None:
        is_signed_in, peer = await door.come(7)
        with door.connections.answering(peer, is_signed_in=True):
            readers = [(await door.come(7))[0] for _ in range(MOST_OF_NETWORK + 1)]
            await ends(readers[0])
            assert not ended(is_signed_in)
            for _ in range(MOST_MEMBERS - 1):
                _, other = await door.come(8)
                with door.connections.answering(other, is_signed_in=True):
                    assert door.connections._connections[other].is_signed_in
            _, late = await door.come(8)
            with door.connections.answering(late, is_signed_in=True):
                assert not door.connections._connections[late].is_signed_in
            with door.connections.answering(peer, is_signed_in=True):
                assert door.connections._connections[peer].is_signed_in

    run(scene)


def test_who_does_not_ask_in_time_is_ended_and_who_is_answered_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "HEAD_SECONDS", 0.05)

    async def scene(door: Door) -> None:
        asks, peer = await door.come(8)
        with door.connections.answering(peer, is_signed_in=False):
            silent, _ = await door.come(7)
            await ends(silent)
            assert not ended(asks)
            with door.connections.answering(peer, is_signed_in=False):
                pass  # one that came with it
            silent, _ = await door.come(7)
            await ends(silent)
            assert not ended(asks)
        await ends(asks)
        assert door.connections._connections == {}
        with door.connections.answering(peer, is_signed_in=True):  # it is answered still
            pass

    run(scene)
