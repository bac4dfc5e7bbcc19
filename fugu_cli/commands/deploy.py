"""`fugu deploy`: write a broker's configuration, and folders for its clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import TypeAdapter, ValidationError
from typer import Argument, Option

from edge_agent.config_schema import SensorConfig
from fugu.contract.errors import FuguError, UsageError
from fugu.host import arguments
from fugu.host.clock import synchronised
from fugu.host.files import certificate_validity, new_folder
from fugu_cli.app import CeilingOption, FleetOption, PointCeilingOption, check_commands
from fugu_cli.connection import broker_of
from fugu_cli.view.terminal import say_waiting, warn, working
from gateway.deployment import folders
from gateway.deployment.broker_files import BrokerFolder, Credentials, check_name
from gateway.deployment.mosquitto import Account, Role, Settings, limits
from gateway.deployment.units import AGENT, BROKER, GATEWAY

if TYPE_CHECKING:
    from fugu.contract.policies import AnyPolicy
    from gateway.releases.config import Bound


__all__ = ["NO_STDIN", "BrokerFolderOption", "InPlaceOption", "OutOption", "ca_key", "check_sensor"]

OutOption = Annotated[Path, Argument(metavar="DIR", help="Folder to write; it must be new or empty.")]
BrokerFolderOption = Annotated[Path, Option("--broker", metavar="DIR", help="Folder that 'fugu deploy broker' wrote.")]
InPlaceOption = Annotated[
    bool, Option("--in-place", help="To run in DIR itself: relative names only, no systemd unit.")
]
ReleasesOption = Annotated[
    Path | None, Option("--releases", metavar="FILE", help="What the audiences are promised (TOML).")
]
PoliciesOption = Annotated[
    Path | None, Option("--policies", metavar="DIR", help="Folder of the fleet's policies, *.json.")
]
AccountArgument = Annotated[str, Argument(metavar="NAME", help="Of the account.")]
DevicePoliciesOption = Annotated[
    list[Path] | None, Option(metavar="FILE", help="A policy of the device; again for more.")
]
AccountOption = Annotated[str, Option(help="Name of the account.")]
NO_STDIN = "a service has no standard input, and ends at once: name another sensor, or edit agent.toml"
_SENSOR: TypeAdapter[object] = TypeAdapter(SensorConfig)
_CA_KEY = "FUGU_CA_KEY"
_ANEW = "once the broker has started anew"


def check_sensor(sensor_name: str) -> None:
    """Raise FuguError for the name of a sensor that no agent would accept."""
    try:
        _SENSOR.validate_python(folders.sensor_table(sensor_name))
    except ValidationError:
        sensor_forms = "stdin, package.module:function, or a topic without wildcards, with #PATH if its payload is JSON"
        raise FuguError(f"{sensor_name[:80]!r} is no sensor: {sensor_forms}") from None


def _add_account(broker_dir: BrokerFolder, account: Account, *, renew: bool = False) -> Credentials:
    """Make an account, or with `renew` new credentials for it."""
    return broker_dir.add(account, datetime.now(UTC), ca_key=ca_key(), renew=renew)


def ca_key() -> Path | None:
    """Return the path of the authority's key from the environment; None if it names none."""
    return Path(os.environ[_CA_KEY]) if os.environ.get(_CA_KEY) else None


def _add_client(folder: Path, broker_dir: BrokerFolder, account: Account, *, renew: bool = False) -> None:
    """Add an account that needs only credentials, and write its folder."""
    new_folder(folder)
    folders.write_client(folder, broker_dir, _add_account(broker_dir, account, renew=renew))
    _report_folder(folder, broker_dir, f"{account.name}, role {account.role}", None)
    (file,) = folder.glob("*.toml")
    print(f"commands connect so: --broker {file}")


def _show_certificate_ends(files: list[Path]) -> None:
    """Print on which day each certificate ends."""
    for file in files:
        try:
            end_time = datetime.fromtimestamp(certificate_validity(file)[1], UTC)
        except (OSError, ValueError):
            warn(f"{file} cannot be read as a certificate: see fugu deploy renew")
            continue
        print(f"{file}: the certificate ends on {end_time:%Y-%m-%d}")


def _report_folder(folder: Path, broker: BrokerFolder, label: str, install_path: str | None) -> None:
    """Print that a folder was written, when its certificates end, and when the broker knows the account."""
    print(f"{folder}: {label}" + ("" if install_path is None else f"; install it as {install_path}"))
    _show_certificate_ends([*folder.glob("*client.pem"), broker.path / "server.pem"])
    print(f"the broker knows it once {broker.path} is installed anew and it has started again, or had a SIGHUP")


_SITE = "site"


def subscriber(
    out: OutOption,
    *,
    broker: BrokerFolderOption,
    audience: Annotated[
        list[str] | None,
        Option(help="site: symbols, estimates and all releases; any other: releases for it only; again for more."),
    ] = None,
    name: Annotated[str | None, Option(help="Name of the account (default: that of the audience).")] = None,
    releases: ReleasesOption = None,
    policies: PoliciesOption = None,
    epsilon: Annotated[
        str | None,
        Option(
            metavar="E@TIME",
            help="Most that it may be told in all about any stretch of a time (default: its first audience's).",
        ),
    ] = None,
    adversary: Annotated[str | None, Option(help="Against whom that holds (default: as its first audience's).")] = None,
) -> None:
    """Add a subscriber.

    Every program that connects needs an account of its own.

    One that belongs to several audiences is told what they are told together, and refused if that is above its limit.

    \b
    examples:
      fugu deploy subscriber dashboard --broker broker --audience site --name dashboard
      fugu deploy subscriber news --broker broker --audience street --name news \\
          --releases releases.toml --policies policies
    """
    broker_dir = BrokerFolder.open(broker)
    audiences = tuple(audience or ())
    if not audiences:
        raise UsageError("say with --audience what it may read; site reads symbols too")
    name = audiences[0] if name is None else name
    check_name(name, "account")
    if _SITE in audiences:
        if set(audiences) != {_SITE}:
            raise UsageError("an account of the site reads all releases: it belongs to no other audience")
        _add_client(out, broker_dir, Account(name=name, role="site"))
        return
    with working("adding up what it may be told"):
        account, bounds = broker_dir.new_reader(
            name,
            audiences,
            *_both_paths(releases, policies),
            limit=None if epsilon is None else arguments.ceiling_of(epsilon, "epsilon"),
            adversary=None if adversary is None else arguments.adversary(adversary),
        )
    _add_client(out, broker_dir, account)
    _show_bounds(account, bounds)


def join(
    name: AccountArgument,
    *,
    broker: BrokerFolderOption,
    audience: Annotated[str, Option(help="The audience that it is to belong to as well.")],
    releases: ReleasesOption = None,
    policies: PoliciesOption = None,
) -> None:
    """Let an account read the releases of one more audience.

    It is refused if it would be told more than its limit in all.

    \b
    examples:
      fugu deploy join news --broker broker --audience press --releases releases.toml --policies policies
    """
    with working("adding up what it may be told"):
        account, bounds = BrokerFolder.open(broker).join(name, audience, *_both_paths(releases, policies))
    _show_bounds(account, bounds)


def leave(
    name: AccountArgument,
    *,
    broker: BrokerFolderOption,
    audience: Annotated[str, Option(help="The audience whose releases it is to read no longer.")],
) -> None:
    """Take the releases of an audience from an account.

    The releases that it was told still count.

    \b
    examples:
      fugu deploy leave news --broker broker --audience press
    """
    BrokerFolder.open(broker).leave(name, audience)
    print(f"{name} reads no more releases for {audience}, {_ANEW}; what it was told counts")


def retire(
    audience: Annotated[str, Argument(metavar="AUDIENCE", help="Its name.")], *, broker: BrokerFolderOption
) -> None:
    """Take the releases of an audience from every account.

    Then take the audience and its releases out of releases.toml: the gateway clears what the broker keeps for it. The
    releases that it was told still count, and its name stays taken.

    \b
    examples:
      fugu deploy retire street --broker broker
    """
    broker_dir = BrokerFolder.open(broker)
    accounts = broker_dir.settings.accounts
    readers = [account for account in accounts if account.role == "reader" and audience in account.audiences]
    if not readers:
        raise UsageError(f"no account reads releases for {audience}")
    for reader in readers:
        broker_dir.leave(reader.name, audience)
        print(f"{reader.name} reads no more releases for {audience}, {_ANEW}; what it was told counts")


def _both_paths(releases: Path | None, policies: Path | None) -> tuple[Path, Path]:
    """Return the paths of releases and of policies; UsageError unless both are given."""
    if releases is None or policies is None:
        raise UsageError("what an account may be told is computed from --releases FILE and --policies DIR")
    return releases, policies


def _show_bounds(account: Account, bounds: list[Bound]) -> None:
    """Print what an account may be told of each stream."""
    for bound in bounds:
        charge_words = f"at most {bound.epsilon:.6g} of {account.epsilon:g} nats ({account.adversary} adversary)"
        stretch_words = f"about any {account.seconds} seconds" if account.seconds else "about a single tick"
        bound_words = f"{stretch_words}, by {', '.join(account.all_audiences)} together"
        print(f"{account.name}: {bound.device}/{bound.stream}: {charge_words} {bound_words}")


def broker(
    out: OutOption,
    *,
    fleet: FleetOption,
    host: Annotated[list[str], Option(help="Name or address of the broker for its clients; again for further ones.")],
    port: Annotated[int, Option(min=1, max=65535, help="Port for TLS.")] = 8883,
    bind: Annotated[str | None, Option(metavar="ADDRESS", help="Listen there only (default: everywhere).")] = None,
    mutual: Annotated[bool, Option("--mutual", help="Client certificates instead of passwords.")] = False,
    boards: Annotated[bool, Option("--boards", help="Take TLS 1.2 too: microcontrollers have no other.")] = False,
    days: Annotated[int, Option(min=1, max=20000, help="How long certificates hold; the authority's, 10 years.")] = 365,
    largest: Annotated[
        int, Option(metavar="BYTES", min=65536, max=16777216, help="Largest message, such as a signed policy.")
    ] = 1 << 18,
    in_place: InPlaceOption = False,
) -> None:
    """Write a Mosquitto configuration with TLS and access lists.

    TLS 1.3, with an authority of its own. There are no accounts yet.

    \b
    examples:
      fugu deploy broker broker --fleet home --host gw.example
      fugu deploy broker broker --fleet home --host gw.example --host 192.168.1.5 --mutual
    """
    check_name(fleet, "fleet")
    broker_settings = Settings(
        fleet=fleet,
        hosts=tuple(host),
        port=port,
        bind=bind,
        mutual=mutual,
        boards=boards,
        in_place=in_place,
        days=days,
        largest=largest,
    )
    folder = BrokerFolder.create(out, broker_settings, datetime.now(UTC))
    run_words = f"run it there: ulimit -n {limits(broker_settings.accounts).files} && mosquitto -c mosquitto.conf"
    install_words = run_words if in_place else f"install it as {BROKER.config}"
    print(f"{out}: a broker for fleet {fleet} at {folder.address}; {install_words}")
    print(f"{folder.authority_key}: the authority's key; move it to a disk that is kept offline")
    _show_certificate_ends([out / "server.pem", out / "ca.pem"])


def renew(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="The account (default: the broker itself).")] = None,
    out: Annotated[
        Path | None, Argument(metavar="[DIR]", help="Folder for an account's new credentials; it must be new or empty.")
    ] = None,
    *,
    broker: BrokerFolderOption,
) -> None:
    """Renew the certificate of the broker or of an account.

    Clients need nothing new for the broker's certificate. The folder of an account gets new credentials and how to
    connect with them; copy them over those that are in use. Nothing else about the account changes. The authority's
    key is in DIR-offline, or where the environment variable FUGU_CA_KEY says.

    \b
    examples:
      fugu deploy renew --broker broker
      fugu deploy renew watch watch-2 --broker broker
      FUGU_CA_KEY=/media/stick/ca.key fugu deploy renew --broker broker
    """
    broker_dir = BrokerFolder.open(broker)
    if (name is None) != (out is None):
        raise UsageError("an account is renewed into a folder: name both, NAME and DIR")
    if name is not None and out is not None:
        _add_client(out, broker_dir, broker_dir.account(name), renew=True)
        return
    broker_dir.renew(datetime.now(UTC), ca_key=ca_key())
    print(f"{broker}: the certificate of the broker at {broker_dir.address} is new, {_ANEW}")
    _show_certificate_ends([broker / "server.pem", broker / "ca.pem"])


def device(
    out: OutOption,
    *,
    broker: BrokerFolderOption,
    name: Annotated[str, Option(help="Name of the device, as in its topics and policies.")],
    policy: DevicePoliciesOption = None,
    stream: Annotated[
        list[str] | None, Option(help="A stream whose policy is sent to the device; again for more.")
    ] = None,
    ceiling: CeilingOption = "1",
    measurement_ceiling: PointCeilingOption = None,
    sensor: Annotated[
        str,
        Option(
            metavar="SENSOR",
            help="stdin, a Python function (package.module:function), or a topic of a broker on the device, "
            "with #PATH if the payload is JSON.",
        ),
    ] = "stdin",
    in_place: InPlaceOption = False,
) -> None:
    """Add a device: its account, and the folder for it.

    The folder holds agent.toml and a systemd unit.

    \b
    examples:
      fugu deploy device watch --broker broker --name watch --policy watch.json --ceiling 1
      fugu deploy device watch --broker broker --name watch --stream heart-rate --stream steps
    """
    broker_dir = BrokerFolder.open(broker)
    check_name(name, "device")
    device_options = folders.DeviceOptions(
        policies=folders.read_policies(policy or [], broker_dir.settings.fleet, name),
        ceiling=arguments.ceiling_of(ceiling),
        measurement_ceiling=None if measurement_ceiling is None else arguments.positive(measurement_ceiling, "ceiling"),
        sensor=sensor,
        in_place=in_place,
    )
    folders.check_ceilings(device_options.policies, device_options.ceiling, device_options.measurement_ceiling)
    check_sensor(sensor)
    new_folder(out)
    streams = _stream_names(device_options.policies.values(), stream)
    credentials = _add_account(broker_dir, Account(name=name, role="device", streams=streams))
    folders.write_device(out, broker_dir, credentials, device_options)
    _report_folder(out, broker_dir, "a device", None if in_place else AGENT.config)
    if sensor == "stdin" and not in_place:
        warn(NO_STDIN)
    if not broker_dir.account(name).streams:
        warn(f"{name} may publish no stream: name them with --policy or --stream, or later with fugu deploy streams")


def streams(
    name: AccountArgument,
    *,
    broker: BrokerFolderOption,
    policy: DevicePoliciesOption = None,
    stream: Annotated[list[str] | None, Option(help="A stream; again for more.")] = None,
) -> None:
    """Change which streams a device may publish.

    It may then publish these streams, and no others.

    \b
    examples:
      fugu deploy streams watch --broker broker --stream heart-rate --stream steps
    """
    broker_dir = BrokerFolder.open(broker)
    account = broker_dir.account(name)
    if account.role != "device":
        raise UsageError(f"the account {name} is no device, but {account.role}")
    policies = folders.read_policies(policy or [], broker_dir.settings.fleet, name)
    broker_dir.replace_account(account.with_streams(_stream_names(policies.values(), stream)))
    print(f"{name} may publish {', '.join(broker_dir.account(name).streams) or 'no stream'}, {_ANEW}")


def gateway(
    out: OutOption,
    *,
    broker: BrokerFolderOption,
    name: Annotated[str, Option(help="Name of its account; every program that connects needs its own.")] = "gateway",
    rollout: Annotated[
        bool, Option("--rollout", help="Add an account NAME-rollout of the operators' role, for rollouts.")
    ] = False,
    shards: Annotated[
        int, Option(metavar="N", min=1, help="Add accounts NAME-0, ... and units for so many shards, if not 1.")
    ] = 1,
    renew: Annotated[
        bool,
        Option("--renew", help="Replace the credentials of accounts that exist, as for more shards than there were."),
    ] = False,
    in_place: InPlaceOption = False,
) -> None:
    """Add the gateway: its account, and its folder.

    The folder holds its systemd units.

    \b
    examples:
      fugu deploy gateway gateway --broker broker
      fugu deploy gateway gateway --broker broker --shards 4
    """
    broker_dir = BrokerFolder.open(broker)
    role_by_name: dict[str, Role] = {name: "gateway"}
    role_by_name |= {f"{name}-{index}": "shard" for index in range(shards if shards > 1 else 0)}
    role_by_name |= {f"{name}-rollout": "operator"} if rollout else {}
    for account_name, role in role_by_name.items():
        broker_dir.check_free(account_name, role, renew=renew)
    new_folder(out)
    accounts = [Account(name=account_name, role=role) for account_name, role in role_by_name.items()]
    credentials, *shard_credentials = [_add_account(broker_dir, account, renew=renew) for account in accounts]
    rollout_credentials = shard_credentials.pop() if rollout else None
    folders.write_gateway(out, broker_dir, credentials, rollout_credentials, shard_credentials, in_place=in_place)
    _report_folder(out, broker_dir, "the gateway", None if in_place else GATEWAY.config)
    if rollout and not synchronised():
        print(
            "no time server sets the clock here: a gateway here signs no time unless [signed] has trusted_clock = true"
        )


def _account_command(role: Role, help_text: str, example: str) -> Callable[..., None]:
    """Make the command that adds an account that needs only credentials."""

    def add(out: OutOption, *, broker: BrokerFolderOption, name: AccountOption = role) -> None:
        check_name(name, "account")
        _add_client(out, BrokerFolder.open(broker), Account(name=name, role=role))

    add.__doc__ = f"{help_text}\n\n\b\nexamples:\n  fugu deploy {role} {example}\n"
    return add


operator = _account_command(
    "operator",
    "Add an operator, who may send policies to devices.\n\nOperators read what devices report. Nobody else may do "
    "either. Every person needs an own account.",
    "anna --broker broker --name anna",
)
home_assistant = _account_command(
    "home-assistant",
    "Add Home Assistant.\n\nIt reads what a site reads and is JSON; and the gateway may tell it of devices.",
    "home-assistant --broker broker",
)
helper = _account_command(
    "helper",
    "Add the helper of groups of homes.\n\nThat is its account, and nothing else. Somebody runs it on a machine that "
    "is not the site's. It reads requests, and writes documents, keys and answers.",
    "helper --broker broker",
)


def remove(
    name: AccountArgument,
    *,
    broker: BrokerFolderOption,
    operator: Annotated[
        Path | None, Option(metavar="FILE", help="The broker.toml of an operator: clear what a device has left.")
    ] = None,
) -> None:
    """Take an account away, such as that of a lost device.

    The same command clears what a device has left at the broker, with an operator's credentials, once the broker knows
    that the device was removed.

    \b
    examples:
      fugu deploy remove watch --broker broker
      fugu deploy remove watch --broker broker --operator anna/broker.toml
    """
    broker_dir = BrokerFolder.open(broker)
    address = None if operator is None else broker_of(str(operator))
    if not (address is not None and broker_dir.uncleared(name)):
        broker_dir.remove(name)
        print(f"{name} may do nothing any more, {_ANEW}")
    if (removed_account := broker_dir.uncleared(name)) is None:
        return
    if address is None:
        print(f"what {name} has left there stays until this is said again, then, with an operator's credentials")
        return
    fleet = broker_dir.settings.fleet
    folders.clear_retained(
        address,
        broker_dir.topics_of_removed(removed_account),
        on_wait=lambda reason: say_waiting(f"{reason}; waiting for fleet {fleet}"),
    )
    broker_dir.note_cleared(removed_account)
    print(f"the broker at {broker_dir.address} has nothing of {name} any more")


def _stream_names(policies: Iterable[AnyPolicy], more_streams: list[str] | None) -> tuple[str, ...]:
    """Return the names of the policies' streams and of further ones, each once."""
    stream_names = dict.fromkeys((*(policy.stream for policy in policies), *(more_streams or ())))
    for stream in stream_names:
        check_name(stream, "stream")
    return tuple(stream_names)


check_commands(__name__)
