"""Lines between clients and a broker on loopback, which somebody listens to and disturbs.

Each client has a line of its own: a port to connect to. A line can delay, be cut, stop forwarding without closing
(and go on later, or never), and say once more what was said before. A wire that is encrypted tells an eavesdropper
sizes and times. With the broker's own key and certificate the lines end the encryption themselves. They know every
publication, also those that the broker never got or forgot.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.mqtt_packets import Publication, Splitter, publication, publish, version_of

__all__ = ["Chunk", "Line", "Lines", "Opened"]

_KEPT = 200
_CLOSE_SECONDS = 5.0


class Chunk(NamedTuple):
    """A forwarded piece: when, whether towards the broker, and the bytes."""

    seconds: float
    up: bool
    data: bytes


@dataclass(frozen=True)
class Opened:
    """The two ends at which a line takes off the encryption, and puts it on again."""

    towards_client: ssl.SSLContext
    towards_broker: ssl.SSLContext

    @classmethod
    def of(cls, broker: Path) -> Opened:
        """With the files of a broker's folder."""
        towards_client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        towards_client.load_cert_chain(broker / "server.pem", broker / "server.key")
        return cls(towards_client, ssl.create_default_context(cafile=str(broker / "ca.pem")))


@dataclass(eq=False)
class _Connection:
    """One client's connection, and that to the broker which stands for it."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    version: int = 5
    dead: bool = False


@dataclass
class Line:
    """One client's.

    `said` counts publications in topics that are `recorded`; `lately` is what to say again: (towards the broker, what).
    """

    name: str
    port: int
    recorded: Callable[[str], bool]
    said: Counter[tuple[str, bytes]] = field(default_factory=Counter)
    lately: deque[tuple[bool, Publication]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    chunks: list[Chunk] = field(default_factory=list)
    delay: float = 0.0
    connections: set[_Connection] = field(default_factory=set)
    flows: asyncio.Event = field(default_factory=asyncio.Event)

    def heard(self, up: bool, publication: Publication) -> None:
        if up and self.recorded(publication.topic):
            self.said[publication.topic, publication.payload] += 1
        self.lately.append((up, publication))


class Lines:
    """All lines to one broker; runs in a thread of its own within a context.

    `opened` looks into what is encrypted; of topics that are `kept` is everything that clients say.
    """

    def __init__(
        self,
        broker_port: int,
        opened: Opened | None = None,
        recorded: Callable[[str], bool] = lambda _topic: False,
        *,
        tapped: bool = False,
    ) -> None:
        self._broker_port = broker_port
        self._opened = opened
        self._recorded = recorded
        self._tapped = tapped
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.lines: dict[str, Line] = {}

    def __enter__(self) -> Self:
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def add(self, name: str) -> Line:
        return self._do(self._add(name))

    def cut(self, name: str) -> None:
        """End the connections that there are; new ones are accepted."""
        self._do(self._cut(self.lines[name]))

    def delay(self, name: str, seconds: float) -> None:
        self.lines[name].delay = seconds

    def hold(self, name: str) -> None:
        """Forward nothing from now on, and close nothing."""
        self._loop.call_soon_threadsafe(self.lines[name].flows.clear)

    def release(self, name: str) -> None:
        """Forward again, at first what was held back."""
        self._loop.call_soon_threadsafe(self.lines[name].flows.set)

    def bury(self, name: str) -> None:
        """The connections that there are carry nothing any more, for ever, and nobody is told; new ones work."""
        self._loop.call_soon_threadsafe(self._bury, self.lines[name])

    def say_again(self, name: str, up: bool, publication: Publication) -> None:
        """Put a publication between those of a client, or of the broker to it."""
        self._loop.call_soon_threadsafe(self._say, self.lines[name], up, publication)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _add(self, name: str) -> Line:
        line = Line(name, 0, self._recorded)
        line.flows.set()
        context = None if self._opened is None else self._opened.towards_client
        server = await asyncio.start_server(
            lambda reader, writer: self._serve(line, reader, writer), "127.0.0.1", 0, ssl=context
        )
        self._servers.append(server)
        line.port = server.sockets[0].getsockname()[1]
        self.lines[name] = line
        return line

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for line in self.lines.values():
            line.flows.set()
            await self._cut(line)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)

    async def _cut(self, line: Line) -> None:
        for connection in list(line.connections):
            connection.client.transport.abort()
            connection.broker.transport.abort()

    def _bury(self, line: Line) -> None:
        for connection in line.connections:
            connection.dead = True
        line.flows.set()

    def _say(self, line: Line, up: bool, publication: Publication) -> None:
        for connection in line.connections:
            if not connection.dead:
                (connection.broker if up else connection.client).write(publish(publication, connection.version))
                return

    async def _serve(self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        context = None if self._opened is None else self._opened.towards_broker
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port, ssl=context)
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        connection = _Connection(writer, to_broker)
        line.connections.add(connection)
        try:
            pumps = (
                self._pump(line, connection, reader, to_broker, up=True),
                self._pump(line, connection, from_broker, writer, up=False),
            )
            await asyncio.wait([asyncio.ensure_future(pump) for pump in pumps], return_when=asyncio.ALL_COMPLETED)
        finally:
            line.connections.discard(connection)
            self._tasks.discard(task)
            for end in (writer, to_broker):
                end.transport.abort()

    async def _pump(
        self, line: Line, connection: _Connection, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool
    ) -> None:
        splitter = Splitter()
        with contextlib.suppress(OSError, ssl.SSLError, AttributeError):  # the last of an encrypted end that is gone
            while data := await source.read(1 << 16):
                if self._tapped:
                    line.chunks.append(Chunk(time.monotonic(), up, data))
                if self._opened is not None:
                    packets = splitter.feed(data)
                    for packet in packets:
                        connection.version = version_of(packet) or connection.version
                        if (published := publication(packet, connection.version)) is not None:
                            line.heard(up, published)
                    data = b"".join(packets)
                await line.flows.wait()
                if line.delay:
                    await asyncio.sleep(line.delay)  # this is the fault
                if not connection.dead:
                    sink.write(data)
                    await sink.drain()
        if connection.dead and not up:
            return  # the client is not told that the broker has given up
        for end in (connection.client, connection.broker):
            with contextlib.suppress(OSError):
                end.close()
