"""The ledger: what every audience has been told about every tick, and the refusal to tell more than is allowed.

A release is one transaction, written through to the disk BEFORE it is published: its charges on all devices, its entry,
and the bytes to publish; or nothing, if one tick of one device would exceed its allowance. So a crash never
under-counts: what was reserved stays charged, and is published from the stored bytes or abandoned, never drawn again.

An account is a device's stream and an audience. Charges of releases add up tick by tick, on top of the account's base;
so do those to streams that move together. A release is about wall ticks; each device is charged at its own tick
numbers, which are ahead of them once its clock was set. From then on nobody knows which of them fall together with
ticks of another device that moves with it, and its largest charge counts for them all.
Source: docs/proofs/releases-over-symbols.md and docs/proofs/audiences.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import instant, instant_text, unix_us
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
from gateway.store.engine import Lease, LedgerError
from gateway.store.location import Location
from gateway.store.opening import open_engine

__all__ = ["Ledger", "no_release_before"]


_ENTRY = ", ".join(Entry._fields)


class Ledger:
    """An open ledger; one thread uses it at a time, several processes may have it open.

    Args:
        lease: that this process alone makes releases, and who takes that from it; `None` if others may.
        read_only: nothing is written, and no gateway ever waits for this process; the ledger must be there.

    Raises LedgerError if it cannot be opened, is no ledger, is of a later version, or another process holds it.
    """

    def __init__(
        self, location: Location, *, create: bool = True, lease: Lease | None = None, read_only: bool = False
    ) -> None:
        self._db = open_engine(location, KIND, create=create, lease=lease, read_only=read_only)

    def close(self) -> None:
        """Close it."""
        self._db.close()

    def refuse_damage(self, name: str) -> None:
        """Read the whole file (`name` in messages). Raises LedgerError, one line, if its pages do not fit together."""
        if problem := self._db.damage():
            raise LedgerError(f"the ledger {name} is damaged ({problem}): {LEDGER.remedy}")

    def transaction(self) -> AbstractContextManager[None]:
        """All of it becomes durable, or nothing does."""
        return self._db.transaction()

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
            entry, promises = self._one("SELECT COALESCE(MAX(number), 0) FROM entries")[0], set[tuple[str, Promise]]()
            for one in allowances:
                if (promise := (one.key.audience, one.promise)) not in promises:
                    self._keep_promise(*promise)
                    promises.add(promise)
                row = self._one(
                    "SELECT accounts.id, accounts.allowance, accounts.base, epsilon, adversary, seconds, period_us, "
                    "accounts.mechanism, class FROM accounts JOIN allowances ON account=accounts.id "
                    "WHERE (device, stream, audience)=(?, ?, ?) ORDER BY serial DESC LIMIT 1",
                    *one.key,
                )
                allowed = min(one.allowance, self._least_told(one.key, row[1] if row else 0, one.allowance))
                told = (allowed, one.base, *one.promise, one.period_us, one.mechanism, self._class(one))
                if row and row[1:] == told:
                    continue
                if row and row[7] != one.mechanism:
                    raise LedgerError(
                        f"{one.key}: its releases are charged by mechanism {row[7]} and cannot be by {one.mechanism} "
                        "now: give the new audience another name"
                    )
                if row:
                    account = row[0]
                    values = (allowed, one.base, account)
                    self._db.execute("UPDATE accounts SET allowance=?, base=? WHERE id=?", values)
                else:
                    columns = "device, stream, audience, allowance, base, mechanism"
                    query = f"INSERT INTO accounts ({columns}) VALUES (?, ?, ?, ?, ?, ?) RETURNING id"
                    (account,) = self._one(query, *one.key, allowed, one.base, one.mechanism)
                self._db.execute(
                    "INSERT INTO allowances (account, allowance, base, epsilon, adversary, seconds, period_us, "
                    "mechanism, class, after_entry, time_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (account, *told, entry, time_us),
                )

    def _least_told(self, key: Key, before: int, wanted: int) -> int:
        """The least allowance of streams that move together under which an audience was told of any; else `wanted`.

        It is looked up only where the allowance is to get larger than `before`, which is 0 without an account.
        """
        members = self._together(key.device, key.stream)[1]
        if wanted <= before or (not before and len(members) == 1):
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
            for group in groups:
                wanted = frozenset(group)
                members = wanted.union(*(self._together(*stream)[1] for stream in wanted))
                name = together_name(members)
                new = [stream for stream in sorted(members) if self._together(*stream)[0] != name]
                self._db.executemany(
                    "INSERT INTO together (device, stream, name, after_entry, time_us) VALUES (?, ?, ?, ?, ?)",
                    [(*stream, name, self.newest, time_us) for stream in new],
                )

    def _together(self, device: str, stream: str) -> tuple[str, frozenset[Stream]]:
        """The name of the streams that share a stream's charges, empty if it is alone; and these streams."""
        query = "SELECT name FROM intact_together WHERE (device, stream)=(?, ?) ORDER BY serial DESC LIMIT 1"
        if (row := self._one(query, device, stream)) is None:
            return "", frozenset([(device, stream)])
        rows = self._db.execute("SELECT DISTINCT device, stream FROM intact_together WHERE name=?", row)
        return str(row[0]), frozenset(map(tuple, rows))

    def _members(self, streams: Iterable[Stream]) -> list[Stream]:
        """Some streams, and all that share the charges of one of them."""
        return sorted(frozenset[Stream]().union(*(self._together(*stream)[1] for stream in streams)))

    def _class(self, one: Allowance) -> int:
        chains = json.dumps([each.model_dump(mode="json") for each in one.chains])
        self._db.execute("INSERT INTO classes (chains) VALUES (?) ON CONFLICT (chains) DO NOTHING", (chains,))
        return int(self._one("SELECT id FROM classes WHERE chains=?", chains)[0])

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
            draw: makes what to publish from the entry's number; called only once nothing stands against the release any
                more, so that no noise is drawn for a refused one.
            progress: if given, this is a window of the schedule `release.name`, which goes on with the one that begins
                there; no window of a schedule is ever released twice, wherever it is set to go on.

        Raises LedgerError if a tick would exceed its allowance, there is no allowance, or the window was released
        before: nothing is charged. After a DatabaseError nothing is charged, or, if a server went away at the very end,
        all of it may be, and is waiting to be published.
        """
        with self.transaction():
            if progress is not None:
                self._refuse_again(release)
            self._refuse_early(release)
            for device, charge in release.charges.items():
                self._refuse_before(release, device)
                if charge or release.audience != SITE:
                    self._charge(Key(device, release.stream, release.audience), release, charge)
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
                    *(release.basis, release.reason, release.topic, drawn.payload, self._group(release)),
                    *(self._document(drawn.question), drawn.inputs.decode()),
                    inputs_digest(drawn.question, release.first, drawn.inputs),
                ),
            )
            if release.exclusive:
                query = "UPDATE accounts SET exclusive=? WHERE (device, stream, audience)=(?, ?, ?)"
                keys = [(number, device, release.stream, release.audience) for device in release.charges]
                self._db.executemany(query, keys)
            if progress is not None:
                self._set_progress(release.name, progress)
            return self._entries("number=?", number)[0]

    def _refuse_again(self, release: Release) -> None:
        if entry := self.released_as(release.name, release.first):
            raise LedgerError(
                f"release {release.name}: ticks {release.first}..{release.last} are refused, because entry {entry} "
                "has released the window that begins there"
            )

    def released_as(self, name: str, first: int) -> int:
        """The entry that has released the window of a schedule that begins at a tick; 0 if none has."""
        row = self._one("SELECT number FROM entries WHERE name=? AND first=? LIMIT 1", name, first)
        return int(row[0]) if row else 0

    def _refuse_early(self, release: Release) -> None:
        """Refuse a window that begins before the time that an operator has set."""
        if release.since_us < (limit := self.not_before_us):
            raise LedgerError(
                f"release {release.name}: ticks {release.first}..{release.last} are refused, because they begin at "
                f"{instant_text(instant(release.since_us))}: {no_release_before(limit)}"
            )

    def _refuse_before(self, release: Release, device: str) -> None:
        """Refuse ticks of a device, or of those that move with it, from before a ledger that was lost."""
        for member in self._together(device, release.stream)[1]:
            begins, _ = self._beginning(member)
            first = release.first + (release.shifts.get(device, 0) if member[0] == device else 0)
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

    def _charge(self, key: Key, release: Release, charge: int) -> None:
        account, allowance, base, exclusive, mechanism, _, _ = self._account(key)
        shift = release.shifts.get(key.device, 0)
        first, last = release.first + shift, release.last + shift
        together, others = self._beside(key)
        exclusive = next(filter(None, (exclusive, *(one[3] for one in others))), 0)
        if release.mechanism != mechanism:
            raise LedgerError(
                f"{key}: ticks {first}..{last} are refused, because mechanism {release.mechanism} keeps no promise "
                f"whose releases are charged by {mechanism}"
            )
        if exclusive:
            raise LedgerError(
                f"{key}: ticks {first}..{last} are refused, because entry {exclusive} does not compose with any other "
                f"release of {together or 'this stream'}"
            )
        ids = (account, *(one[0] for one in others))
        if release.exclusive and (base or any(self._one("SELECT 1 FROM runs WHERE account=?", one) for one in ids)):
            raise LedgerError(
                f"{key}: ticks {first}..{last} are refused, because mechanism {release.mechanism} does not compose and "
                f"something was charged to {together or 'this stream'} before"
            )
        # A charge of nothing is for what the device has released itself, which the base holds, once for all releases.
        if not (charge or base):
            raise LedgerError(f"{key}: ticks {first}..{last} are refused, because its device releases no windows")
        before = self._near(account, first, last)
        after = overlay(before, first, last, charge) if charge else before
        told = (
            clipped(after, first, last) if charge else [ChargedTicks(first, last, peak(clipped(before, first, last)))]
        )
        for other, *_, shifted, device in others:
            for run in self._runs_beside(other, first, last, None if shifted else shift, same=device == key.device):
                told = overlay(told, *run)
        above = [run for run in told if run.charge + base > allowance]
        if above:
            raise _refusal(key, above[0].first, above[-1].last, peak(above) + base, allowance, together)
        gone, new = set(before) - set(after), set(after) - set(before)
        self._db.executemany("DELETE FROM runs WHERE account=? AND first=?", [(account, run.first) for run in gone])
        self._db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", [(account, *run) for run in new])
        if charge and shift:
            self._db.execute("UPDATE accounts SET shifted=1 WHERE id=?", (account,))

    def _beside(self, key: Key) -> tuple[str, list[Any]]:
        """The name of the streams that share a stream's charges, and the audience's other accounts of them."""
        name, members = self._together(key.device, key.stream)
        others = sorted(members - {(key.device, key.stream)})
        found = [self._find(Key(*stream, key.audience)) for stream in others]
        return name, [row for row in found if row is not None]

    def _runs_beside(self, account: int, first: int, last: int, ahead: int | None, *, same: bool) -> list[ChargedTicks]:
        """The charges of another account at ticks of one that moves with it; one device has one clock for both."""
        if same:
            return clipped(self._near(account, first, last), first, last)
        runs = self._runs(account) if ahead is None else self._near(account, first - ahead, last - ahead)
        return beside(runs, first, last, ahead)

    def _runs(self, account: int) -> list[ChargedTicks]:
        query = "SELECT first, last, charge FROM intact_runs WHERE account=?"
        return [ChargedTicks._make(row) for row in self._db.execute(query, (account,))]

    def _near(self, account: int, first: int, last: int) -> list[ChargedTicks]:
        """The runs that overlap or touch the ticks; at most one of them begins before the first."""
        rows = self._db.execute(
            "SELECT first, last, charge FROM intact_runs WHERE account=? AND first<=? AND first>=COALESCE("
            "(SELECT MAX(first) FROM runs WHERE account=? AND first<?), 0) ORDER BY first",
            (account, last + 1, account, first),
        )
        return [run for run in map(ChargedTicks._make, rows) if run.last >= first - 1]

    def _group(self, release: Release) -> int:
        members = sorted((device, charge, release.shifts.get(device, 0)) for device, charge in release.charges.items())
        name = digest(json.dumps(members).encode())
        row = self._one("SELECT id FROM groups WHERE digest=?", name)
        if row:
            return int(row[0])
        (group,) = self._one("INSERT INTO groups (digest) VALUES (?) RETURNING id", name)
        self._db.executemany("INSERT INTO members VALUES (?, ?, ?, ?)", [(group, *member) for member in members])
        return int(group)

    def _document(self, document: bytes) -> int:
        name = digest(document)
        if row := self._one("SELECT id FROM documents WHERE digest=?", name):
            return int(row[0])
        query = "INSERT INTO documents (digest, document) VALUES (?, ?) RETURNING id"
        return int(self._one(query, name, document.decode())[0])

    @property
    def identity(self) -> str:
        """Random; a ledger that begins anew has another one."""
        return str(self._one("SELECT identity FROM intact_binding")[0])

    @property
    def store(self) -> str:
        """The identity of the store that it charges releases of, empty before there is one."""
        return str(self._one("SELECT store FROM intact_binding")[0])

    @property
    def newest(self) -> int:
        """The number of the newest entry, 0 if there is none."""
        return int(self._one("SELECT COALESCE(MAX(number), 0) FROM entries")[0])

    @property
    def not_before_us(self) -> int:
        """Refuse windows that begin before this Unix time in microseconds; 0 unless an operator has set it."""
        return int(self._one("SELECT not_before_us FROM intact_binding")[0])

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

        `complete`: it has all charges of the ticks before. `not_before_us` replaces the property of that name, unless
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
        return max(self._beginning(member)[0] for member in self._members((device, stream) for device in devices))

    def past(self, streams: Iterable[Stream]) -> tuple[list[tuple[str, int]], bool]:
        """Facts of streams, and of those that move with them, from before `begin`, which no policy may tell.

        Their classes of chains, as JSON with periods, and if they may have been charged without a trace of it here.
        """
        query = "SELECT chains, period_us FROM intact_outlived JOIN classes ON class=id WHERE (device, stream)=(?, ?) "
        query += "ORDER BY class, period_us"
        members = self._members(streams)
        classes = [(row[0], row[1]) for member in members for row in self._db.execute(query, member)]
        return classes, bool(self.not_before_us) or any(self._beginning(member)[1] for member in members)

    def classes(self, key: Key) -> str:
        """The classes of chains, as JSON, that an account's newest allowance is for."""
        query = (
            "SELECT chains FROM intact_allowances JOIN classes ON class=id WHERE account=? ORDER BY serial DESC LIMIT 1"
        )
        return str(self._one(query, self._account(key)[0])[0])

    def louder(self, key: Key, ahead: int) -> list[Louder]:
        """Find ticks of a stream, and of those that move with it, of which more was told than may be told now.

        `ahead`: by how much its device's numbers are ahead of wall ticks. Where clocks were set, the largest charges of
        devices count together.
        """
        found = []
        members = self._together(key.device, key.stream)[1]
        lost = [(self._beginning(member)[1], member[0] != key.device) for member in members]
        if last := max(tick + (ahead if other else 0) for tick, other in lost if tick or not other):
            found.append(Louder(last - 1, None))
        own = self._account(key)
        every = (own, *self._beside(key)[1])
        query = "SELECT MAX(allowance), MAX(base) FROM intact_allowances WHERE account=?"
        most, base = map(max, zip(*(self._one(query, row[0]) for row in every), strict=True))
        clocks = self._by_clock(every)
        above = sum(peak_of_sum(runs) for runs in clocks.values()) + base - own[1]
        if above > 0 and most > own[1]:
            others = (row for row in every if row[6] != key.device and self._runs(row[0]))
            moved = {device if shifted else "" for *_, shifted, device in others}
            lasts = (
                last_above(runs, peak_of_sum(runs) - above) + (ahead if clock in moved else 0)
                for clock, runs in clocks.items()
            )
            found.append(Louder(max(lasts), min(above, most - own[1])))
        return found

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
                raise LedgerError(f"{Key(device, stream, audience)}: has no allowance")
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
            found = self._db.execute(
                "UPDATE entries SET inputs='', inputs_digest='' WHERE inputs<>'' AND in_group IN "
                "(SELECT in_group FROM members WHERE device=?)",
                (device,),
            ).rowcount
            query = "INSERT INTO forgotten VALUES (?, ?, ?) ON CONFLICT (device) DO UPDATE SET "
            query += "through=excluded.through, time_us=excluded.time_us"
            self._db.execute(query, (device, self.newest, time_us))
        self._db.rewrite()
        return found

    def mark(self, number: int, state: State) -> None:
        """Record what became of a reserved release; its charge stays, whatever it is."""
        with self.transaction():
            self._db.execute("UPDATE entries SET state=? WHERE number=? AND state='reserved'", (state, number))

    def pending(self, after: int = 0, limit: int = 100) -> list[Entry]:
        """Reserved releases that are not known to be published, oldest first."""
        return self._entries("state='reserved' AND number>? ORDER BY number LIMIT ?", after, limit)

    def newest_published(self, through: int) -> list[int]:
        """Numbers of the newest entry of each topic that was published, or reserved and is not above a number."""
        query = "SELECT MAX(number) FROM entries WHERE state='published' OR state='reserved' AND number<=? "
        return [row[0] for row in self._db.execute(query + "GROUP BY topic ORDER BY 1", (through,))]

    def entry(self, number: int) -> Entry | None:
        """An entry, by its number."""
        return next(iter(self._entries("number=?", number)), None)

    def entries(self, after: int = 0, limit: int = 2**62) -> list[Entry]:
        """All entries above a number, oldest first."""
        return self._entries("number>? ORDER BY number LIMIT ?", after, limit)

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
        with self.transaction():
            self._set_progress(name, following)

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
        number = self._account(key)[0]
        return self._accounts("WHERE id=?", number)[0]

    def spent(self, key: Key, first: int, last: int) -> list[ChargedTicks]:
        """The charges of releases for ticks first..last; ticks between runs have 0. LedgerError if no account."""
        return clipped(self._near(self._account(key)[0], first, last), first, last)

    def _account(self, key: Key) -> Any:
        if (row := self._find(key)) is None:
            raise LedgerError(f"{key}: has no allowance")
        return row

    def _find(self, key: Key) -> Any:
        columns = "id, allowance, base, exclusive, mechanism, shifted, device"
        return self._one(f"SELECT {columns} FROM intact_accounts WHERE (device, stream, audience)=(?, ?, ?)", *key)

    def _accounts(self, where: str, *values: object) -> list[Account]:
        rows = self._db.execute(
            "SELECT device, stream, audience, allowance, base, COALESCE(MAX(charge), 0), COALESCE(MIN(first), -1), "
            "COALESCE(MAX(last), -1), COUNT(charge), exclusive, mechanism "
            f"FROM intact_accounts LEFT JOIN runs ON account=id {where} GROUP BY id ORDER BY 1, 2, 3",
            values,
        )
        return [self._spent_together(Account(Key(*row[:3]), *row[3:])) for row in rows.fetchall()]

    def _spent_together(self, account: Account) -> Account:
        """An account with what all streams have been told that move with its own."""
        name, others = self._beside(account.key)
        if not others:
            return account._replace(together=name, spent_together=account.spent)
        clocks = self._by_clock((self._account(account.key), *others))
        return account._replace(together=name, spent_together=sum(map(peak_of_sum, clocks.values())))

    def _by_clock(self, accounts: Iterable[Any]) -> dict[str, list[ChargedTicks]]:
        """The charges of accounts by device where its clock was set; those of all others together."""
        clocks: dict[str, list[ChargedTicks]] = {}
        for one, *_, shifted, device in accounts:
            clocks.setdefault(device if shifted else "", []).extend(self._runs(one))
        return clocks

    def _set_progress(self, name: str, following: int) -> None:
        query = "INSERT INTO progress VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET next=excluded.next"
        self._db.execute(query, (name, following))

    def _entries(self, where: str, *values: object) -> list[Entry]:
        rows = self._db.execute(f"SELECT {_ENTRY} FROM intact_entries WHERE {where}", values)
        return [Entry._make((*row[:10], bool(row[10]), *row[11:])) for row in rows]

    def _one(self, query: str, *values: object) -> Any:
        return self._db.execute(query, values).fetchone()


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
