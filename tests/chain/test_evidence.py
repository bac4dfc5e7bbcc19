"""Log-likelihood ratios: what a stream says for one state against another."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from gateway.chain import log_likelihood_ratio, stationary_distribution
from tests.support import naive
from tests.support.chain_cases import LONG, bounded, medium_cases, random_case, small_cases, sticky_case

GOLDEN = Path(__file__).parent.parent / "golden" / "bdp.json"


@pytest.mark.long
@bounded
@given(small_cases)
def test_the_ratio_is_that_of_sums_over_paths(case):
    paths, weights = naive.enumerate_paths(*case)
    _, prior = naive.enumerate_paths(np.full(len(case.symbols), -1), *case[1:])
    for a, b in [(0, 1), (1, 0), (len(case.initial) - 1, 0)]:
        expected = [
            np.log(weights[paths[:, t] == a].sum() / prior[paths[:, t] == a].sum())
            - np.log(weights[paths[:, t] == b].sum() / prior[paths[:, t] == b].sum())
            for t in range(len(case.symbols))
        ]
        np.testing.assert_allclose(log_likelihood_ratio(*case, state=a, other=b), expected, rtol=0, atol=1e-12)


@pytest.mark.long
@bounded
@given(medium_cases)
def test_the_ratio_is_posterior_odds_over_prior_odds(case):
    b = len(case.initial) - 1
    expected = naive.log_likelihood_ratio(*case, 0, b)
    np.testing.assert_allclose(log_likelihood_ratio(*case, state=0, other=b), expected, rtol=0, atol=1e-11)


def test_golden_values():
    entries = json.loads(GOLDEN.read_text())["llr"]
    assert entries
    for entry in entries:
        q, r, rho0, rho1 = (entry[name] for name in ("q", "r", "rho0", "rho1"))
        transition = np.array([[1 - q, q], [r, 1 - r]])
        emission = np.array([[1 - rho0, rho0], [rho1, 1 - rho1]])
        symbols = np.array([int(z) for z in entry["z"]])
        ratios = log_likelihood_ratio(symbols, stationary_distribution(transition), transition, emission)
        np.testing.assert_allclose(ratios, entry["llr"], rtol=0, atol=1e-9)


def test_a_chain_that_never_moves_adds_up_all_symbols():
    emission = np.array([[0.9, 0.1], [0.2, 0.8]])
    symbols = np.zeros(5000, int)
    ratios = log_likelihood_ratio(symbols, [0.5, 0.5], np.eye(2), emission)
    np.testing.assert_allclose(ratios, 5000 * np.log(0.9 / 0.2), rtol=1e-12)  # far beyond any float's exponent


def test_states_that_only_rare_paths_connect_stay_exact():
    # state 2 leads the mixture by far more than a float's range, but states 0 and 1 never meet it
    transition = np.array([[0.7, 0.3, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
    emission = np.array([[1e-9, 1 - 1e-9], [2e-9, 1 - 2e-9], [0.5, 0.5]])
    symbols = np.zeros(300, int)
    together = log_likelihood_ratio(symbols, [0.3, 0.3, 0.4], transition, emission)
    apart = log_likelihood_ratio(symbols, [0.5, 0.5], transition[:2, :2], emission[:2])
    np.testing.assert_allclose(together, apart, rtol=0, atol=1e-10)


def test_many_sequences_equal_one_at_a_time():
    case = random_case(21, 3, 3, 30)
    ratios = log_likelihood_ratio(*case, lengths=[10, 0, 20])
    for part in (slice(0, 10), slice(10, 30)):
        np.testing.assert_array_equal(ratios[part], log_likelihood_ratio(case.symbols[part], *case[1:]))


def test_the_ratio_of_a_long_sticky_stream_is_finite_and_antisymmetric():
    case = sticky_case(LONG // 10, rho=2.0**-32)
    ratios = log_likelihood_ratio(*case)
    assert np.isfinite(ratios).all()
    np.testing.assert_allclose(log_likelihood_ratio(*case, state=1, other=0), -ratios, rtol=0, atol=1e-12)


def test_a_state_that_cannot_explain_the_symbols_and_one_that_cannot_be():
    emission = np.array([[1.0, 0.0], [0.5, 0.5]])
    ratios = log_likelihood_ratio([1, 1], [0.5, 0.5], np.eye(2), emission)
    np.testing.assert_array_equal(ratios, [-np.inf, -np.inf])
    ratios = log_likelihood_ratio([0, 0], [0.0, 1.0], np.array([[0.5, 0.5], [0.5, 0.5]]), emission)
    assert np.isnan(ratios[0])
    assert ratios[1] == pytest.approx(np.log(2.0))


def test_impossible_symbols_and_unknown_states_are_refused():
    with pytest.raises(ValueError, match="probability zero"):
        log_likelihood_ratio([0, 1], [0.5, 0.5], np.eye(2), np.eye(2))
    with pytest.raises(ValueError, match=r"0\.\.1"):
        log_likelihood_ratio([0], [0.5, 0.5], np.eye(2), np.eye(2), other=2)
    assert log_likelihood_ratio([], [0.5, 0.5], np.eye(2), np.eye(2)).shape == (0,)
