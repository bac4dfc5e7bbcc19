"""`fugu gateway run`, `status`, `watch`, `history`, `migrate` and `forget`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.frames import MAX_TICK
from fugu.commands.arguments import one_of
from fugu.commands.options import ConnectionOptions, JsonOption, command_group, grouped
from fugu.view.terminal import answer, working
from gateway.location import store_location
from host.logs import LOG_FORMATS, log_to_stderr

if TYPE_CHECKING:
    from mqtt_link import Broker

__all__ = ["app"]

app = command_group("The side that tracks and estimates.")


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
        Path | None, typer.Option(metavar="FILE", help="Ledger of the releases (default: beside the store).")
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


@app.command("run")
@grouped
def run(
    service: ServiceOptions,
    signed: FleetOptions,
    operator: OperatorOptions,
    connection: ConnectionOptions,
    broker: Annotated[str, typer.Option(metavar="HOST:PORT", help="The MQTT broker.")] = "127.0.0.1:1883",
    on_conflict: Annotated[
        str, typer.Option(help="What is done about a device that contradicts itself: alarm, or stop (it as well).")
    ] = "alarm",
    home_assistant: Annotated[
        bool, typer.Option("--home-assistant", help="Tell Home Assistant of devices; without, take back what was told.")
    ] = False,
    verbose: Annotated[bool, typer.Option(help="Log what happens, not only what goes wrong.")] = False,
    log_format: Annotated[str, typer.Option(help="Of the log: text, or json (an object a line).")] = "text",
    shards: Annotated[
        int, typer.Option(metavar="N", help="So many processes share the devices, each with a store beside --store.")
    ] = 1,
    metrics: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Counts for Prometheus, over HTTP (HOST: 127.0.0.1).")
    ] = None,
) -> int:
    """Serve a fleet until SIGTERM or SIGINT.

    \b
    examples:
      fugu gateway run --fleet home --policies /etc/fugu/policies --store /var/lib/fugu/home.db
      fugu gateway run --fleet home --policies policies --store home.db --broker gw.example:8883 --ca-file ca.pem
      fugu gateway run --fleet home --policies policies --store home.db --releases releases.toml
      fugu gateway run --fleet home --policies policies --store home.db --keep symbols=90d --keep windows=2d
      fugu gateway run --fleet home --policies policies --store home.db --metrics 9464
      fugu gateway run --fleet home --policies policies --store home.db --shards 4
      fugu gateway run --fleet home --policies policies --store postgresql://fugu@db.example/home?sslmode=verify-full
      fugu gateway run --fleet home --store home.db --registry fleet.db --root keys/root.envelope \\
          --gateway-key keys/gateway-1a2b3c4d.key --passphrase-file passphrase --operator-username operator \\
          --operator-password-file operator.password
    """
    address = connection.broker(broker)
    from gateway.service import ON_CONFLICT, FleetFiles, GatewaySettings, Keep
    from gateway.service import run as serve
    from gateway.service.metrics import Listen

    log_to_stderr(one_of(log_format, "log-format", LOG_FORMATS), verbose=verbose)
    enrolled = None
    if signed.registry is not None:
        roots = tuple(signed.root or ())
        enrolled = FleetFiles(
            signed.registry, roots, operator.broker(address), signed.gateway_key, signed.passphrase_file
        )
    conflict = one_of(on_conflict, "on-conflict", ON_CONFLICT)
    given = asdict(service) | {
        "store": store_location(service.store),
        "keep": Keep.parse(service.keep or ()),
        "home_assistant": home_assistant,
        "shards": shards,
    }
    listen = None if metrics is None else Listen.parse(metrics)
    settings = GatewaySettings(**given, broker=address, enrolled=enrolled, on_conflict=conflict, metrics=listen)
    with ExitStack() as starting:
        starting.enter_context(working(f"checking {settings.store}, and starting"))
        return serve(settings, started=starting.close)


@app.command("status")
def status(
    store: Annotated[str, typer.Option(metavar="FILE|URL", help="The store of the gateway that runs.")],
    as_json: JsonOption = False,
) -> int:
    """Ask the running gateway how it is.

    Exit code 1 if there is an alarm, or no gateway.

    \b
    examples:
      fugu gateway status --store /var/lib/fugu/home.db
      fugu gateway status --store home.db --json
    """
    from fugu.view.gateway import show_status
    from gateway.service.monitor import asked

    found = asked(store_location(store))
    answer(as_json, lambda: found, lambda: show_status(found))
    return 1 if found["alarms"] else 0


@app.command("watch")
def watch(
    store: Annotated[str, typer.Option(metavar="FILE|URL", help="The gateway's store; its gateway may be running.")],
    false_alarms: Annotated[
        float, typer.Option(metavar="RATE", help="The most false alarms expected in a year of the whole fleet.")
    ] = 0.1,
    as_json: JsonOption = False,
) -> int:
    """Test whether streams are still in the classes of their policies.

    From symbols alone. Exit code 1 if one is not.

    \b
    examples:
      fugu gateway watch --store home.db
      fugu gateway watch --store home.db --false-alarms 0.01 --json
    """
    from fugu.view.model import show_watched
    from gateway.service.model_watch import watch_store

    with working("testing every stream"):
        found = watch_store(store_location(store), false_alarms)
    answer(as_json, lambda: [one._asdict() for one in found], lambda: show_watched(found, false_alarms))
    return 1 if any(one.alarm is not None for one in found) else 0


@app.command("history")
def history(
    device: Annotated[str, typer.Argument(help="The device.")],
    stream: Annotated[str, typer.Argument(help="Its stream.")],
    store: Annotated[str, typer.Option(metavar="FILE|URL", help="The gateway's store; its gateway may be running.")],
    first: Annotated[int, typer.Option(min=0, max=MAX_TICK, metavar="TICK", help="The first tick.")] = 0,
    last: Annotated[
        int | None, typer.Option(min=0, max=MAX_TICK, metavar="TICK", help="The last tick (default: all).")
    ] = None,
    lag: Annotated[int, typer.Option(min=0, max=4096, help="As the gateway's.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the estimates of a stream from the store, tick by tick.

    \b
    examples:
      fugu gateway history watch hr --store home.db --first 3600 --last 7199
      fugu gateway history watch hr --store home.db --json
    """
    from fugu.view.gateway import history_json, history_line
    from gateway.service.history import estimates_between

    for row in estimates_between(store_location(store), device, stream, first, last, lag):
        print(history_json(row) if as_json else history_line(row))


@app.command("migrate")
def migrate(
    source: Annotated[
        str, typer.Option("--from", metavar="FILE|URL", help="The store; its gateway must not be running.")
    ],
    target: Annotated[str, typer.Option("--to", metavar="FILE|URL", help="A new store.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a store from a file to a server, or back.

    All of it, or nothing; the old one stays as it is, and must not be used any more.

    \b
    examples:
      fugu gateway migrate --from home.db --to postgresql://fugu@db.example/home?sslmode=verify-full
      fugu gateway migrate --from postgresql://fugu@db.example/home?sslmode=verify-full --to home.db
    """
    from fugu.view.terminal import say
    from gateway.service.store.migration import migrate_store

    old, new = store_location(source), store_location(target)
    with working(f"copying {old.name}", measured=True) as told:
        rows = migrate_store(old, new, told)
    answer(as_json, lambda: rows, lambda: say(f"{new.name} has all {sum(rows.values())} rows; put {old.name} away."))


@app.command("forget")
def forget(
    device: Annotated[str, typer.Argument(help="The device.")],
    store: Annotated[
        str, typer.Option(metavar="FILE|URL", help="The gateway's store; its gateway must not be running.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Erase what a device has sent from the store.

    And its estimates: for good, and never what was charged for it.

    \b
    examples:
      fugu gateway forget watch --store home.db
    """
    from fugu.view.terminal import say
    from gateway.service.forgetting import forget_device

    with working(f"erasing {device}"):
        found = forget_device(store_location(store), device)
    text = f"{found.symbols} symbols, {found.points} frames of points, {found.windows} windows"
    answer(as_json, found._asdict, lambda: say(f"Erased of {device}, {text}. The ledger keeps its charges."))
