"""Beliefs and estimates against the kernels on the whole sequence, and against enumeration of every path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from fugu.chains.arrays import Floats
from fugu.chains.inference import filter_beliefs, fixed_lag_marginals, predict
from fugu.chains.model import likelihood_rows
from fugu.contract.chains import BoundedChains
from fugu.contract.frames import SymbolFrame
from gateway.estimates.beliefs import Bank, Beliefs, Model, follow, look_back, model_of
from gateway.store.coverage import Place
from gateway.store.symbols import Columns
from tests.support.scenes import MODELS, TERNARY, Scene, frames, laid_out, policy

SEALED = pytest.mark.parametrize("sealed", ["not", "half", "whole"])


def estimates(folder: Path, some: Sequence[SymbolFrame], lag: int, sealed: str = "not") -> dict[int, Floats]:
    """Estimate of every tick that has one, each exactly once, in order."""
    scene, rows = Scene(folder / "s.sqlite", lag), dict[int, Floats]()
    for part in (some[: len(some) // 2], some[len(some) // 2 :]) if sealed == "half" else (some,):
        if sealed == "half":
            scene.recorder.seal(now=True)
        scene.record(*part)
    if sealed == "whole":
        scene.recorder.seal(now=True)
    number = scene.store.number_of("watch", "hr")
    for run in scene.recorder.symbols.past.estimates(Place(number, "watch", "hr")):
        for tick, row in enumerate(run.probabilities, run.first):
            assert tick > max(rows, default=-1)
            rows[tick] = row
    scene.store.close()
    return rows


def rows(
    some: Sequence[SymbolFrame], models: dict[int, Model]
) -> tuple[Bank, np.ndarray[tuple[int], np.dtype[np.int64]], Columns]:
    bank = Bank()
    which = np.array([bank.index(models[frame.policy_version]) for frame in some], dtype=np.int64)
    return bank, which, Columns.of((0, frame) for frame in some)


def distributions(some: Sequence[SymbolFrame], models: dict[int, Model] = MODELS) -> list[Floats]:
    """The belief at each frame's end."""
    bank, which, columns = rows(some, models)
    beliefs, sequence = Beliefs.unknown(1, bank.states), []
    for row in range(len(some)):
        follow(beliefs, bank.arrays, np.zeros_like(which), which, columns, np.array([row]))
        sequence.append(beliefs.distribution[0, : len(models[some[row].policy_version].initial)].copy())
    return sequence


def enumerated(model: Model, symbols: Sequence[int], tick: int) -> Floats:
    """Pr(X_tick | symbols), by adding up every path."""
    distribution = np.zeros(len(model.initial))
    for path in product(range(len(distribution)), repeat=len(symbols)):
        weight = model.initial[path[0]]
        for x, y in pairwise(path):
            weight *= model.transition[x, y]
        for x, z in zip(path, symbols, strict=True):
            weight *= model.emission[x, z] if z >= 0 else 1.0
        distribution[path[tick]] += weight
    return np.asarray(distribution / distribution.sum(), dtype=np.float64)


@pytest.mark.long
@SEALED
@pytest.mark.parametrize("version", [1, 3])
def test_equals_the_enumeration_of_every_path(tmp_path: Path, version: int, sealed: str) -> None:
    some, lag = frames([3, 2, 1], gaps=[0, 1, 0], versions=[version]), 2
    symbols = [int(symbol) for symbol in laid_out(some)]
    reported = estimates(tmp_path, some, lag, sealed)
    assert set(reported) == set(range(5))
    for tick, row in reported.items():
        assert np.abs(row - enumerated(MODELS[version], symbols[: tick + lag + 1], tick)).max() < 1e-12
    assert np.abs(distributions(some)[-1] - enumerated(MODELS[version], symbols, len(symbols) - 1)).max() < 1e-12


def test_streams_of_different_models_are_followed_side_by_side_as_each_alone() -> None:
    """To the bit; also however their symbols are cut into frames."""
    streams = [
        frames([10, 1, 30, 4], gaps=[0, 0, 70, 3], versions=versions, seed=seed)
        for seed, versions in enumerate([[1], [2], [3], [1, 2], [3, 1], [2, 2, 3]])
    ]
    cut = [
        [
            SymbolFrame(frame.policy_version, at - 1, at, bytes([symbol]), bits=frame.bits)
            for frame in some
            for at, symbol in enumerate(frame.symbols, frame.first)
        ]
        for some in streams
    ]
    rounds = []
    for every in (streams, cut):
        bank, model, columns = rows([frame for some in every for frame in some], MODELS)
        which = np.repeat(np.arange(len(every)), [len(some) for some in every])
        beliefs = Beliefs.unknown(len(every), bank.states)
        follow(beliefs, bank.arrays, which, model, columns, np.arange(columns.row_count))
        rounds.append(beliefs.distribution.copy())
    alone = [distributions(some)[-1] for some in streams]
    for together in rounds:
        assert [distribution[: len(own)].tobytes() for distribution, own in zip(together, alone, strict=True)] == [
            own.tobytes() for own in alone
        ]


@pytest.mark.parametrize("lag", [0, 1, 3, 100])
def test_what_a_frame_says_of_its_own_ticks_equals_the_kernels(lag: int) -> None:
    some = frames([10, 1, 40, 3, 300], gaps=[0, 0, 2], versions=[1, 3, 2, 3])
    bank, model, columns = rows(some, MODELS)
    beliefs = Beliefs.unknown(1, bank.states)
    firsts = follow(beliefs, bank.arrays, np.zeros_like(model), model, columns, np.arange(columns.row_count))
    means, lasts = look_back(bank.arrays, model, columns, firsts, lag)
    for row, frame in enumerate(some):
        symbol_model, own = MODELS[frame.policy_version], np.frombuffer(frame.symbols, dtype=np.uint8).astype(np.int64)
        distribution = firsts[row, : len(symbol_model.initial)]
        marginals = fixed_lag_marginals(own, distribution, symbol_model.transition, symbol_model.emission, lag)
        assert np.abs(means[row, : len(distribution)] - marginals.mean(axis=0)).max() < 1e-12
        assert np.abs(lasts[row, : len(distribution)] - marginals[-1]).max() < 1e-12


def test_a_clock_that_was_set_begins_at_the_stationary_distribution() -> None:
    first, second = frames([10, 10])
    moved = replace(second, shift=3)
    assert np.array_equal(distributions([first, moved])[1], distributions([moved])[0])
    assert not np.array_equal(distributions([first, second])[1], distributions([second])[0])


def test_symbols_that_the_model_holds_for_impossible_begin_anew_and_harm_nothing() -> None:
    """Also where no state at all has a symbol."""
    for width in (2, 3):
        emission = np.eye(width, width + 1)
        stays = np.eye(width)
        model = Model(stays, emission, likelihood_rows(emission), np.full(width, 1.0 / width), None)
        symbols = [0, 0, 1, 1, width, 1, 0]
        some = [SymbolFrame(1, -1, 0, bytes(symbols[:n]), bits=2) for n in range(1, len(symbols) + 1)]
        ends = [distributions([frame], {1: model})[0] for frame in some]
        assert np.isfinite(ends).all()
        for end, symbol in zip(ends, symbols, strict=True):
            assert end.sum() == pytest.approx(1.0)
            assert symbol == width or np.array_equal(end, np.eye(width)[symbol])


@SEALED
@pytest.mark.parametrize("gap", [10**9, 2**53 - 10_000])
def test_a_device_that_was_away_for_ages_begins_again_at_the_stationary_distribution(
    tmp_path: Path, gap: int, sealed: str
) -> None:
    before, after = frames([10, 10], gaps=[0, gap])
    assert np.abs(distributions([before, after])[1] - distributions([after])[0]).max() < 1e-12
    assert set(estimates(tmp_path, [before, after], 8, sealed)) == {*range(10), after.first, after.first + 1}


@SEALED
def test_a_new_table_carries_the_belief_over_and_does_not_count_for_earlier_ticks(tmp_path: Path, sealed: str) -> None:
    first, second = frames([10, 10], gaps=[0, 2], versions=[1, 2])
    reported, beliefs = estimates(tmp_path, [first, second], 4, sealed), distributions([first, second])
    old, new = MODELS[1], MODELS[2]
    symbols = laid_out([second])[second.first :]
    start = predict(beliefs[0], new.transition, 3)
    expected = filter_beliefs(symbols, start, new.transition, new.emission).beliefs[-1]
    assert np.abs(beliefs[1] - expected).max() < 1e-12
    alone = np.append(laid_out([first]), [-1] * 4)
    lagged_estimates = fixed_lag_marginals(alone, old.initial, old.transition, old.emission, 4)
    assert all(np.abs(reported[tick] - lagged_estimates[tick]).max() < 1e-12 for tick in range(10))
    assert set(reported) == {*range(10), *range(second.first, second.last - 3)}


def test_other_states_begin_at_the_stationary_distribution_of_the_new_model() -> None:
    first, second = frames([10, 10], versions=[1, 3])
    assert np.array_equal(distributions([first, second])[1], distributions([second])[0])


def test_a_class_without_a_typical_chain_is_estimated_with_the_symmetric_one_of_its_odds_ratio() -> None:
    transition = MODELS[3].transition
    assert transition[0, 0] * transition[1, 1] / (transition[0, 1] * transition[1, 0]) == pytest.approx(9.0)
    assert np.allclose(transition.sum(axis=1), 1.0)
    chain = ((0.8, 0.1, 0.1), (0.2, 0.7, 0.1), (0.1, 0.2, 0.7))
    typical = BoundedChains(states=3, odds_ratio=100.0, transition=chain)
    assert np.allclose(model_of(policy(table=TERNARY, chains=typical)).transition, chain)


def test_an_interval_class_is_estimated_with_its_midpoints_and_their_stationary_distribution() -> None:
    assert np.allclose(MODELS[1].transition, [[0.85, 0.15], [0.25, 0.75]])
    assert np.allclose(MODELS[1].initial, [0.625, 0.375])
    assert np.allclose(predict(MODELS[1].initial, MODELS[1].transition), MODELS[1].initial)
