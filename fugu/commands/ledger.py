"""`fugu ledger show`, `fugu ledger verify`, `fugu ledger resume` and `fugu ledger progress`."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from contract.frames import MAX_TICK
from fugu.commands.options import JsonOption, command_group
from fugu.errors import CommandError
from fugu.view.ledger import account_document, entry_document, show_ledger
from fugu.view.terminal import answer, say, working
from gateway.location import store_location
from gateway.release.ledger import Ledger

__all__ = ["app"]

app = command_group("What every audience has been told.")
LedgerOption = Annotated[Path, typer.Option("--ledger", metavar="FILE", help="The gateway's ledger.")]
StoreOption = Annotated[str, typer.Option("--store", metavar="FILE|URL", help="The gateway's store.")]


@app.command("show")
def show(ledger: LedgerOption, as_json: JsonOption = False) -> int:
    """Show what is allowed, spent and left, and the releases.

    For every stream and audience.

    \b
    examples:
      fugu ledger show --ledger home-ledger.db
      fugu ledger show --ledger home-ledger.db --json
    """
    with closing(Ledger(ledger, create=False)) as opened:
        accounts, entries = opened.accounts(), opened.entries()
        answer(
            as_json,
            lambda: {
                "accounts": [account_document(account) for account in accounts],
                "entries": [
                    entry_document(one, opened.charges(one.number), opened.shifts(one.number)) for one in entries
                ],
            },
            lambda: show_ledger(accounts, entries),
        )
    return 0


@app.command("verify")
def verify(ledger: LedgerOption, store: StoreOption, as_json: JsonOption = False) -> int:
    """Compute every charge again from the releases, and compare.

    Exit code 1 if something does not agree.

    The store knows which releases were published, and so whether this is the newest ledger: one that was put back from
    a copy adds up, and is not.

    \b
    examples:
      fugu ledger verify --ledger home-ledger.db --store home.db
    """
    from gateway.release.audit import verify as audit
    from gateway.service.release_record import ledger_problem

    with closing(Ledger(ledger, create=False)) as opened, working("computing every charge again"):
        doubt = ledger_problem(opened, store_location(store))
        found = audit(opened)
    problems = ((doubt,) if doubt else ()) + found.problems
    if as_json:
        print(json.dumps({"entries": found.entries, "accounts": found.accounts, "problems": problems}))
        return 1 if problems else 0
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise CommandError(f"{ledger.name}: {problems[0]}{more}")

    say(f"{ledger.name} agrees: {found.entries} releases, {found.accounts} accounts, no tick above its allowance.")
    return 0


@app.command("resume")
def resume(
    ledger: LedgerOption,
    store: StoreOption,
    after: Annotated[
        int,
        typer.Option(
            metavar="TICK", min=-1, max=MAX_TICK, help="The last tick released, if both were put back from copies."
        ),
    ] = -1,
) -> None:
    """Go on with a ledger or a store that was lost or put back.

    After the last tick that was released.

    What is missing in the ledger was told to somebody, so nothing is ever released again about those ticks.

    \b
    examples:
      fugu ledger resume --ledger home-ledger.db --store home.db
    """
    from gateway.service.release_record import resume_ledger

    location = store_location(store)
    for begun in resume_ledger(ledger, location, after):
        print(f"{begun.device}/{begun.stream}: releases begin with tick {begun.first}")
    print(f"{ledger.name} is the ledger of {location.name}; no copy of either from before fits any more")


@app.command("progress")
def progress(
    ledger: LedgerOption,
    store: StoreOption,
    release: Annotated[
        str, typer.Option("--release", metavar="NAME", help="The release, as `fugu ledger show` has it.")
    ],
    first: Annotated[
        int, typer.Option(metavar="TICK", min=0, max=MAX_TICK, help="The first tick that its next window may have.")
    ],
) -> None:
    """Let the schedule of a release go on at another tick.

    With the gateway stopped; no window is released twice.

    \b
    examples:
      fugu ledger progress --ledger home-ledger.db --store home.db --release active --first 7200
    """
    from gateway.service.release_record import set_progress

    before = set_progress(ledger, store_location(store), release, first)
    print(f"{release} goes on with the first window from tick {first} on, not from {before}; none is released twice")
