"""The helper's own list of members: a line for each home, its name and the 30 digits of its device's key.

One name has one key, and one key one name. The site cannot change the list: else it could invent all homes but one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from fugu.contract.envelope import key_digits, read_digits
from fugu.contract.errors import FuguError
from fugu.contract.topics import check_device_name
from fugu.host.files import write_secret

__all__ = ["Members", "is_weak"]

_BYTES, _HASH_PARTS = 13, 16
_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_WEAK = {0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8}
"""The y coordinates of points of order 1, 2, 4 and 8: with such a key, anybody can sign any message."""


def is_weak(public_key: bytes) -> bool:
    """True if an Ed25519 key is of small order, in any encoding."""
    return (int.from_bytes(public_key, "little") & ((1 << 255) - 1)) % _PRIME in _WEAK


class Members:
    """The members that a file lists. The file is read again once it has changed; in memory the list is compact."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file_stamp: tuple[int, ...] = ()
        self._names: list[str] = []
        self._digits = b""
        """The digits of each name, in the order of names, as numbers of `_BYTES` bytes."""

    def __len__(self) -> int:
        return len(self._names)

    def load(self) -> None:
        """Read the file, if it has changed; without one nobody is a member. Raises FuguError for any other failure."""
        try:
            status = self.path.stat()
            file_stamp = status.st_ino, status.st_mtime_ns, status.st_size
            if file_stamp != self._file_stamp:
                with self.path.open() as file:
                    self._names, self._digits = _read_members(file)
                self._file_stamp = file_stamp
        except FileNotFoundError:
            self._file_stamp, self._names, self._digits = (), [], b""
        except (OSError, ValueError) as error:
            raise FuguError(f"cannot read {self.path}: {getattr(error, 'strerror', None) or error}") from None

    def find(self, name: str, public_key: bytes) -> str:
        """Return the listed name of the member with this name and key, "" without one. FuguError as of `load`."""
        self.load()
        index = bisect_left(self._names, name)
        digits = _to_int(key_digits(public_key))
        is_member = self._names[index : index + 1] == [name] and self._digits_at(index) == digits
        return self._names[index] if is_member and not is_weak(public_key) else ""

    def admit(self, name: str, typed_digits: str) -> None:
        """Add a member. FuguError: the name or the digits are invalid, or one of them has a line already."""
        check_device_name(name)
        try:
            new_digits = read_digits(typed_digits)
        except ValueError as error:
            raise FuguError(f"{error}; fugu-agent key shows those of a device") from None
        lines = self._lines()
        if name in lines:
            raise FuguError(f"{name} is a member already: remove it first, if it has another key now")
        if any(new_digits in line for line in lines.values()):
            raise FuguError("these digits are another member's: one home would count twice")
        self._write(lines | {name: f"{name}: {new_digits}\n"})

    def remove(self, name: str) -> None:
        """Remove a member, which is in no later sum. Raises FuguError if there is no such member."""
        lines = self._lines()
        if lines.pop(name, None) is None:
            raise FuguError(f"{name!r:.80} is no member")
        self._write(lines)

    def _lines(self) -> dict[str, str]:
        """Return the lines of the file, by name."""
        self.load()
        return {name: f"{name}: {read_digits(f'{self._digits_at(i):030}')}\n" for i, name in enumerate(self._names)}

    def _digits_at(self, index: int) -> int:
        return int.from_bytes(self._digits[_BYTES * index : _BYTES * (index + 1)], "big")

    def _write(self, lines: dict[str, str]) -> None:
        write_secret(self.path, "".join(line for _, line in sorted(lines.items())))


def _to_int(digit_text: str) -> int:
    return int(digit_text.replace(" ", ""))


def _read_members(lines: Iterable[str]) -> tuple[list[str], bytes]:
    """Read lines of members. Return the sorted names, and the digits of each as a number of `_BYTES` bytes."""
    names: list[str] = []
    key_numbers = bytearray()
    for line_number, line in enumerate(lines, 1):
        name, _, digit_text = line.partition(":")
        try:
            check_device_name(name)
            names.append(name)
            key_numbers += _to_int(read_digits(digit_text)).to_bytes(_BYTES, "big")
        except (FuguError, ValueError):
            raise ValueError(f"line {line_number} is no name, a colon and 30 digits") from None
    _refuse_duplicates(lambda index: bytes(key_numbers[_BYTES * index : _BYTES * (index + 1)]), len(names))
    if any(name >= next_name for name, next_name in pairwise(names)):  # a person has changed the file
        _refuse_duplicates(names.__getitem__, len(names))
        order = sorted(range(len(names)), key=names.__getitem__)
        return [names[i] for i in order], b"".join(key_numbers[_BYTES * i : _BYTES * (i + 1)] for i in order)
    return names, bytes(key_numbers)


def _refuse_duplicates(value_of_line: Callable[[int], object], line_count: int) -> None:
    """Raise a ValueError for two lines of equal value, in little memory: a part of the values at a time."""
    for hash_part in range(_HASH_PARTS):
        part_values = set[object]()
        for line_index in range(line_count):
            if hash(line_value := value_of_line(line_index)) % _HASH_PARTS == hash_part:
                if line_value in part_values:
                    raise ValueError(f"line {line_index + 1} has a name or a key that another line has")
                part_values.add(line_value)
