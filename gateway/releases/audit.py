"""The audit of a ledger: everything is computed once more from its entries, and compared with what it says.

Entries and changes of allowances are replayed in their order. So each release is held against the allowance that was in
force when it was made. Allowances are computed again by the rule of the account's mechanism, releases from their sums
and noise: the symbols may be gone.

So these are found: a wrong answer to the question, or to the sums and noise; noise of another scale; a charge that is
not the noise's. Noise that was not drawn is found, too. What is changed in sums, noise and digests alike, so that all
of it fits, is not found.

A person who can write to a ledger can change the classes of its allowances and the tables of its sums together.
Everything then still adds up. The auditor's own policies say both independently. The tables of an entry say which
policies made it. Where several policies share a table, each of them may have made it, and the worst of their classes
counts.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from operator import attrgetter
from typing import Any, NamedTuple

from fugu.contract.chains import ChainClass
from fugu.contract.errors import FrameError, FuguError, cause
from fugu.contract.losses import float_up
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import unix_us
from fugu.contract.windows import ALONE
from fugu.privacy.chain_class import ListedChains, ReleaseClass
from gateway.releases.allowance import (
    SAME,
    WholeWindow,
    allowance_problem,
    charge,
    classes_written,
    counted_symbols,
    noise_problem,
    noise_problems,
    streams_charged,
    with_classes,
)
from gateway.releases.charges import ChargedTicks, beside, clipped, first_peak, nats, overlay, peak_of_sum, units_above
from gateway.releases.entries import (
    SITE,
    Key,
    Promise,
    Stream,
    digest,
    inputs_digest,
    named_streams,
    together_name,
    uncharged,
)
from gateway.releases.inputs import Noisy, Question, canonical_table, table_of
from gateway.releases.ledger import Ledger
from gateway.releases.statistics import sensitivity
from gateway.releases.tables import LedgerRows

__all__ = ["Disclosure", "TrustedPolicies", "verify"]


class TrustedPolicies:
    """Every version of policies that was in force, whatever a ledger says. Measured streams have no charges."""

    def __init__(self, policies: Iterable[AnyPolicy] = ()) -> None:
        self._policies: dict[Stream, list[Policy]] = defaultdict(list)
        for policy in policies:
            if isinstance(policy, Policy):
                self._policies[policy.device, policy.stream].append(policy)

    def __bool__(self) -> bool:
        return bool(self._policies)

    def of(self, stream: Stream) -> list[Policy]:
        """The policies of a stream."""
        return self._policies.get(stream, [])

    def makers(self, stream: Stream, inputs: str, charge: int) -> list[Policy]:
        """List the policies that may have made what an entry counts of a stream; empty if none can have.

        All may where `inputs` names no table (erased, or windows only); charge 0 means that its own windows are
        counted.
        """
        tables = _tables_named(inputs)
        if not charge or not tables:
            return [policy for policy in self.of(stream) if charge or policy.counted]
        return [
            policy
            for policy in self.of(stream)
            if policy.table is not None and digest(canonical_table(policy.table)) in tables
        ]

    def has(self, stream: Stream, table: NoiseTable) -> bool:
        """Tell whether a policy of a stream has a table."""
        return any(policy.table == table for policy in self.of(stream))

    def classes(self, streams: Iterable[Stream]) -> set[ChainClass]:
        """All classes of streams, and of those that their own policies name as moving with them."""
        todo, seen = list(streams), set[Stream]()
        while todo:
            if (stream := todo.pop()) not in seen:
                seen.add(stream)
                todo += [named for policy in self.of(stream) for named in named_streams(policy.chains, stream[0])]
        return {policy.chains for stream in seen for policy in self.of(stream)}

    def base_problem(self, stream: Stream, makers: Iterable[Policy], base: int) -> str:
        """Why a standing charge is below that of the windows of these policies, and of streams that move with them."""
        least = min((self._windows(stream, policy) for policy in makers), default=0)
        if base < least:
            return f"its devices release themselves {nats(least):.12g} of every tick, and {nats(base):.12g} is charged"
        return ""

    def _windows(self, stream: Stream, policy: Policy) -> int:
        """The least that windows charge to every tick if this policy is in force."""
        others = named_streams(policy.chains, stream[0]) - {stream}
        beside = sum(min((units_above(policy.window_rate) for policy in self.of(other)), default=0) for other in others)
        return units_above(policy.window_rate) + beside


def _tables_named(inputs: str) -> set[str]:
    try:
        document: Mapping[str, Any] = json.loads(inputs)
        return {str(part[0]) for name in ("symbols", "beside") for part in document.get(name, ())}
    except (ValueError, LookupError, TypeError, AttributeError):
        return set()


_UNREADABLE = (ArithmeticError, AssertionError, FuguError, LookupError, TypeError, ValueError)
_OF_WIDTH = 1e-6
"""Of an interval: another machine's floating point; a sum that is off by one is far more."""


class _Asked(NamedTuple):
    text: bytes
    question: Question


def content_problems(rows: LedgerRows, policies: TrustedPolicies) -> list[str]:
    """Contradictions between publications and their sums, a line each; without policies by the ledger alone."""
    questions, tables, problems = _documents(rows)
    members: dict[int, dict[str, int]] = defaultdict(dict)
    for group, device, charged, _ in rows.members():
        members[group][device] = charged
    promised = _promises(rows)
    problems += [
        f"audience {name}: was promised different things" for name, terms in promised.items() if len(terms) > 1
    ]
    forgotten = dict(map(tuple, rows.forgotten()))
    drawn: dict[Fraction, tuple[int, int]] = {}
    for entry in rows.entries():
        charges = members[entry["in_group"]]
        frame, wording = _frame(entry, charges)
        if frame is not None:
            asked = questions.get(entry["question"])
            erased = any(entry["number"] <= forgotten.get(device, 0) for device in charges)
            if entry["audience"] != SITE and not any(_states(frame, limit) for limit in promised[entry["audience"]]):
                wording = "its release states another promise than its audience has"
            elif asked is None:
                wording = "its question is missing"
            elif problem := _question_problem(frame, charges, asked.question):
                wording = problem
            elif not (erased and entry["inputs"] == entry["inputs_digest"] == ""):
                wording = _answer_problem(entry, frame, charges, asked, tables, drawn, policies)
        problems += [f"entry {entry['number']}: {wording}"] if wording else []
    return problems + noise_problems(drawn)


def _promises(rows: LedgerRows) -> dict[str, set[Promise]]:
    """Promise to every audience; one thing each, for ever."""
    audiences = {row[0]: row[3] for row in rows.accounts()}
    promised: dict[str, set[Promise]] = defaultdict(set)
    for _, account, _, _, _, epsilon, adversary, seconds, *_ in rows.allowances():
        if account in audiences:
            promised[audiences[account]].add(Promise(epsilon, adversary, seconds))
    return promised


def _states(frame: ReleaseFrame, promise: Promise) -> bool:
    """True if a release states a promise, by the period of its own ticks."""
    stated = (frame.epsilon, frame.adversary, frame.stretch_ticks)
    return stated == (*promise[:2], promise.ticks(_period(frame)))


def _period(frame: ReleaseFrame) -> int:
    """From tick to tick, in microseconds, at least 1."""
    return max((unix_us(frame.time) - unix_us(frame.since)) // frame.length, 1)


def _documents(rows: LedgerRows) -> tuple[dict[int, _Asked], dict[str, NoiseTable], list[str]]:
    """Questions by number, noise tables by digest, and what is neither or was changed."""
    questions: dict[int, _Asked] = {}
    tables: dict[str, NoiseTable] = {}
    problems = []
    for number, name, text in rows.documents():
        document = text.encode()
        try:
            if "rows" in json.loads(document):
                tables[name] = table_of(document)
            else:
                questions[number] = _Asked(document, Question.read(document))
        except _UNREADABLE:
            problems.append(f"document {number}: is neither a question nor a noise table")
        if digest(document) != name:
            problems.append(f"document {number}: was changed")
    return questions, tables, problems


def _frame(entry: Mapping[str, Any], charges: Mapping[str, int]) -> tuple[ReleaseFrame | None, str]:
    number, payload = entry["number"], entry["payload"]
    if not charges or not payload:
        return None, "has no release" if charges else ""
    try:
        frame = ReleaseFrame.decode(payload)
    except FrameError as error:
        return None, f"holds no release: {error}"
    names = ("name", "audience", "stream", "first", "last", "mechanism", "noise", "scale")
    if (
        any(getattr(frame, name) != entry[name] for name in names)
        or frame.entry != number
        or frame.devices != len(charges)
    ):
        return None, "holds another release"
    if frame.charge != nats(max(charges.values())):
        return None, "its release states another charge"
    if problem := noise_problem(entry, frame, max(charges.values())):
        return None, problem
    return frame, ""


def _answer_problem(
    entry: Mapping[str, Any],
    frame: ReleaseFrame,
    charges: Mapping[str, int],
    asked: _Asked,
    tables: Mapping[str, NoiseTable],
    drawn: dict[Fraction, tuple[int, int]],
    policies: TrustedPolicies,
) -> str:
    """Why a release is not that of its sums; its noise is put to `drawn`."""
    question, inputs = asked.question, entry["inputs"].encode()
    if inputs_digest(asked.text, frame.first, inputs) != entry["inputs_digest"]:
        return "what it was computed from was changed"
    try:
        noisy = Noisy.read(json.loads(inputs), tables)
        estimates, ticks = noisy.answer(question.query, question.confidence)
    except _UNREADABLE as error:
        return f"cannot be computed again: {(str(error) or cause(error)).splitlines()[0]}"
    width = max(high - low for low, high in zip(frame.low, frame.high, strict=True))
    names = ("value", "standard error", "interval", "interval")
    published = (frame.values, frame.standard_errors, frame.low, frame.high)
    for name, mine, theirs in zip(names, published, estimates, strict=True):
        if len(mine) != len(theirs) or not max(abs(theirs - mine)) <= _OF_WIDTH * width:
            return f"its {name} is not that of its sums and noise"
    if ticks != frame.observed:
        return f"is about {frame.observed} ticks, and its sums are about {ticks}"
    if (noisy.inputs.noise, str(noisy.inputs.largest_scale(noisy.own_scale))) != (frame.noise, frame.scale):
        return "its noise is not of the scale that its sums have"
    for sums, counts in zip(noisy.inputs.parts, noisy.counts, strict=True):
        numbers, size = drawn.get(noisy.own_scale, (0, 0))
        drawn[noisy.own_scale] = numbers + sums.counts.size, size + int(abs(counts.counts - sums.counts).sum())
    return _basis_problem(entry, charges, question, policies) or _charge_problem(entry, charges, noisy, policies)


def _basis_problem(
    entry: Mapping[str, Any], charges: Mapping[str, int], question: Question, policies: TrustedPolicies
) -> str:
    """Why the Wasserstein mechanism's noise follows from other tables or classes than those of trusted policies."""
    if entry["mechanism"] != "wasserstein" or not policies:
        return ""
    basis = WholeWindow.model_validate_json(entry["basis"])
    for device in charges:
        makers = policies.makers((device, entry["stream"]), entry["inputs"], charges[device])
        wanted = [
            (counted_symbols(classes, policy.table, question.query.states, ()).hits, classes)
            for policy in makers
            if policy.table is not None
            for classes in [question.classes([policy])]
        ]
        rules = {(symbol.hits, chain) for symbol in basis.symbols for chain in symbol.chains}
        if not any({(hits, chain) for chain in classes} <= rules for hits, classes in wanted):
            return f"its noise is not for the table and the class of chains of {device}"
    return ""


def _question_problem(frame: ReleaseFrame, charges: Mapping[str, int], question: Question) -> str:
    states = tuple(question.labels[state] for state in question.query.states if 0 <= state < len(question.labels))
    stated = (frame.name, frame.stream, frame.mechanism, frame.length, frame.query, frame.states, frame.confidence)
    wanted = (question.name, question.stream, question.mechanism, question.length, question.query.kind, states)
    if stated != (*wanted, question.confidence):
        return "is not the answer to its question"
    if others := charges.keys() - set(question.devices):
        return f"is about {min(others)}, which was not asked for"
    return ""


def _charge_problem(
    entry: Mapping[str, Any], charges: Mapping[str, int], noisy: Noisy, policies: TrustedPolicies
) -> str:
    """Why the charges are not those of the noise; those of a mechanism that does not compose, `noise_problem` knows."""
    if entry["audience"] == SITE or entry["mechanism"] in ALONE:
        return ""
    spread = float_up(sensitivity(noisy.inputs.parts) / noisy.own_scale)
    dues = {part.table: units_above(charge(part.table, spread)) for part in noisy.counts}
    for device, units in charges.items():
        if not units:
            continue
        own = {due for table, due in dues.items() if not policies or policies.has((device, entry["stream"]), table)}
        if own and all(abs(units - due) > due * SAME for due in own):  # without own ones the replay says so
            return f"{device} is charged {nats(units):.12g}, and its noise {nats(max(own)):.12g}"
    length = entry["last"] - entry["first"] + 1
    for least in set(dues.values()):
        ticks = sum(part.ticks for part in noisy.counts if dues[part.table] >= least)
        payers = sum(units >= least * (1 - SAME) for units in charges.values())
        if ticks > length * payers:
            return f"sums {ticks} ticks that cost {nats(least):.12g} or more, and {payers} devices are charged as much"
    return ""


_Row = tuple[Any, ...]


class Disclosure(NamedTuple):
    """The most that an audience was told of a tick of a stream while an allowance was in force, by the entries alone.

    Attributes:
        chains: the classes of chains as JSON, with those of the trusted policies that made what was told.
        period_us: from tick to tick, which says how many ticks a stretch has.
        base: standing charge of every tick.
        charge: of the tick that was charged most, with the base and the streams that move together with it.
        tick: the first such, as the device numbers it.
        runs: all charges of the account, if nothing else counts for it. That is no base, no other stream, no other
            allowance under which something was told, no clock that was set. Else empty.
        first, last: of the ticks that were told of while the allowance was in force.
        after: the entry after which it was.
        shifted: whether the device's clock was ever set.
    """

    key: Key
    mechanism: str
    promise: Promise
    period_us: int
    chains: str
    base: int
    charge: int
    tick: int
    runs: tuple[ChargedTicks, ...]
    first: int = -1
    last: int = -1
    after: int = 0
    shifted: bool = False


class Audit(NamedTuple):
    """The outcome: how much was looked at, problems (one line each), and by account and allowance what was told."""

    entries: int
    accounts: int
    problems: tuple[str, ...]
    told: tuple[Disclosure, ...] = ()


@dataclass
class _Account:
    number: int
    key: Key
    mechanism: str = ""
    allowance: int = 0
    base: int = 0
    exclusive: int = 0
    shifted: bool = False
    named: frozenset[Stream] = frozenset()
    together: bool = False
    runs: list[ChargedTicks] = field(default_factory=list)
    told: list[Disclosure] = field(default_factory=list)

    def near(self, first: int, last: int) -> slice:
        """The runs that overlap the ticks, and perhaps one more before them."""
        low, high = (bisect_left(self.runs, tick, key=attrgetter("first")) for tick in (first, last + 1))
        return slice(max(low - 1, 0), high)

    def reach(self, charge: int, near: list[ChargedTicks], first: int) -> None:
        if self.told and charge > self.told[-1].charge:
            self.told[-1] = self.told[-1]._replace(charge=charge, tick=first_peak(near, first))

    def reach_ticks(self, first: int, last: int) -> None:
        if self.told:
            newest = self.told[-1]
            first = first if newest.first < 0 else min(newest.first, first)
            self.told[-1] = newest._replace(first=first, last=max(newest.last, last))

    def hold(self, more: Iterable[tuple[ReleaseClass, int]]) -> None:
        """Hold what is told under the allowance to classes with periods, too."""
        if self.told and (every := list(more)):
            newest = self.told[-1]
            chains = with_classes(newest.chains, (chains for chains, _ in every))
            self.told[-1] = newest._replace(
                chains=chains, period_us=min(newest.period_us, *(period_us for _, period_us in every))
            )

    def history(self) -> list[Disclosure]:
        """The releases under each allowance, with all charges if there is nothing else."""
        disclosures = [version._replace(shifted=self.shifted) for version in self.told if version.charge >= 0]
        if len(disclosures) == 1 and not (disclosures[0].base or self.together or self.shifted):
            return [disclosures[0]._replace(runs=tuple(self.runs))]
        return disclosures


def verify(
    ledger: Ledger, published: Mapping[int, bytes] | None = None, policies: TrustedPolicies | None = None
) -> Audit:
    """Recompute a ledger, charges and what was published.

    Ticks above an allowance that was lowered later are no problem.

    Args:
        published: releases that were seen, as entry number and bytes; each must be in the ledger as it was published.
        policies: what to hold classes, tables and windows against; if empty, the ledger alone vouches for them.
    """
    with ledger.snapshot() as rows:
        trusted = policies or TrustedPolicies()
        audit = replayed(rows, published or {}, trusted)
        return audit._replace(problems=(*audit.problems, *content_problems(rows, trusted)))


def replayed(rows: LedgerRows, published: Mapping[int, bytes], policies: TrustedPolicies | None = None) -> Audit:
    """Contradictions in who was charged what: nothing is computed from sums and noise."""
    accounts = {row[0]: _Account(row[0], Key(*row[1:4]), row[6]) for row in rows.accounts()}
    problems = _replay(rows, accounts, policies or TrustedPolicies())
    problems += _compare(rows, accounts)
    for number, payload in published.items():
        if rows.payload(number) != payload:
            problems.append(f"entry {number}: is not what was published")
    histories = tuple(version for account in accounts.values() for version in account.history())
    return Audit(rows.entry_count(), len(accounts), tuple(problems), histories)


def _replay(rows: LedgerRows, accounts: dict[int, _Account], policies: TrustedPolicies) -> list[str]:
    problems: list[str] = []
    changes: dict[int, list[_Row]] = defaultdict(list)
    for after, *change in rows.allowances():
        changes[after].append(tuple(change))
    by_key = {account.key: account for account in accounts.values()}
    members: dict[int, dict[str, int]] = defaultdict(dict)
    shifts: dict[tuple[int, str], int] = {}
    for group, device, charged, shift in rows.members():
        members[group][device] = charged
        shifts[group, device] = shift
    outlived: dict[Stream, list[tuple[int, ReleaseClass, int]]] = defaultdict(list)
    for device, stream, chains, period_us, after in rows.outlived():
        outlived[device, stream] += [(after, chain, period_us) for chain in classes_written(chains)]
    together = _Together(rows, accounts.values())
    together.change(0)
    problems += _change(accounts, changes.pop(0, []), policies, 0)
    for expected, row in enumerate(rows.entries(), start=1):
        number, audience, stream = (row[k] for k in ("number", "audience", "stream"))
        exclusive = row["exclusive"]
        if number != expected and not problems:
            problems.append(f"entry {expected}: is missing")
        charges = members[row["in_group"]]
        problems += [] if charges else [f"entry {number}: has no devices"]
        if problem := uncharged(audience, row["topic"], charges.values(), row["noise"]):
            problems.append(f"entry {number}: {problem}")
        for device, paid in charges.items():
            shift = shifts[row["in_group"], device]
            first, last = row["first"] + shift, row["last"] + shift
            if paid == 0:
                problems += [] if row["reason"] else [f"entry {number}: charges nothing and does not say why"]
            if paid == 0 and audience == SITE:
                continue
            account = by_key.get(Key(device, stream, audience))
            if account is None:
                problems.append(f"entry {number}: {device}/{stream}, audience {audience}: has no account")
                continue
            if account.mechanism != row["mechanism"]:
                problems.append(f"entry {number}: {account.key}: is charged by another mechanism than its account")
            every = (account, *together.beside(account.key))
            if not account.named <= {charge.key[:2] for charge in every} | together.members(account.key):
                problems.append(f"entry {number}: {account.key}: is not charged with {together_name(account.named)}")
            if any(charge.exclusive for charge in every) or (
                exclusive and (account.base or any(charge.runs for charge in every))
            ):
                problems.append(f"entry {number}: {account.key}: does not compose with another release")
            if paid:
                touching = account.near(first, last + 1)
                account.runs[touching] = overlay(account.runs[touching], first, last, paid)
            elif not account.base:
                problems.append(f"entry {number}: {account.key}: its device releases no windows")
            account.exclusive = number if exclusive else account.exclusive
            account.shifted |= paid > 0 and shift != 0
            account.together |= len(every) > 1
            near = [run for charge in every for run in _charges_at(charge, first, last, shift, account.key.device)]
            reached = peak_of_sum(near) + account.base
            account.reach(reached, near, first)
            account.reach_ticks(first, last)
            if problem := _period_problem(account, row["payload"]):
                problems.append(f"entry {number}: {account.key}: {problem}")
            for member in together.members(account.key) if outlived else ():
                account.hold((chain, period) for after, chain, period in outlived.get(member, ()) if number > after)
            if policies and (problem := _made_by(account, policies, row["inputs"], paid)):
                problems.append(f"entry {number}: {account.key}: {problem}")
            if reached > account.allowance:
                allowed = f"{nats(reached):.12g} of {nats(account.allowance):.12g} allowed"
                problems.append(f"entry {number}: {account.key}: ticks {first}..{last} reached {allowed}")
        together.change(number)
        problems += _change(accounts, changes.pop(number, []), policies, number)
    return problems


def _period_problem(account: _Account, payload: bytes) -> str:
    """Why the ticks of a release are shorter than those of which its account's stretch has so many."""
    if not account.told or not account.told[-1].promise.seconds or not payload:
        return ""
    try:
        period = _period(ReleaseFrame.decode(payload))
    except FrameError:  # `content_problems` says so
        return ""
    if period >= account.told[-1].period_us:
        return ""
    return f"its ticks are of {period} us, and its allowance is for ticks of {account.told[-1].period_us} us"


def _made_by(account: _Account, policies: TrustedPolicies, inputs: str, charge: int) -> str:
    """Hold what was told under the classes of the policies that made it; why none of them can have, or not so."""
    own = account.key[:2]
    makers = policies.makers(own, inputs, charge)
    if not makers:
        what = "of the table that was counted" if charge else "that releases windows"
        return f"no policy of {account.key.device}/{account.key.stream} {what} was given"
    account.hold((policy.chains, policy.clock.period_us) for policy in makers)
    return policies.base_problem(own, makers, account.base)


def _charges_at(account: _Account, first: int, last: int, shift: int, device: str) -> list[ChargedTicks]:
    """Charge of an account at ticks of a device; of another device by wall time, as far as that is known."""
    if account.key.device == device:
        return clipped(account.runs[account.near(first, last)], first, last)
    return beside(account.runs, first, last, None if account.shifted else shift)


class _Together:
    def __init__(self, rows: LedgerRows, accounts: Iterable[_Account]) -> None:
        self._changes: dict[int, list[tuple[Stream, str]]] = defaultdict(list)
        for after, device, stream, name in rows.together():
            self._changes[after].append(((device, stream), name))
        self._names: dict[Stream, str] = {}
        self._accounts = {account.key: account for account in accounts}

    def change(self, number: int) -> None:
        self._names |= dict(self._changes.pop(number, []))

    def members(self, key: Key) -> set[Stream]:
        """The streams that one is charged with, and itself."""
        own = (key.device, key.stream)
        name = self._names.get(own)
        return {own} | {stream for stream, other in self._names.items() if other == name}

    def beside(self, key: Key) -> list[_Account]:
        keys = [Key(*stream, key.audience) for stream in sorted(self.members(key) - {(key.device, key.stream)})]
        return [self._accounts[key] for key in keys if key in self._accounts]


def _change(accounts: dict[int, _Account], changes: list[_Row], policies: TrustedPolicies, after: int) -> list[str]:
    problems = []
    for number, allowance, base, mechanism, epsilon, adversary, seconds, period_us, chains in changes:
        if number in accounts:
            account = accounts[number]
            account.allowance, account.base = allowance, base
            promise = Promise(epsilon, adversary, seconds)
            problem = allowance_problem(allowance, mechanism, promise, period_us, chains)
            account.named = streams_charged(chains, account.key.device)
            version = Disclosure(account.key, mechanism, promise, period_us, chains, base, -1, -1, (), after=after)
            account.told.append(version)
            if mechanism != account.mechanism:
                problem = f"its mechanism was {mechanism} and is {account.mechanism}"
            problems += [f"{account.key}: {problem}"] if problem else []
            written = {chain for chain in classes_written(chains) if not isinstance(chain, ListedChains)}
            if policies and written - policies.classes({account.key[:2], *account.named}):
                problems.append(f"{account.key}: its allowance is for a class of chains of no policy that was given")
    return problems


def _compare(rows: LedgerRows, accounts: dict[int, _Account]) -> list[str]:
    problems = []
    stored: dict[int, list[ChargedTicks]] = defaultdict(list)
    for number, *run in rows.runs():
        stored[number].append(ChargedTicks(*run))
    for number, *_, allowance, base, _, exclusive, shifted in rows.accounts():
        account = accounts[number]
        if stored.pop(number, []) != account.runs:
            problems.append(f"{account.key}: its charges are not those of its entries")
        if (allowance, base) != (account.allowance, account.base):
            problems.append(f"{account.key}: its allowance is not the last one recorded")
        if bool(shifted) != account.shifted:
            problems.append(f"{account.key}: whether its device's clock was set is not what its entries say")
        if exclusive != account.exclusive:
            problems.append(f"{account.key}: its exclusive release is not that of its entries")
    return problems + [f"account {number}: has charges and does not exist" for number in stored]
