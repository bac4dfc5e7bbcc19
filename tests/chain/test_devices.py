"""One tick of many devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chain import filter_beliefs, update_devices
from tests.support import naive
from tests.support.chain_cases import bounded, distributions, random_case, sticky_case


def batch(seed, k, m, devices):
    """Beliefs (k, devices), symbols (devices,), transition, emission."""
    case = random_case(seed, k, m, devices)
    beliefs = np.ascontiguousarray(distributions(np.random.default_rng(seed + 1), devices, k, floor=0.0).T)
    return beliefs, case.symbols, case.transition, case.emission


@pytest.mark.long
@bounded
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 5), st.integers(0, 40))
def test_equals_one_device_after_the_other(seed, k, m, devices):
    given = batch(seed, k, m, devices)
    np.testing.assert_allclose(update_devices(*given), naive.update_devices(*given), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("devices", [0, 1, 255, 256, 257, 600])
def test_in_place_and_any_integer_type_give_the_same(k, devices):
    beliefs, symbols, *chain = batch(51, k, 3, devices)
    expected = update_devices(beliefs, symbols, *chain)
    np.testing.assert_allclose(expected, naive.update_devices(beliefs, symbols, *chain), rtol=1e-13, atol=1e-15)
    raw = np.where(symbols < 0, 255, symbols).astype(np.uint8)
    for stream in (symbols.astype(np.int8), raw.view(np.int8), symbols.astype(np.int16)):
        np.testing.assert_array_equal(update_devices(beliefs, stream, *chain), expected)
    own = beliefs.copy()
    assert update_devices(own, symbols, *chain, out=own) is own
    np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_tick_by_tick_equals_filtering_each_stream(k):
    case = random_case(52, k, 3, 90)
    streams = case.symbols.reshape(3, 30)
    beliefs = np.array([filter_beliefs(stream[:1], *case[1:]).beliefs[0] for stream in streams]).T.copy()
    for t in range(1, 30):
        update_devices(beliefs, streams[:, t], *case[2:], out=beliefs)
    expected = [filter_beliefs(stream, *case[1:]).beliefs[-1] for stream in streams]
    np.testing.assert_allclose(beliefs.T, expected, rtol=0, atol=1e-14)


def test_a_belief_near_certainty_keeps_its_relative_accuracy():
    case = sticky_case(1, rho=2.0**-32)
    beliefs = np.array([[1e-25], [1.0]])
    after = update_devices(beliefs, [0], *case[2:])
    # odds of state 0: (predicted odds) times the likelihood ratio of symbol 0
    odds = 1e-6 / (1 - 1e-6) * (1 - 2.0**-32) / 2.0**-32
    assert after[0, 0] / after[1, 0] == pytest.approx(odds, rel=1e-13)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_an_impossible_symbol_is_refused_and_changes_nothing(k):
    beliefs = np.zeros((k, 3))
    beliefs[0] = 1.0
    before = beliefs.copy()
    with pytest.raises(ValueError, match="1 devices sent a symbol of probability zero"):
        update_devices(beliefs, [0, 1, 0], np.eye(k), np.eye(k), out=beliefs)
    np.testing.assert_array_equal(beliefs, before)
    update_devices(beliefs, [0, -1, 0], np.eye(k), np.eye(k), out=beliefs)
    np.testing.assert_array_equal(beliefs, before)


def test_wrong_arrays_are_refused():
    beliefs, symbols, *chain = batch(53, 2, 3, 5)
    with pytest.raises(ValueError, match="beliefs have shape"):
        update_devices(beliefs[:1], symbols, *chain)
    with pytest.raises(ValueError, match="one for each of 5 devices"):
        update_devices(beliefs, symbols[:3], *chain)
    for kind in (np.int8, np.int64, np.uint8):
        with pytest.raises(ValueError, match=r"allowed: -1\.\.2"):
            update_devices(beliefs, np.full(5, 3, kind), *chain)
    with pytest.raises(ValueError, match="out must be"):
        update_devices(beliefs, symbols, *chain, out=np.empty((2, 4)))
