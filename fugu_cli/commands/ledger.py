"""`fugu gateway release`, and `fugu gateway ledger show`, `resume` and `progress`."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated

from typer import Option

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.frames import MAX_TICK
from fugu.host.arguments import moment
from fugu.library.report import Result
from fugu_cli.app import ConfigArgument, check_commands, command_group
from fugu_cli.connection import broker_of
from fugu_cli.view.ledger import ledger_result, release_report
from fugu_cli.view.terminal import say_waiting, working
from gateway.config import GatewayConfig, Place
from gateway.releases.ledger import Ledger, no_release_before
from gateway.store.location import Location, ledger_beside, store_location

__all__ = ["LedgerOption", "ledger_location"]

LedgerOption = Annotated[
    str | None, Option("--ledger", metavar="FILE|URL", help="The gateway's ledger (default: beside the store).")
]
StoreOption = Annotated[str, Option("--store", metavar="FILE|URL", help="The gateway's store.")]


def ledger_location(ledger: str | None, store: str | None) -> Location:
    """Return the location of a ledger: the named one, or the one beside a store."""
    if ledger is not None:
        return store_location(ledger)
    if store is None:
        raise UsageError("which ledger? say --ledger, or --store for the one beside it")
    return ledger_beside(Place.of(store).store)


def show(
    *,
    ledger: LedgerOption = None,
    store: Annotated[
        str | None, Option(metavar="FILE|URL", help="The gateway's store, for the ledger beside it.")
    ] = None,
) -> Result:
    """Show what is allowed, spent and left, and the releases.

    It lists every stream and audience.

    \b
    examples:
      fugu gateway ledger show --ledger home-ledger.db
      fugu gateway ledger show --ledger home-ledger.db --json
      fugu gateway ledger show --store postgresql://fugu@db/home
    """
    with closing(Ledger(ledger_location(ledger, store), create=False)) as ledger_db:
        return ledger_result(ledger_db)


def resume(
    store: StoreOption,
    ledger: LedgerOption = None,
    after: Annotated[
        str | None, Option(metavar="TIME", help="When the gateway last ran, if both were put back from copies.")
    ] = None,
    broker: Annotated[
        str | None, Option(metavar="HOST:PORT|FILE", help="Ask it for the newest release; needed for an earlier time.")
    ] = None,
) -> None:
    """Go on with a ledger or a store that was lost or put back.

    Releases go on after the last tick that ledger or store have released.

    If both were put back from copies, neither has the newest releases. Then say --after, in Unix seconds or like
    2030-01-31T12:00: no window that begins before that time is released, of any stream. Now is always safe. The time
    may be lowered later, with --broker, but not below the end of the newest release.

    \b
    examples:
      fugu gateway ledger resume --ledger home-ledger.db --store home.db
      fugu gateway ledger resume --store home.db --after 2030-01-31T12:00
    """
    from gateway.releases.setup import resume_ledger

    ledger_path, store_place = ledger_location(ledger, store), Place.of(store).store
    seconds = None if after is None else moment(after, "--after")
    address = None if broker is None else broker_of(broker)
    for stream_start in resume_ledger(ledger_path, store_place, seconds, address):
        print(f"{stream_start.device}/{stream_start.stream}: releases begin with tick {stream_start.first}")
    with closing(Ledger(ledger_path, create=False)) as ledger_db:
        if not_before_us := ledger_db.binding.not_before_us:
            print(no_release_before(not_before_us))
    print(f"{ledger_path.name} is the ledger of {store_place.name}; no copy of either from before fits any more")


def progress(
    *,
    store: StoreOption,
    release: Annotated[str, Option(metavar="NAME", help="The release, as `fugu gateway ledger show` has it.")],
    first: Annotated[
        int, Option(metavar="TICK", min=0, max=MAX_TICK, help="The first tick that its next window may have.")
    ],
    ledger: LedgerOption = None,
) -> None:
    """Let the schedule of a release go on at another tick.

    The gateway must be stopped. No window is released twice.

    \b
    examples:
      fugu gateway ledger progress --ledger home-ledger.db --store home.db --release active --first 7200
    """
    from gateway.releases.setup import set_progress

    old_tick = set_progress(ledger_location(ledger, store), Place.of(store).store, release, first)
    print(f"{release} goes on with the first window from tick {first} on, not from {old_tick}; none is released twice")


app = command_group({"show": show, "resume": resume, "progress": progress})


def release(
    config: ConfigArgument,
    *,
    name: Annotated[str, Option(metavar="NAME", help="A release of the gateway's configuration of releases.")],
    first: Annotated[int, Option(metavar="TICK", min=0, help="First tick of the window.")],
    broker: Annotated[
        str | None, Option(metavar="HOST:PORT|FILE", help="Publish there, by an account of its own.")
    ] = None,
) -> Result:
    """Make a release now, and charge it in the ledger.

    The release is printed, unless it is refused or the broker does not take it, and published if a broker is named.

    \b
    examples:
      fugu gateway release gateway.toml --name active --first 3600
    """
    address = None if broker is None else broker_of(broker)
    gateway_config = GatewayConfig.read(config)
    if gateway_config.releases is None or gateway_config.policies is None:
        raise FuguError(f"{config} names no {'releases' if gateway_config.releases is None else 'policies'}")
    from gateway.releases.setup import release_now

    with working(f"making {name}"):
        frames = release_now(
            config=gateway_config.releases,
            store=gateway_config.store,
            policies=gateway_config.policies,
            ledger=gateway_config.ledger,
            name=name,
            first=first,
            broker=address,
            print_line=say_waiting,
        )
    return Result([json.loads(frame.encode()) for frame in frames], release_report(frames))


check_commands(__name__)
