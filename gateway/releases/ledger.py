"""The ledger: what every audience has been told about every tick, and the refusal to tell more than is allowed.

A release is one transaction, written through to the disk BEFORE it is published: its charges on all devices, its entry,
and the bytes to publish. If one tick of one device would exceed its allowance, nothing is written. So a crash never
under-counts: what was reserved stays charged, and is published from the stored bytes or abandoned, never drawn again.

An account is a device's stream and an audience. Charges of releases add up tick by tick, on top of the account's base;
so do those to streams that move together. A release is about wall ticks; each device is charged at its own tick
numbers, which are ahead of them once its clock was set. From then on nobody knows which of them coincide with ticks of
another device that moves with it. So its largest charge counts for all of them. Source:
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
from gateway.releases.charges import ChargedTicks, beside, clipped, last_above, nats, overlay, peak, peak_of_sum
from gateway.releases.entries import (
    SITE,
    Account,
    Allowance,
    Drawn,
    Entry,
    Key,
    Louder,
    Promise,
    Release,
    State,
    Stream,
    digest,
    inputs_digest,
    together_name,
)
from gateway.releases.tables import KIND, LedgerRows
from gateway.store.engine import Lease, LedgerError, among
from gateway.store.location import Location
from gateway.store.opening import open_engine

if TYPE_CHECKING:
    from fugu.privacy.chain_class import ReleaseClass

__all__ = ["Ledger", "no_release_before"]


_ENTRY = ", ".join(Entry._fields)


class _Row(NamedTuple):
    """The row of an account."""

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
        """Its device if its clock was set; all others have one."""
        return self.device if self.shifted else ""


_ACCOUNT = f"SELECT {', '.join(_Row._fields)} FROM intact_accounts"


class _Book(NamedTuple):
    """A stream's account, if it has one; the `members` that share its charges, and the accounts of the `others`.

    `together` is what the members are called, empty if the stream is alone.
    """

    account: _Row | None
    together: str
    members: frozenset[Stream]
    others: list[_Row]


class Binding(NamedTuple):
    """Which ledger it is, and of which store.

    Attributes:
        identity: random; a ledger that begins anew has another one.
        store: the identity of the store that it charges releases of, empty before there is one.
        not_before_us: windows that begin before this Unix time are refused; 0 unless an operator has set it.
    """

    identity: str
    store: str
    not_before_us: int


class _RehearsalError(Exception):
    """Nothing is to be kept of a transaction."""


class Ledger:
    """An open ledger; one thread uses it at a time, several processes may have it open. `transaction` is the engine's.

    Args:
        lease: that this process alone makes releases, and who takes that from it; `None` if others may.
        read_only: nothing is written, and no gateway ever waits for this process; the ledger must be there.

    Raises LedgerError if it cannot be opened, is no ledger, is of a later version, or another process holds it.
    """

    def __init__(
        self, location: Location, *, create: bool = True, lease: Lease | None = None, read_only: bool = False
    ) -> None:
        self._db = open_engine(location, KIND, create=create, lease=lease, read_only=read_only)
        self.transaction = self._db.transaction

    def close(self) -> None:
        """Close it."""
        self._db.close()

    def refuse_damage(self, name: str) -> None:
        """Read the whole file (`name` in messages). Raises LedgerError, one line, if its pages do not fit together."""
        if problem := self._db.damage():
            raise LedgerError(f"the ledger {name} is damaged ({problem}): {LEDGER.remedy}")

    @contextmanager
    def snapshot(self) -> Iterator[LedgerRows]:
        """The rows of one state of the ledger; reading them holds nobody up."""
        with self._db.snapshot():
            yield LedgerRows(self._db)

    def set_allowances(self, allowances: Iterable[Allowance], *, time_us: int) -> None:
        """Open accounts, or change them; every change is recorded.

        An allowance may be lower than what is spent: future releases are then refused. It never gets larger than one
        under which something was told: louder ticks would leak back to that. What an audience is promised
        never changes, because limits of accounts are computed from it. Nor does an account's mechanism: charges by one
        rule say nothing by another. Raises LedgerError if either differs from before; nothing is changed then.
        """
        with self.transaction():
            entry, before = self.newest, self._granted()
            keep_promise, classes = cache(self._keep_promise), cache(self._class)
            for wanted in allowances:
                keep_promise(wanted.key.audience, wanted.promise)
                account, *row = before.get(wanted.key, (None, 0))
                allowed = wanted.allowance
                if allowed > row[0]:
                    allowed = min(allowed, self._least_told(wanted.key, row[0], allowed))
                number = classes(wanted.chains)
                terms = [allowed, wanted.base, *wanted.promise, wanted.period_us, wanted.mechanism, number]
                if row == terms:
                    continue
                if account is None:
                    columns = "device, stream, audience, allowance, base, mechanism"
                    account = self._insert("accounts", columns, *wanted.key, allowed, wanted.base, wanted.mechanism)
                elif row[6] != wanted.mechanism:
                    raise LedgerError(
                        f"{wanted.key}: its releases are charged by mechanism {row[6]} and cannot be by "
                        f"{wanted.mechanism} now: give the new audience another name"
                    )
                else:
                    values = (allowed, wanted.base, account)
                    self._db.execute("UPDATE accounts SET allowance=?, base=? WHERE id=?", values)
                self._db.execute(
                    "INSERT INTO allowances (account, allowance, base, epsilon, adversary, seconds, period_us, "
                    "mechanism, class, after_entry, time_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (account, *terms, entry, time_us),
                )
                before[wanted.key] = [account, *terms]

    def _granted(self) -> dict[Key, list[Any]]:
        """Every account's number, and its newest allowance as `set_allowances` writes it."""
        query = (
            "SELECT device, stream, audience, accounts.id, accounts.allowance, accounts.base, epsilon, adversary, "
            "seconds, period_us, accounts.mechanism, class FROM accounts JOIN allowances ON account=accounts.id "
            "WHERE serial=(SELECT MAX(serial) FROM allowances WHERE account=accounts.id)"
        )
        return {Key(*row[:3]): [*row[3:]] for row in self._db.execute(query)}

    def _least_told(self, key: Key, before: int, wanted: int) -> int:
        """The least allowance of streams that move together under which an audience was told of any; else `wanted`.

        `before` is 0 without an account.
        """
        members = self._members([key[:2]])
        if not before and len(members) == 1:
            return wanted
        query = (
            "SELECT MIN(allowance) FROM (SELECT device, stream, allowances.allowance AS allowance, after_entry, "
            "LEAD(after_entry) OVER (PARTITION BY account ORDER BY serial) AS through "
            "FROM allowances JOIN accounts ON account=accounts.id WHERE audience=?) changes "
            "WHERE (device, stream)=(?, ?) AND EXISTS (SELECT 1 FROM entries JOIN members USING (in_group) "
            "WHERE (members.device, entries.stream, entries.audience)=(?, ?, ?) "
            "AND number>after_entry AND number<=COALESCE(through, number))"
        )
        pairs = ((own, other) for own in members for other in members)
        least = (self._one(query, key.audience, *own, *other, key.audience)[0] for own, other in pairs)
        return min((allowed for allowed in least if allowed is not None), default=wanted)

    def charge_together(self, groups: Iterable[Iterable[Stream]], *, time_us: int) -> None:
        """Add up charges to streams that move together, past and future, for ever; changes are recorded."""
        with self.transaction():
            ties = self._ties()
            for group in groups:
                members = frozenset(group).union(*(ties[stream][1] for stream in group if stream in ties))
                tie = together_name(members), members
                new = [stream for stream in sorted(members) if ties.get(stream) != tie]
                self._db.executemany(
                    "INSERT INTO together (device, stream, name, after_entry, time_us) VALUES (?, ?, ?, ?, ?)",
                    [(*stream, tie[0], self.newest, time_us) for stream in new],
                )
                ties |= dict.fromkeys(new, tie)

    def _ties(self, devices: Sequence[str] | None = None) -> dict[Stream, tuple[str, frozenset[Stream]]]:
        """By stream, of some devices or of all, the name of those that share its charges, and these; none if alone."""
        query = "SELECT serial, device, stream, name FROM intact_together"
        rows = self._db.execute(query) if devices is None else among(self._db, f"{query} WHERE device", devices)
        names = {(device, stream): name for _, device, stream, name in sorted(rows)}
        query, members = "SELECT name, device, stream FROM intact_together WHERE name", dict[str, list[Stream]]()
        for name, *stream in among(self._db, query, [*set(names.values())]):
            members.setdefault(name, []).append((stream[0], stream[1]))
        sets = {name: frozenset(streams) for name, streams in members.items()}
        return {stream: (name, sets[name]) for stream, name in names.items()}

    def _members(self, streams: Collection[Stream]) -> list[Stream]:
        """Some streams, and all that share the charges of one of them."""
        ties = self._ties([device for device, _ in streams])
        return sorted({*streams}.union(*(ties[stream][1] for stream in streams if stream in ties)))

    def _books(self, audience: str, streams: Collection[Stream]) -> dict[Stream, _Book]:
        """An audience's accounts of some streams, and of those that move with them."""
        ties = self._ties([device for device, _ in streams])
        devices = {
            device for members_of in (streams, *{members for _, members in ties.values()}) for device, _ in members_of
        }
        accounts = map(_Row._make, among(self._db, f"{_ACCOUNT} WHERE audience=? AND device", [*devices], audience))
        rows, books = {(row.device, row.stream): row for row in accounts}, dict[Stream, _Book]()
        for stream in streams:
            together, members = ties.get(stream, ("", frozenset([stream])))
            others = [rows[member] for member in sorted(members - {stream}) if member in rows]
            books[stream] = _Book(rows.get(stream), together, members, others)
        return books

    def _class(self, classes: tuple[ReleaseClass, ...]) -> int:
        chains = json.dumps([chain.model_dump(mode="json") for chain in classes])
        return self._find("classes", "chains", chains) or self._insert("classes", "chains", chains)

    def _keep_promise(self, audience: str, wanted: Promise) -> None:
        before = self._one(
            "SELECT epsilon, adversary, seconds FROM allowances JOIN accounts ON account=accounts.id WHERE audience=? "
            "AND (epsilon, adversary, seconds)<>(?, ?, ?) LIMIT 1",
            *(audience, *wanted),
        )
        if before is not None:
            raise LedgerError(
                f"audience {audience} was promised epsilon {Promise(*before)} and cannot be given {wanted} now: give "
                "the new audience another name"
            )

    def reserve(
        self, release: Release, draw: Callable[[int], Drawn], *, time_us: int, progress: int | None = None
    ) -> Entry:
        """Charge a release and keep what will be published and what it was made of, durably, or refuse it as a whole.

        Args:
            draw: makes what to publish from the entry's number. It is called only when nothing stands against the
                release any more, so that no noise is drawn for a refused one.
            progress: if given, this is a window of the schedule `release.name`, which goes on with the one that begins
                there. No window of a schedule is ever released twice, wherever it is set to go on.

        Raises LedgerError if a tick would exceed its allowance, there is no allowance, or the window was released
        before: nothing is charged. After a DatabaseError nothing is charged, or, if a server went away at the very end,
        all of it may be, and is waiting to be published.
        """
        with self.transaction():
            if progress is not None and (entry := self.released_as(release.name, release.first)):
                raise LedgerError(
                    f"release {release.name}: ticks {release.first}..{release.last} are refused, because entry {entry} "
                    "has released the window that begins there"
                )
            group = self._admit(release)
            number = self.newest + 1
            drawn = draw(number)
            for table in drawn.tables:
                self._document(table)
            self._db.execute(
                f"INSERT INTO entries ({_ENTRY}, in_group, question, inputs, inputs_digest) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'reserved', ?, ?, ?, ?, ?, ?)",
                (
                    *(number, release.name, release.audience, release.stream, time_us, release.mechanism),
                    *(release.noise, release.scale, release.first, release.last, int(release.exclusive)),
                    *(release.basis, release.reason, release.topic, drawn.payload, group),
                    *(self._document(drawn.question), drawn.inputs.decode()),
                    inputs_digest(drawn.question, release.first, drawn.inputs),
                ),
            )
            if release.exclusive:
                query = "UPDATE accounts SET exclusive=? WHERE (device, stream, audience)=(?, ?, ?)"
                keys = [(number, device, release.stream, release.audience) for device in release.charges]
                self._db.executemany(query, keys)
            if progress is not None:
                self.set_progress(release.name, progress)
            return self._entries("number=?", number)[0]

    def refuse(self, release: Release) -> None:
        """Raise LedgerError if a release that charges nothing would be refused now; it is not made."""
        assert not any(release.charges.values())
        with suppress(_RehearsalError), self.transaction():
            self._admit(release)
            raise _RehearsalError

    def _admit(self, release: Release) -> int:
        """Charge a release; the group of its devices. Raises LedgerError."""
        if release.since_us < (limit := self.binding.not_before_us):
            raise LedgerError(
                f"release {release.name}: ticks {release.first}..{release.last} are refused, because they begin at "
                f"{instant_text(instant(release.since_us))}: {no_release_before(limit)}"
            )
        group = self._group(release)
        self._charge(release, group)
        return group

    def released_as(self, name: str, first: int) -> int:
        """The entry that has released the window of a schedule that begins at a tick; 0 if none has."""
        row = self._one("SELECT number FROM entries WHERE name=? AND first=? LIMIT 1", name, first)
        return int(row[0]) if row else 0

    def _refuse_before(self, release: Release, key: Key, members: Iterable[Stream]) -> None:
        """Refuse ticks of a device, or of those that move with it, from before a ledger that was lost."""
        for member in members:
            begins, _ = self._beginning(member)
            first = release.first + (release.shifts.get(key.device, 0) if member[0] == key.device else 0)
            if first < begins:
                last = first + release.last - release.first
                raise LedgerError(
                    f"release {release.name}: ticks {first}..{last} are refused, because this ledger begins with tick "
                    f"{begins} of stream {release.stream}: what was told before is not in it"
                )

    def _beginning(self, stream: Stream) -> tuple[int, int]:
        """The first tick that releases may hold, and the first of those whose charges are all known; 0 by default."""
        row = self._one("SELECT first, uncharged FROM intact_beginnings WHERE (device, stream)=(?, ?)", *stream)
        return (row[0], row[1]) if row else (0, 0)

    def _charge(self, release: Release, group: int) -> None:
        """Charge the devices of a release, which are the members of a group; what it needs of all is read at once."""
        books = self._books(release.audience, [(device, release.stream) for device in release.charges])
        begun = self._one("SELECT 1 FROM beginnings LIMIT 1") is not None
        near, gone, new = self._near_members(release, group), list[tuple[int, int]](), list[tuple[int, ...]]()
        shifted = list[tuple[int]]()
        for device, charge in release.charges.items():
            key, shift = Key(device, release.stream, release.audience), release.shifts.get(device, 0)
            book = books[key[:2]]
            if begun:
                self._refuse_before(release, key, book.members)
            if not charge and release.audience == SITE:
                continue
            if (account := book.account) is None:
                raise _no_allowance(key)
            if book.others:
                self._put_runs(gone, new)  # each sees what was charged to those before it
            before = near.get(account.id, [])
            after = overlay(before, release.first + shift, release.last + shift, charge) if charge else before
            self._refuse(release, key, account, book, after)
            gone += [(account.id, run.first) for run in set(before) - set(after)]
            new += [(account.id, *run) for run in set(after) - set(before)]
            if charge and shift:
                shifted.append((account.id,))
        self._put_runs(gone, new)
        self._db.executemany("UPDATE accounts SET shifted=1 WHERE id=?", shifted)

    def _put_runs(self, gone: list[tuple[int, int]], new: list[tuple[int, ...]]) -> None:
        self._db.executemany("DELETE FROM runs WHERE account=? AND first=?", gone)
        self._db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", new)
        gone.clear()
        new.clear()

    def _refuse(self, release: Release, key: Key, account: _Row, book: _Book, after: list[ChargedTicks]) -> None:
        """Refuse ticks of a device that would have these charges `after` the release."""
        together, others = book.together, book.others
        shift, charge, base = release.shifts.get(key.device, 0), release.charges[key.device], account.base
        first, last = release.first + shift, release.last + shift
        exclusive = next((row.exclusive for row in (account, *others) if row.exclusive), 0)
        problem = ""
        if release.mechanism != account.mechanism:
            rule = account.mechanism
            problem = f"mechanism {release.mechanism} keeps no promise whose releases are charged by {rule}"
        elif exclusive:
            problem = f"entry {exclusive} does not compose with any other release of {together or 'this stream'}"
        elif release.exclusive and (base or any(self._runs(row.id) for row in (account, *others))):
            problem = (
                f"mechanism {release.mechanism} does not compose and something was charged to "
                f"{together or 'this stream'} before"
            )
        # A charge of nothing is for what the device has released itself, which the base holds, once for all releases.
        elif not (charge or base):
            problem = "its device releases no windows"
        if problem:
            raise LedgerError(f"{key}: ticks {first}..{last} are refused, because {problem}")
        total = clipped(after, first, last)
        total = total if charge else [ChargedTicks(first, last, peak(total))]
        for other in others:
            ahead = 0 if other.device == key.device else None if other.shifted else shift  # a device has one clock
            runs = self._runs(other.id) if ahead is None else self._runs_at(other.id, first - ahead, last - ahead)
            for run in beside(runs, first, last, ahead):
                total = overlay(total, *run)
        above = [run for run in total if run.charge + base > account.allowance]
        if above:
            raise _refusal(key, above[0].first, above[-1].last, peak(above) + base, account.allowance, together)

    def _runs(self, account: int) -> list[ChargedTicks]:
        query = "SELECT first, last, charge FROM intact_runs WHERE account=?"
        return [ChargedTicks._make(row) for row in self._db.execute(query, (account,))]

    def _runs_at(self, account: int, first: int, last: int) -> list[ChargedTicks]:
        """The runs that overlap or touch the ticks; at most one of them begins before the first."""
        rows = self._db.execute(
            "SELECT first, last, charge FROM intact_runs WHERE account=? AND first<=? AND first>=COALESCE("
            "(SELECT MAX(first) FROM runs WHERE account=? AND first<?), 0) ORDER BY first",
            (account, last + 1, account, first),
        )
        return [run for run in map(ChargedTicks._make, rows) if run.last >= first - 1]

    def _near_members(self, release: Release, group: int) -> dict[int, list[ChargedTicks]]:
        """By account of a release's devices, which are the members of a group, the runs of `_runs_at`."""
        rows = self._db.execute(
            "SELECT runs.account, runs.first, runs.last, runs.charge, shift FROM intact_runs runs "
            "JOIN accounts ON accounts.id=runs.account JOIN members ON members.device=accounts.device "
            "WHERE (in_group, stream, audience)=(?, ?, ?) AND runs.first<=?+shift AND runs.first>=COALESCE("
            "(SELECT MAX(first) FROM runs WHERE account=accounts.id AND first<?+shift), 0) ORDER BY 1, 2",
            (group, release.stream, release.audience, release.last + 1, release.first),
        )
        near: dict[int, list[ChargedTicks]] = {}
        for account, first, last, charge, shift in rows:
            if last >= release.first + shift - 1:
                near.setdefault(account, []).append(ChargedTicks(first, last, charge))
        return near

    def _group(self, release: Release) -> int:
        members = sorted((device, charge, release.shifts.get(device, 0)) for device, charge in release.charges.items())
        name = digest(json.dumps(members).encode())
        if not (group := self._find("groups", "digest", name)):
            group = self._insert("groups", "digest", name)
            self._db.executemany("INSERT INTO members VALUES (?, ?, ?, ?)", [(group, *member) for member in members])
        return group

    def _document(self, document: bytes) -> int:
        columns, row = "digest, document", (digest(document), document.decode())
        return self._find("documents", "digest", row[0]) or self._insert("documents", columns, *row)

    def _find(self, table: str, column: str, value: str) -> int:
        """The number of the row that has a text in a column, 0 without one."""
        row = self._one(f"SELECT id FROM {table} WHERE {column}=?", value)
        return row[0] if row else 0

    def _insert(self, table: str, columns: str, *row: object) -> int:
        """Insert a row, and return its number."""
        query = f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))}) RETURNING id"
        return int(self._one(query, *row)[0])

    @property
    def binding(self) -> Binding:
        """Which ledger it is, and of which store."""
        return Binding(*self._one("SELECT identity, store, not_before_us FROM intact_binding"))

    @property
    def newest(self) -> int:
        """The number of the newest entry, 0 if there is none."""
        return int(self._one("SELECT COALESCE(MAX(number), 0) FROM entries")[0])

    def begin(
        self,
        beginnings: Iterable[tuple[str, str, int]],
        identity: str,
        store: str,
        not_before_us: int | None = None,
        *,
        complete: bool = True,
    ) -> None:
        """Become another ledger, of a store, that refuses releases before a first tick of each device and stream.

        `complete`: it has all charges of the ticks before. `not_before_us` replaces that of the binding, unless
        it is `None`. If anything begins, classes that are in force count for ever: the store may have forgotten them.
        """
        begins = [(*beginning, 0 if complete else beginning[2]) for beginning in beginnings]
        with self.transaction():
            self._db.executemany(
                "INSERT INTO beginnings VALUES (?, ?, ?, ?) ON CONFLICT (device, stream) "
                "DO UPDATE SET first=CASE WHEN beginnings.first<excluded.first THEN excluded.first "
                "ELSE beginnings.first END, uncharged=CASE WHEN beginnings.uncharged<excluded.uncharged "
                "THEN excluded.uncharged ELSE beginnings.uncharged END",
                begins,
            )
            if begins:
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
        """The first tick of a stream that releases about all these devices may hold; 0 unless the ledger was lost."""
        return max(self._beginning(member)[0] for member in self._members([(device, stream) for device in devices]))

    def beginnings(self, devices: Iterable[str], stream: str) -> dict[str, int]:
        """The same by device; empty unless the ledger was lost."""
        if self._one("SELECT 1 FROM beginnings LIMIT 1") is None:
            return {}
        return {device: self.beginning([device], stream) for device in devices}

    @property
    def has_past(self) -> bool:
        """True if there may be such facts of any stream."""
        query = "SELECT 1 FROM outlived UNION ALL SELECT 1 FROM beginnings WHERE uncharged>0 LIMIT 1"
        return bool(self.binding.not_before_us or self._one(query))

    def past(self, streams: Iterable[Stream]) -> tuple[list[tuple[str, int]], bool]:
        """Facts of streams, and of those that move with them, from before `begin`, which no policy may tell.

        Their classes of chains, as JSON with periods, and if they may have been charged without a trace of it here.
        """
        query = "SELECT chains, period_us FROM intact_outlived JOIN classes ON class=id WHERE (device, stream)=(?, ?) "
        query += "ORDER BY class, period_us"
        members = self._members([*streams])
        classes = [(row[0], row[1]) for member in members for row in self._db.execute(query, member)]
        return classes, bool(self.binding.not_before_us) or any(self._beginning(member)[1] for member in members)

    def classes(self, key: Key) -> str:
        """The classes of chains, as JSON, that an account's newest allowance is for."""
        query = (
            "SELECT chains FROM intact_allowances JOIN classes ON class=id WHERE account=? ORDER BY serial DESC LIMIT 1"
        )
        return str(self._one(query, self._account(key).id)[0])

    def louder(self, key: Key, ahead: int) -> list[Louder]:
        """Find ticks of a stream, and of those that move with it, of which more was told than may be told now.

        `ahead`: by how much its device's numbers are ahead of wall ticks. Where clocks were set, the largest charges of
        devices count together.
        """
        later_charges = []
        own, _, members, others = self._books(key.audience, [key[:2]])[key[:2]]
        lost = [(self._beginning(member)[1], member[0] != key.device) for member in members]
        if last := max(tick + (ahead if other else 0) for tick, other in lost if tick or not other):
            later_charges.append(Louder(last - 1, None))
        if own is None:
            raise _no_allowance(key)
        query = "SELECT MAX(allowance), MAX(base) FROM intact_allowances WHERE account=?"
        most, base = map(max, zip(*(self._one(query, row.id) for row in (own, *others)), strict=True))
        clocks = self._by_clock((own, *others))
        above = sum(peak_of_sum(runs) for runs in clocks.values()) + base - own.allowance
        if above > 0 and most > own.allowance:
            moved = {row.clock for row in others if row.device != key.device and self._runs(row.id)}
            lasts = (
                last_above(runs, peak_of_sum(runs) - above) + (ahead if clock in moved else 0)
                for clock, runs in clocks.items()
            )
            later_charges.append(Louder(max(lasts), min(above, most - own.allowance)))
        return later_charges

    def never_louder(self, audience: str) -> int | None:
        """Return an allowance at which no account of an audience has louder ticks; `None` if charges were lost."""
        if self._one("SELECT 1 FROM intact_beginnings WHERE uncharged>0 LIMIT 1"):
            return None
        query = "SELECT MAX(granted.allowance) FROM intact_allowances granted JOIN accounts ON account=accounts.id "
        return int(self._one(query + "WHERE audience=?", audience)[0] or 0)

    def allowances(self, stream: str, audience: str, devices: Iterable[str]) -> dict[str, tuple[int, int]]:
        """By device the allowance of its account, and what its own windows take of that. LedgerError without one."""
        query = "SELECT device, allowance, base FROM intact_accounts WHERE (stream, audience)=(?, ?)"
        every = {device: (allowance, base) for device, allowance, base in self._db.execute(query, (stream, audience))}
        for device in devices:
            if device not in every:
                raise _no_allowance(Key(device, stream, audience))
        return every

    def newest_end_us(self) -> int:
        """Compute the end of the newest window that was released, in microseconds of Unix time; 0 without one."""
        newest = "SELECT topic AS newest_topic, MAX(last) AS newest_last FROM entries GROUP BY topic"
        query = f"SELECT payload FROM intact_entries JOIN ({newest}) n ON topic=newest_topic AND last=newest_last"
        ends = (unix_us(ReleaseFrame.decode(bytes(payload)).time) for (payload,) in self._db.execute(query))
        return max(ends, default=0)

    def fleets(self) -> set[str]:
        """The fleets whose releases were charged here."""
        return {topic.split("/")[2] for (topic,) in self._db.execute("SELECT DISTINCT topic FROM entries")}

    def released(self) -> list[tuple[str, str, int]]:
        """Device, stream and the last of its ticks that any entry is about."""
        query = (
            "SELECT device, stream, MAX(last + shift) FROM entries JOIN members USING (in_group) "
            "GROUP BY device, stream"
        )
        return self._db.execute(query).fetchall()

    def forget(self, device: str, *, time_us: int) -> int:
        """Erase the sums of all releases that a device was a part of, and count them; charges and publications stay."""
        with self.transaction():
            rowcount = self._db.execute(
                "UPDATE entries SET inputs='', inputs_digest='' WHERE inputs<>'' AND in_group IN "
                "(SELECT in_group FROM members WHERE device=?)",
                (device,),
            ).rowcount
            query = "INSERT INTO forgotten VALUES (?, ?, ?) ON CONFLICT (device) DO UPDATE SET "
            query += "through=excluded.through, time_us=excluded.time_us"
            self._db.execute(query, (device, self.newest, time_us))
        self._db.rewrite()
        return rowcount

    def mark(self, number: int, state: State) -> None:
        """Record what became of a reserved release; its charge stays, whatever it is."""
        with self.transaction():
            self._db.execute("UPDATE entries SET state=? WHERE number=? AND state='reserved'", (state, number))

    def newest_published(self, through: int) -> list[int]:
        """Numbers of the newest entry of each topic that was published, or reserved and is not above a number."""
        query = "SELECT MAX(number) FROM entries WHERE state='published' OR state='reserved' AND number<=? "
        return [row[0] for row in self._db.execute(query + "GROUP BY topic ORDER BY 1", (through,))]

    def entry(self, number: int) -> Entry | None:
        """An entry, by its number."""
        return next(iter(self._entries("number=?", number)), None)

    def entries(self, after: int = 0, limit: int = 2**62, *, pending: bool = False) -> list[Entry]:
        """Entries above a number, oldest first; all, or those that are not known to be published."""
        state = "state='reserved' AND " if pending else ""
        return self._entries(f"{state}number>? ORDER BY number LIMIT ?", after, limit)

    def charges(self, number: int) -> dict[str, int]:
        """For each device of an entry, what its ticks were charged."""
        query = "SELECT device, charge FROM members JOIN entries USING (in_group) WHERE number=? ORDER BY device"
        return dict(self._db.execute(query, (number,)).fetchall())

    def shifts(self, number: int) -> dict[str, int]:
        """For each device of an entry, by how much its ticks are ahead of the entry's wall ticks."""
        query = "SELECT device, shift FROM members JOIN entries USING (in_group) WHERE number=? ORDER BY device"
        return dict(self._db.execute(query, (number,)).fetchall())

    def progress(self, name: str) -> int | None:
        """The tick at which a schedule goes on; `None` before its first window."""
        row = self._one("SELECT next FROM intact_progress WHERE name=?", name)
        return None if row is None else int(row[0])

    def set_progress(self, name: str, following: int) -> None:
        """Let a schedule go on with the window that begins at a tick, without a release; one released stays so."""
        query = "INSERT INTO progress VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET next=excluded.next"
        with self.transaction():
            self._db.execute(query, (name, following))

    def schedules(self) -> list[str]:
        """The names of the releases that have a schedule."""
        return [row[0] for row in self._db.execute("SELECT name FROM progress ORDER BY name")]

    def accounts(self) -> list[Account]:
        """Every account, in the order of device, stream and audience."""
        return self._accounts("")

    def accounts_of(self, device: str) -> list[Account]:
        """A device's accounts, in the order of stream and audience."""
        return self._accounts("WHERE device=?", device)

    def promised(self, audience: str) -> Promise | None:
        """Promise to an audience; `None` without an account."""
        query = "SELECT epsilon, adversary, seconds FROM allowances JOIN accounts ON account=accounts.id "
        row = self._one(query + "WHERE audience=? LIMIT 1", audience)
        return None if row is None else Promise(*row)

    def alone(self) -> list[Key]:
        """The accounts that have had a release that does not compose."""
        rows = self._db.execute("SELECT device, stream, audience FROM accounts WHERE exclusive<>0 ORDER BY 1, 2, 3")
        return list(map(Key._make, rows))

    def account(self, key: Key) -> Account:
        """One account. Raises LedgerError if there is none for the key."""
        return self._accounts("WHERE id=?", self._account(key).id)[0]

    def spent(self, key: Key, first: int, last: int) -> list[ChargedTicks]:
        """The charges of releases for ticks first..last; ticks between runs have 0. LedgerError if no account."""
        return clipped(self._runs_at(self._account(key).id, first, last), first, last)

    def _account(self, key: Key) -> _Row:
        if (row := self._one(f"{_ACCOUNT} WHERE (device, stream, audience)=(?, ?, ?)", *key)) is None:
            raise _no_allowance(key)
        return _Row._make(row)

    def _accounts(self, where: str, *values: object) -> list[Account]:
        rows = self._db.execute(
            "SELECT device, stream, audience, allowance, base, COALESCE(MAX(charge), 0), COALESCE(MIN(first), -1), "
            "COALESCE(MAX(last), -1), COUNT(charge), exclusive, mechanism "
            f"FROM intact_accounts LEFT JOIN runs ON account=id {where} GROUP BY id ORDER BY 1, 2, 3",
            values,
        )
        accounts = [Account(Key(*row[:3]), *row[3:]) for row in rows.fetchall()]
        keys = [account.key for account in accounts]
        books = {name: self._books(name, [key[:2] for key in keys]) for name in {key.audience for key in keys}}
        return [self._spent_together(account, books[account.key.audience][account.key[:2]]) for account in accounts]

    def _spent_together(self, account: Account, book: _Book) -> Account:
        """An account with what all streams have been told that move with its own."""
        spent = account.spent
        if book.account is not None and book.others:
            spent = sum(map(peak_of_sum, self._by_clock((book.account, *book.others)).values()))
        return account._replace(together=book.together, spent_together=spent)

    def _by_clock(self, accounts: Iterable[_Row]) -> dict[str, list[ChargedTicks]]:
        """The charges of accounts by device where its clock was set; those of all others together."""
        clocks: dict[str, list[ChargedTicks]] = {}
        for account in accounts:
            clocks.setdefault(account.clock, []).extend(self._runs(account.id))
        return clocks

    def _entries(self, where: str, *values: object) -> list[Entry]:
        rows = self._db.execute(f"SELECT {_ENTRY} FROM intact_entries WHERE {where}", values)
        return [Entry._make((*row[:10], bool(row[10]), *row[11:])) for row in rows]

    def _one(self, query: str, *values: object) -> Any:
        return self._db.execute(query, values).fetchone()


def _no_allowance(key: Key) -> LedgerError:
    return LedgerError(f"{key}: has no allowance")


def no_release_before(time_us: int) -> str:
    """Say which windows a ledger refuses, and how that is changed."""
    return (
        f"no release before {instant_text(instant(time_us))}, as was said when copies were put back "
        "(fugu gateway ledger resume --after sets another time)"
    )


def _refusal(key: Key, first: int, last: int, reached: int, allowance: int, together: str = "") -> LedgerError:
    """The error of a release that would push ticks above their allowance, with all streams that move together."""
    who = f"{key}, with all of {together}, which move together" if together else f"{key}"
    return LedgerError(
        f"{who}: ticks {first}..{last} would reach {nats(reached):.12g} of {nats(allowance):.12g} allowed, "
        f"{nats(reached - allowance):.12g} too much"
    )
