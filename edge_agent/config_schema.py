"""The fields of an agent's configuration file; docs/deploy.md explains them to people."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edge_agent.local_broker import is_loopback
from edge_agent.sensor_schema import FileName, Mqtt, SensorConfig
from fugu.contract._document import Document
from fugu.contract.pins import Pins
from fugu.mqtt.broker import Broker

__all__ = ["AgentConfig"]


class ClockConfig(Document):
    """What the owner says of the wall clock; fields as in `edge_agent.plan.ClockSettings`."""

    trusted: bool = False
    confirm_seconds: float = Field(default=600.0, ge=1, le=86400)


class StreamConfig(Document):
    """A stream: the sensor that feeds it, and its policy file; of an enrolled device its name, as policies are sent.

    Attributes:
        pins: what the policy in the file may not change; of an enrolled device it is in the enrolment.
    """

    policy: FileName | None = None
    stream: str | None = None
    pins: Pins | None = None
    sensor: SensorConfig


class AgentConfig(Document):
    """One device.

    Attributes:
        enrolment: file of a device that is sent its policies, signed; it holds the ceilings then.
        trust: file of what was accepted.
        ceiling: the most that its owner lets a stream tell about one tick, all its symbols together, in nats.
        total_ceiling: the most that all streams together may tell; none holds each stream to its own ceiling only.
            Streams with equal sensors have one sensor.
        measurement_ceiling: the most that its owner lets a single released point tell, in nats; none refuses measured
            streams, because what all points together tell is more, and no device can compute it.
    """

    fleet: str
    device: str
    outbox: FileName
    enrolment: FileName | None = None
    trust: FileName = "trust.json"
    ceiling: float | None = Field(default=None, gt=0)
    total_ceiling: float | None = Field(default=None, gt=0)
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
    streams: tuple[StreamConfig, ...] = Field(min_length=1, max_length=64)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for sensor in (stream.sensor for stream in self.streams):
            if isinstance(sensor, Mqtt) and sensor.port == self.broker.port and not sensor.host.startswith("/"):
                _of_others(self.broker.host)
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


def _of_others(host: str) -> None:
    if is_loopback(host):
        raise ValueError("a sensor reads the broker of the fleet: raw readings need a broker of their own")
