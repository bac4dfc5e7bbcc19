"""Every mechanism for a statistic over a window, at the same epsilon: the noise that each needs, and the reason.

Also the joint loss of several statistics that were released with given noise.

A plan finds the least scale as a real number; a policy holds a fraction, and the device judges the class of chains by
its own arithmetic. So the number is rounded up to a fraction of eight digits. It is raised until the check of a policy
with that scale and the same promise passes.

Source: docs/proofs/device-windows.md, "Windows counted on the device"; docs/proofs/stretches.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, odds_ratio
from fugu.contract.errors import FuguError, GuaranteeError
from fugu.contract.losses import OUTWARD, Adversary, exp_up
from fugu.contract.queries import WINDOW_QUERIES
from fugu.contract.stretches import Stretch, StretchBound
from fugu.contract.windows import Composing, has_bound, policy_scale
from fugu.privacy.accountant import ChainAccountant, Chains
from fugu.privacy.accountant.accountant import class_of, covered_start, known_chains, largest_rate, with_start
from fugu.privacy.chain_class import ChainClassError, Covered, MarkovChain, Start, matrix_rows
from fugu.privacy.quilts import QuiltScale, corner_chains, group_dp_scale, mqm_approx, mqm_exact, quilt_accountant
from fugu.privacy.wasserstein import wasserstein_states

__all__ = [
    "COMPOSING",
    "MECHANISMS",
    "JointBound",
    "Mechanism",
    "PlannedNoise",
    "WindowRelease",
    "WindowRequest",
    "compare_noise",
    "joint_losses",
    "only_chains",
    "plan_noise",
    "window_noise",
]


_FINE = 1e-8
_LEAST_SHARE = 1.0 / 128.0
"""The least share of a planned rate that a device may accept."""


def declared_class(chains: Chains, adversary: Adversary) -> ChainClass | None:
    """Return the class that a policy can declare for these chains and starts; `None` if none can.

    A class is kept. Else: by odds ratios for the universal adversary, otherwise only for one stationary binary chain.
    """
    if not isinstance(chains, tuple):
        return chains
    matrices = [matrix_rows(chain.transition) for chain in chains]
    if adversary == "universal":
        try:
            return BoundedChains(states=chains[0].states, odds_ratio=max(map(odds_ratio, matrices)))
        except ValueError:
            return None
    if len(chains) > 1 or chains[0].states > 2 or not chains[0].is_stationary:
        return None
    ((_, q), (r, _)) = matrices[0]
    return BinaryChains(q=(q, q), r=(r, r)) if 0.0 < q < 1.0 and 0.0 < r < 1.0 else None


def _excess(scale: Fraction, request: WindowRequest, device_class: ChainClass) -> float:
    """Return the device's epsilon for a policy with this scale less the promised one; a device accepts 0 or less."""
    ratio = exp_up(request.sensitivity / scale)
    try:
        return min(device_class.ratio_loss(ratio, ratio, request.adversary).epsilon, 1e6) - request.epsilon
    except GuaranteeError:
        return 1e6


def _raise_scale(scale: Fraction, request: WindowRequest, device_class: ChainClass) -> Fraction:
    """Return the least scale from `scale` on that the device accepts, to about 10^-7."""

    def excess(share: float) -> float:
        return _excess(policy_scale(scale / Fraction(share)), request, device_class)

    if not (share := largest_rate(excess, request.epsilon, 1.0, _LEAST_SHARE, _FINE)):
        raise ChainClassError("the device's check accepts no noise for such chains")
    return policy_scale(scale / Fraction(share))


Mechanism = Literal["chain", "mqm-exact", "mqm-approx", "wasserstein", "group", "entry"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
COMPOSING: tuple[Composing, ...] = get_args(Composing)
"""Mechanisms that protect correlated readings and still hold when further windows are released."""
_OUTWARD = 1.0 + 1e-9


@dataclass(frozen=True)
class WindowRequest:
    """Request for a release.

    Attributes:
        epsilon: the guarantee, in nats.
        length: ticks of the only window, or `None` for endless windows, one after another.
        query: the name of the query: the number of ticks in some states, or in each state.
        states: the counted states; `None` if these are open. Only the Wasserstein mechanism's noise depends on them.
        start: the start that the guarantee covers; `None` for the start of the class.
        segments: the most ticks of a segment, if segments are independent of one another; `None` for one chain.
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
        """Refuse states that the chains do not have, and an empty set of them, by a ChainClassError."""
        if self.states is not None:
            k = self.chains[0].states if isinstance(self.chains, tuple) else self.chains.states
            if not (self.states and set(self.states) <= set(range(k))):
                raise ChainClassError(f"states to count are some of 0 to {k - 1}, got {list(self.states)}")

    @property
    def dependent_ticks(self) -> int | None:
        """The most released ticks that depend on one another, `None` for no end. Fewer ticks lose no more."""
        return min((ticks for ticks in (self.length, self.segments) if ticks is not None), default=None)

    @property
    def chains_with_start(self) -> Chains:
        """The class with the start that the guarantee covers, for the chain accountant."""
        return with_start(self.chains, self.start)

    @property
    def sensitivity(self) -> int:
        """The largest change of the statistic by one reading, in L1: it moves between two bins of a histogram."""
        return WINDOW_QUERIES[self.query].sensitivity


@dataclass(frozen=True)
class WindowNoise:
    """Noise that a mechanism needs, for epsilon against an adversary and some starts.

    Attributes:
        scale: scale of the (discrete) Laplace noise on every released number, in ticks; rounded up.
        composes: whether the guarantee covers further windows with the same noise: tumbling windows without end.
        reason: what determined the scale.
        start: the starts that the guarantee covers.
    """

    mechanism: Mechanism
    scale: float
    epsilon: float
    adversary: Adversary
    composes: bool
    reason: str
    start: Covered


def window_noise(request: WindowRequest, mechanism: Mechanism) -> WindowNoise:
    """Return the noise that a mechanism needs for a request.

    Raises FuguError if the mechanism has no such adversary, needs a length, or no noise is enough.
    """
    if not has_bound(mechanism, request.adversary):
        raise ChainClassError(f"protects against the ignorant adversary only, not against the {request.adversary} one")
    scale, reason, composes = _NOISE_OF[mechanism](request)
    start = _noise_start(request, mechanism)
    return WindowNoise(mechanism, scale * _OUTWARD, request.epsilon, request.adversary, composes, reason, start)


def least_noise(request: WindowRequest) -> WindowNoise:
    """Return the noise of the mechanism that needs the least and composes; FuguError if there is none."""
    noises: list[WindowNoise] = []
    problems: list[FuguError] = []
    for mechanism in COMPOSING if request.adversary == "ignorant" else COMPOSING[:1]:
        try:
            noises.append(window_noise(request, mechanism))
        except FuguError as error:
            problems.append(error)
    if not noises:
        raise problems[0]
    return min(noises, key=lambda noise: noise.scale)


def _chain_noise(request: WindowRequest) -> tuple[float, str, bool]:
    accountant = ChainAccountant(request.chains_with_start)
    rate = accountant.allowance(request.epsilon, request.adversary, request.dependent_ticks)
    bound = accountant.loss(rate, request.adversary, request.dependent_ticks).bound
    return request.sensitivity / rate, f"{bound}; {rate:.6g} nats a tick", request.length is None


def _quilt_noise(scale_of: Callable[..., QuiltScale], request: WindowRequest) -> tuple[float, str, bool]:
    quilt_scale = scale_of(known_chains(request.chains, request.start), request.dependent_ticks, request.epsilon)
    a, b = quilt_scale.quilt
    width_words = [f"{a} before" * (a is not None), f"{b} after" * (b is not None)]
    quilt_words = " and ".join(width for width in width_words if width) or "none: the whole window"
    node_words = "any tick far from the ends" if quilt_scale.node is None else f"tick {quilt_scale.node}"
    reason = f"{node_words}, quilt {quilt_words}, {quilt_scale.card} near ticks, influence {quilt_scale.influence:.4g}"
    return request.sensitivity * quilt_scale.scale, reason, request.length is None


def _wasserstein_noise(request: WindowRequest) -> tuple[float, str, bool]:
    length = _required_length(request.length)
    if request.segments is not None:
        raise ChainClassError("its noise need not grow with the length: plan each segment with its --length")
    if not WINDOW_QUERIES[request.query].is_single:
        raise ChainClassError(f"releases one count: it has no {request.query}")
    members = only_chains(request.chains, request.start)
    (distance, node, states_apart, _), states = wasserstein_states(members, length, request.states)
    count_words = f"a count of state{'s' * (len(states) > 1)} {', '.join(map(str, states))}"
    if request.states is None and members[0].states > 2:
        count_words += " (the worst set)"
    if distance == 0:
        raise ChainClassError(f"{count_words} tells nothing of any tick: it needs no noise")
    reason = f"{count_words}: distance {distance} at tick {node} between states {states_apart[0]} and {states_apart[1]}"
    return float(distance) / request.epsilon, f"{reason}; covers one release of one number", False


def _group_noise(request: WindowRequest) -> tuple[float, str, bool]:
    length = _required_length(request.dependent_ticks)
    scale = group_dp_scale(length, request.epsilon, sensitivity=request.sensitivity)
    return scale, f"all {length} ticks are one secret", request.length is None


def _entry_noise(request: WindowRequest) -> tuple[float, str, bool]:
    scale = group_dp_scale(1, request.epsilon, sensitivity=request.sensitivity)
    return scale, "takes readings for independent: does not protect correlated ones", False


_NOISE_OF: dict[Mechanism, Callable[[WindowRequest], tuple[float, str, bool]]] = {
    "chain": _chain_noise,
    "mqm-exact": partial(_quilt_noise, mqm_exact),
    "mqm-approx": partial(_quilt_noise, mqm_approx),
    "wasserstein": _wasserstein_noise,
    "group": _group_noise,
    "entry": _entry_noise,
}


def only_chains(chains: Chains, start: Start | None = None) -> tuple[MarkovChain, ...]:
    """Return the chains of a class with a start; ChainClassError for an interval: its corners need not be the worst."""
    chain_class = known_chains(chains, start)
    members = corner_chains(chain_class)
    if len(members) > 1 and isinstance(chain_class, BinaryChains):
        raise ChainClassError("needs chains, not an interval of them: a chain inside can need more than the corners")
    return members


def _noise_start(request: WindowRequest, mechanism: Mechanism) -> Covered:
    """Return the starts that a mechanism's noise covers, which may be more than the request's."""
    if mechanism in ("mqm-approx", "group", "entry") or request.adversary == "universal":
        return "any"
    chains = request.chains_with_start if mechanism == "chain" else known_chains(request.chains, request.start)
    return covered_start(chains)


def _required_length(length: int | None) -> int:
    if length is None:
        raise ChainClassError("needs a length: its noise grows with the stream")
    return length


class PlannedNoise(NamedTuple):
    """A mechanism's noise, its scale in a policy, and the losses of a tick and of stretches with that scale.

    `scale` is of the noise on every number, in ticks. `device` is the class of chains of a policy that a device accepts
    with this scale. It is `None` for one window, independent segments, no protection, or chains that no policy can
    declare. `raised` says whether the device's check needed more noise than the plan did.
    """

    noise: WindowNoise
    scale: Fraction
    device: ChainClass | None
    raised: bool
    stretches: tuple[Stretch, ...]


def plan_noise(request: WindowRequest, mechanism: Mechanism | None, period_us: int | None) -> PlannedNoise:
    """Plan the noise of a mechanism, by default of the one with the least noise that composes.

    `period_us` is microseconds from tick to tick, `None` if unknown. Raises FuguError if no noise is enough.
    """
    noise = least_noise(request) if mechanism is None else window_noise(request, mechanism)
    scale = policy_scale(noise.scale)
    device_class = None
    if noise.composes and request.segments is None:  # no device can check segments
        device_class = declared_class(request.chains_with_start, request.adversary)
    accepted_scale = scale if device_class is None else _raise_scale(scale, request, device_class)
    rate = request.sensitivity / float(accepted_scale) * (1.0 + 2.0**-50)
    chains = request.chains_with_start
    try:
        tick_loss = ChainAccountant(chains).loss(rate, request.adversary, request.dependent_ticks).epsilon
    except ChainClassError:
        tick_loss = math.inf
    # in a stream that ends, past and future leak differently
    symmetric = request.dependent_ticks is None and class_of(chains).has_equal_leakages(request.adversary)
    bound = StretchBound(tick_loss, 1, rate, equal_leakages=symmetric, known_elsewhere=request.adversary != "ignorant")
    rows = bound.rows(period_us)
    if (length := request.length) is not None:
        loss, floor = bound.epsilon(length), bound.floor(length)
        rows = tuple(
            row if row.ticks <= length else row._replace(ticks=length, epsilon=loss, floor=floor) for row in rows
        )
    return PlannedNoise(noise, accepted_scale, device_class, accepted_scale > scale, rows)


def compare_noise(
    request: WindowRequest, period_us: int | None, on_mechanism: Callable[[Mechanism], None]
) -> tuple[tuple[PlannedNoise, ...], PlannedNoise, dict[Mechanism, str]]:
    """Return the noise of each possible mechanism, the least that composes, and the refusals of the others.

    `on_mechanism` is called before each mechanism's search, which can take long.

    Raises:
        ChainClassError: no mechanism that composes protects these chains.
    """
    noises: list[PlannedNoise] = []
    refusals: dict[Mechanism, str] = {}
    for mechanism in MECHANISMS:
        on_mechanism(mechanism)
        try:
            noises.append(plan_noise(request, mechanism, period_us))
        except FuguError as error:
            refusals[mechanism] = str(error)
    composing_plans = [noise_plan for noise_plan in noises if noise_plan.noise.mechanism in COMPOSING]
    if not composing_plans:
        raise ChainClassError(refusals.get("chain", "no mechanism protects this class of chains"))
    return tuple(noises), min(composing_plans, key=lambda noise_plan: noise_plan.scale), refusals


_MOST_TICKS = 10_000


@dataclass(frozen=True)
class WindowRelease:
    """A statistic over a window from tick `first` >= 1, plus Laplace noise of `scale` ticks on every number.

    The `query` counts some states together, or each.
    """

    first: int
    length: int
    scale: float
    query: str

    def __post_init__(self) -> None:
        """Refuse a first tick, a length or a scale that is out of range, by a ChainClassError."""
        if self.first < 1 or self.length < 1 or not 0.0 < self.scale < math.inf:
            raise ChainClassError("a release has a first tick and a length from 1 on, and noise of a scale above 0")

    @property
    def last(self) -> int:
        """The last tick of the window."""
        return self.first + self.length - 1

    @property
    def rate(self) -> float:
        """The release's part of the loss of a tick, rounded up."""
        return WINDOW_QUERIES[self.query].sensitivity / self.scale * (1.0 + OUTWARD)


AnyRelease = TypeVar("AnyRelease", bound=WindowRelease)


class JointBound(NamedTuple):
    """A named bound on the loss of any tick by all releases; `epsilon` is `None` without one, and `note` says why."""

    name: str
    epsilon: float | None
    note: str


def charges(releases: Sequence[WindowRelease], length: int) -> Floats:
    """Return the charges (length,) of releases to each tick, rounded up."""
    tick_charges = np.zeros(length)
    for release in releases:
        tick_charges[release.first - 1 : release.last] += release.rate
    return tick_charges * (1.0 + OUTWARD)


def shift_to_front(request: WindowRequest, releases: Sequence[AnyRelease]) -> tuple[AnyRelease, ...]:
    """Shift windows so that the first begins at tick 1, if the class is stationary or has chains that change."""
    shift = min(release.first for release in releases) - 1
    if covered_start(request.chains_with_start) != "stationary" and not class_of(request.chains).changes:
        return tuple(releases)
    return tuple(replace(release, first=release.first - shift) for release in releases)


def joint_losses(request: WindowRequest, releases: Sequence[WindowRelease]) -> list[JointBound]:
    """Return bounds on the joint loss of releases with independent noise, for the request's class and start.

    Raises ChainClassError if there is no release, or the releases cover too many ticks.
    """
    if not releases:
        raise ChainClassError("there is no release to account for")
    moved_releases = shift_to_front(request, releases)
    first_tick = releases[0].first - moved_releases[0].first + 1  # of the first tick, as it is shown
    length = max(release.last for release in moved_releases)
    if length > _MOST_TICKS:
        raise ChainClassError(f"at most {_MOST_TICKS} ticks are accounted for together, got {length}")
    tick_charges = charges(moved_releases, length)

    def chain_bound(adversary: Adversary) -> tuple[float, str]:
        loss = ChainAccountant(request.chains_with_start).schedule_loss(tick_charges, adversary)
        return loss.epsilon, loss.bound

    def quilt_bound() -> tuple[float, str]:
        losses = quilt_accountant(corner_chains(known_chains(request.chains, request.start)), tick_charges)
        return float(losses.max()), f"tick {int(losses.argmax()) + first_tick}"

    def full_bound() -> tuple[float, str]:
        return float(tick_charges.sum()) * (1.0 + OUTWARD), "all ticks are one secret"

    adversaries: tuple[Adversary, ...] = ("ignorant", "informed", "universal")
    bound_functions: dict[str, Callable[[], tuple[float, str]]] = {
        **{f"chain accountant, {attacker}": partial(chain_bound, attacker) for attacker in adversaries},
        "quilt accountant": quilt_bound,
        "every tick in full": full_bound,
    }
    return [_bounded_loss(name, bound_function) for name, bound_function in bound_functions.items()]


def _bounded_loss(bound_name: str, bound_function: Callable[[], tuple[float, str]]) -> JointBound:
    try:
        return JointBound(bound_name, *bound_function())
    except FuguError as error:
        return JointBound(bound_name, None, str(error))
