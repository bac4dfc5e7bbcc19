"""An agent's configuration file, and the fields of each kind of sensor; docs/deploy.md explains them to people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from edge_agent.sensors.opening import KINDS
from edge_agent.sensors.source import ConfigError
from fugu.contract._document import Document
from fugu.contract.groups import GroupPin
from fugu.contract.pins import Pins
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.stretches import Ceiling
from fugu.host.addresses import is_loopback
from fugu.host.payload import parse_path
from fugu.host.toml_file import read_toml
from fugu.mqtt.broker import Broker

__all__ = ["AgentConfig", "Mqtt", "SensorConfig", "StreamConfig", "read_config", "read_policies", "sensor_values"]

FileName = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""File name relative to the folder of the configuration; no zero byte, at which system calls would end the name."""

Silence = Literal["samples", "changes"]
KeepAliveTicks = Annotated[int, Field(ge=1, le=2**32)]
KeepAlive = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
_TOPIC = r"^[^$+#\x00-\x1f\x7f][^+#\x00-\x1f\x7f]*$"
Topic = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=_TOPIC)]
"""One topic of a local device: no wildcard, and none of the broker's own topics."""


def _valid_path(path: str) -> str:
    parse_path(path)
    return path


JsonPath = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_valid_path)]
Word = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]


def _text_of_number(value: object) -> object:
    return f"{value!r}" if type(value) in (int, float) else value


Code = Annotated[
    str, BeforeValidator(_text_of_number, json_schema_input_type=str | float), Field(min_length=1, max_length=256)
]


class _Sensor(Document):
    """The fields of every kind of sensor.

    Attributes:
        missing_values: codes that stand for no reading, as -127 of a failed sensor; numbers are compared by value.
    """

    missing_values: Annotated[tuple[Code, ...], Field(max_length=64)] = ()


class Replay(_Sensor):
    """Replay a column of a CSV file (also gzipped); tick t reads row t.

    Attributes:
        time: the column of times, if the rows are changes: each value holds until the next.
        every: seconds from tick to tick, if the rows are changes.
        only: replay only rows with these cells, as "sensor=hall".
        rows: replay only these ranges of rows, one after another, or ranges of ticks if the rows are changes. A range
            is a pair: the first row, from 0, and the row after the last.
    """

    kind: Literal["replay"]
    file: FileName
    column: str = "value"
    loop: bool = True
    time: str | None = None
    every: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    only: tuple[Annotated[str, Field(pattern="^[^=]+=")], ...] = ()
    rows: tuple[tuple[int, int], ...] | None = Field(default=None, min_length=1)
    silence: Silence = "samples"

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if any(not 0 <= first < end for first, end in self.rows or ()):
            raise ValueError("rows are pairs: the first, from 0, and the one after the last")
        if (self.time is None) != (self.every is None):
            raise ValueError("time and every belong together: give both or neither")
        return self


class _KeepAlive(_Sensor):
    """Fields of a sensor whose readings may hold until the next.

    Attributes:
        keep_alive_ticks: number of ticks for which a sign that the source works is good.
    """

    silence: Silence = "samples"
    keep_alive_ticks: KeepAliveTicks | None = None

    @model_validator(mode="after")
    def _only_of_changes(self) -> Self:
        if self.silence == "samples" and self.keep_alive_ticks is not None:
            raise ValueError('a keep-alive is for silence = "changes"; of samples, every one is a sign of life')
        return self


class Lines(_KeepAlive):
    """Read one value a line from standard input; the newest line counts.

    Attributes:
        keep_alive: a line that is no reading, and says that the source works.
    """

    kind: Literal["stdin"]
    keep_alive: KeepAlive | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        _both_or_neither(self.keep_alive, self.keep_alive_ticks)
        return self


class Call(_KeepAlive):
    """Call a Python function, `package.module:function` or the name of an entry point, once a tick.

    A call that returns, with or without a reading, is a sign that the source works.
    """

    kind: Literal["call"]
    target: Annotated[str, Field(min_length=1)]


class Command(_KeepAlive):
    """Run a command, once a tick or for ever.

    Attributes:
        command: program and arguments; no shell splits them.
        runs: "tick": run once a tick, and the last line that it writes counts; "always": each line counts.
        timeout: seconds that a run may take.
        keep_alive: a line of a command that runs always which is no reading, and says that the source works.
        keep_alive_ticks: how many ticks a sign is good for. Each end of a run once a tick, without error, is a sign.
    """

    kind: Literal["command"]
    command: Annotated[tuple[Word, ...], Field(min_length=1, max_length=256)]
    runs: Literal["tick", "always"] = "tick"
    timeout: float = Field(default=10.0, gt=0, le=3600)
    keep_alive: KeepAlive | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.runs == "always":
            _both_or_neither(self.keep_alive, self.keep_alive_ticks)
        elif self.keep_alive is not None:
            raise ValueError('keep_alive is for a command that runs "always"; of another, every end is a sign of life')
        return self


class Mqtt(_Sensor):
    """Read a topic of a broker on this machine.

    Attributes:
        path: path of the value in a JSON payload, as `device.0.power` or `"1.7.0"`; None: the payload is the value.
        host: a loopback address, `localhost`, or the path of a Unix socket.
        availability: topic of the device's availability; the device is there while the newest message is `online`.
        availability_path: path of the availability in the payloads of that topic.
    """

    kind: Literal["mqtt"]
    topic: Topic
    path: JsonPath | None = None
    host: FileName = "127.0.0.1"
    port: int = Field(default=1883, ge=1, le=65535)
    username: str | None = None
    password_file: FileName | None = None
    silence: Silence = "samples"
    availability: Topic | None = None
    availability_path: JsonPath | None = None
    online: KeepAlive = "online"

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if not (self.host.startswith("/") or is_loopback(self.host)):
            raise ValueError(f"{self.host} is not this machine: only a loopback address or a Unix socket may be read")
        if self.availability is not None and self.silence == "samples":
            raise ValueError('availability is for silence = "changes"; of samples, every one is a sign of life')
        if self.availability is None and self.availability_path is not None:
            raise ValueError("availability_path is the path in what availability says, which is missing")
        if self.availability == self.topic:
            raise ValueError("availability is another topic than that of the readings, which must not be signs of life")
        return self


class Gpio(_Sensor):
    """Read a pin of a Raspberry Pi: 1 while it is active, else 0.

    Attributes:
        pin: Broadcom's number of the pin.
        pull_up: true: pulled up, active when low; false: pulled down, active when high.
        active_state: of a pin without a resistor, whether it is active when high.
        since: a reading is 1 also if the pin was active at any moment since the tick before.
    """

    kind: Literal["gpio"]
    pin: int = Field(ge=0, le=1023)
    pull_up: bool | None = None
    active_state: bool | None = None
    since: bool = False
    silence: Literal["samples"] = "samples"

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if (self.pull_up is None) == (self.active_state is None):
            raise ValueError("give pull_up, or active_state of a pin that has no resistor: one of them says what 1 is")
        return self


class HeartRate(_Sensor):
    """Read a Bluetooth heart rate monitor, in beats a minute.

    Attributes:
        no_contact: whether a rate that was measured without contact to the skin is a reading, or missing. "missing"
            needs a policy with a state for missing readings, since straps slip when hearts are fast.
    """

    kind: Literal["bluetooth-heart-rate"]
    address: str = Field(pattern=r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$")
    no_contact: Literal["reading", "missing"] = "reading"
    silence: Silence = "changes"


SensorConfig = Annotated[Replay | Lines | Call | Command | Mqtt | Gpio | HeartRate, Field(discriminator="kind")]
_DECLARED = [kind.model_fields["kind"].annotation for kind in get_args(get_args(SensorConfig)[0])]
if {name for literal in _DECLARED for name in get_args(literal)} != KINDS.keys():
    raise TypeError("each kind of sensors has fields here, and a row in KINDS of edge_agent.sensors.opening")


def _both_or_neither(keep_alive: str | None, keep_alive_ticks: int | None) -> None:
    if (keep_alive is None) != (keep_alive_ticks is None):
        raise ValueError("keep_alive and keep_alive_ticks belong together: give both or neither")


class ClockConfig(Document):
    """The owner's settings for the wall clock, with the fields of `edge_agent.plan.ClockSettings`."""

    trusted: bool = False
    confirm_seconds: float = Field(default=600.0, ge=1, le=86400)


class StreamConfig(Document):
    """A stream: its sensor, and its policy file. A stream of an enrolled device has a name, as policies are sent.

    Attributes:
        pins: the parts that the policy in the file may not change. An enrolled device has pins in its enrolment.
    """

    policy: FileName | None = None
    stream: str | None = None
    pins: Pins | None = None
    sensor: SensorConfig


class AgentConfig(Document):
    """One device.

    Attributes:
        enrolment: the enrolment file of a device to which signed policies are sent; it holds the ceilings.
        trust: file with the signed documents that the device has accepted.
        ceiling: the most that the owner lets a stream tell, in nats: 1.0 about a tick, {epsilon = 1.0, seconds = 3600}
            about any hour.
        total_ceiling: the most that all streams together may tell; None: only the ceiling of each stream holds.
            Streams with equal sensors share one sensor.
        groups: the groups of homes that the owner has joined by `fugu-agent join`, each with the terms.
        measurement_ceiling: the most that the owner lets a single released point tell, in nats. Without it measured
            streams are refused: all points together tell more, and no device can compute how much.
    """

    fleet: str
    device: str
    outbox: FileName
    enrolment: FileName | None = None
    trust: FileName = "trust"
    ceiling: Ceiling | None = None
    total_ceiling: Ceiling | None = None
    measurement_ceiling: float | None = Field(default=None, gt=0)
    forget: Literal["committed", "puback"] = "committed"
    durability: Literal["frame", "tick"] = "frame"
    max_bytes: int = Field(default=64 << 20, ge=1 << 20, le=1 << 40)
    when_full: Literal["stop", "drop-oldest"] = "stop"
    grace_seconds: float = Field(default=3600.0, ge=0, le=30 * 86400)
    binding: Annotated[str, Field(min_length=1, max_length=64)] = "auto"
    drain_seconds: float = Field(default=5.0, ge=0, le=3600)
    status_seconds: float = Field(default=30.0, gt=0, le=86400)
    broker: Broker = Broker()
    clock: ClockConfig = ClockConfig()
    groups: tuple[GroupPin, ...] = Field(default=(), max_length=64)
    streams: tuple[StreamConfig, ...] = Field(min_length=1, max_length=64)

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        for sensor in (stream.sensor for stream in self.streams):
            has_port = isinstance(sensor, Mqtt) and sensor.port == self.broker.port and not sensor.host.startswith("/")
            if has_port and is_loopback(self.broker.host):
                raise ValueError("a sensor reads the broker of the fleet: raw readings need a broker of their own")
        if self.groups and not (self.broker.has_tls or is_loopback(self.broker.host)):
            raise ValueError(
                "a device in a group needs TLS: whoever could read along would have both halves of its count"
            )
        if len({pin.name for pin in self.groups}) != len(self.groups):
            raise ValueError("two groups have the same name")
        if self.enrolment is None:
            if self.ceiling is None:
                raise ValueError("ceiling is missing: the largest epsilon that the device's owner accepts")
            if any(stream.policy is None or stream.stream is not None for stream in self.streams):
                raise ValueError("a stream of a device that is not enrolled has a policy file, and no name beside it")
        else:
            ceilings = (self.ceiling, self.total_ceiling, self.measurement_ceiling)
            if any(ceiling is not None for ceiling in ceilings) or any(stream.pins for stream in self.streams):
                raise ValueError("the ceilings and pins of an enrolled device are in its enrolment")
            if any(stream.stream is None or stream.policy is not None for stream in self.streams):
                raise ValueError("a stream of an enrolled device has a name, and no policy file: policies are sent")
            if len({stream.stream for stream in self.streams}) != len(self.streams):
                raise ValueError("two streams have the same name")
        return self


def read_config(path: Path) -> AgentConfig:
    """Read a configuration file, without the policies that it names. Raises ConfigError if a field is wrong."""
    return read_toml(path, AgentConfig, ConfigError)


def read_policies(config: AgentConfig, folder: Path) -> list[AnyPolicy]:
    """Read the policy files that a configuration names, in the order of its streams; an enrolled device has none.

    Raises ConfigError if a file cannot be read, PolicyError for a malformed policy.
    """
    files = [folder / stream.policy for stream in config.streams if stream.policy is not None]
    try:
        return [read_policy(file.read_bytes()) for file in files]
    except OSError as error:
        raise ConfigError(f"cannot read policy {error.filename}: {error.strerror}") from None


def sensor_values(stream: StreamConfig, folder: Path, broker: Broker) -> dict[str, Any]:
    """Return a stream's sensor configuration as plain values; file names are relative to `folder`.

    An MQTT sensor also gets the address of the fleet's `broker`, which it may not read.
    """
    values: dict[str, Any] = stream.sensor.model_dump(mode="json")
    file_paths = {key: str(folder / values[key]) for key in ("file", "password_file") if values.get(key) is not None}
    broker_fields = {"fleet_broker": [broker.host, broker.port]} if values["kind"] == "mqtt" else {}
    return values | file_paths | broker_fields
