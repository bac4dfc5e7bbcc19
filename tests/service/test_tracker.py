"""Beliefs and estimates against the kernels on the whole sequence, and against enumeration of every path."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest

from contract.chains import BoundedChains
from contract.frames import SymbolFrame
from gateway.chain import filter_from, fixed_lag_marginals, predict
from gateway.service.kinds.symbol_model import Beliefs, Model, model_of
from gateway.service.kinds.symbol_track import Track
from tests.support.scenes import MODELS, TERNARY, frames, laid_out, policy


def track(some: Sequence[SymbolFrame], lag: int) -> tuple[dict[int, Beliefs], list[Beliefs]]:
    """Estimate of every tick that has one, each exactly once, and the belief at each frame's end."""
    following, estimates, beliefs = Track(lag, MODELS.__getitem__), {}, []
    for frame in some:
        update = following.extend(frame)
        beliefs.append(update.belief)
        for run in update.runs:
            for i, row in enumerate(run.probabilities):
                assert run.first + i not in estimates
                estimates[run.first + i] = row
    return estimates, beliefs


def enumerated(model: Model, symbols: Sequence[int], tick: int) -> Beliefs:
    """Pr(X_tick | symbols), by adding up every path."""
    law = np.zeros(len(model.initial))
    for path in product(range(len(law)), repeat=len(symbols)):
        weight = model.initial[path[0]]
        for x, y in pairwise(path):
            weight *= model.transition[x, y]
        for x, z in zip(path, symbols, strict=True):
            weight *= model.emission[x, z] if z >= 0 else 1.0
        law[path[tick]] += weight
    return np.asarray(law / law.sum(), dtype=np.float64)


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("lag", [0, 1, 5, 8, 30])
@pytest.mark.parametrize("gaps", [(0,), (0, 4, 5, 7, 8, 9, 40)])
def test_equals_the_kernels_on_the_whole_sequence(version: int, lag: int, gaps: Sequence[int]) -> None:
    some = frames([10, 1, 1, 3, 25, 1, 7, 2, 12], gaps=gaps, versions=[version])
    estimates, beliefs = track(some, lag)
    model, symbols = MODELS[version], laid_out(some)
    whole = fixed_lag_marginals(symbols, model.initial, model.transition, model.emission, lag)
    filtered = fixed_lag_marginals(symbols, model.initial, model.transition, model.emission, 0)
    held = {tick for frame in some for tick in range(frame.first, frame.last + 1) if tick + lag <= some[-1].last}
    assert held <= set(estimates)
    for tick, row in estimates.items():
        assert np.abs(row - whole[tick]).max() < 1e-12
    for frame, belief in zip(some, beliefs, strict=True):
        assert np.abs(belief - filtered[frame.last]).max() < 1e-12


@pytest.mark.parametrize("version", [1, 3])
def test_equals_the_enumeration_of_every_path(version: int) -> None:
    some, lag = frames([3, 2, 1], gaps=[0, 1, 0], versions=[version]), 2
    estimates, beliefs = track(some, lag)
    symbols = [int(symbol) for symbol in laid_out(some)]
    for tick, row in estimates.items():
        assert np.abs(row - enumerated(MODELS[version], symbols[: tick + lag + 1], tick)).max() < 1e-12
    assert np.abs(beliefs[-1] - enumerated(MODELS[version], symbols, len(symbols) - 1)).max() < 1e-12


@pytest.mark.parametrize("gap", [10**9, 2**53 - 10_000])
def test_a_device_that_was_away_for_ages_begins_again_at_the_stationary_law(gap: int) -> None:
    before, after = frames([10, 10], gaps=[0, gap])
    estimates, (_, belief) = track([before, after], 8)
    _, (fresh,) = track([after], 8)
    assert np.abs(belief - fresh).max() < 1e-12
    assert set(estimates) == {*range(10), after.first, after.first + 1}


def test_a_new_table_carries_the_belief_over_and_does_not_count_for_earlier_ticks() -> None:
    first, second = frames([10, 10], gaps=[0, 2], versions=[1, 2])
    estimates, beliefs = track([first, second], 4)
    old, new = MODELS[1], MODELS[2]
    symbols = laid_out([second])[second.first :]
    expected = filter_from(beliefs[0], 2, symbols, new.transition, new.emission).beliefs[-1]
    assert np.abs(beliefs[1] - expected).max() < 1e-12
    alone = np.append(laid_out([first]), [-1] * 4)
    lagged = fixed_lag_marginals(alone, old.initial, old.transition, old.emission, 4)
    assert all(np.abs(estimates[tick] - lagged[tick]).max() < 1e-12 for tick in range(10))
    assert set(estimates) == {*range(10), *range(second.first, second.last - 3)}


def test_other_states_begin_at_the_stationary_law_of_the_new_model() -> None:
    first, second = frames([10, 10], versions=[1, 3])
    assert np.array_equal(track([first, second], 4)[1][1], track([second], 4)[1][0])


def test_a_class_without_a_typical_chain_is_estimated_with_the_symmetric_one_of_its_odds_ratio() -> None:
    transition = MODELS[3].transition
    assert transition[0, 0] * transition[1, 1] / (transition[0, 1] * transition[1, 0]) == pytest.approx(9.0)
    assert np.allclose(transition.sum(axis=1), 1.0)
    given = ((0.8, 0.1, 0.1), (0.2, 0.7, 0.1), (0.1, 0.2, 0.7))
    typical = BoundedChains(states=3, odds_ratio=100.0, transition=given)
    assert np.allclose(model_of(policy(table=TERNARY, chains=typical)).transition, given)


def test_an_interval_class_is_estimated_with_its_midpoints_and_their_stationary_law() -> None:
    assert np.allclose(MODELS[1].transition, [[0.85, 0.15], [0.25, 0.75]])
    assert np.allclose(MODELS[1].initial, [0.625, 0.375])
    assert np.allclose(predict(MODELS[1].initial, MODELS[1].transition), MODELS[1].initial)
