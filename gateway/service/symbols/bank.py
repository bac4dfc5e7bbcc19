"""Models of many streams side by side in flat arrays: one kernel call can follow streams of different models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from gateway.service.kinds.symbol_model import Model

__all__ = ["Bank", "Models"]


class Models(NamedTuple):
    """What kernels read; a model's numbers begin at its entries of `at`.

    Attributes:
        facts: (models, 5): states k; which models mean the same by their states; where in `numbers` the transition
            matrix (k, k), the likelihoods (m + 1, k) of the symbols, and the stationary distribution (k,) begin.
        numbers: all of them.
    """

    facts: Ints
    numbers: Floats


class Bank:
    """Gives each model an index.

    Attributes:
        models: by index.
        states: the most that any has.
    """

    def __init__(self) -> None:
        self.models: list[Model] = []
        self.states = 2
        self._known: dict[int, int] = {}
        self._meanings: dict[object, int] = {}
        self._facts: list[tuple[int, int, int, int, int]] = []
        self._numbers: list[Floats] = []
        self._size = 0
        self._arrays: Models | None = None

    def index(self, model: Model) -> int:
        """The index of a model; equal policies share one object."""
        if (found := self._known.get(id(model))) is None:
            found = self._known[id(model)] = len(self.models)
            self.models.append(model)
            meaning = self._meanings.setdefault(model.meaning, len(self._meanings))
            places = [self._put(part) for part in (model.transition, model.rows, model.initial)]
            self._facts.append((len(model.initial), meaning, places[0], places[1], places[2]))
            self.states = max(self.states, len(model.initial))
            self._arrays = None
        return found

    def _put(self, part: Floats) -> int:
        at, flat = self._size, np.ascontiguousarray(part, dtype=np.float64).ravel()
        self._numbers.append(flat)
        self._size += len(flat)
        return at

    @property
    def arrays(self) -> Models:
        """All models so far."""
        if self._arrays is None:
            numbers = np.concatenate([np.zeros(0), *self._numbers])
            self._arrays = Models(np.array(self._facts, dtype=np.int64).reshape(-1, 5), numbers)
        return self._arrays
