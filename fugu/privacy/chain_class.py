"""Finite classes of k-state chains: the assumption of batch guarantees on how readings depend on one another.

A class is a tuple of `MarkovChain`, each with its own start; chain files are read here. Intervals of two-state chains
and chains of bounded odds ratio are in `fugu.contract.chains`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.model import stationary_distribution
from fugu.contract._document import Document
from fugu.contract.chains import ChainClass, JointStream, odds_ratio
from fugu.contract.errors import FuguError
from fugu.contract.losses import SIXTEEN_ROUNDINGS

__all__ = [
    "TINY",
    "ChainClassError",
    "Chains",
    "Covered",
    "ListedChains",
    "MarkovChain",
    "ReleaseClass",
    "Start",
    "follow_steps",
    "matrix_rows",
    "mechanism_chains",
    "read_chains",
    "stationary_distribution_of",
]

Start = Literal["any", "stationary"]
"""Starts that a request can name. A recording need not begin in the long run of its chain: a device is switched on when
somebody goes to bed. A guarantee for any start holds for every distribution of the first tick."""
Covered = Literal["any", "stationary", "as given"]
"""The starts that a guarantee covers; "as given" is the distribution in a chain file."""
Chains: TypeAlias = "tuple[MarkovChain, ...] | ChainClass"
"""A class of chains, or a tuple of chains, each with its start."""
TINY = 1e-290
"""Least probability that a float holds accurately: no ratio is computed from rarer possible steps."""
_SUM_TOLERANCE = 1e-9
_MOST_STATES = 255


class ChainClassError(FuguError):
    """A chain, its file or its recording is not valid, or no guarantee or noise is known for it."""


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """A homogeneous chain (k, k); `initial` (k,) is the distribution of the first tick, `None` for any distribution."""

    transition: Floats
    initial: Floats | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "transition", _distributions(self.transition, "transition"))
        if self.transition.ndim != 2 or self.transition.shape[0] != self.transition.shape[1]:
            raise ChainClassError(f"transition must be square, its shape is {self.transition.shape}")
        if not 2 <= self.states <= _MOST_STATES:
            raise ChainClassError(f"a chain needs 2 to {_MOST_STATES} states, got {self.states}")
        if self.initial is not None:
            object.__setattr__(self, "initial", _distributions(self.initial, "initial"))
            if self.initial.shape != (self.states,):
                raise ChainClassError(f"initial must have {self.states} entries")

    @classmethod
    def stationary(cls, transition: ArrayLike) -> MarkovChain:
        """Make a chain that starts stationary; ChainClassError if it has several stationary distributions."""
        chain = cls(np.asarray(transition, dtype=np.float64), None)
        return cls(chain.transition, chain.stationary_distribution)

    @property
    def any_start(self) -> MarkovChain:
        """The same chain with any start."""
        return MarkovChain(self.transition, None)

    @property
    def states(self) -> int:
        """k, the number of states."""
        return int(self.transition.shape[0])

    @cached_property
    def stationary_distribution(self) -> Floats:
        """The distribution pi (k,) with pi P = pi, 0 for states that die out; ChainClassError if there are several."""
        try:
            return stationary_distribution(self.transition)
        except ValueError as error:
            raise ChainClassError(f"transition: {error}") from None

    @cached_property
    def is_stationary(self) -> bool:
        """True if the start is the stationary distribution, within the rounding of its computation.

        The comparison is relative: a very rare state counts as much as any other.
        """
        if self.initial is None:
            return False
        try:
            distribution = self.stationary_distribution
        except ChainClassError:  # a start on one of several closed classes
            return False
        return bool(np.all(np.abs(self.initial - distribution) <= SIXTEEN_ROUNDINGS * self.states * distribution))


class ListedChains(Document):
    """A few chains, started stationary, as a document: for the papers' mechanisms, never for a policy.

    Attributes:
        transitions: matrices of one size; every chain has one stationary distribution.
    """

    kind: Literal["listed"] = "listed"
    transitions: Annotated[tuple[tuple[tuple[float, ...], ...], ...], Field(min_length=1, max_length=8)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            if len({chain.states for chain in self.chains}) != 1:
                raise ChainClassError("the chains of a class need the same number of states")
        except ChainClassError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def chains(self) -> tuple[MarkovChain, ...]:
        """The chains with their stationary start."""
        return tuple(map(MarkovChain.stationary, self.transitions))

    @property
    def states(self) -> int:
        """k, the number of states."""
        return len(self.transitions[0])

    @property
    def named_streams(self) -> tuple[JointStream, ...]:
        """Streams that joint chains show: none, as the chains are of one stream."""
        return ()

    @property
    def worst_odds(self) -> Fraction | None:
        """The largest odds ratio, rounded up; `None` if a step is impossible."""
        try:
            return Fraction(max(map(odds_ratio, self.transitions)))
        except ValueError:
            return None


ReleaseClass: TypeAlias = ChainClass | ListedChains
"""The class of a policy, or a release's own chains."""


def mechanism_chains(chains: ReleaseClass) -> Chains:
    """Return the chains of a release's class in the form that mechanisms take."""
    return chains.chains if isinstance(chains, ListedChains) else chains


def matrix_rows(matrix: Floats | Ints) -> tuple[tuple[Any, ...], ...]:
    """Return the rows of a matrix (n, m) as tuples, as a file or a policy has them."""
    return tuple(map(tuple, matrix.tolist()))


def follow_steps(is_reachable: Bools, is_step: Bools) -> Bools:
    """Return the states that a step leads to from reachable ones: a Boolean product, in short floats for speed."""
    return np.asarray((is_reachable.astype(np.float32) @ is_step.astype(np.float32)) > 0.0)


def read_chains(text: str | bytes) -> tuple[MarkovChain, ...]:
    """Read a chain file: {"transition": rows, "initial": a list, "stationary" or "any"}, or {"chains": [...]} of these.

    Raises:
        ChainClassError: the file is not valid; the message is one line.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ChainClassError("a chain file must be JSON") from None
    entries = document.get("chains", [document]) if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ChainClassError('a chain file needs "transition" and "initial", or "chains": a list of such')
    chains = tuple(_read_chain(entry) for entry in entries)
    if len({chain.states for chain in chains}) != 1:
        raise ChainClassError("the chains of a class need the same number of states")
    return chains


def _read_chain(fields: dict[str, Any]) -> MarkovChain:
    if "transition" not in fields:
        raise ChainClassError('a chain needs "transition"')
    initial = fields.get("initial", "stationary")
    if isinstance(initial, str) and initial not in ("stationary", "any"):
        raise ChainClassError(f'"initial" must be a list, "stationary" or "any", got {initial!r:.40}')
    transition = _distributions(fields["transition"], "transition")
    if initial == "stationary":
        return MarkovChain.stationary(transition)
    return MarkovChain(transition, None if initial == "any" else _distributions(initial, "initial"))


def _distributions(rows: object, name: str) -> Floats:
    try:
        distributions = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ChainClassError(f"{name} must hold numbers, in rows of one length") from None
    is_probability = (distributions >= 0.0) & (distributions < np.inf)  # False for NaN
    if not (distributions.ndim and distributions.size and is_probability.all()):
        raise ChainClassError(f"{name} must hold probabilities")
    sums = distributions.sum(axis=-1, keepdims=True)
    if np.any(np.abs(sums - 1.0) > _SUM_TOLERANCE):
        raise ChainClassError(f"every row of {name} must sum to 1")
    return np.asarray(distributions / sums, dtype=np.float64)


def stationary_distribution_of(chain: MarkovChain) -> Floats:
    """Return the stationary distribution (k,), the start if that is stationary. ChainClassError for several."""
    return chain.initial if chain.is_stationary and chain.initial is not None else chain.stationary_distribution
