"""Attacks on all that an audience may read of a tick: what epsilon is at least, beside what is promised and certified.

Three attackers, each of whom says how much he supposes. One counts how often an event happens under two states, on a
chain of the class that makes it worst, with draws that are simulated by the policy's own numbers, or with those that a
device and a gateway have really made: `gateway.audit.events`. One takes draws for independent given the states:
`gateway.audit.extended`. One takes the policy's numbers for what is drawn: `fugu.audit.witness`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fugu.audit.outputs import Counted, Mechanism, Simulated
from fugu.audit.witness import told_by_tick, witness
from fugu.contract.guarantee import Adversary
from fugu.contract.policy import Policy
from fugu.privacy.chain_class import MarkovChain
from gateway.audit.access import Audience
from gateway.audit.events import attacked, reach
from gateway.audit.extended import extended_epsilon
from gateway.audit.recorded import Recorded
from gateway.audit.scene import Scene, certified, mechanism_of, worst_chains
from gateway.audit.told import Definition

__all__ = ["LEVEL", "Attacked", "attack_audiences", "simulated"]

LEVEL = 0.05
"""How probable it is that any of the bounds of one audit is above the true epsilon."""
_DRAWS = 50
"""For each trial, of single ticks, which cost little."""
_FAR = (2000, 400)
"""How far a witness goes, for two states and for more."""


class Attacked(NamedTuple):
    """What was reached with all that an audience may read.

    Attributes:
        audience: who.
        heard: in words.
        promised: epsilon, in nats.
        certified: the bound of what is released to it as it is configured; infinite if there is none.
        adversary: of the promise.
        witness: epsilon is at least this if draws are as the policy states: some output is so much likelier under one
            state than under another. None of recorded draws, of which nothing is known but that they were drawn.
        extended: epsilon is at least this if draws are independent, given the states (`gateway.audit.extended`), at the
            confidence of the audit; none if not known.
        draws: whether they are "simulated" or "recorded".
        least: epsilon is at least this, whatever the draws; 0 if nothing could be shown.
        trials: of each of the two states.
        hits, alarms: how often the event happened under the one and under the other.
        about: the two states, and the chain, in words.
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

    @property
    def refuted(self) -> bool:
        """Whether what is promised is shown to be false."""
        return max(self.least, self.extended or 0.0, self.witness or 0.0) > self.promised


class _Told(NamedTuple):
    """What is attacked at once: symbols of some policies, and counts."""

    audience: Audience
    heard: tuple[bool, ...]
    counts: tuple[Definition, ...]

    @property
    def words(self) -> str:
        return ", ".join([*(["symbols"] if any(self.heard) else []), *dict.fromkeys(one.name for one in self.counts)])


def attack_audiences(
    policies: Sequence[Policy],
    audiences: Sequence[Audience],
    definitions: Sequence[Definition],
    *,
    seed: int,
    trials: int,
    recorded: Recorded | None = None,
    level: float = LEVEL,
) -> Iterator[Attacked]:
    """Attack what each audience may read.

    Args:
        policies: of a stream, or of streams that one class of joint chains names.
        definitions: all counts that are made of the streams, on devices and by the gateway.
        seed: of all that is simulated.
        trials: to count an event on, of each of two states; fewer where one takes long.
        recorded: draws of the first policy that were really made; with these, what an audience may read of other kinds
            is left out.
        level: shared out among the rows: the probability that any bound is wrong.

    Raises:
        SceneError: the policies are several, and not of one class of chains.
    """
    scene = Scene.of(policies)
    every = [one for audience in audiences for one in _told(scene, audience, definitions, recorded)]
    for number, one in enumerate(every):
        generator = np.random.default_rng([seed, number])
        yield _attack(scene, one, generator, trials, recorded, level / len(every) / 2)


def _told(
    scene: Scene, audience: Audience, definitions: Sequence[Definition], recorded: Recorded | None
) -> Iterator[_Told]:
    """What an audience hears together; and alone, if it is of a mechanism that does not compose."""
    mine = tuple(one for one in definitions if _hears(scene, audience, one))
    heard = [
        f"{policy.device}/{policy.stream}" in audience.symbols and policy.table is not None for policy in scene.policies
    ]
    if recorded is not None:
        mine = tuple(one for one in mine if all(name in recorded.noises for name in one.names))
        known = all(one.size for one in recorded.drawn)
        heard = [own and known and number == 0 for number, own in enumerate(heard)]
    if any(heard) or mine:
        yield _Told(audience, tuple(heard), mine)
    for one in mine if any(heard) or len(mine) > 1 else ():
        if one.alone:
            yield _Told(audience, tuple(False for _ in heard), (one,))


def _hears(scene: Scene, audience: Audience, definition: Definition) -> bool:
    policy = scene.policies[definition.source]
    if definition.release:
        return definition.name in audience.releases
    return f"{policy.device}/{policy.stream}" in audience.windows


def _promise(scene: Scene, told: _Told) -> tuple[float, Adversary]:
    if not told.audience.site:
        return told.audience.epsilon, told.audience.adversary
    found = [one.guarantee for one in scene.policies]
    if not told.audience.symbols and not told.audience.releases:
        found = [one.windows_alone for one in scene.policies if one.windows_alone is not None] or found
    most = max(found, key=lambda one: one.epsilon)
    return most.epsilon, most.adversary


def _attack(
    scene: Scene,
    told: _Told,
    generator: np.random.Generator,
    trials: int,
    recorded: Recorded | None,
    level: float,
) -> Attacked:
    promised, adversary = _promise(scene, told)

    def mechanism(radius: int) -> Mechanism:
        return mechanism_of(scene, told.heard, told.counts, radius)

    chains = worst_chains(scene, adversary, told_by_tick(mechanism(0)))
    event = attacked(mechanism, chains, generator, trials, recorded, level)
    shown = None
    if recorded is None:
        far = _FAR[scene.states > 2]
        shown = max(
            witness(mechanism(min(far, reach(one, 12.0))), one, knows=adversary != "ignorant").epsilon for one in chains
        )
    extended = None
    if len(scene.policies) == 1 and not any(one.alone for one in told.counts):
        drawn = recorded or simulated(scene.policies[0], told.counts, generator, _DRAWS * trials)
        noises = [(one, drawn.noises[one.names[0]]) for one in told.counts]
        extended = extended_epsilon(scene.policies[0], told.heard[0], noises, drawn.drawn, adversary, level)
    bound = certified(scene, told.heard, told.counts, adversary, told.audience.epsilon)
    draws = "simulated" if recorded is None else "recorded"
    about = "too few draws were recorded"
    if event.states is not None:
        names = " rather than ".join(map(scene.named, event.states))
        about = f"{names}, {_words(event.chain)}, {event.ticks} ticks"
    counted = (event.least, event.trials, event.hits, event.alarms, about)
    return Attacked(told.audience.name, told.words, promised, bound, adversary, shown, extended, draws, *counted)


def simulated(
    policy: Policy, definitions: Sequence[Definition], generator: np.random.Generator, draws: int
) -> Recorded:
    """So many draws in each state, and of each count's noise, by the policy's own numbers."""
    source, states = Simulated(generator), len(policy.discretiser.states)
    drawn = [np.full(draws, x, dtype=np.int64) for x in range(states)]
    if policy.table is not None:
        made = Scene((policy,), (tuple(range(states)),)).source(0, heard=True)
        drawn = [source.symbols(own, made) for own in drawn]
    noises = {
        name: source.noise(Counted(name, 0, one.length, (), None, one.scale, one.terms), draws)
        for one in definitions
        for name in one.names
    }
    return Recorded(drawn, noises)


def _words(chain: MarkovChain) -> str:
    if chain.states == 2:
        return f"q {chain.transition[0, 1]:.4g}, r {chain.transition[1, 0]:.4g}"
    return f"{chain.states} states"
