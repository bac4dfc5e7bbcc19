"""Filtering: the forward pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from fugu.chains.inference import filter_beliefs, predict
from tests.support import naive
from tests.support.chain_cases import LONG, bounded, random_case, small_cases, sticky_case


@pytest.mark.long
@bounded
@given(small_cases)
def test_beliefs_and_likelihood_are_the_sum_over_all_paths(case):
    result = filter_beliefs(*case)
    np.testing.assert_allclose(result.beliefs, naive.path_marginals(*case, upto=lambda t: t + 1), rtol=0, atol=1e-12)
    _, weights = naive.enumerate_paths(*case)
    assert result.log_likelihood == pytest.approx(np.log(weights.sum()), abs=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_many_sequences_equal_one_at_a_time(k):
    case = random_case(1, k, 3, 40)
    lengths = [7, 0, 1, 32, 0]
    initial = random_case(2, 5, k, 1).emission  # a first distribution of its own for each sequence
    result = filter_beliefs(case.symbols, initial, *case[2:], lengths=lengths)
    start = 0
    for index, length in enumerate(lengths):
        alone = filter_beliefs(case.symbols[start : start + length], initial[index], *case[2:])
        np.testing.assert_array_equal(result.beliefs[start : start + length], alone.beliefs)
        assert result.log_likelihoods[index] == alone.log_likelihood
        start += length
    assert result.log_likelihoods[1] == 0.0


@pytest.mark.parametrize("gap", [0, 1, 5])
@pytest.mark.parametrize("k", [2, 3, 6])
def test_going_on_after_a_gap_equals_one_stream(k, gap):
    case = random_case(3, k, 3, 30)
    stream = np.concatenate([case.symbols[:12], np.full(gap, -1), case.symbols[12:]])
    whole = filter_beliefs(stream, *case[1:])
    early = filter_beliefs(case.symbols[:12], *case[1:])
    late = filter_beliefs(case.symbols[12:], predict(early.beliefs[-1], case.transition, gap + 1), *case[2:])
    np.testing.assert_allclose(late.beliefs, whole.beliefs[12 + gap :], rtol=0, atol=1e-14)
    assert early.log_likelihood + late.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_a_very_long_stream_does_not_underflow(k):
    case = random_case(4, k, 3, LONG)
    result = filter_beliefs(*case)
    assert np.isfinite(result.beliefs).all()
    np.testing.assert_allclose(result.beliefs.sum(axis=1), 1.0, rtol=0, atol=1e-14)
    half = LONG // 2
    late = filter_beliefs(case.symbols[half:], predict(result.beliefs[half - 1], case.transition, 1), *case[2:])
    early = filter_beliefs(case.symbols[:half], *case[1:])
    assert early.log_likelihood + late.log_likelihood == pytest.approx(result.log_likelihood, rel=1e-13)


def test_a_symbol_that_every_state_finds_unlikely():
    rare = 2.0**-32
    emission = np.array([[rare, 1 - rare], [3 * rare, 1 - 3 * rare]])
    transition = np.array([[0.9, 0.1], [0.2, 0.8]])
    initial = np.array([2 / 3, 1 / 3])
    result = filter_beliefs(np.zeros(2000, int), initial, transition, emission)
    beliefs, log_likelihood = naive.forward([0] * 2000, initial, transition, emission)
    np.testing.assert_allclose(result.beliefs, beliefs, rtol=0, atol=1e-14)
    assert result.log_likelihood == pytest.approx(log_likelihood, rel=1e-13)


def test_the_unlikely_state_keeps_its_relative_accuracy():
    case = sticky_case(400, rho=2.0**-32)
    contradicting = np.repeat([0, 1, 0, 1], 100)
    beliefs, _ = naive.forward(contradicting, *case[1:])
    np.testing.assert_allclose(filter_beliefs(contradicting, *case[1:]).beliefs, beliefs, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_no_symbols_give_no_beliefs(k):
    case = random_case(5, k, 2, 0)
    result = filter_beliefs(*case)
    assert result.beliefs.shape == (0, k)
    assert result.log_likelihood == 0.0
    assert filter_beliefs(*case, lengths=[]).log_likelihoods.shape == (0,)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_impossible_symbols_are_refused_with_their_position(k):
    emission = np.eye(k)
    with pytest.raises(ValueError, match=r"probability zero .* position 2"):
        filter_beliefs([0, 0, 1, 0], np.full(k, 1 / k), np.eye(k), emission)
    with pytest.raises(ValueError, match="position 0"):
        filter_beliefs([1], np.eye(k)[0], np.eye(k), emission)


def test_predict_is_as_many_single_ticks():
    case = random_case(6, 4, 2, 1)
    distribution = case.initial
    for _ in range(9):
        distribution = distribution @ case.transition
    np.testing.assert_allclose(predict(case.initial, case.transition, 9), distribution, atol=1e-15)
    np.testing.assert_array_equal(predict(case.initial, case.transition, 0), case.initial)
    far = predict(np.eye(4), case.transition, 10**9)
    np.testing.assert_allclose(far, np.broadcast_to(far[0], (4, 4)), atol=1e-12)


def test_negative_times_are_refused():
    case = random_case(7, 2, 2, 3)
    with pytest.raises(ValueError, match="at least 0"):
        predict(case.initial, case.transition, -1)
