"""`fugu ledger show` and `fugu ledger verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fugu.options import JsonOption

if TYPE_CHECKING:
    from gateway.release.entries import Account, Entry
    from gateway.release.ledger import Ledger

__all__ = ["app"]

app = typer.Typer(help="What every audience has been told.", no_args_is_help=True, rich_markup_mode=None)
LedgerOption = Annotated[Path, typer.Option("--ledger", metavar="FILE", help="The gateway's ledger.")]
_SHOWN = 20


@app.command("show")
def show(ledger: LedgerOption, as_json: JsonOption = False) -> int:
    """Show what is allowed, spent and left for every stream and audience, and the releases.

    \b
    examples:
      fugu ledger show --ledger home-ledger.db
      fugu ledger show --ledger home-ledger.db --json
    """
    from contextlib import closing

    with closing(_opened(ledger)) as opened:
        accounts, entries = opened.accounts(), opened.entries()
        if as_json:
            import json

            rows = [{**_entry(entry), "charges": _nats(opened.charges(entry.number))} for entry in entries]
            print(json.dumps({"accounts": [_account(account) for account in accounts], "entries": rows}))
            return 0
    _show_accounts(accounts)
    _show_entries(entries)
    return 0


@app.command("verify")
def verify(ledger: LedgerOption, as_json: JsonOption = False) -> int:
    """Compute every charge again from the releases, and compare; exit code 1 if something does not agree.

    \b
    examples:
      fugu ledger verify --ledger home-ledger.db
    """
    from contextlib import closing

    from fugu.errors import CommandError
    from gateway.release.audit import verify as audit

    with closing(_opened(ledger)) as opened:
        found = audit(opened)
    if as_json:
        import json

        print(json.dumps({"entries": found.entries, "accounts": found.accounts, "problems": found.problems}))
        return 1 if found.problems else 0
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        raise CommandError(f"{ledger.name}: {found.problems[0]}{more}")
    from fugu.terminal import say

    say(f"{ledger.name} agrees: {found.entries} releases, {found.accounts} accounts, no tick above its allowance.")
    return 0


def _opened(path: Path) -> Ledger:
    from gateway.release.ledger import Ledger

    return Ledger(path, create=False)


def _account(account: Account) -> dict[str, Any]:
    from gateway.release.charges import nats

    return {
        **account.key._asdict(),
        "allowance": nats(account.allowance),
        "base": nats(account.base),
        "spent": nats(account.spent),
        "remaining": nats(account.remaining),
        "first": account.first if account.runs else None,
        "last": account.last if account.runs else None,
        "exclusive": account.exclusive or None,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in entry._asdict().items() if name != "payload"}


def _nats(charges: dict[str, int]) -> dict[str, float]:
    from gateway.release.charges import nats

    return {device: nats(charge) for device, charge in charges.items()}


def _show_accounts(accounts: list[Account]) -> None:
    from fugu.terminal import show_table
    from gateway.release.charges import nats

    rows = []
    for one in accounts:
        ticks = f"{one.first}..{one.last}" if one.runs else "none"
        amounts = (f"{nats(units):.6g}" for units in (one.allowance, one.base, one.spent, one.remaining))
        rows.append((f"{one.key.device}/{one.key.stream}", one.key.audience, *amounts, ticks))
    columns = ("stream", "audience", "allowance", "standing", "most spent", "remaining", "ticks charged")
    show_table("Nats per tick, by stream and audience", columns, rows)


def _show_entries(entries: list[Entry]) -> None:
    from datetime import UTC, datetime

    from fugu.terminal import say, show_table

    rows = []
    for one in entries[-_SHOWN:]:
        when = datetime.fromtimestamp(one.time_us // 10**6, UTC).strftime("%Y-%m-%d %H:%M:%S")
        rows.append((str(one.number), one.name, one.audience, f"{one.first}..{one.last}", one.scale, one.state, when))
    show_table("Releases", ("entry", "name", "audience", "ticks", "scale", "state", "made (UTC)"), rows)
    if len(entries) > _SHOWN:
        say(f"The newest {_SHOWN} of {len(entries)} releases; --json shows all.")
