"""Options, times and passphrases that the commands of a fleet share."""

from __future__ import annotations

import getpass
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.errors import CommandError, CommandLineError
from fugu.cli.view.fleet import changes_document, show_changes
from fugu.cli.view.terminal import answer, working
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import Address, Enrolment, PolicyDocument, read_enrolment
from gateway.fleet import KeyStoreError, Registry
from gateway.fleet.keys import Passphrases, read_passphrase

__all__ = [
    "DocumentArgument",
    "EnrolmentsOption",
    "KeysOption",
    "NoteOption",
    "PassphraseFiles",
    "RegistryOption",
    "RootOption",
    "address",
    "at_hand",
    "dry_run_of",
    "now_us",
    "owners",
    "user",
]

RegistryOption = Annotated[Path, typer.Option("--registry", metavar="FILE", help="The fleet's registry.")]
RootOption = Annotated[
    Path, typer.Option("--root", metavar="FILE", help="The fleet's root, root.envelope beside the keys; it is public.")
]
KeysOption = Annotated[
    list[Path],
    typer.Option("--keys", metavar="DIR", help="Folder of keys, with the root; again for keys in other folders."),
]
PassphraseFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="Its first line is the passphrase; mode 0600; again for keys with others "
        "(default: FUGU_PASSPHRASE, or it is asked for).",
    ),
]
EnrolmentsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--enrolment", metavar="FILE", help="Check it against this device's ceilings and pins; again for more."
    ),
]
DocumentArgument = Annotated[Path, typer.Argument(metavar="DOCUMENT", help="What 'fugu fleet sign' has written.")]
NoteOption = Annotated[str, typer.Option("--note", help="What it is about, for the registry.")]
_VARIABLE = "FUGU_PASSPHRASE"
_OPERATOR = "FUGU_OPERATOR"


def now_us() -> int:
    """Microseconds of Unix time."""
    return time.time_ns() // 1000


def owners(files: list[Path] | None) -> list[Enrolment]:
    """What the owners of devices accept, from enrolments.

    Raises:
        FuguError: a file cannot be read, or is no enrolment; names the file.
    """
    found = []
    for file in files or ():
        try:
            found.append(read_enrolment(file.read_bytes()))
        except OSError as error:
            raise CommandError(f"cannot read the enrolment {file}: {error.strerror}") from None
        except FuguError as error:
            raise type(error)(f"{file}: {error}") from None
    return found


def user() -> str:
    """Who does something, for the history: FUGU_OPERATOR, or the login name.

    Raises:
        CommandError: neither is known.
    """
    try:
        return os.environ.get(_OPERATOR) or getpass.getuser()
    except (OSError, KeyError):
        raise CommandError(f"the login name is not known: say who does it with {_OPERATOR}") from None


def address(text: str) -> Address:
    """Read `device:NAME`, `group:NAME` or `everyone`; a `CommandLineError` if it is none of these."""
    kind, colon, name = text.partition(":")
    if text == "everyone":
        return Address(everyone=True)
    if kind not in ("device", "group") or not colon or not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
        raise CommandLineError(f"--to must be device:NAME, group:NAME or everyone, got {text[:80]!r}")
    return Address(device=name) if kind == "device" else Address(group=name)


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
        answer = getpass.getpass(prompt)
    except EOFError:
        answer = ""
    if not answer:
        raise KeyStoreError("no passphrase: keys without one are not used")
    return answer


def dry_run_of(
    registry: Registry, document: PolicyDocument, as_json: bool, devices: set[str] | None = None, **more: object
) -> None:
    """Show what would change on devices, those that a document is for if none are named, with more for JSON."""
    from gateway.fleet.dry_run import changes

    with working("what would change"):
        found = changes(registry, document, devices)
    answer(
        as_json,
        lambda: {**changes_document(found, document.version), **more},
        lambda: show_changes(found, document.version),
    )
