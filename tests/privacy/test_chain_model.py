"""chain.json: fitted from counts, written, read strictly, and made into a class that holds what was recorded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.planning.policy_builder import thresholds
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.chain_fit import fit
from fugu.privacy.chain_model import ChainModel, StreamStates
from fugu.privacy.covering_class import covering_class
from fugu.privacy.transitions import count_transitions, count_triples, order_test, share_bounds, transition_matrix

NUMBERED = {k: thresholds(tuple(x + 0.5 for x in range(k - 1)), tuple(map(str, range(k)))) for k in (2, 3)}


def fitted(states: list[int], segments: list[int] | None = None, k: int = 2) -> ChainModel:
    stream = StreamStates(name="digits", source="recording", column="state", discretiser=NUMBERED[k])
    separate = np.zeros(len(states), dtype=np.int64) if segments is None else np.array(segments, dtype=np.int64)
    return fit(np.array(states, dtype=np.int64)[:, None], separate, [stream])


def binary(changes: str) -> ChainModel:
    """A model of the states that are written as digits."""
    return fitted([int(digit) for digit in changes])


EVEN = "0001100111" * 50


def test_the_numbers_are_those_of_the_counts() -> None:
    model = binary("0001100111")
    assert model.counts == ((3, 2), (1, 3))
    assert model.transition.tolist() == [[0.6, 0.4], [0.25, 0.75]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "extra: is no key of this"),
        ({"format": 2}, "format: must be 1"),
        ({"shows": [[0], [0]]}, "chain file: one stream has all its states"),
        ({"shows": [[0, 0], [1, 0]]}, "shows needs a column for each stream"),
        ({"alone": [2.0]}, "alone needs an entry for each of several streams"),
        ({"counts": [[1, 2], [3]]}, "counts need 2 rows of 2 numbers"),
        ({"counts": [[1, -2], [3, 4]]}, "counts.0.1: must be at least 0"),
        ({"counts": [[1, 10**30], [3, 4]]}, "counts.0.1"),
        ({"streams": []}, "streams: must have at least 1 of them"),
        ({"longest_segment": "12"}, "longest_segment: must be a whole number"),
        ({"stretches": None}, "stretches are null, and there is a class"),
        ({"chains": None}, "chains or refused: one of them is null"),
        ({"chains": {"kind": "bounded", "states": 3, "odds_ratio": 2.0}}, "the class of chains has 3 states, not 2"),
    ],
)
def test_a_file_that_is_not_exactly_right_is_refused(change: dict[str, Any], message: str) -> None:
    text = json.dumps({**json.loads(binary(EVEN).to_json()), **change})
    with pytest.raises(ChainClassError) as error:
        ChainModel.from_json(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "nan", '{"format": 1}', "\x00"])
def test_what_is_no_chain_file_is_refused(text: str) -> None:
    with pytest.raises(ChainClassError):
        ChainModel.from_json(text)


@pytest.mark.long
def test_the_class_of_a_model_is_the_one_that_covers_its_states() -> None:
    generator = np.random.default_rng(2)
    for k in (2, 3):
        states = generator.integers(0, k, 6000)
        model = fitted(states.tolist(), k=k)
        covered = covering_class(states, np.zeros(states.size, dtype=np.int64), k)
        assert model.chains == covered.chains
        assert isinstance(model.chains, BinaryChains if k == 2 else BoundedChains)
        assert model.stretches.covered == covered.share()
        assert model.refused is None
        assert ChainModel.from_json(model.to_json()) == model


@pytest.mark.parametrize("states", ["0" * 250 + "1" * 250, "01" * 100])
def test_a_model_without_a_class_says_why(states: str) -> None:
    model = binary(states)
    assert model.chains is None
    assert "too short to tell" in str(model.refused)
    assert ChainModel.from_json(model.to_json()) == model


@pytest.mark.parametrize(
    ("states", "segments", "message"),
    [
        ([], [], "fewer than two different states"),
        ([0], [0], "fewer than two different states"),
        ([1, 1, 1], [0, 0, 0], "fewer than two different states"),
        ([0, 1], [0, 1], "no two neighbouring rows"),
    ],
)
def test_a_recording_that_says_nothing_is_refused(states: list[int], segments: list[int], message: str) -> None:
    with pytest.raises(ChainClassError, match=message):
        fitted(states, segments)


STATES = np.array([0, 0, 1, 1, 1, 0, 1, 0, 0, 0])
SEGMENTS = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])


def test_transitions_are_counted_inside_segments_only() -> None:
    # 0>0 0>1 1>1 1>1 1>0 | 1>0 0>0 0>0; the step 0 | 1 between the segments is not one.
    assert count_transitions(STATES, SEGMENTS, 2).tolist() == [[3, 1], [2, 2]]


def test_triples_are_counted_inside_segments_only() -> None:
    # 001 011 111 110 | 100 000
    assert count_triples(STATES, SEGMENTS, 2).tolist() == [[[1, 1], [0, 1]], [[1, 0], [1, 1]]]


def test_a_state_that_is_never_left_has_a_uniform_row() -> None:
    assert transition_matrix(np.array([[3, 1], [0, 0]])).tolist() == [[0.75, 0.25], [0.5, 0.5]]


def test_clopper_pearson_without_successes_is_the_rule_in_closed_form() -> None:
    low, high = share_bounds(0, 20, 0.025)
    assert low == 0.0
    assert high == pytest.approx(1.0 - 0.025 ** (1 / 20), abs=1e-12)
    assert share_bounds(20, 20, 0.025) == pytest.approx((0.025 ** (1 / 20), 1.0), abs=1e-12)


@pytest.mark.parametrize(("successes", "trials"), [(1, 10), (7, 23), (400, 1000)])
def test_clopper_pearson_leaves_half_the_error_in_each_tail(successes: int, trials: int) -> None:
    from scipy import stats  # takes as long to import as many tests to run

    low, high = share_bounds(successes, trials, 0.05)
    assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(0.05, abs=1e-10)
    assert stats.binom.cdf(successes, trials, high) == pytest.approx(0.05, abs=1e-10)


def test_without_trials_anything_is_possible() -> None:
    assert share_bounds(0, 0, 0.025) == (0.0, 1.0)


def test_a_second_order_chain_is_found_out_and_a_first_order_chain_is_not() -> None:
    generator = np.random.default_rng(5)
    copies = np.zeros(20_000, dtype=np.int64)
    plain = np.zeros(20_000, dtype=np.int64)
    draws = generator.random(20_000)
    for t in range(2, 20_000):
        copies[t] = copies[t - 2] if draws[t] < 0.8 else 1 - copies[t - 2]
        plain[t] = plain[t - 1] if draws[t] < 0.8 else 1 - plain[t - 1]
    segments = np.zeros(20_000, dtype=np.int64)
    assert order_test(count_triples(copies, segments, 2)).p_value < 1e-100
    assert order_test(count_triples(plain, segments, 2)).p_value > 0.01
