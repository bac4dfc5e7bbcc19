"""`fugu fleet init` and `fugu fleet keys`, and the options that fleet commands share."""

from __future__ import annotations

import getpass
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.fleet_documents import Enrolment, PolicyDocument, RootDocument, read_enrolment
from fugu.host.arguments import one_of
from fugu.host.files import file_errors
from fugu.library.report import JsonObject, Line, Result, Table
from fugu_cli.app import FleetOption, command_group
from fugu_cli.view.fleet import dry_run
from fugu_cli.view.terminal import say, show_report, working
from gateway.fleet.documents import changes, former_document
from gateway.fleet.entries import RolloutPlan
from gateway.fleet.keys import (
    ROLES,
    ROOT_FILE,
    Passphrases,
    Root,
    initialise,
    key_files,
    new_passphrase,
    read_passphrase,
    role_of,
    short_name,
)
from gateway.fleet.keys import rotate as rotate_root
from gateway.fleet.registry import Registry

__all__ = [
    "EnrolmentsOption",
    "KeysOption",
    "PassphraseFiles",
    "RegistryOption",
    "actor_and_time",
    "app",
    "dry_run_of",
    "enrolments_in",
    "init",
    "passphrases_in",
]

RegistryOption = Annotated[Path, Option("--registry", metavar="FILE", help="The fleet's registry.")]
KeysOption = Annotated[
    list[Path], Option("--keys", metavar="DIR", help="Folder of keys, with the root; again for keys in other folders.")
]
PassphraseFiles = Annotated[
    list[Path] | None,
    Option(
        "--passphrase-file",
        metavar="FILE",
        help="Its first line is the passphrase; mode 0600; again for keys with others "
        "(default: FUGU_PASSPHRASE, or it is asked for).",
    ),
]
EnrolmentsOption = Annotated[
    list[Path] | None,
    Option("--enrolment", metavar="FILE", help="Check it against this device's ceilings and pins; again for more."),
]
_VARIABLE = "FUGU_PASSPHRASE"
_OPERATOR = "FUGU_OPERATOR"


def enrolments_in(files: list[Path] | None) -> list[Enrolment]:
    """Read enrolments, with the limits of devices' owners. FuguError: the named file is no readable enrolment."""
    enrolments = []
    for file in files or ():
        with file_errors(file, "the enrolment"):
            enrolments.append(read_enrolment(file.read_bytes()))
    return enrolments


def actor_and_time() -> dict[str, Any]:
    """Return the operator's name and the time, for a history.

    The name is FUGU_OPERATOR's, else the login name; FuguError if both are unknown.
    """
    try:
        return {"actor": os.environ.get(_OPERATOR) or getpass.getuser(), "time_us": time.time_ns() // 1000}
    except (OSError, KeyError):
        raise FuguError(f"the login name is not known: say who does it with {_OPERATOR}") from None


def passphrases_in(files: Sequence[Path] | None) -> Passphrases:
    """Return the passphrases in files, else that of the environment; a user at a terminal is asked for others.

    FuguError: a file may be read by others, or holds no passphrase.
    """
    passphrases = [read_passphrase(file) for file in files or ()]
    return Passphrases(passphrases or list(filter(None, [os.environ.get(_VARIABLE)])), _ask)


def _ask(prompt: str) -> str:
    """Ask for a passphrase at the terminal; FuguError without a terminal or an answer."""
    if not sys.stdin.isatty():
        raise FuguError(f"no passphrase: give --passphrase-file or {_VARIABLE}, or run it at a terminal")
    with suppress(EOFError):
        if passphrase := getpass.getpass(prompt):
            return passphrase
    raise FuguError("no passphrase: keys without one are not used")


def dry_run_of(
    registry: Registry,
    document: PolicyDocument,
    roots: Sequence[Root],
    devices: set[str] | None = None,
    plan: RolloutPlan | None = None,
    stages: Sequence[Sequence[str]] = (),
) -> Result:
    """Show what a document would change on devices, by default on all its devices.

    The previous document is shown beside it only if keys of one of `roots` have signed it.
    """
    with working("what would change"):
        device_changes = changes(registry, document, devices)
        previous_document = former_document(registry, document, roots)
    return dry_run(document, previous_document, device_changes, plan, stages)


_MOST_KEYS = 16


def init(
    *,
    fleet: FleetOption,
    keys: Annotated[Path, Option(metavar="DIR", help="Folder for the keys; it must be new or empty.")],
    root: Annotated[
        str, Option(metavar="M/N", help="Keys that name all others: N, of which M have to sign a new root.")
    ] = "2/3",
    policy: Annotated[
        str, Option(metavar="M/N", help="Keys for operators: N, of which M have to sign a document.")
    ] = "1/1",
    passphrase_file: PassphraseFiles = None,
    gateway_passphrase_file: Annotated[
        Path | None,
        Option(metavar="FILE", help="Passphrase of the gateway's key, which is online (default: the same)."),
    ] = None,
) -> None:
    """Make a fleet's keys.

    These are root keys, which go offline, policy keys for operators, and one key for the gateway.

    \b
    examples:
      fugu fleet init --fleet home --keys keys
      fugu fleet init --fleet home --keys keys --policy 2/3 --passphrase-file secret
    """
    root_quorum, policy_quorum = _quorum(root, "root"), _quorum(policy, "policy")
    passphrase = passphrases_in(passphrase_file).new()
    gateway_passphrase = passphrase if gateway_passphrase_file is None else new_passphrase(gateway_passphrase_file)
    roles = {"root": (*root_quorum, passphrase), "policy": (*policy_quorum, passphrase)}
    roles["gateway"] = 1, 1, gateway_passphrase
    new_root = initialise(fleet, keys, roles)
    show_report([_root_table(new_root.document, [keys])])
    say(f"{keys / ROOT_FILE}: the root, public; every device gets it by 'fugu fleet enrol'")
    say(f"Move {keys}/root-*.key to disks that are kept offline; the gateway gets {keys}/gateway-*.key and no other.")


def _quorum(quorum_text: str, name: str) -> tuple[int, int]:
    """Parse M/N as how many keys have to sign, and how many there are; UsageError for any other text."""
    match = re.fullmatch("([1-9][0-9]?)/([1-9][0-9]?)", quorum_text)
    if match is None or int(match[2]) > _MOST_KEYS:
        raise UsageError(f"{name} must be M/N, M of N keys and N from 1 to {_MOST_KEYS}, got {quorum_text[:40]!r}")
    return int(match[1]), int(match[2])


def show(keys: KeysOption) -> Result:
    """Show whose signatures count for what.

    It also shows which private keys are in the folders.

    \b
    examples:
      fugu fleet keys show --keys keys
      fugu fleet keys show --keys keys --keys /media/offline/keys --json
    """
    document = Root.newest_in(keys).document
    return Result(_root_document(document, keys), [_root_table(document, keys)])


def rotate(
    *,
    keys: KeysOption,
    role: Annotated[str, Option(help="root, policy or gateway.")],
    key: Annotated[
        str | None, Option(metavar="NAME", help="The one to replace, by its first digits (default: all).")
    ] = None,
    count: Annotated[
        int | None, Option(min=1, max=_MOST_KEYS, help="Without --key: how many new ones (default: as many).")
    ] = None,
    threshold: Annotated[
        int | None, Option(min=1, help="How many have to sign from now on (default: as before).")
    ] = None,
    passphrase_file: PassphraseFiles = None,
    new_passphrase_file: Annotated[
        Path | None, Option(metavar="FILE", help="Passphrase of the new keys (default: the first one).")
    ] = None,
) -> Result:
    """Replace keys, such as one that was lost or stolen.

    They are replaced by a new root, which enough old and new root keys sign.

    \b
    examples:
      fugu fleet keys rotate --role gateway --keys keys --keys /media/offline/keys
      fugu fleet keys rotate --role policy --key 1f3a99c0 --keys keys --keys /media/offline/keys
    """
    if key is not None and count is not None:
        raise UsageError("--count goes with the replacement of all keys of a role, not with --key")
    passphrases = passphrases_in(passphrase_file)
    key_role = one_of(role, "--role", ROLES)
    passphrase = passphrases.new() if new_passphrase_file is None else new_passphrase(new_passphrase_file)
    root, new_files = rotate_root(keys, key_role, key, passphrases, passphrase, key_count=count, threshold=threshold)
    root_paths = ", ".join(f'"{keys[0]}/root-{index + 1}.envelope"' for index in range(root.document.version))
    lines = [
        f"{keys[0] / ROOT_FILE}: root version {root.document.version}",
        f"Devices get it from the gateway, whose file needs all of them below [signed]: roots = [{root_paths}]",
    ]
    if key_role == "policy":
        lines.append(
            "Documents that only the old keys have signed are refused from now on: sign what is in force again."
        )
    document = {**_root_document(root.document, keys), "new": [str(path) for path in new_files]}
    return Result(document, [_root_table(root.document, keys), *map(Line, lines)])


app = command_group({"show": show, "rotate": rotate}, "The keys that a fleet trusts.")


def _root_document(document: RootDocument, folders: list[Path]) -> JsonObject:
    """Return the root as JSON, with the paths of its private keys."""
    paths, retired_keys = _key_files(document, folders)
    roles = JsonObject()
    for role in ROLES:
        role_quorum = role_of(document, role)
        role_keys = [{"key": name, "file": paths.get(short_name(name))} for name in role_quorum.keys]
        roles[role] = {"threshold": role_quorum.threshold, "keys": role_keys}
    return {"fleet": document.fleet, "version": document.version, **roles, "retired": list(retired_keys.values())}


def _root_table(document: RootDocument, folders: list[Path]) -> Table:
    """Show the root as a table, with the paths of its private keys."""
    paths, retired_keys = _key_files(document, folders)
    key_rows: list[tuple[str, str, str, str]] = []
    for role in ROLES:
        role_quorum = role_of(document, role)
        quorum_text = f"{role_quorum.threshold} of {len(role_quorum.keys)}"
        key_names = map(short_name, role_quorum.keys)
        key_rows += [(role, quorum_text, name, paths.get(name, "elsewhere")) for name in key_names]
    key_rows += [("none any more", "", name, path) for name, path in retired_keys.items()]
    title = f"Root version {document.version} of fleet {document.fleet}"
    return Table(title, ("role", "takes", "key", "file"), key_rows)


def _key_files(document: RootDocument, folders: list[Path]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the paths of all keys in folders by short name, and of those keys that the root does not name."""
    paths = {file.short_name: str(file.path) for file in key_files(folders)}
    root_names = {short_name(name) for name in document.keys}
    return paths, {name: path for name, path in paths.items() if name not in root_names}
