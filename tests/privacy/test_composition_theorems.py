"""Theorems on several releases: never below the real loss, and broken only where they are false."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.privacy.accountant import Chains
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.window_mechanisms import WindowRequest
from papers import composition_theorems
from papers.composition_theorems import Verdict, naive_counterexample, verdicts
from papers.window_releases import NoisyCount, Released, answer_distributions, noisy, worst_ratio
from tests.support.mqm_cases import CHAINS, GOLDEN
from tests.support.oracle import count_density, enumerated_losses, together
from tests.support.proofs import check_printed
from tests.support.released import Release, chain_losses

COMPOSITION = GOLDEN["5_composition"]
STATIONARY = CHAINS["theta1_stationary"]


def window(first: int, length: int, mechanism: str, scale: float, query: str = "count") -> Released:
    return Released(first, length, scale, query, mechanism)


def verdicts_of(chains: Chains, *releases: Released, **more: object) -> dict[str, Verdict]:
    request = WindowRequest(chains, 1.0, None, "count", "ignorant", **more)
    return {row.name: row for row in verdicts(request, releases)}


def judged(chain: MarkovChain, releases: tuple[Released, ...], counted: tuple[int, ...]) -> np.ndarray:
    """Loss of each tick that is read, by adding up every path."""
    length = max(release.last for release in releases)
    released: list[Release] = []
    for release in releases:
        for count in release.counts(chain.states, counted):
            adds = np.isin(np.arange(chain.states), count.states).astype(float)
            released.append((range(release.first, release.last + 1), tuple(adds), release.scale))
    read = sorted({tick for release in releases for tick in range(release.first, release.last + 1)})
    return np.array([chain_losses(chain, length, released)[tick - 1] for tick in read])


def random_chain(generator: np.random.Generator, k: int, seed: int) -> MarkovChain:
    transition = generator.dirichlet(np.full(k, 0.6), k) * 0.98 + 0.02 / k
    if seed % 3 == 0:
        return MarkovChain(transition, generator.dirichlet(np.ones(k)))
    return MarkovChain(transition, None) if seed % 3 == 1 else MarkovChain.stationary(transition)


@pytest.mark.parametrize("seed", range(8))
def test_distributions_of_counts_are_those_of_paths(seed: int) -> None:
    generator = np.random.default_rng(seed)
    k = 2 + seed % 2
    chain = MarkovChain(generator.dirichlet(np.ones(k), k), generator.dirichlet(np.ones(k)))
    counts, released = [], []
    for _ in range(2):
        first = int(generator.integers(1, 5))
        last = int(generator.integers(first, 6))
        state, scale = int(generator.integers(k)), float(np.exp(generator.normal()))
        counts.append(NoisyCount(first, last, (state,), scale))
        released.append((range(first, last + 1), np.eye(k)[state], scale))
    real = chain_losses(chain, max(count.last for count in counts), released)
    ratios = [worst_ratio(noisy(secret.distributions, counts)) for secret in answer_distributions(chain, counts)]
    assert ratios == pytest.approx(real, abs=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_what_holds_is_never_below_what_is_really_lost(seed: int) -> None:
    generator = np.random.default_rng(seed)
    k = 3 if seed % 4 == 3 else 2
    chain = random_chain(generator, k, seed)
    mechanisms = ["chain", "mqm-exact", "mqm-approx", "group"]
    mechanisms += ["wasserstein"] if chain.initial is not None else []
    longest = 5 if k == 3 else 8
    releases, first = [], 1
    for _ in range(2 if k == 3 else 3):
        if seed % 2:  # windows one after another, some with a gap
            first, length = first + int(generator.integers(2)), int(generator.integers(1, 3))
        else:
            first = int(generator.integers(1, 4))
            length = int(generator.integers(1, longest - first + 1))
        query = "histogram" if generator.random() < 0.2 and k == 2 and not releases else "count"
        usable = [each for each in mechanisms if each != "wasserstein" or query == "count"]
        scale = float(np.exp(generator.normal(0.0, 0.9)))
        releases.append(window(first, length, str(generator.choice(usable)), scale, query))
        first += length
    counted = (k - 1,)
    rows = verdicts_of((chain,), *releases, states=counted)
    real = judged(chain, tuple(releases), counted).max()
    assert rows["every path added up"].epsilon == pytest.approx(real, rel=1e-9)
    for row in rows.values():
        if row.standing == "holds":
            assert row.epsilon >= real * (1.0 - 1e-9), row
    if seed % 2:
        assert rows["theorem 3.1, corrected"].standing == rows["sum of losses"].standing == "holds"


def test_theorem_3_1_as_printed_and_as_corrected() -> None:
    golden = COMPOSITION["thm3.1_counterexample"]
    chain = MarkovChain(np.array(golden["P"]), np.array(golden["q"]))
    rows = verdicts_of((chain,), window(2, 1, "chain", 1 / 8), window(3, 1, "chain", 1 / 7))
    assert rows["every path added up"].epsilon == pytest.approx(11.470608960483183, rel=1e-9)
    assert rows["theorem 3.1, corrected"].epsilon == pytest.approx(golden["corrected_bound"], rel=1e-9)
    printed = rows["theorem 3.1, as printed"]
    assert printed.epsilon == pytest.approx(golden["printed_bound"], rel=1e-9)
    assert printed.standing == "false"
    assert "these releases break it: tick 2 loses 11.471" in printed.note
    check_printed("3.1 as printed ({} > {})", rows["every path added up"].epsilon or 0.0, printed.epsilon or 0.0)


def test_the_sum_of_the_least_of_loss_and_influence_is_false() -> None:
    golden = COMPOSITION["naive_sum_counterexample"]
    chain = MarkovChain.stationary(golden["P"])
    row = verdicts_of((chain,), window(1, 4, "chain", 0.6), window(5, 2, "chain", 0.2))[
        "sum of least of loss and influence"
    ]
    assert row.standing == "false"
    assert row.note.endswith(f"tick 2 loses {golden['joint_loss']:.5g}, and it says {golden['naive_bound']:.5g}")
    check_printed("the least of loss and influence ({} > {})", golden["joint_loss"], golden["naive_bound"])


def test_losses_about_the_same_ticks_do_not_add_up() -> None:
    """Theorem 3.4, on a chain and with a mechanism that is exact."""
    example = naive_counterexample()
    assert example.together > 1.1 * example.apart
    chain = MarkovChain.stationary([[0.99, 0.01], [0.4, 0.6]])
    same = window(1, 6, "chain", 2.0)
    assert judged(chain, (same, same), (1,)).max() == pytest.approx(example.together, rel=1e-9)
    assert 2 * judged(chain, (same,), (1,)).max() == pytest.approx(example.apart, rel=1e-9)
    row = verdicts_of((chain,), same, same)["sum of losses"]
    assert row.standing == "false"
    assert row.epsilon == pytest.approx(example.apart, rel=1e-9)
    assert "these releases break it" in row.note


def test_theorem_3_4_in_numbers() -> None:
    """The paper's case: the first of two ticks, a count with Laplace(1) noise, released once and twice."""
    golden = COMPOSITION["thm3.4"]
    chain, count = MarkovChain(np.array([[0.9, 0.1], [0.01, 0.99]]), np.array([0.5, 0.5])), NoisyCount(1, 2, (1,), 1.0)
    lost = []
    for counts in ([count], [count, count]):
        first = next(answer_distributions(chain, counts))
        lost.append(worst_ratio(noisy(first.distributions, counts)))
    assert lost == pytest.approx([golden["eps_single"], golden["loss_pair"]], rel=1e-12)
    assert lost[1] > 2 * lost[0]
    check_printed("q = 0.1, r = 0.01: {} about the first tick, and 2 x {} (started", lost[1], lost[0])


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rows_for_other_adversaries(seed: int) -> None:
    generator = np.random.default_rng(100 + seed)
    chain = MarkovChain.stationary([[0.6, 0.4], [0.45, 0.55]]) if seed % 2 else random_chain(generator, 2, 2)
    scales = np.exp(generator.normal(0.0, 0.7, 2))
    releases = [window(1, 3, "chain", scales[0]), window(2, 4, "group", scales[1])]
    rows = verdicts_of((chain,), *releases)
    density = together(count_density(scales[0], 0, 2), count_density(scales[1], 1, 4))
    for name, informed in (("ignorant", False), ("informed", True), ("universal", True)):
        real = enumerated_losses(chain.initial[None], chain.transition, 5, density, informed=informed).max()
        assert (rows[f"chain accountant, {name}"].epsilon or 0.0) >= real * (1 - 1e-9)
    real = judged(chain, tuple(releases), (1,)).max()
    assert all((row.epsilon or 0.0) >= real * (1 - 1e-9) for row in rows.values() if row.standing == "holds")
    assert rows["theorem 3.6, max-divergence"].standing == "holds"


@pytest.mark.long
def test_quilts_that_reach_no_other_window_keep_their_losses_apart() -> None:
    far = verdicts_of((STATIONARY,), window(1, 12, "mqm-exact", 3.0), window(25, 12, "mqm-approx", 4.0))
    row = far["theorem 3.3, quilts apart"]
    assert row.standing == "holds"
    assert (far["quilt accountant"].epsilon or 0.0) <= row.epsilon < far["sum of losses"].epsilon
    near = verdicts_of((STATIONARY,), window(1, 12, "mqm-exact", 3.0), window(13, 12, "mqm-exact", 3.0))
    assert "reach another window" in near["theorem 3.3, quilts apart"].note


@pytest.mark.long
def test_releases_of_one_set_of_quilts_add_up() -> None:
    rows = verdicts_of((STATIONARY,), window(1, 30, "mqm-exact", 13.0), window(1, 30, "mqm-exact", 20.0, "histogram"))
    total = rows["theorem 3.7, one set of quilts"]
    assert (total.standing, rows["sum of losses"].standing) == ("holds", "holds")
    assert (rows["quilt accountant"].epsilon or 0.0) <= (total.epsilon or 0.0)
    mixed = verdicts_of((STATIONARY,), window(1, 30, "mqm-exact", 13.0), window(1, 30, "chain", 20.0))
    assert "release 2 is not one of Markov quilts" in mixed["theorem 3.7, one set of quilts"].note


@pytest.mark.parametrize(
    ("releases", "paper", "ours"),
    [
        ((window(1, 5, "mqm-exact", 2.0), window(6, 5, "mqm-exact", 2.0)), 5.278, 5.243),
        ((window(1, 10, "mqm-exact", 13.0), window(1, 10, "mqm-exact", 20.0)), 1.307, 1.306),
        ((window(1, 8, "mqm-exact", 3.0), window(5, 8, "mqm-exact", 3.0)), 5.782, 5.698),
    ],
)
def test_theorem_3_6_is_the_papers_formula_with_ours_beside_it(
    releases: tuple[Released, ...], paper: float, ours: float
) -> None:
    rows = verdicts_of((STATIONARY,), *releases)
    epsilons = [rows[f"theorem 3.6, {name}"].epsilon or 0.0 for name in ("max-divergence", "either way apart")]
    assert epsilons == pytest.approx([paper, ours], abs=5e-4)
    if releases[0].length == 5:
        check_printed("noise of scale 2: {} by the paper's formula, {} with either way apart", *epsilons)


def test_theorem_3_6_by_plain_enumeration() -> None:
    """Every path and a grid of answers: how far one answer moves the log-density of the other."""
    rows = verdicts_of((STATIONARY,), window(1, 3, "chain", 1.0), window(3, 2, "chain", 0.7))
    scales, moved = (1.0, 0.7), []
    for tick, state in product(range(4), (0, 1)):
        weights: dict[tuple[int, int], float] = {}
        for path in product((0, 1), repeat=4):
            if path[tick] == state:
                steps = [STATIONARY.transition[a, b] for a, b in pairwise(path)]
                counts = sum(path[:3]), sum(path[2:])
                weights[counts] = weights.get(counts, 0.0) + (0.8, 0.2)[path[0]] * float(np.prod(steps))
        chances = np.array(list(weights.values())) / sum(weights.values())
        for answers in product(np.linspace(-1, 4, 26), repeat=2):
            noise = np.exp(-np.abs(np.array(answers) - np.array(list(weights))) / scales)
            first, two = chances @ noise
            moved.append(np.log(chances @ noise.prod(axis=1) / (first * two)))
    up, down = max(moved), -min(moved)
    losses = rows["sum of losses"].epsilon or 0.0
    assert rows["theorem 3.6, max-divergence"].epsilon == pytest.approx(losses + 2 * max(up, down), rel=1e-8)
    assert rows["theorem 3.6, either way apart"].epsilon == pytest.approx(losses + up + down, rel=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_max_divergence_of_beliefs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(seed)
    chain = random_chain(generator, 2, seed)
    releases = (window(1, 4, "chain", 1.5), window(3, 3, "group", 2.0), window(2, 2, "mqm-exact", 1.0))
    exact = verdicts_of((chain,), *releases)["theorem 3.6, max-divergence"].epsilon
    real = judged(chain, releases, (1,)).max()

    def too_long(*_: object) -> None:
        raise ChainClassError("too long")

    monkeypatch.setattr(composition_theorems, "answer_distributions", too_long)
    rows = verdicts_of((chain,), *releases)
    assert rows["every path added up"].standing == "not applicable"
    coarse = rows["theorem 3.6, max-divergence"].epsilon
    if chain.initial is not None:
        assert real <= (exact or 0.0) <= (coarse or 0.0)
    else:
        assert exact == coarse


def test_answers_about_independent_ticks_move_no_belief() -> None:
    chain = MarkovChain.stationary([[0.6, 0.4], [0.6, 0.4]])
    row = verdicts_of((chain,), window(1, 2, "chain", 1.0), window(3, 2, "chain", 2.0))["theorem 3.6, max-divergence"]
    assert row.epsilon == pytest.approx(1.5, rel=1e-8)


@pytest.mark.long
def test_a_class_of_chains_and_any_start() -> None:
    releases = window(3, 4, "chain", 2.0), window(8, 3, "mqm-exact", 1.5)
    box = BinaryChains(q=(0.1, 0.2), r=(0.3, 0.4))
    for start in (None, "any"):
        rows = verdicts_of(box, *releases, start=start)
        for q, r in product(box.q, box.r):
            transition = np.array([[1 - q, q], [r, 1 - r]])
            chain = MarkovChain(transition, None) if start else MarkovChain.stationary(transition)
            real = judged(chain, tuple(releases), (1,)).max()
            for row in rows.values():
                if row.standing == "holds" and row.epsilon is not None:
                    assert row.epsilon >= real * (1 - 1e-9)
    far = verdicts_of(box, *(window(each.first + 50, each.length, each.mechanism, each.scale) for each in releases))
    near = verdicts_of(box, *releases)
    assert [row.epsilon for row in far.values()] == [row.epsilon for row in near.values()]
    assert (near["quilt accountant"].note, far["quilt accountant"].note) == ("tick 7", "tick 57")
    bounded = verdicts_of(BoundedChains(states=2, odds_ratio=13.5), *releases)
    assert bounded["chain accountant, informed"].standing == "holds"
    assert bounded["quilt accountant"].note == "needs transition matrices, not a bound on their odds ratios"
    assert "release 2: needs transition matrices" in bounded["sum of losses"].note


@pytest.mark.long
def test_what_cannot_be_said() -> None:
    judged = verdicts_of((STATIONARY,), window(1, 4, "entry", 1.0))
    assert judged["sum of losses"].note == "there is one release"
    two = verdicts_of((STATIONARY,), window(1, 4, "entry", 1.0), window(5, 4, "chain", 1.0))
    assert two["sum of losses"].note == "release 1: entry guarantees nothing for correlated readings"
    assert two["every path added up"].standing == "at least"
    long = verdicts_of((STATIONARY,), window(1, 400, "chain", 9.0), window(2, 400, "chain", 9.0))
    assert "too many to add up every path" in long["every path added up"].note
    three = verdicts_of((MarkovChain.stationary(np.full((3, 3), 1 / 3)),), window(1, 4, "chain", 1.0))
    assert three["every path added up"].note == "which of the 3 states are counted is not said"
    with pytest.raises(ChainClassError, match="no release"):
        verdicts_of((STATIONARY,))
    with pytest.raises(ChainClassError, match="at most 10000 ticks"):
        verdicts_of((STATIONARY,), window(1, 4, "chain", 1.0), window(20_000, 4, "chain", 1.0))
    with pytest.raises(ChainClassError, match="first tick"):
        window(0, 4, "chain", 1.0)
