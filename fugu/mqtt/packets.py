"""MQTT packets in bytes that came in one read, without an object for each: the common ones only."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PUBACK", "Header", "Message", "header", "publications", "publish"]

Message = tuple[str, bytes, bool]
"""Topic, payload, and whether it was retained."""
_PUBLISH, _KIND_AND_QOS_2 = 0x30, 0xF4
_AT_QOS_1, _RETAINED = 0b010, 0b001
PUBACK = b"\x40\x02"
"""An acknowledgement, but for the message id."""
_LENGTH_BYTES = 4


class Header(NamedTuple):
    """What comes before the body of every packet.

    Attributes:
        command: the first byte.
        length: bytes of the body.
        begin: where it begins.
    """

    command: int
    length: int
    begin: int


def header(data: bytes, at: int) -> Header | None:
    """The header of the packet that begins there; none if it is not complete.

    Raises:
        ValueError: its length has more than four bytes.
    """
    length = 0
    for place in range(_LENGTH_BYTES):
        begin = at + 2 + place
        if begin > len(data):
            return None
        byte = data[begin - 1]
        length |= (byte & 127) << 7 * place
        if byte < 128:
            return Header(data[at], length, begin)
    raise ValueError("a length of more than four bytes")


def publications(data: bytes, at: int, most: int, five: bool, messages: list[Message], answers: bytearray) -> int:
    """Take plain publications one after the other, until something else comes.

    Plain is what is whole and well-formed, at QoS 0 or 1, and without properties.

    Args:
        data: packets, of which one begins at `at`.
        most: bytes of the largest body that is taken.
        five: whether this is MQTT 5.
        messages: what was published is appended here.
        answers: acknowledgements of what came at QoS 1 are appended here.

    Returns:
        Where the first packet begins that is not plain, or not whole.

    Raises:
        ValueError: a length has more than four bytes.
    """
    end = len(data)
    while at + 4 <= end:
        command, length, begin = data[at], data[at + 1], at + 2
        if command & _KIND_AND_QOS_2 != _PUBLISH:
            break
        if length > 127 and data[begin] < 128:
            length, begin = length - 128 | data[begin] << 7, begin + 1
        elif length > 127:
            if (head := header(data, at)) is None:
                break
            _, length, begin = head
        stop = begin + length
        if stop > end or not 2 <= length <= most:
            break
        identity = payload = begin + 2 + (data[begin] << 8 | data[begin + 1])
        if command & _AT_QOS_1:
            payload += 2
        payload += five
        if payload > stop or (five and data[payload - 1]) or identity == begin + 2:
            break
        try:
            topic = data[begin + 2 : identity].decode()
        except UnicodeDecodeError:
            break
        if command & _AT_QOS_1:
            answers += PUBACK
            answers += data[identity : identity + 2]
        messages.append((topic, data[payload:stop], command & _RETAINED == _RETAINED))
        at = stop
    return at


def publish(topic: bytes, payload: bytes, mid: int, five: bool, *, retain: bool) -> bytearray:
    """A publication at QoS 1, without properties."""
    length = 2 + len(topic) + 2 + five + len(payload)
    packet = bytearray([_PUBLISH | _AT_QOS_1 | retain])
    while length > 127:
        packet.append(length & 127 | 128)
        length >>= 7
    packet.append(length)
    packet += len(topic).to_bytes(2, "big") + topic + mid.to_bytes(2, "big")
    if five:
        packet.append(0)
    packet += payload
    return packet
