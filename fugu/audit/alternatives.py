"""What a stream loses if its chains are others than its class says: computed by the second certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from fugu.audit.exact import NotRecomputed, tick_ratios
from fugu.audit.exact.chains.claims import stream_loss
from fugu.audit.exact.numbers import log_up

__all__ = ["Bound", "above", "alternatives", "bound", "widened"]

_LASTING = (2, 10)


class Bound(NamedTuple):
    """What is lost if something is true, in nats, rounded up; none if no bound is known, and then `why`."""

    truth: str
    epsilon: float | None
    why: str = ""


def above(value: Fraction) -> float:
    """The least float that is not below."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def bound(truth: str, chains: Mapping[str, Any], ratios: tuple[Fraction, Fraction], adversary: str) -> Bound:
    """A bound for a class of chains, what a tick tells at most, and an adversary."""
    try:
        return Bound(truth, above(stream_loss(chains, ratios, adversary)))
    except NotRecomputed as error:
        return Bound(truth, None, str(error))


def widened(chains: Mapping[str, Any], factor: float) -> dict[str, Any] | None:
    """A class whose chains may keep a state, or change it, so many times more rarely; none for known chains.

    Args:
        chains: as in a policy.
        factor: at least 1; an odds ratio is of two such probabilities, and grows with its square.
    """
    if chains["kind"] == "binary":
        wider = {name: (chains[name][0] / factor, 1 - (1 - chains[name][1]) / factor) for name in "qr"}
        return {**chains, **wider}
    if chains.get("odds_ratio") is not None:
        return {**chains, "odds_ratio": chains["odds_ratio"] * factor**2}
    return None


def alternatives(policy: Mapping[str, Any]) -> Iterator[Bound]:
    """What all symbols and windows of a stream lose in other classes of chains, the adversary being that of the policy.

    Args:
        policy: its JSON.
    """
    chains, adversary, ratios = policy["chains"], policy["guarantee"]["adversary"], tick_ratios(policy)
    yield Bound("independent readings, which is what ordinary differential privacy assumes", above(log_up(max(ratios))))
    if (wider := widened(chains, 1.1)) is not None:
        yield bound("a class wider by 10 %: states kept longer, or changed more often", wider, ratios, adversary)
    yield bound("any start, and steps that change in time, within the class's odds ratios", chains, ratios, "universal")
    for ticks in _LASTING if chains["kind"] != "joint" else ():
        longer = (ratios[0] ** ticks, ratios[1] ** ticks)
        yield bound(f"longer memory: a state lasts {ticks} ticks before the chain moves", chains, longer, adversary)
    yield Bound("any chain at all", None, "no finite one: what a state that never changes adds to every tick adds up")
