"""The contents of a ledger: values, its tables, and its rows as they stand for an audit that believes none of them.

Equal documents have equal bytes, and their digest names them. Charges are per-tick losses as whole numbers of
pico-nats, always rounded to the safe side: sums are exact, so ten thousand windows that each charge exactly the
allowance all pass, and the one that overlaps another does not. Charges by tick are run-length encoded: disjoint
ascending runs, none empty, none of charge 0, no equal neighbours.

Streams that move together share their charges: given the states of a joint chain, what is told of its streams is
independent, so that charges of a tick add up over all of them, against the allowance of the joint class. Source:
docs/proofs/joint-streams.md, "Streams that move together".
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fugu.contract.errors import TopicError
from fugu.contract.leakage import Adversary
from fugu.contract.reports import Noise
from fugu.contract.stretches import stretch_ticks
from fugu.contract.topics import parse_topic
from fugu.contract.windows import ALONE, Mechanism
from fugu.host.database import LEDGER
from gateway.store.engine import Database, Kind, LedgerError, Rows

if TYPE_CHECKING:
    from fugu.privacy.chain_class import ReleaseClass  # the page, which reads entries, has no numerical library

__all__ = [
    "CHARGED_BEFORE",
    "KIND",
    "NO_PAST",
    "PER_NAT",
    "SITE",
    "Account",
    "Allowance",
    "ChargedTicks",
    "Drawn",
    "Entry",
    "Key",
    "LedgerRows",
    "Louder",
    "Past",
    "Promise",
    "Release",
    "State",
    "Stream",
    "beside",
    "canonical",
    "clipped",
    "digest",
    "inputs_digest",
    "last_above",
    "named_streams",
    "nats",
    "overlay",
    "peak",
    "peak_of_sum",
    "standing_problem",
    "together_name",
    "uncharged",
    "units_above",
    "units_below",
]


Stream = tuple[str, str]
"""A device and one of its streams."""


def named_streams(chains: ReleaseClass, device: str) -> frozenset[Stream]:
    """The streams that a class of a device's policy is of, if they are several; else none."""
    if len(chains.named_streams) < 2:
        return frozenset()
    parts = [shown.name.rpartition("/") for shown in chains.named_streams]
    return frozenset((owner or device, stream) for owner, _, stream in parts)


def together_name(members: Iterable[Stream]) -> str:
    """Name of streams that move together: their names, with the device once if it is one."""
    streams = sorted(members)
    if len({device for device, _ in streams}) == 1:
        return f"{streams[0][0]}/{'+'.join(stream for _, stream in streams)}"
    return "+".join(f"{device}/{stream}" for device, stream in streams)


PER_NAT = 10**12
_MOST_NATS = 10**6  # far above what any table can lose, and far within SQLite's 64-bit integers


def units_above(loss: float | Fraction) -> int:
    """A loss in nats as a charge: rounded up. Raises ValueError if the loss is negative, or not finite."""
    return math.ceil(_checked(loss) * PER_NAT)


def units_below(loss: float | Fraction) -> int:
    """A loss in nats as an allowance: rounded down. Raises ValueError if the loss is negative, or not finite."""
    return math.floor(_checked(loss) * PER_NAT)


def nats(units: int) -> float:
    """A charge in nats, for people and for messages."""
    return units / PER_NAT


def _checked(loss: float | Fraction) -> Fraction:
    if not (math.isfinite(loss) and 0 <= loss <= _MOST_NATS):
        raise ValueError(f"{float(loss):g} is no loss in nats: it must be in 0..{_MOST_NATS}")
    return Fraction(loss)


class ChargedTicks(NamedTuple):
    """Ticks first..last, each charged the same; charges are whole units."""

    first: int
    last: int
    charge: int


def overlay(runs: Iterable[ChargedTicks], first: int, last: int, charge: int) -> list[ChargedTicks]:
    """Add a charge above 0 to every tick first..last, both included; runs that do not touch them stay as they are."""
    result: list[ChargedTicks] = []
    reached = first  # ticks of first..last below it are done
    for run in runs:
        if run.last < first:
            _append(result, run)
            continue
        if run.first < first:
            _append(result, ChargedTicks(run.first, first - 1, run.charge))
        stop = min(run.first - 1, last)
        if reached <= stop:
            _append(result, ChargedTicks(reached, stop, charge))
        low, high = max(run.first, first), min(run.last, last)
        if low <= high:
            _append(result, ChargedTicks(low, high, run.charge + charge))
        reached = max(reached, high + 1, stop + 1)
        if run.last > last:
            _append(result, ChargedTicks(max(run.first, last + 1), run.last, run.charge))
    if reached <= last:
        _append(result, ChargedTicks(reached, last, charge))
    return result


def clipped(runs: Iterable[ChargedTicks], first: int, last: int) -> list[ChargedTicks]:
    """Part of the runs in first..last."""
    return [
        ChargedTicks(max(r.first, first), min(r.last, last), r.charge)
        for r in runs
        if r.first <= last and r.last >= first
    ]


def beside(runs: Iterable[ChargedTicks], first: int, last: int, ahead: int | None) -> list[ChargedTicks]:
    """Charge of another device, by its own `runs`, at the wall ticks of the ticks first..last of a device.

    Its numbers are ahead by `ahead`; `None` if unknown, after its clock was set: then its largest charge counts for
    all.
    """
    if ahead is None:
        most = peak(list(runs))
        return [ChargedTicks(first, last, most)] if most else []
    return [ChargedTicks(r.first + ahead, r.last + ahead, r.charge) for r in clipped(runs, first - ahead, last - ahead)]


def peak(runs: Sequence[ChargedTicks]) -> int:
    """The largest charge, 0 without runs."""
    return max((run.charge for run in runs), default=0)


def peak_of_sum(runs: Iterable[ChargedTicks]) -> int:
    """The largest sum of the charges of a tick, of runs that may overlap."""
    return max(accumulate((charge for _, charge in _changes(runs)), initial=0))


def last_above(runs: Iterable[ChargedTicks], limit: int) -> int:
    """The last tick whose charges add up to more than a limit, of runs that may overlap; -1 if there is none."""
    changes = _changes(runs)
    sums = accumulate(charge for _, charge in changes)
    ends = (tick for tick, _ in changes[1:])
    return max((end - 1 for end, charge in zip(ends, sums, strict=False) if charge > limit), default=-1)


def _changes(runs: Iterable[ChargedTicks]) -> list[tuple[int, int]]:
    return sorted(change for run in runs for change in ((run.first, run.charge), (run.last + 1, -run.charge)))


def _append(runs: list[ChargedTicks], run: ChargedTicks) -> None:
    if runs and runs[-1].last == run.first - 1 and runs[-1].charge == run.charge:
        runs[-1] = ChargedTicks(runs[-1].first, run.last, run.charge)
    else:
        runs.append(run)


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one way to write a document of plain values."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(document: bytes) -> str:
    """The SHA-256 of canonical bytes, as hexadecimal digits."""
    return hashlib.sha256(document).hexdigest()


def inputs_digest(question: bytes, first: int, inputs: bytes) -> str:
    """The digest of what was read for a question about the window that begins at a wall tick, all of it canonical."""
    return digest(canonical({"question": digest(question), "first": first, "inputs": digest(inputs)}))


SITE = "site"
"""The audience that sees the symbols anyway: a release to it is post-processing, and charges nothing."""
DEVICE_WINDOWS = ("device-windows", "mixed")
"""Noise of windows which devices released themselves: an account's base is their charge."""
CHARGED_BEFORE = "counted by devices: the base of their accounts holds it"
"""Why windows of devices charge nothing once more."""
State = Literal["reserved", "published", "abandoned"]


class Key(NamedTuple):
    """Whom a charge is for: what an audience may still learn about a stream of a device."""

    device: str
    stream: str
    audience: str

    def __str__(self) -> str:
        return f"{self.device}/{self.stream}, audience {self.audience}"


class Promise(NamedTuple):
    """Promise to an audience: any stretch of so many seconds loses at most epsilon; 0 seconds are a tick."""

    epsilon: float
    adversary: Adversary
    seconds: int = 0

    def ticks(self, period_us: int) -> int:
        """The most ticks of such a stretch."""
        return stretch_ticks(self.seconds, period_us) if self.seconds else 1

    def __str__(self) -> str:
        """As it is said in a sentence."""
        about = f" about any {self.seconds} seconds" if self.seconds else ""
        return f"{self.epsilon:.10g}{about} ({self.adversary})"


class Past(NamedTuple):
    """Facts of streams that policies do not say.

    Attributes:
        classes: classes with periods that were in force when a store may have been lost.
        lost: whether charges may be.
    """

    classes: tuple[tuple[ReleaseClass, int], ...] = ()
    lost: bool = False


NO_PAST = Past()


class Allowance(NamedTuple):
    """Largest total charge to every tick of an account, and `base`, the part that the device itself releases.

    Of the classes of chains the least allowance counts; `period_us` is the shortest from tick to tick of their
    policies.
    """

    key: Key
    allowance: int
    base: int
    promise: Promise
    period_us: int
    mechanism: Mechanism
    chains: tuple[ReleaseClass, ...]


class Louder(NamedTuple):
    """Ticks of a stream of which an audience was told more than it may be told now.

    Attributes:
        last: the last of them, as its device numbers it.
        excess: how much more that was at most; `None` if the ledger has lost what was charged.
    """

    last: int
    excess: int | None


class Account(NamedTuple):
    """The state of an account.

    Attributes:
        spent: the most that releases have charged to a tick; the base is not in it.
        first, last: ticks that have been charged, -1 if none has.
        runs: rows that the charges take.
        exclusive: number of the one release that this account may ever have, 0 if there is none such.
        together: the streams that move together, to whose ticks charges are added up; empty if it is one by itself.
        spent_together: the most that releases about all of these have charged to a tick.
    """

    key: Key
    allowance: int
    base: int
    spent: int
    first: int
    last: int
    runs: int
    exclusive: int
    mechanism: Mechanism
    together: str = ""
    spent_together: int = 0

    @property
    def remaining(self) -> int:
        """The charge that is left for the tick that has been charged most."""
        return 0 if self.exclusive else max(self.allowance - self.base - self.spent_together, 0)


@dataclass(frozen=True, slots=True)
class Release:
    """A release that asks to be made; `name` and `first` say which window of which schedule this is.

    Attributes:
        first, last: wall ticks.
        since_us: when the first of them is, in microseconds of Unix time.
        charges: for each device, what every one of these ticks is charged.
        shifts: by how much a device's tick numbers, which are charged, are ahead of the wall ticks; 0 if not given.
        noise, scale: who adds it, and how much.
        reason: why there is no charge, if there is none.
        basis: of a mechanism that does not compose, what its scale follows from, as JSON.
    """

    name: str
    audience: str
    stream: str
    first: int
    last: int
    charges: Mapping[str, int]
    mechanism: Mechanism
    noise: Noise
    scale: str
    topic: str
    reason: str = ""
    basis: str = ""
    shifts: Mapping[str, int] = field(default_factory=dict)
    since_us: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise LedgerError(f"release {self.name}: ticks {self.first}..{self.last} are none")
        if min(self.shifts.values(), default=0) < 0:
            raise LedgerError(f"release {self.name}: tick numbers are never behind the wall clock")
        if not self.charges or min(self.charges.values()) < 0:
            raise LedgerError(f"release {self.name}: every device needs a charge of at least 0, and there must be one")
        if min(self.charges.values()) == 0 and (not self.reason or self.exclusive):
            raise LedgerError(f"release {self.name}: a charge of 0 needs a reason")
        if problem := uncharged(self.audience, self.topic, self.charges.values(), self.noise):
            raise LedgerError(f"release {self.name}: {problem}")

    @property
    def exclusive(self) -> bool:
        """True if the mechanism does not compose: no other release of these streams to this audience, ever."""
        return self.mechanism in ALONE


class Drawn(NamedTuple):
    """A release with its noise: the bytes to publish; question and inputs as `gateway.releases.inputs` writes them."""

    payload: bytes
    question: bytes
    inputs: bytes
    tables: tuple[bytes, ...] = ()


class Entry(NamedTuple):
    """A release that was reserved: its charge stands, whatever became of it."""

    number: int
    name: str
    audience: str
    stream: str
    time_us: int
    mechanism: Mechanism
    noise: Noise
    scale: str
    first: int
    last: int
    exclusive: bool
    basis: str
    reason: str
    state: State
    topic: str
    payload: bytes


def uncharged(audience: str, topic: str, charges: Iterable[int], noise: str) -> str:
    """Why a release would tell somebody something that is not charged to them; empty if it would not.

    Only the site is told things for nothing, and what devices released themselves, with which an account begins; and
    whom a release is charged to is whom its topic lets read it.
    """
    try:
        readers = parse_topic(topic).audience
    except TopicError as error:
        return str(error)
    if readers != audience:
        return f"is charged to audience {audience}, and its topic is that of {readers or 'a device'}"
    if audience != SITE and noise not in DEVICE_WINDOWS and min(charges, default=0) == 0:
        return f"charges nothing, and audience {audience} does not see the symbols"
    return ""


def standing_problem(key: Key, allowance: int, base: int) -> str:
    """Why nothing can be released of a stream to an audience, and what to change; empty if something can."""
    if base <= allowance:
        return ""
    return (
        f"{key}: nothing can be released, because windows of a policy that the device ran, or may run, take "
        f"{nats(base):.3g} nats of the {nats(allowance):.3g} that the audience is allowed: ask for a new audience with "
        "a larger epsilon, or plan windows with more noise before any device has that policy"
    )


_SCHEMA = """
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY, device TEXT NOT NULL, stream TEXT NOT NULL, audience TEXT NOT NULL,
    allowance INTEGER NOT NULL, base INTEGER NOT NULL, mechanism TEXT NOT NULL, exclusive INTEGER NOT NULL DEFAULT 0,
    shifted INTEGER NOT NULL DEFAULT 0, UNIQUE (device, stream, audience));
CREATE TABLE allowances (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL, allowance INTEGER NOT NULL,
    base INTEGER NOT NULL, epsilon REAL NOT NULL, adversary TEXT NOT NULL, seconds INTEGER NOT NULL,
    period_us INTEGER NOT NULL, mechanism TEXT NOT NULL, class INTEGER NOT NULL,
    after_entry INTEGER NOT NULL, time_us INTEGER NOT NULL);
CREATE TABLE classes (id INTEGER PRIMARY KEY, chains TEXT NOT NULL UNIQUE);
CREATE TABLE together (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, stream TEXT NOT NULL, name TEXT NOT NULL,
    after_entry INTEGER NOT NULL, time_us INTEGER NOT NULL);
CREATE TABLE runs (
    account INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, charge INTEGER NOT NULL,
    PRIMARY KEY (account, first)) WITHOUT ROWID;
CREATE TABLE groups (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);
CREATE TABLE members (
    in_group INTEGER NOT NULL, device TEXT NOT NULL, charge INTEGER NOT NULL, shift INTEGER NOT NULL,
    PRIMARY KEY (in_group, device)) WITHOUT ROWID;
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, audience TEXT NOT NULL, stream TEXT NOT NULL,
    time_us INTEGER NOT NULL, mechanism TEXT NOT NULL, noise TEXT NOT NULL, scale TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, exclusive INTEGER NOT NULL, basis TEXT NOT NULL,
    reason TEXT NOT NULL, state TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL, in_group INTEGER NOT NULL,
    question INTEGER NOT NULL, inputs TEXT NOT NULL, inputs_digest TEXT NOT NULL);
CREATE TABLE documents (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, document TEXT NOT NULL);
CREATE INDEX waiting ON entries (number) WHERE state = 'reserved';
CREATE INDEX windows ON entries (name, first);
CREATE INDEX audiences ON entries (audience, number);
CREATE INDEX topics ON entries (topic, number, state);
CREATE TABLE forgotten (
    device TEXT PRIMARY KEY, through INTEGER NOT NULL, time_us INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE progress (name TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE binding (identity TEXT NOT NULL, store TEXT NOT NULL, not_before_us INTEGER NOT NULL);
INSERT INTO binding VALUES (lower(hex(randomblob(16))), '', 0);
CREATE TABLE beginnings (
    device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, uncharged INTEGER NOT NULL,
    PRIMARY KEY (device, stream)) WITHOUT ROWID;
CREATE TABLE outlived (
    device TEXT NOT NULL, stream TEXT NOT NULL, class INTEGER NOT NULL, period_us INTEGER NOT NULL,
    after_entry INTEGER NOT NULL, PRIMARY KEY (device, stream, class, period_us)) WITHOUT ROWID;
"""
KIND = Kind(LEDGER, _SCHEMA, LedgerError, wait_seconds=10.0)
_ENTRY = (*Entry._fields, "in_group", "question", "inputs", "inputs_digest")
_SHOWN = "number, name, audience, stream, time_us, mechanism, noise, scale, first, last, reason, state, in_group"
_PAGE = 500


class LedgerRows:
    """The rows of one state of a ledger, table by table."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def accounts(self) -> Rows:
        """Number, device, stream, audience, allowance, base, mechanism, exclusive entry, shifted, of each account."""
        columns = "id, device, stream, audience, allowance, base, mechanism, exclusive, shifted"
        return self._db.execute(f"SELECT {columns} FROM intact_accounts")

    def allowances(self) -> Rows:
        """After which entry, account, allowance, base, mechanism, promise, period, chains; oldest first."""
        columns = "after_entry, account, allowance, base, mechanism, epsilon, adversary, seconds, period_us, chains"
        return self._db.execute(
            f"SELECT {columns} FROM intact_allowances LEFT JOIN classes ON classes.id=class ORDER BY serial"
        )

    def outlived(self) -> Rows:
        """Device, stream, chains, period, and after which entry they count for whatever is told of the stream."""
        columns = "device, stream, chains, period_us, after_entry"
        return self._db.execute(f"SELECT {columns} FROM intact_outlived LEFT JOIN classes ON classes.id=class")

    def together(self) -> Rows:
        """After which entry, device, stream, and what it is called with those that it is charged with; oldest first."""
        return self._db.execute("SELECT after_entry, device, stream, name FROM intact_together ORDER BY serial")

    def members(self) -> Rows:
        """Group, device, charge and shift of each member of a group."""
        return self._db.execute("SELECT in_group, device, charge, shift FROM intact_members")

    def entries(self) -> Iterator[dict[str, Any]]:
        """The entries, oldest first, as mappings from their columns."""
        query = f"SELECT {', '.join(_ENTRY)} FROM intact_entries WHERE number>? ORDER BY number LIMIT ?"
        after = -1
        while page := self._db.execute(query, (after, _PAGE)).fetchall():
            after = page[-1][0]
            yield from (dict(zip(_ENTRY, row, strict=True)) for row in page)

    def newest(self, audience: str | None, before: int, limit: int) -> list[tuple[Any, ...]]:
        """The entries below a number, newest first, of an audience or of all, as an account shows them: without inputs.

        Number, name, audience, stream, time, mechanism, noise, scale, first and last tick, reason, state, group of
        each.
        """
        whose, values = ("", ()) if audience is None else ("audience=? AND ", (audience,))
        query = f"SELECT {_SHOWN} FROM intact_entries WHERE {whose}number<? ORDER BY number DESC LIMIT ?"
        return self._db.execute(query, (*values, before, limit)).fetchall()

    def group(self, number: int) -> tuple[int, str, int]:
        """Of a group how many devices it has, the first of their names, and the greatest charge."""
        query = "SELECT count(*), coalesce(min(device), ''), coalesce(max(charge), 0) FROM members WHERE in_group=?"
        devices, name, charge = self._db.execute(query, (number,)).fetchone()
        return int(devices), str(name), int(charge)

    def audiences(self) -> list[str]:
        """Those that have an account."""
        return [row[0] for row in self._db.execute("SELECT DISTINCT audience FROM accounts ORDER BY 1")]

    def entry_count(self) -> int:
        """The number of entries."""
        return int(self._db.execute("SELECT count(*) FROM entries").fetchone()[0])

    def payload(self, number: int) -> bytes | None:
        """The content of an entry; `None` if there is no such entry."""
        row = self._db.execute("SELECT payload FROM intact_entries WHERE number=?", (number,)).fetchone()
        return None if row is None else row[0]

    def forgotten(self) -> Rows:
        """By device, the last entry whose sums were erased with it, if it is one of that entry's."""
        return self._db.execute("SELECT device, through FROM intact_forgotten")

    def documents(self) -> Rows:
        """Number, digest and text of each question and noise table."""
        return self._db.execute("SELECT id, digest, document FROM intact_documents")

    def runs(self) -> Rows:
        """Account, first and last tick and charge of each run, by account and tick."""
        return self._db.execute("SELECT account, first, last, charge FROM intact_runs ORDER BY account, first")
