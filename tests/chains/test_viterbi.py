"""The most probable path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from fugu.chains.inference import viterbi
from tests.support import naive
from tests.support.chain_cases import bounded, random_case, small_cases


@pytest.mark.long
@bounded
@given(small_cases)
def test_no_path_is_more_probable(case):
    paths, weights = naive.enumerate_paths(*case)
    result = viterbi(*case)
    best = np.argmax(weights)
    own = weights[(paths == result).all(axis=1)]
    assert own[0] == pytest.approx(weights[best], rel=1e-12)


def test_of_equal_paths_the_lowest_states_win():
    even = np.full((3, 3), 1 / 3)
    np.testing.assert_array_equal(viterbi([0, -1, 1, 0], even[0], even, np.full((3, 2), 0.5)), 0)


def test_many_sequences_equal_one_at_a_time():
    case = random_case(32, 3, 3, 30)
    result = viterbi(*case, lengths=[12, 0, 18])
    for part in (slice(0, 12), slice(12, 30)):
        alone = viterbi(case.symbols[part], *case[1:])
        np.testing.assert_array_equal(result[part], alone)


def test_forbidden_moves_are_not_made():
    transition = np.array([[0.0, 1.0], [1.0, 0.0]])
    emission = np.array([[0.6, 0.4], [0.4, 0.6]])
    states = viterbi([0, 0, 0, 0, 1], [0.5, 0.5], transition, emission)
    np.testing.assert_array_equal(states, [1, 0, 1, 0, 1])  # 0.6^3 0.4^2 against 0.6^2 0.4^3
    with pytest.raises(ValueError, match="probability zero"):
        viterbi([0, 0], [0.5, 0.5], transition, np.eye(2))
