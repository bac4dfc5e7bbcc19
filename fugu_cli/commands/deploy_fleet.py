"""`fugu deploy fleet`: add all devices of a list, or none."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from edge_agent.config import load
from fugu.contract.errors import FuguError, UsageError
from fugu.contract.pins import pins_of
from fugu.contract.stretches import Ceiling
from fugu.host import arguments
from fugu.host.files import new_folder, read_text
from fugu_cli.app import check_commands
from fugu_cli.commands.deploy import NO_STDIN, BrokerFolderOption, InPlaceOption, OutOption, ca_key, check_sensor
from fugu_cli.commands.fleet import enter_device, new_enrolment
from fugu_cli.commands.fleet_keys import PassphraseFiles, init
from fugu_cli.view.terminal import say, warn, working
from gateway.deployment import folders
from gateway.deployment.broker_files import BrokerFolder, Credentials, check_name
from gateway.deployment.mosquitto import Account, Role
from gateway.deployment.units import GATEWAY
from gateway.fleet.keys import ROOT_FILE, Root, decrypt_key, key_files, read_passphrase
from gateway.fleet.registry import Registry
from gateway.fleet.signing import read_templates

if TYPE_CHECKING:
    from fugu.contract.policies import AnyPolicy

_COLUMNS = ("device", "policy", "sensor", "ceiling")
_OPTIONAL = ("measurement_ceiling", "groups")


@dataclass(slots=True)
class _Device:
    """A device of the list, which has one row for each stream of it."""

    name: str
    line: int
    ceiling: Ceiling
    measurement_ceiling: float | None
    groups: tuple[str, ...]
    policies: dict[str, AnyPolicy] = field(default_factory=dict)
    sensors: dict[str, str] = field(default_factory=dict)

    def limits(self) -> tuple[object, ...]:
        """Return the values that must be equal in all rows of the device."""
        return self.ceiling, self.measurement_ceiling, self.groups


def fleet(
    devices: Annotated[Path, Argument(metavar="CSV", help="The list.")],
    out: OutOption,
    *,
    broker: BrokerFolderOption,
    keys: Annotated[
        Path,
        Option(
            metavar="DIR",
            help="The fleet's keys; if the folder is new, they are made, and a passphrase is asked for once.",
        ),
    ],
    registry: Annotated[
        Path, Option(metavar="FILE", help="Enter the devices into this registry, made if it is not there.")
    ],
    passphrase_file: PassphraseFiles = None,
    gateway: Annotated[
        Path | None,
        Option(metavar="DIR", help="Write the folder of the gateway, too, which sends them their signed policies."),
    ] = None,
    gateway_passphrase_file: Annotated[
        Path | None,
        Option(metavar="FILE", help="With --gateway: passphrase of its key, which it reads when nobody is there."),
    ] = None,
    in_place: InPlaceOption = False,
) -> None:
    """Add all devices of a CSV file.

    That is their accounts, their enrolments, and a folder for each. Devices that come later are a list of their own.

    It writes the files of 'fugu deploy device' and 'fugu fleet enrol'. A wrong row is named by its line, and nothing
    is written. The columns are device, policy, sensor and ceiling; measurement_ceiling and groups (between spaces) may
    follow. A device has a row for each stream. The policy is a file, relative to the CSV file: it is pinned, and
    'fugu fleet sign' and 'push' send it. The sensor is stdin, a Python function (package.module:function), or a topic
    of a broker on the device, with #PATH if the payload is JSON.

    \b
    examples:
      fugu deploy fleet devices.csv devices --broker broker --keys keys --registry fleet.sqlite
      fugu deploy fleet devices.csv devices --broker broker --keys keys --registry fleet.sqlite \\
          --gateway gateway --gateway-passphrase-file gateway-secret
    """
    if (gateway is None) != (gateway_passphrase_file is None):
        raise UsageError("--gateway and --gateway-passphrase-file go together: it opens its key by itself")
    broker_dir = BrokerFolder.open(broker)
    for name, role in _GATEWAY.items() if gateway is not None else ():
        broker_dir.check_free(name, role, renew=False)
    with working("checking every row"):
        fleet_devices = _read_devices(devices, broker_dir)
    if gateway is not None and (name_clashes := [device.name for device in fleet_devices if device.name in _GATEWAY]):
        raise FuguError(f"{devices}: {name_clashes[0]} is the name of the gateway's account; nothing was written")
    for folder in filter(None, (out, gateway)):
        new_folder(folder)
    if not keys.exists():
        init(
            fleet=broker_dir.settings.fleet,
            keys=keys,
            passphrase_file=passphrase_file,
            gateway_passphrase_file=gateway_passphrase_file,
        )
    root = Root.read(keys / ROOT_FILE)
    if root.document.fleet != broker_dir.settings.fleet:
        raise FuguError(f"{keys} is of fleet {root.document.fleet}, the broker of {broker_dir.settings.fleet}")
    with (
        working("writing folders"),
        _removed_on_failure(out, gateway),
        closing(Registry(registry, fleet=root.document.fleet)) as registry_db,
        registry_db.transaction(),
    ):
        accounts = []
        for device in fleet_devices:
            try:
                account = Account(name=device.name, role="device", streams=tuple(device.sensors))
                credentials = broker_dir.issue(device.name, datetime.now(UTC), ca_key=ca_key())
                enrolment = new_enrolment(
                    root,
                    device.name,
                    device.groups,
                    {stream: pins_of(policy) for stream, policy in device.policies.items()},
                    ceiling=device.ceiling,
                    measurement_ceiling=device.measurement_ceiling,
                )
                write_enrolment = partial(enter_device, registry_db, enrolment)
                device_options = folders.EnrolledOptions(write_enrolment, device.sensors, in_place)
                folder = new_folder(out / device.name)
                folders.write_device(folder, broker_dir, credentials, device_options)
                load(folder / "agent.toml")
                accounts.append((account, credentials))
            except FuguError as error:
                raise type(error)(f"{devices}: line {device.line}: {error}; nothing was written") from None
        if gateway is not None and gateway_passphrase_file is not None:
            accounts += _write_gateway(gateway, broker_dir, keys, registry, gateway_passphrase_file, in_place=in_place)
        broker_dir.admit(accounts)
    say(
        f"{out}: {len(fleet_devices)} devices of fleet {root.document.fleet}; "
        "each folder goes onto its device, from hand to hand"
    )
    say(f"the broker knows them once {broker} is installed anew and it has started again, or had a SIGHUP")
    if not in_place and any("stdin" in device.sensors.values() for device in fleet_devices):
        warn(NO_STDIN)
    if gateway is not None:
        install_words = f"; install it as {GATEWAY.config}, and {registry} as {GATEWAY.state}/{registry.name}"
        say(f"{gateway}: the gateway, with its key and the fleet's root{'' if in_place else install_words}")
    say(f"then send them their policies: fugu fleet sign, fugu fleet push; and look at them: fugu doctor {out}")


_GATEWAY: dict[str, Role] = {"gateway": "gateway", "gateway-rollout": "operator"}


def _write_gateway(
    folder: Path, broker: BrokerFolder, key_folder: Path, registry: Path, passphrase_file: Path, *, in_place: bool
) -> list[tuple[Account, Credentials]]:
    """Write the gateway's folder, with the fleet's root and the gateway's key; return the gateway's accounts."""
    passphrase = read_passphrase(passphrase_file)
    gateway_keys = [key_file for key_file in key_files([key_folder]) if key_file.role == "gateway"]
    if len(gateway_keys) != 1:
        raise FuguError(f"{key_folder} has {len(gateway_keys)} keys of a gateway: leave the one that it is to have")
    key_bytes = gateway_keys[0].path.read_bytes()
    decrypt_key(key_bytes, passphrase, gateway_keys[0].path)
    registry_path = os.path.relpath(registry, folder) if in_place else f"{GATEWAY.state}/{registry.name}"
    signed_files = folders.SignedFiles(registry_path, sorted(key_folder.glob("root-*.envelope")), key_bytes, passphrase)
    accounts = [
        (Account(name=name, role=role), broker.issue(name, datetime.now(UTC), ca_key=ca_key()))
        for name, role in _GATEWAY.items()
    ]
    (_, credentials), (_, rollout_credentials) = accounts
    folders.write_gateway(folder, broker, credentials, rollout_credentials, [], in_place=in_place, signed=signed_files)
    return accounts


def _read_devices(file: Path, broker: BrokerFolder) -> list[_Device]:
    """Read and check a list of devices. FuguError names a wrong line, and its notes name the other wrong lines."""
    csv_reader = csv.DictReader(read_text(file, "the list of devices").removeprefix("\ufeff").splitlines(), strict=True)
    fleet_devices: dict[str, _Device] = {}
    problems = []
    templates_of = cache(lambda name: read_templates([file.parent / name], broker.settings.fleet))
    try:
        columns = csv_reader.fieldnames or ()
        if missing := [name for name in _COLUMNS if name not in columns]:
            raise FuguError(f"{file}: line 1: the column {missing[0]} is missing; it needs {', '.join(_COLUMNS)}")
        if unknown_columns := [name for name in columns if name not in (*_COLUMNS, *_OPTIONAL)]:
            raise FuguError(f"{file}: line 1: unknown column {unknown_columns[0][:40]!r}")
        if repeated_columns := [name for index, name in enumerate(columns) if name in columns[:index]]:
            raise FuguError(f"{file}: line 1: the column {repeated_columns[0]} comes twice")
        for row in csv_reader:
            try:
                _enter_row(fleet_devices, row, csv_reader.line_num, broker, templates_of)
            except FuguError as error:
                problems.append(f"{file}: line {csv_reader.line_num}: {error}")
    except csv.Error as error:
        raise FuguError(f"{file}: line {csv_reader.line_num}: {error}") from None
    if problems:
        refusal = FuguError(f"{problems.pop()}; nothing was written")
        for problem in problems:
            refusal.add_note(problem)
        raise refusal
    if not fleet_devices:
        raise FuguError(f"{file} names no device")
    return list(fleet_devices.values())


def _enter_row(
    fleet_devices: dict[str, _Device],
    row: Mapping[str | None, str | None],
    line: int,
    broker: BrokerFolder,
    templates_of: Callable[[str], tuple[AnyPolicy, ...]],
) -> None:
    """Check a row of the list, and add its stream to its device; FuguError if the row is wrong."""
    if None in row or None in row.values():
        raise FuguError("it has another number of cells than the first line")
    cells = {str(name): (cell or "").strip() for name, cell in row.items()}
    name, point_text = cells["device"], cells.get("measurement_ceiling")
    check_name(name, "device")
    ceiling, point_ceiling = arguments.ceiling_of(cells["ceiling"]), None
    if point_text:
        point_ceiling = arguments.positive(arguments.number(point_text, "measurement_ceiling"), "measurement_ceiling")
    device = _Device(name, line, ceiling, point_ceiling, tuple(cells.get("groups", "").split()))
    for group in device.groups:
        check_name(group, "group")
    check_sensor(cells["sensor"])
    policies = {policy.stream: policy for policy in templates_of(cells["policy"])}
    policy_by_file = dict.fromkeys([cells["policy"]], next(iter(policies.values())))  # a file holds one policy
    folders.check_ceilings(policy_by_file, device.ceiling, device.measurement_ceiling)
    earlier_device = fleet_devices.get(name)
    if earlier_device is None:
        broker.check_free(name, "device", renew=False)
    elif earlier_device.limits() != device.limits():
        raise FuguError(f"device {name} has other ceilings or groups on line {earlier_device.line}")
    elif repeated_streams := earlier_device.policies.keys() & policies.keys():
        raise FuguError(f"device {name} has two policies for stream {min(repeated_streams)}")
    listed_device = fleet_devices.setdefault(name, device)
    listed_device.policies |= policies
    listed_device.sensors |= dict.fromkeys(policies, cells["sensor"])


@contextmanager
def _removed_on_failure(*paths: Path | None) -> Iterator[None]:
    """Delete folders if the context fails."""
    try:
        yield
    except BaseException:
        for path in filter(None, paths):
            shutil.rmtree(path, ignore_errors=True)
        raise


check_commands(__name__)
