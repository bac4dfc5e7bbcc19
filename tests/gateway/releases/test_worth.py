"""How far off releases will be, beside guessing: against enumeration, against what is released, and on the page."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from fugu.privacy.chain_class import MarkovChain
from gateway.deployment.doctor import Installation, examine
from gateway.releases.charges import nats
from gateway.releases.config import ReleaseConfig
from gateway.releases.jobs import allowances, jobs
from gateway.releases.setup import release_now
from gateway.releases.statistics import Query, Tally, estimate, noise_variance
from gateway.releases.worth import Worth, count_kinds, useless_releases, worth_of
from tests.support.release_scenes import scheduled, write_config
from tests.support.scenes import TERNARY, Scene, catalogue, frames, policy, write_policies

ROOT = Path(__file__).parents[3]
TABLE = NoiseTable.binary(SCALE // 10, SCALE // 10)
NARROW = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
AUDIENCE = '[audiences.public]\nepsilon = 1.0\nadversary = "ignorant"\n'


def judged(folder: Path, *policies: Policy, **more: object) -> tuple[Worth | None, str, int]:
    """A release's worth, what is said of it, and what each tick may be charged."""
    plan = ReleaseConfig.load(write_config(folder, scheduled(**more), audiences=AUDIENCE))
    models = catalogue(policies)
    possible = jobs(plan, models)
    granted, impossible = allowances(plan, possible, models)
    assert not impossible
    allowed = min(grant.allowance - grant.base for grant in granted)
    return (
        worth_of(possible[0], count_kinds(possible[0], models), allowed, possible[0].plan.length),
        useless_releases(possible, granted, models).get("active", ""),
        allowed,
    )


def test_a_guess_is_off_by_what_all_paths_say(tmp_path: Path) -> None:
    """For two known chains: of the number in the middle of their means, for the chain that varies most."""
    rows = (((0.7, 0.2, 0.1), (0.3, 0.6, 0.1), (0.2, 0.2, 0.6)), ((0.8, 0.1, 0.1), (0.1, 0.8, 0.1), (0.3, 0.3, 0.4)))
    moments = []
    for transition in rows:
        pi = MarkovChain.stationary(transition).stationary_distribution
        mean = square = 0.0
        for path in product(range(3), repeat=6):
            p = pi[path[0]] * np.prod([transition[a][b] for a, b in pairwise(path)])
            mean, square = mean + p * path.count(1), square + p * path.count(1) ** 2
        moments.append((mean, square - mean**2))
    (first, spread), (second, other) = moments
    chains, own = BoundedChains(states=3, odds_ratio=90.0), [[list(row) for row in matrix] for matrix in rows]
    worth, *_ = judged(tmp_path, policy(1, chains=chains, table=TERNARY), length=6, mechanism="mqm-exact", chains=own)
    assert worth.guess == pytest.approx(np.sqrt(((first - second) / 2.0) ** 2 + max(spread, other)), rel=1e-9)


@pytest.mark.parametrize("mechanism", ["chain", "mqm-exact"])
def test_the_error_is_that_of_what_is_released(tmp_path: Path, mechanism: str) -> None:
    """Of a table that is wrong as often in each state it does not depend on the states."""
    worth, _, _ = judged(tmp_path, policy(1, chains=NARROW, table=TABLE), mechanism=mechanism, length=400)
    scale = {"chain": Fraction("2.657798"), "mqm-exact": Fraction("10.26905")}[mechanism]
    answer = estimate(Query("count", (1,)), (Tally(TABLE, 400, 399, np.array([90])),), scale)
    assert worth.error == pytest.approx(answer.standard_errors[0], rel=1e-5)


def test_both_sources_and_several_devices_add_up(tmp_path: Path) -> None:
    """With scales that are given: errors of devices are independent, and those of both sources weighed."""
    window = Window(name="w", length=10, stride=10, states=(1,), scale="8")
    weak = policy(1, chains=NARROW, table=TABLE, windows=(window,))
    fleet = (weak, policy(1, device="ring", chains=NARROW, table=TABLE))
    errors = {}
    for source, devices in product(("best", "symbols", "both"), (["watch"], ["ring"], ["watch", "ring"])):
        worth, *_ = judged(tmp_path, *fleet, scale="30", share=None, source=source, devices=devices)
        errors[source, len(devices), devices[0]] = worth.error
    windows, symbols = np.sqrt(2.0 * noise_variance(Fraction(8))), errors["symbols", 1, "watch"]
    assert errors["best", 1, "watch"] == symbols, "which are better without noise"
    assert errors["both", 1, "watch"] == pytest.approx(1.0 / np.hypot(1.0 / windows, 1.0 / symbols))
    of_both = estimate(Query("count", (1,)), (Tally(TABLE, 40, 39, np.array([9])),), Fraction(30)).standard_errors[0]
    assert errors["symbols", 2, "watch"] == pytest.approx(of_both), "noise is added once"
    assert errors["both", 2, "watch"] == pytest.approx(np.hypot(errors["both", 1, "watch"], symbols))


def test_what_is_said_of_a_release_that_is_not_useful_is_useful(tmp_path: Path) -> None:
    sticky = BinaryChains(q=(0.01, 0.01), r=(0.02, 0.02))
    device = policy(1, chains=sticky, table=TABLE)
    _, reason, allowed = judged(tmp_path, device, mechanism="mqm-exact", length=100)
    assert reason == (
        "off by 389 of 100 ticks, always saying the same by 31.7: not useful; useful are windows of 51,200 ticks (off "
        "by 398), or windows of 51,200 ticks that devices count, with noise of scale 275.1 (off by 389; fugu plan "
        "window)"
    )
    assert judged(tmp_path, device, mechanism="mqm-exact", length=51_200)[1] == ""
    assert judged(tmp_path, device, mechanism="mqm-exact", length=25_600)[1]
    scale = str(Fraction(1) / Fraction(nats(allowed)).limit_denominator(10**6))
    window = Window(name="w", length=51_200, stride=51_200, states=(1,), scale=scale, mechanism="mqm-exact")
    fields = {"table": None, "frame_ticks": 1, "windows_guarantee": None}
    alone = policy(1, chains=sticky, windows=(window,)).model_copy(update=fields)
    plan = ReleaseConfig.load(
        write_config(tmp_path, scheduled(mechanism="mqm-exact", length=51_200), audiences=AUDIENCE)
    )
    (job,) = jobs(plan, catalogue((alone,)))
    worth = worth_of(job, count_kinds(job, catalogue((alone,))), 0, 51_200)
    assert worth.is_useful
    assert worth.error == pytest.approx(389.1, abs=0.1)


def test_the_page_says_from_which_lengths_on_a_release_is_useful(tmp_path: Path) -> None:
    """The table of docs/releases.md, as it is said of a release of half of the least length there."""
    text = (ROOT / "docs" / "releases.md").read_text()
    rows = re.findall(r"^\| (q [^|]*) \| ([\d,]+|none) \| ([\d,]+|none) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert len(rows) == 4
    for words, *lengths in rows:
        q, r = (
            tuple(map(float, re.findall(r"0\.\d+", part))) * (1 if "to" in part else 2) for part in words.split(", r ")
        )
        chains = BinaryChains(q=q, r=r)
        device = policy(1, chains=chains, table=TABLE)
        for mechanism, length in zip(("chain", "mqm-exact"), lengths, strict=False):
            reason = judged(tmp_path, device, mechanism=mechanism, length=50)[1]
            useful = re.search(r"windows of ([\d,]+) ticks \(off", reason)
            assert (useful[1] if useful else "none") == length
        counted = re.search(r"windows of ([\d,]+) ticks that devices count", reason)
        assert counted[1] == lengths[2]


def test_it_is_said_when_a_release_is_configured_and_when_it_is_made(tmp_path: Path) -> None:
    """By the doctor, and by hand when the release is made; a configuration that does not fit the policies fails."""
    fleet = (policy(1, chains=NARROW, table=TABLE),)
    write_policies(tmp_path / "policies", fleet)
    config = write_config(tmp_path, scheduled(mechanism="mqm-exact"), audiences=AUDIENCE)
    scene = Scene(tmp_path / "s.sqlite", 8, fleet)
    scene.record(*frames([20]))
    scene.store.close()
    lines: list[str] = []
    files = {"config": config, "store": tmp_path / "s.sqlite", "policies": tmp_path / "policies"}
    release_now(**files, name="active", first=0, print_line=lines.append)
    (line,) = lines
    assert line.startswith("release active: off by ")
    installation = Installation("home", policies=tmp_path / "policies", releases=config)
    (finding,) = (finding for finding in examine(installation) if finding.check == "releases")
    assert (finding.verdict, f"release {finding.text}") == ("warn", line)
    config.write_text(config.read_text().replace("level 1", "level 9"))
    (finding,) = (finding for finding in examine(installation) if finding.check == "releases")
    assert finding.verdict == "FAIL"
