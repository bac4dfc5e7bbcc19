"""Passphrases of private keys: those that are at hand, and how to get another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gateway.fleet.entries import KeyStoreError
from gateway.fleet.key_file import read_private

__all__ = ["Passphrases", "new_passphrase", "read_passphrase"]

_SHORTEST = 8


class Passphrases:
    """The passphrases that are at hand; somebody is asked only if there are none.

    Args:
        known: those that were given.
        ask: asks for one, with a question; raises KeyStoreError if there is nobody.
    """

    def __init__(self, known: Sequence[str], ask: Callable[[str], str]) -> None:
        self._known = list(known)
        self._given = bool(known)
        self._ask = ask

    def candidates(self, what: str) -> Iterator[str]:
        """What may be the passphrase of an existing key, one after the other."""
        yield from list(self._known)
        if not self._given:
            self._known.append(self._ask(f"Passphrase of {what}: "))
            yield self._known[-1]

    def new(self) -> str:
        """The passphrase for a new key: the first known one, or asked for twice.

        Raises:
            KeyStoreError: it is too short, or the two differ.
        """
        if not self._known:
            first = self._ask("Passphrase for the new keys: ")
            if self._ask("The same again: ") != first:
                raise KeyStoreError("the two passphrases differ; nothing was written")
            self._known.append(first)
        return _long_enough(self._known[0])


def new_passphrase(path: Path) -> str:
    """The passphrase for a new key, from a file.

    Raises:
        KeyStoreError: it is too short, or as for `read_passphrase`.
    """
    return _long_enough(read_passphrase(path))


def read_passphrase(path: Path) -> str:
    """The first line of a file that only its owner may read.

    Raises:
        KeyStoreError: others may read it, or the line is empty or no text.
    """
    try:
        line = read_private(path, "a passphrase file").split(b"\n", 1)[0].decode().rstrip("\r")
    except UnicodeDecodeError:
        raise KeyStoreError(f"{path}: the passphrase is no UTF-8 text") from None
    if not line:
        raise KeyStoreError(f"{path}: the first line is empty: keys without a passphrase are not used")
    return line


def _long_enough(passphrase: str) -> str:
    if len(passphrase) < _SHORTEST:
        raise KeyStoreError(f"a passphrase for a new key must have at least {_SHORTEST} characters")
    return passphrase
