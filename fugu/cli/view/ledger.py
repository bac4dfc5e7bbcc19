"""Releases, and the ledger of them, as JSON or as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fugu.cli.view.fleet import counted, moment_text
from fugu.cli.view.terminal import say, show_newest, show_table
from fugu.contract.reports import ReleaseFrame
from gateway.releases.entries import Account, Entry, nats, standing_problem

__all__ = ["account_document", "entry_document", "show_ledger", "show_releases"]

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
        "problem": standing_problem(account.key, account.allowance, account.base) or None,
    }


def entry_document(entry: Entry, charges: dict[str, int], shifts: dict[str, int]) -> dict[str, Any]:
    """A release as an object for JSON, with what it charges to each device, and by how much its ticks are ahead."""
    fields = {name: value for name, value in entry._asdict().items() if name != "payload"}
    return {**fields, "charges": {device: nats(charge) for device, charge in charges.items()}, "shifts": shifts}


def show_ledger(accounts: list[Account], entries: list[Entry]) -> None:
    """Print what is allowed, spent and left, and the newest of the releases."""
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
    for one in accounts:
        if problem := standing_problem(one.key, one.allowance, one.base):
            say(f"{problem}.")
    made = [
        (str(e.number), e.name, e.audience, f"{e.first}..{e.last}", e.scale, e.state, moment_text(e.time_us))
        for e in entries
    ]
    show_newest(
        "Releases", ("entry", "name", "audience", "ticks", "scale", "state", "made (UTC)"), made, _SHOWN, " releases"
    )


def show_releases(frames: Iterable[ReleaseFrame]) -> None:
    """Print releases."""
    for frame in frames:
        percent = f"{frame.confidence * 100:g} %"
        labels = frame.asked.labels(frame.states)
        columns = zip(labels, frame.values, frame.standard_errors, frame.low, frame.high, strict=True)
        title = f"{frame.name}: {frame.stream}, ticks {frame.first}..{frame.last}, {counted(frame.devices)}"
        rows = [(label, *(f"{number:.6g}" for number in numbers)) for label, *numbers in columns]
        show_table(title, ("", "estimate", "standard error", f"{percent} from", "to"), rows)
        about = "a tick" if frame.stretch_ticks == 1 else f"any {frame.stretch_ticks} ticks in a row"
        say(
            f"Ledger entry {frame.entry}: noise of scale {frame.scale} by {frame.mechanism}, {frame.charge:.6g} nats "
            f"charged to each tick. Audience {frame.audience} has epsilon {frame.epsilon:g} about {about} "
            f"({frame.adversary} adversary)."
        )
