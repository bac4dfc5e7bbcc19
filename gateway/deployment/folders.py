"""The folders of those who use a broker: devices, the gateway, operators and subscribers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fugu.contract.errors import FuguError
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling
from fugu.host.files import file_errors, write_public, write_secret
from fugu.host.toml_file import toml_lines
from fugu.mqtt import Broker
from fugu.mqtt.link import Say, say_nothing
from fugu.mqtt.probe import deliver
from gateway.deployment.broker_files import BrokerFolder, Credentials
from gateway.deployment.units import AGENT, GATEWAY, SHARD_UNIT, unit
from gateway.store.shards import numbered_path

__all__ = [
    "DeviceOptions",
    "EnrolledOptions",
    "SignedFiles",
    "check_ceilings",
    "clear_retained",
    "read_policies",
    "sensor_table",
    "write_client",
    "write_device",
    "write_gateway",
]


_PROGRAMS = "/opt/fugu-edge/bin"


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Options of a device's configuration, besides the broker.

    Attributes:
        policies: the device's policies, by the names of their files.
        ceiling: the largest loss of a stream that the device's owner allows.
        measurement_ceiling: the largest loss of one released point; `None` refuses measured streams.
        sensor: as for `sensor_table`.
        in_place: whether to use relative names only, and to write no unit.
    """

    policies: Mapping[str, AnyPolicy]
    ceiling: Ceiling
    measurement_ceiling: float | None
    sensor: str
    in_place: bool

    def write(self, folder: Path) -> list[str]:
        """Write the policies. Return [], since the service gets no further file as a credential."""
        for name, policy in self.policies.items():
            write_public(folder / name, policy.to_json())
        return []

    def keys(self) -> dict[str, object]:
        """Return the configuration's keys with the owner's limits."""
        ceiling = self.ceiling.model_dump() if self.ceiling.seconds else self.ceiling.epsilon
        return {"ceiling": ceiling, "measurement_ceiling": self.measurement_ceiling}

    def streams(self) -> list[str]:
        """Return the lines of the streams' tables; without policies, an example as a comment."""
        prefix, sensor = "" if self.in_place else f"{AGENT.config}/", sensor_table(self.sensor)
        if not self.policies:
            return ["", "# [[streams]]", f'# policy = "{prefix}watch.json"', f"# {toml_lines({'sensor': sensor})[0]}"]
        return _stream_tables({"policy": prefix + name, "sensor": sensor} for name in self.policies)


@dataclass(frozen=True, slots=True)
class EnrolledOptions:
    """Options of an enrolled device, which receives its policies, and has the owner's limits in its enrolment.

    Attributes:
        enrolment: a function that writes the device's enrolment into a file.
        sensors: the sensors of the device's streams, by the streams' names, as for `sensor_table`.
        in_place: whether to use relative names only, and to write no unit.
    """

    enrolment: Callable[[Path], None]
    sensors: Mapping[str, str]
    in_place: bool

    def write(self, folder: Path) -> list[str]:
        """Write the enrolment. Return its file's name, since the service gets this file as a credential."""
        self.enrolment(folder / _ENROLMENT)
        return [_ENROLMENT]

    def keys(self) -> dict[str, object]:
        """Return the configuration's keys with the enrolment's file and the folder of accepted documents."""
        return {"enrolment": _ENROLMENT, "trust": "trust" if self.in_place else f"{AGENT.state}/trust"}

    def streams(self) -> list[str]:
        """Return the lines of the tables of streams."""
        return _stream_tables({"stream": name, "sensor": sensor_table(text)} for name, text in self.sensors.items())


def _stream_tables(tables: Iterable[Mapping[str, object]]) -> list[str]:
    return [line for table in tables for line in ("", "[[streams]]", *toml_lines(table))]


_ENROLMENT = "enrolment.json"
_KINDS = ("replay", "call", "command", "mqtt", "gpio", "bluetooth-heart-rate")


def sensor_table(sensor: str) -> dict[str, str]:
    """Parse the sensor of a command's option into a table of the configuration.

    A sensor is `stdin`, a topic with a slash, or a Python function, package.module:function. A topic is
    `zigbee2mqtt/hall`, or `zigbee2mqtt/hall#occupancy` with the path in a JSON payload. Raises FuguError for the name
    of a kind.
    """
    if sensor == "stdin":
        return {"kind": "stdin"}
    if sensor in _KINDS:
        raise FuguError(f"a sensor of kind {sensor} has more to say: take stdin here, then edit agent.toml")
    if "/" in sensor:
        topic, hash_sign, path = sensor.partition("#")
        return {"kind": "mqtt", "topic": topic, **({"path": path} if hash_sign else {})}
    return {"kind": "call", "target": sensor}


def read_policies(files: Sequence[Path], fleet: str, device: str) -> dict[str, AnyPolicy]:
    """Read policies of a device, and return them by file name.

    Raises PolicyError if a policy is malformed. Raises FuguError if a file cannot be read, is for another device, or
    has the name of another file.
    """
    policies: dict[str, AnyPolicy] = {}
    for file in files:
        with file_errors(file, "the policy"):
            policy = read_policy(file.read_bytes())
        if (policy.fleet, policy.device) != (fleet, device):
            raise FuguError(f"{file} is for {policy.fleet}/{policy.device}, not for {fleet}/{device}")
        if file.name in policies:
            raise FuguError(f"two policies are called {file.name}")
        policies[file.name] = policy
    return policies


def write_device(
    folder: Path, broker: BrokerFolder, credentials: Credentials, options: DeviceOptions | EnrolledOptions
) -> None:
    """Write a device's folder: agent.toml, the authority's certificate, credentials, policies or enrolment, a unit."""
    files = _write_credentials(folder, broker, credentials)
    secret_names = options.write(folder)
    write_public(folder / "agent.toml", _agent_toml(broker, credentials.name, files, options))
    if not options.in_place:
        credential_names = ["agent.toml", *_file_names(files), *secret_names]
        unit_fields = {"CREDENTIALS": AGENT.credentials(credential_names), "PROGRAM": f"{_PROGRAMS}/fugu-agent"}
        write_public(folder / "fugu-agent.service", unit("fugu-agent.service", unit_fields))


@dataclass(frozen=True, slots=True)
class SignedFiles:
    """The files of a fleet that its gateway needs to send signed policies.

    Attributes:
        registry: the registry's file, as the gateway names it.
        roots: envelopes of all root documents.
        key: the gateway's key, encrypted.
        passphrase: the passphrase of the key.
    """

    registry: str
    roots: Sequence[Path]
    key: bytes
    passphrase: str

    def write(self, folder: Path, prefix: str) -> dict[str, object]:
        """Write copies of all files, the key and its passphrase as secrets. Return the keys of the table [signed]."""
        for root in self.roots:
            write_public(folder / root.name, root.read_bytes())
        write_secret(folder / _KEY, self.key)
        write_secret(folder / _SECRET, f"{self.passphrase}\n")
        names = [f"{prefix}{root.name}" for root in self.roots]
        return {"registry": self.registry, "roots": names, "key": _KEY, "passphrase_file": _SECRET}


_KEY, _SECRET = "gateway.key", "gateway-secret"


def write_gateway(
    folder: Path,
    broker: BrokerFolder,
    credentials: Credentials,
    rollout: Credentials | None,
    shards: Sequence[Credentials],
    *,
    in_place: bool,
    signed: SignedFiles | None = None,
) -> None:
    """Write a gateway's folder: gateway.toml, the authority's certificate, credentials, a folder for policies, units.

    Units get the gateway's own credentials and those of `rollout`; a shard's unit gets its shard's only. `rollout` is
    of the operators' account with which the gateway sends signed policies; `None` if it sends none. With `rollout`,
    but without `signed`, gateway.toml has an example of [signed].
    """
    (folder / "policies").mkdir()
    files = _write_credentials(folder, broker, credentials)
    rollout_files = {} if rollout is None else rollout.write(folder, "rollout-{}".format)
    for shard_index, shard in enumerate(shards):
        shard.write(folder, partial(numbered_path, index=shard_index))
    tables = [] if rollout is None else _signed_tables(folder, signed, rollout_files, in_place=in_place)
    write_public(folder / "gateway.toml", "\n".join([*_gateway_toml(broker, files, in_place=in_place), *tables, ""]))
    if in_place:
        return
    secret_names = [] if signed is None else [_KEY, _SECRET]
    credential_names = ["gateway.toml", *_file_names(files), *_file_names(rollout_files), *secret_names]
    unit_fields = {"CREDENTIALS": GATEWAY.credentials(credential_names), "PROGRAM": f"{_PROGRAMS}/fugu"}
    write_public(folder / "fugu-gateway.service", unit("fugu-gateway.service", unit_fields))
    if not shards:
        return
    unit_fields["SHARDS"] = str(len(shards))
    write_public(folder / "fugu-fleet.service", unit(SHARD_UNIT, {**unit_fields, "PART": "fleet"}))
    authority_name, *own_names = _file_names(files)
    shard_names = [numbered_path(name, "%i") for name in own_names]
    unit_fields["CREDENTIALS"] = GATEWAY.credentials(["gateway.toml", authority_name, *shard_names])
    write_public(folder / SHARD_UNIT, unit(SHARD_UNIT, {**unit_fields, "PART": "%i"}))


def write_client(folder: Path, broker: BrokerFolder, credentials: Credentials) -> None:
    """Write the folder of any other client: broker.toml, the authority's certificate, credentials."""
    lines = _broker_table(broker, _write_credentials(folder, broker, credentials))
    heading = f"# Written by 'fugu deploy' for {credentials.name} of fleet {broker.settings.fleet}: --broker takes it."
    write_public(folder / "broker.toml", "\n".join([heading, *lines, ""]))


def _write_credentials(folder: Path, broker: BrokerFolder, credentials: Credentials) -> dict[str, str]:
    """Write the authority's certificate and credentials. Return the fields of `fugu.mqtt.Broker` that name them."""
    write_public(folder / "ca.pem", broker.authority_certificate)
    return {"ca_file": "ca.pem", **credentials.write(folder)}


def _broker_table(broker: BrokerFolder, files: Mapping[str, str]) -> list[str]:
    return ["[broker]", *toml_lines({"host": broker.settings.hosts[0], "port": broker.settings.port, **files})]


def _file_names(file_fields: Mapping[str, str]) -> list[str]:
    """Return the names of files in a broker's fields."""
    return [name for key, name in file_fields.items() if key.endswith("_file")]


def _gateway_toml(broker: BrokerFolder, files: Mapping[str, str], *, in_place: bool) -> list[str]:
    settings = broker.settings
    entries = {
        "fleet": settings.fleet,
        "store": "store.sqlite" if in_place else f"{GATEWAY.state}/store.sqlite",
        "policies": "policies" if in_place else f"{GATEWAY.config}/policies",
    }
    lines = [f"# Written by 'fugu deploy' for the gateway of fleet {settings.fleet}.", *toml_lines(entries)]
    return [*lines, "", *_broker_table(broker, files)]


def _signed_tables(
    folder: Path, signed: SignedFiles | None, rollout: Mapping[str, str], *, in_place: bool
) -> list[str]:
    """Return the lines of the table [signed], and write its files; without `signed`, an example as a comment."""
    prefix = "" if in_place else f"{GATEWAY.config}/"
    if signed is not None:
        key_lines = toml_lines(signed.write(folder, prefix))
        clock = ["trusted_clock = true  # leave that out where NTP sets the clock"] if in_place else []
        return ["", "[signed]", *key_lines, *clock, "", "[signed.operator]", *toml_lines(rollout)]
    state_folder = "" if in_place else f"{GATEWAY.state}/"
    return [
        *("", "# of a fleet with a registry, whose devices are sent signed policies:", "# [signed]"),
        f'# registry = "{state_folder}fleet.sqlite"',
        f'# roots = ["{prefix}root.envelope"]',
        f'# key = "{_KEY}"                 # a copy of keys/gateway-*.key; without it no time is signed',
        f'# passphrase_file = "{_SECRET}"  # of that key, mode 0600',
        "# trusted_clock = true  # if no time server sets the clock of this host, and it is right",
        *("# [signed.operator]", *(f"# {line}" for line in toml_lines(rollout))),
    ]


def _agent_toml(
    broker: BrokerFolder, device: str, files: Mapping[str, str], options: DeviceOptions | EnrolledOptions
) -> str:
    """Return the text of the agent's configuration."""
    settings = broker.settings
    entries: dict[str, object] = {
        "fleet": settings.fleet,
        "device": device,
        "outbox": "outbox.sqlite" if options.in_place else f"{AGENT.state}/outbox.sqlite",
        **options.keys(),
    }
    lines = [f"# Written by 'fugu deploy device' for device {device} of fleet {settings.fleet}.", *toml_lines(entries)]
    lines += ["", *_broker_table(broker, files)]
    if options.in_place:  # to try the device on this machine
        lines += ["", "[clock]", "trusted = true  # leave that out on a device, where NTP sets the clock"]
    lines += options.streams()
    return "\n".join(lines) + "\n"


def check_ceilings(policies: Mapping[str, AnyPolicy], ceiling: Ceiling, measurement_ceiling: float | None) -> None:
    """Check guarantees against ceilings as the device will; `policies` are by the names of their files.

    Raises GuaranteeError if a guarantee is above its ceiling; FuguError if a ceiling is missing.
    """
    for name, policy in policies.items():
        if isinstance(policy, Policy):
            policy.verify(ceiling)
        elif measurement_ceiling is None:
            raise FuguError(f"{name} is for measurements: say with --measurement-ceiling what a point may tell")
        else:
            policy.verify(measurement_ceiling)


def clear_retained(broker: Broker, topics: Sequence[str], on_wait: Say = say_nothing) -> None:
    """Clear the broker's retained messages on some topics, with an operator's credentials.

    `on_wait` is as for `deliver`. LinkError if the broker cannot be reached; FuguError if it denies the account.
    """
    with closing(deliver(broker, [(topic, b"") for topic in sorted(topics)], on_wait)) as answers:
        if not all(answers):
            raise FuguError("the broker denies it: these are no operator's credentials, or it has not started anew")
