"""`fugu gateway run`, `cluster`, `status`, `history`, `forget` and `asyncapi`."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from fugu.contract.frames import MAX_TICK
from fugu.host.arguments import one_of
from fugu.host.terminal import LOG_FORMATS, log_to_stderr
from fugu.library.report import Line, Result
from fugu_cli.app import ConfigArgument, command, command_group
from fugu_cli.connection import gateway_of, place_of, store_of
from fugu_cli.view.gateway import show_status, tell_history
from fugu_cli.view.terminal import say, working

if TYPE_CHECKING:
    from gateway.config import PageSettings


DeviceArgument = Annotated[str, Argument(help="The device.")]
app = command_group("Receive what devices publish, and estimate from it.")


@dataclass(frozen=True, slots=True)
class _LogOptions:
    """Options for the log of a process that keeps running."""

    verbose: Annotated[bool, Option("--verbose", help="Log what happens, not only what goes wrong.")] = False
    log_format: Annotated[str, Option(help="Write log lines as text, or as json objects.")] = "text"

    def begin(self) -> None:
        """Set the log up.

        Raises:
            FuguError: there is no such format.
        """
        log_to_stderr(one_of(self.log_format, "log-format", LOG_FORMATS), verbose=self.verbose)


@command(app, "run")
def run(
    config: ConfigArgument,
    *,
    logs: _LogOptions,
    shard: Annotated[
        str | None,
        Option(
            metavar="I/N", help="Serve shard I of N, on any machine; or fleet/N: what there is once for all of them."
        ),
    ] = None,
) -> int:
    """Serve a fleet until SIGTERM or SIGINT.

    \b
    The file says what is served, where it is kept, and who is told what of it; file names are relative to its folder:
      fleet = "home"
      store = "home.db"              # or postgresql://fugu@db.example/home?sslmode=verify-full
      policies = "policies"
      [broker]
      host = "gw.example"
      ca_file = "ca.pem"

    \b
    examples:
      fugu gateway run gateway.toml
      fugu gateway run gateway.toml --verbose
      fugu gateway run gateway.toml --shard 0/2
      fugu gateway run gateway.toml --shard fleet/2
    """
    from gateway.loop.process import run as serve

    logs.begin()
    gateway = gateway_of(config)
    settings, page = gateway.settings(), gateway.page_settings()
    duty = None
    if shard is not None:
        from gateway.cluster.duties import duty_of

        duty = duty_of(settings, shard)
    with _beside(page), ExitStack() as starting:
        starting.enter_context(working(f"checking {settings.store}, and starting"))
        return serve(settings, starting.close, duty)


def _beside(page: PageSettings | None) -> AbstractContextManager[object]:
    """The page, which listens already, and begins with the context."""
    if page is None:
        return nullcontext()
    from gateway.page.server import PageBeside

    beside = PageBeside(page)
    say(f"the page: {beside.settings.address}")
    return beside


@command(app, "cluster")
def cluster(
    config: ConfigArgument,
    *,
    logs: _LogOptions,
    shards: Annotated[int, Option(metavar="N", min=2, help="Number of processes that share the devices.")],
    address: Annotated[
        str, Option(metavar="HOST:PORT", help="Ray's head node; auto: that of the cluster of this machine.")
    ] = "auto",
) -> int:
    """Serve a fleet by shards on a Ray cluster.

    Until SIGTERM or SIGINT. The file is that of `fugu gateway run`, its store is on a server, and all machines have the
    same files. When this process is killed, the shards go on; started again, it finds them.

    \b
    examples:
      fugu gateway cluster /etc/fugu/gateway.toml --shards 16
    """
    from gateway.cluster.cluster import run_cluster

    logs.begin()
    settings = gateway_of(config).settings()
    with ExitStack() as starting:
        starting.enter_context(working(f"starting {shards} shards"))
        return run_cluster(settings, shards, address, started=starting.close)


@command(app, "status", shows=True)
def status(
    store: Annotated[
        str, Argument(metavar="FILE|URL", help="The store of the gateway that runs, or its gateway.toml.")
    ],
) -> Result:
    """Ask the running gateway how it is.

    Exit code 1 if there is an alarm, or no gateway.

    \b
    examples:
      fugu gateway status /var/lib/fugu/home.db
      fugu gateway status home.db --json
    """
    from gateway.health.monitor import asked

    found = asked(store_of(store))
    return Result(found, show_status(found), 1 if found["alarms"] else 0)


@command(app, "history")
def history(
    device: DeviceArgument,
    stream: Annotated[str, Argument(help="Its stream.")],
    *,
    store: Annotated[str, Option(metavar="FILE|URL", help="The gateway's store; its gateway may be running.")],
    first: Annotated[int, Option(min=0, max=MAX_TICK, metavar="TICK", help="The first tick.")] = 0,
    last: Annotated[
        int | None, Option(min=0, max=MAX_TICK, metavar="TICK", help="The last tick (default: all).")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the estimates of a stream from the store, tick by tick.

    \b
    examples:
      fugu gateway history watch hr --store home.db --first 3600 --last 7199
      fugu gateway history watch hr --store home.db --json
    """
    from gateway.estimates.history import estimates_between

    place = place_of(store)
    for row in estimates_between(place.store, device, stream, first, last, place.lag):
        tell_history(as_json, row)


@command(app, "forget", shows=True)
def forget(
    device: DeviceArgument,
    *,
    store: Annotated[str, Option(metavar="FILE|URL", help="The gateway's store; its gateway must not be running.")],
) -> Result:
    """Erase what a device has sent from the store.

    And its estimates, and the sums of releases that it was a part of: for good, and never what was charged for it.

    \b
    examples:
      fugu gateway forget watch --store home.db
    """
    from gateway.loop.retention import forget_device

    place = place_of(store)
    with working(f"erasing {device}"):
        found = forget_device(place.store, device, place.ledger)
    text = f"{found.symbols} symbols, {found.points} frames of points, {found.windows} windows"
    return Result(found._asdict(), [Line(f"Erased of {device}, {text}. The ledger keeps its charges.")])


@command(app, "asyncapi")
def asyncapi() -> None:
    """Print the protocol as an AsyncAPI 3 document.

    Every topic, and what its messages hold.

    \b
    examples:
      fugu gateway asyncapi > asyncapi.json
    """
    from fugu.contract.asyncapi import asyncapi_json

    print(asyncapi_json(), end="")
