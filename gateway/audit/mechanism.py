"""The mechanism that is attacked: streams that one chain drives, their counts, and the worst chains of their class.

Audiences are promised an epsilon for a whole class of chains, so an attack on one of its chains refutes the promise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

import numpy as np

from fugu.attackers.mechanisms import Counted, Mechanism, Source
from fugu.chains.arrays import Floats
from fugu.contract.chains import ChainClass
from fugu.contract.errors import FuguError, GuaranteeError
from fugu.contract.guarantee import tick_ratios
from fugu.contract.losses import Adversary, exp_up, log_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.windows import ALONE
from fugu.privacy.chain_class import MarkovChain
from gateway.releases.allowance import (
    WholeWindow,
    allowance,
    charge,
    counted_symbols,
    smallest_scale,
    window_sensitivity,
)
from gateway.releases.charges import units_above
from gateway.releases.config import ReleaseConfig, ScheduledRelease
from gateway.releases.jobs import answer_rows, release_window
from gateway.releases.statistics import Query, two_valued_weights

__all__ = [
    "Definition",
    "JointStreams",
    "certified_epsilon",
    "gateway_releases",
    "mechanism_of",
    "windows",
    "worst_chains",
]


class Definition(NamedTuple):
    """Noisy counts of windows; window n covers `length` ticks from start + n * stride on.

    Attributes:
        kind: "window" of the device, "sum" over homes of which all others are known, or "release" of the gateway.
        name: the name of the window, sum or release.
        groups: for each count the states that it counts, or symbols (if `of_symbols`); each count has noise of its own.
        terms: the number of noises that are added to each count.
        consecutive: whether pairs of consecutive symbols z, z' are counted, as z m + z'.
        is_exclusive: whether the only window takes all of its audience's epsilon, and composes with nothing.
        part: suffix of the names of noises, if a release is made of several definitions.
        source: index of the policy that is counted.
    """

    kind: str
    name: str
    start: int
    length: int
    stride: int
    groups: tuple[tuple[int, ...], ...]
    of_symbols: bool
    scale: Fraction
    terms: int = 1
    consecutive: bool = False
    is_exclusive: bool = False
    part: str = ""
    source: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each count's noise."""
        prefix = f"{self.kind} {self.name}{self.part}" + (f" of {self.source}" if self.source else "")
        return tuple(f"{prefix} {count_index}" for count_index in range(len(self.groups)))

    @property
    def overlap(self) -> int:
        """The most windows that share a tick."""
        return -(-self.length // self.stride)

    @property
    def tick_loss(self) -> Fraction:
        """The largest loss of a tick, or of its symbol, by one window, in nats."""
        return (4 if self.consecutive else min(len(self.groups), 2)) / self.scale

    @property
    def rate(self) -> Fraction:
        """The largest loss of a tick, or of its symbol, by all windows together, in nats."""
        return self.overlap * self.tick_loss

    def window_count(self, name: str, first: int, members: tuple[int, ...]) -> Counted:
        """Return the count of `members` in the window that begins at tick `first`; `name` is that of its noise."""
        symbols = self.source if self.of_symbols else None
        return Counted(name, first, self.length, members, symbols, self.scale, self.terms, self.consecutive)

    def windows(self, first_tick: int, last_tick: int) -> Iterator[tuple[int, int]]:
        """Yield the first and last tick of each window that contains any of the ticks `first_tick` to `last_tick`."""
        if self.is_exclusive:
            if self.start <= last_tick and self.start + self.length > first_tick:
                yield self.start, self.start + self.length - 1
            return
        window_index = max(0, -(-(first_tick - self.length + 1 - self.start) // self.stride))
        while (first := self.start + window_index * self.stride) <= last_tick:
            yield first, first + self.length - 1
            window_index += 1


def windows(policy: Policy) -> tuple[Definition, ...]:
    """Return the windows of a device and of its groups. FuguError if a window's counts are no sums over ticks."""
    labels = policy.discretiser.states
    definitions = []
    for window in policy.counted_windows:
        if not window.query.is_additive:
            raise FuguError(f"{window.kind} {window.name} is of {window.query.name} counts: no attack here reads them")
        span, groups = (window.start, window.length, window.stride), window.groups(labels)
        definitions.append(Definition(window.kind, window.name, *span, groups, False, Fraction(window.scale)))
    return tuple(definitions)


def gateway_releases(policy: Policy, config: ReleaseConfig | None) -> tuple[tuple[Definition, ...], tuple[str, ...]]:
    """Return the gateway's releases about a stream, and sentences about releases that cannot be made of it."""
    definitions, problems, config = [], [], config or ReleaseConfig()
    for plan in config.releases:
        if plan.stream != policy.stream or (plan.devices != "all" and policy.device not in plan.devices):
            continue
        try:
            definitions += _release_definitions(policy, plan, config)
        except FuguError as error:
            problems.append(f"release {plan.name}: {error}")
    return tuple(definitions), tuple(problems)


def _release_definitions(policy: Policy, plan: ScheduledRelease, config: ReleaseConfig) -> list[Definition]:
    """Return the counts of windows, symbols or both that a release is made of.

    Raises FuguError if the gateway would refuse the release; ChainClassError if no noise is enough for it.
    """
    labels = policy.discretiser.states
    if not set(plan.states) <= set(labels):
        raise FuguError("the stream has not its states")
    query = Query(plan.query, tuple(map(labels.index, plan.states or labels)))
    definitions = []
    window = release_window(policy, plan, query) if plan.source != "symbols" else None
    if window is not None:
        answer_matrix = answer_rows(window, labels, query)
        assert answer_matrix is not None
        terms = plan.length // window.length * int(answer_matrix.sum(axis=1).max())
        span = (window.start, plan.length, plan.step)
        name, scale = plan.name_for(policy.device), Fraction(window.scale)
        definitions.append(Definition("release", name, *span, query.groups, False, scale, terms))
    if policy.table is not None:
        definition = _symbol_counts(policy, policy.table, plan, config, query)
        definitions.append(definition._replace(part=" beside windows") if definitions else definition)
    if not definitions:
        raise FuguError("the stream has no symbols, and no windows that answer it")
    return definitions


def _symbol_counts(
    policy: Policy, table: NoiseTable, plan: ScheduledRelease, config: ReleaseConfig, query: Query
) -> Definition:
    symbols = table.symbols
    consecutive = query.definition.of_pairs
    groups: tuple[tuple[int, ...], ...] = tuple((z,) for z in range(symbols**2 if consecutive else symbols))
    if query.definition.is_single and (rule := two_valued_weights(table, query.states)) is not None:
        groups = (tuple(int(z) for z in rule.symbols.nonzero()[0]),)
    is_exclusive = plan.mechanism in ALONE
    if is_exclusive:
        scale = _exclusive_scale(policy, table, plan, query, len(groups), config.audiences[plan.audience].epsilon)
    elif plan.scale is not None:
        scale = Fraction(plan.scale)
    else:
        scale = _shared_scale(policy, table, plan, config, 4 if consecutive else min(len(groups), 2))
    span = (plan.once or 0, plan.length, plan.step)
    return Definition("release", plan.name_for(policy.device), *span, groups, True, scale, 1, consecutive, is_exclusive)


def _exclusive_scale(
    policy: Policy, table: NoiseTable, plan: ScheduledRelease, query: Query, number_count: int, epsilon: float
) -> Fraction:
    if plan.mechanism == "wasserstein":
        distribution = counted_symbols([policy.chains], table, query.states, [True] * plan.length)
        return WholeWindow(symbols=(distribution,)).scale(epsilon)
    return WholeWindow(moved=window_sensitivity(query.kind, number_count, plan.length)).scale(epsilon)


def _shared_scale(
    policy: Policy, table: NoiseTable, plan: ScheduledRelease, config: ReleaseConfig, sensitivity: int
) -> Fraction:
    assert plan.share is not None
    audience = config.audiences[plan.audience]
    allowance_rule = "chain" if plan.mechanism == "auto" else plan.mechanism
    ticks = audience.promise.ticks(policy.clock.period_us)
    max_charge = allowance(policy.chains, audience.epsilon, audience.adversary, allowance_rule, ticks)
    budget = int(Fraction(plan.share) * (max_charge - units_above(policy.window_rate)))
    if budget < 1:
        raise FuguError("nothing of the allowance is left for it")
    return smallest_scale([table], sensitivity, budget)


_STEPS = 10_000
_RARE = 1e-6
"""Probability of the other states in a chain of bounded odds ratio that is nearly always in one of two states."""


class JointStreams(NamedTuple):
    """Streams driven by one chain. `shown_states` has, for each stream, its state in each state of the chain."""

    policies: tuple[Policy, ...]
    shown_states: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> JointStreams:
        """Join the streams of some policies. FuguError if several policies do not have one class of joint chains."""
        chains = policies[0].chains
        if chains.named_streams and all(policy.chains == chains for policy in policies):
            columns = [chains.stream_index(policy.device, policy.stream) for policy in policies]
            if len(set(columns)) == len(columns):
                return cls(tuple(policies), tuple(map(chains.shown_states, columns)))
        if len(policies) > 1:
            raise FuguError("several policies are attacked together if they name one another in one class of chains")
        return cls(tuple(policies), (tuple(range(chains.states)),))

    @property
    def chains(self) -> ChainClass:
        """The class of chains."""
        return self.policies[0].chains

    @property
    def states(self) -> int:
        """The number of states of the chain."""
        return len(self.shown_states[0])

    @property
    def secrets(self) -> tuple[int, ...]:
        """Numbers (n,) of the chain's states, equal where all streams show equal states; () if all would differ."""
        shown_states = list(zip(*map(self.chains.shown_states, range(len(self.chains.named_streams))), strict=True))
        distinct_shows = list(dict.fromkeys(shown_states))
        return tuple(map(distinct_shows.index, shown_states)) if len(distinct_shows) < self.states else ()

    @property
    def missing_streams(self) -> tuple[str, ...]:
        """Streams of the class whose policy is not given."""
        columns = {self.chains.stream_index(policy.device, policy.stream) for policy in self.policies}
        return tuple(named_stream.name for n, named_stream in enumerate(self.chains.named_streams) if n not in columns)

    def state_words(self, secret: int) -> str:
        """Return the states of all streams for a number of `secrets`, in words."""
        state = self.secrets.index(secret) if self.secrets else secret
        streams = zip(self.policies, self.shown_states, strict=True)
        return ", ".join(policy.discretiser.states[column[state]] for policy, column in streams)

    def source(self, index: int, *, heard: bool) -> Source:
        """Return the source of the symbols of the policy of this index."""
        table, shown_states = self.policies[index].table, self.shown_states[index]
        if table is None:
            return Source(np.ones((self.states, 1)), shown_states, heard=False)
        weights = np.array(table.weights(), dtype=np.float64) / SCALE
        return Source(weights[list(shown_states)], shown_states, heard)


def worst_chains(joint: JointStreams, adversary: Adversary, losses: Floats) -> tuple[MarkovChain, ...]:
    """Return stationary chains of a class, one of which is likely the worst; with two states, the stickiest is.

    An attacker with side information may know that only two states are left at every tick, both equally likely. Then
    only the odds ratio of the steps limits what he learns. If the class bounds odds ratios, it contains the chain that
    he sees. `losses` (k, k) has the loss of a tick about each state against each other state.
    """
    transitions = [np.array(extreme_chain) for extreme_chain in joint.chains.extreme_matrices]
    if not transitions:
        assert joint.chains.worst_odds is not None
        x, z = (int(n) for n in np.unravel_index(np.argmax(losses), losses.shape))
        return (_two_state_chain(losses, x, z, float(joint.chains.worst_odds)),)
    has_all_steps = not joint.chains.named_streams and all(transition.min() > 0 for transition in transitions)
    if adversary == "universal" and has_all_steps:
        return tuple(_chain_of_two(losses, transition) for transition in transitions)
    return tuple(MarkovChain.stationary(transition) for transition in transitions)


def _chain_of_two(losses: Floats, transition: Floats) -> MarkovChain:
    """Return the chain for an attacker who knows that every tick is in one of the two worst states."""
    odds = {
        (x, z): float(transition[x, x] * transition[z, z] / (transition[x, z] * transition[z, x]))
        for x, z in permutations(range(len(transition)), 2)
    }
    x, z = max(odds, key=lambda pair: abs(math.log(odds[pair])) * float(losses[pair]))
    return _two_state_chain(losses, x, z, odds[x, z])


def _two_state_chain(losses: Floats, x: int, z: int, odds: float) -> MarkovChain:
    """Return the chain of an odds ratio, nearly always in state x or z, whose outputs lose most about x against z.

    Steps from z into x have the probability s for which an endless past, or future, of outputs loses most. Let outputs
    be u times likelier under x than under z one tick further away: then s / (1 - s) = (odds u)^(-1/2). Source:
    docs/proofs/randomised-response.md, "Three adversaries in closed form".
    """
    tick_ratio, leakage, step_odds = math.exp(float(losses[x, z])), 1.0, 1 / math.sqrt(odds)
    for _ in range(_STEPS if odds > 1 else 0):
        u = tick_ratio * leakage
        step_odds = 1 / math.sqrt(odds * u)
        leakage = (odds * step_odds * u + 1) / (odds * step_odds + 1) * (step_odds + 1) / (step_odds * u + 1)
    matrix = np.full(losses.shape, _RARE)
    for state in range(len(losses)):
        state_odds = odds * step_odds if state == x else step_odds
        matrix[state, [x, z]] = state_odds / (1 + state_odds), 1 / (1 + state_odds)
    return MarkovChain.stationary(matrix / matrix.sum(axis=1, keepdims=True))


def mechanism_of(
    joint: JointStreams, symbols_heard: Sequence[bool], definitions: Sequence[Definition], radius: int, ticks: int = 1
) -> Mechanism:
    """Return the mechanism around `ticks` secret ticks in a row, in the middle of as many windows as possible.

    `symbols_heard` has for each policy whether symbols are heard. At least `radius` ticks on each side are included.
    """
    exclusive_counts = [definition for definition in definitions if definition.is_exclusive]
    first_secret = max((definition.start for definition in definitions), default=0) + 4 * max(
        (definition.length for definition in definitions), default=1
    )
    secret = first_secret + radius
    if exclusive_counts:
        secret = exclusive_counts[0].start + exclusive_counts[0].length // 2
    elif definitions:
        loudest_count = max(definitions, key=lambda definition: definition.overlap * definition.tick_loss)
        index = -(-(secret - loudest_count.start) // loudest_count.stride)
        last_start = loudest_count.start + index * loudest_count.stride
        first_start = last_start - (loudest_count.overlap - 1) * loudest_count.stride
        secret = (last_start + first_start + loudest_count.length - 1) // 2
    secret -= (ticks - 1) // 2
    spans = [span for definition in definitions for span in definition.windows(secret, secret + ticks - 1)]
    first_tick = min([secret - radius, *(first for first, _ in spans)])
    last_tick = max([secret + ticks - 1 + radius, *(last for _, last in spans)])
    counts = [
        definition.window_count(name, first - first_tick, _group_members(joint, definition, group))
        for definition in definitions
        for first, last in definition.windows(first_tick, last_tick)
        if first_tick <= first and last <= last_tick
        for name, group in zip(definition.names, definition.groups, strict=True)
    ]
    sources = tuple(joint.source(n, heard=is_heard) for n, is_heard in enumerate(symbols_heard))
    heard_ticks, secret_tick = last_tick - first_tick + 1, secret - first_tick
    return Mechanism(heard_ticks, secret_tick, joint.states, sources, tuple(counts), joint.secrets, ticks)


def _group_members(joint: JointStreams, definition: Definition, group: tuple[int, ...]) -> tuple[int, ...]:
    if definition.of_symbols:
        return group
    return tuple(x for x, state in enumerate(joint.shown_states[definition.source]) if state in group)


def certified_epsilon(
    joint: JointStreams,
    symbols_heard: Sequence[bool],
    definitions: Sequence[Definition],
    adversary: Adversary,
    exclusive_epsilon: float,
    ticks: int = 1,
) -> float:
    """Return the accountant's bound on the loss of `ticks` ticks by heard symbols and counts; infinite without one.

    `exclusive_epsilon` is the promise of a release that does not compose; it holds if nothing else is heard.
    """
    if any(count.is_exclusive for count in definitions):
        return exclusive_epsilon if len(definitions) == ticks == 1 and not any(symbols_heard) else math.inf
    ratios = [_tick_ratios(policy, n, symbols_heard[n], definitions) for n, policy in enumerate(joint.policies)]
    try:
        columns = [joint.chains.stream_index(policy.device, policy.stream) for policy in joint.policies]
        epsilon = joint.chains.streams_loss(dict(zip(columns, ratios, strict=True)), adversary).epsilon
    except GuaranteeError:
        return math.inf
    if ticks == 1:
        return epsilon
    policy, stream_counts = joint.policies[0], [count for count in definitions if count.source == 0]
    window_names = {count.name for count in stream_counts if count.kind != "release"}
    device_windows = tuple(window for window in policy.counted_windows if window.name in window_names)
    release_counts = [count for count in stream_counts if count.kind == "release"]
    release_ratios = _tick_ratios(policy, 0, symbols_heard[0], release_counts)
    return joint.chains.stretch_bound(epsilon, 1, log_up(max(release_ratios)), device_windows, adversary).epsilon(ticks)


def _tick_ratios(
    policy: Policy, index: int, symbols_heard: bool, definitions: Sequence[Definition]
) -> tuple[Fraction, Fraction]:
    """Bound the likelihood ratios of all outputs that one tick of a stream changes, in the form for `ratio_loss`."""
    counts = [definition for definition in definitions if definition.source == index]
    rate = sum((definition.rate for definition in counts if not definition.of_symbols), Fraction(0))
    if policy.table is not None and not symbols_heard:
        for definition in counts:
            if definition.of_symbols:
                rate += definition.overlap * Fraction(charge(policy.table, float(definition.tick_loss)))
    ratios = tick_ratios(policy.table) if symbols_heard and policy.table is not None else (Fraction(1), Fraction(1))
    count_ratio = exp_up(rate)
    return ratios[0] * count_ratio, ratios[1] * count_ratio
