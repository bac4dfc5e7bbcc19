"""`fugu plan model` on counts made by hand and on a real recording."""

from __future__ import annotations

import gzip
import json
import random
from itertools import islice
from pathlib import Path

import pytest

from fugu.privacy.chain_model import ChainModel
from fugu_cli.demo.evaluation import RECORDINGS
from tests.support.classifiers import classifier_of
from tests.support.command import Fugu

HEADER = "t,value,state,seg,subject"
ROWS = """0,10,0,a,1
2,11,0,a,1
4,30,1,a,1
6,31,1,a,1
8,9,0,a,1
100,40,1,b,1
102,41,1,b,1
106,12,0,c,1
108,45,1,c,1
200,8,0,b,2
202,50,1,b,2"""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "hand.csv"
    file.write_text(f"{HEADER}\n{ROWS}\n")
    return file


def test_counts_by_hand(fugu: Fugu, recording: Path) -> None:
    """Segments end where seg or subject change: 0 0 1 1 0 | 1 1 | 0 1 | 0 1."""
    done = fugu("plan", "model", recording, "--column", "state", "--json")
    assert done.code == 0
    document = done.json()
    assert document["counts"] == [[1, 3], [1, 2]]
    assert document["period_seconds"] == 2.0
    (stream,) = document["streams"]
    assert (stream["source"], stream["name"], stream["discretiser"]["kind"]) == ("hand.csv", "state", "thresholds")
    assert document["chains"] is None
    assert document["refused"].startswith("too short to tell how readings depend on one another: state 1 is left once")


@pytest.mark.parametrize("threshold", ["mean", "20", "30"])
def test_thresholds_make_the_same_states(fugu: Fugu, recording: Path, threshold: str) -> None:
    document = fugu("plan", "model", recording, "--threshold", threshold, "--json").json()
    assert document["counts"] == [[1, 3], [1, 2]]
    (stream,) = document["streams"]
    assert stream["column"] == "value"
    mean = (10 + 11 + 30 + 31 + 9 + 40 + 41 + 12 + 45 + 8 + 50) / 11
    assert stream["discretiser"]["edges"][0] == pytest.approx(mean if threshold == "mean" else float(threshold))


def test_the_file_is_what_json_shows_and_loads_back(fugu: Fugu, recording: Path, tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    done = fugu("plan", "model", recording, "--column", "state", "-o", chain, "--json")
    assert json.loads(chain.read_text()) == done.json()
    assert ChainModel.from_json(chain.read_bytes()).counts == ((1, 3), (1, 2))


def test_it_warns_that_fitting_leaks(fugu: Fugu, recording: Path) -> None:
    done = fugu("plan", "model", recording, "--column", "state", "--json")
    assert "leaks" in done.json()["warning"]
    assert done.err.startswith("fugu: warning: ")
    assert "leaks" in done.err


@pytest.mark.long
def test_a_real_recording_has_the_published_chain(fugu: Fugu) -> None:
    """The BDP paper's highly correlated recording, which is neither homogeneous nor of first order."""
    done = fugu("plan", "model", RECORDINGS / "hr_sleep_N10.csv.gz", "--column", "state", "--json")
    document, model = done.json(), ChainModel.from_json(done.out)
    assert (round(model.transition[0, 1], 5), round(model.transition[1, 0], 5)) == (0.08938, 0.10924)
    assert document["stretches"]["covered"] >= 0.98
    assert document["more"]["p_value"] < 1e-50
    assert document["more"]["nats_per_step"] < 0.01
    assert document["period_seconds"] == pytest.approx(0.8, abs=0.01)


@pytest.mark.long
def test_for_people(fugu: Fugu) -> None:
    done = fugu("plan", "model", RECORDINGS / "hr_sleep_N07.csv.gz")
    assert done.code == 0
    assert "one every 1.1" in " ".join(done.out.split())
    assert "Class: steps of odds ratios up to" in done.out


def test_more_states(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "three.csv.gz"
    file.write_bytes(gzip.compress(("state\n" + "0\n1\n2\n2\n1\n0\n" * 20).encode()))
    document = fugu("plan", "model", file, "--json").json()
    assert document["counts"] == [[19, 20, 0], [20, 0, 20], [0, 20, 20]]
    shown = fugu("plan", "model", file)
    assert "Steps of the chain" in shown.out


def test_rows_without_a_reading_are_a_state_where_they_are_more_than_one_in_a_hundred(
    fugu: Fugu, tmp_path: Path
) -> None:
    """At the boundary from both sides: 1 of 100 rows is left out and separates, 2 of 199 are a state."""
    rows = [f"{state}" for state in (0, 0, 1, 1) * 25]
    file = tmp_path / "gaps.csv"
    file.write_text("\n".join(["state,x", *(f"{'' if i == 50 else row}," for i, row in enumerate(rows))]) + "\n")
    document = fugu("plan", "model", file, "--json").json()
    (stream,) = document["streams"]
    assert (len(stream["discretiser"]["states"]), stream["discretiser"]["missing"]) == (2, None)
    assert stream["missing_share"] == 0.01
    assert sum(map(sum, document["counts"])) == 97, "no transition is counted across it"
    rows = (rows * 2)[:199]
    gaps = (50, 51)
    file.write_text("\n".join(["state,x", *(f"{'' if i in gaps else row}," for i, row in enumerate(rows))]) + "\n")
    document = fugu("plan", "model", file, "--json").json()
    (stream,) = document["streams"]
    assert (stream["discretiser"]["states"][2:], stream["discretiser"]["missing"]) == (["missing"], "missing")
    assert document["counts"][2] == [1, 0, 1]
    assert document["counts"][0][2] == 1, "nothing is carried over a missing row"
    assert sum(map(sum, document["counts"])) == 198
    shown = fugu("plan", "model", file)
    assert "1.0% of the readings are missing: a state of its own" in " ".join(shown.out.split())


@pytest.mark.long
def test_a_plan_from_such_a_recording_has_a_policy_with_a_state_for_missing_readings(
    fugu: Fugu, tmp_path: Path
) -> None:
    rng = random.Random(5)
    rows, value = [], 60.0
    for _ in range(4000):
        value = 60.0 + 0.5 * (value - 60.0) + rng.gauss(0, 8)
        rows.append("" if rng.random() < 0.1 else f"{value:.2f}")
    file, model = tmp_path / "pulse.csv", tmp_path / "chain.json"
    file.write_text("\n".join(["t,value", *(f"{t},{row}" for t, row in enumerate(rows))]) + "\n")
    assert fugu("plan", "model", file, "--threshold", "60", "-o", model).code == 0
    names = ("--for", "home/watch/hr", "--states", "low,high")
    policy = tmp_path / "policy.json"
    done = fugu("plan", "stream", "--model", model, "--epsilon", "4", "--adversary", "universal", *names, "-o", policy)
    assert done.code == 0, done.err
    document = json.loads(policy.read_text())
    assert document["discretiser"]["states"] == ["low", "high", "missing"]
    assert document["discretiser"]["missing"] == "missing"
    assert document["missing_share"] is None
    device = classifier_of(document["discretiser"])
    assert [device.observe(tick, reading) for tick, reading in enumerate(("70", None, "x"))] == [1, 2, 2]
    checked = fugu("check", "policy", policy)
    assert "missing readings are in state 2 (missing), protected like the others" in checked.out
    del document["discretiser"]["missing"]
    policy.write_text(json.dumps(document))
    assert "1 edge makes 2 states, not 3" in fugu("check", "policy", policy).err


@pytest.mark.long
def test_a_small_share_of_missing_readings_says_how_far_off_estimates_can_be(fugu: Fugu, tmp_path: Path) -> None:
    rng = random.Random(6)
    rows = ["" if i % 200 == 7 else f"{rng.gauss(60, 8):.2f}" for i in range(4000)]
    file, model, policy = tmp_path / "pulse.csv", tmp_path / "chain.json", tmp_path / "policy.json"
    file.write_text("\n".join(["t,value", *(f"{t},{row}" for t, row in enumerate(rows))]) + "\n")
    assert fugu("plan", "model", file, "--threshold", "60", "-o", model).code == 0
    names = ("--for", "home/watch/hr")
    assert fugu("plan", "stream", "--model", model, "--epsilon", "1", *names, "-o", policy).code == 0
    assert json.loads(policy.read_text())["missing_share"] == 0.005
    shown = fugu("check", "policy", policy).out
    assert "at most 0.500% of the ticks. A state's share is off by at most 0.0025, a window's count by 0.005" in shown


NIGHT = RECORDINGS / "hr_sleep_N10.csv.gz"


@pytest.mark.long
def test_a_class_is_attacked(fugu: Fugu, tmp_path: Path) -> None:
    """A part of N10 above a running mean: there are no slow regimes."""
    part, chain = tmp_path / "part.csv", tmp_path / "chain.json"
    with gzip.open(NIGHT, "rt") as night:
        part.write_text("".join(islice(night, 8_001)))
    done = fugu("plan", "model", part, "--baseline", 300, "--epsilon", 1, "-o", chain)
    document = json.loads(chain.read_text())
    assert document["refused"] is None
    assert document["attacked"]["high"] < document["attacked"]["ceiling"]
    assert document["attacked"]["attackers"] > 7, "of symbols and of counts"
    assert "proven if the readings are in the class. On that recording the strongest of" in " ".join(done.out.split())
    chain.write_text(json.dumps(document | {"chains": None, "refused": "no class passes: even with noise of 9"}))
    refused = fugu("plan", "window", "--model", chain, "--epsilon", 1, "--window", 300)
    assert "no class passes" in refused.refusal()


@pytest.mark.long
def test_states_of_a_running_mean_go_into_the_policy(fugu: Fugu, tmp_path: Path) -> None:
    chain, policy = tmp_path / "chain.json", tmp_path / "policy.json"
    assert fugu("plan", "model", RECORDINGS / "hr_sleep_N05.csv.gz", "--baseline", 100, "-o", chain).code == 0
    model = json.loads(chain.read_text())
    assert sum(map(sum, model["counts"])) == 16859 - 100 - 1
    names = ("--for", "home/watch/hr", "--states", "rest,up")
    options = ("--epsilon", 1, "--adversary", "universal", "--window", 300, *names, "-o", policy)
    done = fugu("plan", "window", "--model", chain, *options)
    assert done.code == 0, done.err
    document = json.loads(policy.read_text())
    assert document["discretiser"]["kind"] == "baseline"
    assert document["discretiser"]["baseline_ticks"] == 100
    assert document["discretiser"]["states"] == ["rest", "up"]
    assert document["chains"] == model["chains"]
    assert fugu("check", "policy", policy, "--ceiling", 1).code == 0


def test_a_running_mean_is_of_every_reading(fugu: Fugu, recording: Path) -> None:
    done = fugu("plan", "model", recording, "--baseline", 3, "--threshold", 60)
    assert done.code != 0
    assert done.err == "fugu: a stream has either a --threshold or a --baseline: leave one out, or write - for it\n"


def test_a_recording_too_short_to_tell_has_no_class(fugu: Fugu, recording: Path, tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    shown = fugu("plan", "model", recording, "--column", "state", "--epsilon", 1, "-o", chain)
    assert "No class: too short to tell" in " ".join(shown.out.split())
    refused = fugu("plan", "stream", "--model", chain, "--epsilon", 1)
    assert "too short to tell how readings depend on one another" in refused.refusal()
