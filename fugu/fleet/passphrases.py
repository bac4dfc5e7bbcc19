"""Where passphrases come from: files, the environment, or somebody at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from getpass import getpass
from pathlib import Path

from fugu.errors import CommandError
from fugu.fleet.key_file import read_private

__all__ = ["VARIABLE", "Passphrases", "new_passphrase", "read_passphrase"]

VARIABLE = "FUGU_PASSPHRASE"
_SHORTEST = 8


class Passphrases:
    """The passphrases that are at hand; somebody is asked only if there are none.

    Args:
        files: whose first lines are passphrases; the environment counts only if there are none.

    Raises:
        CommandError: a file may be read by others, or holds no passphrase.
    """

    def __init__(self, files: Sequence[Path] = ()) -> None:
        given = os.environ.get(VARIABLE)
        self._known = [read_passphrase(file) for file in files] or ([given] if given else [])
        self._given = bool(self._known)

    def candidates(self, what: str) -> Iterator[str]:
        """What may be the passphrase of an existing key, one after the other."""
        yield from list(self._known)
        if not self._given:
            self._known.append(_asked(f"Passphrase of {what}: "))
            yield self._known[-1]

    def new(self) -> str:
        """The passphrase for a new key: the first known one, or asked for twice.

        Raises:
            CommandError: it is too short, or the two differ.
        """
        if not self._known:
            first = _asked("Passphrase for the new keys: ")
            if _asked("The same again: ") != first:
                raise CommandError("the two passphrases differ; nothing was written")
            self._known.append(first)
        return _long_enough(self._known[0])


def new_passphrase(path: Path) -> str:
    """The passphrase for a new key, from a file.

    Raises:
        CommandError: it is too short, or as for `read_passphrase`.
    """
    return _long_enough(read_passphrase(path))


def read_passphrase(path: Path) -> str:
    """The first line of a file that only its owner may read.

    Raises:
        CommandError: others may read it, or the line is empty or no text.
    """
    try:
        line = read_private(path, "a passphrase file").split(b"\n", 1)[0].decode().rstrip("\r")
    except UnicodeDecodeError:
        raise CommandError(f"{path}: the passphrase is no UTF-8 text") from None
    if not line:
        raise CommandError(f"{path}: the first line is empty: keys without a passphrase are not used")
    return line


def _long_enough(passphrase: str) -> str:
    if len(passphrase) < _SHORTEST:
        raise CommandError(f"a passphrase for a new key must have at least {_SHORTEST} characters")
    return passphrase


def _asked(prompt: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError(f"no passphrase: give --passphrase-file or {VARIABLE}, or run it at a terminal")
    try:
        answer = getpass(prompt)
    except EOFError:
        answer = ""
    if not answer:
        raise CommandError("no passphrase: keys without one are not used")
    return answer
