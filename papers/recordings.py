"""The recordings that come with the repository, as states."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Ints
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.transitions import count_transitions, transition_matrix

__all__ = ["HEARTS", "PEOPLE", "States", "activity", "heart", "power", "presence"]

HEARTS = ("N10", "N05", "N07")
"""Heart rates of sleeping people; the first two are those of the BDP paper."""
PEOPLE = 5
"""Whose activity was recorded, for a week each."""


class States(NamedTuple):
    """A recording.

    Attributes:
        states: (n,) in 0..k-1, -1 where there is none.
        segments: (n,) equal inside a stretch without gaps.
    """

    states: Ints
    segments: Ints

    @property
    def k(self) -> int:
        """The number of states."""
        return int(self.states.max()) + 1

    @property
    def ticks(self) -> int:
        """Ticks that have a state."""
        return int(np.count_nonzero(self.states >= 0))

    @property
    def longest(self) -> int:
        """Ticks of the longest segment."""
        return int(np.bincount(self.segments[self.states >= 0]).max())

    @property
    def counts(self) -> Ints:
        """(k,) ticks in each state."""
        return np.bincount(self.states[self.states >= 0], minlength=self.k)

    def chain(self) -> MarkovChain:
        """The most likely chain, started stationary."""
        return MarkovChain.stationary(transition_matrix(count_transitions(*self, self.k)))

    def of(self, chosen: np.ndarray) -> States:
        """The ticks that are chosen, (n,) booleans."""
        return States(self.states[chosen], self.segments[chosen])


def _columns(folder: Path, name: str, columns: tuple[int, ...]) -> Ints:
    with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
        return np.loadtxt(file, delimiter=",", skiprows=1, usecols=columns, ndmin=2).astype(np.int64).T


def heart(folder: Path, name: str) -> States:
    """State of each beat, 1 if the heart beats faster than its mean and 0 if not, as in the BDP paper.

    Args:
        folder: of the recordings.
        name: of HEARTS.
    """
    [states] = _columns(folder, f"hr_sleep_{name}", (2,))
    return States(states, np.zeros_like(states))


def activity(folder: Path, *, cut: bool = True) -> tuple[States, Ints]:
    """Levels of activity, 0 to 3, minute by minute, and whose they are, 0 to 4.

    Args:
        folder: of the recordings.
        cut: at minutes in which the monitor was not worn: an hour and more without a count. They have no state then.
    """
    states, people, worn = _columns(folder, "activity_states", (0, 1, 2))
    if not cut:
        return States(states, people), people
    begins = np.concatenate([[True], (np.diff(people) != 0) | (np.diff(worn) != 0)])
    return States(np.where(worn == 1, states, -1), np.cumsum(begins) - 1), people


def power(folder: Path) -> States:
    """Power of a household in steps of 200 W, minute by minute, renumbered: the steps that occur."""
    [steps] = _columns(folder, "power_states", (0,))
    states = np.unique(steps, return_inverse=True)[1].astype(np.int64)
    return States(states, np.zeros_like(states))


def presence(folder: Path) -> dict[str, States]:
    """Three sensors of two states: water that runs, an occupied office, motion in a room."""
    [water] = _columns(folder, "water_states", (0,))
    return {
        "water": States(water, np.zeros_like(water)),
        "occupancy": States(*_columns(folder, "occupancy_states", (0, 1))),
        "motion": States(*_columns(folder, "motion_states", (0, 1))),
    }
