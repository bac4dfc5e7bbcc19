"""`fugu gateway`: run a gateway, show its page and status, and read or export its store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fugu.contract.errors import UsageError
from fugu.contract.frames import MAX_TICK
from fugu.host.arguments import one_of
from fugu.host.files import write_secret
from fugu.host.terminal import LOG_FORMATS, log_to_stderr
from fugu.library.report import Line, Result, Table
from fugu_cli.app import BrokerOption, ConfigArgument, check_commands, option_group, output_option
from fugu_cli.connection import broker_of
from fugu_cli.view.gateway import chains_result, print_history, show_status
from fugu_cli.view.terminal import say, working
from gateway.config import GatewayConfig, PageConfig, PageFile, Place

if TYPE_CHECKING:
    from gateway.history.stored import Span
    from gateway.history.tasks import Source


DeviceArgument = Annotated[str, Argument(help="The device.")]
SourceArgument = Annotated[
    str, Argument(metavar="FILE|URL", help="A gateway's store, or a folder that fugu gateway export wrote.")
]
RayOption = Annotated[
    str | None, Option(metavar="ADDRESS", help="A Ray cluster that does the work; local: one on this machine.")
]


@option_group
class _LogOptions:
    """Options for the log of a process that keeps running."""

    verbose: Annotated[bool, Option("--verbose", help="Log what happens, not only what goes wrong.")] = False
    log_format: Annotated[str, Option(help="Write log lines as text, or as json objects.")] = "text"

    def start_log(self) -> None:
        """Start the log. FuguError: there is no such format."""
        log_to_stderr(one_of(self.log_format, "log-format", LOG_FORMATS), verbose=self.verbose)


def run(
    config: ConfigArgument,
    *,
    log_options: _LogOptions,
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

    log_options.start_log()
    gateway_config = GatewayConfig.read(config)
    page_settings = gateway_config.page_settings()
    duty = None
    if shard is not None:
        from gateway.cluster.duties import duty_of

        duty = duty_of(gateway_config, shard)
    with ExitStack() as page_stack, ExitStack() as startup:
        if page_settings is not None:
            from gateway.page.server import PageBeside

            page_process = PageBeside(page_settings)
            say(f"the page: {page_process.settings.address}")
            page_stack.enter_context(page_process)
        startup.enter_context(working(f"checking {gateway_config.store}, and starting"))
        return serve(gateway_config, startup.close, duty)


def cluster(
    config: ConfigArgument,
    *,
    log_options: _LogOptions,
    shards: Annotated[int, Option(metavar="N", min=2, help="Number of processes that share the devices.")],
    address: Annotated[
        str, Option(metavar="HOST:PORT", help="Ray's head node; auto: that of the cluster of this machine.")
    ] = "auto",
) -> int:
    """Serve a fleet by shards on a Ray cluster.

    It serves until SIGTERM or SIGINT. The file is that of `fugu gateway run`, its store is on a server, and all
    machines have the same files. When this process is killed, the shards go on; started again, it finds them.

    \b
    examples:
      fugu gateway cluster /etc/fugu/gateway.toml --shards 16
    """
    from gateway.cluster.cluster import run_cluster

    log_options.start_log()
    with ExitStack() as startup:
        startup.enter_context(working(f"starting {shards} shards"))
        return run_cluster(GatewayConfig.read(config), shards, address, started=startup.close)


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
    from gateway.health.monitor import ask_gateway

    status = ask_gateway(Place.of(store).store)
    return Result(status, show_status(status), 1 if status["alarms"] else 0)


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

    location = Place.of(store)
    if last is not None and first > last:
        raise UsageError("--first must not be after --last")
    for estimate_row in estimates_between(location.store, device, stream, first, last, location.lag):
        print_history(as_json, estimate_row)


def forget(
    device: DeviceArgument,
    *,
    store: Annotated[str, Option(metavar="FILE|URL", help="The gateway's store; its gateway must not be running.")],
) -> Result:
    """Erase what a device has sent from the store.

    Its estimates are erased as well, and the sums of releases that it was part of. The ledger keeps its charges.

    \b
    examples:
      fugu gateway forget watch --store home.db
    """
    from gateway.loop.retention import forget_device

    location = Place.of(store)
    with working(f"erasing {device}"):
        forgotten = forget_device(location.store, device, location.ledger)
    erased_words = f"{forgotten.symbols} symbols, {forgotten.points} frames of points, {forgotten.windows} windows"
    return Result(forgotten._asdict(), [Line(f"Erased of {device}, {erased_words}. The ledger keeps its charges.")])


def asyncapi() -> None:
    """Print the protocol as an AsyncAPI 3 document.

    It has every topic, and what its messages hold.

    \b
    examples:
      fugu gateway asyncapi > asyncapi.json
    """
    from fugu.contract.asyncapi import asyncapi_json

    print(asyncapi_json(), end="")


def dashboard(
    config: Annotated[
        Path | None, Argument(metavar="[PAGE.toml]", help="fleet, [broker], ledger and [page], in place of options.")
    ] = None,
    *,
    fleet: Annotated[str | None, Option(help="Name of the fleet to show.")] = None,
    broker: BrokerOption = "127.0.0.1:1883",
    listen: Annotated[str, Option(metavar="HOST:PORT", help="Where browsers find the page.")] = "127.0.0.1:8080",
    no_login: Annotated[
        bool, Option("--no-login", help="Show it to whoever is on this machine; loopback only.")
    ] = False,
    new_login: Annotated[
        Path | None, Option(metavar="FILE", help="Ask for a password, write its hash there, and stop.")
    ] = None,
) -> None:
    """Show in a browser what an account may read.

    It shows nothing that the account could not read, and changes nothing. Stops at Ctrl-C.

    \b
    For others than this machine a file says more:
      fleet = "home"
      broker = { host = "gw.example", ca_file = "ca.pem", username = "site", password_file = "password" }
      [page]
      listen = "0.0.0.0:8443"
      login_file = "page.login"
      tls_cert = "page.pem"
      tls_key = "page.key"

    \b
    examples:
      fugu gateway dashboard --fleet home --no-login
      fugu gateway dashboard --new-login page.login
      fugu gateway dashboard page.toml
    """
    from gateway.page.login import password_line

    if new_login is not None:
        is_terminal = sys.stdin.isatty()
        password = typer.prompt("password", hide_input=True) if is_terminal else sys.stdin.readline().rstrip("\n")
        write_secret(new_login, password_line(password) + "\n")
        return
    from gateway.page.server import serve

    if config is not None:
        page_file = PageFile.read(config)
    elif fleet is None:
        raise UsageError("which fleet: give --fleet, or a file")
    elif not no_login:
        raise UsageError("give --no-login, or a file with login_file in [page]")
    else:
        page_file = PageFile(fleet=fleet, broker=broker_of(broker), page=PageConfig(listen=listen, no_login=True))
    page_settings = page_file.settings()
    say(f"the page: {page_settings.address}")
    serve(page_settings)


@option_group
class SpanOptions:
    """Options for a stretch of wall-clock time."""

    since: Annotated[
        str | None, Option("--from", metavar="TIME", help="The first moment (default: the first that is stored).")
    ] = None
    until: Annotated[str | None, Option("--to", metavar="TIME", help="The moment after the last (default: now).")] = (
        None
    )

    def span(self) -> Span:
        """Parse both times, which are in UTC unless they name a zone."""
        from fugu.library.history import span_of

        return span_of(self.since, self.until)


@option_group
class StreamOptions:
    """Options that choose streams."""

    stream: Annotated[str | None, Option(help="Only streams of this name.")] = None
    device: Annotated[list[str] | None, Option(help="Only this device; repeatable.")] = None

    def source(self, store: str, span_options: SpanOptions) -> Source:
        """Return the source of these streams' symbols in a span of time; `store` may be an export."""
        from gateway.history.tasks import Source

        return Source(Place.of(store).store, span_options.span(), tuple(self.device or ()), self.stream)


def export(
    store: Annotated[str, Argument(metavar="FILE|URL", help="The store; its gateway may be running.")],
    folder: Annotated[Path, Argument(metavar="DIR", help="A new folder for the files.")],
    *,
    span_options: SpanOptions,
) -> Result:
    """Write what a gateway has stored as Parquet files.

    The files hold symbols, points, estimates, windows and releases, by date.

    \b
    examples:
      fugu gateway export home.db everything
      fugu gateway export home.db october --from 2026-10-01 --to 2026-11-01
    """
    from gateway.history.export import export_history

    span, location = span_options.span(), Place.of(store)
    with working(f"exporting {location.store.name}", measured=True) as progress:
        row_counts = export_history(location.store, location.ledger, span, folder, lag=location.lag, progress=progress)
    return _written_result(folder, row_counts)


def smooth(
    source: SourceArgument,
    *,
    output: Annotated[Path, output_option("DIR", "A new folder for the files.")],
    stream_options: StreamOptions,
    span_options: SpanOptions,
    ray: RayOption = None,
) -> Result:
    """Estimate states from all symbols, and write Parquet files.

    Each estimate uses the symbols before and after its tick.

    \b
    examples:
      fugu gateway smooth home.db -o smoothed
      fugu gateway smooth october --stream hr --device watch -o smoothed --ray local
    """
    from gateway.history import smoothing, tasks

    symbol_source = stream_options.source(source, span_options)
    with (
        tasks.open_tasks(ray) as task_runner,
        working(f"smoothing {symbol_source.path.name}", measured=True) as progress,
    ):
        row_counts = smoothing.smooth_history(symbol_source, output, tasks=task_runner, progress=progress)
    return _written_result(output, row_counts)


def learn(
    source: SourceArgument,
    *,
    stream_options: StreamOptions,
    span_options: SpanOptions,
    output: Annotated[Path | None, output_option("FILE", "Write the class, for the plan commands.")] = None,
    ray: RayOption = None,
) -> Result:
    """Learn a class of chains from randomised symbols.

    It learns from one stream of a whole fleet, or of some devices. Exit code 1 if the symbols tell too little.

    \b
    examples:
      fugu gateway learn home.db --stream hr -o class.json
      fugu gateway learn october --stream hr --device watch --from 2026-10-01 --to 2026-10-15 --json
    """
    from gateway.history import learning, tasks

    symbol_source = stream_options.source(source, span_options)
    with tasks.open_tasks(ray) as task_runner, working(f"learning from {symbol_source.path.name}") as progress:
        model = learning.learn_class(symbol_source, tasks=task_runner, progress=progress)
    if output is not None:
        output.write_text(model.to_json(), encoding="utf-8")
    return chains_result(model)


def _written_result(folder: Path, count_by_table: Mapping[str, int]) -> Result:
    """Show how many rows of each table were written to a folder."""
    table_rows = [(name, f"{count:,}") for name, count in count_by_table.items()]
    return Result(count_by_table, [Table(f"Written to {folder}", ("table", "rows"), table_rows)])


check_commands(__name__)
