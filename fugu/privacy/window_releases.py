"""Statistics over windows that have been released with given noise, and what all of them lose together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.errors import FuguError
from fugu.contract.leakage import Adversary
from fugu.contract.queries import WINDOW_QUERIES
from fugu.contract.rounding import OUTWARD
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.accountant import class_of, covered_start, known_chains
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.quilts import corner_chains, quilt_accountant
from fugu.privacy.window_mechanisms import WindowRequest

__all__ = ["Together", "WindowRelease", "lost_together"]

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
        if self.first < 1 or self.length < 1 or not 0.0 < self.scale < float("inf"):
            raise ChainClassError("a release has a first tick and a length from 1 on, and noise of a scale above 0")

    @property
    def last(self) -> int:
        """Its last tick."""
        return self.first + self.length - 1

    @property
    def rate(self) -> float:
        """Its part of the loss of a tick, rounded up."""
        return WINDOW_QUERIES[self.query].sensitivity / self.scale * (1.0 + OUTWARD)


AnyRelease = TypeVar("AnyRelease", bound=WindowRelease)


class Together(NamedTuple):
    """A bound, of this name, on what all releases together lose about any tick; `None` if there is none, and why."""

    name: str
    epsilon: float | None
    note: str


def charges(releases: Sequence[WindowRelease], length: int) -> Floats:
    """(length,) what releases add to the loss of each tick."""
    total = np.zeros(length)
    for release in releases:
        total[release.first - 1 : release.last] += release.rate
    return total * (1.0 + OUTWARD)


def moved_to_the_front(request: WindowRequest, releases: Sequence[AnyRelease]) -> tuple[AnyRelease, ...]:
    """Windows that begin at tick 1, where earlier ticks are no different: of a stationary chain, or of any steps."""
    ahead = min(release.first for release in releases) - 1
    if covered_start(request.accounted) != "stationary" and not class_of(request.chains).changes:
        return tuple(releases)
    return tuple(replace(release, first=release.first - ahead) for release in releases)


def lost_together(request: WindowRequest, releases: Sequence[WindowRelease]) -> list[Together]:
    """Joint loss of releases with independent noise; only the class and the start of the request count.

    Raises ChainClassError if there is no release, or they are about too many ticks.
    """
    if not releases:
        raise ChainClassError("there is no release to account for")
    moved = moved_to_the_front(request, releases)
    number = releases[0].first - moved[0].first + 1  # of the first tick, as it is shown
    length = max(release.last for release in moved)
    if length > _MOST_TICKS:
        raise ChainClassError(f"at most {_MOST_TICKS} ticks are accounted for together, got {length}")
    rates = charges(moved, length)

    def accounted(adversary: Adversary) -> tuple[float, str]:
        loss = ChainAccountant(request.accounted).schedule_loss(rates, adversary)
        return loss.epsilon, loss.bound

    def by_quilts() -> tuple[float, str]:
        losses = quilt_accountant(corner_chains(known_chains(request.chains, request.start)), rates)
        return float(losses.max()), f"tick {int(losses.argmax()) + number}"

    def in_full() -> tuple[float, str]:
        return float(rates.sum()) * (1.0 + OUTWARD), "all ticks are one secret"

    adversaries: tuple[Adversary, ...] = ("ignorant", "informed", "universal")
    finds: dict[str, Callable[[], tuple[float, str]]] = {
        **{f"chain accountant, {each}": partial(accounted, each) for each in adversaries},
        "quilt accountant": by_quilts,
        "every tick in full": in_full,
    }
    return [_found(name, find) for name, find in finds.items()]


def _found(name: str, find: Callable[[], tuple[float, str]]) -> Together:
    try:
        return Together(name, *find())
    except FuguError as error:
        return Together(name, None, str(error))
