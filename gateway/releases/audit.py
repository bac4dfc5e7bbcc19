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
from collections.abc import Iterable, Iterator, Mapping
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
from gateway.releases.charges import ChargedTicks, clip, first_peak, nats, other_charges, peak, sum_charges, units_above
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
from gateway.releases.inputs import NoisyInputs, Question, canonical_table, read_table
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

    def versions(self, stream: Stream) -> list[Policy]:
        """The versions of a stream's policy."""
        return self._policies.get(stream, [])

    def makers(self, stream: Stream, inputs_json: str, charge: int) -> list[Policy]:
        """List the policies that may have made an entry's counts of a stream; empty if none can have.

        `inputs_json` is of the entry. If it names no table (sums erased, or windows only), any policy may have made the
        counts. With `charge` 0 the entry counts the device's own windows.
        """
        tables = _table_digests(inputs_json)
        if not charge or not tables:
            return [policy for policy in self.versions(stream) if charge or policy.counted_windows]
        return [
            policy
            for policy in self.versions(stream)
            if policy.table is not None and digest(canonical_table(policy.table)) in tables
        ]

    def has(self, stream: Stream, table: NoiseTable) -> bool:
        """Tell whether a policy of a stream has this noise table."""
        return any(policy.table == table for policy in self.versions(stream))

    def classes(self, streams: Iterable[Stream]) -> set[ChainClass]:
        """All classes of chains of some streams, and of the streams that move with them by a policy."""
        queue, visited = list(streams), set[Stream]()
        while queue:
            if (stream := queue.pop()) not in visited:
                visited.add(stream)
                classes = (policy.chains for policy in self.versions(stream))
                queue += [partner for chains in classes for partner in named_streams(chains, stream[0])]
        return {policy.chains for stream in visited for policy in self.versions(stream)}

    def base_problem(self, stream: Stream, makers: Iterable[Policy], base: int) -> str:
        """Say why an account's base is too small for the windows of these policies, or ''.

        Windows of streams that move with the stream are charged, too.
        """
        floor = min((self._window_charge(stream, policy) for policy in makers), default=0)
        if base < floor:
            return f"its devices release themselves {nats(floor):.12g} of every tick, and {nats(base):.12g} is charged"
        return ""

    def _window_charge(self, stream: Stream, policy: Policy) -> int:
        """The least charge of device windows to every tick if this policy is in force."""
        partners = named_streams(policy.chains, stream[0]) - {stream}
        rate_lists = ([version.window_rate for version in self.versions(partner)] for partner in partners)
        charges = (min(map(units_above, rates), default=0) for rates in rate_lists)
        return units_above(policy.window_rate) + sum(charges)


def _table_digests(inputs_json: str) -> set[str]:
    """The digests of the noise tables that an entry's inputs name; empty if they are unreadable or erased."""
    try:
        document: Mapping[str, Any] = json.loads(inputs_json)
        return {str(columns[0]) for name in ("symbols", "beside") for columns in document.get(name, ())}
    except _READ_ERRORS:
        return set()


_READ_ERRORS = (ArithmeticError, AttributeError, FuguError, LookupError, RecursionError, TypeError, ValueError)
_WIDTH_TOLERANCE = 1e-6
"""Share of an interval's width by which another machine's floating point may move a value. A sum off by one moves it
far more."""


_Members = dict[int, dict[str, tuple[int, int]]]
"""By group and device: the charge of every tick, and the device's shift."""


def _read_members(rows: LedgerRows) -> _Members:
    members: _Members = defaultdict(dict)
    for group, device, device_charge, shift in rows.members():
        members[group][device] = device_charge, shift
    return members


def content_problems(rows: LedgerRows, policies: TrustedPolicies) -> list[str]:
    """List contradictions between releases and the ledger's sums, a line each; policies show more of them."""
    contents, members = _Contents(rows, policies), _read_members(rows)
    for entry in rows.entries():
        charges = {device: units for device, (units, _) in members[entry["in_group"]].items()}
        if problem := contents.entry_problem(entry, charges):
            contents.problems.append(f"entry {entry['number']}: {problem}")
    return contents.problems + noise_problems(contents.noise_totals)


class _Contents:
    """The documents of a ledger, its promises and its forgotten devices, with which releases are compared.

    Attributes:
        problems: lines about documents and promises.
        noise_totals: by scale, how many numbers of the releases so far got noise, and its total absolute size.
    """

    def __init__(self, rows: LedgerRows, policies: TrustedPolicies) -> None:
        self._policies = policies
        self._questions: dict[int, tuple[bytes, Question]] = {}
        self._tables: dict[str, NoiseTable] = {}
        self._promises: dict[str, set[Promise]] = defaultdict(set)
        self._forgotten = dict(map(tuple, rows.forgotten_devices()))
        self.problems: list[str] = []
        self.noise_totals: dict[Fraction, tuple[int, int]] = {}
        for document_number, stated_digest, document_text in rows.documents():
            document = document_text.encode()
            try:
                if "rows" in json.loads(document):
                    self._tables[stated_digest] = read_table(document)
                else:
                    self._questions[document_number] = document, Question.read(document)
            except _READ_ERRORS:
                self.problems.append(f"document {document_number}: is neither a question nor a noise table")
            if digest(document) != stated_digest:
                self.problems.append(f"document {document_number}: was changed")
        audiences = {account: audience for account, _, _, audience, *_ in rows.accounts()}
        for _, account, _, _, _, epsilon, adversary, seconds, *_ in rows.allowances():
            if account in audiences:
                self._promises[audiences[account]].add(Promise(epsilon, adversary, seconds))
        for audience, promises in self._promises.items():
            if len(promises) > 1:
                self.problems.append(f"audience {audience}: was promised different things")

    def entry_problem(self, entry: Mapping[str, Any], charges: Mapping[str, int]) -> str:
        """Say why a release contradicts its entry, question, sums or noise, or ''.

        `charges` has the charge of every tick by device.
        """
        audience, payload = entry["audience"], entry["payload"]
        if not charges or not payload:
            return "has no release" if charges else ""
        try:
            frame = ReleaseFrame.decode(payload)
        except FrameError as error:
            return f"holds no release: {error}"
        if problem := _frame_problem(entry, frame, charges):
            return problem
        stated_promise = frame.epsilon, frame.adversary, frame.stretch_ticks
        promises = ((*promise[:2], promise.ticks(_tick_period(frame))) for promise in self._promises[audience])
        if audience != SITE and stated_promise not in promises:
            return "its release states another promise than its audience has"
        if entry["question"] not in self._questions:
            return "its question is missing"
        question_text, question = self._questions[entry["question"]]
        if problem := _question_problem(frame, charges, question):
            return problem
        is_erased = any(entry["number"] <= self._forgotten.get(device, 0) for device in charges)
        if is_erased and entry["inputs"] == entry["inputs_digest"] == "":
            return ""
        try:
            if inputs_digest(question_text, frame.first, entry["inputs"].encode()) != entry["inputs_digest"]:
                return "what it was computed from was changed"
            inputs = NoisyInputs.read(json.loads(entry["inputs"]), self._tables)
            return (
                self._answer_problem(frame, question, inputs)
                or self._basis_problem(entry, charges, question)
                or self._charge_problem(entry, charges, inputs)
            )
        except _READ_ERRORS as error:
            return f"cannot be computed again: {(str(error) or cause(error)).splitlines()[0]}"

    def _answer_problem(self, frame: ReleaseFrame, question: Question, inputs: NoisyInputs) -> str:
        """Say why an answer does not follow from its sums and noise, or add the noise to `noise_totals` and return ''.

        Raises one of `_READ_ERRORS` if the question and the sums do not fit together.
        """
        estimates, ticks = inputs.answer(question.query, question.confidence)
        width = max(high - low for low, high in zip(frame.low, frame.high, strict=True))
        estimate_names = ("value", "standard error", "interval", "interval")
        frame_columns = (frame.values, frame.standard_errors, frame.low, frame.high)
        for estimate_name, stated_values, values in zip(estimate_names, frame_columns, estimates, strict=True):
            if len(stated_values) != len(values) or not max(abs(values - stated_values)) <= _WIDTH_TOLERANCE * width:
                return f"its {estimate_name} is not that of its sums and noise"
        if ticks != frame.observed:
            return f"is about {frame.observed} ticks, and its sums are about {ticks}"
        if (inputs.inputs.noise, str(inputs.inputs.largest_scale(inputs.own_scale))) != (frame.noise, frame.scale):
            return "its noise is not of the scale that its sums have"
        for sums, counts in zip(inputs.inputs.tallies, inputs.counts, strict=True):
            number_count, total_size = self.noise_totals.get(inputs.own_scale, (0, 0))
            noise_size = int(abs(counts.counts - sums.counts).sum())
            self.noise_totals[inputs.own_scale] = number_count + sums.counts.size, total_size + noise_size
        return ""

    def _basis_problem(self, entry: Mapping[str, Any], charges: Mapping[str, int], question: Question) -> str:
        """Say why Wasserstein noise is for other tables or classes than trusted policies have, or ''."""
        if entry["mechanism"] != "wasserstein" or not self._policies:
            return ""
        basis = WholeWindow.model_validate_json(entry["basis"])
        for device in charges:
            makers = self._policies.makers((device, entry["stream"]), entry["inputs"], charges[device])
            possible_bases = [
                (counted_symbols(classes, policy.table, question.query.states, ()).hits, classes)
                for policy in makers
                if policy.table is not None
                for classes in [question.classes([policy])]
            ]
            stored_bases = {(count.hits, chain) for count in basis.symbols for chain in count.chains}
            if not any({(hits, chain) for chain in classes} <= stored_bases for hits, classes in possible_bases):
                return f"its noise is not for the table and the class of chains of {device}"
        return ""

    def _charge_problem(self, entry: Mapping[str, Any], charges: Mapping[str, int], inputs: NoisyInputs) -> str:
        """Say why an entry's charges do not fit its noise, or ''.

        Charges of mechanisms that do not compose are checked by `noise_problem`.
        """
        if entry["audience"] == SITE or entry["mechanism"] in ALONE:
            return ""
        spread = float_up(sensitivity(inputs.inputs.tallies) / inputs.own_scale)
        costs = {tally.table: units_above(charge(tally.table, spread)) for tally in inputs.counts}
        for device, device_charge in charges.items():
            if not device_charge:
                continue
            stream = device, entry["stream"]
            own_costs = {
                cost for table, cost in costs.items() if not self._policies or self._policies.has(stream, table)
            }
            # The replay reports an empty set.
            if own_costs and all(abs(device_charge - cost) > cost * TOLERANCE for cost in own_costs):
                return f"{device} is charged {nats(device_charge):.12g}, and its noise {nats(max(own_costs)):.12g}"
        length = entry["last"] - entry["first"] + 1
        for cost in set(costs.values()):
            ticks = sum(tally.ticks for tally in inputs.counts if costs[tally.table] >= cost)
            payers = sum(device_charge >= cost * (1 - TOLERANCE) for device_charge in charges.values())
            if ticks > length * payers:
                return (
                    f"sums {ticks} ticks that cost {nats(cost):.12g} or more, and {payers} devices are charged as much"
                )
        return ""


def _tick_period(frame: ReleaseFrame) -> int:
    """The period of a release's ticks in microseconds, at least 1."""
    return max((unix_us(frame.time) - unix_us(frame.since)) // frame.length, 1)


def _frame_problem(entry: Mapping[str, Any], frame: ReleaseFrame, charges: Mapping[str, int]) -> str:
    """Say why a release contradicts its entry's columns or charges, or ''."""
    columns = ("name", "audience", "stream", "first", "last", "mechanism", "noise", "scale")
    has_columns = all(getattr(frame, column) == entry[column] for column in columns)
    if not has_columns or frame.entry != entry["number"] or frame.devices != len(charges):
        return "holds another release"
    if frame.charge != nats(max(charges.values())):
        return "its release states another charge"
    return noise_problem(entry, frame, max(charges.values()))


def _question_problem(frame: ReleaseFrame, charges: Mapping[str, int], question: Question) -> str:
    """Say why a release does not answer its question, or ''."""
    states = tuple(question.labels[state] for state in question.query.states if 0 <= state < len(question.labels))
    terms = (frame.name, frame.stream, frame.mechanism, frame.length, frame.query, frame.states, frame.confidence)
    asked_terms = (question.name, question.stream, question.mechanism, question.length, question.query.kind, states)
    if terms != (*asked_terms, question.confidence):
        return "is not the answer to its question"
    if unasked_devices := charges.keys() - set(question.devices):
        return f"is about {min(unasked_devices)}, which was not asked for"
    return ""


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
        entry: the number of the entry after which the allowance was in force.
        clock_set: whether the device's clock was ever set.
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
    entry: int = 0
    clock_set: bool = False


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
    exclusive_entry: int = 0
    clock_set: bool = False
    linked_streams: frozenset[Stream] = frozenset()
    moves_together: bool = False
    runs: list[ChargedTicks] = field(default_factory=list)
    disclosures: list[Disclosure] = field(default_factory=list)

    def slice_near(self, first: int, last: int) -> slice:
        """The slice of `runs` that overlap ticks first..last, and perhaps one run before them."""
        begin_index, end_index = (bisect_left(self.runs, tick, key=attrgetter("first")) for tick in (first, last + 1))
        return slice(max(begin_index - 1, 0), end_index)

    def disclose(self, charge: int, runs: list[ChargedTicks], first: int, last: int) -> None:
        """Extend the newest disclosure to ticks first..last, and raise its charge if the new charge is larger.

        The tick of a charge is where `runs` peak, or `first` without runs.
        """
        if self.disclosures:
            newest_disclosure = self.disclosures[-1]
            if charge > newest_disclosure.charge:
                newest_disclosure = newest_disclosure._replace(charge=charge, tick=first_peak(runs, first))
            first = first if newest_disclosure.first < 0 else min(newest_disclosure.first, first)
            self.disclosures[-1] = newest_disclosure._replace(first=first, last=max(newest_disclosure.last, last))

    def note_classes(self, classes: Iterable[tuple[ReleaseClass, int]]) -> None:
        """Add classes, each with a period, to the classes of the newest disclosure."""
        if self.disclosures and (new_classes := list(classes)):
            newest_disclosure = self.disclosures[-1]
            chains = add_classes(newest_disclosure.chains, (chains for chains, _ in new_classes))
            self.disclosures[-1] = newest_disclosure._replace(
                chains=chains, period_us=min(newest_disclosure.period_us, *(period_us for _, period_us in new_classes))
            )

    def history(self) -> list[Disclosure]:
        """List a disclosure for each allowance that had releases; `runs` are set if nothing else counts."""
        disclosures = [result._replace(clock_set=self.clock_set) for result in self.disclosures if result.charge >= 0]
        if len(disclosures) == 1 and not (disclosures[0].base or self.moves_together or self.clock_set):
            return [disclosures[0]._replace(runs=tuple(self.runs))]
        return disclosures


def verify(
    ledger: Ledger, payloads: Mapping[int, bytes] | None = None, policies: TrustedPolicies | None = None
) -> Audit:
    """Compute a ledger's charges and releases again. A charge above a later, lower allowance is no problem.

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
    replay = _Replay(rows, policies)
    for expected_number, entry in enumerate(rows.entries(), start=1):
        replay.apply_entry(entry, expected_number)
    replay.compare(rows)
    for entry_number, payload in payloads.items():
        if rows.payload(entry_number) != payload:
            replay.problems.append(f"entry {entry_number}: is not what was published")
    histories = tuple(version for account in replay.accounts.values() for version in account.history())
    return Audit(rows.entry_count(), len(replay.accounts), tuple(replay.problems), histories)


class _Replay:
    """The accounts of a ledger, by number, at the entry that the replay has reached, and problems, a line each."""

    def __init__(self, rows: LedgerRows, policies: TrustedPolicies) -> None:
        self.accounts = {row[0]: _Account(AccountKey(*row[1:4]), row[6]) for row in rows.accounts()}
        self.problems: list[str] = []
        self._policies = policies
        self._by_key = {account.key: account for account in self.accounts.values()}
        self._members = _read_members(rows)
        self._group_names: dict[Stream, str] = {}
        self._group_changes: dict[int, dict[Stream, str]] = defaultdict(dict)
        for after_entry, device, stream, group_name in rows.group_changes():
            self._group_changes[after_entry][device, stream] = group_name
        self._allowances: dict[int, list[list[Any]]] = defaultdict(list)
        for after_entry, *allowance in rows.allowances():
            self._allowances[after_entry].append(allowance)
        self._old_classes: dict[Stream, list[tuple[int, ReleaseClass, int]]] = defaultdict(list)
        for device, stream, chains, period_us, after_entry in rows.outlived_classes():
            self._old_classes[device, stream] += [(after_entry, chain, period_us) for chain in readable_classes(chains)]
        self._apply_changes(0)

    def apply_entry(self, entry: Mapping[str, Any], expected_number: int) -> None:
        """Charge the next entry, and apply the changes that were recorded after it."""
        number = entry["number"]
        if number != expected_number and not self.problems:
            self.problems.append(f"entry {expected_number}: is missing")
        self.problems += [f"entry {number}: {problem}" for problem in self._entry_problems(entry)]
        self._apply_changes(number)

    def _entry_problems(self, entry: Mapping[str, Any]) -> Iterator[str]:
        """Charge the devices of an entry. Yield its problems."""
        members = self._members[entry["in_group"]]
        if not members:
            yield "has no devices"
        charges = [device_charge for device_charge, _ in members.values()]
        if problem := uncharged_problem(entry["audience"], entry["topic"], charges, entry["noise"]):
            yield problem
        for device, (device_charge, shift) in members.items():
            if device_charge == 0 and not entry["reason"]:
                yield "charges nothing and does not say why"
            if device_charge == 0 and entry["audience"] == SITE:
                continue
            key = AccountKey(device, entry["stream"], entry["audience"])
            if key not in self._by_key:
                yield f"{key}: has no account"
                continue
            yield from (f"{key}: {problem}" for problem in self._charge(self._by_key[key], entry, device_charge, shift))

    def _charge(self, account: _Account, entry: Mapping[str, Any], device_charge: int, shift: int) -> Iterator[str]:
        """Charge an account for an entry; `shift` is how far the device's tick numbers are ahead. Yield problems."""
        first, last, number = entry["first"] + shift, entry["last"] + shift, entry["number"]
        streams = self._sharing_streams(account.key)
        keys = (AccountKey(*stream, account.key.audience) for stream in sorted(streams - {account.key[:2]}))
        accounts = [account, *(self._by_key[key] for key in keys if key in self._by_key)]
        if account.mechanism != entry["mechanism"]:
            yield "is charged by another mechanism than its account"
        if not account.linked_streams <= streams:
            yield f"is not charged with {together_name(account.linked_streams)}"
        if any(member.exclusive_entry for member in accounts) or (
            entry["exclusive"] and (account.base or any(member.runs for member in accounts))
        ):
            yield "does not compose with another release"
        if device_charge:
            run_slice = account.slice_near(first, last + 1)
            account.runs[run_slice] = sum_charges([*account.runs[run_slice], ChargedTicks(first, last, device_charge)])
        elif not account.base:
            yield "its device releases no windows"
        account.exclusive_entry = number if entry["exclusive"] else account.exclusive_entry
        account.clock_set |= device_charge > 0 and shift != 0
        account.moves_together |= len(accounts) > 1
        runs = [run for member in accounts for run in _charges_at(member, first, last, shift, account.key.device)]
        tick_charge = peak(runs) + account.base
        account.disclose(tick_charge, runs, first, last)
        if problem := _period_problem(account, entry["payload"]):
            yield problem
        old_classes = [old_classes for stream in streams for old_classes in self._old_classes.get(stream, ())]
        account.note_classes((chain, period) for after_entry, chain, period in old_classes if number > after_entry)
        if self._policies and (problem := _note_makers(account, self._policies, entry["inputs"], device_charge)):
            yield problem
        if tick_charge > account.allowance:
            excess = f"{nats(tick_charge):.12g} of {nats(account.allowance):.12g} allowed"
            yield f"ticks {first}..{last} reached {excess}"

    def _sharing_streams(self, key: AccountKey) -> set[Stream]:
        """The streams that share charges with a key's stream, and that stream itself."""
        group_name = self._group_names.get(key[:2])
        return {key[:2]} | {stream for stream, other_name in self._group_names.items() if other_name == group_name}

    def _apply_changes(self, entry_number: int) -> None:
        """Apply the changes of groups and of allowances that were recorded after an entry."""
        self._group_names |= self._group_changes.pop(entry_number, {})
        allowances = self._allowances.pop(entry_number, [])
        for account_number, allowance, base, mechanism, epsilon, adversary, seconds, period_us, chains in allowances:
            if (account := self.accounts.get(account_number)) is None:
                continue
            account.allowance, account.base = allowance, base
            account.linked_streams = charged_streams(chains, account.key.device)
            promise = Promise(epsilon, adversary, seconds)
            account.disclosures.append(
                Disclosure(account.key, mechanism, promise, period_us, chains, base, -1, -1, (), entry=entry_number)
            )
            problem = allowance_problem(allowance, mechanism, promise, period_us, chains)
            if mechanism != account.mechanism:
                problem = f"its mechanism was {mechanism} and is {account.mechanism}"
            self.problems += [f"{account.key}: {problem}"] if problem else []
            written_classes = {chain for chain in readable_classes(chains) if not isinstance(chain, ListedChains)}
            if self._policies and written_classes - self._policies.classes({account.key[:2], *account.linked_streams}):
                self.problems.append(
                    f"{account.key}: its allowance is for a class of chains of no policy that was given"
                )

    def compare(self, rows: LedgerRows) -> None:
        """Compare the ledger's accounts and charges with the replayed ones."""
        stored_runs: dict[int, list[ChargedTicks]] = defaultdict(list)
        for account_number, *run in rows.runs():
            stored_runs[account_number].append(ChargedTicks(*run))
        for account_number, *_, allowance, base, _, exclusive_entry, shifted in rows.accounts():
            account = self.accounts[account_number]
            contradictions = {
                "its charges are not those of its entries": stored_runs.pop(account_number, []) != account.runs,
                "its allowance is not the last one recorded": (allowance, base) != (account.allowance, account.base),
                "whether its device's clock was set is not what its entries say": bool(shifted) != account.clock_set,
                "its exclusive release is not that of its entries": exclusive_entry != account.exclusive_entry,
            }
            self.problems += [f"{account.key}: {problem}" for problem, is_wrong in contradictions.items() if is_wrong]
        self.problems += [f"account {account_number}: has charges and does not exist" for account_number in stored_runs]


def _period_problem(account: _Account, payload: bytes) -> str:
    """Say why a release's ticks are shorter than the ticks for which its account's allowance was computed, or ''."""
    if not account.disclosures or not account.disclosures[-1].promise.seconds or not payload:
        return ""
    try:
        period = _tick_period(ReleaseFrame.decode(payload))
    except FrameError:  # `content_problems` says so
        return ""
    if period >= account.disclosures[-1].period_us:
        return ""
    return f"its ticks are of {period} us, and its allowance is for ticks of {account.disclosures[-1].period_us} us"


def _note_makers(account: _Account, policies: TrustedPolicies, inputs_json: str, charge: int) -> str:
    """Add the classes of the policies that made an entry's counts to the account's newest disclosure.

    Return the reason why no policy can have made them, or why the base is too small for those, else ''.
    """
    stream = account.key[:2]
    makers = policies.makers(stream, inputs_json, charge)
    if not makers:
        policy_kind = "of the table that was counted" if charge else "that releases windows"
        return f"no policy of {account.key.device}/{account.key.stream} {policy_kind} was given"
    account.note_classes((policy.chains, policy.clock.period_us) for policy in makers)
    return policies.base_problem(stream, makers, account.base)


def _charges_at(account: _Account, first: int, last: int, shift: int, device: str) -> list[ChargedTicks]:
    """List an account's charges at a device's ticks first..last; `other_charges` gives those of another device."""
    if account.key.device == device:
        return clip(account.runs[account.slice_near(first, last)], first, last)
    return other_charges(account.runs, first, last, None if account.clock_set else shift)
