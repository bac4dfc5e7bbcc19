"""A recording's file: its unpacked bytes or text, up to a limit of size."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from fugu.contract.errors import FuguError
from fugu.host.csv_file import refuse_pipe

__all__ = ["MOST_BYTES", "File"]

MOST_BYTES = 512 << 20
"""The largest size of an unpacked file."""
_GZIP = b"\x1f\x8b"
_HEAD, _FIRST = 1 << 16, 60
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _Bounded(io.RawIOBase):
    """A stream of bytes that raises FuguError after more than `MOST_BYTES`."""

    def __init__(self, inner: BinaryIO, name: str) -> None:
        self._inner, self._name, self._count = inner, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        block = self._inner.read(len(buffer))
        self._count += len(block)
        if self._count > MOST_BYTES:
            raise FuguError(f"{self._name} becomes more than {MOST_BYTES >> 20} MB: give a part of it")
        buffer[: len(block)] = block
        return len(block)


class File:
    """A file that may hold a recording, with its unpacked contents. Its first bytes tell whether it is gzip."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name

    @cached_property
    def zipped(self) -> bool:
        """True if the file is gzip.

        Raises:
            FuguError: it is a pipe, which cannot be read again.
            OSError: the file cannot be read.
        """
        refuse_pipe(self.path, FuguError)
        with self.path.open("rb") as file:
            return file.read(len(_GZIP)) == _GZIP

    @property
    def in_utf8(self) -> bool:
        """True unless the file is text in UTF-16."""
        return not self._first_bytes.startswith(_WIDE)

    @cached_property
    def _first_bytes(self) -> bytes:
        with self.open_binary() as file:
            return file.read(_HEAD)

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the file, unpacked; text in UTF-16 is converted to UTF-8."""
        if self.in_utf8:
            return self._first_bytes.removeprefix(codecs.BOM_UTF8)
        return self._first_bytes[: len(self._first_bytes) & ~1].decode("utf-16", "ignore").encode()

    @cached_property
    def first_lines(self) -> list[str]:
        """The filled lines among the first 60 of the head; the last may be cut off."""
        return [line for line in self.head.decode(errors="replace").splitlines()[:_FIRST] if line.strip()]

    @contextmanager
    def open_binary(self) -> Iterator[BinaryIO]:
        """Open the unpacked bytes.

        Raises:
            FuguError: the file is broken gzip, too large, or a pipe.
            OSError: the file cannot be read.
        """
        opener = gzip.open if self.zipped else open
        try:
            with opener(self.path, "rb") as raw_stream:
                yield cast(BinaryIO, io.BufferedReader(_Bounded(cast(BinaryIO, raw_stream), self.name), _HEAD))
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise FuguError(f"{self.name} is broken gzip: make it again, or copy it again") from None

    @contextmanager
    def open_text(self) -> Iterator[TextIO]:
        """Open the text, in UTF-8 or in UTF-16 with a byte order mark. Line ends stay. Errors as for `open_binary`.

        Raises:
            FuguError: the file is no such text.
        """
        with self.open_binary() as file:
            try:
                yield io.TextIOWrapper(file, "utf-8-sig" if self.in_utf8 else "utf-16", newline="")
            except UnicodeError:
                raise FuguError(
                    f"{self.name} is no text in UTF-8 or UTF-16: save it as CSV in UTF-8, or convert it by "
                    "iconv -f latin1 -t utf-8"
                ) from None
