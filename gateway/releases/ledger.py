"""The ledger: what every audience has been told about every tick, and the refusal to tell more than is allowed.

A release is one transaction, written through to the disk BEFORE it is published: its charges on all devices, its entry,
and the bytes to publish. If one tick of one device would exceed its allowance, nothing is written. So a crash never
under-counts. A reserved release stays charged, and its stored bytes are published or abandoned. No noise is drawn
again.

An account is a device's stream and an audience. Charges of releases add up tick by tick, on top of the account's base.
Charges to streams that move together add up likewise. A release is about wall ticks. Each device is charged at its own
tick numbers, which are ahead of the wall ticks once its clock was set. From then on nobody knows which of its ticks
coincide with ticks of another device that moves with it. So the largest charge counts for all its ticks. Source:
docs/proofs/releases-over-symbols.md and docs/proofs/audiences.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import instant, instant_text, unix_us
from fugu.contract.windows import Mechanism
from fugu.host.database import LEDGER
from gateway.releases.charges import ChargedTicks, clip, last_tick_above, nats, other_charges, peak, sum_charges
from gateway.releases.entries import (
    SITE,
    Account,
    AccountKey,
    Allowance,
    Content,
    Entry,
    LouderTicks,
    Promise,
    Release,
    State,
    Stream,
    digest,
    inputs_digest,
    together_name,
)
from gateway.releases.tables import KIND, LedgerRows
from gateway.store.engine import Lease, LedgerError, select_among
from gateway.store.location import Location
from gateway.store.opening import open_engine

if TYPE_CHECKING:
    from fugu.privacy.chain_class import ReleaseClass

__all__ = ["Ledger", "no_release_before"]


_ENTRY = ", ".join(Entry._fields)


class _AccountRow(NamedTuple):
    """A row of the table `accounts`."""

    id: int
    device: str
    stream: str
    allowance: int
    base: int
    exclusive: int
    mechanism: Mechanism
    shifted: int

    @property
    def clock(self) -> str:
        """The device if its clock was set, else "": all devices whose clock was never set share one clock."""
        return self.device if self.shifted else ""


_ACCOUNT = f"SELECT {', '.join(_AccountRow._fields)} FROM intact_accounts"


class _Book(NamedTuple):
    """A stream's account with an audience, and the accounts that share its charges.

    Attributes:
        account: `None` if the stream has none.
        together: the name of the streams that move together; empty if the stream is alone.
        members: the streams that move together, with the stream itself.
        other_accounts: the accounts of the other members.
    """

    account: _AccountRow | None
    together: str
    members: frozenset[Stream]
    other_accounts: list[_AccountRow]


class Binding(NamedTuple):
    """The identities of a ledger and of its store.

    Attributes:
        identity: random; a resumed ledger gets another one.
        store: the identity of the store whose releases the ledger charges; empty before the first.
        not_before_us: Unix time in microseconds; windows that begin earlier are refused. 0 unless an operator set it.
    """

    identity: str
    store: str
    not_before_us: int


class _RehearsalError(Exception):
    """Raised to roll a transaction back that only tried whether a release would be refused."""


class Ledger:
    """An open ledger; one thread uses it at a time, several processes may have it open.

    Args:
        lease: the right to be the only process that makes releases; `None` if other processes may make some, too.
        read_only: nothing is written, and no gateway ever waits for this process; the ledger must exist.

    Attributes:
        transaction: the engine's context manager of a transaction.

    Raises LedgerError if the file cannot be opened, is no ledger, is of a later version, or another process holds it.
    """

    def __init__(
        self, location: Location, *, create: bool = True, lease: Lease | None = None, read_only: bool = False
    ) -> None:
        self._db = open_engine(location, KIND, create=create, lease=lease, read_only=read_only)
        self.transaction = self._db.transaction

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def refuse_damage(self, name: str) -> None:
        """Read the whole file. Raises LedgerError, one line with the ledger's `name`, if its pages are damaged."""
        if problem := self._db.damage():
            raise LedgerError(f"the ledger {name} is damaged ({problem}): {LEDGER.remedy}")

    @contextmanager
    def snapshot(self) -> Iterator[LedgerRows]:
        """Give the rows of one state of the ledger; reading them blocks no writer."""
        with self._db.snapshot():
            yield LedgerRows(self._db)

    def set_allowances(self, allowances: Iterable[Allowance], *, time_us: int) -> None:
        """Open accounts or change their allowances; every change is recorded.

        A new allowance may be below the charges so far: future releases are then refused. It is capped at the least
        allowance under which the audience was told anything, because later, louder ticks leak back to earlier ticks.
        An audience's promise never changes, because limits of readers are computed from it. An account's mechanism
        never changes either: charges by one rule say nothing by another. Raises LedgerError if one of the two differs
        from before; nothing is changed then.
        """
        with self.transaction():
            newest_entry, terms_by_key = self.newest_entry, self._newest_allowances()
            refuse_other_promise, class_id_of = cache(self._refuse_other_promise), cache(self._class_id)
            for grant in allowances:
                refuse_other_promise(grant.key.audience, grant.promise)
                account, *old_terms = terms_by_key.get(grant.key, (None, 0))
                allowance = grant.allowance
                if allowance > old_terms[0]:
                    allowance = min(allowance, self._least_used_allowance(grant.key, old_terms[0], allowance))
                class_id = class_id_of(grant.chains)
                terms = [allowance, grant.base, *grant.promise, grant.period_us, grant.mechanism, class_id]
                if old_terms == terms:
                    continue
                if account is None:
                    columns = "device, stream, audience, allowance, base, mechanism"
                    account = self._insert("accounts", columns, *grant.key, allowance, grant.base, grant.mechanism)
                elif old_terms[6] != grant.mechanism:
                    raise LedgerError(
                        f"{grant.key}: its releases are charged by mechanism {old_terms[6]} and cannot be by "
                        f"{grant.mechanism} now: give the new audience another name"
                    )
                else:
                    parameters = (allowance, grant.base, account)
                    self._db.execute("UPDATE accounts SET allowance=?, base=? WHERE id=?", parameters)
                self._db.execute(
                    "INSERT INTO allowances (account, allowance, base, epsilon, adversary, seconds, period_us, "
                    "mechanism, class, after_entry, time_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (account, *terms, newest_entry, time_us),
                )
                terms_by_key[grant.key] = [account, *terms]

    def _newest_allowances(self) -> dict[AccountKey, list[Any]]:
        """The id of each account, by its key, followed by the terms of its newest row of the table `allowances`."""
        query = (
            "SELECT device, stream, audience, accounts.id, accounts.allowance, accounts.base, epsilon, adversary, "
            "seconds, period_us, accounts.mechanism, class FROM intact_accounts accounts "
            "JOIN allowances ON account=accounts.id "
            "WHERE serial=(SELECT MAX(serial) FROM allowances WHERE account=accounts.id)"
        )
        return {AccountKey(*row[:3]): [*row[3:]] for row in self._db.execute(query)}

    def _least_used_allowance(self, key: AccountKey, old_allowance: int, allowance: int) -> int:
        """Return the least allowance under which an audience was told of a stream, or of a stream that moves with it.

        If there is none, return `allowance`. `old_allowance` is that of the stream's account, 0 without one.
        """
        members = self._members([key[:2]])
        if not old_allowance and len(members) == 1:
            return allowance
        query = (
            "SELECT MIN(allowance) FROM (SELECT device, stream, allowances.allowance AS allowance, after_entry, "
            "LEAD(after_entry) OVER (PARTITION BY account ORDER BY serial) AS through "
            "FROM allowances JOIN accounts ON account=accounts.id WHERE audience=?) changes "
            "WHERE (device, stream)=(?, ?) AND EXISTS (SELECT 1 FROM entries JOIN members USING (in_group) "
            "WHERE (members.device, entries.stream, entries.audience)=(?, ?, ?) "
            "AND number>after_entry AND number<=COALESCE(through, number))"
        )
        intact_query = "SELECT serial FROM intact_allowances WHERE account IN "  # fails if a row is damaged
        intact_query += "(SELECT id FROM accounts WHERE (device, stream, audience)=(?, ?, ?))"
        for member in members:
            self._db.execute(intact_query, (*member, key.audience)).fetchall()
        member_pairs = ((member, other) for member in members for other in members)
        minima = (self._row(query, key.audience, *member, *other, key.audience)[0] for member, other in member_pairs)
        return min((minimum for minimum in minima if minimum is not None), default=allowance)

    def charge_together(self, groups: Iterable[Iterable[Stream]], *, time_us: int) -> None:
        """Let the streams of each group share their charges, past and future, for ever; every change is recorded."""
        with self.transaction():
            old_groups = self._groups_by_stream()
            for group in groups:
                members = frozenset(group).union(*(old_groups[stream][1] for stream in group if stream in old_groups))
                new_group = together_name(members), members
                changed_streams = [stream for stream in sorted(members) if old_groups.get(stream) != new_group]
                self._db.executemany(
                    "INSERT INTO together (device, stream, name, after_entry, time_us) VALUES (?, ?, ?, ?, ?)",
                    [(*stream, new_group[0], self.newest_entry, time_us) for stream in changed_streams],
                )
                old_groups |= dict.fromkeys(changed_streams, new_group)

    def _groups_by_stream(self, devices: Sequence[str] | None = None) -> dict[Stream, tuple[str, frozenset[Stream]]]:
        """Map streams to the name and the members of the group that shares their charges; streams alone are left out.

        Only streams of `devices` are looked up, or all of them with `None`.
        """
        query = "SELECT serial, device, stream, name FROM intact_together"
        group_rows = (
            self._db.execute(query) if devices is None else select_among(self._db, f"{query} WHERE device", devices)
        )
        group_names = {(device, stream): group_name for _, device, stream, group_name in sorted(group_rows)}
        query, members = "SELECT name, device, stream FROM intact_together WHERE name", dict[str, list[Stream]]()
        for group_name, device, stream in select_among(self._db, query, [*set(group_names.values())]):
            members.setdefault(group_name, []).append((device, stream))
        groups = {group_name: frozenset(streams) for group_name, streams in members.items()}
        return {stream: (group_name, groups[group_name]) for stream, group_name in group_names.items()}

    def _members(self, streams: Collection[Stream]) -> list[Stream]:
        """List the given streams and all streams that share charges with one of them, in order."""
        groups = self._groups_by_stream([device for device, _ in streams])
        return sorted({*streams}.union(*(groups[stream][1] for stream in streams if stream in groups)))

    def _books(self, audience: str, streams: Collection[Stream]) -> dict[Stream, _Book]:
        """Look up an audience's accounts of the given streams, and of the streams that move with them."""
        groups = self._groups_by_stream([device for device, _ in streams])
        devices = {device for group in (streams, *{members for _, members in groups.values()}) for device, _ in group}
        account_rows = select_among(self._db, f"{_ACCOUNT} WHERE audience=? AND device", [*devices], audience)
        accounts, books = {row[1:3]: _AccountRow._make(row) for row in account_rows}, dict[Stream, _Book]()
        for stream in streams:
            group_name, members = groups.get(stream, ("", frozenset([stream])))
            other_accounts = [accounts[member] for member in sorted(members - {stream}) if member in accounts]
            books[stream] = _Book(accounts.get(stream), group_name, members, other_accounts)
        return books

    def _class_id(self, classes: tuple[ReleaseClass, ...]) -> int:
        return self._id_of("classes", "chains", json.dumps([chain.model_dump(mode="json") for chain in classes]))[0]

    def _refuse_other_promise(self, audience: str, promise: Promise) -> None:
        """Raise LedgerError if an audience was given another promise before."""
        old_promise = self._row(
            "SELECT epsilon, adversary, seconds FROM allowances JOIN accounts ON account=accounts.id WHERE audience=? "
            "AND (epsilon, adversary, seconds)<>(?, ?, ?) LIMIT 1",
            *(audience, *promise),
        )
        if old_promise is not None:
            raise LedgerError(
                f"audience {audience} was promised epsilon {Promise(*old_promise)} and cannot be given {promise} now: "
                "give the new audience another name"
            )

    def reserve(
        self, release: Release, make_content: Callable[[int], Content], *, time_us: int, progress: int | None = None
    ) -> Entry:
        """Charge a release and store its content durably, or refuse it as a whole. Return the reserved entry.

        Args:
            make_content: makes the content from the entry's number. It is called only after every check has passed, so
                that no noise is drawn for a refused release.
            progress: the first tick of the next window of the schedule `release.name`, whose window this is; `None`
                outside of a schedule. No window of a schedule is ever released twice, wherever the schedule goes on.

        Raises LedgerError if a tick would exceed its allowance, there is no allowance, or the window was released
        before: nothing is charged then. After a DatabaseError nothing is charged. If a server went away at the very
        end, the release may be charged all the same, and is waiting to be published.
        """
        with self.transaction():
            if progress is not None and (entry := self.window_entry(release.name, release.first)):
                raise LedgerError(
                    f"release {release.name}: ticks {release.first}..{release.last} are refused, because entry {entry} "
                    "has released the window that begins there"
                )
            group = self._charge(release)
            entry_number = self.newest_entry + 1
            content = make_content(entry_number)
            document_ids = [
                self._id_of("documents", "digest, document", digest(document), document.decode())[0]
                for document in (*content.tables, content.question)
            ]
            self._db.execute(
                f"INSERT INTO entries ({_ENTRY}, in_group, question, inputs, inputs_digest) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'reserved', ?, ?, ?, ?, ?, ?)",
                (
                    *(entry_number, release.name, release.audience, release.stream, time_us, release.mechanism),
                    *(release.noise, release.scale, release.first, release.last, int(release.exclusive)),
                    *(release.basis, release.reason, release.topic, content.payload, group),
                    *(document_ids[-1], content.inputs.decode()),
                    inputs_digest(content.question, release.first, content.inputs),
                ),
            )
            if release.exclusive:
                query = "UPDATE accounts SET exclusive=? WHERE (device, stream, audience)=(?, ?, ?)"
                parameters = [(entry_number, device, release.stream, release.audience) for device in release.charges]
                self._db.executemany(query, parameters)
            if progress is not None:
                self.set_progress(release.name, progress)
            return self._entries("number=?", entry_number)[0]

    def refuse(self, release: Release) -> None:
        """Raise LedgerError if a release that charges nothing would be refused now; nothing is written."""
        assert not any(release.charges.values())
        with suppress(_RehearsalError), self.transaction():
            self._charge(release)
            raise _RehearsalError

    def window_entry(self, name: str, first: int) -> int:
        """The number of the entry that released the window of a schedule from tick `first` on; 0 if there is none."""
        row = self._row("SELECT number FROM entries WHERE name=? AND first=? LIMIT 1", name, first)
        return int(row[0]) if row else 0

    def _refuse_lost_ticks(self, release: Release, key: AccountKey, members: Iterable[Stream]) -> None:
        """Refuse ticks of a device's stream, or of streams that move with it, whose charges were in a lost ledger."""
        for member in members:
            beginning, _ = self._beginning(member)
            first = release.first + (release.shifts.get(key.device, 0) if member[0] == key.device else 0)
            if first < beginning:
                last = first + release.last - release.first
                raise LedgerError(
                    f"release {release.name}: ticks {first}..{last} are refused, because this ledger begins with tick "
                    f"{beginning} of stream {release.stream}: what was told before is not in it"
                )

    def _beginning(self, stream: Stream) -> tuple[int, int]:
        """A stream's first releasable tick, and its first with all charges known; 0 and 0 unless a ledger was lost."""
        row = self._row("SELECT first, uncharged FROM intact_beginnings WHERE (device, stream)=(?, ?)", *stream)
        return (row[0], row[1]) if row else (0, 0)

    def _charge(self, release: Release) -> int:
        """Charge the devices of a release, whose rows are read all at once. Return the id of their group.

        Raises LedgerError if the release is refused.
        """
        if release.since_us < (limit := self.binding.not_before_us):
            raise LedgerError(
                f"release {release.name}: ticks {release.first}..{release.last} are refused, because they begin at "
                f"{instant_text(instant(release.since_us))}: {no_release_before(limit)}"
            )
        group = self._group_id(release)
        streams = [(device, release.stream) for device in release.charges]
        books = self._books(release.audience, streams)
        # First of all, so that no device of this release counts on the clock of another. A row is read before it is
        # changed, because it gets a new checksum then.
        accounts = [book.account for (device, _), book in books.items() if release.charges[device]]
        ids = [(row.id,) for row in accounts if row and not row.shifted and release.shifts.get(row.device)]
        if ids:
            self._db.executemany("UPDATE accounts SET shifted=1 WHERE id=?", ids)
            books = self._books(release.audience, streams)
        has_beginnings = self._row("SELECT 1 FROM beginnings LIMIT 1") is not None
        runs_near = self._runs_of_members(release, group)
        old_runs, new_runs = list[tuple[int, int]](), list[tuple[int, ...]]()
        for device, charge in release.charges.items():
            key, shift = AccountKey(device, release.stream, release.audience), release.shifts.get(device, 0)
            book = books[key[:2]]
            if has_beginnings:
                self._refuse_lost_ticks(release, key, book.members)
            if not charge and release.audience == SITE:
                continue
            if (account := book.account) is None:
                raise _no_allowance(key)
            if book.other_accounts:
                self._replace_runs(old_runs, new_runs)  # so that the charges of earlier devices count
            runs = runs_near.get(account.id, [])
            own_run = ChargedTicks(release.first + shift, release.last + shift, charge)
            runs_after = sum_charges([*runs, own_run])
            self._refuse_charge(release, key, account, book, runs_after)
            old_runs += [(account.id, run.first) for run in set(runs) - set(runs_after)]
            new_runs += [(account.id, *run) for run in set(runs_after) - set(runs)]
        self._replace_runs(old_runs, new_runs)
        return group

    def _replace_runs(self, old_runs: list[tuple[int, int]], new_runs: list[tuple[int, ...]]) -> None:
        self._db.executemany("DELETE FROM runs WHERE account=? AND first=?", old_runs)
        self._db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", new_runs)
        old_runs.clear()
        new_runs.clear()

    def _refuse_charge(
        self, release: Release, key: AccountKey, account: _AccountRow, book: _Book, runs: list[ChargedTicks]
    ) -> None:
        """Refuse a release if an account does not allow it; `runs` are the account's charges with the release."""
        group, other_accounts = book.together, book.other_accounts
        shift, charge, base = release.shifts.get(key.device, 0), release.charges[key.device], account.base
        first, last = release.first + shift, release.last + shift
        exclusive_entry = next((row.exclusive for row in (account, *other_accounts) if row.exclusive), 0)
        problem = ""
        if release.mechanism != account.mechanism:
            rule = account.mechanism
            problem = f"mechanism {release.mechanism} keeps no promise whose releases are charged by {rule}"
        elif exclusive_entry:
            problem = f"entry {exclusive_entry} does not compose with any other release of {group or 'this stream'}"
        elif release.exclusive and (base or any(self._runs(row.id) for row in (account, *other_accounts))):
            problem = (
                f"mechanism {release.mechanism} does not compose and something was charged to "
                f"{group or 'this stream'} before"
            )
        # A release of the device's own windows charges 0: the base holds their charge, once for all releases.
        elif not (charge or base):
            problem = "its device releases no windows"
        if problem:
            raise LedgerError(f"{key}: ticks {first}..{last} are refused, because {problem}")
        charges = clip(runs, first, last) if charge else [ChargedTicks(first, last, peak(clip(runs, first, last)))]
        charges.append(ChargedTicks(first, last, base))
        for other in other_accounts:
            lead = 0 if other.device == key.device else None if other.shifted else shift  # a device has one clock
            runs = self._runs(other.id) if lead is None else self._runs_at(other.id, first - lead, last - lead)
            charges += other_charges(runs, first, last, lead)
        if excess := [run for run in sum_charges(charges) if run.charge > account.allowance]:
            label = f"{key}, with all of {group}, which move together" if group else f"{key}"
            raise LedgerError(
                f"{label}: ticks {excess[0].first}..{excess[-1].last} would reach {nats(peak(excess)):.12g} of "
                f"{nats(account.allowance):.12g} allowed, {nats(peak(excess) - account.allowance):.12g} too much"
            )

    def _runs(self, account: int) -> list[ChargedTicks]:
        query = "SELECT first, last, charge FROM intact_runs WHERE account=?"
        return [ChargedTicks._make(row) for row in self._db.execute(query, (account,))]

    def _runs_at(self, account: int, first: int, last: int) -> list[ChargedTicks]:
        """The runs of an account that overlap or touch ticks first..last; at most one of them begins earlier."""
        rows = self._db.execute(
            "SELECT first, last, charge FROM intact_runs WHERE account=? AND first<=? AND first>=COALESCE("
            "(SELECT MAX(first) FROM runs WHERE account=? AND first<?), 0) ORDER BY first",
            (account, last + 1, account, first),
        )
        return [run for run in map(ChargedTicks._make, rows) if run.last >= first - 1]

    def _runs_of_members(self, release: Release, group: int) -> dict[int, list[ChargedTicks]]:
        """Read the runs that overlap or touch a release's ticks, by account, for all devices of a group."""
        rows = self._db.execute(
            "SELECT runs.account, runs.first, runs.last, runs.charge, shift FROM intact_runs runs "
            "JOIN accounts ON accounts.id=runs.account JOIN members ON members.device=accounts.device "
            "WHERE (in_group, stream, audience)=(?, ?, ?) AND runs.first<=?+shift AND runs.first>=COALESCE("
            "(SELECT MAX(first) FROM runs WHERE account=accounts.id AND first<?+shift), 0) ORDER BY 1, 2",
            (group, release.stream, release.audience, release.last + 1, release.first),
        )
        runs: dict[int, list[ChargedTicks]] = {}
        for account, first, last, charge, shift in rows:
            if last >= release.first + shift - 1:
                runs.setdefault(account, []).append(ChargedTicks(first, last, charge))
        return runs

    def _group_id(self, release: Release) -> int:
        """The id of the group with a release's devices, charges and shifts, which is inserted if it is new."""
        members = sorted((device, charge, release.shifts.get(device, 0)) for device, charge in release.charges.items())
        group, is_new = self._id_of("groups", "digest", digest(json.dumps(members).encode()))
        if is_new:
            self._db.executemany("INSERT INTO members VALUES (?, ?, ?, ?)", [(group, *member) for member in members])
        elif members != sorted(
            (device, charge, shift)
            for device, charge, shift in self._db.execute(
                "SELECT device, charge, shift FROM intact_members WHERE in_group=?", (group,)
            )
        ):  # charges of devices that are missing would not be read
            raise LedgerError(f"the ledger is damaged (devices of group {group} are missing): {LEDGER.remedy}")
        return group

    def _id_of(self, table: str, columns: str, *row: str) -> tuple[int, bool]:
        """Look up the row by its first value, or insert it; return its id, and whether it is new."""
        old_row = self._row(f"SELECT id FROM {table} WHERE {columns.partition(',')[0]}=?", row[0])
        return (old_row[0], False) if old_row else (self._insert(table, columns, *row), True)

    def _insert(self, table: str, columns: str, *row: object) -> int:
        """Insert a row. Return its id."""
        query = f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))}) RETURNING id"
        return int(self._row(query, *row)[0])

    @property
    def binding(self) -> Binding:
        """The identities of the ledger and of its store."""
        return Binding(*self._row("SELECT identity, store, not_before_us FROM intact_binding"))

    @property
    def newest_entry(self) -> int:
        """The number of the newest entry; 0 if there is none."""
        return int(self._row("SELECT COALESCE(MAX(number), 0) FROM entries")[0])

    def begin(
        self,
        beginnings: Iterable[tuple[str, str, int]],
        identity: str,
        store: str,
        not_before_us: int | None = None,
        *,
        complete: bool = True,
    ) -> None:
        """Take a new identity, bind to a store, and refuse releases of ticks before the beginnings.

        If there are beginnings, the classes now in force count for ever: the store may have lost them.

        Args:
            beginnings: device, stream and first tick that releases may hold.
            complete: whether the ledger has all charges of the ticks before the beginnings.
            not_before_us: replaces the binding's, unless it is `None`.
        """
        beginning_rows = [(*beginning, 0 if complete else beginning[2]) for beginning in beginnings]
        with self.transaction():
            self._db.executemany(
                "INSERT INTO beginnings VALUES (?, ?, ?, ?) ON CONFLICT (device, stream) "
                "DO UPDATE SET first=CASE WHEN beginnings.first<excluded.first THEN excluded.first "
                "ELSE beginnings.first END, uncharged=CASE WHEN beginnings.uncharged<excluded.uncharged "
                "THEN excluded.uncharged ELSE beginnings.uncharged END",
                beginning_rows,
            )
            if beginning_rows:
                self._db.execute(
                    "INSERT INTO outlived SELECT DISTINCT device, stream, class, period_us, "
                    "(SELECT COALESCE(MAX(number), 0) FROM entries) "
                    "FROM allowances JOIN accounts ON account=accounts.id "
                    "WHERE serial IN (SELECT MAX(serial) FROM allowances GROUP BY account) ON CONFLICT DO NOTHING"
                )
            self._db.execute("UPDATE binding SET identity=?, store=?", (identity, store))
            if not_before_us is not None:
                self._db.execute("UPDATE binding SET not_before_us=?", (not_before_us,))

    def beginning(self, devices: Iterable[str], stream: str) -> int:
        """The first tick that a release about the stream of all these devices may hold; 0 unless a ledger was lost."""
        return max(self._beginning(member)[0] for member in self._members([(device, stream) for device in devices]))

    def beginnings(self, devices: Iterable[str], stream: str) -> dict[str, int]:
        """The first tick that a release about each device's stream may hold; empty unless a ledger was lost."""
        if self._row("SELECT 1 FROM beginnings LIMIT 1") is None:
            return {}
        return {device: self.beginning([device], stream) for device in devices}

    @property
    def has_stream_past(self) -> bool:
        """Tell whether `stream_past` may return classes or lost charges of any stream."""
        query = "SELECT 1 FROM outlived UNION ALL SELECT 1 FROM beginnings WHERE uncharged>0 LIMIT 1"
        return bool(self.binding.not_before_us or self._row(query))

    def stream_past(self, streams: Iterable[Stream]) -> tuple[list[tuple[str, int]], bool]:
        """Facts from before `begin`, unknown to today's policies, about streams and the streams that move with them.

        Returns their classes of chains, each as JSON with a period in microseconds, and whether charges may be lost.
        """
        query = "SELECT chains, period_us FROM intact_outlived JOIN classes ON class=id WHERE (device, stream)=(?, ?) "
        query += "ORDER BY class, period_us"
        members = self._members([*streams])
        classes = [(row[0], row[1]) for member in members for row in self._db.execute(query, member)]
        return classes, bool(self.binding.not_before_us) or any(self._beginning(member)[1] for member in members)

    def classes(self, key: AccountKey) -> str:
        """The classes of chains, as JSON, of an account's newest allowance."""
        query = (
            "SELECT chains FROM intact_allowances JOIN classes ON class=id WHERE account=? ORDER BY serial DESC LIMIT 1"
        )
        return str(self._row(query, self._account(key).id)[0])

    def louder_ticks(self, key: AccountKey, lead: int) -> list[LouderTicks]:
        """Find ticks of a stream, or of streams that move with it, that were charged more than is allowed now.

        `lead` is by how much the device's tick numbers are ahead of wall ticks. The largest charges of devices whose
        clocks were set are added up. Raises LedgerError if the stream has no account.
        """
        louder_ticks = []
        account, _, members, other_accounts = self._books(key.audience, [key[:2]])[key[:2]]
        unknown_ends = [
            end + (0 if member[0] == key.device else lead) for member in members if (end := self._beginning(member)[1])
        ]
        if unknown_ends:
            louder_ticks.append(LouderTicks(max(unknown_ends) - 1, None))
        if account is None:
            raise _no_allowance(key)
        query = "SELECT MAX(allowance), MAX(base) FROM intact_allowances WHERE account=?"
        limits = [self._row(query, row.id) for row in (account, *other_accounts)]
        largest_allowance, base = map(max, zip(*limits, strict=True))
        runs_by_clock = self._runs_by_clock((account, *other_accounts))
        excess = sum(peak(runs) for runs in runs_by_clock.values()) + base - account.allowance
        if excess > 0 and largest_allowance > account.allowance:
            shifted_clocks = {row.clock for row in other_accounts if row.device != key.device and self._runs(row.id)}
            last_ticks = (
                last_tick_above(runs, peak(runs) - excess) + (lead if clock in shifted_clocks else 0)
                for clock, runs in runs_by_clock.items()
            )
            louder_ticks.append(LouderTicks(max(last_ticks), min(excess, largest_allowance - account.allowance)))
        return louder_ticks

    def largest_allowance(self, audience: str) -> int | None:
        """The largest allowance that any account of an audience ever had; `None` if charges were lost.

        An account whose allowance is as large has no louder ticks.
        """
        if self._row("SELECT 1 FROM intact_beginnings WHERE uncharged>0 LIMIT 1"):
            return None
        query = "SELECT MAX(granted.allowance) FROM intact_allowances granted JOIN accounts ON account=accounts.id "
        return int(self._row(query + "WHERE audience=?", audience)[0] or 0)

    def allowances(self, stream: str, audience: str, devices: Iterable[str]) -> dict[str, tuple[int, int]]:
        """The allowance and the base of each account of an audience with a stream, by device.

        Raises LedgerError if one of `devices` has no account.
        """
        query = "SELECT device, allowance, base FROM intact_accounts WHERE (stream, audience)=(?, ?)"
        rows = self._db.execute(query, (stream, audience))
        accounts = {device: (allowance, base) for device, allowance, base in rows}
        for device in devices:
            if device not in accounts:
                raise _no_allowance(AccountKey(device, stream, audience))
        return accounts

    def newest_end_us(self) -> int:
        """The end of the newest released window, in microseconds of Unix time; 0 if there is none."""
        newest = "SELECT topic AS newest_topic, MAX(last) AS newest_last FROM entries GROUP BY topic"
        query = f"SELECT payload FROM intact_entries JOIN ({newest}) n ON topic=newest_topic AND last=newest_last"
        ends = (unix_us(ReleaseFrame.decode(bytes(payload)).time) for (payload,) in self._db.execute(query))
        return max(ends, default=0)

    def fleets(self) -> set[str]:
        """The fleets whose releases the ledger has charged."""
        return {topic.split("/")[2] for (topic,) in self._db.execute("SELECT DISTINCT topic FROM entries")}

    def released_ticks(self) -> list[tuple[str, str, int]]:
        """Each released stream: device, stream and its last released tick, as the device numbers it."""
        query = (
            "SELECT device, stream, MAX(last + shift) FROM entries JOIN members USING (in_group) "
            "GROUP BY device, stream"
        )
        return self._db.execute(query).fetchall()

    def forget(self, device: str, *, time_us: int) -> int:
        """Erase the inputs of a device's releases; charges and payloads stay. Return the number of entries."""
        with self.transaction():
            rowcount = self._db.execute(
                "UPDATE entries SET inputs='', inputs_digest='' WHERE inputs<>'' AND in_group IN "
                "(SELECT in_group FROM members WHERE device=?)",
                (device,),
            ).rowcount
            query = "INSERT INTO forgotten VALUES (?, ?, ?) ON CONFLICT (device) DO UPDATE SET "
            query += "through=excluded.through, time_us=excluded.time_us"
            self._db.execute(query, (device, self.newest_entry, time_us))
        self._db.rewrite()
        return rowcount

    def mark(self, entry_number: int, state: State) -> None:
        """Set the state of a reserved release; its charge stays, whatever the state."""
        with self.transaction():
            self._db.execute("UPDATE entries SET state=? WHERE number=? AND state='reserved'", (state, entry_number))

    def newest_published(self, through: int) -> list[int]:
        """The number of each topic's newest entry, among published entries and reserved ones up to `through`."""
        query = "SELECT MAX(number) FROM entries WHERE state='published' OR state='reserved' AND number<=? "
        return [row[0] for row in self._db.execute(query + "GROUP BY topic ORDER BY 1", (through,))]

    def entry(self, number: int) -> Entry | None:
        """The entry with a number; `None` if there is none."""
        return next(iter(self._entries("number=?", number)), None)

    def entries(self, after: int = 0, limit: int = 2**62, *, pending: bool = False) -> list[Entry]:
        """Up to `limit` entries above a number, oldest first; with `pending` only those still reserved."""
        state = "state='reserved' AND " if pending else ""
        return self._entries(f"{state}number>? ORDER BY number LIMIT ?", after, limit)

    def charges(self, entry_number: int) -> dict[str, int]:
        """The charge of every tick of an entry, by device."""
        query = "SELECT device, charge FROM members JOIN entries USING (in_group) WHERE number=? ORDER BY device"
        return dict(self._db.execute(query, (entry_number,)).fetchall())

    def shifts(self, entry_number: int) -> dict[str, int]:
        """The ticks by which each device's numbers are ahead of an entry's wall ticks."""
        query = "SELECT device, shift FROM members JOIN entries USING (in_group) WHERE number=? ORDER BY device"
        return dict(self._db.execute(query, (entry_number,)).fetchall())

    def progress(self, name: str) -> int | None:
        """The first tick of a schedule's next window; `None` before its first window."""
        row = self._row("SELECT next FROM intact_progress WHERE name=?", name)
        return None if row is None else int(row[0])

    def set_progress(self, name: str, next_tick: int) -> None:
        """Let a schedule go on with the window that begins at tick `next_tick`."""
        query = "INSERT INTO progress VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET next=excluded.next"
        with self.transaction():
            self._db.execute(query, (name, next_tick))

    def schedules(self) -> list[str]:
        """The names of the releases that have a schedule."""
        return [row[0] for row in self._db.execute("SELECT name FROM progress ORDER BY name")]

    def accounts(self) -> list[Account]:
        """Every account, in the order of device, stream and audience."""
        return self._accounts("")

    def accounts_of(self, device: str) -> list[Account]:
        """A device's accounts, in the order of stream and audience."""
        return self._accounts("WHERE device=?", device)

    def promise_of(self, audience: str) -> Promise | None:
        """The promise to an audience; `None` if it has no account."""
        query = "SELECT epsilon, adversary, seconds FROM allowances JOIN accounts ON account=accounts.id "
        row = self._row(query + "WHERE audience=? LIMIT 1", audience)
        return None if row is None else Promise(*row)

    def exclusive_keys(self) -> list[AccountKey]:
        """The keys of accounts that have had a release that does not compose."""
        rows = self._db.execute("SELECT device, stream, audience FROM accounts WHERE exclusive<>0 ORDER BY 1, 2, 3")
        return list(map(AccountKey._make, rows))

    def account(self, key: AccountKey) -> Account:
        """One account. Raises LedgerError if there is none for the key."""
        return self._accounts("WHERE id=?", self._account(key).id)[0]

    def spent(self, key: AccountKey, first: int, last: int) -> list[ChargedTicks]:
        """The charges of releases to ticks first..last; ticks between runs have 0. LedgerError without an account."""
        return clip(self._runs_at(self._account(key).id, first, last), first, last)

    def _account(self, key: AccountKey) -> _AccountRow:
        if (row := self._row(f"{_ACCOUNT} WHERE (device, stream, audience)=(?, ?, ?)", *key)) is None:
            raise _no_allowance(key)
        return _AccountRow._make(row)

    def _accounts(self, where: str, *parameters: object) -> list[Account]:
        rows = self._db.execute(
            "SELECT device, stream, audience, allowance, base, COALESCE(MAX(charge), 0), COALESCE(MIN(first), -1), "
            "COALESCE(MAX(last), -1), COUNT(charge), exclusive, mechanism "
            f"FROM intact_accounts LEFT JOIN runs ON account=id {where} GROUP BY id ORDER BY 1, 2, 3",
            parameters,
        )
        accounts = [Account(AccountKey(*row[:3]), *row[3:]) for row in rows.fetchall()]
        streams, audiences = [account.key[:2] for account in accounts], {account.key.audience for account in accounts}
        books = {audience: self._books(audience, streams) for audience in audiences}
        return [self._shared_account(account, books[account.key.audience][account.key[:2]]) for account in accounts]

    def _shared_account(self, account: Account, book: _Book) -> Account:
        """Add to an account the name and the largest charge of all streams that move with its own."""
        spent = account.spent
        if book.account is not None and book.other_accounts:
            spent = sum(map(peak, self._runs_by_clock((book.account, *book.other_accounts)).values()))
        return account._replace(together=book.together, spent_together=spent)

    def _runs_by_clock(self, accounts: Iterable[_AccountRow]) -> dict[str, list[ChargedTicks]]:
        """The charges of accounts by clock: a device's own if it was set, "" for all accounts of other devices."""
        runs_by_clock: dict[str, list[ChargedTicks]] = {}
        for account in accounts:
            runs_by_clock.setdefault(account.clock, []).extend(self._runs(account.id))
        return runs_by_clock

    def _entries(self, where: str, *parameters: object) -> list[Entry]:
        rows = self._db.execute(f"SELECT {_ENTRY} FROM intact_entries WHERE {where}", parameters)
        return [Entry._make((*row[:10], bool(row[10]), *row[11:])) for row in rows]

    def _row(self, query: str, *parameters: object) -> Any:
        return self._db.execute(query, parameters).fetchone()


def _no_allowance(key: AccountKey) -> LedgerError:
    return LedgerError(f"{key}: has no allowance")


def no_release_before(time_us: int) -> str:
    """Say that no window before a time is released, why, and how to change that time."""
    return (
        f"no release before {instant_text(instant(time_us))}, as was said when copies were put back "
        "(fugu gateway ledger resume --after sets another time)"
    )
