"""What a stream says of itself, as lines for people; needs no terminal library."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal

from fugu.contract.descriptions import Described, Description
from fugu.contract.queries import EACH

__all__ = ["description_lines"]

_DIGITS = Context(prec=6, rounding=ROUND_CEILING)
_MOST_NAMES = 12
_SENT = {
    "symbols": "randomised symbols",
    "windows": "noisy counts of windows",
    "both": "randomised symbols, noisy counts of windows",
    "points": "randomised points",
}
_KNOWS = {
    "ignorant": "who knows the class of chains only",
    "informed": "who knows the class of chains, and even some true states",
    "universal": "who knows anything else, also how the chain changes over time",
}
_ANSWERS = {
    "state": "the state at a time",
    "share": "shares of time",
    "place": "places",
    None: "nothing that a plan has compared with guessing",
}


def description_lines(description: Description) -> list[str]:
    """A headline, and what there is to know under it, indented."""
    one = description
    names = ", ".join(one.states) if len(one.states) <= _MOST_NAMES else f"{len(one.states)} states"
    doubt = "" if one.confirmed else " (not confirmed)"
    lines = [
        f"{one.device}/{one.stream}, version {one.version}{doubt}: {_SENT[one.kind]}",
        f"  states: {names}; a tick every {_seconds(one.period_seconds)}, tick 0 at {one.epoch}",
    ]
    for window in one.windows:
        states = "each state" if window.states == EACH else " + ".join(window.states)
        states += "" if window.clip is None else f", at most {window.clip} ticks"
        every = _seconds(window.stride * one.period_seconds)
        lines.append(
            f"  window {window.name}: {states} over {_seconds(window.length * one.period_seconds)}, every {every}, "
            f"noise of scale {window.scale}"
        )
    if one.point_epsilon is not None:
        lines.append(f"  a point: epsilon {_upward(one.point_epsilon)}")
    lines += _promise(one.guarantee, "everything")
    if one.windows_guarantee is not None:
        lines += _promise(one.windows_guarantee, "the windows alone")
    return [
        *lines,
        f"  {one.protects}",
        f"  {one.does_not_protect}",
        f"  holds for {one.chain_class}",
        f"  good for {_ANSWERS[one.useful_for]}",
    ]


def _promise(promise: Described, what: str) -> list[str]:
    """Of a tick and whom it holds against, then of stretches."""
    epsilon = "no bound" if promise.epsilon is None else f"epsilon {_upward(promise.epsilon)} for a single tick"
    lines = [f"  {what}: {epsilon}, {promise.adversary} adversary ({_KNOWS[promise.adversary]})"]
    for stretch in promise.stretches:
        if stretch.ticks > 1:
            worth = "no bound" if stretch.epsilon is None else f"epsilon {_upward(stretch.epsilon)}"
            lines.append(f"    {stretch.name}: {worth}{'' if stretch.protected else ', not protected'}")
    return lines


def _upward(epsilon: float) -> str:
    return f"{_DIGITS.create_decimal(Decimal(epsilon)).normalize():f}"


def _seconds(seconds: float) -> str:
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length and seconds % length == 0.0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
