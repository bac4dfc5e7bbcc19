"""Attacks on real nights: known figures, on both sides of what epsilon allows, and the tables of the manual."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.attackers.evaluation import attack, mean_transitions, odds_change
from fugu.attackers.outputs import Knowledge, release_symbols
from fugu.contract.chains import BinaryChains
from fugu.contract.noise_table import NoiseTable
from fugu.privacy.randomised_response import calibrate
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import read_readings
from fugu_cli.demo.evaluation import RECORDINGS
from papers.attacked import attack_classes, class_of_halves, two_states
from tests.support.proofs import check_printed

MANUAL = Path(__file__).parents[2] / "docs" / "proofs" / "learned-classes.md"
NIGHTS = ("N05", "N07", "N10")


def rows(state: str, recording: str) -> list[list[float]]:
    """The numbers of a recording's state in the tables of the manual."""
    matches = re.findall(rf"^\| {recording} \| {state} \|(.*)\|$", MANUAL.read_text(), re.MULTILINE)
    return [[float(number) for number in re.findall(r"\d*\.?\d+", row.replace("none", "0"))] for row in matches]


def trials(name: str, *baselines: int | None) -> list[dict[str, Any]]:
    """Attacks on a night, above its mean (None) or running means, as objects."""
    readings = read_readings(RECORDINGS / f"hr_sleep_{name}.csv.gz")
    rows = []
    for baseline in baselines:
        state, states = two_states(readings, baseline)
        for chains, outcome in attack_classes(readings.source, states, readings.segments, 1.0):
            rows.append(
                {
                    **outcome._asdict(),
                    "state": state,
                    "chains": chains,
                    "attacks": [asdict(each) for each in outcome.attacks],
                }
            )
    return rows


@pytest.mark.soak
@pytest.mark.parametrize("name", ["N05", "N10"])
def test_every_row_of_the_tables_of_the_manual(name: str) -> None:
    """Within what another machine's arithmetic may change."""
    rows = trials(name, None, 300, 100, 30)
    assert len({row["state"] for row in rows}) == 4
    for state in {row["state"] for row in rows}:
        check_rows([row for row in rows if row["state"] == state], name, state.replace("its own", "own"))
    for row in rows:
        if (name, row["state"]) == ("N05", "above the running mean of 300") and row["chains"] != "independent readings":
            assert knows(row)["furthest"] < math.e
            assert knows(row)["beyond"] == 0.0
            assert all(attack["high"] < attack["ceiling"] for attack in row["attacks"])


@pytest.mark.long
def test_on_a_part_of_a_night_the_classes_of_the_tables_keep_epsilon_and_independence_does_not() -> None:
    states, segments = night("N05", 300)
    attacks = {
        (chains, outcome.released): next(each for each in outcome.attacks if each.attacker == "forward-backward")
        for chains, outcome in attack_classes("N05", states[:2_000], segments[:2_000], EPSILON)
    }
    assert len(attacks) == 6
    assert attacks["independent readings", "symbols"].furthest > math.e
    for (chains, _), outcome in attacks.items():
        if chains != "independent readings":
            assert (outcome.furthest < math.e, outcome.beyond) == (True, 0.0)


def test_the_manual_says_of_its_table_what_it_has() -> None:
    own, long, short = (
        [rows(state, name)[0][6] for name in NIGHTS]
        for state in ("above own mean", "above the running mean of 300", "above the running mean of 100")
    )
    check_printed("need noise of {} / {} / {} on N05 / N07 / N10", *own)
    check_printed("Above the running mean of 300 it is {} / {} / {}, of 100 {} / {} / {},", *long, *short)
    check_printed("a learner reaches {} and {}.", *(rows("above own mean", name)[0][2] for name in NIGHTS[1:]))
    check_printed("counts of 300 give away {}.", rows("above own mean", "N10")[0][5])
    running = [rows(f"above the running mean of {ticks}", name)[0] for ticks in (300, 100, 30) for name in NIGHTS]
    check_printed("that was run reaches {}, whichever", max(max(row[2:6]) for row in running))


def knows(trial: dict[str, Any]) -> dict[str, Any]:
    """The attacker of a trial who knows the chain beforehand."""
    attack: dict[str, Any]
    [attack] = [outcome for outcome in trial["attacks"] if outcome["attacker"] == "forward-backward"]
    return attack


def check_rows(table_rows: list[dict[str, Any]], name: str, state: str) -> None:
    """A row of the first table, and of the second if it has one."""
    trials = {(row["chains"], row["released"]): row for row in table_rows}
    best = {key: trial["attacks"][0]["success"] for key, trial in trials.items()}
    guess, alone, symbols, counts, covered, covered_counts, noise = rows(state, name)[0]
    assert trials["mean chain", "symbols"]["attacks"][0]["guess"] == pytest.approx(guess, abs=0.002)
    for key, value in {
        ("independent readings", "symbols"): alone,
        ("mean chain", "symbols"): symbols,
        ("mean chain", "counts of 300"): counts,
        ("every stretch", "symbols"): covered,
        ("every stretch", "counts of 300"): covered_counts,
    }.items():
        assert best[key] == pytest.approx(value, abs=0.01), key
    assert trials["every stretch", "counts of 300"]["noise"] == pytest.approx(noise, rel=0.01)
    for odds in rows(state, name)[1:]:
        for chains, factor, beyond in zip(
            ("independent readings", "mean chain", "every stretch"), odds[::2], odds[1::2], strict=True
        ):
            assert knows(trials[chains, "symbols"])["furthest"] == pytest.approx(factor, rel=0.02)
            assert 100 * knows(trials[chains, "symbols"])["beyond"] == pytest.approx(beyond, abs=1)


EPSILON = 1.0
ORDINARY = NoiseTable.binary(*[round(2**32 / (1 + math.e))] * 2)


def night(name, baseline):
    readings = read_readings(RECORDINGS / f"hr_sleep_{name}.csv.gz", ReadOptions(column="value"))
    return two_states(readings, baseline)[1], readings.segments


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "baseline", "beyond", "furthest"),
    [("N10", None, 0.78, 107), ("N10", 300, 0.61, 25), ("N07", 300, 0.54, 6), ("N05", 300, 0.54, 8)],
)
def test_ordinary_randomised_response_moves_the_odds_far_beyond_epsilon_and_ours_never(
    name, baseline, beyond, furthest
):
    states, segments = night(name, baseline)
    knowledge = Knowledge(mean_transitions(states, segments, 2), segments)
    ordinary = odds_change(release_symbols(states, ORDINARY, np.random.default_rng(1)), knowledge)[states >= 0]
    assert (ordinary > EPSILON).mean() == pytest.approx(beyond, abs=0.02)
    assert math.exp(ordinary.max()) == pytest.approx(furthest, rel=0.05)
    table = calibrate(class_of_halves(states, segments), EPSILON, "universal").table
    ours = odds_change(release_symbols(states, table, np.random.default_rng(2)), knowledge)
    assert ours.max() < EPSILON
    assert ours.max() > 0.1


@pytest.mark.soak
def test_learners_find_slow_regimes_above_the_nights_mean_and_none_above_the_running_mean():
    """The class of the mean chain of the night and its halves, informed adversary: 0.731 is what epsilon 1 allows."""
    by_baseline = {}
    for baseline in (None, 300):
        states, segments = night("N10", baseline)
        table = calibrate(class_of_halves(states, segments), EPSILON).table
        outputs = release_symbols(states, table, np.random.default_rng(1))
        by_baseline[baseline] = {outcome.attacker: outcome for outcome in attack(states, segments, outputs, EPSILON)}
    assert max(outcome.success for outcome in by_baseline[None].values()) > 0.74
    assert by_baseline[None]["learned chain, Viterbi"].success > 0.68
    assert by_baseline[None]["forward-backward"].success < 0.6
    assert all(outcome.high < outcome.ceiling for outcome in by_baseline[300].values())
    assert max(outcome.success for outcome in by_baseline[300].values()) < 0.63


def test_the_class_of_halves_holds_the_rates_of_both_and_of_the_whole():
    states = np.array([0, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1], dtype=np.int64)
    chains = class_of_halves(states, np.zeros(16, dtype=np.int64))
    assert chains == BinaryChains(q=(0.4, 2 / 3), r=(0.25, 0.5))
