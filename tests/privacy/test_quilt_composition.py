"""Several releases about one chain: golden numbers and real joint losses."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import mqm_exact, quilt_accountant, quilt_rate_loss
from papers.quilts import influence, model_distance
from tests.support.mqm_cases import CHAINS, GOLDEN, close
from tests.support.oracle import paths_of

COMPOSITION = GOLDEN["5_composition"]
STATIONARY = {name: CHAINS[f"{name}_stationary"] for name in ("theta1", "theta2")}
P1 = CHAINS["theta1"].transition
ENDLESS = COMPOSITION["endless_stream"]
DELTA = [key for key in GOLDEN["10_delta"] if key.startswith("dp")]


@pytest.mark.long
@pytest.mark.parametrize("key", [key for key in ENDLESS if "rate" in key])
def test_a_constant_rate_on_an_endless_stream(key: str) -> None:
    name, rate = key.split("|rate c=")
    assert quilt_rate_loss((STATIONARY[name],), float(rate)) == close(ENDLESS[key]["quilt"])


@pytest.mark.parametrize("key", [key for key in ENDLESS if "window" in key])
def test_tumbling_windows_on_an_endless_stream(key: str) -> None:
    name, window, _ = key.split("|")
    chain, length = STATIONARY[name], int(window.removeprefix("window="))
    scale = mqm_exact((chain,), length, 1.0).scale
    assert scale == close(ENDLESS[key]["sigma_window"])
    assert quilt_rate_loss((chain,), 1.0 / scale) == close(ENDLESS[key]["quilt_accountant"])


def test_windows_with_the_noise_of_an_endless_stream_compose_for_free() -> None:
    for chain, epsilon in product(STATIONARY.values(), (0.2, 1.0, 5.0)):
        scale = mqm_exact((chain,), None, epsilon).scale
        assert quilt_rate_loss((chain,), 1.0 / scale) <= epsilon * (1 + 2e-12)
        assert quilt_rate_loss((chain,), 1.001 / scale) > epsilon


def test_windows_of_different_noise_that_overlap() -> None:
    golden = COMPOSITION["heterogeneous_T60"]["quilt"]
    charges = np.zeros(60)
    for first, last, scale in ((1, 20, 12.839964231247), (21, 40, 10.0), (41, 60, 15.0), (11, 50, 50.0)):
        charges[first - 1 : last] += 1.0 / scale
    leaks = quilt_accountant((STATIONARY["theta1"],), charges)
    for node, value in golden.items():
        assert leaks[int(node) - 1] == close(value)


def test_ticks_without_a_release_cost_nothing_of_their_own() -> None:
    chain = STATIONARY["theta1"]
    charges = np.zeros(400)
    charges[0] = 2.0
    leaks = quilt_accountant((chain,), charges)
    assert leaks[0] == close(2.0)
    for node in (1, 3, 20, 150):
        assert leaks[node] == close(min(2.0, influence(chain, node + 1, node, None)))
    assert np.all(quilt_accountant((chain,), np.zeros(9)) == 0.0)
    assert quilt_rate_loss((chain,), 0.0) == 0.0


@pytest.mark.long
def test_a_slow_chain_needs_wide_quilts() -> None:
    slow = MarkovChain.stationary([[0.99, 0.01], [0.02, 0.98]])
    leaks = quilt_accountant((slow,), np.full(900, 0.002))
    endless = quilt_rate_loss((slow,), 0.002)
    assert endless < 0.7
    assert leaks[450] == close(endless)
    assert np.all(leaks <= endless * (1 + 1e-9))
    past = np.where(np.arange(900) < 800, 0.002, 0.0)
    left_widths = [influence(slow, None, width, None) + past[900 - width :].sum() for width in range(1, 400)]
    assert quilt_accountant((slow,), past)[899] == close(min(left_widths))


def test_the_worst_chain_of_a_class_decides() -> None:
    both = tuple(STATIONARY.values())
    charges = np.linspace(0.0, 0.2, 25)
    singly = [quilt_accountant((chain,), charges) for chain in both]
    assert np.all(quilt_accountant(both, charges) == np.maximum(*singly))
    assert quilt_rate_loss(both, 0.1) == max(quilt_rate_loss((chain,), 0.1) for chain in both)


@pytest.mark.long
@pytest.mark.parametrize("key", DELTA)
def test_the_distance_of_a_wrong_model_grows_with_the_window(key: str) -> None:
    golden = GOLDEN["10_delta"][key]
    shift, length = (float(part.partition("=")[2]) for part in key.split("|"))
    actual = MarkovChain.stationary(P1 + shift * np.array([[1, -1], [-1, 1]]))
    delta = model_distance(STATIONARY["theta1"], actual, int(length))
    assert delta == close(golden["Delta"])
    assert 1.0 + 2.0 * delta == close(golden["thm24"])
    # accounting under the other chain does not
    scale = mqm_exact((STATIONARY["theta1"],), None, 1.0).scale
    direct = quilt_rate_loss((actual,), 1.0 / scale)
    assert direct == close(golden["direct_quilt_at_sigma_mqm"])
    assert direct < golden["thm24"]


def test_the_distance_of_models_is_that_of_their_paths() -> None:
    rng = np.random.default_rng(4)
    for k in (2, 3):
        first, two = (MarkovChain(rng.dirichlet(np.ones(k), k), rng.dirichlet(np.ones(k))) for _ in range(2))
        assert first.initial is not None
        assert two.initial is not None
        paths, weight = paths_of(first.initial, [first.transition] * 4)
        _, other = paths_of(two.initial, [two.transition] * 4)
        worst = 0.0
        for node, state in product(range(5), range(k)):
            at = paths[:, node] == state
            ratios = np.log(weight[at] / weight[at].sum()) - np.log(other[at] / other[at].sum())
            worst = max(worst, float(np.abs(ratios).max()))
        assert model_distance(first, two, 5) == close(worst)
        assert model_distance(first, first, 5) == 0.0


def test_a_path_that_only_one_model_allows_is_infinitely_far() -> None:
    strict = MarkovChain(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0.5, 0.5]))
    loose = MarkovChain(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([0.5, 0.5]))
    assert model_distance(strict, loose, 4) == math.inf
    assert model_distance(strict, strict, 4) == 0.0


def test_questions_without_an_answer() -> None:
    chain, anywhere = STATIONARY["theta1"], CHAINS["theta1"].any_start
    for charges in ([], [[0.1]], [-0.1, 0.2], [math.nan], [math.inf]):
        with pytest.raises(ChainClassError):
            quilt_accountant((chain,), charges)
    for others in ((anywhere,), (), (MarkovChain(np.eye(2), np.array([0.5, 0.5])),)):
        with pytest.raises(ChainClassError):
            quilt_rate_loss(others, 0.1)
    with pytest.raises(ChainClassError):
        quilt_rate_loss((chain,), -1.0)
    with pytest.raises(ChainClassError):
        model_distance(chain, anywhere, 5)
