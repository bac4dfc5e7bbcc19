"""A fleet's private keys, one encrypted file for each, and the root documents that name them.

A file is called `{role}-{first 8 digits of the key's name}.key`. Keys may be spread over several folders, such as the
disks of several people. Beside them are `root.envelope`, which is public, and all earlier roots, which devices that
were away for long need one after the other.

The `cryptography` package stretches a passphrase with 2048 rounds of PBKDF2 and takes no other number: half a
millisecond a guess, where scrypt costs a fifth of a second. Its PKCS #12 takes another number for the key, but checks
the passphrase itself with 2048 rounds: a fifth of a millisecond a guess. Its OpenSSH form needs one more package. So
the same form (PBES2 of RFC 8018, AES-256-CBC) is written here with scrypt (RFC 7914), at a cost that `openssl pkey`
also reads. The package reads it.
"""

from __future__ import annotations

import base64
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fugu.contract.envelope import Envelope, encode_roots, key_name, sign
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import Enrolment, Role, RootDocument, read_document, write_document
from fugu.contract.stretches import Ceiling
from fugu.contract.trust import Trust
from fugu.host.files import file_errors, new_folder, write_public, write_secret
from gateway.fleet.entries import FleetError

__all__ = [
    "ROLES",
    "ROOT_FILE",
    "Passphrases",
    "Root",
    "decrypt_key",
    "initialise",
    "key_files",
    "new_passphrase",
    "read_passphrase",
    "read_private",
    "role_of",
    "rotate",
    "short_name",
    "unlock_keys",
]


_MAX_BYTES = 1 << 14
_LABEL = "ENCRYPTED PRIVATE KEY"
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 5
_KEY_DER = (  # for a cost of 2^14 and blocks of 8; an encrypted private key of Ed25519 always has the same length
    "30819b305706092a864886f70d01050d304a302906092b06010401da47040b301c0410{salt}"
    "020240000201080201{parallel:02x}301d060960864801650304012a0410{start}0440{content}"
)


class WrongPassphraseError(FuguError):
    """The passphrase is not the key's, or the key is damaged; its file does not tell which."""


def encrypt_key(key: Ed25519PrivateKey, passphrase: str) -> bytes:
    """Return the PEM file of a key under a passphrase."""
    salt, iv = os.urandom(16), os.urandom(16)
    secret = Scrypt(salt, 32, _COST, _BLOCK, _PARALLEL).derive(passphrase.encode())
    padder = PKCS7(128).padder()
    padded = padder.update(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())) + padder.finalize()
    cipher = Cipher(algorithms.AES(secret), modes.CBC(iv)).encryptor()
    content = cipher.update(padded) + cipher.finalize()
    der = bytes.fromhex(_KEY_DER.format(salt=salt.hex(), parallel=_PARALLEL, start=iv.hex(), content=content.hex()))
    base64_lines = textwrap.wrap(base64.b64encode(der).decode(), 64)
    return "\n".join((f"-----BEGIN {_LABEL}-----", *base64_lines, f"-----END {_LABEL}-----", "")).encode()


def decrypt_key(content: bytes, passphrase: str, path: Path) -> Ed25519PrivateKey:
    """Return the key in a PEM file. WrongPassphraseError; FuguError if it is not encrypted, or no Ed25519 key."""
    if f"-----BEGIN {_LABEL}-----".encode() not in content:
        raise FuguError(f"{path}: not a key under a passphrase: such a key is not used")
    try:
        key = load_pem_private_key(content, passphrase.encode())
    except (InternalError, TypeError, UnsupportedAlgorithm, ValueError):  # one wrong passphrase in 256 fits the padding
        complaint = "the passphrase is not the one of this key, or the file is damaged"
        raise WrongPassphraseError(f"{path}: {complaint}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise FuguError(f"{path}: not an Ed25519 key")
    return key


def read_private(path: Path, subject: str) -> bytes:
    """Read up to 16 KiB of a file. FuguError if users other than its owner have any right, or it cannot be read."""
    with file_errors(path, subject), path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if mode & 0o077:
            raise FuguError(f"{subject} that others may read (mode {mode & 0o777:04o}) is not used: chmod 600 it")
        return file.read(_MAX_BYTES)


_MIN_CHARACTERS = 8


class Passphrases:
    """The given passphrases; without them, the user is asked (FuguError without a terminal)."""

    def __init__(self, passphrases: Sequence[str], ask: Callable[[str], str]) -> None:
        self._passphrases = list(passphrases)
        self._has_passphrases = bool(passphrases)
        self._ask = ask

    def candidates(self, key_text: str) -> Iterator[str]:
        """Yield candidates for the passphrase of an existing key."""
        yield from list(self._passphrases)
        if not self._has_passphrases:
            self._passphrases.append(self._ask(f"Passphrase of {key_text}: "))
            yield self._passphrases[-1]

    def new(self) -> str:
        """Return a new key's passphrase: the first given, or typed twice. FuguError if too short or not the same."""
        if not self._passphrases:
            passphrase = self._ask("Passphrase for the new keys: ")
            if self._ask("The same again: ") != passphrase:
                raise FuguError("the two passphrases differ; nothing was written")
            self._passphrases.append(passphrase)
        return _check_length(self._passphrases[0])


def new_passphrase(path: Path) -> str:
    """Read the passphrase for a new key from a file. FuguError if it is too short, or as for `read_passphrase`."""
    return _check_length(read_passphrase(path))


def read_passphrase(path: Path) -> str:
    """Read a file's first line. FuguError if others than its owner may read it, or the line is empty or no text."""
    try:
        line = read_private(path, "a passphrase file").split(b"\n", 1)[0].decode().rstrip("\r")
    except UnicodeDecodeError:
        raise FuguError(f"{path}: the passphrase is no UTF-8 text") from None
    if not line:
        raise FuguError(f"{path}: the first line is empty: keys without a passphrase are not used")
    return line


def _check_length(passphrase: str) -> str:
    if len(passphrase) < _MIN_CHARACTERS:
        raise FuguError(f"a passphrase for a new key must have at least {_MIN_CHARACTERS} characters")
    return passphrase


RoleName = Literal["root", "policy", "gateway"]
ROLES: tuple[RoleName, ...] = get_args(RoleName)
_DIGITS = 8
_KEY_FILE = re.compile(rf"({'|'.join(ROLES)})-([0-9a-f]{{{_DIGITS}}})\.key")


class KeyFile(NamedTuple):
    """A file with a private key.

    `role` is the role that the key was made for, which a root may have taken from it since. `short_name` is the first
    digits of the key's name.
    """

    path: Path
    role: RoleName
    short_name: str

    def unlock(self, passphrases: Passphrases) -> Ed25519PrivateKey:
        """Return the private key. FuguError if no passphrase fits, or the file has another key than its name says."""
        content, last_error = read_private(self.path, "a key"), None
        for passphrase in passphrases.candidates(str(self.path)):
            try:
                key = decrypt_key(content, passphrase, self.path)
            except WrongPassphraseError as error:
                last_error = error
                continue
            if short_name(name_of(key)) != self.short_name:
                raise FuguError(f"{self.path}: holds key {short_name(name_of(key))}, not the one of its name")
            return key
        assert last_error is not None
        raise last_error


def name_of(key: Ed25519PrivateKey) -> str:
    """Return the name of a key in a root."""
    return key_name(key.public_key().public_bytes_raw()).hex()


def short_name(name: str) -> str:
    """Return the first digits of a key's name, as in file names and texts."""
    return name[:_DIGITS]


def key_files(folders: Iterable[Path]) -> list[KeyFile]:
    """Return all key files of some folders. FuguError if a folder is missing, or others may use it or a file."""
    files = []
    for folder in folders:
        with file_errors(folder, "the folder of keys"):
            mode, paths = folder.stat().st_mode, sorted(folder.iterdir())
            if mode & 0o077:
                rights = f"mode {mode & 0o777:04o}"
                raise FuguError(f"a folder of keys that others may use ({rights}) is not used: chmod 700 it")
        for path in paths:
            if match := _KEY_FILE.fullmatch(path.name):
                read_private(path, "a key")
                role = next(role for role in ROLES if role == match[1])
                files.append(KeyFile(path, role, match[2]))
    return files


def write_key(folder: Path, role: RoleName, key: Ed25519PrivateKey, passphrase: str) -> Path:
    """Write a new key into a folder. Return its path."""
    path = folder / f"{role}-{short_name(name_of(key))}.key"
    write_secret(path, encrypt_key(key, passphrase))
    return path


def unlock_keys(
    files: Sequence[KeyFile], key_names: Iterable[str], max_keys: int, passphrases: Passphrases
) -> list[Ed25519PrivateKey]:
    """Return up to `max_keys` private keys, in the order of `key_names`; names without a key file are skipped."""
    file_by_name = {file.short_name: file for file in files}
    keys: list[Ed25519PrivateKey] = []
    for name in key_names:
        if len(keys) == max_keys:
            break
        if (file := file_by_name.get(short_name(name))) is None:
            continue
        key = file.unlock(passphrases)
        if name_of(key) == name:
            keys.append(key)
    return keys


ROOT_FILE = "root.envelope"
_NO_LIMIT = 1e300
"""A ceiling above every epsilon: the owner's limits are not known here."""


class Root(NamedTuple):
    """A root document, with the bytes of its envelope."""

    document: RootDocument
    payload: bytes

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a root. FuguError if it is no root, or not signed by enough of its own keys."""
        with file_errors(path, "the root"):
            payload = path.read_bytes()
            envelope = Envelope.decode(payload)
            if envelope.kind != "root":
                raise FleetError(f"a {envelope.kind} document, not a root")
            root = cls(read_document(RootDocument, envelope.payload), payload)
            root.trust()
        return root

    @classmethod
    def newest_in(cls, folders: Sequence[Path]) -> Self:
        """Read the newest root of some folders. FuguError if none has a root, or one is invalid."""
        roots = [cls.read(folder / ROOT_FILE) for folder in folders if (folder / ROOT_FILE).exists()]
        if not roots:
            raise FleetError(f"there is no {ROOT_FILE} in {' or '.join(map(str, folders))}: put the fleet's root there")
        return max(roots, key=lambda root: root.document.version)

    def trust(self, device: str = "device", groups: tuple[str, ...] = ()) -> Trust:
        """Return the trust of a device of this fleet whose owner accepts every true guarantee."""
        limits: dict[str, Any] = {"ceiling": Ceiling(epsilon=_NO_LIMIT), "measurement_ceiling": _NO_LIMIT}
        root = self.payload.hex()
        return Trust(Enrolment(fleet=self.document.fleet, device=device, root=root, groups=groups, **limits))


def initialise(fleet: str, folder: Path, terms: Mapping[str, tuple[int, int, str]]) -> Root:
    """Make a fleet's keys and first root. `terms` has by role the threshold, the number of keys, and the passphrase.

    Raises FuguError if the folder is not empty, or cannot be written; pydantic.ValidationError if a threshold can
    never be met, or the fleet's name is invalid.
    """
    keys = {role: [Ed25519PrivateKey.generate() for _ in range(terms[role][1])] for role in ROLES}
    roles = {role: Role(keys=tuple(map(name_of, keys[role])), threshold=terms[role][0]) for role in ROLES}
    root = _sign_root(_make_root(fleet, 1, roles, _public_keys(chain.from_iterable(keys.values()))), keys["root"])
    root.trust()
    new_folder(folder, private=True)
    for role in ROLES:
        for key in keys[role]:
            write_key(folder, role, key, terms[role][2])
    _write_root(folder, root)
    return root


def rotate(
    folders: Sequence[Path],
    role: RoleName,
    key: str | None,
    passphrases: Passphrases,
    new_passphrase: str,
    *,
    key_count: int | None = None,
    threshold: int | None = None,
) -> tuple[Root, list[Path]]:
    """Replace keys of a role by a root that enough old and new root keys sign. Return the root and the new key files.

    Args:
        folders: of keys; the first has the root, and gets all new files.
        key: the key to replace, by the first digits of its name; `None` means all.
        key_count: the number of new keys, if all are replaced; by default as many as before.
        threshold: the role's new threshold; by default as before.

    Raises FuguError if there is no such key, a passphrase does not fit, or there are too few root keys;
    pydantic.ValidationError if the threshold can never be met.
    """
    files, old_root = key_files(folders), Root.newest_in(folders[:1])
    if (newest_version := Root.newest_in(folders).document.version) != old_root.document.version:
        raise FleetError(
            f"{folders[0]} has root version {old_root.document.version}, another folder has {newest_version}: "
            "name that one first, because devices refuse a second root of a version"
        )
    document = old_root.document
    old_names = _names_to_replace(document, role, key)
    new_keys = [Ed25519PrivateKey.generate() for _ in range(len(old_names) if key_count is None else key_count)]
    roles = {name: role_of(document, name) for name in ROLES}
    lasting_names = [name for name in roles[role].keys if name not in old_names]
    new_threshold = roles[role].threshold if threshold is None else threshold
    roles[role] = Role(keys=(*lasting_names, *map(name_of, new_keys)), threshold=new_threshold)
    new_document = _make_root(document.fleet, document.version + 1, roles, document.keys | _public_keys(new_keys))
    root_keys = new_keys if role == "root" else []
    root = _sign_root(new_document, _signing_keys(document, new_document, files, root_keys, passphrases))
    old_root.trust().judge(encode_roots([root.payload]), "root", 0)
    paths = [write_key(folders[0], role, private_key, new_passphrase) for private_key in new_keys]
    _write_root(folders[0], root)
    return root, paths


def _names_to_replace(document: RootDocument, role: RoleName, digits: str | None) -> set[str]:
    key_names = set(role_of(document, role).keys)
    if digits is None:
        return key_names
    matches = {name for name in key_names if len(digits) >= 4 and name.startswith(digits)}
    if len(matches) != 1:
        shown_names, version = ", ".join(sorted(map(short_name, key_names))), document.version
        raise FleetError(f"{digits[:40]!r} names no {role} key of root version {version}; there are {shown_names}")
    return matches


def _signing_keys(
    old: RootDocument, new: RootDocument, files: list[KeyFile], new_keys: list[Ed25519PrivateKey], secrets: Passphrases
) -> list[Ed25519PrivateKey]:
    """Return enough keys of the old root, and enough of the new root; lasting keys count for both."""
    lasting_names = [name for name in old.root.keys if name in new.root.keys]
    dropped_names = [name for name in old.root.keys if name not in new.root.keys]
    keys = unlock_keys(
        files, lasting_names + dropped_names, max(old.root.threshold, new.root.threshold - len(new_keys)), secrets
    )
    if len(keys) < old.root.threshold:
        raise FleetError(
            f"a new root takes {old.root.threshold} of the old root keys, {len(keys)} are at hand: "
            "name further folders with --keys"
        )
    new_signers = sum(name_of(key) in new.root.keys for key in keys)
    keys += new_keys[: max(0, new.root.threshold - new_signers)]
    if (new_signers := sum(name_of(key) in new.root.keys for key in keys)) < new.root.threshold:
        raise FleetError(f"the new root takes {new.root.threshold} of its own keys, {new_signers} are at hand")
    return keys


def _make_root(fleet: str, version: int, roles: Mapping[RoleName, Role], all_keys: Mapping[str, str]) -> RootDocument:
    """The root with these roles, and the public keys of their names."""
    used_keys = {name: all_keys[name] for role in ROLES for name in roles[role].keys}
    root, policy, gateway = (roles[role] for role in ROLES)
    return RootDocument(fleet=fleet, version=version, keys=used_keys, root=root, policy=policy, gateway=gateway)


def _sign_root(document: RootDocument, root_keys: list[Ed25519PrivateKey]) -> Root:
    return Root(document, sign("root", write_document(document), root_keys).encode())


def _public_keys(keys: Iterable[Ed25519PrivateKey]) -> dict[str, str]:
    return {name_of(key): key.public_key().public_bytes_raw().hex() for key in keys}


def role_of(document: RootDocument, role_name: RoleName) -> Role:
    """Return the keys and the threshold of a role in a root."""
    key_role: Role = getattr(document, role_name)
    return key_role


def _write_root(folder: Path, root: Root) -> None:
    write_public(folder / f"root-{root.document.version}.envelope", root.payload)
    write_public(folder / ROOT_FILE, root.payload)
