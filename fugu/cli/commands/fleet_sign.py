"""`fugu fleet sign`."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from firmware_sim.compiled_policy import check_compiled, units, with_compiled
from fugu.cli.commands.arguments import moment, one_of, stream_units
from fugu.cli.commands.fleet_options import EnrolmentsOption, KeysOption, PassphraseFiles, address, at_hand, owners
from fugu.cli.commands.options import JsonOption, UnitOption, grouped
from fugu.cli.errors import CommandError, CommandLineError
from fugu.cli.view.terminal import say, show_table, working
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import Address, PolicyDocument
from fugu.host.files import write_public
from gateway.fleet import FleetError, Registry
from gateway.fleet.documents import document_in, refuse_other_ticks
from gateway.fleet.keys import key_files, unlock_some
from gateway.fleet.roots import Root, root_in
from gateway.fleet.signing import (
    Signed,
    add_signatures,
    check,
    make_document,
    promises,
    read_bodies,
    read_signed,
    sign_document,
)

__all__ = ["sign"]

_Expiry = Literal["hold", "stop"]
_EXPIRIES: tuple[_Expiry, ...] = ("hold", "stop")


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """For whom a document is, which one it is, and when it holds."""

    to: Annotated[str | None, typer.Option(metavar="WHOM", help="device:NAME, group:NAME or everyone.")] = None
    version: Annotated[
        str, typer.Option(metavar="N|next", help="Of the document; next is the one after the registry's newest.")
    ] = "next"
    restores: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Bring back what this version of the registry said.")
    ] = None
    valid_from: Annotated[
        str | None, typer.Option(metavar="TIME", help="Unix seconds or ISO 8601 (UTC if it says no zone).")
    ] = None
    valid_until: Annotated[str | None, typer.Option(metavar="TIME", help="It is over then.")] = None
    on_expiry: Annotated[str | None, typer.Option(help="hold (default): go on when it is over; stop: be silent.")] = (
        None
    )
    registry: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For --version next and --restores; it is only read.")
    ] = None
    boards: Annotated[bool, typer.Option("--boards", help="For microcontrollers too: with compiled policies.")] = False
    unit: UnitOption = None


@grouped
def sign(
    keys: KeysOption,
    document: DocumentOptions,
    policies: Annotated[
        list[Path] | None, typer.Argument(metavar="[POLICY]...", help="Policies in their JSON form, one a stream.")
    ] = None,
    add_to: Annotated[
        Path | None, typer.Option("--add-to", metavar="FILE", help="Add a signature to a document of others.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there (default: as --add-to).")
    ] = None,
    enrolments: EnrolmentsOption = None,
    passphrase_file: PassphraseFiles = None,
    as_json: JsonOption = False,
) -> None:
    """Sign what devices are to do.

    Every guarantee is derived anew before, and what is false is not signed.

    \b
    examples:
      fugu fleet sign heart.json --to group:wrists --version 1 --keys keys -o wrists-1.envelope
      fugu fleet sign heart.json --to everyone --version next --registry home-fleet.db --keys keys -o all.envelope
      fugu fleet sign --add-to all.envelope --keys /media/anna/keys
      fugu fleet sign --restores 3 --registry home-fleet.db --keys keys -o back.envelope
      fugu fleet sign heart.json --to device:ring --version 4 --boards --unit hr=1/10 --keys keys -o ring.envelope
    """
    target = output or add_to
    sources = [bool(policies), document.restores is not None, add_to is not None]
    if sum(sources) != 1 or target is None or bool(policies) != (document.to is not None):
        raise CommandLineError(
            "name POLICY files with --to and -o, or --restores with -o, or --add-to (try 'fugu fleet sign --help')"
        )
    root = root_in(keys)
    limits = owners(enrolments)
    if add_to is not None:
        if document.version != "next" or document.valid_from or document.valid_until or document.on_expiry:
            raise CommandLineError("--add-to signs a document as it is: it takes no version and no times")
        signed = _opened(add_to, root)
        check_compiled(signed.document)
        signed = add_signatures(signed, _policy_keys(keys, root, passphrase_file, signed))
    else:
        with working("deriving every guarantee"):
            made = _document(root, policies or [], document)
            if document.registry is not None:
                with closing(Registry(document.registry)) as opened:
                    refuse_other_ticks(opened, made)
        signed = sign_document(made, _policy_keys(keys, root, passphrase_file, None), root)
    if signed.complete:
        with working("checking it as a device does"):
            check(signed, root, int(time.time()), limits)
    write_public(target, signed.payload)
    _show_signed(signed, target, as_json)


def _document(root: Root, policies: list[Path], given: DocumentOptions) -> PolicyDocument:
    """The document that the options of `sign` describe."""
    expiry: _Expiry = one_of(given.on_expiry or "hold", "--on-expiry", _EXPIRIES)
    until = None if given.valid_until is None else moment(given.valid_until, "--valid-until")
    begin = 0 if given.valid_from is None else moment(given.valid_from, "--valid-from")
    number, old = _version(given)
    if old is None:
        whom: Address = address(given.to or "")
        bodies = read_bodies(policies, root.document.fleet, whom)
    else:
        whom, bodies = old.to, list(old.policies)
        expiry = expiry if given.on_expiry else old.on_expiry
        until = old.valid_until if until is None else until
    if until is not None and until <= time.time():
        raise CommandError(f"the document would be over since {until}: say --valid-until, later than now")
    made = make_document(
        root.document.fleet, number, whom, bodies, valid_from=begin, valid_until=until, on_expiry=expiry
    )
    compiled = old is not None and bool(old.compiled)
    if not given.boards and not compiled:
        return made
    return with_compiled(made, (units(old) if old is not None and compiled else {}) | stream_units(given.unit))


def _version(given: DocumentOptions) -> tuple[int, PolicyDocument | None]:
    """The new document's version, and the document that it brings back."""
    text = given.version
    if text != "next" and not text.isdecimal():
        raise CommandLineError(f"--version must be a number or 'next', got {text[:40]!r}")
    if given.registry is None:
        if text == "next" or given.restores is not None:
            raise CommandLineError("--version next and --restores need --registry")
        return int(text[:20]), None
    with closing(Registry(given.registry)) as opened:
        newest = opened.newest_version()
        number = newest + 1 if text == "next" else int(text[:20])
        if number <= newest:
            raise FleetError(f"version {number} is not newer than {newest}, which the registry has")
        return number, None if given.restores is None else document_in(opened, given.restores)


def _policy_keys(
    folders: list[Path], root: Root, passphrase_files: list[Path] | None, signed: Signed | None
) -> list[Ed25519PrivateKey]:
    """Policy keys that are at hand and have not signed yet, as many as are still needed, at least one."""
    files, role = key_files(folders), root.document.policy
    done = set() if signed is None else {one.key.hex() for one in signed.envelope.signatures}
    needed = max(1, role.threshold - len(done))
    found = unlock_some(files, (name for name in role.keys if name not in done), needed, at_hand(passphrase_files))
    if not found:
        what = "that has not signed yet " if done else ""
        raise CommandError(
            f"{' and '.join(map(str, folders))}: no policy key of root version {root.document.version} {what}is there"
        )
    return found


def _opened(path: Path, root: Root) -> Signed:
    try:
        return read_signed(path.read_bytes(), root)
    except FuguError as error:
        raise type(error)(f"{path}: {error}") from None


def _show_signed(signed: Signed, path: Path, as_json: bool) -> None:
    document, streams = signed.document, promises(signed.document)
    if as_json:
        fields = {"file": str(path), "version": document.version, "to": str(document.to), "complete": signed.complete}
        counts = {"signatures": signed.signatures, "needed": signed.needed, "digest": signed.envelope.digest}
        print(json.dumps({**fields, **counts, "streams": [one._asdict() for one in streams]}))
        return
    rows = [
        (one.stream, one.kind, f"{one.epsilon:g}" + (" each point" if one.kind == "measured" else ""), one.adversary)
        for one in streams
    ]
    show_table(f"Version {document.version} for {document.to}", ("stream", "", "epsilon", "adversary"), rows)
    say("Epsilon is for single ticks; the dry run of a push, and 'fugu check policy', show it for an hour and a night.")
    say(f"{path}: {signed.signatures} of the {signed.needed} signatures that it takes")
    if not signed.complete:
        say("others add theirs with: fugu fleet sign --add-to", style="bold")
