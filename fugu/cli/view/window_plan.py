"""The noise of windows as JSON, or as a table and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

from fugu.cli.view.guarantee import SEGMENTS, show_stretches, stretch_documents
from fugu.cli.view.terminal import say, show_table
from fugu.contract.discretisers import Discretiser
from fugu.contract.exponential import log_up
from fugu.contract.guarantee import tick_ratios
from fugu.contract.sentences import protected_sentence
from fugu.contract.stretches import Stretch, stretches
from fugu.contract.windows import Window
from fugu.planning.answers import WindowError, window_error
from fugu.planning.joint_plan import JointPlan
from fugu.planning.window_plan import PlannedNoise
from fugu.privacy.window_mechanisms import Mechanism, WindowRequest

__all__ = ["joint_document", "noise_document", "show_joint", "show_noise"]

_COLUMNS = ("mechanism", "scale", "about", "further", "start", "determined by")
_WINDOW_COLUMNS = (
    "window",
    "ticks",
    "counts",
    "scale",
    "off by (mean)",
    "off by (95 %)",
    "share (mean)",
    "share (95 %)",
)
_LONGEST = 1 << 31
_TWO_DIGITS = Context(prec=2, rounding=ROUND_CEILING)
_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"))


def show_noise(
    request: WindowRequest,
    notes: Sequence[str],
    found: Sequence[PlannedNoise],
    best: PlannedNoise,
    refused: Mapping[Mechanism, str] | None = None,
) -> None:
    """Print the noise of mechanisms.

    Args:
        request: what was planned.
        notes: how the class of chains came about.
        found: noise to show.
        best: the one whose stretches are shown.
        refused: why others cannot be had; none if only one was asked for.
    """
    for note in notes:
        say(note)
    span = "windows without end" if request.length is None else f"one window of {request.length} ticks"
    if request.segments is not None:
        span += f", independent segments of at most {request.segments} ticks"
    title = f"Noise for a {request.query} at epsilon {request.epsilon:g}, {request.adversary} adversary, {span}"
    show_table(title, _COLUMNS, [_row(each, least=refused is not None and each is best) for each in found])
    for other, why in (refused or {}).items():
        say(f"{other}: {why}", style="dim")
    error = _error(request, best)
    share = "" if request.length is None else f", {_percent(error.share_95)} of the window"
    say(
        f"with the noise of {best.noise.mechanism} a number is off by {error.count_mean:.3g} ticks on average, and "
        f"by at most {error.count_95}{share}, 95 % of the time."
    )
    show_stretches(best.planned.stretches, f" ({best.noise.mechanism})")
    say(
        "scale: of the Laplace noise on every number, in ticks, as a policy writes it. further: whether the "
        "same epsilon covers a stream of such windows that do not overlap. start: what the distribution of the first "
        "tick may be."
    )
    if request.segments is not None:
        say(SEGMENTS)
    elif request.length is not None:
        say("with --endless, not --length, chain, quilts and gk16 compose, and a device's policy takes their scale.")
    elif best.planned.device is None:
        say("no policy can declare these chains with their start: a device cannot check this noise.")


def _row(each: PlannedNoise, *, least: bool = False) -> tuple[str, ...]:
    noise, planned = each
    name = f"{noise.mechanism} (least)" if least else noise.mechanism
    reason = noise.reason
    if planned.raised:
        reason += f"; raised from {noise.scale:.6g} to what a device accepts"
    about = f"{float(planned.scale):.6g}"
    return name, str(planned.scale), about, "yes" if noise.composes else "no", noise.start, reason


def _error(request: WindowRequest, each: PlannedNoise) -> WindowError:
    """The error of a number; of a window that has no end in sight, cut off nowhere."""
    return window_error(each.planned.scale, _LONGEST if request.length is None else request.length)


def noise_document(request: WindowRequest, each: PlannedNoise) -> dict[str, Any]:
    """Noise as an object for JSON."""
    noise, planned = each
    return {
        "mechanism": noise.mechanism,
        "scale": str(planned.scale),
        "epsilon": noise.epsilon,
        "adversary": noise.adversary,
        "start": noise.start,
        "query": request.query,
        "length": request.length,
        "segments": request.segments,
        "error": {
            name: value
            for name, value in _error(request, each)._asdict().items()
            if request.length is not None or name.startswith("count")
        },
        "composes": noise.composes,
        "protects_correlated": noise.mechanism != "entry",
        "chains": None if planned.device is None else planned.device.model_dump(mode="json"),
        "stretches": stretch_documents(planned.stretches),
        "reason": noise.reason,
    }


def show_joint(plan: JointPlan, period: float | None, notes: Sequence[str], discretiser: Discretiser | None) -> None:
    """Print the windows of a policy, with the errors of their answers.

    Args:
        plan: what was planned.
        period: seconds from tick to tick, or none if that is not known.
        notes: how the class of chains came about.
        discretiser: what makes the states, if that is known.
    """
    for note in notes:
        say(note)
    say(protected_sentence(discretiser))
    what = "windows" if plan.table is None else "windows and symbols"
    title = f"{what} at epsilon {plan.guarantee.epsilon:g} together, {plan.guarantee.adversary} adversary"
    title += f", {plan.start} start"
    rows = [_window_row(window, error) for window, error in zip(plan.windows, plan.errors, strict=True)]
    show_table(title[0].upper() + title[1:], _WINDOW_COLUMNS, rows)
    for window, error in zip(plan.windows, plan.errors, strict=True):
        say(_answer(window, error, _span(window, period)))
    if (mechanism := plan.windows[0].mechanism) != "chain":
        say(f"planned by {mechanism}; the chain accountant, and so the device, finds epsilon {plan.loss.epsilon:.6g}")
    if plan.table is not None:
        unchanged = ", ".join(f"{row[x] / 2**32:.4f}" for x, row in enumerate(plan.table.weights()))
        say(f"a symbol every tick is the true state with probability {unchanged}, by state")
        if plan.windows_loss is not None:
            say(f"whoever sees the windows alone learns at most epsilon {plan.windows_loss.epsilon:.6g}")
    show_stretches(_stretches(plan, period))


def joint_document(plan: JointPlan, period: float | None, discretiser: Discretiser | None) -> dict[str, Any]:
    """The windows of a policy as an object for JSON; arguments as for `show_joint`."""
    return {
        "protected": protected_sentence(discretiser),
        "epsilon": plan.guarantee.epsilon,
        "adversary": plan.guarantee.adversary,
        "start": plan.start,
        "chains": plan.chains.model_dump(mode="json"),
        "loss": plan.loss._asdict(),
        "windows_loss": None if plan.windows_loss is None else plan.windows_loss._asdict(),
        "weights": None if plan.table is None else plan.table.weights(),
        "windows": [
            {
                **window.model_dump(mode="json"),
                "seconds": None if period is None else window.length * period,
                "error": error._asdict(),
            }
            for window, error in zip(plan.windows, plan.errors, strict=True)
        ],
        "stretches": stretch_documents(_stretches(plan, period)),
    }


def _window_row(window: Window, error: WindowError) -> tuple[str, ...]:
    states = window.states if isinstance(window.states, str) else ", ".join(map(str, window.states))
    about = f"{float(Fraction(window.scale)):.6g}"
    counts = f"{error.count_mean:.3g}", str(error.count_95)
    shares = map(_percent, error[2:]) if window.query.adds_up else ("-", "-")
    return (window.name, str(window.length), states, about, *counts, *shares)


def _answer(window: Window, error: WindowError, span: str) -> str:
    """How far off the answer of a window is; a clipped count is no share of its window."""
    clip, sure = window.query.clip, "(95 % of the time)"
    if clip is None:
        return f"the share over {span} is within {_percent(error.share_95)} {sure}"
    useless = ", no better than guessing" if error.count_95 >= clip else ""
    return f"the count over {span}, clipped at {clip}, is within {error.count_95} {sure}{useless}"


def _percent(share: float) -> str:
    """A share in percent, rounded up to two digits."""
    return f"{_TWO_DIGITS.create_decimal(Decimal(100.0 * share)).normalize():f} %"


def _span(window: Window, period: float | None) -> str:
    """The time that a window takes, in the largest unit that it is at least one of."""
    if period is None:
        return f"{window.length} ticks"
    seconds = window.length * period
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.4g} {name[:-1] if seconds == unit else name}"
    return f"{seconds:.4g} seconds"


def _stretches(plan: JointPlan, period: float | None) -> tuple[Stretch, ...]:
    rate = 0.0 if plan.table is None else log_up(max(tick_ratios(plan.table)))
    period_us = None if period is None else max(1, round(period * 1_000_000))
    return stretches(plan.loss.epsilon, rate, period_us, plan.windows, equal_leakages=True)
