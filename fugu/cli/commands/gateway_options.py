"""What a gateway is started with: the options of `fugu gateway run` and `cluster`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fugu.cli.commands.arguments import one_of
from fugu.cli.commands.options import ConnectionOptions
from fugu.host.logs import LOG_FORMATS, log_to_stderr
from gateway.location import store_location

if TYPE_CHECKING:
    from fugu.mqtt import Broker
    from gateway.service import GatewaySettings

__all__ = ["FleetOptions", "OperatorOptions", "ProcessOptions", "ServiceOptions", "gateway_settings"]


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What is served, what audiences are told, and where it is kept."""

    fleet: Annotated[str, typer.Option(help="Name of the fleet to serve.")]
    store: Annotated[str, typer.Option(metavar="FILE|URL", help="SQLite file, or postgresql://USER@HOST/DATABASE.")]
    policies: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of policy files, *.json; optional with --registry.")
    ] = None
    lag: Annotated[int, typer.Option(help="Ticks of later symbols or points that each estimate sees.")] = 8
    releases: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Batch releases: audiences and schedules (TOML).")
    ] = None
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="Ledger of the releases (default: beside the store).")
    ] = None
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=AGE",
            help="How long symbols, points and windows are kept, 400d each if not given; in h or d; repeatable.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """How devices are sent signed policies, tables and the time."""

    registry: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Registry of a fleet whose devices are sent signed policies.")
    ] = None
    root: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="With --registry: a root.envelope; all of them, if there have been several."),
    ] = None
    gateway_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --registry: the gateway's key, for tables and the time.")
    ] = None
    passphrase_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Of the gateway's key.")] = None


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """As whom policies are published; whatever is not given is the gateway's own."""

    operator_username: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --registry: who publishes policies (default: --username).")
    ] = None
    operator_password_file: Annotated[str | None, typer.Option(metavar="FILE", help="Of the operator.")] = None
    operator_cert_file: Annotated[str | None, typer.Option(metavar="FILE", help="Of the operator.")] = None
    operator_key_file: Annotated[str | None, typer.Option(metavar="FILE", help="Of the operator.")] = None

    def broker(self, gateway: Broker) -> Broker:
        """The gateway's connection, as the operator."""
        found = gateway
        if self.operator_username is not None:
            found = replace(found, username=self.operator_username, password_file=self.operator_password_file)
        if self.operator_cert_file is not None:
            found = replace(found, cert_file=self.operator_cert_file, key_file=self.operator_key_file)
        return found


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Whom a gateway talks to, and what it says of itself."""

    broker: Annotated[str, typer.Option(metavar="HOST:PORT", help="The MQTT broker.")] = "127.0.0.1:1883"
    on_conflict: Annotated[
        str, typer.Option(help="What is done about a device that contradicts itself: alarm, or stop (it as well).")
    ] = "alarm"
    home_assistant: Annotated[
        bool, typer.Option("--home-assistant", help="Tell Home Assistant of devices; without, take back what was told.")
    ] = False
    verbose: Annotated[bool, typer.Option(help="Log what happens, not only what goes wrong.")] = False
    log_format: Annotated[str, typer.Option(help="Of the log: text, or json (an object a line).")] = "text"
    metrics: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Counts for Prometheus, over HTTP (HOST: 127.0.0.1).")
    ] = None


def gateway_settings(
    service: ServiceOptions,
    process: ProcessOptions,
    signed: FleetOptions,
    operator: OperatorOptions,
    connection: ConnectionOptions,
    shards: int,
    shard: str | None = None,
) -> GatewaySettings:
    """What these options say; the log is set up as well.

    Args:
        shard: `i/N` or `fleet/N`, in place of the number of shards.

    Raises:
        FuguError: one of them cannot be used.
    """
    address = connection.broker(process.broker)
    from gateway.service import ON_CONFLICT, FleetFiles, GatewaySettings, Keep, Listen, Role

    log_to_stderr(one_of(process.log_format, "log-format", LOG_FORMATS), verbose=process.verbose)
    enrolled = None
    if signed.registry is not None:
        roots = tuple(signed.root or ())
        enrolled = FleetFiles(
            signed.registry, roots, operator.broker(address), signed.gateway_key, signed.passphrase_file
        )
    given = asdict(service) | {
        "store": store_location(service.store),
        "ledger": None if service.ledger is None else store_location(service.ledger),
        "keep": Keep.parse(service.keep or ()),
        **({"shards": shards} if shard is None else Role.parse(shard)._asdict()),
    }
    return GatewaySettings(
        **given,
        broker=address,
        enrolled=enrolled,
        on_conflict=one_of(process.on_conflict, "on-conflict", ON_CONFLICT),
        metrics=None if process.metrics is None else Listen.parse(process.metrics),
        home_assistant=process.home_assistant,
    )
