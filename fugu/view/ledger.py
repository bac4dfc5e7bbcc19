"""Releases, and the ledger of them, as JSON or as tables."""

from __future__ import annotations

from typing import Any

from contract.release_frames import ReleaseFrame
from fugu.view.fleet import counted, moment_text
from fugu.view.terminal import say, show_table
from gateway.release.charges import nats
from gateway.release.entries import Account, Entry

__all__ = ["account_document", "entry_document", "show_accounts", "show_entries", "show_release"]

_SHOWN = 20


def account_document(account: Account) -> dict[str, Any]:
    """An account as an object for JSON, in nats."""
    return {
        **account.key._asdict(),
        "mechanism": account.mechanism,
        "together": account.together or None,
        "spent_together": nats(account.spent_together),
        "allowance": nats(account.allowance),
        "base": nats(account.base),
        "spent": nats(account.spent),
        "remaining": nats(account.remaining),
        "first": account.first if account.runs else None,
        "last": account.last if account.runs else None,
        "exclusive": account.exclusive or None,
    }


def entry_document(entry: Entry, charges: dict[str, int]) -> dict[str, Any]:
    """A release as an object for JSON, with what it charges to each device."""
    fields = {name: value for name, value in entry._asdict().items() if name != "payload"}
    return {**fields, "charges": {device: nats(charge) for device, charge in charges.items()}}


def show_accounts(accounts: list[Account]) -> None:
    """Print what is allowed, spent and left."""
    rows = []
    for one in accounts:
        ticks = f"{one.first}..{one.last}" if one.runs else "none"
        amounts = (f"{nats(units):.6g}" for units in (one.allowance, one.base, one.spent, one.remaining))
        rows.append((f"{one.key.device}/{one.key.stream}", one.key.audience, one.mechanism, *amounts, ticks))
    columns = ("stream", "audience", "mechanism", "allowance", "standing", "most spent", "remaining", "ticks charged")
    show_table("Nats per tick, by stream and audience", columns, rows)
    for name, audience in sorted({(one.together, one.key.audience) for one in accounts if one.together}):
        most = max(one.spent_together for one in accounts if (one.together, one.key.audience) == (name, audience))
        say(f"{name} move together: charges add up, {nats(most):.6g} to a tick at most, audience {audience}.")


def show_entries(entries: list[Entry]) -> None:
    """Print the newest of the releases."""
    rows = []
    for one in entries[-_SHOWN:]:
        what = (str(one.number), one.name, one.audience, f"{one.first}..{one.last}", one.scale, one.state)
        rows.append((*what, moment_text(one.time_us)))
    show_table("Releases", ("entry", "name", "audience", "ticks", "scale", "state", "made (UTC)"), rows)
    if len(entries) > _SHOWN:
        say(f"The newest {_SHOWN} of {len(entries)} releases; --json shows all.")


def show_release(frame: ReleaseFrame) -> None:
    """Print a release."""
    percent = f"{frame.confidence * 100:g} %"
    labels = frame.states if frame.query == "histogram" else (f"{frame.query} of {', '.join(frame.states)}",)
    columns = zip(labels, frame.values, frame.standard_errors, frame.low, frame.high, strict=True)
    title = f"{frame.name}: {frame.stream}, ticks {frame.first}..{frame.last}, {counted(frame.devices)}"
    rows = [(label, *(f"{number:.6g}" for number in numbers)) for label, *numbers in columns]
    show_table(title, ("", "estimate", "standard error", f"{percent} from", "to"), rows)
    say(
        f"Ledger entry {frame.entry}: noise of scale {frame.scale} by {frame.mechanism}, {frame.charge:.6g} nats "
        f"charged to each tick. Audience {frame.audience} has epsilon {frame.epsilon:g} ({frame.adversary} adversary)."
    )
