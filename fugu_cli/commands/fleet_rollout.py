"""`fugu fleet sign` and `fugu fleet rollout`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer import Argument, Option

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.fleet_documents import Address, PolicyDocument, board_units, compile_for_boards
from fugu.host.arguments import moment, one_of, stream_units
from fugu.host.files import file_errors, write_public
from fugu.library.report import Line, Part, Result, Table
from fugu_cli.app import JsonOption, UnitOption, command_group, option_group, output_option
from fugu_cli.commands.fleet_keys import (
    EnrolmentsOption,
    KeysOption,
    PassphraseFiles,
    RegistryOption,
    actor_and_time,
    dry_run_of,
    enrolments_in,
    passphrases_in,
)
from fugu_cli.view.fleet import content_document, content_report, read_document, rollout_result, watch
from fugu_cli.view.terminal import show as show_result
from fugu_cli.view.terminal import show_report, warn, working
from gateway.fleet.documents import (
    check_new,
    document_in,
    enter_document,
    former_document,
    refuse_other_ticks,
    signed_document,
    target_of,
)
from gateway.fleet.entries import FleetError, RolloutPlan, Stage, parse_share, stages_of
from gateway.fleet.keys import Root, key_files, unlock_keys
from gateway.fleet.registry import Registry
from gateway.fleet.rollouts import Rollouts
from gateway.fleet.signing import (
    Signed,
    make_document,
    promises,
    read_bodies,
    read_complete,
    verify_guarantees,
    weaker_promises,
)

__all__ = ["app", "sign"]

_Expiry = Literal["hold", "stop"]
_EXPIRIES: tuple[_Expiry, ...] = ("hold", "stop")
_MOST_VERSION = 4_000_000_000
"""The most that is signed by its number: devices take no version above 2^32 - 1, and none below the one before."""


@option_group
class DocumentOptions:
    """Options for a document: its devices, version and times."""

    to: Annotated[str | None, Option(metavar="WHOM", help="device:NAME, group:NAME or everyone.")] = None
    version: Annotated[
        str, Option(metavar="N|next", help="Of the document; next is the one after the registry's newest.")
    ] = "next"
    restores: Annotated[
        str | None,
        Option(
            metavar="VERSION|FILE",
            help="Bring back what this version of the registry said; a signed file, if a key that was replaced "
            "since has signed it.",
        ),
    ] = None
    valid_from: Annotated[
        str | None, Option(metavar="TIME", help="Unix seconds or ISO 8601 (UTC if it says no zone).")
    ] = None
    valid_until: Annotated[str | None, Option(metavar="TIME", help="It is over then.")] = None
    on_expiry: Annotated[str | None, Option(help="hold (default): go on when it is over; stop: be silent.")] = None
    registry: Annotated[
        Path | None, Option(metavar="FILE", help="For --version next and --restores VERSION; it is only read.")
    ] = None
    boards: Annotated[bool, Option("--boards", help="For microcontrollers too: with compiled policies.")] = False
    unit: UnitOption = None


def sign(
    policies: Annotated[
        list[Path] | None, Argument(metavar="[POLICY]...", help="Policies in their JSON form, one a stream.")
    ] = None,
    *,
    keys: KeysOption,
    document: DocumentOptions,
    add_to: Annotated[Path | None, Option(metavar="FILE", help="Add a signature to a document of others.")] = None,
    output: Annotated[Path | None, output_option("FILE", "Write it there (default: as --add-to).")] = None,
    enrolments: EnrolmentsOption = None,
    passphrase_file: PassphraseFiles = None,
    as_json: JsonOption = False,
) -> None:
    """Sign what devices are to do.

    Every guarantee is derived again before, and a false one is not signed.

    \b
    examples:
      fugu fleet sign heart.json --to group:wrists --version 1 --keys keys -o wrists-1.envelope
      fugu fleet sign heart.json --to everyone --version next --registry home-fleet.db --keys keys -o all.envelope
      fugu fleet sign --add-to all.envelope --keys /media/anna/keys
      fugu fleet sign --restores 3 --registry home-fleet.db --keys keys -o back.envelope
      fugu fleet sign heart.json --to device:ring --version 4 --boards --unit hr=1/10 --keys keys -o ring.envelope
    """
    target_file = output or add_to
    source_flags = [bool(policies), document.restores is not None, add_to is not None]
    if sum(source_flags) != 1 or target_file is None or bool(policies) != (document.to is not None):
        raise UsageError(
            "name POLICY files with --to and -o, or --restores with -o, or --add-to (try 'fugu fleet sign --help')"
        )
    root = Root.newest_in(keys)
    owner_enrolments = enrolments_in(enrolments)
    if add_to is not None:
        if document != DocumentOptions(registry=document.registry):
            raise UsageError("--add-to signs a document as it is: of the document's options it takes --registry only")
        with file_errors(add_to, "the document"):
            signed = Signed.read(add_to.read_bytes(), root)
        verify_guarantees(signed.document)
        previous_document = _confirm(signed.document, keys, document.registry, as_json)
        signed = signed.with_signatures(_policy_keys(keys, root, passphrase_file, signed))
    else:
        with working("deriving every guarantee"):
            new_document = _new_document(root, policies or [], document, _roots_in(keys))
            if document.registry is not None:
                with closing(Registry(document.registry)) as registry_db:
                    refuse_other_ticks(registry_db, new_document)
        previous_document = _confirm(new_document, keys, document.registry, as_json)
        signed = Signed.sign(new_document, _policy_keys(keys, root, passphrase_file, None), root)
    if signed.is_complete:
        with working("checking it as a device does"):
            signed.check(root, int(time.time()), owner_enrolments)
    write_public(target_file, signed.payload)
    show_result(_signature_result(signed, previous_document, target_file), as_json=as_json)


def _confirm(document: PolicyDocument, keys: list[Path], registry: Path | None, as_json: bool) -> PolicyDocument | None:
    """Show a document before it is signed; return the previous document, or None. FuguError if the user says no."""
    previous_document = None
    if registry is not None:
        with closing(Registry(registry)) as registry_db:
            previous_document = former_document(registry_db, document, _roots_in(keys))
    if not as_json:
        show_report(content_report(document, previous_document))
        for line in [] if previous_document is None else weaker_promises(previous_document, document):
            warn(line)
        if sys.stdin.isatty() and sys.stdout.isatty() and not typer.confirm("Sign this?"):
            raise FuguError("nothing was signed")
    return previous_document


def _roots_in(folders: Sequence[Path]) -> list[Root]:
    """Return all roots in folders, the newest first. FleetError as for `Root.newest_in`."""
    paths = [path for folder in folders for path in sorted(folder.glob("root-*.envelope"))]
    roots = {root.payload: root for root in (Root.newest_in(folders), *map(Root.read, paths))}
    return sorted(roots.values(), key=lambda root: -root.document.version)


def _new_document(root: Root, policies: list[Path], options: DocumentOptions, roots: list[Root]) -> PolicyDocument:
    """Make the document that the options of `sign` describe."""
    expiry: _Expiry = one_of(options.on_expiry or "hold", "--on-expiry", _EXPIRIES)
    valid_until = None if options.valid_until is None else moment(options.valid_until, "--valid-until")
    valid_from = 0 if options.valid_from is None else moment(options.valid_from, "--valid-from")
    version, template = _version_and_template(options, root, roots)
    if template is None:
        address: Address = _read_address(options.to or "")
        policy_bodies = read_bodies(policies, root.document.fleet, address)
    else:
        address, policy_bodies = template.to, list(template.policies)
        expiry = expiry if options.on_expiry else template.on_expiry
        valid_until = template.valid_until if valid_until is None else valid_until
    if valid_until is not None and valid_until <= time.time():
        raise FuguError(f"the document would be over since {valid_until}: say --valid-until, later than now")
    document = make_document(
        *(root.document.fleet, version, address, policy_bodies),
        valid_from=valid_from,
        valid_until=valid_until,
        on_expiry=expiry,
    )
    old_units = board_units(template) if template is not None else {}
    if not options.boards and not old_units:
        if options.unit:
            raise UsageError("--unit is of documents for boards: give --boards too")
        return document
    return compile_for_boards(document, old_units | stream_units(options.unit))


def _read_address(address_text: str) -> Address:
    """Parse `device:NAME`, `group:NAME` or `everyone`; UsageError for any other text."""
    addressee_kind, colon, name = address_text.partition(":")
    if address_text == "everyone":
        return Address(everyone=True)
    if addressee_kind not in ("device", "group") or not colon or not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
        raise UsageError(f"--to must be device:NAME, group:NAME or everyone, got {address_text[:80]!r}")
    return Address(device=name) if addressee_kind == "device" else Address(group=name)


def _version_and_template(options: DocumentOptions, root: Root, roots: list[Root]) -> tuple[int, PolicyDocument | None]:
    """Return the new document's version, and the document that it restores; None if it restores none.

    The registry's file lies on the gateway's host. So a document in it is trusted only if keys of the root in force
    have signed it. For the number of the newest version, keys of any root in the folders suffice.
    """
    version_text, restored = options.version, options.restores
    if version_text != "next" and not version_text.isdecimal():
        raise UsageError(f"--version must be a number or 'next', got {version_text[:40]!r}")
    template, version = None, None if version_text == "next" else int(version_text[:20])
    if version is not None and version > _MOST_VERSION:
        raise UsageError(f"--version must be at most {_MOST_VERSION}: above, few numbers are left for later documents")
    if restored is not None and not restored.isdecimal():  # any root of the folders may have been in force then
        with file_errors(Path(restored), "the document"):
            template = read_complete(Path(restored).read_bytes(), roots)
    if options.registry is not None:
        with closing(Registry(options.registry)) as registry_db:
            version = _new_version(registry_db, version, roots)
            if restored is not None and template is None:
                template = _stored_document(registry_db, int(restored[:20]), root)
    if version is None or (restored is not None and template is None):
        raise UsageError("--version next and --restores need --registry")
    if template is not None and version <= template.version:
        raise FleetError(f"version {version} is not newer than version {template.version}, which it brings back")
    return version, template


def _new_version(registry: Registry, version: int | None, roots: list[Root]) -> int:
    """Return the next version of a registry, or the named one; FleetError unless that is newer than all others."""
    newest_version = registry.newest_version()
    if version is None and newest_version:
        try:
            signed_document(registry, newest_version, roots)
        except FuguError as error:
            raise FleetError(f"{error}: nor is its number; say the new one with --version") from None
    version = newest_version + 1 if version is None else version
    if version <= newest_version:
        raise FleetError(f"version {version} is not newer than {newest_version}, which the registry has")
    return version


def _stored_document(registry: Registry, version: int, root: Root) -> PolicyDocument:
    """Read a version from a registry; FleetError unless keys of the root have signed it."""
    try:
        return signed_document(registry, version, [root])
    except FleetError as error:
        raise FleetError(
            f"{error}. If a key that was replaced since has signed it, name the file: --restores FILE"
        ) from None


def _policy_keys(
    folders: list[Path], root: Root, passphrase_files: list[Path] | None, signed: Signed | None
) -> list[Ed25519PrivateKey]:
    """Unlock as many policy keys as still have to sign a document, at least one; FuguError if there is none."""
    keys, role = key_files(folders), root.document.policy
    signed_names = set() if signed is None else {signature.key.hex() for signature in signed.envelope.signatures}
    needed_count = max(1, role.threshold - len(signed_names))
    signing_keys = unlock_keys(
        keys, (name for name in role.keys if name not in signed_names), needed_count, passphrases_in(passphrase_files)
    )
    if not signing_keys:
        key_words = f"no policy key of root version {root.document.version}"
        key_words += " that has not signed yet" if signed_names else ""
        raise FuguError(f"{' and '.join(map(str, folders))}: {key_words} is there")
    return signing_keys


def _signature_result(signed: Signed, previous_document: PolicyDocument | None, path: Path) -> Result:
    """Show a signed document: its streams, its signatures, and its content beside that of the previous document."""
    document = signed.document
    facts = {"file": str(path), "version": document.version, "to": str(document.to), "complete": signed.is_complete}
    facts |= {"signatures": signed.signatures, "needed": signed.needed_signatures, "digest": signed.envelope.digest}
    streams, stream_rows = [], []
    for promise in promises(document):
        name, promise_kind, epsilon, adversary, *_ = promise
        streams.append(dict(zip(promise._fields[:4], promise, strict=False)) | {"stretch_ticks": promise.ticks})
        stretch = " each point" if promise_kind == "measured" else promise.stretch_words
        stream_rows.append((name, promise_kind, f"{epsilon:g}{stretch}", adversary))
    report: list[Part] = [
        Table(f"Version {document.version} for {document.to}", ("stream", "", "epsilon", "adversary"), stream_rows),
        Line(
            "Epsilon is for single ticks where no stretch is named. The dry run of a push, and 'fugu check policy', "
            "show it for an hour and a night."
        ),
        Line(f"{path}: {signed.signatures} of the {signed.needed_signatures} signatures that it takes"),
    ]
    if not signed.is_complete:
        report.append(Line("others add theirs with: fugu fleet sign --add-to", bold=True))
    return Result({**facts, "streams": streams, **content_document(document, previous_document)}, report)


NumberArgument = Annotated[
    int | None, Argument(metavar="[NUMBER]", help="Of the rollout (default: the one under way).")
]
_STAGES = ("5%", "25%", "100%")


def start(
    document: Annotated[Path | None, Argument(metavar="[DOCUMENT]", help="What 'fugu fleet sign' has written.")] = None,
    *,
    registry: RegistryOption,
    version: Annotated[int | None, Option(metavar="N", help="A document that the registry has, instead.")] = None,
    root: Annotated[
        Path | None, Option(metavar="FILE", help="With DOCUMENT: the fleet's root, to check it with.")
    ] = None,
    stage: Annotated[
        list[str] | None,
        Option(
            metavar="STAGE",
            help="SHARE or group:NAME, then ,success=SHARE and ,gate as you like. Give it again for the next stage; "
            "the last must be 100% (default: 5%, 25%, 100%). By success, so many of its devices have to "
            "accept before the next one begins (default: 90%).",
        ),
    ] = None,
    error: Annotated[
        str, Option(metavar="SHARE", help="Stop if this share of a stage's devices refuses, fails or keeps silent.")
    ] = "5%",
    pace: Annotated[int, Option(metavar="N", help="Devices a minute that get the document.")] = 100,
    patience: Annotated[int, Option(metavar="SECONDS", help="Time that a device has to answer.")] = 600,
    group: Annotated[
        list[str] | None, Option(help="Only devices of this group; again for more (default: all).")
    ] = None,
    share: Annotated[str, Option(metavar="SHARE", help="Only this share of the devices.")] = "100%",
    seed: Annotated[str, Option(help="Another seed chooses other devices to be first.")] = "",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the stages and what would change; change nothing.")
    ] = False,
) -> Result:
    """Send a document to its devices in stages.

    The gateway continues a rollout, also after a restart.

    \b
    examples:
      fugu fleet rollout start all-7.envelope --registry home-fleet.db --root keys/root.envelope
      fugu fleet rollout start --version 7 --registry home-fleet.db --stage group:canaries --stage 10%,success=95% \\
          --stage 100%,gate --error 3% --pace 60 --seed spring
    """
    if (document is None) == (version is None) or (document is None) != (root is None):
        raise UsageError("name a DOCUMENT with --root, or --version (try 'fugu fleet rollout start --help')")
    signed = None if document is None or root is None else read_document(document, root)
    stages = tuple(_read_stage(stage_text) for stage_text in stage or _STAGES)
    plan = RolloutPlan(
        version=signed.document.version if signed else version or 0,
        stages=stages,
        error=parse_share(error),
        pace=pace,
        patience_seconds=patience,
        groups=tuple(group or ()),
        share=parse_share(share),
        seed=seed,
    )
    with closing(Registry(registry)) as registry_db:
        if dry_run:
            return _dry_run(registry_db, plan, signed, root)
        rollouts = Rollouts(registry_db)
        with registry_db.transaction():
            refuse_other_ticks(registry_db, signed.document if signed else document_in(registry_db, plan.version))
            if signed is not None:
                enter_document(registry_db, signed, **actor_and_time())
            rollout_number = rollouts.draft(plan, **actor_and_time())
            rollouts.start(rollout_number, **actor_and_time())
        return rollout_result(registry_db, rollout_number)


def show(
    number: NumberArgument = None,
    *,
    registry: RegistryOption,
    live: Annotated[bool, Option("--watch", help="Until it has ended; exit code 1 unless completed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a rollout: its stages, and how their devices stand.

    Without a number it shows the newest rollout.

    \b
    examples:
      fugu fleet rollout show --registry home-fleet.db
      fugu fleet rollout show 3 --registry home-fleet.db --watch
    """
    if live and as_json:
        raise UsageError("--watch and --json do not go together")
    with closing(Registry(registry)) as registry_db:
        if number is None:
            rollout_numbers = Rollouts(registry_db).numbers()
            if not rollout_numbers:
                raise FuguError(f"there was no rollout in fleet {registry_db.fleet} yet")
            number = rollout_numbers[-1]
        if not live:
            show_result(rollout_result(registry_db, number), as_json=as_json)
        elif (phase := watch(registry_db, number)) != "completed":
            raise FuguError(f"rollout {number} was {phase}")


def _operation_command(operation: str, help_text: str) -> Callable[..., None]:
    """Make the command for an operation on a rollout."""

    def operate(number: NumberArgument = None, *, registry: RegistryOption) -> None:
        with closing(Registry(registry)) as registry_db:
            rollout_number = _active_number(registry_db) if number is None else number
            Rollouts(registry_db).operate(rollout_number, operation, **actor_and_time())
            show_result(rollout_result(registry_db, rollout_number))

    operate.__doc__ = f"{help_text}\n\n\b\nexamples:\n  fugu fleet rollout {operation} --registry home-fleet.db"
    return operate


_OPERATIONS = {
    "approve": "Open the gate that a rollout waits at.",
    "pause": "Let nothing happen until it is resumed.\n\nDevices that were offered the document keep it.",
    "resume": "Go on with a rollout that is paused.",
    "abort": "End a rollout.\n\nDevices stay where they are, and the way back is said.",
}
app = command_group(
    {"start": start, "show": show} | {name: _operation_command(name, about) for name, about in _OPERATIONS.items()},
    "A document in stages, to some devices first.",
)


def _active_number(registry: Registry) -> int:
    """Return the number of the only active rollout; FuguError if there are none or several."""
    active_numbers = Rollouts(registry).active()
    if not active_numbers:
        raise FuguError(f"no rollout is under way in fleet {registry.fleet}")
    if len(active_numbers) > 1:
        raise FuguError(f"rollouts {', '.join(map(str, active_numbers))} are under way: name one")
    return active_numbers[0]


def _read_stage(stage_text: str) -> Stage:
    """Parse a stage: `SHARE` or `group:NAME`, then `,success=SHARE` and `,gate`."""
    recipients, *stage_options = stage_text.split(",")
    success_text, has_gate = "90%", False
    for option in stage_options:
        if option == "gate":
            has_gate = True
        elif option.startswith("success="):
            success_text = option.removeprefix("success=")
        else:
            raise UsageError(f"a stage is SHARE or group:NAME, then ,success=SHARE and ,gate; got {stage_text[:60]!r}")
    if recipients.startswith("group:"):
        return Stage(group=recipients.removeprefix("group:"), success=parse_share(success_text), gate=has_gate)
    return Stage(share=parse_share(recipients), success=parse_share(success_text), gate=has_gate)


def _dry_run(registry: Registry, plan: RolloutPlan, signed: Signed | None, root: Path | None) -> Result:
    """Show the stages of a planned rollout, and what it would change on devices."""
    if signed is not None:
        check_new(registry, signed)
        document = signed.document
    else:
        document = document_in(registry, plan.version)
    groups_by_device = {device.name: device.groups for device in registry.devices()}
    stage_devices = stages_of(plan, groups_by_device, target_of(document.to))
    device_names = {name for stage in stage_devices for name in stage}
    roots = [] if root is None else [Root.read(root)]
    return dry_run_of(registry, document, roots, device_names, plan, stage_devices)
