"""Folders of a fleet's private keys: one file for each, named by role and key, for their owner only.

A file is called `{role}-{first 8 digits of the key's name}.key`. Keys may be spread over several folders, such as the
disks of several people. Beside them lies `root.envelope`, which is public, and the roots before it, which devices that
were long away need one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract.envelope import key_name
from gateway.files import write_secret
from gateway.fleet.entries import KeyStoreError
from gateway.fleet.key_file import Passphrases, WrongPassphraseError, decrypted, encrypted, read_private

__all__ = [
    "ROLES",
    "KeyFile",
    "RoleName",
    "key_files",
    "name_of",
    "new_key_folder",
    "short",
    "unlock",
    "unlock_some",
    "write_key",
]

RoleName = Literal["root", "policy", "gateway"]
ROLES: tuple[RoleName, ...] = get_args(RoleName)
_DIGITS = 8
_FILE = re.compile(rf"({'|'.join(ROLES)})-([0-9a-f]{{{_DIGITS}}})\.key")


class KeyFile(NamedTuple):
    """A file that holds a private key.

    Attributes:
        role: it was made for; the root says whether it still has it.
        short: the first digits of the key's name.
    """

    path: Path
    role: RoleName
    short: str


def name_of(key: Ed25519PrivateKey) -> str:
    """What a root calls a key."""
    return key_name(key.public_key().public_bytes_raw()).hex()


def short(name: str) -> str:
    """A key's name as files and people call it."""
    return name[:_DIGITS]


def new_key_folder(path: Path) -> Path:
    """Make a folder for keys, which must not hold anything yet.

    Raises:
        KeyStoreError: it holds something, or cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        if any(path.iterdir()):
            raise KeyStoreError(f"{path} is not empty: name a new folder")
        path.chmod(0o700)
    except OSError as error:
        raise KeyStoreError(f"cannot make the folder {path}: {error.strerror}") from None
    return path


def key_files(folders: Iterable[Path]) -> list[KeyFile]:
    """All key files of some folders, which only their owner may enter.

    Raises:
        KeyStoreError: a folder is not there, or it or a key file is open to others.
    """
    found = []
    for folder in folders:
        try:
            mode, paths = folder.stat().st_mode, sorted(folder.iterdir())
        except OSError as error:
            raise KeyStoreError(f"cannot read the folder of keys {folder}: {error.strerror}") from None
        if mode & 0o077:
            raise KeyStoreError(
                f"{folder}: a folder of keys that others may use (mode {mode & 0o777:04o}) is not used: chmod 700 it"
            )
        for path in paths:
            if match := _FILE.fullmatch(path.name):
                read_private(path, "a key")
                role = next(role for role in ROLES if role == match[1])
                found.append(KeyFile(path, role, match[2]))
    return found


def write_key(folder: Path, role: RoleName, key: Ed25519PrivateKey, passphrase: str) -> Path:
    """Write a new key into a folder."""
    path = folder / f"{role}-{short(name_of(key))}.key"
    write_secret(path, encrypted(key, passphrase))
    return path


def unlock(file: KeyFile, passphrases: Passphrases) -> Ed25519PrivateKey:
    """The private key of a file.

    Raises:
        KeyStoreError: no passphrase fits, or the file holds another key than its name says.
    """
    content, wrong = read_private(file.path, "a key"), None
    for passphrase in passphrases.candidates(str(file.path)):
        try:
            key = decrypted(content, passphrase, file.path)
        except WrongPassphraseError as error:
            wrong = error
            continue
        if short(name_of(key)) != file.short:
            raise KeyStoreError(f"{file.path}: holds key {short(name_of(key))}, not the one of its name")
        return key
    assert wrong is not None
    raise wrong


def unlock_some(
    files: Sequence[KeyFile], names: Iterable[str], most: int, passphrases: Passphrases
) -> list[Ed25519PrivateKey]:
    """The private keys of some names, in their order, as far as there are files for them."""
    by_short = {file.short: file for file in files}
    found: list[Ed25519PrivateKey] = []
    for name in names:
        if len(found) == most:
            break
        if (file := by_short.get(short(name))) is None:
            continue
        key = unlock(file, passphrases)
        if name_of(key) == name:
            found.append(key)
    return found
