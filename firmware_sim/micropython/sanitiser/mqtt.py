"""MQTT 3.1.1 for a board: one connection that reconnects by itself, QoS 1 with one message under way, a last will.

This client takes a quarter of the bytecode of the usual one, `mqtt_as`, which also manages the wireless network.
"""

import asyncio
import gc
import random
import struct

_CONNACK, _PUBLISH, _PUBACK, _SUBACK = 2, 3, 4, 9
_TOO_LARGE = 16
_MOST_BYTES = 16384
_PIECE = 256
_PATIENCE = 15
_MOST_WAIT = 60


class LinkError(Exception):
    """The broker refuses, or sends something that is no MQTT."""


def _text(text) -> bytes:
    encoded = text if isinstance(text, bytes) else text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _packet(kind: int, body: bytes) -> bytes:
    head, length = bytearray([kind]), len(body)
    while True:
        byte, length = length & 127, length >> 7
        head.append(byte | (128 if length else 0))
        if not length:
            return bytes(head) + body


class Link:
    """A connection to a broker, `at` host and port. `account` is user and password, empty for none.

    A `context` switches TLS on. `client_id` names the session. `will` is topic and bytes that the broker publishes,
    retained, when the connection is lost. `on_message` is called with topic and bytes, or None in the place of more
    bytes than a board has room for. `connected`: the broker has accepted the connection and the subscriptions.
    """

    def __init__(self, at, client_id, account, context, will, subscriptions, on_message, keep_alive=30) -> None:
        self._at, self._id, self._account, self._context = at, client_id, account, context
        self._will, self._subscriptions = will, subscriptions
        self._on_message, self._keep_alive = on_message, keep_alive
        self._writer = None
        self._answered = asyncio.Event()
        self._writing = asyncio.Lock()
        self._waits_for = None
        self._number = 0
        self.connected = False
        self.connections = 0

    async def run(self) -> None:
        """Keep the connection, for ever."""
        wait = 1
        while True:
            try:
                await self._session()
            except Exception:  # whatever it is, the next connection may go better
                pass
            if self.connected:
                wait = 1
            self._drop()
            await asyncio.sleep_ms(500 * wait + random.getrandbits(9) * wait)
            wait = min(2 * wait, _MOST_WAIT)

    async def publish(self, topic: str, payload: bytes, retain: bool = False) -> bool:
        """Publish a message. True if the broker has acknowledged it."""
        if not self.connected:
            return False
        self._number = self._number % 65535 + 1
        packet_number, writer = self._number, self._writer
        self._waits_for = packet_number
        self._answered.clear()
        try:
            await asyncio.wait_for(
                self._write(writer, _packet(0x32 | retain, _text(topic) + struct.pack(">H", packet_number) + payload)),
                _PATIENCE,
            )
            await asyncio.wait_for(self._answered.wait(), _PATIENCE)
        except (OSError, asyncio.TimeoutError):
            self._drop()
            return False
        return self.connected and writer is self._writer

    async def ask(self) -> None:
        """Subscribe, perhaps again: the broker then sends its retained messages."""
        if self._writer is not None and self._subscriptions:
            requests = b"".join([_text(topic) + b"\x01" for topic in self._subscriptions])
            await self._write(self._writer, _packet(0x82, b"\x00\x01" + requests))

    async def close(self) -> None:
        """Disconnect in order: the broker forgets the will."""
        if self._writer is not None:
            await self._write(self._writer, b"\xe0\x00")
            self._drop()

    async def _write(self, writer, packet: bytes) -> None:
        """Write a packet, one task at a time: a stream of MicroPython cannot be written by two."""
        async with self._writing:
            writer.write(packet)
            await writer.drain()

    def _drop(self) -> None:
        self.connected = False
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._answered.set()

    async def _session(self) -> None:
        opening = asyncio.open_connection(self._at[0], self._at[1], ssl=self._context, server_hostname=self._at[0])
        reader, self._writer = await asyncio.wait_for(opening, _PATIENCE)
        user, password = self._account
        flags = 0x2E | (0xC0 if user else 0)  # a clean session, and a will of QoS 1 that is retained
        opening_fields = _text("MQTT") + struct.pack(">BBH", 4, flags, self._keep_alive) + _text(self._id)
        opening_fields += _text(self._will[0]) + _text(self._will[1])
        if user:
            opening_fields += _text(user) + _text(password)
        await self._write(self._writer, _packet(0x10, opening_fields))
        kind, packet = await asyncio.wait_for(self._receive(reader), _PATIENCE)
        if kind >> 4 != _CONNACK or len(packet) != 2 or packet[1]:
            raise LinkError("refused")
        if self._subscriptions:
            await self.ask()
            while kind >> 4 != _SUBACK:
                kind, packet = await asyncio.wait_for(self._receive(reader), _PATIENCE)
                await self._handle(kind, packet)
        self._number = 1
        self.connections += 1
        self.connected = True
        silent = False
        while True:
            try:
                first_byte = await asyncio.wait_for(reader.readexactly(1), self._keep_alive // 2)
            except asyncio.TimeoutError:
                if silent:
                    raise
                silent = True
                await self._write(self._writer, b"\xc0\x00")
                continue
            silent = False
            kind, packet = await asyncio.wait_for(self._receive(reader, first_byte), _PATIENCE)
            await self._handle(kind, packet)

    async def _receive(self, reader, first=b"") -> tuple:
        """Read a packet, whose first byte may have been read; after a timeout the connection has to end."""
        kind = (first or await reader.readexactly(1))[0]
        size = shift = 0
        while True:
            byte = (await reader.readexactly(1))[0]
            size |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                break
            if shift > 21:
                raise LinkError("a length that is none")
        if size <= _MOST_BYTES:
            if size > _PIECE:
                gc.collect()  # so much in one piece is hard to find
            return kind, await reader.readexactly(size) if size else b""
        body = await reader.readexactly(2)
        topic_length = struct.unpack(">H", body)[0]
        if kind >> 4 != _PUBLISH or topic_length > _PIECE:
            raise LinkError("a packet that is too large")
        body += await reader.readexactly(topic_length + 2)
        size -= len(body)
        while size:  # read and dropped in pieces: without it the broker would send the packet again for ever
            size -= len(await reader.readexactly(min(size, _PIECE)))
        return kind & 15 | _TOO_LARGE << 4, body

    async def _handle(self, kind: int, body: bytes) -> None:
        action = kind >> 4
        if action == _PUBACK:
            if len(body) >= 2 and struct.unpack_from(">H", body)[0] == self._waits_for:
                self._answered.set()
        elif action in (_PUBLISH, _TOO_LARGE):
            end = 2 + struct.unpack_from(">H", body)[0] if len(body) >= 2 else 0
            quality = kind >> 1 & 3
            if not end or quality > 1 or len(body) < end + 2 * quality:
                raise LinkError("a message that is none")
            if quality:
                await self._write(self._writer, b"\x40\x02" + body[end : end + 2])
            try:
                topic = body[2:end].decode()
            except UnicodeError:
                raise LinkError("a topic that is none") from None
            self._on_message(topic, body[end + 2 * quality :] if action == _PUBLISH else None)
        elif action == _SUBACK and any(code > 2 for code in body[2:]):
            raise LinkError("a subscription is refused")
