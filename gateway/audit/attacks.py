"""Attacks on all that an audience may read of a tick: lower bounds on epsilon, to compare with its promise.

There are three attackers with different assumptions. One counts how often an event happens under two states, on a
chain that makes the class worst: `fugu.attackers.events`. One assumes draws that are independent given the states
(`extended_epsilon`). One assumes that draws follow the policy's numbers: `fugu.attackers.witness`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np

from fugu.attackers.events import pick_event, ticks_to_forget
from fugu.attackers.mechanisms import Recorded, Simulated
from fugu.attackers.witness import tick_losses, witness
from fugu.chains.arrays import Floats, Ints
from fugu.contract.errors import GuaranteeError
from fugu.contract.losses import Adversary
from fugu.contract.policy import Policy
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.transitions import share_bounds
from gateway.audit.access import Audience
from gateway.audit.mechanism import Definition, JointStreams, certified_epsilon, mechanism_of, worst_chains
from gateway.releases.allowance import log_chance
from gateway.releases.entries import Promise

__all__ = ["LEVEL", "AttackTrial", "attack_audiences"]


_BISECTIONS = 60
_DIGITS = 10**9


def extended_epsilon(
    policy: Policy,
    symbols_heard: bool,
    counts: Sequence[tuple[Definition, Ints]],
    symbols: Sequence[Ints],
    adversary: Adversary,
    level: float,
) -> float | None:
    """Return a lower bound (nats) on the epsilon of all outputs together; `None` if some chain need not reach it.

    `symbols` are the drawn symbols of each state, used if `symbols_heard` or counted. `counts` are definitions with
    their (n,) drawn noises. The bound is for the adversary, and wrong with probability `level`.
    """
    chains = policy.chains
    used_counts = [count for count in counts if not (symbols_heard and count[0].of_symbols)]
    has_groups = any(len(definition.groups) > 1 or definition.terms > 1 for definition, _ in used_counts)
    if has_groups or not chains.is_tight(adversary):
        return None
    count_level = level / (1 + len(counts))
    log_ratios, symbol_rate = np.zeros(2), 0.0
    for definition, noise in used_counts:
        scale = largest_scale(noise, count_level)
        if definition.of_symbols:
            symbol_rate += definition.overlap / scale
        else:
            log_ratios += definition.overlap / scale
    if symbols_heard:
        low, high = symbol_bounds(symbols, count_level)
        log_ratios += [max(0.0, float(np.log(low[x] / high[1 - x]).max())) for x in (0, 1)]
    elif symbol_rate:
        low, high = symbol_bounds(symbols, count_level)
        gain = math.expm1(min(symbol_rate, 200.0))
        set_ratios = np.log1p(low * gain) - np.log1p(high[::-1] * gain)  # a set of one symbol, for two states
        log_ratios += np.maximum(set_ratios.max(axis=1), 0.0)
    ratios = [Fraction(math.floor(math.exp(log_ratio) * _DIGITS), _DIGITS) for log_ratio in log_ratios]
    try:
        return chains.ratio_loss(ratios[0], ratios[1], adversary).epsilon
    except GuaranteeError:
        return None


def symbol_bounds(symbols_by_state: Sequence[Ints], level: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds (k, m) on the symbols' probabilities (Clopper and Pearson)."""
    symbol_count = max(int(symbols.max(initial=0)) for symbols in symbols_by_state) + 1
    error = level / (2 * len(symbols_by_state) * symbol_count)
    counts = [np.bincount(symbols, minlength=symbol_count).tolist() for symbols in symbols_by_state]
    bounds = np.array([[share_bounds(hits, sum(row), error) for hits in row] for row in counts])
    return bounds[..., 0], bounds[..., 1]


def largest_scale(noise: Ints, level: float) -> float:
    """Return the largest scale of discrete Laplace noise for which (n,) noises are not too small (Chernoff)."""
    total, log_level = int(np.abs(noise).sum()), math.log(level)
    mean = max(total, 1) / max(noise.size, 1)
    low = high = 1 / math.log((1 + math.hypot(1.0, mean)) / mean)  # the likeliest scale
    while log_chance(Fraction(high), noise.size, total) >= log_level and high < 1e9:
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if log_chance(Fraction(middle), noise.size, total) >= log_level else (low, middle)
    return high


LEVEL = 0.05
"""Probability that any of the bounds of one audit is above the true epsilon."""
_DRAWS = 50
"""Draws for each trial: of single ticks, which cost little."""
_MAX_RADIUS = (2000, 400)
"""The most ticks of a witness on each side, for two states and for more."""


class AttackTrial(NamedTuple):
    """Result of attacks with all that an audience may read; epsilons are in nats.

    Attributes:
        heard: the outputs that the audience may read, in words.
        promised: the promised epsilon.
        certified: the accountant's bound on the loss by the configured outputs; infinite without one.
        witness: lower bound on epsilon if draws are as the policy states: some output is that much likelier under one
            state than another. `None` for recorded draws, whose distribution is not known.
        extended: lower bound on epsilon if draws are independent given the states (`extended_epsilon`), at the
            confidence of the audit; `None` if not known.
        draws: "simulated" or "recorded".
        least, trials, hits, alarms: lower bound and counts of the `Event`; 0 if nothing could be shown.
        about: the two states and the chain, in words.
        ticks: length of the stretch of the promise. Attackers distinguish stretches that stay in one of two states.
    """

    audience: str
    heard: str
    promised: float
    certified: float
    adversary: Adversary
    witness: float | None
    extended: float | None
    draws: str
    least: float
    trials: int
    hits: int
    alarms: int
    about: str
    ticks: int = 1

    @property
    def lower_bound(self) -> float:
        """The largest lower bound on epsilon."""
        return max(self.least, self.extended or 0.0, self.witness or 0.0)

    @property
    def refuted(self) -> bool:
        """True if an attack shows that the promise is false."""
        return self.lower_bound > self.promised


class _AudienceView(NamedTuple):
    audience: Audience
    hears_symbols: tuple[bool, ...]
    counts: tuple[Definition, ...]

    @property
    def heard(self) -> str:
        count_names = dict.fromkeys(f"{count.kind} {count.name}" for count in self.counts)
        return ", ".join([*(["symbols"] if any(self.hears_symbols) else []), *count_names])


def attack_audiences(
    policies: Sequence[Policy],
    audiences: Sequence[Audience],
    definitions: Sequence[Definition],
    *,
    seed: int,
    trials: int,
    draws: Recorded | None = None,
) -> Iterator[AttackTrial]:
    """Attack all outputs that each audience may read, about a tick, or about a stretch if that is promised.

    Raises FuguError if several policies are not of one class of chains.

    Args:
        policies: the streams that are attacked together.
        audiences: who reads which outputs, and what they are promised.
        definitions: all counts that devices and the gateway make of the streams.
        seed: of the simulated draws and paths.
        trials: the number of trials on which an event is counted, for each of two states.
        draws: recorded draws of the first policy's device, without which outputs are left out; `None` to simulate.
    """
    joint = JointStreams.of(policies)
    views = [view for audience in audiences for view in _audience_views(joint, audience, definitions, draws)]
    attacks = [(view, ticks) for view in views for ticks in dict.fromkeys((1, _stretch_ticks(joint, view)))]
    for attack_number, (view, ticks) in enumerate(attacks):
        generator, level = np.random.default_rng([seed, attack_number]), LEVEL / len(attacks) / 2
        promised_epsilon, adversary = _promise(joint, view, ticks)
        mechanism = partial(mechanism_of, joint, view.hears_symbols, view.counts, ticks=ticks)
        chains = worst_chains(joint, adversary, tick_losses(mechanism(0)))
        event = pick_event(mechanism, chains, generator, trials, draws, level)
        witness_epsilon = None
        if draws is None:
            max_radius, knows_states = _MAX_RADIUS[joint.states > 2], adversary != "ignorant"
            mechanisms = ((mechanism(min(max_radius, ticks_to_forget(chain, 12.0))), chain) for chain in chains)
            witness_epsilon = max(witness(*pair, knows_states=knows_states).epsilon for pair in mechanisms)
        extended_bound = None
        if len(joint.policies) == ticks == 1 and not any(count.is_exclusive for count in view.counts):
            used_draws = draws or simulated_draws(joint.policies[0], view.counts, generator, _DRAWS * trials)
            noises = [(count, used_draws.noises[count.names[0]]) for count in view.counts]
            extended_bound = extended_epsilon(
                joint.policies[0], view.hears_symbols[0], noises, used_draws.drawn, adversary, level
            )
        certified = certified_epsilon(joint, view.hears_symbols, view.counts, adversary, view.audience.epsilon, ticks)
        subject = "too few draws were recorded"
        if event.states is not None:
            names = " rather than ".join(map(joint.state_words, event.states))
            subject = f"{names}, {_chain_words(event.chain)}, {event.ticks} ticks"
        promise_fields = (view.audience.name, view.heard, promised_epsilon, certified, adversary)
        draw_kind = "simulated" if draws is None else "recorded"
        yield AttackTrial(*promise_fields, witness_epsilon, extended_bound, draw_kind, *event[:4], subject, ticks)


def _audience_views(
    joint: JointStreams, audience: Audience, definitions: Sequence[Definition], draws: Recorded | None
) -> Iterator[_AudienceView]:
    """Yield a view of all outputs that an audience hears, and a view of each output that does not compose."""
    counts = tuple(definition for definition in definitions if _may_read(joint, audience, definition))
    symbols_heard = [
        f"{policy.device}/{policy.stream}" in audience.symbols and policy.table is not None for policy in joint.policies
    ]
    if draws is not None:
        counts = tuple(definition for definition in counts if all(name in draws.noises for name in definition.names))
        has_draws = all(noise.size for noise in draws.drawn)
        symbols_heard = [is_heard and has_draws and index == 0 for index, is_heard in enumerate(symbols_heard)]
    if any(symbols_heard) or counts:
        yield _AudienceView(audience, tuple(symbols_heard), counts)
    for definition in counts if any(symbols_heard) or len(counts) > 1 else ():
        if definition.is_exclusive:
            yield _AudienceView(audience, tuple(False for _ in symbols_heard), (definition,))


def _may_read(joint: JointStreams, audience: Audience, definition: Definition) -> bool:
    policy = joint.policies[definition.source]
    if definition.kind == "window":
        return f"{policy.device}/{policy.stream}" in audience.windows
    return definition.name in audience.releases


def _stretch_ticks(joint: JointStreams, view: _AudienceView) -> int:
    """Return the ticks of a promise's stretch; 1 if an output is exclusive, or a state cannot last."""
    stay_probabilities = (steps[x] for matrix in joint.chains.extreme_matrices for x, steps in enumerate(matrix))
    if any(count.is_exclusive for count in view.counts) or any(probability <= 0 for probability in stay_probabilities):
        return 1
    if view.audience.site:
        return max(policy.guarantee.stretch_ticks for policy in joint.policies)
    promise = Promise(view.audience.epsilon, view.audience.adversary, view.audience.seconds)
    return max(promise.ticks(policy.clock.period_us) for policy in joint.policies)


def _promise(joint: JointStreams, view: _AudienceView, ticks: int) -> tuple[float, Adversary]:
    if not view.audience.site:
        return view.audience.epsilon, view.audience.adversary
    bounds = [(policy.bound().epsilon(ticks), policy.guarantee.adversary) for policy in joint.policies]
    if not view.audience.symbols and not view.audience.releases:
        counts = [(policy.windows_bound(), policy.windows_alone) for policy in joint.policies]
        bounds = [(bound.epsilon(ticks), promise.adversary) for bound, promise in counts if bound and promise] or bounds
    return max(bounds, key=lambda bound: bound[0])


def simulated_draws(
    policy: Policy, definitions: Sequence[Definition], generator: np.random.Generator, draw_count: int
) -> Recorded:
    """Simulate `draw_count` symbols in each state, and noises of each count, by the policy's own numbers."""
    simulator, states = Simulated(generator), len(policy.discretiser.states)
    symbols = [np.full(draw_count, x, dtype=np.int64) for x in range(states)]
    if policy.table is not None:
        simulated_source = JointStreams((policy,), (tuple(range(states)),)).source(0, heard=True)
        symbols = [simulator.symbols(path, simulated_source) for path in symbols]
    counts = [definition.window_count(name, 0, ()) for definition in definitions for name in definition.names]
    return Recorded(symbols, {count.name: simulator.noise(count, draw_count) for count in counts})


def _chain_words(chain: MarkovChain) -> str:
    if chain.states == 2:
        return f"q {chain.transition[0, 1]:.4g}, r {chain.transition[1, 0]:.4g}"
    return f"{chain.states} states"
