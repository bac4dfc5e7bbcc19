"""The fields of an agent's configuration file; docs/deploy.md explains them to people."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contract._document import Document

__all__ = ["AgentConfig"]


class BrokerConfig(Document):
    """Where the broker is; fields as in `mqtt_link.Broker`."""

    host: str = "127.0.0.1"
    port: int = Field(default=1883, ge=1, le=65535)
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    keepalive: int = Field(default=30, ge=5, le=3600)
    max_backoff: int = Field(default=60, ge=1, le=3600)


class Replay(Document):
    """Replay a column of a CSV file (also gzipped) or an array of an NPZ file; tick t reads row t."""

    kind: Literal["replay"]
    file: str
    column: str = "value"
    loop: bool = True


class Lines(Document):
    """Read one value a line from standard input; the newest line counts."""

    kind: Literal["stdin"]


class Call(Document):
    """Call a Python function, `package.module:function` or the name of an entry point, once a tick."""

    kind: Literal["call"]
    target: str


class StreamConfig(Document):
    """A policy file, and the sensor that feeds it."""

    policy: str
    sensor: Annotated[Replay | Lines | Call, Field(discriminator="kind")]


class AgentConfig(Document):
    """One device.

    Attributes:
        ceiling: the most that its owner lets a stream tell about one tick, all its symbols together, in nats.
        measurement_ceiling: the most that its owner lets a single released point tell, in nats; none refuses measured
            streams, because what all points together tell is more, and no device can compute it.
    """

    fleet: str
    device: str
    outbox: str
    ceiling: float = Field(gt=0)
    measurement_ceiling: float | None = Field(default=None, gt=0)
    forget: Literal["committed", "puback"] = "committed"
    drain_seconds: float = Field(default=5.0, ge=0, le=3600)
    status_seconds: float = Field(default=30.0, gt=0, le=86400)
    broker: BrokerConfig = BrokerConfig()
    streams: tuple[StreamConfig, ...] = Field(min_length=1, max_length=64)
