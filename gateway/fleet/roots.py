"""Roots of a fleet: the first one, and rotations, each checked as a device checks it before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract.envelope import Envelope, encode_roots, sign
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import Enrolment, Role, RootDocument, read_document, write_document
from fugu.contract.trust import Trust
from fugu.host.files import write_public
from gateway.fleet.entries import FleetError
from gateway.fleet.keys import (
    ROLES,
    KeyFile,
    Passphrases,
    RoleName,
    key_files,
    name_of,
    new_key_folder,
    short,
    unlock_some,
    write_key,
)

__all__ = ["ROOT_FILE", "Root", "device_trust", "initialise", "read_root", "root_in", "rotate"]

ROOT_FILE = "root.envelope"
_MOST = 1e300
"""A ceiling that nothing is above: the owner's limits are not known here."""


class Root(NamedTuple):
    """A root document, and the bytes of its envelope."""

    document: RootDocument
    payload: bytes


def read_root(path: Path) -> Root:
    """Read a root, and check that its own keys have signed it.

    Raises:
        FleetError: it is none, or not signed by enough of its keys.
    """
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise FleetError(f"cannot read the root {path}: {error.strerror}") from None
    try:
        envelope = Envelope.decode(payload)
        if envelope.kind != "root":
            raise FleetError(f"a {envelope.kind} document, not a root")
        root = Root(read_document(RootDocument, envelope.payload), payload)
        device_trust(root)
    except FuguError as error:
        raise FleetError(f"{path}: {error}") from None
    return root


def root_in(folders: Sequence[Path]) -> Root:
    """The newest root of some folders.

    Raises:
        FleetError: none has one, or one is no good.
    """
    found = [read_root(folder / ROOT_FILE) for folder in folders if (folder / ROOT_FILE).exists()]
    if not found:
        raise FleetError(f"there is no {ROOT_FILE} in {' or '.join(map(str, folders))}: put the fleet's root there")
    return max(found, key=lambda root: root.document.version)


def device_trust(root: Root, device: str = "device", groups: tuple[str, ...] = ()) -> Trust:
    """The rules of a device of this fleet whose owner accepts everything that is true."""
    return Trust(
        Enrolment(
            fleet=root.document.fleet,
            device=device,
            root=root.payload.hex(),
            groups=groups,
            ceiling=_MOST,
            measurement_ceiling=_MOST,
        )
    )


def initialise(
    fleet: str,
    folder: Path,
    counts: Mapping[RoleName, int],
    thresholds: Mapping[RoleName, int],
    passphrases: Mapping[RoleName, str],
) -> Root:
    """Make a fleet's keys and its first root.

    Raises:
        FleetError: the folder is not empty, or cannot be written.
        pydantic.ValidationError: a threshold can never be met, or the name is none.
    """
    keys = {role: [Ed25519PrivateKey.generate() for _ in range(counts[role])] for role in ROLES}
    root = _signed(_document(fleet, 1, {role: _publics(keys[role]) for role in ROLES}, thresholds), keys["root"])
    device_trust(root)
    new_key_folder(folder)
    for role in ROLES:
        for key in keys[role]:
            write_key(folder, role, key, passphrases[role])
    _write(folder, root)
    return root


def rotate(
    folders: Sequence[Path],
    role: RoleName,
    key: str | None,
    passphrases: Passphrases,
    new_passphrase: str,
    *,
    count: int | None = None,
    threshold: int | None = None,
) -> tuple[Root, list[Path]]:
    """Replace keys of a role, by a root that enough old and enough new root keys have signed.

    Args:
        folders: of keys; the first has the root, and gets what is new.
        key: the one, by the first digits of its name; none means all.
        count: how many new ones, if all are replaced; as many as before if not given.
        threshold: of the role from now on; as before if not given.

    Returns:
        The new root, and the files of the new keys.

    Raises:
        FleetError: there is no such key, or too few root keys are at hand.
    """
    files, old = key_files(folders), root_in(folders[:1])
    if (newest := root_in(folders).document.version) != old.document.version:
        raise FleetError(
            f"{folders[0]} has root version {old.document.version}, another folder has {newest}: name that one first, "
            "because devices refuse a second root of a version"
        )
    document = old.document
    replaced = _replaced(document, role, key)
    fresh = [Ed25519PrivateKey.generate() for _ in range(len(replaced) if count is None else count)]
    publics = {each: {name: document.keys[name] for name in _role(document, each).keys} for each in ROLES}
    publics[role] = {name: public for name, public in publics[role].items() if name not in replaced} | _publics(fresh)
    thresholds = {each: _role(document, each).threshold for each in ROLES} | (
        {} if threshold is None else {role: threshold}
    )
    new = _document(document.fleet, document.version + 1, publics, thresholds)
    root = _signed(new, _signing(document, new, files, fresh if role == "root" else [], passphrases))
    device_trust(old).follow_roots(encode_roots([root.payload]))
    paths = [write_key(folders[0], role, each, new_passphrase) for each in fresh]
    _write(folders[0], root)
    return root, paths


def _replaced(document: RootDocument, role: RoleName, key: str | None) -> set[str]:
    names = set(_role(document, role).keys)
    if key is None:
        return names
    found = {name for name in names if len(key) >= 4 and name.startswith(key)}
    if len(found) != 1:
        known = ", ".join(sorted(map(short, names)))
        raise FleetError(f"{key[:40]!r} names no {role} key of root version {document.version}; there are {known}")
    return found


def _signing(
    old: RootDocument, new: RootDocument, files: list[KeyFile], fresh: list[Ed25519PrivateKey], secrets: Passphrases
) -> list[Ed25519PrivateKey]:
    """Enough keys of the old root, and enough of the new one; those that stay count for both."""
    stays = [name for name in old.root.keys if name in new.root.keys]
    goes = [name for name in old.root.keys if name not in new.root.keys]
    found = unlock_some(files, stays + goes, max(old.root.threshold, new.root.threshold - len(fresh)), secrets)
    if len(found) < old.root.threshold:
        raise FleetError(
            f"a new root takes {old.root.threshold} of the old root keys, {len(found)} are at hand: "
            "name further folders with --keys"
        )
    counting = sum(name_of(key) in new.root.keys for key in found)
    found += fresh[: max(0, new.root.threshold - counting)]
    if (counting := sum(name_of(key) in new.root.keys for key in found)) < new.root.threshold:
        raise FleetError(f"the new root takes {new.root.threshold} of its own keys, {counting} are at hand")
    return found


def _document(
    fleet: str, version: int, publics: Mapping[RoleName, Mapping[str, str]], thresholds: Mapping[RoleName, int]
) -> RootDocument:
    root, policy, gateway = (Role(keys=tuple(publics[role]), threshold=thresholds[role]) for role in ROLES)
    every = {name: public for role in ROLES for name, public in publics[role].items()}
    return RootDocument(fleet=fleet, version=version, keys=every, root=root, policy=policy, gateway=gateway)


def _signed(document: RootDocument, keys: list[Ed25519PrivateKey]) -> Root:
    return Root(document, sign("root", write_document(document), keys).encode())


def _publics(keys: list[Ed25519PrivateKey]) -> dict[str, str]:
    return {name_of(key): key.public_key().public_bytes_raw().hex() for key in keys}


def _role(document: RootDocument, role: RoleName) -> Role:
    return {"root": document.root, "policy": document.policy, "gateway": document.gateway}[role]


def _write(folder: Path, root: Root) -> None:
    """The newest root, and a copy under its version for devices that were long away."""
    write_public(folder / f"root-{root.document.version}.envelope", root.payload)
    write_public(folder / ROOT_FILE, root.payload)
