"""`fugu check attack`: the tables of the manual, policies, and what cannot be attacked."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.attack import ATTACKERS, COUNT_ATTACKERS
from fugu.cli.demo.evaluation import RECORDINGS
from fugu.contract.windows import Window
from tests.support.command import Fugu
from tests.support.processes import policy
from tests.support.proofs import check_printed

MANUAL = Path(__file__).parents[2] / "docs" / "proofs" / "learned-classes.md"
NIGHTS = ("N05", "N07", "N10")


def rows(state: str, recording: str) -> list[list[float]]:
    """The numbers of a recording's state in the tables of the manual."""
    found = re.findall(rf"^\| {recording} \| {state} \|(.*)\|$", MANUAL.read_text(), re.MULTILINE)
    return [[float(number) for number in re.findall(r"\d*\.?\d+", row.replace("none", "0"))] for row in found]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """3,000 readings that stay with probability .9, and a column of names."""
    states = np.cumsum(np.random.default_rng(1).random(3000) < 0.1) % 2
    path = tmp_path / "made.csv"
    path.write_text("value,room\n" + "".join(f"{state + 0.25},{'kitchen' if state else 'hall'}\n" for state in states))
    return path


@pytest.mark.long
def test_the_command_makes_the_tables_of_the_manual(fugu: Fugu) -> None:
    """One row of both, within what another machine's arithmetic may change."""
    done = fugu("check", "attack", RECORDINGS / "hr_sleep_N05.csv.gz", "--baseline", 300, "--json")
    assert done.code == 0, done.err
    found = done.json()["trials"]
    check_rows(found, "N05", "above the running mean of 300")
    for one in found:
        if one["chains"] != "independent readings":
            assert knows(one)["furthest"] < math.e
            assert knows(one)["beyond"] == 0.0
            assert all(attack["high"] < attack["ceiling"] for attack in one["attacks"])


@pytest.mark.soak
@pytest.mark.parametrize("name", NIGHTS)
def test_the_command_makes_every_row_of_the_tables_of_the_manual(fugu: Fugu, name: str) -> None:
    states = ["--threshold", "mean", "--baseline", 300, "--baseline", 100, "--baseline", 30]
    done = fugu("check", "attack", RECORDINGS / f"hr_sleep_{name}.csv.gz", *states, "--json")
    assert done.code == 0, done.err
    found = done.json()["trials"]
    assert len({one["state"] for one in found}) == 4
    for state in {one["state"] for one in found}:
        check_rows([one for one in found if one["state"] == state], name, state.replace("its own", "own"))


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
    found: dict[str, Any]
    [found] = [one for one in trial["attacks"] if one["attacker"] == "forward-backward"]
    return found


def check_rows(found: list[dict[str, Any]], name: str, state: str) -> None:
    """A row of the first table, and of the second if it has one."""
    trials = {(one["chains"], one["released"]): one for one in found}
    best = {key: one["attacks"][0]["success"] for key, one in trials.items()}
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


@pytest.mark.long
def test_a_policy_is_attacked_in_all_that_it_releases(fugu: Fugu, recording: Path, tmp_path: Path) -> None:
    window = Window(name="high", length=50, stride=50, states=("high",), scale="40")
    file = tmp_path / "policy.json"
    file.write_text(policy(epoch_us=0, period_us=1_000_000, windows=(window,)).to_json())
    done = fugu("check", "attack", recording, "--policy", file, "--column", "value", "--json")
    assert done.code == 0, done.err
    trials = done.json()["trials"]
    assert [one["released"] for one in trials] == ["symbols", "window high", "symbols, high"]
    assert {one["attacker"] for one in trials[0]["attacks"]} == set(ATTACKERS)
    assert {one["attacker"] for one in trials[1]["attacks"]} == set(COUNT_ATTACKERS)
    for one in trials:
        assert all(0 <= found["low"] <= found["success"] <= found["high"] <= 1 for found in one["attacks"])
    told = fugu("check", "attack", recording, "--policy", file, "--column", "value", "--known", 2, "--json").json()[
        "trials"
    ]
    assert told[0]["attacks"][0]["guess"] > 0.8 > 0.6 > trials[0]["attacks"][0]["guess"]
    shown = fugu("check", "attack", recording, "--policy", file, "--column", "value")
    assert "forward-backward" in shown.out
    said = " ".join(shown.out.split())
    assert "proven if the readings are in the class" in said
    assert "bounds nothing for one who learns a person's habits" in said
    for trial in trials:
        [named] = [one["furthest"] for one in trial["attacks"] if one["attacker"] == "supervised"]
        assert f"x {named:.3g} (" in said
        assert {one["furthest"] is None for one in trial["attacks"] if "Viterbi" in one["attacker"]} <= {True}


@pytest.mark.long
def test_several_recordings_and_states_get_a_table_each(fugu: Fugu, recording: Path) -> None:
    other = recording.rename(recording.with_name("other.csv"))
    recording.write_bytes(other.read_bytes())
    shown = fugu("check", "attack", recording, other, "--threshold", "mean", "--baseline", 20, "--column", "value")
    assert shown.code == 0, shown.err
    assert shown.out.count("above its own mean: epsilon 1") == 2
    assert shown.out.count("above the running mean of 20: epsilon 1") == 2
    assert "learned chain" not in shown.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give either --policy, or --threshold or --baseline"),
        (("--threshold", "mean", "--policy", "policy.json"), "give either --policy, or --threshold or --baseline"),
        (("--threshold", "warm"), "threshold must be a number"),
        (("--baseline", "10", "--epsilon", "0"), "epsilon must be above 0"),
        (("--baseline", "10", "--column", "room"), "column room holds names, not numbers"),
        (("--threshold", "100", "--column", "value"), "never leaves state 0"),
        (("--policy", "nowhere.json"), "nowhere.json"),
    ],
)
def test_what_cannot_be_attacked_is_said_in_one_line(
    fugu: Fugu, recording: Path, options: tuple[str, ...], said: str
) -> None:
    extra = () if "--column" in options else ("--column", "value")
    done = fugu("check", "attack", recording, *extra, *options)
    assert done.code in (1, 2)
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not done.out
