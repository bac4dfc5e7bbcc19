"""The audit of a ledger: everything is computed once more from its entries, and compared with the ledger's other rows.

Entries and changes of allowances are replayed in their order. So each release is held against the allowance that was in
force when it was made. Allowances are computed again by the rule of the account's mechanism. Releases are computed
again from their sums and noise, because the symbols may be gone.

So the audit finds a wrong answer to the question, or to the sums and noise. It finds noise of another scale, noise that
was not drawn, and a charge that is not the noise's. It does not find a change of sums, noise and digests together that
is consistent.

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
    TOLERANCE,
    WholeWindow,
    add_classes,
    allowance_problem,
    charge,
    charged_streams,
    counted_symbols,
    noise_problem,
    noise_problems,
    readable_classes,
)
from gateway.releases.charges import ChargedTicks, charges_beside, clip, first_peak, nats, peak, summed, units_above
from gateway.releases.entries import (
    SITE,
    AccountKey,
    Promise,
    Stream,
    digest,
    inputs_digest,
    named_streams,
    together_name,
    uncharged_problem,
)
from gateway.releases.inputs import NoisyInputs, Question, canonical_table, table_of
from gateway.releases.ledger import Ledger
from gateway.releases.statistics import sensitivity
from gateway.releases.tables import LedgerRows
from gateway.store.engine import LedgerError

__all__ = ["Disclosure", "TrustedPolicies", "verify"]


class TrustedPolicies:
    """The auditor's own policies: every version that was in force. Policies of measured streams are left out."""

    def __init__(self, policies: Iterable[AnyPolicy] = ()) -> None:
        self._policies: dict[Stream, list[Policy]] = defaultdict(list)
        for policy in policies:
            if isinstance(policy, Policy):
                self._policies[policy.device, policy.stream].append(policy)

    def __bool__(self) -> bool:
        return bool(self._policies)

    def of(self, stream: Stream) -> list[Policy]:
        """The versions of a stream's policy."""
        return self._policies.get(stream, [])

    def makers(self, stream: Stream, inputs: str, charge: int) -> list[Policy]:
        """List the policies that may have made an entry's counts of a stream; empty if none can have.

        `inputs` is the entry's JSON. If it names no table (sums erased, or windows only), any policy may have made the
        counts. With `charge` 0 the entry counts the device's own windows.
        """
        tables = _named_tables(inputs)
        if not charge or not tables:
            return [policy for policy in self.of(stream) if charge or policy.counted]
        return [
            policy
            for policy in self.of(stream)
            if policy.table is not None and digest(canonical_table(policy.table)) in tables
        ]

    def has(self, stream: Stream, table: NoiseTable) -> bool:
        """Tell whether a policy of a stream has this noise table."""
        return any(policy.table == table for policy in self.of(stream))

    def classes(self, streams: Iterable[Stream]) -> set[ChainClass]:
        """All classes of streams, and of the streams that their policies name as moving with them."""
        queue, visited = list(streams), set[Stream]()
        while queue:
            if (stream := queue.pop()) not in visited:
                visited.add(stream)
                queue += [named for policy in self.of(stream) for named in named_streams(policy.chains, stream[0])]
        return {policy.chains for stream in visited for policy in self.of(stream)}

    def base_problem(self, stream: Stream, makers: Iterable[Policy], base: int) -> str:
        """The reason why an account's base is below the charge of the windows of these policies, or ''.

        Windows of streams that move with the stream are charged, too.
        """
        due = min((self._window_charge(stream, policy) for policy in makers), default=0)
        if base < due:
            return f"its devices release themselves {nats(due):.12g} of every tick, and {nats(base):.12g} is charged"
        return ""

    def _window_charge(self, stream: Stream, policy: Policy) -> int:
        """The least charge of device windows to every tick if this policy is in force."""
        others = named_streams(policy.chains, stream[0]) - {stream}
        charges = (min((units_above(policy.window_rate) for policy in self.of(other)), default=0) for other in others)
        return units_above(policy.window_rate) + sum(charges)


def _named_tables(inputs: str) -> set[str]:
    """The digests of the noise tables that an entry's inputs name; empty if they are unreadable or erased."""
    try:
        document: Mapping[str, Any] = json.loads(inputs)
        return {str(columns[0]) for name in ("symbols", "beside") for columns in document.get(name, ())}
    except _READ_ERRORS:
        return set()


_READ_ERRORS = (ArithmeticError, AttributeError, FuguError, LookupError, RecursionError, TypeError, ValueError)
_WIDTH_TOLERANCE = 1e-6
"""Share of an interval's width by which another machine's floating point may move a value. A sum off by one moves it
far more."""


class _QuestionText(NamedTuple):
    text: bytes
    question: Question


def content_problems(rows: LedgerRows, policies: TrustedPolicies) -> list[str]:
    """Contradictions between releases and the sums in the ledger, a line each; without policies fewer are found."""
    questions, tables, problems = _documents(rows)
    members: dict[int, dict[str, int]] = defaultdict(dict)
    for group, device, units, _ in rows.members():
        members[group][device] = units
    promises = _promises(rows)
    problems += [f"audience {name}: was promised different things" for name in promises if len(promises[name]) > 1]
    forgotten = dict(map(tuple, rows.forgotten_devices()))
    noise_totals: dict[Fraction, tuple[int, int]] = {}
    for entry in rows.entries():
        charges = members[entry["in_group"]]
        frame, entry_problem = _frame(entry, charges)
        if frame is not None:
            document = questions.get(entry["question"])
            is_erased = any(entry["number"] <= forgotten.get(device, 0) for device in charges)
            audience = entry["audience"]
            period, stated_promise = _period(frame), (frame.epsilon, frame.adversary, frame.stretch_ticks)
            if audience != SITE and stated_promise not in [
                (*promise[:2], promise.ticks(period)) for promise in promises[audience]
            ]:
                entry_problem = "its release states another promise than its audience has"
            elif document is None:
                entry_problem = "its question is missing"
            elif problem := _question_problem(frame, charges, document.question):
                entry_problem = problem
            elif not (is_erased and entry["inputs"] == entry["inputs_digest"] == ""):
                try:
                    entry_problem = _answer_problem(entry, frame, charges, document, tables, noise_totals, policies)
                except _READ_ERRORS as error:
                    entry_problem = f"cannot be computed again: {(str(error) or cause(error)).splitlines()[0]}"
        problems += [f"entry {entry['number']}: {entry_problem}"] if entry_problem else []
    return problems + noise_problems(noise_totals)


def _promises(rows: LedgerRows) -> dict[str, set[Promise]]:
    """The promises that each audience was given; a sound ledger has one each."""
    audiences = {account: audience for account, _, _, audience, *_ in rows.accounts()}
    promises: dict[str, set[Promise]] = defaultdict(set)
    for _, account, _, _, _, epsilon, adversary, seconds, *_ in rows.allowances():
        if account in audiences:
            promises[audiences[account]].add(Promise(epsilon, adversary, seconds))
    return promises


def _period(frame: ReleaseFrame) -> int:
    """The period of a release's ticks in microseconds, at least 1."""
    return max((unix_us(frame.time) - unix_us(frame.since)) // frame.length, 1)


def _documents(rows: LedgerRows) -> tuple[dict[int, _QuestionText], dict[str, NoiseTable], list[str]]:
    """Read the documents: questions by number, noise tables by digest, and problems, a line each."""
    questions: dict[int, _QuestionText] = {}
    tables: dict[str, NoiseTable] = {}
    problems = []
    for document_number, stated_digest, document_text in rows.documents():
        document = document_text.encode()
        try:
            if "rows" in json.loads(document):
                tables[stated_digest] = table_of(document)
            else:
                questions[document_number] = _QuestionText(document, Question.read(document))
        except _READ_ERRORS:
            problems.append(f"document {document_number}: is neither a question nor a noise table")
        if digest(document) != stated_digest:
            problems.append(f"document {document_number}: was changed")
    return questions, tables, problems


def _frame(entry: Mapping[str, Any], charges: Mapping[str, int]) -> tuple[ReleaseFrame | None, str]:
    """Decode an entry's release. Return `None` and a problem if it is not the release that the entry's columns name."""
    number, payload = entry["number"], entry["payload"]
    if not charges or not payload:
        return None, "has no release" if charges else ""
    try:
        frame = ReleaseFrame.decode(payload)
    except FrameError as error:
        return None, f"holds no release: {error}"
    columns = ("name", "audience", "stream", "first", "last", "mechanism", "noise", "scale")
    if (
        any(getattr(frame, column) != entry[column] for column in columns)
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
    document: _QuestionText,
    tables: Mapping[str, NoiseTable],
    noise_totals: dict[Fraction, tuple[int, int]],
    policies: TrustedPolicies,
) -> str:
    """The reason why a release does not follow from its sums and noise, or ''.

    Adds to `noise_totals`, by scale, how many numbers got noise and the noise's total absolute size. Raises one of
    `_READ_ERRORS` if the entry, the question or the tables do not fit together.
    """
    question, inputs = document.question, entry["inputs"].encode()
    if inputs_digest(document.text, frame.first, inputs) != entry["inputs_digest"]:
        return "what it was computed from was changed"
    noisy = NoisyInputs.read(json.loads(inputs), tables)
    estimates, ticks = noisy.answer(question.query, question.confidence)
    width = max(high - low for low, high in zip(frame.low, frame.high, strict=True))
    estimate_names = ("value", "standard error", "interval", "interval")
    frame_columns = (frame.values, frame.standard_errors, frame.low, frame.high)
    for estimate_name, stated_values, values in zip(estimate_names, frame_columns, estimates, strict=True):
        if len(stated_values) != len(values) or not max(abs(values - stated_values)) <= _WIDTH_TOLERANCE * width:
            return f"its {estimate_name} is not that of its sums and noise"
    if ticks != frame.observed:
        return f"is about {frame.observed} ticks, and its sums are about {ticks}"
    if (noisy.inputs.noise, str(noisy.inputs.largest_scale(noisy.own_scale))) != (frame.noise, frame.scale):
        return "its noise is not of the scale that its sums have"
    for sums, counts in zip(noisy.inputs.tallies, noisy.counts, strict=True):
        count, size = noise_totals.get(noisy.own_scale, (0, 0))
        noise_totals[noisy.own_scale] = count + sums.counts.size, size + int(abs(counts.counts - sums.counts).sum())
    return _basis_problem(entry, charges, question, policies) or _charge_problem(entry, charges, noisy, policies)


def _basis_problem(
    entry: Mapping[str, Any], charges: Mapping[str, int], question: Question, policies: TrustedPolicies
) -> str:
    """The reason why the Wasserstein mechanism's noise is not for the tables and classes of trusted policies, or ''."""
    if entry["mechanism"] != "wasserstein" or not policies:
        return ""
    basis = WholeWindow.model_validate_json(entry["basis"])
    for device in charges:
        makers = policies.makers((device, entry["stream"]), entry["inputs"], charges[device])
        needed_rules = [
            (counted_symbols(classes, policy.table, question.query.states, ()).hits, classes)
            for policy in makers
            if policy.table is not None
            for classes in [question.classes([policy])]
        ]
        rules = {(symbol.hits, chain) for symbol in basis.symbols for chain in symbol.chains}
        if not any({(hits, chain) for chain in classes} <= rules for hits, classes in needed_rules):
            return f"its noise is not for the table and the class of chains of {device}"
    return ""


def _question_problem(frame: ReleaseFrame, charges: Mapping[str, int], question: Question) -> str:
    """The reason why a release does not answer its question, or ''."""
    states = tuple(question.labels[state] for state in question.query.states if 0 <= state < len(question.labels))
    terms = (frame.name, frame.stream, frame.mechanism, frame.length, frame.query, frame.states, frame.confidence)
    asked_terms = (question.name, question.stream, question.mechanism, question.length, question.query.kind, states)
    if terms != (*asked_terms, question.confidence):
        return "is not the answer to its question"
    if unasked_devices := charges.keys() - set(question.devices):
        return f"is about {min(unasked_devices)}, which was not asked for"
    return ""


def _charge_problem(
    entry: Mapping[str, Any], charges: Mapping[str, int], noisy: NoisyInputs, policies: TrustedPolicies
) -> str:
    """The reason why the charges are not those of the noise, or ''.

    Charges of mechanisms that do not compose are checked by `noise_problem`.
    """
    if entry["audience"] == SITE or entry["mechanism"] in ALONE:
        return ""
    spread = float_up(sensitivity(noisy.inputs.tallies) / noisy.own_scale)
    dues = {tally.table: units_above(charge(tally.table, spread)) for tally in noisy.counts}
    for device, units in charges.items():
        if not units:
            continue
        stream = device, entry["stream"]
        own_dues = {due for table, due in dues.items() if not policies or policies.has(stream, table)}
        if own_dues and all(abs(units - due) > due * TOLERANCE for due in own_dues):  # the replay reports an empty set
            return f"{device} is charged {nats(units):.12g}, and its noise {nats(max(own_dues)):.12g}"
    length = entry["last"] - entry["first"] + 1
    for due in set(dues.values()):
        ticks = sum(tally.ticks for tally in noisy.counts if dues[tally.table] >= due)
        payers = sum(units >= due * (1 - TOLERANCE) for units in charges.values())
        if ticks > length * payers:
            return f"sums {ticks} ticks that cost {nats(due):.12g} or more, and {payers} devices are charged as much"
    return ""


_Row = tuple[Any, ...]


class Disclosure(NamedTuple):
    """The most that an audience was told of a tick of a stream while an allowance was in force, by the entries alone.

    Attributes:
        chains: the classes of chains as JSON, with the classes of trusted policies that made the counts.
        period_us: shortest period of ticks in microseconds; it says how many ticks a stretch has.
        base: standing charge of every tick.
        charge: the largest charge of a tick, with the base and the charges of streams that move with this one.
        tick: the first tick with that charge, as the device numbers it.
        runs: all charges of the account; empty if anything else counts. That is a base, another stream, another
            allowance under which something was told, or a clock that was set.
        first, last: first and last tick of all releases while the allowance was in force.
        after: the number of the entry after which the allowance was in force.
        shifted: whether the device's clock was ever set.
    """

    key: AccountKey
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
    """The outcome: counts of entries and accounts, problems, a line each, and disclosures by account and allowance."""

    entries: int
    accounts: int
    problems: tuple[str, ...]
    disclosures: tuple[Disclosure, ...] = ()


@dataclass
class _Account:
    key: AccountKey
    mechanism: str
    allowance: int = 0
    base: int = 0
    exclusive: int = 0
    shifted: bool = False
    named: frozenset[Stream] = frozenset()
    together: bool = False
    runs: list[ChargedTicks] = field(default_factory=list)
    disclosures: list[Disclosure] = field(default_factory=list)

    def slice_near(self, first: int, last: int) -> slice:
        """The slice of `runs` that overlap ticks first..last, and perhaps one run before them."""
        begin, end = (bisect_left(self.runs, tick, key=attrgetter("first")) for tick in (first, last + 1))
        return slice(max(begin - 1, 0), end)

    def disclose(self, charge: int, runs: list[ChargedTicks], first: int, last: int) -> None:
        """Let the newest disclosure be about ticks first..last, too, with this charge if it is larger.

        The tick of a charge is where `runs` peak, or `first` without runs.
        """
        if self.disclosures:
            newest = self.disclosures[-1]
            if charge > newest.charge:
                newest = newest._replace(charge=charge, tick=first_peak(runs, first))
            first = first if newest.first < 0 else min(newest.first, first)
            self.disclosures[-1] = newest._replace(first=first, last=max(newest.last, last))

    def hold_to(self, classes: Iterable[tuple[ReleaseClass, int]]) -> None:
        """Add classes, each with a period, to the classes of the newest disclosure."""
        if self.disclosures and (new_classes := list(classes)):
            newest = self.disclosures[-1]
            chains = add_classes(newest.chains, (chains for chains, _ in new_classes))
            self.disclosures[-1] = newest._replace(
                chains=chains, period_us=min(newest.period_us, *(period_us for _, period_us in new_classes))
            )

    def history(self) -> list[Disclosure]:
        """The disclosures under each allowance that had releases; `runs` are set if nothing else counts."""
        disclosures = [version._replace(shifted=self.shifted) for version in self.disclosures if version.charge >= 0]
        if len(disclosures) == 1 and not (disclosures[0].base or self.together or self.shifted):
            return [disclosures[0]._replace(runs=tuple(self.runs))]
        return disclosures


def verify(
    ledger: Ledger, payloads: Mapping[int, bytes] | None = None, policies: TrustedPolicies | None = None
) -> Audit:
    """Recompute a ledger's charges and releases, and compare. A charge above a later, lower allowance is no problem.

    Args:
        payloads: releases that were received, as entry number and bytes; the ledger must hold the same bytes.
        policies: the policies to compare classes, tables and windows with; if empty, the ledger alone vouches for them.

    Raises LedgerError if a record holds text, bytes or a number in the place of another of these.
    """
    trusted = policies or TrustedPolicies()
    try:
        with ledger.snapshot() as rows:
            audit = replay_ledger(rows, payloads or {}, trusted)
            return audit._replace(problems=(*audit.problems, *content_problems(rows, trusted)))
    except (AttributeError, TypeError):  # columns of SQLite take values of any type
        raise LedgerError("a record of the ledger holds a value of another type than its column") from None


def replay_ledger(rows: LedgerRows, payloads: Mapping[int, bytes], policies: TrustedPolicies) -> Audit:
    """Audit accounts, charges and allowances only: nothing is computed from sums and noise."""
    accounts = {row[0]: _Account(AccountKey(*row[1:4]), row[6]) for row in rows.accounts()}
    problems = _replay(rows, accounts, policies)
    problems += _compare_accounts(rows, accounts)
    for entry_number, payload in payloads.items():
        if rows.payload(entry_number) != payload:
            problems.append(f"entry {entry_number}: is not what was published")
    histories = tuple(version for account in accounts.values() for version in account.history())
    return Audit(rows.entry_count(), len(accounts), tuple(problems), histories)


def _replay(rows: LedgerRows, accounts: dict[int, _Account], policies: TrustedPolicies) -> list[str]:
    """Apply all changes and entries to `accounts`, in their order. Return problems, a line each."""
    problems: list[str] = []
    changes: dict[int, list[_Row]] = defaultdict(list)
    for after_entry, *change in rows.allowances():
        changes[after_entry].append(tuple(change))
    by_key = {account.key: account for account in accounts.values()}
    members: dict[int, dict[str, int]] = defaultdict(dict)
    shifts: dict[tuple[int, str], int] = {}
    for group, device, member_charge, shift in rows.members():
        members[group][device] = member_charge
        shifts[group, device] = shift
    outlived: dict[Stream, list[tuple[int, ReleaseClass, int]]] = defaultdict(list)
    for device, stream, chains, period_us, after_entry in rows.outlived_classes():
        outlived[device, stream] += [(after_entry, chain, period_us) for chain in readable_classes(chains)]
    together = _StreamsTogether(rows, accounts.values())
    together.change(0)
    problems += _apply_changes(accounts, changes.pop(0, []), policies, 0)
    for expected_number, entry in enumerate(rows.entries(), start=1):
        number, audience, stream = (entry[column] for column in ("number", "audience", "stream"))
        exclusive = entry["exclusive"]
        if number != expected_number and not problems:
            problems.append(f"entry {expected_number}: is missing")
        charges = members[entry["in_group"]]
        problems += [] if charges else [f"entry {number}: has no devices"]
        if problem := uncharged_problem(audience, entry["topic"], charges.values(), entry["noise"]):
            problems.append(f"entry {number}: {problem}")
        for device, units in charges.items():
            shift = shifts[entry["in_group"], device]
            first, last = entry["first"] + shift, entry["last"] + shift
            if units == 0:
                problems += [] if entry["reason"] else [f"entry {number}: charges nothing and does not say why"]
            if units == 0 and audience == SITE:
                continue
            account = by_key.get(AccountKey(device, stream, audience))
            if account is None:
                problems.append(f"entry {number}: {device}/{stream}, audience {audience}: has no account")
                continue
            if account.mechanism != entry["mechanism"]:
                problems.append(f"entry {number}: {account.key}: is charged by another mechanism than its account")
            member_accounts = (account, *together.other_accounts(account.key))
            if not account.named <= {member.key[:2] for member in member_accounts} | together.members(account.key):
                problems.append(f"entry {number}: {account.key}: is not charged with {together_name(account.named)}")
            if any(member.exclusive for member in member_accounts) or (
                exclusive and (account.base or any(member.runs for member in member_accounts))
            ):
                problems.append(f"entry {number}: {account.key}: does not compose with another release")
            if units:
                near_runs = account.slice_near(first, last + 1)
                account.runs[near_runs] = summed([*account.runs[near_runs], ChargedTicks(first, last, units)])
            elif not account.base:
                problems.append(f"entry {number}: {account.key}: its device releases no windows")
            account.exclusive = number if exclusive else account.exclusive
            account.shifted |= units > 0 and shift != 0
            account.together |= len(member_accounts) > 1
            runs = [run for member in member_accounts for run in _charges_at(member, first, last, shift, device)]
            tick_charge = peak(runs) + account.base
            account.disclose(tick_charge, runs, first, last)
            if problem := _period_problem(account, entry["payload"]):
                problems.append(f"entry {number}: {account.key}: {problem}")
            for member in together.members(account.key) if outlived else ():
                account.hold_to((chain, period) for after, chain, period in outlived.get(member, ()) if number > after)
            if policies and (problem := _maker_problem(account, policies, entry["inputs"], units)):
                problems.append(f"entry {number}: {account.key}: {problem}")
            if tick_charge > account.allowance:
                excess = f"{nats(tick_charge):.12g} of {nats(account.allowance):.12g} allowed"
                problems.append(f"entry {number}: {account.key}: ticks {first}..{last} reached {excess}")
        together.change(number)
        problems += _apply_changes(accounts, changes.pop(number, []), policies, number)
    return problems


def _period_problem(account: _Account, payload: bytes) -> str:
    """The reason why a release's ticks are shorter than those for which its account's allowance was computed, or ''."""
    if not account.disclosures or not account.disclosures[-1].promise.seconds or not payload:
        return ""
    try:
        period = _period(ReleaseFrame.decode(payload))
    except FrameError:  # `content_problems` says so
        return ""
    if period >= account.disclosures[-1].period_us:
        return ""
    return f"its ticks are of {period} us, and its allowance is for ticks of {account.disclosures[-1].period_us} us"


def _maker_problem(account: _Account, policies: TrustedPolicies, inputs: str, charge: int) -> str:
    """Add the classes of the policies that made an entry's counts to the account's newest disclosure.

    Return the reason why no policy can have made them, or why the base is too small for those, else ''.
    """
    stream = account.key[:2]
    makers = policies.makers(stream, inputs, charge)
    if not makers:
        policy_kind = "of the table that was counted" if charge else "that releases windows"
        return f"no policy of {account.key.device}/{account.key.stream} {policy_kind} was given"
    account.hold_to((policy.chains, policy.clock.period_us) for policy in makers)
    return policies.base_problem(stream, makers, account.base)


def _charges_at(account: _Account, first: int, last: int, shift: int, device: str) -> list[ChargedTicks]:
    """The charges of an account at ticks first..last of a device; another device's are as in `charges_beside`."""
    if account.key.device == device:
        return clip(account.runs[account.slice_near(first, last)], first, last)
    return charges_beside(account.runs, first, last, None if account.shifted else shift)


class _StreamsTogether:
    """Streams that share their charges, at the entry that the replay has reached."""

    def __init__(self, rows: LedgerRows, accounts: Iterable[_Account]) -> None:
        self._changes: dict[int, list[tuple[Stream, str]]] = defaultdict(list)
        for after_entry, device, stream, group_name in rows.group_changes():
            self._changes[after_entry].append(((device, stream), group_name))
        self._group_names: dict[Stream, str] = {}
        self._accounts = {account.key: account for account in accounts}

    def change(self, entry_number: int) -> None:
        """Apply the changes recorded after an entry."""
        self._group_names |= dict(self._changes.pop(entry_number, []))

    def members(self, key: AccountKey) -> set[Stream]:
        """The streams that share charges with a key's stream, and that stream itself."""
        group_name = self._group_names.get(key[:2])
        return {key[:2]} | {stream for stream, other_name in self._group_names.items() if other_name == group_name}

    def other_accounts(self, key: AccountKey) -> list[_Account]:
        """The accounts of the streams that share charges with a key's stream, without the key's own."""
        other_keys = [AccountKey(*stream, key.audience) for stream in sorted(self.members(key) - {key[:2]})]
        return [self._accounts[key] for key in other_keys if key in self._accounts]


def _apply_changes(
    accounts: dict[int, _Account], changes: list[_Row], policies: TrustedPolicies, entry: int
) -> list[str]:
    """Apply the changes of allowances that were recorded after an entry. Return problems, a line each."""
    problems = []
    for account_number, allowance, base, mechanism, epsilon, adversary, seconds, period_us, chains in changes:
        if account_number in accounts:
            account = accounts[account_number]
            account.allowance, account.base = allowance, base
            promise = Promise(epsilon, adversary, seconds)
            problem = allowance_problem(allowance, mechanism, promise, period_us, chains)
            account.named = charged_streams(chains, account.key.device)
            version = Disclosure(account.key, mechanism, promise, period_us, chains, base, -1, -1, (), after=entry)
            account.disclosures.append(version)
            if mechanism != account.mechanism:
                problem = f"its mechanism was {mechanism} and is {account.mechanism}"
            problems += [f"{account.key}: {problem}"] if problem else []
            written_classes = {chain for chain in readable_classes(chains) if not isinstance(chain, ListedChains)}
            if policies and written_classes - policies.classes({account.key[:2], *account.named}):
                problems.append(f"{account.key}: its allowance is for a class of chains of no policy that was given")
    return problems


def _compare_accounts(rows: LedgerRows, accounts: dict[int, _Account]) -> list[str]:
    """Compare the ledger's accounts and charges with the replayed ones. Return problems, a line each."""
    problems = []
    stored_runs: dict[int, list[ChargedTicks]] = defaultdict(list)
    for account_number, *run in rows.runs():
        stored_runs[account_number].append(ChargedTicks(*run))
    for account_number, *_, allowance, base, _, exclusive, shifted in rows.accounts():
        account = accounts[account_number]
        if stored_runs.pop(account_number, []) != account.runs:
            problems.append(f"{account.key}: its charges are not those of its entries")
        if (allowance, base) != (account.allowance, account.base):
            problems.append(f"{account.key}: its allowance is not the last one recorded")
        if bool(shifted) != account.shifted:
            problems.append(f"{account.key}: whether its device's clock was set is not what its entries say")
        if exclusive != account.exclusive:
            problems.append(f"{account.key}: its exclusive release is not that of its entries")
    return problems + [f"account {account_number}: has charges and does not exist" for account_number in stored_runs]
