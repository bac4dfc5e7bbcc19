"""Every mechanism for a statistic over a window, at the same epsilon: how much noise each needs, and what for.

The chain accountant is ours; the others are the papers', as corrected, and the two classical ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from fugu.contract.chains import BinaryChains
from fugu.contract.errors import FuguError
from fugu.contract.guarantee import Adversary
from fugu.contract.queries import WINDOW_QUERIES
from fugu.privacy.accountant import ChainAccountant, Chains
from fugu.privacy.accountant.classes import covered_start, known_chains, started
from fugu.privacy.chain_class import ChainClassError, Covered, MarkovChain, Start
from fugu.privacy.eigengap import mqm_approx
from fugu.privacy.influence import influence_scale
from fugu.privacy.quilts import QuiltScale, corner_chains, entry_dp_scale, group_dp_scale, mqm_exact
from fugu.privacy.wasserstein import wasserstein_states

__all__ = [
    "COMPOSING",
    "MECHANISMS",
    "Mechanism",
    "WindowNoise",
    "WindowRequest",
    "known_chains",
    "least_noise",
    "window_noise",
]

Mechanism = Literal["chain", "mqm-exact", "mqm-approx", "wasserstein", "gk16", "group", "entry"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
COMPOSING: tuple[Mechanism, ...] = ("chain", "mqm-exact", "mqm-approx")
"""Mechanisms that protect correlated readings and still hold when further windows are released."""
_AGAINST_ALL = ("chain", "group")
_AGAINST_INFORMED = (*_AGAINST_ALL, "gk16")
_OUTWARD = 1.0 + 1e-9


@dataclass(frozen=True)
class WindowRequest:
    """What is to be released.

    Attributes:
        epsilon: the wanted guarantee, in nats.
        length: ticks of the one window there ever is, or None for windows without an end, one after another.
        query: by name: the number of ticks in some states, or in each state.
        adversary: what the adversary may know.
        states: what a count counts; None if that is open. Only the Wasserstein mechanism's noise depends on it.
        start: the start that is to be covered; None for the one that the class comes with.
        segments: the most ticks of a segment, where segments are independent of one another; None for one chain.
    """

    chains: Chains
    epsilon: float
    length: int | None
    query: str
    adversary: Adversary
    states: tuple[int, ...] | None = None
    start: Start | None = None
    segments: int | None = None

    def __post_init__(self) -> None:
        """Refuse states that the chains do not have.

        Raises:
            ChainClassError: there is such a state, or none is named.
        """
        if self.states is not None:
            k = self.chains[0].states if isinstance(self.chains, tuple) else self.chains.states
            if not (self.states and set(self.states) <= set(range(k))):
                raise ChainClassError(f"states to count are some of 0 to {k - 1}, got {list(self.states)}")

    @property
    def life(self) -> int | None:
        """The most ticks that depend on one another and are told of; None for no end. Fewer ticks lose no more."""
        return min((ticks for ticks in (self.length, self.segments) if ticks is not None), default=None)

    @property
    def accounted(self) -> Chains:
        """The class with its start, for the chain accountant."""
        return started(self.chains, self.start)

    @property
    def sensitivity(self) -> int:
        """By how much one reading can change the statistic, in L1: it moves between two bins of a histogram."""
        return WINDOW_QUERIES[self.query].sensitivity


@dataclass(frozen=True)
class WindowNoise:
    """What a mechanism needs.

    Attributes:
        scale: that of the (discrete) Laplace noise on every number that is released, in ticks; rounded up.
        epsilon: what it guarantees with that, in nats.
        adversary: against whom.
        composes: whether the guarantee covers further windows with the same noise: tumbling ones in an endless stream.
        reason: what determined the scale.
        start: the distributions of the first tick for which it holds.
    """

    mechanism: Mechanism
    scale: float
    epsilon: float
    adversary: Adversary
    composes: bool
    reason: str
    start: Covered


def window_noise(request: WindowRequest, mechanism: Mechanism) -> WindowNoise:
    """The noise that a mechanism needs.

    Raises:
        FuguError: one line that says why the mechanism cannot be had: it knows no such adversary, needs a length, or
            no noise is enough.
    """
    able = {"ignorant": MECHANISMS, "informed": _AGAINST_INFORMED, "universal": _AGAINST_ALL}
    if mechanism not in able[request.adversary]:
        weaker = "ignorant and the informed" if mechanism in _AGAINST_INFORMED else "ignorant"
        raise ChainClassError(f"protects against the {weaker} adversary only, not against the {request.adversary} one")
    scale, reason, composes = _OF[mechanism](request)
    start = _start(request, mechanism)
    return WindowNoise(mechanism, scale * _OUTWARD, request.epsilon, request.adversary, composes, reason, start)


def least_noise(request: WindowRequest) -> WindowNoise:
    """The least noise that composes, with its mechanism.

    Raises:
        FuguError: there is none.
    """
    found: list[WindowNoise] = []
    problem: FuguError | None = None
    for mechanism in COMPOSING if request.adversary == "ignorant" else COMPOSING[:1]:
        try:
            found.append(window_noise(request, mechanism))
        except FuguError as error:
            problem = problem or error
    if not found:
        raise problem or ChainClassError("there is no mechanism")
    return min(found, key=lambda noise: noise.scale)


def _chain(request: WindowRequest) -> tuple[float, str, bool]:
    accountant = ChainAccountant(request.accounted)
    rate = accountant.allowance(request.epsilon, request.adversary, request.life)
    bound = accountant.loss(rate, request.adversary, request.life).bound
    return request.sensitivity / rate, f"{bound}; {rate:.6g} nats a tick", request.length is None


def _quilt(scale_of: Callable[..., QuiltScale], request: WindowRequest) -> tuple[float, str, bool]:
    found = scale_of(known_chains(request.chains, request.start), request.life, request.epsilon)
    a, b = found.quilt
    widths = [f"{a} before" * (a is not None), f"{b} after" * (b is not None)]
    where = " and ".join(width for width in widths if width) or "none: the whole window"
    node = "any tick far from the ends" if found.node is None else f"tick {found.node}"
    reason = f"{node}, quilt {where}, {found.card} near ticks, influence {found.influence:.4g}"
    return request.sensitivity * found.scale, reason, request.length is None


def _wasserstein(request: WindowRequest) -> tuple[float, str, bool]:
    length = _bounded(request.length)
    if request.segments is not None:
        raise ChainClassError("its noise need not grow with the length: plan each segment with its --length")
    if WINDOW_QUERIES[request.query].each:
        raise ChainClassError("releases one number: it has no histograms")
    members = only_chains(request.chains, request.start)
    (distance, node, pair, _), states = wasserstein_states(members, length, request.states)
    counted = f"a count of state{'s' * (len(states) > 1)} {', '.join(map(str, states))}"
    if request.states is None and members[0].states > 2:
        counted += " (the worst set)"
    if distance == 0:
        raise ChainClassError(f"{counted} tells nothing of any tick: it needs no noise")
    reason = f"{counted}: distance {distance} at tick {node} between states {pair[0]} and {pair[1]}"
    return float(distance) / request.epsilon, f"{reason}; covers one release of one number", False


def _gk16(request: WindowRequest) -> tuple[float, str, bool]:
    chains = known_chains(request.chains, request.start)
    if isinstance(request.chains, BinaryChains) and isinstance(chains, tuple) and len(chains) > 1:
        raise ChainClassError("needs chains, not an interval of them, for any start")
    # of a shorter segment the matrix is another one: without a length it covers all
    found = influence_scale(chains, request.length if request.segments is None else None, request.epsilon)
    reason = f"influence matrix of spectral norm up to {found.norm:.4g}"
    return request.sensitivity * found.scale, reason, request.length is None


def _group(request: WindowRequest) -> tuple[float, str, bool]:
    length = _bounded(request.life)
    scale = group_dp_scale(length, request.epsilon, sensitivity=request.sensitivity)
    return scale, f"all {length} ticks are one secret", request.length is None


def _entry(request: WindowRequest) -> tuple[float, str, bool]:
    scale = entry_dp_scale(request.epsilon, sensitivity=request.sensitivity)
    return scale, "takes readings for independent: does not protect correlated ones", False


_OF: dict[Mechanism, Callable[[WindowRequest], tuple[float, str, bool]]] = {
    "chain": _chain,
    "mqm-exact": partial(_quilt, mqm_exact),
    "mqm-approx": partial(_quilt, mqm_approx),
    "wasserstein": _wasserstein,
    "gk16": _gk16,
    "group": _group,
    "entry": _entry,
}


def only_chains(chains: Chains, start: Start | None = None) -> tuple[MarkovChain, ...]:
    """The chains of a class with a start, where corners do not stand for an interval.

    Raises:
        ChainClassError: the class has others.
    """
    known = known_chains(chains, start)
    members = corner_chains(known)
    if len(members) > 1 and isinstance(known, BinaryChains):
        raise ChainClassError("needs chains, not an interval of them: a chain inside can need more than the corners")
    return members


def _start(request: WindowRequest, mechanism: Mechanism) -> Covered:
    """The starts that a mechanism's noise covers, whatever was asked for."""
    if mechanism in ("mqm-approx", "group", "entry") or request.adversary == "universal":
        return "any"
    return covered_start(request.accounted if mechanism == "chain" else known_chains(request.chains, request.start))


def _bounded(length: int | None) -> int:
    if length is None:
        raise ChainClassError("needs a length: its noise grows with the stream")
    return length
