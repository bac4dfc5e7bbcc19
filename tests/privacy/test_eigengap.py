"""MQMApprox: golden numbers, and how the printed gap fails."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import (
    Mixing,
    eigengap,
    fast_path_length,
    is_reversible,
    mixing,
    mqm_approx,
    mqm_exact,
    width_influences,
)
from papers.quilts import influence
from tests.support.mqm_cases import CHAINS, GOLDEN, SHORT, close

THETA1, THETA2 = CHAINS["theta1_stationary"], CHAINS["theta2_stationary"]
VARIANTS: dict[str, tuple[tuple[MarkovChain, ...], dict[str, Any]]] = {
    "Theta_g0.75_pi0.2": ((THETA1, THETA2), {"reversible": False}),
    "Theta_rev_g1_pi0.2": ((THETA1, THETA2), {}),
    "theta2_g0.75_pi0.4": ((THETA2,), {"reversible": False}),
    "theta2_rev_g1_pi0.4": ((THETA2,), {"reversible": True}),
}


def clock() -> MarkovChain:
    """Twenty hours; at hour 0, one of them is skipped now and then."""
    transition = np.roll(np.eye(20), 1, axis=1)
    transition[0, 1] = transition[0, 2] = 0.5
    return MarkovChain.stationary(transition)


def printed_gap(chain: MarkovChain) -> float:
    """Equation 7 to the letter: 1 less the largest eigenvalue of P P* other than 1."""
    distribution = chain.stationary_distribution
    reverse = (distribution[:, None] * chain.transition).T / distribution[:, None]
    values = np.linalg.eigvals(chain.transition @ reverse).real
    return float(1.0 - max(value for value in values if abs(value - 1.0) > 1e-9))


@pytest.mark.parametrize("key", GOLDEN["2_mqm_approx"])
def test_golden_scales(key: str) -> None:
    golden = GOLDEN["2_mqm_approx"][key]
    name, eps = key.split("|eps=")
    (chains, options), epsilon = VARIANTS[name], float(eps)
    endless = mqm_approx(chains, None, epsilon, **options)
    assert (endless.scale, endless.influence) == (close(golden["sigma"]), close(golden["e"]))
    assert endless.quilt == (golden["a"], golden["b"])
    assert mqm_approx(chains, 100, epsilon, **options).scale == close(golden["sigma_T100"])
    assert endless.scale > endless.card / (epsilon - endless.influence)  # rounded up
    stationary = mqm_approx(chains, None, epsilon, **options, stationary=True)
    assert stationary.scale == close(golden["sigma_stationary_start"])
    mixed = mixing(chains, options.get("reversible"))
    assert fast_path_length(mixed, epsilon) == golden["T_needed_fast_path"] == 8 * golden["a_star"]
    assert 2.0 * math.log(1.0 / mixed.min_pi) / mixed.gap == close(golden["min_arm_strict_gt"])
    assert math.ceil(epsilon * endless.scale) == golden["T_where_beats_trivial"]


@pytest.mark.parametrize("key", GOLDEN["3_wasserstein"])
def test_windows_of_many_lengths(key: str) -> None:
    golden = GOLDEN["3_wasserstein"][key]
    name, ticks, eps = key.split("|")
    chain, length, epsilon = CHAINS[SHORT[name]], int(ticks[2:]), float(eps[4:])
    assert mqm_approx((chain,), length, epsilon).scale == close(golden["approx_rev"])
    assert mqm_approx((chain,), length, epsilon, False).scale == close(golden["approx_gen"])


@pytest.mark.parametrize("key", GOLDEN["9_synthetic"])
def test_the_synthetic_experiment(key: str) -> None:
    golden = GOLDEN["9_synthetic"][key]
    alpha, epsilon = map(float, key.split("|"))
    whole = BinaryChains(q=(alpha, 1 - alpha), r=(alpha, 1 - alpha))
    scale = mqm_approx(whole, 100, epsilon)
    assert (scale.scale, list(scale.quilt)) == (close(golden["approx_rev"]), golden["approx_quilt"])
    assert mqm_approx(whole, 100, epsilon, False).scale == close(golden["approx_gen"])


@pytest.mark.parametrize("name", ["theta1", "theta2"])
def test_golden_gaps(name: str) -> None:
    golden, chain = GOLDEN["1_mqm_exact"][f"{name}_spectral"], CHAINS[f"{name}_stationary"]
    assert eigengap(chain) == close(golden["gap_PPstar"])
    assert eigengap(chain, True) == close(golden["g_reversible"])
    assert mixing((chain,)).min_pi == close(min(golden["pi"]))


def test_a_unit_eigenvalue_too_many_is_not_thrown_away() -> None:
    """The clock's phase is handed on for ever; the printed gap sees none of it."""
    golden, chain = GOLDEN["eigengap_bug"], clock()
    assert printed_gap(chain) == close(golden["printed_g"])
    assert chain.stationary_distribution.min() == close(golden["pi_min"])
    for reversible in (None, False):
        with pytest.raises(ChainClassError, match="the eigengap is 0"):
            mqm_approx((chain,), 200, 1.0, reversible)


def test_a_width_too_short_for_the_lemma_is_never_used() -> None:
    golden = GOLDEN["2_abs_trap"]
    mixing = Mixing(golden["g"], golden["pi"])
    distance = math.exp(-golden["g"] * golden["a"] / 2)
    trap = 2 * math.log((golden["pi"] + distance) / abs(golden["pi"] - distance))
    assert trap == close(golden["abs_formula"])
    assert influence(THETA1, None, 1, None) == close(golden["exact_eL1"])
    assert trap < golden["exact_eL1"]  # so that the formula is no bound here
    assert width_influences(mixing, np.array([golden["a"]]))[0] == math.inf


def test_the_precondition_is_strict() -> None:
    mixing = Mixing(gap=2.0 * math.log(5.0) / 3.0, min_pi=0.2)  # a width of exactly 3 is too small
    assert width_influences(mixing, np.array([3]))[0] == math.inf
    assert width_influences(mixing, np.array([4]))[0] < math.inf


def random_chains(seed: int) -> list[MarkovChain]:
    """A general, a reversible and a lazy chain, from any start."""
    rng = np.random.default_rng(seed)
    general = rng.dirichlet(np.ones(3), 3)
    flow = rng.random((4, 4)) + 0.05
    flow = flow + flow.T
    lazy = 0.8 * np.eye(3) + 0.2 * general
    return [MarkovChain(matrix / matrix.sum(axis=1, keepdims=True), None) for matrix in (general, flow, lazy)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_lemma_4_8_bounds_every_influence(seed: int) -> None:
    widths = (1, 2, 3, 5, 8, 13, 21)
    for chain in random_chains(seed):
        variants = [mixing((chain,), False)]
        if is_reversible(chain):
            variants.append(mixing((chain,), True))
        bounds = [dict(zip(widths, width_influences(variant, np.array(widths)), strict=True)) for variant in variants]
        for a, b in product(widths, repeat=2):
            fixed, stationary = influence(chain, a + 1, a, b), influence(chain, None, a, b)
            for bound in bounds:
                assert fixed <= (2 * bound[a] + bound[b]) * (1 + 1e-9) + 1e-12
                assert stationary <= (bound[a] + bound[b]) * (1 + 1e-9) + 1e-12


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_the_exact_mechanism_never_needs_more(seed: int) -> None:
    for chain in random_chains(seed):
        for epsilon, length in product((0.3, 1.0, 5.0), (3, 12, 60, 2000)):
            exact = mqm_exact((chain,), length, epsilon).scale
            assert exact <= mqm_approx((chain,), length, epsilon).scale * (1 + 1e-9)
            assert exact <= mqm_approx((chain,), length, epsilon, False).scale * (1 + 1e-9)
        stationary = MarkovChain.stationary(chain.transition)
        best = mqm_approx((stationary,), 60, 1.0, stationary=True).scale
        assert mqm_exact((stationary,), 60, 1.0).scale <= best * (1 + 1e-9)


def test_beyond_the_fast_path_length_the_window_does_not_matter() -> None:
    for chain in (THETA1, THETA2):
        for epsilon in (0.2, 1.0, 5.0):
            needed = fast_path_length(mixing((chain,)), epsilon)
            scales = {mqm_approx((chain,), length, epsilon).scale for length in (needed - 1, needed, 10 * needed, None)}
            assert max(scales) == close(min(scales))


def test_what_has_no_approximation() -> None:
    general = random_chains(0)[0]
    dying = MarkovChain(np.array([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.0, 0.3, 0.7]]), None)
    for chain, options in (
        (general, {"reversible": True}),
        (general, {"stationary": True}),
        (dying, {}),
        (MarkovChain(np.array([[0.0, 1.0], [1.0, 0.0]]), None), {}),
        (MarkovChain(np.eye(2), None), {}),
    ):
        with pytest.raises(ChainClassError):
            mqm_approx((chain,), 100, 1.0, **options)
    for length, epsilon in ((0, 1.0), (10, 0.0), (10, math.inf)):
        with pytest.raises(ChainClassError):
            mqm_approx((THETA1,), length, epsilon)
    with pytest.raises(ChainClassError):
        mqm_approx((), 10, 1.0)
