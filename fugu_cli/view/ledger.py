"""Releases, their ledger, and an audit of the ledger, as JSON or as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu.contract.errors import FuguError
from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import instant, instant_text
from fugu.library.report import JsonObject, Line, Report, Result, Table, newest_rows
from fugu_cli.view.fleet import device_count, moment_text
from gateway.releases.charges import nats
from gateway.releases.entries import Account, Entry, Promise, base_problem
from gateway.releases.ledger import no_release_before

if TYPE_CHECKING:
    from gateway.audit.ledger import LedgerAudit, ReaderLoss, StreamLoss
    from gateway.releases.ledger import Ledger

__all__ = ["audit_result", "ledger_result", "release_report"]


def ledger_result(ledger: Ledger) -> Result:
    """Show the nats that are allowed, spent and left, and the newest releases.

    JSON has all releases, with the charge to each device in nats, and the shift of the device's ticks.
    """
    accounts, entries, not_before = ledger.accounts(), ledger.entries(), ledger.binding.not_before_us
    documents = [_entry_document(ledger, entry) for entry in entries]
    limit_fields = {"not_before": instant_text(instant(not_before))} if not_before else {}
    report = [*_show_ledger(accounts, entries), *([Line(f"{no_release_before(not_before)}.")] if not_before else ())]
    return Result({"accounts": list(map(_account_document, accounts)), "entries": documents, **limit_fields}, report)


def _account_document(account: Account) -> JsonObject:
    amount_names = ("spent_together", "allowance", "base", "spent", "remaining")
    return {
        **account.key._asdict(),
        "mechanism": account.mechanism,
        "together": account.together or None,
        **{name: nats(getattr(account, name)) for name in amount_names},
        **{name: getattr(account, name) if account.runs else None for name in ("first", "last")},
        "exclusive": account.exclusive or None,
        "problem": base_problem(account.key, account.allowance, account.base) or None,
    }


def _entry_document(ledger: Ledger, entry: Entry) -> JsonObject:
    entry_fields = {name: value for name, value in entry._asdict().items() if name != "payload"}
    charges = {device: nats(charge) for device, charge in ledger.charges(entry.number).items()}
    return {**entry_fields, "charges": charges, "shifts": ledger.shifts(entry.number)}


def _show_ledger(accounts: list[Account], entries: list[Entry]) -> Report:
    account_rows = [
        (
            f"{account.key.device}/{account.key.stream}",
            account.key.audience,
            account.mechanism,
            *(f"{nats(units):.6g}" for units in (account.allowance, account.base, account.spent, account.remaining)),
            f"{account.first}..{account.last}" if account.runs else "none",
        )
        for account in accounts
    ]
    spent_by_group = defaultdict[tuple[str, str], int](int)
    for account in accounts:
        if account.together:
            group_key = account.together, account.key.audience
            spent_by_group[group_key] = max(spent_by_group[group_key], account.spent_together)
    columns = ("stream", "audience", "mechanism", "allowance", "standing", "most spent", "remaining", "ticks charged")
    yield Table("Nats per tick, by stream and audience", columns, account_rows)
    for (name, audience), spent in sorted(spent_by_group.items()):
        yield Line(f"{name} move together: charges add up, {nats(spent):.6g} to a tick at most, audience {audience}.")
    for account in accounts:
        if problem := base_problem(account.key, account.allowance, account.base):
            yield Line(f"{problem}.")
    conditions = {frame.condition for entry in entries if (frame := _frame_of(entry)) is not None}
    for condition in sorted(conditions - {""}):
        yield Line(f"The amounts hold under a condition: {condition}.")
    release_rows = []
    for entry in entries:
        ticks, made_text = f"{entry.first}..{entry.last}", moment_text(entry.time_us)
        release_rows.append((str(entry.number), entry.name, entry.audience, ticks, entry.scale, entry.state, made_text))
    titles = ("entry", "name", "audience", "ticks", "scale", "state", "made (UTC)")
    yield from newest_rows(Table("Releases", titles, release_rows), " releases")


def _frame_of(entry: Entry) -> ReleaseFrame | None:
    """Decode the release of an entry; None if it was erased."""
    try:
        return ReleaseFrame.decode(entry.payload)
    except FuguError:  # erased with a device
        return None


def release_report(frames: Sequence[ReleaseFrame]) -> Report:
    """Show a table and its guarantee for each release."""
    for frame in frames:
        percent_text = f"{frame.confidence * 100:g} %"
        labels = frame.definition.number_names(frame.states)
        columns = zip(labels, frame.values, frame.standard_errors, frame.low, frame.high, strict=True)
        title = f"{frame.name}: {frame.stream}, ticks {frame.first}..{frame.last}, {device_count(frame.devices)}"
        rows = [(label, *(f"{figure:.6g}" for figure in figures)) for label, *figures in columns]
        yield Table(title, ("", "estimate", "standard error", f"{percent_text} from", "to"), rows)
        stretch_words = "a tick" if frame.stretch_ticks == 1 else f"any {frame.stretch_ticks} ticks in a row"
        yield Line(
            f"Ledger entry {frame.entry}: noise of scale {frame.scale} by {frame.mechanism}, {frame.charge:.6g} nats "
            f"charged to each tick. Audience {frame.audience} has epsilon {frame.epsilon:g} about {stretch_words} "
            f"({frame.adversary} adversary)."
        )
        if frame.condition:
            yield Line(f"{frame.condition[0].upper()}{frame.condition[1:]}.")


def audit_result(audit: LedgerAudit, name: str) -> Result:
    """Show the audit of a ledger of this name; JSON is in nats. Exit code 1 with problems."""
    streams = [
        {**stream.key._asdict(), **_flat_row(stream, "promise", "promised"), "charge": nats(stream.charge)}
        for stream in audit.streams
    ]
    readers = [_flat_row(reader, "limit", "limit") for reader in audit.readers]
    document = {**audit._asdict(), "streams": streams, "readers": readers}
    return Result(document, _audit_parts(audit, name), 1 if audit.problems else 0)


def _flat_row(loss: StreamLoss | ReaderLoss, promise_field: str, name: str) -> JsonObject:
    """Return a loss as JSON, with its promise replaced by epsilon (under `name`), adversary and seconds."""
    loss_fields = {key: value for key, value in loss._asdict().items() if key != "key"}
    epsilon, adversary, seconds = loss_fields.pop(promise_field)
    return {**loss_fields, name: epsilon, "adversary": adversary, "seconds": seconds}


def _audit_parts(audit: LedgerAudit, name: str) -> Report:
    stream_rows = [
        (
            f"{stream.key.device}/{stream.key.stream}",
            stream.key.audience,
            *_promise_cells(stream.epsilon, stream.promise),
            *(stream.mechanism, str(stream.tick), f"{nats(stream.charge):.6g}", stream.by),
        )
        for stream in audit.streams
    ]
    columns = ("about any", "epsilon", "promised", "adversary", "mechanism", "tick", "most charged", "bound by")
    yield Table("The worst of every stream, by what was published", ("stream", "audience", *columns), stream_rows)
    if audit.readers:
        titles = ("reader", "stream", "audiences", "about any", "epsilon", "limit", "adversary")
        reader_rows = []
        for reader in audit.readers:
            name_cells = reader.reader, f"{reader.device}/{reader.stream}", " ".join(reader.audiences)
            reader_rows.append((*name_cells, *_promise_cells(reader.epsilon, reader.limit)))
        yield Table("What readers were told, by all their audiences", titles, reader_rows)
    for line in audit.sources:
        yield Line(f"NOTE believed: {line}")
    for problem in audit.problems:
        yield Line(f"WRONG {problem}", bold=True)
    if not audit.problems:
        yield Line(f"{name} agrees: {audit.entries} releases, {audit.accounts} accounts, no stretch above its promise.")


def _promise_cells(epsilon: float | None, promise: Promise) -> tuple[str, ...]:
    """Return four cells of a table: the promised stretch, epsilon, the promised epsilon, and the adversary."""
    stretch_text = f"{promise.seconds} s" if promise.seconds else "tick"
    epsilon_text = "no bound" if epsilon is None else f"{epsilon:.10g}"
    return stretch_text, epsilon_text, f"{promise.epsilon:.10g}", promise.adversary
