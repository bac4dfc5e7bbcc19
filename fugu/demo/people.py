"""The three sleepers of the demo."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from contract.chains import BinaryChains
from contract.errors import FuguError
from host.csv_file import csv_rows

__all__ = ["FLEET", "RECORDINGS", "STREAM", "Person", "load_people"]

FLEET = "demo"
STREAM = "heart-rate"
RECORDINGS = Path(__file__).parent / "data"
"""The three nights; they keep their own licences."""
_EPSILONS = {"N10": 1.0, "N05": 1.0, "N07": 2.0}


@dataclass(frozen=True)
class Person:
    """One recording.

    Attributes:
        recording: the CSV file.
        mean: the person's mean heart rate in beats a minute; the edge between the two states.
        states: 1 where the heart rate is above the mean, one a beat.
        chains: the class the device is calibrated for: it spans both halves of the recording.
        average: the class that holds the chain of the whole recording and no other.
        epsilon: the promise of the device in the demo.
    """

    name: str
    recording: Path
    mean: float
    states: npt.NDArray[np.int64]
    chains: BinaryChains
    average: BinaryChains
    epsilon: float

    @property
    def device(self) -> str:
        """Name of the person's device."""
        return f"watch-{self.name}"


def load_people() -> list[Person]:
    """Read the recordings."""
    people = []
    for name, epsilon in _EPSILONS.items():
        path = RECORDINGS / f"hr_sleep_{name}.csv.gz"
        with csv_rows(path, FuguError) as (header, rows):
            values = np.array([float(row[header.index("value")]) for _, row in rows])
        mean = float(values.mean())
        states = (values >= mean).astype(np.int64)
        people.append(Person(name, path, mean, states, *_classes(states), epsilon))
    return people


def _classes(states: npt.NDArray[np.int64]) -> tuple[BinaryChains, BinaryChains]:
    """The smallest class with the chains of the recording and of its halves, rounded outward; and the whole's alone."""
    half = len(states) // 2
    (q, r), *halves = [_rates(part) for part in (states, states[:half], states[half:])]

    def span(*values: float) -> tuple[float, float]:
        return math.floor(min(values) * 1e4) / 1e4, math.ceil(max(values) * 1e4) / 1e4

    spanned = BinaryChains(q=span(q, *(part[0] for part in halves)), r=span(r, *(part[1] for part in halves)))
    return spanned, BinaryChains(q=(q, q), r=(r, r))


def _rates(states: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Fractions of the 0s that a 1 follows, and of the 1s that a 0 follows."""
    before, after = states[:-1], states[1:]
    return float(after[before == 0].mean()), float((1 - after[before == 1]).mean())
