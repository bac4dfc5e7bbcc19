"""Where passphrases come from: files, the environment, or somebody at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from getpass import getpass
from pathlib import Path

from gateway.fleet import KeyStoreError
from gateway.fleet.passphrases import Passphrases, read_passphrase

__all__ = ["at_hand"]

_VARIABLE = "FUGU_PASSPHRASE"


def at_hand(files: Sequence[Path] | None) -> Passphrases:
    """The passphrases that files or, if there are none, the environment hold; a person is asked for others.

    Args:
        files: whose first lines are passphrases.

    Raises:
        KeyStoreError: a file may be read by others, or holds no passphrase.
    """
    given = os.environ.get(_VARIABLE)
    return Passphrases([read_passphrase(file) for file in files or ()] or ([given] if given else []), _asked)


def _asked(prompt: str) -> str:
    if not sys.stdin.isatty():
        raise KeyStoreError(f"no passphrase: give --passphrase-file or {_VARIABLE}, or run it at a terminal")
    try:
        answer = getpass(prompt)
    except EOFError:
        answer = ""
    if not answer:
        raise KeyStoreError("no passphrase: keys without one are not used")
    return answer
