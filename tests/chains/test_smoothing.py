"""Smoothing: posterior marginals, backward messages, fixed lag; and the most probable path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu.chains.inference import (
    backward_messages,
    filter_beliefs,
    fixed_lag_marginals,
    posterior_marginals,
    predict,
    viterbi,
)
from tests.support import naive
from tests.support.chain_cases import LONG, bounded, medium_cases, random_case, small_cases, sticky_case


@pytest.mark.long
@bounded
@given(small_cases)
def test_marginals_are_the_sum_over_all_paths(case):
    np.testing.assert_allclose(posterior_marginals(*case), naive.path_marginals(*case), rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 255, 256, 257])
def test_every_length_where_the_two_ends_may_meet(k, n):
    case = random_case(n, k, 3, n)
    np.testing.assert_allclose(posterior_marginals(*case), naive.smooth(*case), rtol=0, atol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_a_long_stream_with_gaps_equals_filter_times_backward(k):
    case = random_case(12, k, 4, LONG)
    joint = filter_beliefs(*case).beliefs * backward_messages(case.symbols, *case[2:])
    joint /= joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(posterior_marginals(*case), joint, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("lengths", [(6, 6), (7, 7), (1, 9), (8, 3), (0, 5), (5, 0), (33, 40), (40, 33, 2), (1, 1, 1)])
def test_sequences_smoothed_two_at_a_time_equal_the_plain_loop_and_one_at_a_time_to_the_bit(k, lengths):
    case = random_case(18, k, 3, sum(lengths))
    initial = random_case(19, len(lengths), k, 1).emission  # a first distribution of its own for each sequence
    smoothed = posterior_marginals(case.symbols, initial, *case[2:], lengths=lengths)
    start = 0
    for index, length in enumerate(lengths):
        part = case.symbols[start : start + length], initial[index], *case[2:]
        own = smoothed[start : start + length]
        np.testing.assert_allclose(own, naive.smooth(*part), rtol=0, atol=1e-13)
        np.testing.assert_array_equal(own, posterior_marginals(*part))
        start += length


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("rare", [2.0**-32, 1e-80, 1e-150])
def test_symbols_that_all_states_find_unlikely_many_times_over(k, rare):
    weights = rare * np.arange(1, k + 1)
    emission = np.array([weights, 1.0 - weights]).T
    case = random_case(20, k, 2, 60)
    case = case._replace(symbols=np.zeros(60, dtype=np.int64), emission=emission)
    marginals = posterior_marginals(np.tile(case.symbols, 2), *case[1:], lengths=[60, 60])
    np.testing.assert_allclose(marginals, np.tile(naive.smooth(*case), (2, 1)), rtol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_state_that_cannot_be_entered_again(k):
    transition = random_case(21, k, 2, 1).transition
    transition[:, 0] = 0.0
    transition /= transition.sum(axis=1, keepdims=True)
    case = random_case(22, k, 2, 31)._replace(transition=transition)
    marginals = posterior_marginals(np.tile(case.symbols, 2), *case[1:], lengths=[31, 31])
    np.testing.assert_allclose(marginals, np.tile(naive.smooth(*case), (2, 1)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_the_first_impossible_sequence_is_named_wherever_its_neighbour_fails(k):
    chain = np.full(k, 1 / k), np.eye(k), np.eye(k)
    possible, late, early = [0] * 8, [0] * 7 + [1], [0, 1] + [0] * 6
    for sequences in ([possible, late, early, possible], [late, early], [early, late], [possible, possible, late]):
        lengths = [8] * len(sequences)
        first = next(index for index, sequence in enumerate(sequences) if sequence is not possible)
        with pytest.raises(ValueError, match=r"position \d+") as alone:
            posterior_marginals(sequences[first], *chain)
        with pytest.raises(ValueError, match=r"position \d+") as together:
            posterior_marginals(np.concatenate(sequences), *chain, lengths=lengths)
        place = int(str(alone.value).split("position ")[1].split(")")[0])
        assert f"position {8 * first + place})" in str(together.value)


@bounded
@given(medium_cases)
def test_backward_messages_equal_the_plain_loop(case):
    expected = naive.backward(case.symbols, *case[2:])
    np.testing.assert_allclose(backward_messages(case.symbols, *case[2:]), expected, rtol=0, atol=1e-13)


def test_a_sticky_chain_and_extreme_emissions():
    case = sticky_case(3001, rho=2.0**-32)
    case = case._replace(symbols=np.repeat([0, 1, 0], [1000, 1001, 1000]))
    np.testing.assert_allclose(posterior_marginals(*case), naive.smooth(*case), rtol=1e-11)


def test_a_chain_that_never_forgets():
    emission = np.array([[0.9, 0.1], [0.2, 0.8]])
    symbols = np.array([0, 1, 1, 0, 1])
    # with the identity as transition there is one state for all ticks: the rule of Bayes, once
    odds = (0.9 * 0.1 * 0.1 * 0.9 * 0.1) / (0.2 * 0.8 * 0.8 * 0.2 * 0.8)
    marginals = posterior_marginals(symbols, [0.5, 0.5], np.eye(2), emission)
    np.testing.assert_allclose(marginals[:, 0], odds / (1 + odds), rtol=1e-14)


@bounded
@given(small_cases, st.integers(0, 8))
def test_fixed_lag_is_the_sum_over_all_paths(case, lag):
    expected = naive.path_marginals(*case, upto=lambda t: t + lag + 1)
    np.testing.assert_allclose(fixed_lag_marginals(*case, lag), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_fixed_lag_on_a_window_in_the_middle(k):
    case, lag = random_case(16, k, 3, 80), 6
    whole = fixed_lag_marginals(*case, lag)
    before = filter_beliefs(*case).beliefs[29]
    window = fixed_lag_marginals(case.symbols[30:60], predict(before, case.transition), *case[2:], lag)
    np.testing.assert_allclose(window[: 30 - lag], whole[30 : 60 - lag], rtol=0, atol=1e-13)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_impossible_symbols_are_refused(k):
    arguments = [0, 0, 1, 1, 0], np.full(k, 1 / k), np.eye(k), np.eye(k)
    with pytest.raises(ValueError, match="probability zero"):
        posterior_marginals(*arguments)
    with pytest.raises(ValueError, match="probability zero"):
        posterior_marginals([0, 1], *arguments[1:])
    with pytest.raises(ValueError, match="probability zero"):
        posterior_marginals([1], np.eye(k)[0], *arguments[2:])
    with pytest.raises(ValueError, match="probability zero"):
        backward_messages(arguments[0], *arguments[2:])
    with pytest.raises(ValueError, match="probability zero"):
        fixed_lag_marginals(*arguments, 2)


def test_zeros_that_leave_a_path_open():
    transition = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    emission = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    case = np.array([0, -1, 1, 0, 1, 1]), np.array([1.0, 0.0, 0.0]), transition, emission
    np.testing.assert_allclose(posterior_marginals(*case), naive.path_marginals(*case), rtol=0, atol=1e-13)


def test_a_negative_lag_is_refused():
    with pytest.raises(ValueError, match="lag is -1"):
        fixed_lag_marginals(*random_case(17, 2, 2, 3), -1)


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
