"""The LSTM attacker learns from the folds that it is told, and from nothing else; needs PyTorch (extra `papers`)."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from fugu.attackers.outputs import Knowledge, SymbolOutputs
from papers.lstm import lstm_attacker

pytestmark = [pytest.mark.long, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]


def success(names: int) -> float:
    """The share of 4,000 states, half of them told while the other half is attacked, that are named right.

    The chain is sticky, a symbol in 4 is wrong, and `names` is added to the states of the second half, modulo 2.
    """
    random = np.random.default_rng(1)
    states = np.cumsum(random.random(4000) < 0.02) % 2
    symbols = np.where(random.random(4000) < 0.25, 1 - states, states)
    truth = np.where(np.arange(4000) < 2000, states, (states + names) % 2)
    outputs = SymbolOutputs(symbols, np.array([[0.75, 0.25], [0.25, 0.75]]))
    knowledge = Knowledge(np.full((2, 2), 0.5), np.zeros(4000, dtype=np.int64), truth=truth)
    chances = lstm_attacker(2)(outputs, knowledge)
    assert chances.shape == (4000, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-6)
    return float(np.mean(np.argmax(chances, axis=1) == truth))


def test_it_learns_that_states_last() -> None:
    assert success(names=0) > 0.9  # a symbol by itself is right in .75


def test_it_learns_names_of_states_from_the_other_half_alone() -> None:
    assert success(names=1) < 0.1
