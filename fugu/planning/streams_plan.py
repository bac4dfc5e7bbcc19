"""Plan streams that move together: one epsilon for all, and a rate for each, its largest loss about a tick.

Rates add up, so the largest total that the joint class allows is divided among the streams by shares. Each policy names
all streams and their rates: a device checks its own stream against its rate, and all streams against epsilon.

Source: docs/proofs/joint-streams.md, "Streams that move together".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream, odds_ratio
from fugu.contract.dating import with_slack
from fugu.contract.errors import FuguError, GuaranteeError
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary, Loss
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.queries import EACH
from fugu.contract.stretches import StretchBound
from fugu.contract.windows import Window, policy_scale, total_rate
from fugu.planning.errors import PlanningError
from fugu.planning.joint_recording import joint_class, marginal
from fugu.planning.policy_builder import PolicyHeader, make_policy
from fugu.planning.question import protected_ticks
from fugu.planning.window_plan import WantedWindow, window_shares
from fugu.privacy.accountant.accountant import largest_rate
from fugu.privacy.chain_class import matrix_rows
from fugu.privacy.chain_model import ChainModel
from fugu.privacy.randomised_response import Utility, allowed_ratios, assess, rate_table

__all__ = ["StreamsPlan", "StreamsRequest", "plan_streams", "stream_policies"]

_INWARD = 1.0 - 1e-9
_LEAST_RATE = 1e-12
_MOST_RATE = 40.0
_TOLERANCE = 1e-11


class StreamsRequest(NamedTuple):
    """A request for a plan; epsilon is that of all streams, about any stretch of `protect` seconds, 0 for a tick.

    `known` takes the fitted chain as it is, not the class that covers the recording. Names are "stream" or
    "device/stream". `shares` divide the total rate; each stream releases `windows`. `symbols` is the share of a
    stream's rate for its symbols; 1 without windows, `None` for windows only.
    """

    model: ChainModel
    epsilon: float
    adversary: Adversary
    known: bool
    names: tuple[str, ...]
    period_seconds: float
    shares: tuple[float, ...]
    windows: tuple[WantedWindow, ...] = ()
    symbols: float | None = 1.0
    protect: int = 0

    @property
    def stretch_ticks(self) -> int:
        """The largest number of ticks in the protected stretch."""
        return protected_ticks(self.protect, self.period_seconds)


class PlannedStream(NamedTuple):
    """The release of one stream.

    `rate` is the largest loss about a tick. `windows_loss` is the loss of all streams if only the windows of this one
    are seen; `None` unless the stream has windows and symbols. `utility` is that of the symbols. `alone` is the rate of
    the stream if planned by itself for the same epsilon; `None` if unknown.
    """

    name: str
    rate: float
    table: NoiseTable | None
    windows: tuple[Window, ...]
    windows_loss: Loss | None
    utility: Utility | None
    alone: float | None


class StreamsPlan(NamedTuple):
    """The class of every policy, and the loss of all streams together: `loss` about a tick, `bound` about stretches.

    `apart` is the joint loss if each stream were planned by itself for the same epsilon; infinite without a bound,
    `None` if unknown.
    """

    request: StreamsRequest
    chains: JointChains
    loss: Loss
    streams: tuple[PlannedStream, ...]
    apart: float | None
    bound: StretchBound


def plan_streams(request: StreamsRequest, ticks: int = 100_000) -> StreamsPlan:
    """Divide the largest rate that epsilon allows among streams; utility is simulated over `ticks` ticks.

    Raises:
        PlanningError: there is no such class, the shares are invalid, or no noise keeps epsilon.
        GuaranteeError: there is no finite guarantee against this adversary.
    """
    model, shares = request.model, request.shares
    if len(shares) != len(model.streams) or not all(0.0 < share < math.inf for share in shares):
        raise PlanningError(f"shares are {len(model.streams)} numbers above 0, got {', '.join(map(str, shares))}")
    if not 0.0 < request.epsilon < math.inf:
        raise PlanningError(f"epsilon must be a finite number above 0, got {request.epsilon:g}")
    class_of = joint_class(model, request.known, request.names, request.period_seconds)

    def divide(rate: float) -> list[float]:
        return [share / max(shares) * rate for share in shares]

    def epsilon_of(rates: Sequence[float]) -> float:
        return _bound(class_of(rates), request.adversary).epsilon(request.stretch_ticks)

    chains = class_of(divide(_largest_rate(lambda rate: epsilon_of(divide(rate)), request.epsilon)))
    lone_rates = [_rate_alone(request, i) for i in range(len(shares))]
    streams = tuple(_plan_stream(request, chains, i, lone_rates[i], ticks) for i in range(len(shares)))
    epsilon_apart = None
    if None not in lone_rates:
        try:
            epsilon_apart = epsilon_of([rate for rate in lone_rates if rate is not None])
        except GuaranteeError:
            epsilon_apart = math.inf
    loss = chains.joint_loss(request.adversary)
    return StreamsPlan(request, chains, loss, streams, epsilon_apart, _bound(chains, request.adversary))


def _bound(chains: JointChains, adversary: Adversary, tick_loss: Loss | None = None) -> StretchBound:
    """Bound the joint loss about stretches; the loss about a tick is `tick_loss`, by default that of all outputs."""
    return chains.stretch_bound((tick_loss or chains.joint_loss(adversary)).epsilon, 1, 0.0, (), adversary)


def stream_policies(plan: StreamsPlan, headers: Sequence[PolicyHeader]) -> tuple[Policy, ...]:
    """Make the policies of all streams, with the names of the plan, and check each as its device would.

    Raises:
        PlanningError: the clock is out of range.
    """
    request = plan.request
    ticks = request.stretch_ticks
    guarantee = Guarantee(epsilon=request.epsilon, adversary=request.adversary, stretch_ticks=ticks)
    return tuple(
        make_policy(
            header,
            table=stream.table,
            chains=plan.chains,
            guarantee=guarantee,
            windows=stream.windows,
            windows_guarantee=None
            if stream.windows_loss is None
            else guarantee.model_copy(
                update={"epsilon": _bound(plan.chains, request.adversary, stream.windows_loss).epsilon(ticks)}
            ),
        )
        for stream, header in zip(plan.streams, headers, strict=True)
    )


def _largest_rate(loss: Callable[[float], float], epsilon: float) -> float:
    """Find the largest rate whose loss is within epsilon less its slack; `loss` grows with the rate."""
    max_loss = with_slack(epsilon)

    def excess(rate: float) -> float:
        try:
            return min(loss(rate), 1e6) - max_loss
        except GuaranteeError:
            return 1e6

    max_rate = min(epsilon, _MOST_RATE)
    if not (rate := largest_rate(excess, max_loss, max_rate, _LEAST_RATE, _TOLERANCE)):
        loss(max_rate)  # raises the reason if there is no bound at all
        raise PlanningError(f"epsilon {epsilon:g} is too small: no noise that a policy can hold keeps it")
    return rate


def _plan_stream(
    request: StreamsRequest, chains: JointChains, stream_index: int, rate_alone: float | None, ticks: int
) -> PlannedStream:
    shown_stream = chains.streams[stream_index]
    windows = _plan_windows(request.windows, shown_stream, request.symbols or 0.0)
    windows_rate = total_rate(windows)
    table, utility = None, None
    if request.symbols is not None:
        table = rate_table(shown_stream.states, Fraction(shown_stream.rate) - windows_rate, request.epsilon)
        transition = marginal(request.model, stream_index)
        utility = assess(table, transition, BoundedChains(states=shown_stream.states, odds_ratio=1.0), ticks)
    windows_loss = None
    if windows and table is not None:
        rates = [stream.rate for stream in chains.streams]
        rates[stream_index] = math.nextafter(float(windows_rate), math.inf)
        windows_loss = chains.joint_loss(request.adversary, rates)
    return PlannedStream(shown_stream.name, shown_stream.rate, table, windows, windows_loss, utility, rate_alone)


def _plan_windows(wanted_windows: Sequence[WantedWindow], stream: JointStream, symbols: float) -> tuple[Window, ...]:
    """Plan the windows of a stream: they count the second of two states, or are histograms of more states."""
    if not wanted_windows:
        return ()
    windows = [window._replace(states=(1,) if stream.states == 2 else EACH) for window in wanted_windows]
    return tuple(
        window.window(policy_scale(window.unit_rate / (share * stream.rate * _INWARD)))
        for window, share in zip(windows, window_shares(windows, symbols), strict=True)
    )


def _rate_alone(request: StreamsRequest, stream_index: int) -> float | None:
    """The rate of a stream planned by itself; `None` if it has no class of its own, or is the only stream."""
    model = request.model
    if model.order == 2 or len(model.streams) == 1:
        return None
    chains: ChainClass
    try:
        if not request.known:
            if (odds := model.alone[stream_index]) is None:
                return None
            chains = BoundedChains(states=model.streams[stream_index].states, odds_ratio=odds)
        else:
            matrix = marginal(model, stream_index)
            if len(matrix) == 2:
                q, r = float(matrix[0, 1]), float(matrix[1, 0])
                chains = BinaryChains(q=(q, q), r=(r, r))
            else:
                chains = BoundedChains(states=len(matrix), odds_ratio=odds_ratio(matrix_rows(matrix)))
        ratios = allowed_ratios(chains, with_slack(request.epsilon), request.adversary, request.stretch_ticks)
        return math.log(min(ratios)) or None
    except (FuguError, ValueError):
        return None
