"""Plan windows, and symbols beside them if wanted, under one epsilon.

The releases' losses about a tick, their rates, add up. The accountant of the class of chains finds the largest total
rate that epsilon allows. This total is divided: windows get parts that make the errors of their answers equal, unless
parts are asked for.

Source: docs/proofs/device-windows.md, "Windows counted on the device".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from fugu.contract.chains import ChainClass
from fugu.contract.dating import with_slack
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee, StreamOutputs, check_outputs
from fugu.contract.losses import Adversary, Loss
from fugu.contract.noise_table import NoiseTable
from fugu.contract.queries import COUNT, Each, Query
from fugu.contract.stretches import StretchBound
from fugu.contract.windows import Blocks, Composing, Window, policy_scale
from fugu.planning.errors import PlanningError
from fugu.privacy.accountant.accountant import covered_start
from fugu.privacy.chain_class import ChainClassError, Covered, Start
from fugu.privacy.randomised_response import Objective, allowed_ratios, calibrate, stream_states
from fugu.privacy.window_mechanisms import WindowRequest, window_noise

__all__ = ["JointPlan", "WantedWindow", "joint_plan", "symbol_plan", "window_shares"]


_TRIES = 40
_INWARD_FACTOR = 1.0 + 1e-8
"""More noise than a promise needs: an audience with the same promise, rounded inward, may then see the windows."""


class WantedWindow(NamedTuple):
    """A window to plan: length and stride (by default the length) in ticks, and states counted together, or `EACH`.

    `query` is asked of states, not of `EACH`. `share`, in (0, 1], is the window's part of the loss about a tick; by
    default the remaining windows divide the rest so that their errors are equal.
    """

    name: str
    length: int
    states: Each | tuple[int | str, ...]
    stride: int | None = None
    share: float | None = None
    query: Query = COUNT

    @property
    def unit_rate(self) -> float:
        """The loss about a tick, in nats, with noise of scale 1."""
        return float(self.window(Fraction(1)).rate)

    def window(self, scale: Fraction, mechanism: Composing = "chain") -> Window:
        """The window of a policy, with noise of a scale that a mechanism planned."""
        return Window(
            name=self.name,
            length=self.length,
            stride=self.length if self.stride is None else self.stride,
            states=self.states,
            scale=str(scale),
            mechanism=mechanism,
            blocks=None if self.query.blocks is None else Blocks(**vars(self.query.blocks)),
        )


class JointPlan(NamedTuple):
    """The releases of a device about one stream.

    `guarantee` and `loss` (as a device derives it) are those of all releases together. `windows_loss` is the loss of
    the windows alone; `None` without windows or without symbols.
    """

    chains: ChainClass
    guarantee: Guarantee
    table: NoiseTable | None
    windows: tuple[Window, ...]
    loss: Loss
    windows_loss: Loss | None

    @property
    def start(self) -> Covered:
        """The distributions at the first tick for which the device's check holds."""
        return _covered_start(self.chains, self.guarantee.adversary)

    @property
    def bound(self) -> StretchBound:
        """The bound on the loss of all releases together about stretches."""
        return StreamOutputs(self.table, self.windows).bound(self.chains, self.guarantee.adversary, self.loss.epsilon)


def symbol_plan(
    chains: ChainClass, epsilon: float, adversary: Adversary, stretch_ticks: int, objective: Objective = "information"
) -> JointPlan:
    """Plan one symbol per tick, with epsilon about `stretch_ticks` in a row. FuguError: no noise is enough."""
    guarantee = Guarantee(epsilon=epsilon, adversary=adversary, stretch_ticks=stretch_ticks)
    calibration = calibrate(chains, epsilon, adversary, objective, stretch_ticks=stretch_ticks, slack=True)
    return JointPlan(chains, guarantee, calibration.table, (), calibration.loss, None)


def joint_plan(
    chains: ChainClass,
    epsilon: float,
    adversary: Adversary,
    windows: Sequence[WantedWindow],
    symbols: float | None = None,
    objective: Objective = "information",
    start: Start | None = None,
    mechanism: Composing = "chain",
    stretch_ticks: int = 1,
) -> JointPlan:
    """Divide the rate that epsilon allows among windows, at least one, and symbols, for the class of the policy.

    Epsilon is about `stretch_ticks` in a row. `symbols` is the symbols' share of a tick's loss, in (0, 1); `None` for
    no symbols. `objective` chooses a table of two states. The device's check must cover `start`, by default the class's
    own. `mechanism` plans the windows; the device always checks them by the chain accountant, which finds a smaller
    loss for windows planned by quilts.

    Raises:
        PlanningError: the shares or windows are invalid, the device's check does not cover any start, or quilts have no
            bound.
        ChainClassError: epsilon allows no symbols beside the windows.
        GuaranteeError: a window needs more noise than a policy can hold.
    """
    guarantee = Guarantee(epsilon=epsilon, adversary=adversary, stretch_ticks=stretch_ticks)
    if symbols is not None and not 0.0 < symbols < 1.0:
        raise PlanningError(f"the share of the symbols must lie between 0 and 1, got {symbols:g}")
    for window in windows:
        if unknown_states := [x for x in window.states if isinstance(x, int) and not 0 <= x < stream_states(chains)]:
            raise PlanningError(f"states to count are some of 0 to {stream_states(chains) - 1}, got {unknown_states}")
    if start == "any" and _covered_start(chains, adversary) != "any":
        raise PlanningError(
            f"a device checks such chains started stationary for the {adversary} adversary: any start needs "
            "--adversary universal, or chains of bounded odds ratios"
        )
    shares = window_shares(windows, symbols or 0.0)
    if mechanism == "chain":
        tick_rate = math.log(min(allowed_ratios(chains, with_slack(epsilon), adversary, stretch_ticks)))
        if tick_rate == 0.0:
            raise PlanningError(f"no noise keeps epsilon {epsilon:g} for such chains")
    elif stretch_ticks > 1:
        raise PlanningError(f"a stretch of ticks is planned by the chain accountant: {mechanism} is for single ticks")
    elif symbols is not None:
        raise PlanningError(f"symbols beside windows are planned by the chain accountant, not by {mechanism}")
    else:
        request = WindowRequest(chains, epsilon, None, "count", adversary, start=start)
        try:
            tick_rate = 1.0 / window_noise(request, mechanism).scale
        except ChainClassError as error:
            raise PlanningError(f"{mechanism} {error}") from None
    promise = guarantee.model_copy(update={"epsilon": with_slack(epsilon)}) if mechanism == "chain" else guarantee
    scaled_windows = _scaled_windows(chains, promise, windows, [share * tick_rate for share in shares], mechanism)
    windows_loss = chains.ratio_loss(*chains.lasting_ratios(*StreamOutputs(None, scaled_windows).ratios), adversary)
    if symbols is None:
        return JointPlan(chains, guarantee, None, scaled_windows, windows_loss, None)
    calibration = calibrate(chains, epsilon, adversary, objective, scaled_windows, stretch_ticks, slack=True)
    return JointPlan(chains, guarantee, calibration.table, scaled_windows, calibration.loss, windows_loss)


def _covered_start(chains: ChainClass, adversary: Adversary) -> Covered:
    return "any" if adversary == "universal" else covered_start(chains)


def window_shares(windows: Sequence[WantedWindow], symbols_share: float) -> list[float]:
    """Divide a tick's loss among windows, as asked or for equal errors; symbols have the share `symbols_share`."""
    if not windows:
        raise PlanningError("there is no window to plan")
    if len({window.name for window in windows}) != len(windows):
        raise PlanningError("two windows have the same name: write NAME=LENGTH")
    asked_shares = [window.share for window in windows if window.share is not None]
    free_share = 1.0 - symbols_share - sum(asked_shares)
    if any(not 0.0 < share <= 1.0 for share in asked_shares) or free_share < -1e-9:
        raise PlanningError("the shares of windows and symbols must be above 0, and not more than 1 in all")
    weights = {window.name: window.unit_rate / window.length for window in windows if window.share is None}
    if weights and free_share <= 0.0:
        raise PlanningError("the shares that are asked for leave nothing to the other windows")
    if not weights and free_share > 1e-9:
        raise PlanningError(
            f"the shares add up to {1.0 - free_share:g}: {free_share:g} of what epsilon allows would go unused"
        )
    total = sum(weights.values())
    return [free_share * weights[window.name] / total if window.share is None else window.share for window in windows]


def _scaled_windows(
    chains: ChainClass,
    guarantee: Guarantee,
    windows: Sequence[WantedWindow],
    rates: Sequence[float],
    mechanism: Composing,
) -> tuple[Window, ...]:
    """Give windows the noise of their rates, with as little more as the device's check needs."""
    factor, factor_step = _INWARD_FACTOR, 1e-9
    for _ in range(_TRIES):
        scaled_windows = tuple(
            window.window(policy_scale(window.unit_rate / rate * factor), mechanism)
            for window, rate in zip(windows, rates, strict=True)
        )
        try:
            check_outputs(chains, StreamOutputs(None, scaled_windows), guarantee)
        except GuaranteeError:
            factor, factor_step = factor + factor_step, 2.0 * factor_step
        else:
            return scaled_windows
    raise PlanningError(f"no noise keeps epsilon {guarantee.epsilon:g} for such chains")
