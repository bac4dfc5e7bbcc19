"""The audit of a ledger: bounds from its entries on what every audience and reader has learned of any stretch.

`gateway.releases.audit` replays charges. The chain accountant or quilts bound the loss by them. Every charged tick
counts as much as the most charged tick. If ticks are not numbered, the bound is for endlessly many of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.dating import SLACK, first_quiet_tick
from fugu.contract.history import History
from fugu.contract.losses import Adversary, float_up
from fugu.contract.policies import AnyPolicy
from fugu.contract.windows import ALONE, Mechanism, has_bound
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.accountant import known_chains
from fugu.privacy.accountant.bounded import stretch_losses
from fugu.privacy.chain_class import ChainClassError, MarkovChain, ReleaseClass, mechanism_chains
from fugu.privacy.quilts import corner_chains, quilt_accountant, quilt_rate_loss
from gateway.deployment.broker_files import BrokerFolder
from gateway.deployment.mosquitto import Account
from gateway.releases.allowance import charged_streams, classes_of, joint_loss
from gateway.releases.audit import Disclosure, TrustedPolicies, verify
from gateway.releases.charges import PER_NAT, units_below
from gateway.releases.entries import AccountKey, Promise, Stream, together_name
from gateway.releases.ledger import Ledger

__all__ = ["LedgerAudit", "ReaderLoss", "StreamLoss", "audit_ledger", "stream_loss"]

Histories = Callable[[str, str], History]
"""A function that returns the history of a stream's ticks for a device and a stream."""
_MAX_TICKS = 4096
"""The most ticks that are accounted for one by one."""
_UNSOUND = (ArithmeticError, ChainClassError, ValueError)
"""Errors of classes without a bound, or of an unsound ledger, whose allowances `verify` reports."""


class StreamLoss(NamedTuple):
    """Loss to an audience about the worst stretch of a stream, in nats; epsilon is an upper bound or `None`.

    `ticks` is the length of a stretch of the promise. `charge` is the largest charge of a tick, in units of
    `gateway.releases.charges`; `tick` is the device's number of that tick. `by` names the bound: "every tick",
    "constant charge" or "one release".
    """

    key: AccountKey
    mechanism: str
    promise: Promise
    ticks: int
    epsilon: float | None
    charge: int
    tick: int
    by: str

    @property
    def wrong(self) -> bool:
        """True if the loss is above the promise, or not known to be below."""
        return self.epsilon is None or self.epsilon > self.promise.epsilon


class ReaderLoss(NamedTuple):
    """Loss in nats to an account at the broker about a stream, through all audiences that the account ever had.

    `epsilon` is an upper bound, `None` if there is none. Streams that move together are named as one, as in
    `gateway.releases.entries`.
    """

    reader: str
    device: str
    stream: str
    audiences: tuple[str, ...]
    limit: Promise
    epsilon: float | None

    @property
    def wrong(self) -> bool:
        """True if the loss is above the account's limit, or not known to be below."""
        return self.epsilon is None or self.epsilon > self.limit.epsilon


class LedgerAudit(NamedTuple):
    """Result of an audit: numbers of entries and accounts, the worst loss of each stream and reader, and problems.

    `readers` is empty without the broker's folder. `sources` has a line about the origin of each kind of input.
    """

    entries: int
    accounts: int
    streams: tuple[StreamLoss, ...]
    readers: tuple[ReaderLoss, ...]
    problems: tuple[str, ...]
    sources: tuple[str, ...]


def audit_ledger(
    ledger: Ledger,
    broker: Path | None = None,
    policies: Iterable[AnyPolicy] = (),
    promises: Mapping[str, Promise] | None = None,
    history: Histories | None = None,
) -> LedgerAudit:
    """Recompute the worst epsilon of every stretch from the entries of a ledger. FuguError if a file cannot be read.

    Args:
        ledger: the ledger to audit.
        broker: the broker's folder, which says which accounts read which audiences; `None` to leave accounts out.
        policies: every version that was in force, from a source other than the ledger. Without any, the ledger's own
            classes of chains, noise tables and windows are used.
        promises: the promise to each audience; `None` for the ledger's promises.
        history: the ticks of a device's stream in its gateway's store. Without it, the number of ticks between a looser
            and a stricter policy is unknown.
    """
    accounts = BrokerFolder.open(broker).settings.accounts if broker is not None else ()
    trusted_policies = TrustedPolicies(policies)
    audit = verify(ledger, policies=trusted_policies)
    disclosures: dict[AccountKey, list[Disclosure]] = defaultdict(list)
    for disclosure in audit.disclosures:
        promise = (promises or {}).get(disclosure.key.audience, disclosure.promise)
        disclosures[disclosure.key].append(disclosure._replace(promise=promise))
    groups, streams = _stream_groups(audit.disclosures), list[StreamLoss]()
    all_charges: list[tuple[Disclosure, bool]] = []
    for key, stream_disclosures in sorted(disclosures.items()):
        moving_keys = (AccountKey(*stream, key.audience) for stream in groups[key[:2]])
        moving_disclosures = [other for moving_key in moving_keys for other in disclosures.get(moving_key, ())]
        raised_charges = [_raised_charge(disclosure, moving_disclosures, history) for disclosure in stream_disclosures]
        losses = ((stream_loss(disclosure), leaks) for disclosure, leaks in raised_charges)
        final_losses = (loss._replace(epsilon=_with_slack(loss.epsilon, loss.promise, leaks)) for loss, leaks in losses)
        streams.append(max(final_losses, key=_epsilon_excess))
        all_charges += raised_charges
    readers = tuple(_reader_losses(accounts, all_charges))
    broken_promises = [] if promises is None else sorted(set(_promise_problems(audit.disclosures, promises)))
    problems = (*audit.problems, *broken_promises, *(_stream_problem(stream) for stream in streams if stream.wrong))
    problems += tuple(_reader_problem(reader) for reader in readers if reader.wrong)
    auditor_words, ledger_words = "from what the auditor gave", "by the ledger alone"
    sources = (
        f"classes of chains, noise tables and windows: {auditor_words if trusted_policies else ledger_words}",
        f"what audiences are promised: {ledger_words if promises is None else auditor_words}",
        f"which ticks were released, sums and noise: {ledger_words}",
        f"which ticks were drawn: {'from the store' if history is not None else 'nothing was given'}",
    )
    return LedgerAudit(audit.entries, audit.accounts, tuple(streams), readers, problems, sources)


def _promise_problems(disclosures: Iterable[Disclosure], promises: Mapping[str, Promise]) -> Iterator[str]:
    for disclosure in disclosures:
        audience = disclosure.key.audience
        promise = promises.get(audience)
        if promise is None:
            yield f"audience {audience}: nothing is promised to it, and it was told of streams"
        elif promise != disclosure.promise:
            yield f"audience {audience}: is promised {promise}, and the ledger says {disclosure.promise}"


def _epsilon_excess(loss: StreamLoss) -> float:
    return math.inf if loss.epsilon is None else loss.epsilon - loss.promise.epsilon


def _stream_problem(loss: StreamLoss) -> str:
    stretch_words = f"tick {loss.tick}" if loss.ticks == 1 else f"{loss.ticks} ticks in a row, with tick {loss.tick},"
    epsilons = f"{_epsilon_text(loss.epsilon)}, and {loss.promise.epsilon:.10g} is promised"
    return f"{loss.key}: {stretch_words} may have lost {epsilons}"


def _reader_problem(loss: ReaderLoss) -> str:
    return (
        f"account {loss.reader}: may have been told {_epsilon_text(loss.epsilon)} about {loss.device}/{loss.stream} by "
        f"the audiences {', '.join(loss.audiences)} together, and its limit is {loss.limit}"
    )


def _epsilon_text(epsilon: float | None) -> str:
    return "without bound" if epsilon is None else f"{epsilon:.10g}"


def _raised_charge(
    disclosure: Disclosure, group: Sequence[Disclosure], history: Histories | None
) -> tuple[Disclosure, bool]:
    """Return a disclosure with its bounding charge, and whether earlier louder ticks add a slack.

    `group` has all disclosures to the audience about the stream and streams that move with it. Louder ticks, those with
    a larger charge, leak over a change of allowance. The charge of later louder ticks is taken for all ticks, as no
    release waits for them. So is the charge of earlier louder ticks that are not known to be far enough away.
    """
    max_charge = max(other.charge for other in group if other.entry >= disclosure.entry)
    result = disclosure if max_charge == disclosure.charge else disclosure._replace(charge=max_charge, runs=())
    louder_disclosures = [other for other in group if other.entry < result.entry and other.charge > result.charge]
    if not louder_disclosures:
        return result, False
    if result.mechanism == "chain" and history is not None and _is_far_enough(result, louder_disclosures, history):
        return result, True
    return result._replace(charge=max(other.charge for other in louder_disclosures), runs=()), False


def _is_far_enough(disclosure: Disclosure, others: Sequence[Disclosure], history: Histories) -> bool:
    if any(other.key.device != disclosure.key.device and (other.clock_set or disclosure.clock_set) for other in others):
        return False  # nobody knows which tick numbers are simultaneous
    excess = Fraction(max(other.charge for other in others) - disclosure.charge, PER_NAT)
    slack, last_louder = SLACK * Fraction(disclosure.promise.epsilon), max(other.last for other in others)
    try:
        classes = classes_of(disclosure.chains)
    except ValueError:  # `verify` reports the allowance
        return False
    worst_odds = [chains.worst_odds for chains in classes]
    quiet_tick = first_quiet_tick(history(*disclosure.key[:2]), worst_odds, last_louder, excess, slack)
    return quiet_tick is not None and quiet_tick <= disclosure.first


def _with_slack(epsilon: float | None, promise: Promise, has_leak: bool) -> float | None:
    if not has_leak or epsilon is None:
        return epsilon
    return float_up(Fraction(epsilon) + SLACK * Fraction(promise.epsilon))


def stream_loss(disclosure: Disclosure) -> StreamLoss:
    """Return the loss of a stream to one audience, from the charges in a ledger."""
    promise, ticks = disclosure.promise, disclosure.promise.ticks(disclosure.period_us)
    loss = StreamLoss(*disclosure[:2], promise, ticks, None, disclosure.charge, disclosure.tick, "constant charge")
    try:
        if disclosure.mechanism in ALONE:
            is_within = ticks == 1 and disclosure.charge <= units_below(promise.epsilon)
            return loss._replace(epsilon=promise.epsilon if is_within else None, by="one release")
        classes, adversary = classes_of(disclosure.chains), promise.adversary
        constant_loss = max(
            _constant_loss(member, disclosure.mechanism, adversary, disclosure.charge, ticks) for member in classes
        )
        loss = loss._replace(epsilon=constant_loss if math.isfinite(constant_loss) else None)
    except _UNSOUND:
        return loss
    ticks_charged = sum(run.last - run.first + 1 for run in disclosure.runs)
    if 0 < ticks_charged <= _MAX_TICKS:
        max_charge = max(run.charge for run in disclosure.runs)
        try:
            if ticks == 1:
                epsilon = max(
                    _tick_loss(member, disclosure.mechanism, adversary, max_charge, ticks_charged) for member in classes
                )
            else:
                epsilon = max(_stretch_loss(member, max_charge, ticks_charged, ticks) for member in classes)
        except _UNSOUND:
            return loss
        if epsilon <= constant_loss:
            return loss._replace(epsilon=epsilon, by="every tick")
    return loss


@lru_cache(maxsize=1024)
def _constant_loss(chains: ReleaseClass, mechanism: str, adversary: Adversary, charge: int, ticks: int) -> float:
    """Return the loss of `ticks` ticks in a row of an endless stream with one charge, by a mechanism's rule."""
    if mechanism == "chain":
        return joint_loss(chains, charge, adversary, ticks)
    if ticks > 1:
        raise ChainClassError(f"{mechanism} has no bound for {ticks} ticks in a row")
    if not has_bound(cast(Mechanism, mechanism), adversary):
        raise ChainClassError(f"{mechanism} has no bound against the {adversary} adversary")
    return quilt_rate_loss(_corners(chains), float_up(Fraction(charge, PER_NAT)))


@lru_cache(maxsize=1024)
def _tick_loss(chains: ReleaseClass, mechanism: str, adversary: Adversary, charge: int, tick_count: int) -> float:
    """Bound the loss of a tick of a stream in which `tick_count` ticks are charged, each at most `charge`.

    The order in which the device drew these ticks is unknown: a clock that was set skips numbers. So each counts as the
    most charged tick. An informed adversary may also know states outside these ticks, so the bound against any side
    information is used. Uncharged ticks between them only shrink three bounds: by odds ratios, by quilts, and for two
    sticky states. In other chains they may turn one secret into another.
    """
    rates = _rates(charge, tick_count)
    if mechanism == "chain":
        accountant = ChainAccountant(mechanism_chains(chains))
        is_sticky = adversary == "ignorant" and accountant.sticky
        return accountant.schedule_loss(rates, "ignorant" if is_sticky else "universal").epsilon
    return float(quilt_accountant(_corners(chains), rates).max())


@lru_cache(maxsize=1024)
def _stretch_loss(chains: ReleaseClass, charge: int, tick_count: int, ticks: int) -> float:
    """Bound the loss of `ticks` ticks in a row among `tick_count` charged ticks by odds ratios, for every adversary."""
    odds = chains.worst_odds
    return float(stretch_losses(math.inf if odds is None else float_up(odds), _rates(charge, tick_count), ticks).max())


def _rates(charge: int, tick_count: int) -> Floats:
    return np.full(tick_count, float_up(Fraction(charge, PER_NAT)))


def _corners(chains: ReleaseClass) -> tuple[MarkovChain, ...]:
    return corner_chains(known_chains(mechanism_chains(chains)))


def _reader_losses(accounts: Iterable[Account], disclosures: Sequence[tuple[Disclosure, bool]]) -> Iterator[ReaderLoss]:
    """Yield the losses to all accounts with a limit, through all audiences that the accounts ever had.

    Each disclosure has a flag: louder ticks leak into it, which adds a slack. Streams that move together count as one,
    whichever of them an audience was told about.
    """
    groups = _stream_groups(disclosure for disclosure, _ in disclosures)
    for account in accounts:
        if account.epsilon is None or account.adversary is None:
            continue
        limit = Promise(account.epsilon, account.adversary, account.seconds)
        streams: dict[str, list[tuple[Disclosure, bool]]] = defaultdict(list)
        for disclosure, has_leak in disclosures:
            if disclosure.key.audience in account.all_audiences:
                streams[together_name(groups[disclosure.key[:2]])].append((disclosure, has_leak))
        for group_name, flagged_disclosures in sorted(streams.items()):
            stream_disclosures, leak_flags = zip(*flagged_disclosures, strict=True)
            device, _, stream = group_name.partition("/")
            audiences = tuple(sorted({disclosure.key.audience for disclosure in stream_disclosures}))
            epsilon = _with_slack(_joint_loss(stream_disclosures, limit), limit, any(leak_flags))
            yield ReaderLoss(account.name, device, stream, audiences, limit, epsilon)


def _stream_groups(disclosures: Iterable[Disclosure]) -> dict[Stream, frozenset[Stream]]:
    """Group the streams that move together by any class of a disclosure; return each stream's group."""
    streams: dict[Stream, frozenset[Stream]] = {}
    for disclosure in disclosures:
        stream = disclosure.key[:2]
        members = (stream, *charged_streams(disclosure.chains, disclosure.key.device))
        group = frozenset().union(*(streams.get(member, {member}) for member in members))
        streams |= dict.fromkeys(group, group)
    return streams


def _joint_loss(disclosures: Sequence[Disclosure], limit: Promise) -> float | None:
    """Bound the loss of a stream to a reader of several audiences; `None` without a bound.

    Each class is charged for the disclosures that name it: the sum over audiences of the largest charge of any tick. A
    ledger account's charges already count streams that move together with its stream. What devices themselves release
    to all audiences counts once. A stretch has the limit's seconds, at the shortest period of any disclosure.
    """
    adversary, ticks = limit.adversary, max(limit.ticks(disclosure.period_us) for disclosure in disclosures)
    if any(disclosure.mechanism in ALONE for disclosure in disclosures):
        loss = stream_loss(disclosures[0])
        is_composed = len(disclosures) == ticks == 1 and has_bound(cast(Mechanism, disclosures[0].mechanism), adversary)
        return loss.epsilon if is_composed else None
    disclosures_by_class: dict[ReleaseClass, list[Disclosure]] = defaultdict(list)
    try:
        for disclosure in disclosures:
            for chains in classes_of(disclosure.chains):
                disclosures_by_class[chains].append(disclosure)
        epsilon = max(
            joint_loss(chains, _joint_charge(class_disclosures), adversary, ticks)
            for chains, class_disclosures in disclosures_by_class.items()
        )
        return epsilon if math.isfinite(epsilon) else None
    except _UNSOUND:
        return None


def _joint_charge(disclosures: Iterable[Disclosure]) -> int:
    charges: dict[str, int] = defaultdict(int)
    max_base = 0
    for disclosure in disclosures:
        charges[disclosure.key.audience] = max(charges[disclosure.key.audience], disclosure.charge - disclosure.base)
        max_base = max(max_base, disclosure.base)
    return sum(charges.values()) + max_base
