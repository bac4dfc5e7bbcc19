"""Counts by hand, intervals and tests against values that can be checked on paper or in tables."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.privacy.transitions import count_transitions, count_triples, order_test, share_bounds, transition_matrix

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
