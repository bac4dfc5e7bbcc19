"""Numbers of the pages on privacy that no other test computes."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import numpy as np
import pytest

from fugu.attackers.evaluation import success_bound
from fugu.contract.chains import BinaryChains
from fugu.contract.guarantee import loss
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.places.hull import graph_hull
from fugu.places.tables import build_table, table_loss
from fugu.planning.joint_recording import StreamRule, read_joint
from fugu.planning.network_plan import plan_network, read_network
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.randomised_response import calibrate
from fugu.privacy.window_mechanisms import Mechanism, WindowRequest, plan_noise, window_noise
from fugu.recordings.readings import AS_FOUND
from fugu_cli.demo.evaluation import RECORDINGS
from gateway.releases.allowance import allowance, amplified_loss, charge, joint_loss
from gateway.releases.config import joint_charge
from papers.composition_theorems import naive_counterexample
from papers.influence_matrix import influence_scale, joint_influence_scale
from tests.support.dphmm_cases import GRAPH, VALUES, states
from tests.support.proofs import ROOT, check_printed, last_digit

STICKY = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
CHAIN = ((0.9, 0.1), (0.4, 0.6))


def point(q: float, r: float) -> BinaryChains:
    return BinaryChains(q=(q, q), r=(r, r))


def flips(rho0: float, rho1: float) -> NoiseTable:
    return NoiseTable.binary(round(rho0 * SCALE), round(rho1 * SCALE))


def scale(mechanism: Mechanism, length: int | None = None) -> float:
    return window_noise(WindowRequest(STICKY, 1.0, length, "count", "ignorant"), mechanism).scale


def test_ordinary_randomised_response() -> None:
    ordinary = flips(1 / (1 + math.e), 1 / (1 + math.e))
    check_printed(
        "really has an epsilon of {} on a recorded heart rate (q = 0.0893, r = 0.1092 a beat), and of {} on whether "
        "an office is occupied (q = 0.0036, r = 0.0120 a minute)",
        loss(point(0.0893, 0.1092), ordinary, "informed").epsilon,
        loss(point(0.0036, 0.0120), ordinary, "informed").epsilon,
    )


def test_theorem_1_as_it_is_used() -> None:
    def real(q: float, r: float, nominal: float) -> float:
        table = calibrate(point(q, r), nominal, "ignorant", "flips").table
        return loss(point(q, r), table, "informed").epsilon

    check_printed(
        "(q = 0.0893, r = 0.1092) is really {}, at 1 on q = 0.01, r = 0.3 {}, and at 2 on q = 0.2, r = 0.35 {}, all",
        real(0.0893, 0.1092, 4.0),
        real(0.01, 0.3, 1.0),
        real(0.2, 0.35, 2.0),
    )


def test_worst_corners() -> None:
    table = flips(0.4242594, 2.02831e-5)
    inside, low, high = (
        loss(point(q, 0.9241383), table, "informed").epsilon_01 for q in (0.9938877, 0.9638877, 0.9997976)
    )
    check_printed(
        "With rho = (0.4242594, 2.02831e-5), r = 0.9241383 and q in [0.9638877, 0.9997976], the chain q = 0.9938877 "
        "inside the interval loses {} in one direction, and the corners {} and {}.",
        inside,
        low,
        high,
    )


@pytest.mark.long
def test_noise_of_every_mechanism() -> None:
    check_printed("| chain accountant | {} | exact |", scale("chain"))
    check_printed("| MQMExact | {} | quilt of 5 ticks", scale("mqm-exact"))
    check_printed("| MQMApprox | {} | quilt of 11 and 10 ticks", scale("mqm-approx"))
    check_printed("| GroupDP, 100 ticks | {} | all", scale("group", 100))
    check_printed(
        "| entry-DP | {} | its real epsilon is {}:", scale("entry"), ChainAccountant(STICKY).loss(1.0).epsilon
    )
    anywhere = WindowRequest((MarkovChain(np.array(CHAIN), None),), 1.0, 100, "count", "ignorant")
    check_printed(
        "epsilon 1, 100 ticks: {} instead of {})", window_noise(anywhere, "mqm-exact").scale, scale("mqm-exact", 100)
    )
    asked = WindowRequest((MarkovChain.stationary(CHAIN),), 1.0, None, "count", "ignorant", segments=8)
    names: tuple[Mechanism, ...] = ("chain", "mqm-exact", "group")
    check_printed("epsilon 1, N = 8: {}, {}, {})", *(plan_noise(asked, name, None).noise.scale for name in names))


def test_influence_matrices() -> None:
    chains = point(0.4, 0.4)
    scale = influence_scale(chains, None, 1.0)
    check_printed(
        "(q = r = 0.4: norm {}, scale {} at epsilon 1) the accountant needs less noise ({})",
        scale.norm,
        scale.scale,
        1.0 / ChainAccountant(chains).allowance(1.0),
    )


def test_four_people_who_may_be_ill() -> None:
    spec = read_network(RECORDINGS / "flu.toml")
    plan = plan_network(spec)
    scales = {noise.mechanism: noise.scale for noise in plan.noises}
    with pytest.raises(ChainClassError) as refused:
        joint_influence_scale(spec.network.joint, [1.0] * 4, range(4), 1.0)
    norm = re.search(r"is up to ([\d.]+)", str(refused.value))
    check_printed(
        "exact {}, Wasserstein {} (the paper's W), quilts {}, group {}; GK16 does not apply (norm {})",
        *(scales[name] for name in ("exact", "wasserstein", "mqm", "group")),
        float(norm[1]),
    )


def test_releases_that_do_not_add_up() -> None:
    example = naive_counterexample()
    check_printed("q = 0.01, r = 0.4: {} together, 2 x {} apart", example.together, example.apart / 2)
    table = flips(0.3, 0.1)
    check_printed(
        "two counts of scale 2 lose {} together and {} each", amplified_loss(table, 1.0), amplified_loss(table, 0.5)
    )
    more = max(charge(table, spread) / amplified_loss(table, spread) for spread in np.linspace(0.01, 3.0, 300))
    check_printed("costs up to {} % more noise", 100 * (more - 1))


@pytest.mark.parametrize("number", [8, 2])
def test_accounts_of_several_audiences(number: int) -> None:
    chains, epsilon = (point(0.0036, 0.012), 0.1) if number == 8 else (point(0.0893, 0.1092), 0.5)
    allowed = allowance(chains, epsilon, "ignorant")
    joint = joint_loss(chains, joint_charge([allowed] * number, 0), "ignorant")
    if number == 8:
        check_printed("eight releases of epsilon 0.1 each lose {} together", joint)
    else:
        check_printed("with q = 0.0893 and r = 0.1092 two of epsilon 0.5 lose {}", joint)


@pytest.mark.long
def test_a_staircase_loses_whole_steps() -> None:
    hull = graph_hull(VALUES, GRAPH)
    lost = table_loss(build_table(hull, VALUES, states(6), 1).weights)
    pairs = [(i, j) for i in range(6) for j in range(6) if 3 * hull.gauge((VALUES[i] - VALUES[j]).tolist()) == 5]
    check_printed("example loses {} on a pair of gauge 5/3", max(lost[pair] for pair in pairs))


def test_what_epsilon_allows() -> None:
    check_printed("where {} is what epsilon allows", float(success_bound([0.5, 0.5], 1.0)))
    check_printed("where e^epsilon = {}; the largest", math.e)
    check_printed("the share of heartbeats with more than {}:", math.e)


def test_slow_regimes() -> None:
    runs = []
    for name in ("N07", "N10"):
        night = read_joint([StreamRule(RECORDINGS / f"hr_sleep_{name}.csv.gz", "value", "mean")], AS_FOUND).states
        runs.append(float(np.diff(np.flatnonzero(np.diff(night[:, 0]))).max()))
    check_printed("N07 and N10 have slow regimes (runs of {} and of {} equal states)", *runs)


def first_ticks(before: float, after: float, rate: float, ticks: int) -> list[float]:
    """Gain of the `ignorant` about each tick behind a change of likelihood ratios, of a chain with q = r = rate.

    By the likelihood ratio of each side, which q + r < 1 makes monotone: the past is as long as it takes to settle.
    """

    def step(ratio: float) -> float:
        return ((1 - rate) * ratio + rate) / (rate * ratio + 1 - rate)

    past = future = 1.0
    for _ in range(3000):
        past, future = step(before * past), step(after * future)
    losses = []
    for _ in range(ticks):
        losses.append(math.log(after * past * future))
        past = step(after * past)
    return losses


def allowed(rate: float, epsilon: float) -> float:
    """The likelihood ratio of a tick that epsilon allows against the `ignorant`, of a chain with q = r = rate."""
    return calibrate(BinaryChains(q=(rate, rate), r=(rate, rate)), epsilon, "ignorant").ratio_01


def test_a_stronger_policy_is_not_true_when_it_begins() -> None:
    losses = first_ticks(allowed(0.01, 4.0), allowed(0.01, 1.0), 0.01, 3000)
    assert losses[-1] == pytest.approx(1.0, rel=1e-6)
    check_printed(
        "loses {} at the first tick of the second policy, {} after 60 ticks and {} after 120",
        *(losses[0], losses[60], losses[120]),
    )
    wider = first_ticks(allowed(0.2, 1.0), allowed(0.01, 1.0), 0.01, 1)[0]
    check_printed("both at epsilon 1, {} is lost at the first tick", wider)
    check_printed("Epsilon 1 was promised, and {} lost, at the first tick after a change", wider)


def test_all_versions_leak_into_a_promise() -> None:
    """Against any side information: epsilon 4, ten ticks at 1, then 1 again."""
    chains = BinaryChains(q=(0.01, 0.01), r=(0.01, 0.01))
    ratios = {epsilon: calibrate(chains, epsilon, "universal").ratio_01 for epsilon in (1.0, 4.0)}
    root = 0.99 / 0.01

    def spread(leakage: float) -> float:
        u = math.sqrt(math.exp(leakage))
        return 2.0 * math.log((root * u + 1.0) / (root + u))

    past = future = 0.0
    for _ in range(3000):
        past = spread(math.log(ratios[4.0]) + past)
        future = spread(math.log(ratios[1.0]) + future)
    for _ in range(10):
        past = spread(math.log(ratios[1.0]) + past)
    check_printed("epsilon 4, ten ticks at 1, then 1 again loses {}.", math.log(ratios[1.0]) + past + future)


@pytest.mark.soak
def test_the_tables_of_real_recordings() -> None:
    """All rows, by the program that prints them."""
    done = subprocess.run(
        [sys.executable, "benchmarks/real.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    page = (ROOT / "docs" / "proofs" / "published-mechanisms.md").read_text()
    titles = {"heart rate, 2": "**Heart rate", "activity, 4": "**Activity", "power, 43": "**Household power (43"}
    kinds = {"hourly": "hourly, error", "whole": "everything once, error"}
    recording = kind = ""
    checked = 0
    for row in re.findall(r"^\| (?:heart rate|activity|power|\|).*$", page, re.MULTILINE):
        about, released, epsilon, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        recording, kind = about or recording, released or kind
        section = done.partition(titles[recording])[2].partition("\n**")[0]
        (line,) = re.findall(rf"^\| {kinds[kind]} \| {float(epsilon):g} \|(.*)\|$", section, re.MULTILINE)
        for printed, real in zip(cells, (cell.strip() for cell in line.split("|")), strict=False):
            if printed == "none":
                assert real == "none"
                continue
            number = printed.removesuffix(" %")
            assert abs(float(number) - float(real.removesuffix(" %").replace(",", ""))) <= last_digit(number), row
            checked += 1
    assert checked == 12 * 5 - 4
    night = re.search(r"\*\*Heart rate.*?of ours is ([\d.]+)\.", done, re.DOTALL)
    people = re.search(r"\*\*Activity.*?of ours is ([\d./ ]+)\.\n", done, re.DOTALL)
    each = [float(number) for number in people[1].split(" / ")]
    check_printed("is worth {} (heart rate), {} to {} (activity", float(night[1]), min(each), max(each))
