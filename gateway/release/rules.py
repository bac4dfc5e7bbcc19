"""The rules of mechanisms, applied once more to what a ledger says: allowances, and noise that covers one release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from fugu.contract.chains import ChainClass
from fugu.contract.guarantee import Adversary
from fugu.contract.mechanisms import ALONE, Mechanism
from fugu.contract.release_frames import ReleaseFrame
from fugu.privacy.chain_class import ChainClassError
from gateway.release.allowance import allowance
from gateway.release.charges import nats, units_below
from gateway.release.together import Stream, named_streams
from gateway.release.whole_window import WholeWindow, moved_by_all

__all__ = [
    "SAME",
    "allowance_problem",
    "classes_of",
    "classes_written",
    "noise_problem",
    "streams_charged",
    "with_classes",
]

SAME = Fraction(1, 2 * 10**9)  # half of what allowances are rounded inward by: another machine's logarithms
_CLASSES: TypeAdapter[tuple[ChainClass, ...]] = TypeAdapter(tuple[ChainClass, ...])


def allowance_problem(allowed: int, mechanism: str, epsilon: float, adversary: str, chains: str) -> str:
    """Why an allowance is not one by its mechanism's rule; empty if it is, or is lower.

    Args:
        allowed: in units of `gateway.release.charges`.
        mechanism, epsilon, adversary: of the promise.
        chains: the classes as JSON.
    """
    try:
        classes = classes_of(chains)
        found = [allowance(one, epsilon, cast(Adversary, adversary), cast(Mechanism, mechanism)) for one in classes]
    except (ValidationError, ChainClassError, ValueError) as error:
        return f"its allowance cannot be computed again: {str(error).splitlines()[0]}"
    most = min(found, default=0)
    if allowed > most * (1 + SAME):
        return f"its allowance is {nats(allowed):.12g}, and mechanism {mechanism} allows {nats(most):.12g}"
    return ""


def classes_of(chains: str) -> tuple[ChainClass, ...]:
    """The classes of chains that an allowance was computed for, from JSON; a `ValidationError` if it holds none."""
    return _CLASSES.validate_json(chains)


def classes_written(chains: str) -> tuple[ChainClass, ...]:
    """The classes of chains in JSON; empty if it holds none, which `allowance_problem` says."""
    try:
        return classes_of(chains)
    except ValidationError:
        return ()


def with_classes(chains: str, more: Iterable[ChainClass]) -> str:
    """Add classes of chains to those in JSON."""
    known = classes_written(chains)
    every = tuple(dict.fromkeys((*known, *more)))
    return chains if every == known else _CLASSES.dump_json(every).decode()


def streams_charged(chains: str, device: str) -> frozenset[Stream]:
    """The streams that an account's classes of chains, given as JSON, charge together; none if one alone."""
    return frozenset[Stream]().union(*(named_streams(one, device) for one in classes_written(chains)))


def noise_problem(entry: Mapping[str, Any], frame: ReleaseFrame, charge: int) -> str:
    """Why the noise of a release is not that of its mechanism's rule; empty if it is.

    Args:
        entry: the ledger's columns.
        frame: what was published.
        charge: the most that a device's ticks were charged, in units of `gateway.release.charges`.
    """
    if bool(entry["exclusive"]) != (entry["mechanism"] in ALONE):
        return f"mechanism {entry['mechanism']} {'composes' if entry['exclusive'] else 'does not compose'}"
    if entry["mechanism"] not in ALONE:
        return ""
    if charge != units_below(frame.epsilon):
        return "it does not compose, and is not charged the whole of epsilon"
    try:
        basis = WholeWindow.model_validate_json(entry["basis"])
        if entry["mechanism"] == "group":
            least = moved_by_all(frame.query, 1, frame.length)
            wrong = basis.moved is None or basis.moved < least
        else:
            ticks = {one.ticks for one in basis.symbols}
            wrong = basis.moved is not None or len(basis.symbols) != frame.devices or ticks != {frame.length}
        wanted = basis.scale(frame.epsilon)
    except (ValidationError, ChainClassError, ValueError) as error:
        return f"its noise cannot be computed again: {str(error).splitlines()[0]}"
    if wrong:
        return "its noise is for another window"
    return "" if Fraction(entry["scale"]) >= wanted else f"its noise has scale {entry['scale']}, and needs {wanted}"
