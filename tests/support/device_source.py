"""Bytes that are the same everywhere, for what devices draw in tests."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Source"]

_T = TypeVar("_T")


class Source:
    """Uniform bytes from a name: SHA-256 of the name and a counter."""

    def __init__(self, name: str) -> None:
        self._name, self._blocks, self._bytes = name.encode(), 0, b""

    def take(self, size: int) -> bytes:
        while len(self._bytes) < size:
            self._bytes += hashlib.sha256(self._name + struct.pack(">Q", self._blocks)).digest()
            self._blocks += 1
        taken, self._bytes = self._bytes[:size], self._bytes[size:]
        return taken

    def below(self, number: int) -> int:
        """An integer below a number, almost uniform."""
        return int.from_bytes(self.take(8), "big") % number

    def among(self, values: Sequence[_T]) -> _T:
        return values[self.below(len(values))]

    def words(self, buffer: memoryview) -> None:
        """Fill a block of words that are taken from its end."""
        data = self.take(len(buffer))
        buffer[:] = b"".join(data[i : i + 4] for i in range(len(data) - 4, -1, -4))

    def noise(self, buffer: memoryview) -> None:
        """Fill a buffer in order."""
        buffer[:] = self.take(len(buffer))
