"""Every golden number that the library can produce, to nine digits; thresholds exactly."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fugu.attackers.evaluation import success_bound
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.guarantee import loss
from fugu.contract.losses import Adversary
from fugu.privacy.randomised_response import allowed_ratios, calibrate
from papers.baselines import baselines, corollary_2, ordinary_dp, zhao_eps3, zhao_eps6

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "bdp.json").read_text())
calibrated = cache(calibrate)
TIERS: dict[str, Adversary] = {"T0": "ignorant", "T1": "informed", "T2": "universal"}


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def point(row: dict[str, Any]) -> BinaryChains:
    q, r = float(row["q"]), float(row["r"])
    return BinaryChains(q=(q, q), r=(r, r))


def symmetric(theta: float) -> BinaryChains:
    return BinaryChains(q=(theta, theta), r=(theta, theta))


@pytest.mark.parametrize("row", GOLDEN["forward"], ids=str)
def test_losses_of_given_ratios(row: dict[str, Any]) -> None:
    ratios = Fraction(row["G0"]), Fraction(row["G1"])
    for tier, adversary in TIERS.items():
        loss = point(row).ratio_loss(*ratios, adversary)
        assert loss.epsilon_01 == close(row["dir0"][f"ln_{tier}"])
        assert loss.epsilon_10 == close(row["dir1"][f"ln_{tier}"])


@pytest.mark.long
@pytest.mark.parametrize(
    "row", GOLDEN["calibration"], ids=lambda row: f"{row['q']}-{row['r']}-{row['eps']}-{row['tier']}"
)
def test_calibration(row: dict[str, Any]) -> None:
    epsilon, adversary = float(row["eps"]), TIERS[row["tier"]]
    fewest = calibrated(point(row), epsilon, adversary, "flips")
    assert (fewest.ratio_01, fewest.ratio_10) == (close(float(row["G0"])), close(float(row["G1"])))
    assert (fewest.rho0, fewest.rho1) == (close(float(row["rho0"])), close(float(row["rho1"])))
    q, r = float(row["q"]), float(row["r"])
    assert (r * fewest.rho0 + q * fewest.rho1) / (q + r) == close(float(row["expected_noise"]))
    for tier, other in TIERS.items():
        assert loss(point(row), fewest.table, other).epsilon == pytest.approx(row[f"eps_{tier}"], rel=2e-7)
    informative = calibrated(point(row), epsilon, adversary, "information")
    assert (informative.rho0, informative.rho1) == tuple(close(float(x)) for x in row["intersection"])


@pytest.mark.parametrize(
    "row",
    [row for row in GOLDEN["quantised"] if row["bits"] == 32],
    ids=lambda row: f"{row['q']}-{row['r']}-{row['eps']}-{row['tier']}",
)
def test_thresholds_exactly(row: dict[str, Any]) -> None:
    table = calibrated(point(row), float(row["eps"]), TIERS[row["tier"]], "flips")
    assert table.table.flip_weights == (row["T0"], row["T1"])
    assert table.loss.epsilon == close(row["eps_real"])


@pytest.mark.long
@pytest.mark.parametrize("row", GOLDEN["symmetric"], ids=lambda row: f"{row['theta']}-{row['eps']}")
def test_symmetric_chains(row: dict[str, Any]) -> None:
    theta, epsilon = float(row["theta"]), float(row["eps"])
    for tier, adversary in TIERS.items():
        assert calibrated(symmetric(theta), epsilon, adversary).rho0 == close(float(row[f"rho_{tier}"]))
    assert corollary_2(theta, epsilon) == close(float(row["rho_cor2"]))


@pytest.mark.long
@pytest.mark.parametrize("row", GOLDEN["figure3_theta0_35"], ids=lambda row: str(row["eps"]))
def test_figure_3(row: dict[str, Any]) -> None:
    epsilon, chains = float(row["eps"]), symmetric(0.35)
    assert ordinary_dp(epsilon) == close(row["dp"])
    assert corollary_2(0.35, epsilon) == close(row["cor2"])
    assert zhao_eps3(0.35, epsilon) == close(row["eps3"])
    epsilon_left, distance = zhao_eps6(0.35, epsilon)
    assert (epsilon_left, distance) == (close(row["eps6"]), row["t6"])
    for tier, adversary in TIERS.items():
        assert calibrated(chains, epsilon, adversary).rho0 == close(row[tier])
    real = {b.name: b for b in baselines(chains, epsilon)}
    expected = {
        "ordinary randomised response": ("dp", "T1_loss_of_dp"),
        "BDP theorem 1": ("T0", "T1_loss_of_T0"),
        "BDP corollary 2": ("cor2", "T1_loss_of_cor2"),
        "Zhao et al., eps_3": ("zhao3", None),
        "Zhao et al., eps_6": ("zhao6", "T1_loss_of_zhao6"),
    }
    for name, (rho, loses) in expected.items():
        if row[rho] is None:
            assert name not in real
        elif name in real:
            assert real[name].rho0 == close(row[rho])
            if loses is not None:
                measured = real[name].real(chains, "informed")
                step = 2**-32 / row[rho]  # what rounding rho down costs, relative to a ratio
                assert measured.epsilon == pytest.approx(row[loses], rel=1e-7, abs=4 * step)


@pytest.mark.parametrize("row", GOLDEN["success"], ids=lambda row: f"{row['q']}-{row['eps']}")
def test_success_of_an_attacker(row: dict[str, Any]) -> None:
    share = row["q"] / (row["q"] + row["r"])
    bound = float(success_bound([1 - share, share], row["eps"], row["eps"]))
    assert bound == close(row["avg_bound"])
    assert max(share, 1 - share) == close(row["majority"])


def test_the_papers_success_bound_falls_below_the_majority_guess() -> None:
    row = GOLDEN["success"][0]
    ratio = max(row["q"] / row["r"], row["r"] / row["q"])
    printed = math.exp(row["eps"]) / (ratio + math.exp(row["eps"]))
    assert printed == close(row["paper"])
    share = row["q"] / (row["q"] + row["r"])
    assert printed < row["majority"] <= success_bound([1 - share, share], row["eps"], row["eps"])


@pytest.mark.parametrize("row", GOLDEN["theorem2_counterexamples"], ids=lambda row: f"{row['name']}-{row['n']}")
def test_counterexamples(row: dict[str, Any]) -> None:
    q, r, rho0, rho1 = (Fraction(row[name]) for name in ("q", "r", "rho0", "rho1"))
    chains = BinaryChains(q=(float(q),) * 2, r=(float(r),) * 2)
    ratios = (1 - rho0) / rho1, (1 - rho1) / rho0
    assert chains.ratio_loss(*ratios, "informed").epsilon == close(row["eps_T1"])
    assert chains.ratio_loss(*ratios, "universal").epsilon == close(row["eps_T2"])
    assert chains.ratio_loss(*ratios, "ignorant").epsilon == close(row["ln_paper_bound_both"])
    assert row["ln_LR_known"] <= chains.ratio_loss(*ratios, "informed").epsilon


ALPHA = {row["chain"]: row["alpha_max"] for row in GOLDEN["kary_calibrated"]}


@pytest.mark.parametrize("row", GOLDEN["kary"], ids=lambda row: f"{row['chain']}-{row['G']}")
def test_losses_with_more_states(row: dict[str, Any]) -> None:
    states = 4 if row["chain"].endswith("4") else 3
    chains = BoundedChains(states=states, odds_ratio=ALPHA[row["chain"]])
    ratio = Fraction(row["G"])
    epsilon = chains.ratio_loss(ratio, ratio, "universal").epsilon
    assert epsilon == close(row["closed_T2"])
    assert epsilon >= row["exact_all"]


@pytest.mark.parametrize("row", GOLDEN["kary_calibrated"], ids=lambda row: f"{row['chain']}-{row['eps']}")
def test_calibration_with_more_states(row: dict[str, Any]) -> None:
    states = 4 if row["chain"].endswith("4") else 3
    chains = BoundedChains(states=states, odds_ratio=row["alpha_max"])
    ratio, _ = allowed_ratios(chains, float(row["eps"]), "universal")
    assert ratio / (ratio + states - 1) == close(row["keep_T2_closed"])
    calibration = calibrate(chains, float(row["eps"]), "universal")
    assert calibration.table.weights()[0][0] / 2**32 == pytest.approx(row["keep_T2_closed"], abs=1e-8)
    assert calibration.loss.epsilon <= float(row["eps"])
