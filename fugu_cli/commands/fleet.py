"""`fugu fleet`: enrol devices, sign and send their documents, and show their state."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.fleet_documents import Enrolment
from fugu.contract.pins import MeasuredPins, SymbolPins
from fugu.contract.topics import RESERVED_DEVICES
from fugu.contract.trust import Trust
from fugu.host import arguments
from fugu.host.files import is_held, write_secret
from fugu.library.report import Line, Result, Table
from fugu_cli.app import CeilingOption, PointCeilingOption, command_group, output_option
from fugu_cli.commands import fleet_keys, fleet_rollout
from fugu_cli.commands.fleet_keys import EnrolmentsOption, RegistryOption, actor_and_time, dry_run_of, enrolments_in
from fugu_cli.view import fleet as view
from fugu_cli.view.fleet import read_document
from fugu_cli.view.terminal import say, warn
from gateway.fleet.documents import addressed_devices, check_new, enter_document, refuse_other_ticks
from gateway.fleet.keys import Root
from gateway.fleet.registry import Registry, lock_path
from gateway.fleet.signing import read_pins

__all__ = ["enter_device", "new_enrolment"]

_SHOWN = 20
_RootOption = Annotated[
    Path, Option("--root", metavar="FILE", help="The fleet's root, root.envelope beside the keys; it is public.")
]
_DocumentArgument = Annotated[Path, Argument(metavar="DOCUMENT", help="What 'fugu fleet sign' has written.")]


def enrol(
    *,
    root: _RootOption,
    device: Annotated[str, Option(help="Name of the device, as in its topics.")],
    ceiling: CeilingOption,
    output: Annotated[Path, output_option("FILE", "Write the enrolment there.")],
    policy: Annotated[
        list[Path] | None,
        Option(
            metavar="FILE",
            help="Pin the states, ticks, class of chains and adversary (or graph, factor and steps) of this "
            "policy's stream. Give it again for every other stream (default: nothing is pinned).",
        ),
    ] = None,
    total_ceiling: Annotated[
        str | None,
        Option(
            metavar="E@TIME",
            help="Largest epsilon of all its streams together; streams without a joint bound are refused "
            "(default: each is held to its own).",
        ),
    ] = None,
    group: Annotated[list[str] | None, Option(help="A group that it is in; again for more.")] = None,
    measurement_ceiling: PointCeilingOption = None,
    adversary: Annotated[
        list[str] | None,
        Option(help="ignorant, informed or universal: which are good enough; again for more (default: any)."),
    ] = None,
    fresh_seconds: Annotated[
        int | None, Option(metavar="N", help="Seconds without a signed time after which a device reports `stale`.")
    ] = None,
    registry: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Enter it into this registry, made if it is not there, with a key by which it knows its "
            "gateway's watermarks. Without, it takes those of anybody whom the broker lets publish.",
        ),
    ] = None,
) -> None:
    """Write what a device has to know before it is sent anything.

    The owner of the device decides on ceilings and pins.

    The file is a secret between the device and its gateway. After `fugu fleet remove`, a new enrolment has a new key.

    Without --policy, whoever holds the policy keys may redefine what a guarantee is about, such as its class of chains.

    \b
    examples:
      fugu fleet enrol --root keys/root.envelope --device watch --group wrists --ceiling 1 --policy heart.json \\
          --registry home-fleet.db -o watch.json
      fugu fleet enrol --root keys/root.envelope --device ring --ceiling 1 --total-ceiling 2 \\
          --policy heart.json --policy slow-heart.json -o ring.json
    """
    fleet_root = Root.read(root)
    enrolment = new_enrolment(
        fleet_root,
        device,
        group or (),
        read_pins(policy or (), fleet_root.document.fleet),
        ceiling=arguments.ceiling_of(ceiling),
        total_ceiling=None if total_ceiling is None else arguments.ceiling_of(total_ceiling),
        measurement_ceiling=(
            None if measurement_ceiling is None else arguments.positive(measurement_ceiling, "measurement ceiling")
        ),
        adversaries=tuple(arguments.adversary(word) for word in adversary) if adversary else None,
        fresh_seconds=fresh_seconds,
    )
    if registry is None:
        write_secret(output, _enrolment_text(enrolment))
    else:
        with closing(Registry(registry, fleet=enrolment.fleet)) as registry_db:
            enter_device(registry_db, enrolment, output)
    say(f"{output}: device {device} of fleet {enrolment.fleet}; it goes onto the device, from hand to hand")
    if not enrolment.pins:
        warn(
            "nothing is pinned (--policy): whoever holds the policy keys chooses what states, ticks and chains an "
            "epsilon is about, or which pairs a point hides. Only the ceilings bind them"
        )


def new_enrolment(
    root: Root, device: str, groups: Sequence[str], pins: dict[str, SymbolPins | MeasuredPins], **limits: Any
) -> Enrolment:
    """Make an enrolment without a key; FuguError for a reserved name.

    `pins` are by stream, and `limits` are the owner's, as fields of `Enrolment`.
    """
    if device in RESERVED_DEVICES:
        raise FuguError(f"no device can have the name {device!r}: it is reserved")
    enrolment = Enrolment(
        fleet=root.document.fleet,
        device=device,
        root=root.payload.hex(),
        groups=tuple(sorted(set(groups))),
        pins=pins,
        **limits,
    )
    Trust(enrolment)
    return enrolment


def enter_device(registry: Registry, enrolment: Enrolment, output: Path) -> None:
    """Enter a device into a registry, and write its enrolment with the key from the registry."""
    with registry.transaction():
        device_key = registry.enrol(enrolment.device, enrolment.groups, **actor_and_time())
        write_secret(output, _enrolment_text(enrolment.model_copy(update={"key": device_key.hex()})))


def _enrolment_text(enrolment: Enrolment) -> str:
    return enrolment.model_dump_json(indent=None if enrolment.pins else 2, exclude_none=True) + "\n"


def remove(
    device: Annotated[str, Argument(metavar="DEVICE", help="Name of the device.")], *, registry: RegistryOption
) -> None:
    """Forget a device that is gone.

    Its refusals and its history stay.

    \b
    examples:
      fugu fleet remove watch --registry home-fleet.db
    """
    with closing(Registry(registry)) as registry_db:
        registry_db.remove(device, **actor_and_time())
    print(f"{device} is no device of fleet {registry_db.fleet} any more")


def groups(
    *,
    registry: RegistryOption,
    device: Annotated[str | None, Option(help="Change the groups of this device.")] = None,
    add: Annotated[list[str] | None, Option(metavar="GROUP", help="Put it into a group.")] = None,
    removed_groups: Annotated[list[str] | None, Option("--remove", metavar="GROUP", help="Take it out of one.")] = None,
) -> Result:
    """List groups and their devices, or change the groups of a device.

    \b
    examples:
      fugu fleet groups --registry home-fleet.db
      fugu fleet groups --registry home-fleet.db --device watch --add canaries --remove wrists
    """
    if (device is None) != (not add and not removed_groups):
        raise UsageError("--device goes with --add or --remove (try 'fugu fleet groups --help')")
    with closing(Registry(registry)) as registry_db:
        if device is not None:
            with registry_db.transaction():
                groups_before = registry_db.device(device).groups
                if missing_groups := set(removed_groups or ()) - groups_before:
                    raise FuguError(f"device {device} is not in group {' or '.join(sorted(missing_groups))}")
                groups_after = (groups_before - set(removed_groups or ())) | set(add or ())
                registry_db.set_groups(device, groups_after, **actor_and_time())
        group_members = {name: [device.name for device in registry_db.devices(name)] for name in registry_db.groups()}
    group_rows = [(name, str(len(devices)), " ".join(devices)) for name, devices in group_members.items()]
    warnings = [f"{device} takes documents for a group only if its own enrolment names the group"] if add else ()
    return Result(group_members, [Table("Groups", ("group", "devices", ""), group_rows)], warnings=warnings)


def push(
    document: _DocumentArgument,
    *,
    registry: RegistryOption,
    root: _RootOption,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would change; change nothing.")] = False,
    enrolments: EnrolmentsOption = None,
) -> Result:
    """Send a document to all its devices at once.

    The gateway sends it. For stages there are rollouts.

    \b
    examples:
      fugu fleet push wrists-1.envelope --registry home-fleet.db --root keys/root.envelope --dry-run \\
          --enrolment watch.json
      fugu fleet push wrists-1.envelope --registry home-fleet.db --root keys/root.envelope
    """
    signed_document = read_document(document, root, enrolments_in(enrolments))
    with closing(Registry(registry)) as registry_db:
        if dry_run:
            check_new(registry_db, signed_document)
            dry_run_result = dry_run_of(registry_db, signed_document.document, [Root.read(root)])
            try:
                refuse_other_ticks(registry_db, signed_document.document)
            except FuguError as error:
                return replace(dry_run_result, error=error)
            return dry_run_result
        refuse_other_ticks(registry_db, signed_document.document)
        with registry_db.transaction():
            devices = [device.name for device in addressed_devices(registry_db, signed_document.document.to)]
            document_record = enter_document(registry_db, signed_document, **actor_and_time())
            view.warn_of_rollouts(registry_db, devices)
            registry_db.desire(devices, document_record.version, **actor_and_time())
    version, restores = document_record.version, document_record.restores
    restore_words = "" if restores is None else f", which brings version {restores} back"
    line = f"version {version}{restore_words}: {len(devices)} devices should have it; the gateway sends it"
    return Result({"version": version, "devices": devices, "restores": restores}, [Line(line)])


def status(
    *,
    registry: RegistryOption,
    group: Annotated[str | None, Option(help="Only devices of this group.")] = None,
    strict: Annotated[
        bool, Option("--check", help="Exit code 1 unless a gateway runs here, and every device has what it should.")
    ] = False,
) -> Result:
    """Show what every device should run, and what it says it runs.

    It also shows what each device has refused.

    \b
    examples:
      fugu fleet status --registry home-fleet.db
      fugu fleet status --registry home-fleet.db --check --json
    """
    with closing(Registry(registry)) as registry_db, registry_db.snapshot():
        devices = registry_db.devices(group)
        if group is not None and not devices:
            raise FuguError(f"no device of fleet {registry_db.fleet} is in group {group}")
        refusals = {refusal.device: refusal for refusal in view.every_entry(registry_db.refusals)}
    device_documents = [view.device_document(device, refusals.get(device.name)) for device in devices]
    gateway_runs = is_held(lock_path(registry))
    document = {"fleet": registry_db.fleet, "gateway": gateway_runs, "devices": device_documents}
    laggards = [device.name for device in devices if view.state_of(device) not in ("up to date", "nothing to do")]
    error = None
    if strict and laggards:
        laggard_names = ", ".join(laggards[:_SHOWN] + ["..."] * (len(laggards) > _SHOWN))
        error = FuguError(f"{len(laggards)} of {len(devices)} are not as they should be: {laggard_names}")
    elif strict and not gateway_runs:
        reason = "no gateway runs" if gateway_runs is False else "this account cannot see whether a gateway runs"
        error = FuguError(f"{reason} with this registry here: what devices do now is not known")
    return Result(document, view.device_report(devices, refusals, gateway_runs), error=error)


def history(
    *,
    registry: RegistryOption,
    refusals: Annotated[bool, Option("--refusals", help="What devices have refused, instead.")] = False,
) -> Result:
    """Show who did what, and what rollouts did by themselves.

    \b
    examples:
      fugu fleet history --registry home-fleet.db
      fugu fleet history --registry home-fleet.db --refusals --json
    """
    with closing(Registry(registry)) as registry_db:
        refusal_rows = list(view.every_entry(registry_db.refusals)) if refusals else []
        events = [] if refusals else list(view.every_entry(registry_db.history))
    report = view.refusal_report(refusal_rows) if refusals else view.event_report(events)
    return Result([event._asdict() for event in (refusal_rows or events)], report)


app = command_group(
    {
        "init": fleet_keys.init,
        "sign": fleet_rollout.sign,
        "enrol": enrol,
        "remove": remove,
        "groups": groups,
        "push": push,
        "status": status,
        "history": history,
        "keys": fleet_keys.app,
        "rollout": fleet_rollout.app,
    }
)
