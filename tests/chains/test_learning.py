"""Learning a chain under a known emission table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from fugu.chains.inference import filter_beliefs
from fugu.chains.learning import baum_welch
from fugu.chains.model import simulate
from tests.support import naive
from tests.support.chain_cases import LONG, bounded, medium_cases, random_case


def sticky(k):
    """A first guess: stay with 0.8, move evenly."""
    return np.full((k, k), 0.2 / (k - 1)) + (0.8 - 0.2 / (k - 1)) * np.eye(k)


@pytest.mark.long
@bounded
@given(medium_cases)
def test_one_step_equals_the_plain_twin_and_never_loses(case):
    half = len(case.symbols) // 2
    parts = [part for part in (case.symbols[:half], case.symbols[half:]) if len(part)]
    initial, transition = naive.baum_welch_step(parts, *case[1:]) if len(case.symbols) > 3 else (None, None)
    result = baum_welch(
        case.symbols,
        case.emission,
        lengths=[half, len(case.symbols) - half],
        initial=case.initial,
        transition=case.transition,
        iterations=1,
        tolerance=-np.inf,
    )
    assert len(result.log_likelihoods) == 2
    assert result.log_likelihoods[1] >= result.log_likelihoods[0] - 1e-9
    if initial is not None:
        np.testing.assert_allclose(result.initial, initial, rtol=0, atol=1e-11)
        np.testing.assert_allclose(result.transition, transition, rtol=0, atol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 3, 5])
def test_likelihood_rises_and_the_last_one_is_the_result_s(k):
    case = random_case(41, k, k + 1, 400)
    result = baum_welch(case.symbols, case.emission, lengths=[150, 250], transition=sticky(k), iterations=25)
    assert (np.diff(result.log_likelihoods) >= -1e-9).all()
    own = filter_beliefs(case.symbols, result.initial, result.transition, case.emission, lengths=[150, 250])
    assert own.log_likelihood == pytest.approx(result.log_likelihoods[-1], abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("rho", [0.02, 0.2])
def test_recovers_a_binary_chain_from_randomised_symbols(rho):
    transition = np.array([[0.95, 0.05], [0.15, 0.85]])
    emission = np.array([[1 - rho, rho], [rho, 1 - rho]])
    drawn = simulate(LONG, [0.75, 0.25], transition, emission, np.random.default_rng(42))
    symbols = np.where(np.random.default_rng(43).random(LONG) < 0.1, -1, drawn.symbols)
    result = baum_welch(symbols, emission, transition=sticky(2), iterations=30)
    np.testing.assert_allclose(result.transition, transition, rtol=0, atol=12 / np.sqrt(LONG))


def test_zeros_of_the_guess_stay_zero_and_unvisited_states_keep_their_row():
    guess = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    emission = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    symbols = random_case(45, 2, 2, 50).symbols
    result = baum_welch(symbols, emission, initial=[0.5, 0.5, 0.0], transition=guess, iterations=3)
    assert (result.transition[:2, 2] == 0.0).all()
    np.testing.assert_array_equal(result.transition[2], guess[2])


def test_it_ends_when_nothing_is_gained():
    case = random_case(46, 2, 2, 60)
    fields = {"symbols": case.symbols, "emission": case.emission, "transition": sticky(2)}
    tried = [len(baum_welch(**fields, iterations=most, tolerance=1e-7).log_likelihoods) for most in (0, 1, 500)]
    assert tried[:2] == [1, 2]
    assert 2 < tried[2] < 500


def test_refuses_what_it_cannot_learn_from():
    emission = np.array([[0.9, 0.1], [0.1, 0.9]])
    with pytest.raises(ValueError, match="no symbols"):
        baum_welch([], emission, transition=sticky(2))
    with pytest.raises(ValueError, match="emission rows"):
        baum_welch([0, 1], emission, transition=np.eye(3))
    with pytest.raises(ValueError, match="probability zero"):
        baum_welch([0, 1], np.eye(2), transition=np.eye(2))
