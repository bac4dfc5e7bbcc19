"""The audit of a ledger: everything is computed once more from its entries, and compared with what it says.

Entries and changes of allowances are replayed in the order in which they happened, with `charges.overlay` on lists in
memory, so that each release is held against the allowance that was in force when it was made. Allowances are computed
again by the rule of the account's mechanism; what was published, by `gateway.releases.contents`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from gateway.releases.allowance import allowance_problem, classes_written, streams_charged, with_classes
from gateway.releases.charges import (
    ChargedTicks,
    Stream,
    beside,
    clipped,
    first_peak,
    nats,
    overlay,
    peak_of_sum,
    together_name,
)
from gateway.releases.contents import TrustedPolicies, content_problems
from gateway.releases.entries import SITE, Key, LedgerRows, uncharged
from gateway.releases.ledger import Ledger

__all__ = ["Audit", "Told", "replayed", "verify"]

_Row = tuple[Any, ...]


class Told(NamedTuple):
    """The most that an audience was told of a tick of a stream while an allowance was in force, by the entries alone.

    Attributes:
        mechanism, epsilon, adversary, chains: of the promise; the classes of chains as JSON, with those of the trusted
            policies that made what was told.
        base: standing charge of every tick.
        charge: of the tick that was charged most by then, with the base and the streams that move together with it.
        tick: the first such, as the device numbers it.
        runs: all charges of the account, if nothing else counts for it: no base, no other stream, no other allowance
            that anything was told under, no clock that was set. Else none.
    """

    key: Key
    mechanism: str
    epsilon: float
    adversary: str
    chains: str
    base: int
    charge: int
    tick: int
    runs: tuple[ChargedTicks, ...]


class Audit(NamedTuple):
    """The outcome.

    Attributes:
        entries, accounts: how much was looked at.
        problems: in words, one line each, none if all is well.
        told: by account and allowance, those first that were in force first.
    """

    entries: int
    accounts: int
    problems: tuple[str, ...]
    told: tuple[Told, ...] = ()


@dataclass
class _Account:
    """An account as the replay has it."""

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
    told: list[Told] = field(default_factory=list)

    def near(self, first: int, last: int) -> slice:
        """The runs that overlap the ticks, and perhaps one more before them."""
        low, high = (bisect_left(self.runs, tick, key=attrgetter("first")) for tick in (first, last + 1))
        return slice(max(low - 1, 0), high)

    def reach(self, charge: int, near: list[ChargedTicks], first: int) -> None:
        """Note what ticks have reached."""
        if self.told and charge > self.told[-1].charge:
            self.told[-1] = self.told[-1]._replace(charge=charge, tick=first_peak(near, first))

    def history(self) -> list[Told]:
        """The releases under each allowance, with all charges if there is nothing else."""
        told = [one for one in self.told if one.charge >= 0]
        if len(told) == 1 and not (told[0].base or self.together or self.shifted):
            return [told[0]._replace(runs=tuple(self.runs))]
        return told


def verify(
    ledger: Ledger, published: Mapping[int, bytes] | None = None, policies: TrustedPolicies | None = None
) -> Audit:
    """Recompute a ledger, charges and what was published.

    Args:
        ledger: an open ledger.
        published: releases that were seen, as entry number and bytes; each must be in the ledger as it was published.
        policies: what to hold classes, tables and windows against; if empty, the ledger alone vouches for them.

    Returns:
        What does not agree. Ticks above an allowance that was lowered later are no problem.
    """
    with ledger.snapshot() as rows:
        trusted = policies or TrustedPolicies()
        found = replayed(rows, published or {}, trusted)
        return found._replace(problems=(*found.problems, *content_problems(rows, trusted)))


def replayed(rows: LedgerRows, published: Mapping[int, bytes], policies: TrustedPolicies | None = None) -> Audit:
    """What does not agree in who was charged what: nothing is computed from sums and noise."""
    accounts = {row[0]: _Account(row[0], Key(*row[1:4]), row[6]) for row in rows.accounts()}
    problems = _replay(rows, accounts, policies or TrustedPolicies())
    problems += _compare(rows, accounts)
    for number, payload in published.items():
        if rows.payload(number) != payload:
            problems.append(f"entry {number}: is not what was published")
    told = tuple(one for account in accounts.values() for one in account.history())
    return Audit(rows.entry_count(), len(accounts), tuple(problems), told)


def _replay(rows: LedgerRows, accounts: dict[int, _Account], policies: TrustedPolicies) -> list[str]:
    problems: list[str] = []
    changes: dict[int, list[_Row]] = defaultdict(list)
    for after, *change in rows.allowances():
        changes[after].append(tuple(change))
    by_key = {account.key: account for account in accounts.values()}
    members: dict[int, dict[str, int]] = defaultdict(dict)
    shifts: dict[tuple[int, str], int] = {}
    for group, device, charge, shift in rows.members():
        members[group][device] = charge
        shifts[group, device] = shift
    together = _Together(rows, accounts.values())
    together.change(0)
    problems += _change(accounts, changes.pop(0, []), policies)
    for expected, row in enumerate(rows.entries(), start=1):
        number, audience, stream = (row[k] for k in ("number", "audience", "stream"))
        exclusive = row["exclusive"]
        if number != expected and not problems:
            problems.append(f"entry {expected}: is missing")
        charges = members[row["in_group"]]
        problems += [] if charges else [f"entry {number}: has no devices"]
        if problem := uncharged(audience, row["topic"], charges.values(), row["noise"]):
            problems.append(f"entry {number}: {problem}")
        for device, charge in charges.items():
            shift = shifts[row["in_group"], device]
            first, last = row["first"] + shift, row["last"] + shift
            if charge == 0:
                problems += [] if row["reason"] else [f"entry {number}: charges nothing and does not say why"]
            if charge == 0 and audience == SITE:
                continue
            account = by_key.get(Key(device, stream, audience))
            if account is None:
                problems.append(f"entry {number}: {device}/{stream}, audience {audience}: has no account")
                continue
            if account.mechanism != row["mechanism"]:
                problems.append(f"entry {number}: {account.key}: is charged by another mechanism than its account")
            every = (account, *together.beside(account.key))
            if not account.named <= {one.key[:2] for one in every} | together.members(account.key):
                problems.append(f"entry {number}: {account.key}: is not charged with {together_name(account.named)}")
            if any(one.exclusive for one in every) or (exclusive and (account.base or any(one.runs for one in every))):
                problems.append(f"entry {number}: {account.key}: does not compose with another release")
            if charge:
                touching = account.near(first, last + 1)
                account.runs[touching] = overlay(account.runs[touching], first, last, charge)
            elif not account.base:
                problems.append(f"entry {number}: {account.key}: its device releases no windows")
            account.exclusive = number if exclusive else account.exclusive
            account.shifted |= charge > 0 and shift != 0
            account.together |= len(every) > 1
            near = [run for one in every for run in _told(one, first, last, shift, account.key.device)]
            reached = peak_of_sum(near) + account.base
            account.reach(reached, near, first)
            if policies and (problem := _made_by(account, policies, row["inputs"], charge)):
                problems.append(f"entry {number}: {account.key}: {problem}")
            if reached > account.allowance:
                allowed = f"{nats(reached):.12g} of {nats(account.allowance):.12g} allowed"
                problems.append(f"entry {number}: {account.key}: ticks {first}..{last} reached {allowed}")
        together.change(number)
        problems += _change(accounts, changes.pop(number, []), policies)
    return problems


def _made_by(account: _Account, policies: TrustedPolicies, inputs: str, charge: int) -> str:
    """Hold what was told under the classes of the policies that made it; why none of them can have, or not so."""
    own = account.key[:2]
    makers = policies.makers(own, inputs, charge)
    if not makers:
        what = "of the table that was counted" if charge else "that releases windows"
        return f"no policy of {account.key.device}/{account.key.stream} {what} was given"
    if account.told:
        told = account.told[-1]
        account.told[-1] = told._replace(chains=with_classes(told.chains, (policy.chains for policy in makers)))
    return policies.base_problem(own, makers, account.base)


def _told(one: _Account, first: int, last: int, shift: int, device: str) -> list[ChargedTicks]:
    """What an account is charged at ticks of a device; of another device by wall time, as far as that is known."""
    if one.key.device == device:
        return clipped(one.runs[one.near(first, last)], first, last)
    return beside(one.runs, first, last, None if one.shifted else shift)


class _Together:
    """Which accounts are charged together, as the replay goes on."""

    def __init__(self, rows: LedgerRows, accounts: Iterable[_Account]) -> None:
        self._changes: dict[int, list[tuple[Stream, str]]] = defaultdict(list)
        for after, device, stream, name in rows.together():
            self._changes[after].append(((device, stream), name))
        self._names: dict[Stream, str] = {}
        self._accounts = {account.key: account for account in accounts}

    def change(self, number: int) -> None:
        """Follow what was recorded after an entry."""
        self._names |= dict(self._changes.pop(number, []))

    def members(self, key: Key) -> set[Stream]:
        """The streams that one is charged with, and itself."""
        own = (key.device, key.stream)
        name = self._names.get(own)
        return {own} | {stream for stream, other in self._names.items() if other == name}

    def beside(self, key: Key) -> list[_Account]:
        """The other accounts of the audience that an account is charged with."""
        keys = [Key(*stream, key.audience) for stream in sorted(self.members(key) - {(key.device, key.stream)})]
        return [self._accounts[one] for one in keys if one in self._accounts]


def _change(accounts: dict[int, _Account], changes: list[_Row], policies: TrustedPolicies) -> list[str]:
    problems = []
    for number, allowance, base, mechanism, *promise in changes:
        if number in accounts:
            account = accounts[number]
            account.allowance, account.base = allowance, base
            problem = allowance_problem(allowance, mechanism, *promise)
            account.named = streams_charged(promise[-1], account.key.device)
            epsilon, adversary, chains = promise
            account.told.append(Told(account.key, mechanism, epsilon, adversary, chains, base, -1, -1, ()))
            if mechanism != account.mechanism:
                problem = f"its mechanism was {mechanism} and is {account.mechanism}"
            problems += [f"{account.key}: {problem}"] if problem else []
            if policies and set(classes_written(chains)) - policies.classes({account.key[:2], *account.named}):
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
