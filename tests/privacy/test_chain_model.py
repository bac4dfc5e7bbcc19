"""chain.json: fitted, written, read strictly, and made into a class that holds what the recording allows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from contract.chains import BinaryChains, BoundedChains, odds_ratio
from gateway.privacy.chain_fit import fit
from gateway.privacy.chain_model import ChainModel, ModelError
from gateway.privacy.model_fit import clopper_pearson


def binary(changes: str) -> ChainModel:
    """A model of the states that are written as digits."""
    states = np.array([int(digit) for digit in changes])
    return fit(states, np.zeros(states.size, dtype=np.int64), source="digits")


EVEN = "0001100111" * 40


def test_a_model_survives_its_file() -> None:
    model = binary(EVEN)
    assert ChainModel.from_json(model.to_json()) == model


def test_the_numbers_are_those_of_the_counts() -> None:
    model = binary("0001100111")
    assert model.counts == ((3, 2), (1, 3))
    assert (model.q, model.r) == (0.4, 0.25)
    assert model.halves == (((2, 1), (0, 1)), ((1, 1), (0, 2)))
    assert model.initial == pytest.approx((0.25 / 0.65, 0.4 / 0.65))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        ({"format": 2}, "format: Input should be 1"),
        ({"q": 0.5}, "chain file: Value error, q and r are not those of the transition matrix"),
        ({"transition": [[0.5, 0.5], [0.5, 0.5]]}, "transition is not the estimate that belongs to the counts"),
        ({"counts": [[1, 2], [3]]}, "every matrix needs 2 rows of 2 numbers"),
        ({"counts": [[1, -2], [3, 4]]}, "counts.0.1: Input should be greater than or equal to 0"),
        ({"counts": [[1, 10**30], [3, 4]]}, "counts.0.1"),
        ({"states": 300}, "states: Input should be less than or equal to 255"),
        ({"initial": [1.0]}, "initial and sojourns need 2 entries"),
        ({"n": "12"}, "n: Input should be a valid integer"),
    ],
)
def test_a_file_that_is_not_exactly_right_is_refused(change: dict[str, Any], message: str) -> None:
    text = json.dumps({**json.loads(binary(EVEN).to_json()), **change})
    with pytest.raises(ModelError) as error:
        ChainModel.from_json(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "nan", '{"format": 1}', "\x00"])
def test_what_is_no_chain_file_is_refused(text: str) -> None:
    with pytest.raises(ModelError):
        ChainModel.from_json(text)


def test_the_class_holds_together_at_the_level_asked_for() -> None:
    model = binary(EVEN)
    made = model.chain_class(0.99)
    assert made.cell_confidence == pytest.approx(0.995)
    assert not made.widened
    assert isinstance(made.chains, BinaryChains)
    (stay, leave), _ = model.counts
    assert made.chains.q == pytest.approx(clopper_pearson(leave, stay + leave, 0.995), abs=1e-12)


def test_the_class_is_widened_to_both_halves() -> None:
    made = binary("01" * 300 + "00001111" * 100).chain_class(0.9)
    assert made.widened
    assert isinstance(made.chains, BinaryChains)
    model = binary("01" * 300 + "00001111" * 100)
    for half in model.halves:
        assert made.chains.q[0] <= half[0][1] / sum(half[0]) <= made.chains.q[1] or half[0][0] == 0


def test_a_half_that_never_changed_does_not_make_the_class_unbounded() -> None:
    model = binary("0" * 200 + "0011" * 50)
    made = model.chain_class(0.99)
    assert isinstance(made.chains, BinaryChains)
    never = clopper_pearson(0, sum(model.halves[0][0]), made.cell_confidence)
    assert made.chains.q[0] == pytest.approx(never.high)
    assert made.widened


@pytest.mark.parametrize("states", ["0" * 50 + "1" * 50, "1" * 50 + "0" * 50])
def test_a_transition_that_never_happened_is_refused(states: str) -> None:
    with pytest.raises(ModelError, match="was never followed by state"):
        binary(states).chain_class(0.99)


def test_more_states_are_bounded_by_an_odds_ratio_that_no_chain_of_the_intervals_exceeds() -> None:
    generator = np.random.default_rng(2)
    states = generator.integers(0, 3, 3000)
    model = fit(states, np.zeros(3000, dtype=np.int64))
    made = model.chain_class(0.95)
    assert isinstance(made.chains, BoundedChains)
    assert made.chains.transition == model.transition
    cells = model.cells(made.cell_confidence)
    low, high = np.array(cells.low), np.array(cells.high)
    for _ in range(300):
        inside = low + (high - low) * generator.random((3, 3))
        inside /= inside.sum(axis=1, keepdims=True)
        assert odds_ratio(tuple(map(tuple, inside.tolist()))) <= made.chains.odds_ratio


@pytest.mark.parametrize(
    ("states", "segments", "message"),
    [
        ([], [], "fewer than two different states"),
        ([0], [0], "fewer than two different states"),
        ([1, 1, 1], [0, 0, 0], "fewer than two different states"),
        ([0, 1], [0, 1], "no two neighbouring rows"),
        ([0, 300], [0, 0], "state 300 is above 254"),
    ],
)
def test_a_recording_that_says_nothing_is_refused(states: list[int], segments: list[int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        fit(np.array(states, dtype=np.int64), np.array(segments, dtype=np.int64), source="recording")


def test_two_closed_halves_have_no_single_stationary_law() -> None:
    model = fit(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1]))
    assert model.initial is None
    assert ChainModel.from_json(model.to_json()) == model
