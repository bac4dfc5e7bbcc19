"""The helper's own list of members: a line for each home, its name and the 30 digits of its device's key.

One name has one key, and one key one name. The site has no say in it: who could admit homes could invent all but one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fugu.contract.errors import FuguError, Reason
from fugu.contract.group_frames import digits, read_digits
from fugu.contract.topics import check_device_name
from fugu.host.files import write_secret

__all__ = ["MemberError", "Members", "is_weak"]

_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_WEAK = {0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8}
"""The y coordinates of points of order 1, 2, 4 and 8: with such a key everything has a signature."""


class MemberError(FuguError, reason=Reason.CONFIG):
    """A member cannot be admitted or removed, or the list cannot be read."""


def is_weak(public: bytes) -> bool:
    """True if an Ed25519 key is of small order, in whatever encoding."""
    return (int.from_bytes(public, "little") & ((1 << 255) - 1)) % _PRIME in _WEAK


class Members:
    """The list in a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()
        self._digits: dict[str, str] = {}

    def load(self) -> dict[str, str]:
        """Digits by name. Raises MemberError if the file cannot be read, or a line is wrong."""
        try:
            status = self.path.stat()
            seen = status.st_ino, status.st_mtime_ns, status.st_size
            if seen != self._seen:
                with self.path.open() as file:
                    self._digits = _parsed(file)
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._digits = (), {}
        except (OSError, ValueError) as error:
            raise MemberError(f"cannot read {self.path}: {getattr(error, 'strerror', None) or error}") from None
        return self._digits

    def has(self, name: str, public: bytes) -> bool:
        """True if a key is that of a member of this name."""
        return not is_weak(public) and self.load().get(name) == digits(public)

    def admit(self, name: str, typed: str) -> None:
        """Add a member. MemberError if the name or the key has a line already."""
        check_device_name(name)
        try:
            wanted = read_digits(typed)
        except ValueError as error:
            raise MemberError(f"{error}; fugu-agent key shows those of a device") from None
        members = dict(self.load())
        if name in members:
            raise MemberError(f"{name} is a member already: remove it first, if it has another key now")
        if wanted in members.values():
            raise MemberError("these digits are another member's: one home would count twice")
        self._write({**members, name: wanted})

    def remove(self, name: str) -> None:
        """Take a member away; it is in no sum that is asked for from now on. MemberError if there is none."""
        members = dict(self.load())
        if members.pop(name, None) is None:
            raise MemberError(f"{name!r:.80} is no member")
        self._write(members)

    def _write(self, members: dict[str, str]) -> None:
        write_secret(self.path, "".join(f"{name}: {text}\n" for name, text in sorted(members.items())))


def _parsed(lines: Iterable[str]) -> dict[str, str]:
    members: dict[str, str] = {}
    keys: set[str] = set()
    for number, line in enumerate(lines, 1):
        name, _, typed = line.partition(":")
        try:
            check_device_name(name)
            wanted = read_digits(typed)
        except (FuguError, ValueError):
            raise ValueError(f"line {number} is no name, a colon and 30 digits") from None
        if name in members or wanted in keys:
            raise ValueError(f"line {number} has a name or a key that another line has")
        members[name] = wanted
        keys.add(wanted)
    return members
