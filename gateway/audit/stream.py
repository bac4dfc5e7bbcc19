"""Attacks on a stream: on all that each audience may read of it as configured, and on what was really published.

What was published is attacked if the truth is known. On the true path, every kind of output is attacked by itself, and
all kinds together. For each audience, the published draws are also put on paths of the chain that makes the class
worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from itertools import permutations
from operator import or_
from typing import NamedTuple

import numpy as np

from fugu.attackers.events import pick_event, ticks_to_forget
from fugu.attackers.mechanisms import Mechanism, Source, paths
from fugu.attackers.outputs import CountOutputs, Outputs, SymbolOutputs, release_counts, release_symbols
from fugu.attackers.stretches import FEWEST, PARTS
from fugu.attackers.witness import tick_losses, witness
from fugu.audit.device import inside_distribution
from fugu.chains.arrays import Floats, Ints
from fugu.contract.errors import FuguError
from fugu.contract.groups import GroupDocument
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import Noise, states_in
from fugu.contract.measurement import ConstraintSets
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from fugu.planning.recorded_policy import (
    Released,
    StretchTrial,
    Trial,
    Truth,
    releases_of,
    stretch_trial,
    unknown_ticks,
)
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.class_watch import largest_capital
from gateway.audit.access import Audience
from gateway.audit.attacks import LEVEL, AttackTrial, attack_audiences
from gateway.audit.mechanism import Definition, JointStreams, gateway_releases, mechanism_of, windows, worst_chains
from gateway.audit.recordings import Message, PublishedOutputs
from gateway.audit.statement import Finding
from gateway.releases.allowance import noise_problems
from gateway.releases.config import ReleaseConfig

__all__ = ["StreamAudit", "audit_stream"]


_MAX_RADIUS = 40
_MAX_STATES = 64
"""The most states of a chain whose points are attacked together."""


def attack_points(
    policy: MeasurePolicy, audiences: Sequence[Audience], *, seed: int, trials: int
) -> Iterator[AttackTrial]:
    """Attack all points that each audience may read of a stream; arguments as for `attack_audiences`.

    A single point is compared with the epsilon of neighbouring states, all points with the policy's loss of the stream.
    Each table is attacked as if used at every tick. A device may do so with the fallback, or with the table of the
    states that are possible in the long run.
    """
    shows = policy.shows or tuple(range(len(policy.coordinates)))
    readers = [audience for audience in audiences if f"{policy.device}/{policy.stream}" in audience.symbols]
    state_mask, lasting_states = _possible_states(policy)
    used_tables = [table for table in policy.measure_tables if table.constraint in (0, lasting_states)]
    tables = [(table, _emission(policy, table.noise)) for table in used_tables]
    level_share, neighbour_masks = LEVEL / max(1, 2 * len(readers)) / len(tables), policy.measurement.neighbours
    alike_pairs = {(x, z) for x in states_in(state_mask) for z in states_in(neighbour_masks[x] & state_mask) if x != z}
    chain, stream_loss = _stationary_chain(policy), policy.stream_loss
    certified_epsilon = math.inf if stream_loss.epsilon is None else stream_loss.epsilon
    for reader_number, audience in enumerate(readers):
        generator = np.random.default_rng([seed, reader_number])
        promised_epsilon, adversary = (certified_epsilon, stream_loss.adversary) if audience.site else audience[2:4]
        outputs = [("points", promised_epsilon, certified_epsilon, False)]
        outputs += [("one point", policy.epsilon, policy.epsilon, True)] if audience.site else []
        for output, epsilon, bound, is_single in outputs:
            pairs = alike_pairs if is_single else None
            events = []
            for table, distribution in tables:
                mechanism = Mechanism(1, 0, len(distribution), (Source(distribution, shows, True),), (), policy.shows)
                event = pick_event(lambda _: mechanism, [chain], generator, trials, None, level_share, pairs)  # noqa: B023
                losses, secret_pairs = tick_losses(mechanism), pairs or list(permutations(dict.fromkeys(shows), 2))
                loss = max(float(losses[shows.index(x), shows.index(z)]) for x, z in secret_pairs)
                if not is_single and len(distribution) <= _MAX_STATES and not policy.changes:
                    radius = min(_MAX_RADIUS, ticks_to_forget(chain, 12.0))
                    long_mechanism = mechanism._replace(ticks=2 * radius + 1, secret_tick=radius)
                    loss = max(loss, witness(long_mechanism, chain, knows_states=adversary != "ignorant").epsilon)
                events.append((event, loss, table))
            event, _, table = max(events, key=lambda table_attack: table_attack[0].epsilon_low)
            subject = "nothing could be counted"
            if event.states is not None:
                state_names = [policy.discretiser.states[state] for state in event.states]
                subject = f"{' rather than '.join(state_names)}, table {table.number}"
            yield AttackTrial(
                *(audience.name, output, epsilon, bound, adversary, max(loss for _, loss, _ in events), None),
                *("simulated", event.epsilon_low, event.trials, event.hits, event.alarms, subject),
            )


def _possible_states(policy: MeasurePolicy) -> tuple[int, int]:
    """Return bit masks of the states possible at some tick, and in the long run at every tick (0 if these vary)."""
    constraint_sets = ConstraintSets(policy.measurement)
    all_sets = constraint_sets.all_sets()
    recurrent_sets = all_sets[constraint_sets.cycle_index :]
    return reduce(or_, all_sets), recurrent_sets[0] if len(recurrent_sets) == 1 else 0


def _stationary_chain(policy: MeasurePolicy) -> MarkovChain:
    matrix = np.array(policy.matrix)
    try:
        chain = MarkovChain.stationary(matrix)
        assert chain.initial is not None
        if (chain.initial > 0).all():
            return chain
    except ChainClassError:
        pass
    return MarkovChain.stationary(np.full(matrix.shape, 1.0 / len(matrix)))  # single ticks need no chain


def _emission(policy: MeasurePolicy, noise: Noise) -> Floats:
    """Return (n, m) probabilities of points, for each state of the chain; a staircase's border counts as one point."""
    shown_states = list(policy.shows or range(len(policy.coordinates)))
    if isinstance(noise, NoiseTable):
        return np.array(noise.weights(), dtype=np.float64)[shown_states] / SCALE
    distributions = [inside_distribution(noise, centre) for centre in policy.measurement.centres(noise.likely)]
    all_points = dict.fromkeys(point for indices, _ in distributions for point in indices)
    points = {point: n for n, point in enumerate(all_points)}
    emission = np.zeros((len(distributions), len(points) + 1))
    for state_emission, (indices, distribution) in zip(emission, distributions, strict=True):
        state_emission[[points[point] for point in indices]] = distribution[:-1]
        state_emission[-1] = distribution[-1]
    return emission[shown_states]


def attack_published(
    published: PublishedOutputs, source: str, known_one_in: int | None = None
) -> tuple[list[Trial], list[StretchTrial]]:
    """Attack a policy's published outputs: the symbols, each window without overlap, and all outputs together.

    If the promise is about stretches, attack stretches by each kind of output, too. Attackers know the true state of
    every `known_one_in`-th tick. `source` names the truth. FuguError if nothing can be attacked.
    """
    policy, begin = published.policy, published.begin
    if not published.states.size:
        raise FuguError("nothing in the recording is of the policy's stream and version")
    known_ticks = np.flatnonzero(published.states >= 0)
    if not known_ticks.size:
        raise FuguError(f"{source} has no state of the ticks from {begin} on: does it --loop?")
    start, stop = int(known_ticks[0]), int(known_ticks[-1]) + 1
    states, segments = published.states[start:stop], published.segments[start:stop]

    def count_outputs(window: Window | GroupDocument) -> CountOutputs | None:
        frames = [(frame.first - frame.shift - begin - start, frame.counts) for frame in published.windows(window.name)]
        window_counts = [(begin, counts) for begin, counts in frames if 0 <= begin <= states.size - window.length]
        if not window_counts:
            return None
        labels, (begins, counts) = policy.discretiser.states, map(np.array, zip(*window_counts, strict=True))
        scale, groups = Fraction(window.scale), window.groups(labels)
        has_state = (states >= 0).astype(np.int64)
        return CountOutputs(counts, begins, window.length, scale, groups, int(states.size), len(labels), has_state)

    symbols = None
    visible_symbols = np.where(states >= 0, published.symbols[start:stop], -1)
    if policy.table is not None and (published.symbols >= 0).any():
        symbols = SymbolOutputs(visible_symbols, np.array(policy.table.weights(), dtype=np.float64) / SCALE)
    releases = releases_of(policy, symbols, count_outputs)
    if not releases:
        raise FuguError("the recording has no symbols, and no whole windows that do not overlap")
    release_outputs = Released(source, states, segments, releases)
    return [*release_outputs.trials(known_one_in)], release_outputs.stretch_trials(policy)


_FORGETTING_TIMES = 12.0
"""The number of a chain's forgetting times after which an attacker's knowledge of states makes no difference."""


def attack_simulated_stretches(policy: Policy, seed: int) -> list[StretchTrial]:
    """Attack stretches by simulated outputs of a policy; [] if its promise is about single ticks."""
    joint, ticks = JointStreams.of([policy]), policy.guarantee.stretch_ticks
    if ticks == 1 or joint.missing_streams:
        return []
    generator = np.random.default_rng([seed, ticks])
    mechanism = mechanism_of(joint, [policy.table is not None], windows(policy), 0)
    chain = worst_chains(joint, policy.guarantee.adversary, tick_losses(mechanism))[0]
    margin_ticks = unknown_ticks(policy, ticks_to_forget(chain, _FORGETTING_TIMES))
    lengths = [window.length for window in policy.counted_windows]
    part_count = min([FEWEST, *(min(PARTS, max(1, length // ticks)) for length in lengths)])
    path_ticks = 2 * margin_ticks + (-(-2 * FEWEST // part_count) + 2) * max([ticks, *lengths])
    path = paths(chain, Mechanism(path_ticks, 0, chain.states, (), ()), 0, 1, generator)[0]
    segments, k = np.zeros_like(path), chain.states
    outputs: list[tuple[str, Outputs]] = []
    if policy.table is not None:
        outputs.append(("symbols", release_symbols(path, policy.table, generator)))
    for window in policy.counted_windows:
        if window.stride >= window.length and window.query.is_additive:
            groups = window.groups(policy.discretiser.states)
            counts = release_counts(path, segments, window.length, Fraction(window.scale), groups, generator, k=k)
            outputs.append((f"{window.kind} {window.name}", counts))
    return [
        stretch_trial(policy, "simulated", output_name, path, segments, output, margin_ticks, chain.transition)
        for output_name, output in outputs
    ]


def stretch_findings(trials: Iterable[StretchTrial]) -> list[Finding]:
    """Return findings for promises about stretches that attacks refute."""
    return [
        _refuted_finding(
            trial, f"{trial.epsilon:.6g} is promised about any {trial.ticks} ticks in a row", f"{trial.epsilon_low:.4g}"
        )
        for trial in trials
        if trial.epsilon_low > trial.epsilon
    ]


def published_findings(trials: Iterable[Trial]) -> Iterator[Finding]:
    """Yield findings for promises below the lower bound of an attack, at the attacks' confidence."""
    for trial in trials:
        lower_bound = max(attack.epsilon_low for attack in trial.attacks)
        if lower_bound > trial.epsilon:
            yield _refuted_finding(trial, f"{trial.epsilon:g} is promised", f"{lower_bound:.3g}")


def _refuted_finding(trial: Trial | StretchTrial, promise: str, lower_bound: str) -> Finding:
    return Finding("epsilon-refuted", f"{trial.released}: epsilon {promise}, and it is at least {lower_bound}")


_FALSE_ALARMS = 1e-3
"""Probability of a false finding that symbols contradict their class."""


class StreamAudit(NamedTuple):
    """Audit of a stream: attacks on the mechanism as it is configured, and on recorded draws (`audiences`).

    `trials` are attacks on the published outputs of the true path; () without a truth. `stretches` are attacks on
    stretches; () if the promise is about ticks. `unattacked` names releases that are not attacked. Every epsilon needs
    the `conditions` of sums of homes.
    """

    audiences: tuple[AttackTrial, ...]
    trials: tuple[Trial, ...]
    stretches: tuple[StretchTrial, ...]
    findings: tuple[Finding, ...]
    unattacked: tuple[str, ...]
    conditions: tuple[str, ...] = ()


def audit_stream(
    documents: Sequence[AnyPolicy],
    audiences: Sequence[Audience],
    config: ReleaseConfig | None = None,
    *,
    messages: Sequence[Message] | None = None,
    truth: Truth | None = None,
    loop: bool = False,
    known_one_in: int | None = None,
    trials: int = 20_000,
    seed: int = 1,
) -> StreamAudit:
    """Attack a stream, and streams that move together with it by its class (`documents`, the stream first).

    The configured mechanism is attacked with simulated draws. Messages of the first stream are compared with the
    configuration. Noise must have its scale, as far as true counts are known, and symbols must be of the class.

    With the truth, published outputs are attacked, too. With `loop` the truth repeats after its last tick. Attackers
    know the true state of every `known_one_in`-th tick. `trials` of each of two states are simulated.

    Raises FuguError if a payload is no frame, nothing can be attacked, or the policies are not of one class of chains.
    """
    policies = [document for document in documents if isinstance(document, Policy)]
    if not policies and len(documents) == 1 and isinstance(documents[0], MeasurePolicy) and messages is None:
        points = tuple(attack_points(documents[0], audiences, seed=seed, trials=trials))
        return StreamAudit(points, (), (), tuple(_refutation(point) for point in points if point.refuted), ())
    if len(policies) < len(documents):
        raise FuguError("measured points are attacked as their policy has them: alone, and not as they are heard")
    policy = policies[0]
    definitions, problems = _definitions(policies, config)
    attacks: list[AttackTrial] = []
    findings: list[Finding] = []
    path_trials: list[Trial] = []
    stretches = attack_simulated_stretches(policy, seed) if truth is None and len(policies) == 1 else []
    if messages is not None:
        counts = [definition for definition in definitions if definition.source == 0]
        published = PublishedOutputs.read(policy, messages, truth, loop=loop)
        draws = published.draws(counts)
        findings += [Finding("noise-not-as-stated", problem) for problem in distribution_problems(draws.noises, counts)]
        findings += _class_findings(policy, published.symbols)
        if truth is not None:
            path_trials, stretches = attack_published(published, truth.source, known_one_in)
            attacks += attack_audiences(policies, audiences, definitions, seed=seed + 1, trials=10**9, draws=draws)
            findings += published_findings(path_trials)
    attacks = [*attack_audiences(policies, audiences, definitions, seed=seed, trials=trials), *attacks]
    findings += [_refutation(attack) for attack in attacks if attack.refuted]
    findings += stretch_findings(stretches)
    conditions = tuple(dict.fromkeys(window.condition for policy in policies for window in policy.sums))
    return StreamAudit(tuple(attacks), tuple(path_trials), tuple(stretches), tuple(findings), problems, conditions)


def distribution_problems(recorded_noises: Mapping[str, Ints], definitions: Iterable[Definition]) -> list[str]:
    """Describe noises whose mean size does not fit their scale, with false alarms of one in 10^9, as for ledgers."""
    lines = []
    for definition in definitions:
        noises = [recorded_noises[name] for name in definition.names if name in recorded_noises]
        if noises and definition.terms == 1:
            noise = np.concatenate(noises)
            problems = noise_problems({Fraction(definition.scale): (noise.size, int(np.abs(noise).sum()))})
            lines += [f"{definition.names[0].rpartition(' ')[0]}: {problem}" for problem in problems]
    return lines


def _definitions(
    policies: Sequence[Policy], config: ReleaseConfig | None
) -> tuple[tuple[Definition, ...], tuple[str, ...]]:
    """Return all counts of some streams, and sentences about releases and streams that are left out."""
    definitions: list[Definition] = []
    missing_streams = JointStreams.of(policies).missing_streams
    problems = [f"stream {name} moves together with these: give its policy, too" for name in missing_streams]
    for policy_number, policy in enumerate(policies):
        releases, release_problems = gateway_releases(policy, config)
        problems += release_problems
        window_names = {definition.name for definition in definitions}
        new_releases = [release for release in releases if release.name not in window_names]
        definitions += (definition._replace(source=policy_number) for definition in (*windows(policy), *new_releases))
        names = (release.name for release in releases if release.name in window_names)
        problems += (f"release {name}: of what it adds up, only the part of one stream is attacked" for name in names)
    return tuple(definitions), tuple(dict.fromkeys(problems))


def _refutation(attack: AttackTrial) -> Finding:
    condition = ", if draws are independent" if attack.lower_bound == attack.extended else ", if draws are as stated"
    condition = "" if attack.least > attack.promised else condition
    stretch = "" if attack.ticks == 1 else f" about any {attack.ticks} ticks in a row"
    promise = f"epsilon {attack.promised:.6g} is promised{stretch}" if attack.promised else "nothing should be told"
    sentence = f"{attack.audience}: {attack.heard} ({attack.draws} draws): {promise}, and it is at least "
    sentence += f"{attack.lower_bound:.4g}{condition}"
    return Finding("epsilon-refuted", sentence)


def _class_findings(policy: Policy, symbols: Ints) -> list[Finding]:
    if policy.table is None or not (symbols >= 0).any():
        return []
    weights = np.array(policy.table.weights(), dtype=np.float64)
    emission = weights / weights.sum(axis=1, keepdims=True)
    capital = largest_capital(policy.chains, policy.guarantee.adversary, emission, symbols)
    if capital * _FALSE_ALARMS < 1:
        return []
    return [Finding("class-contradicted", f"the symbols are not of the class: a fair bet on it has lost {capital:.3g}")]
