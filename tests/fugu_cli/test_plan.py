"""`fugu plan stream`: golden noise, its price, other plans, and the policy it writes; `fugu plan network`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.policy import Policy
from fugu_cli.demo.evaluation import RECORDINGS
from tests.support.command import Fugu

N10 = ("--q", ".08938", "--r", ".10924")


def plan(fugu: Fugu, *words: object) -> Any:
    done = fugu("plan", "stream", *words, "--json")
    assert done.code == 0, done.err
    return done.json()


@pytest.mark.long
def test_the_plan_for_the_published_recording(fugu: Fugu) -> None:
    document = plan(fugu, *N10, "--epsilon", 1)
    assert {"rho0", "rho1", "threshold0", "threshold1", "epsilon", "adversary"} <= document.keys()
    assert (document["adversary"], document["objective"]) == ("informed", "information")
    assert document["accuracy"] == pytest.approx(0.56, abs=0.02)
    assert document["majority"] == pytest.approx(0.55, abs=1e-3)
    stationary = 0.10924 / (0.08938 + 0.10924)
    flips = stationary * document["rho0"] + (1 - stationary) * document["rho1"]
    assert document["expected_flips"] == pytest.approx(flips, abs=1e-9)


@pytest.mark.long
def test_it_says_that_sampling_less_often_is_better_and_plans_that(fugu: Fugu) -> None:
    document = plan(fugu, *N10, "--epsilon", 1, "--period", ".8")
    assert document["better_every"] == 10
    assert "Sampling less often is better: with one reading every 8 s" in document["advice"][-1]
    better = next(option for option in document["periods"] if option["every"] == 10)
    assert better["accuracy"] > document["accuracy"] + 0.1
    assert better["bits_per_hour"] > 4 * document["bits_per_hour"]
    planned = plan(fugu, *N10, "--epsilon", 1, "--period", ".8", "--every", 10)
    assert {key: planned[key] for key in better} == better
    assert planned["period_seconds"] == pytest.approx(8.0)
    assert planned["better_every"] is None


@pytest.mark.parametrize("what", ["stream", "window", "window --period 1 --window 5m"])
def test_what_only_a_policy_has_is_said_to_be_for_nothing_if_none_is_written(fugu: Fugu, what: str) -> None:
    header = ("--for", "home/a/b", "--latency", 7, "--epoch", 1_700_000_000, "--threshold", 1)
    done = fugu("plan", *what.split(), *N10, "--epsilon", 1, *header)
    warned = ["--for", "--latency", "--epoch", *["--threshold"][: what == "window"]]
    assert (done.code, done.err.count("is for the policy, which is not written without -o")) == (0, len(warned))
    assert all(f"{option} is for the policy" in done.err for option in warned)


@pytest.mark.long
def test_for_people(fugu: Fugu) -> None:
    done = fugu("plan", "stream", *N10, "--epsilon", 1)
    assert done.code == 0
    for piece in ("rho0 = Pr(symbol 1 | state 0)", "epsilon achieved", "of 2^32", "--every 10"):
        assert piece in done.out


POLICY = ("--for", "home/wrist-1/heart", "--period", "0.8", "--threshold", "61.5")


@pytest.mark.long
def test_a_policy_survives_the_check_of_a_device(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    document = plan(fugu, *N10, "--epsilon", 1, "--every", 5, *POLICY, "--epoch", "1700000000.5", "-o", file)
    policy = Policy.from_json(file.read_bytes())
    assert policy.table.flip_weights[0] == document["threshold0"]
    assert (policy.clock.epoch_us, policy.clock.period_us) == (1_700_000_000_500_000, 4_000_000)
    assert policy.discretiser.states == ("low", "high")
    assert (policy.guarantee.epsilon, policy.guarantee.adversary) == (1.0, "universal")
    assert document["adversary_asked"] == "informed"
    assert document["unaware"]["bits_per_reading"] > document["bits_per_reading"]  # what known readings between cost
    checked = fugu("check", "policy", file, "--ceiling", 1, "--json")
    assert checked.code == 0
    for key in ("epsilon", "epsilon_01", "epsilon_10", "bound", "adversary", "weights", "stretches"):
        assert checked.json()[key] == document[key], f"{key}: what is printed is what a check derives"
    assert [each["ticks"] for each in document["stretches"]] == [1, 151, 901, 7201, 14 * 901]
    assert document["stretches"][0]["epsilon"] == document["epsilon"]
    assert "not protected" in fugu("check", "policy", file).out
    assert "the guarantee holds" in fugu("check", "policy", file).out


@pytest.mark.long
def test_a_policy_above_the_ceiling_or_with_a_false_guarantee_is_refused(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    plan(fugu, *N10, "--epsilon", 1, *POLICY, "-o", file)
    above = fugu("check", "policy", file, "--ceiling", ".9")
    assert "above this device's ceiling 0.9" in above.refusal()
    document = json.loads(file.read_text())
    document["guarantee"]["epsilon"] = 0.9
    file.write_text(json.dumps(document))
    false = fugu("check", "policy", file)
    assert "above the 0.9 of its guarantee" in false.refusal()


@pytest.mark.long
def test_the_clock_starts_now_unless_told_otherwise(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.4)
    plan(fugu, *N10, "--epsilon", 1, *POLICY, "-o", tmp_path / "p.json")
    assert Policy.from_json((tmp_path / "p.json").read_bytes()).clock.epoch_us == 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("extra", "code", "message"),
    [
        ((), 2, "a policy needs --for, --period, --threshold (try 'fugu plan stream --help')"),
        ((*POLICY, "--states", "a,b,c"), 1, "1 edge makes 2 states, not 3"),
        ((*POLICY, "--states", "a,a"), 1, "two states have the same name"),
        ((*POLICY, "--for", "a b/c/d"), 1, "fleet: must be of the form ^[A-Za-z0-9_-]{1,64}$"),
        ((*POLICY, "--for", "a/b"), 2, "--for is like home/watch/heart-rate, got 'a/b'"),
        ((*POLICY, "--latency", "0"), 1, "latency must be above 0 and finite, got 0"),
        ((*POLICY, "--threshold", "x"), 2, "threshold must be a number, got 'x'"),
        (
            (*POLICY, "--epoch", "nan"),
            1,
            "epoch and period must be seconds from 0 to 253402300799, which is in the year 9999",
        ),
        ((*POLICY, "--threshold", "1,2"), 1, "discretiser, chains and table have (3, 2, 2) states"),
    ],
)
def test_policies_that_cannot_be_written(
    fugu: Fugu, tmp_path: Path, extra: tuple[str, ...], code: int, message: str
) -> None:
    done = fugu("plan", "stream", "--q", ".5", "--r", ".5", "--epsilon", 1, *extra, "-o", tmp_path / "p.json")
    assert (done.code, done.err) == (code, f"fugu: {message}\n")
    assert not (tmp_path / "p.json").exists()


def test_a_policy_takes_the_place_of_a_file_that_is_no_text(fugu: Fugu, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(b"\xff")
    plan(fugu, *N10, "--epsilon", 1, *POLICY, "-o", tmp_path / "p.json")
    assert Policy.from_json((tmp_path / "p.json").read_bytes()).version == 1


@pytest.mark.long
def test_from_a_recording_to_a_policy(fugu: Fugu, tmp_path: Path) -> None:
    """A model brings its period, its threshold and its class, and the plan says what that covers."""
    data = RECORDINGS / "hr_sleep_N10.csv.gz"
    chain, file = tmp_path / "chain.json", tmp_path / "policy.json"
    fugu("plan", "model", data, "--threshold", "mean", "-o", chain)
    names = ("--for", "home/wrist-1/heart")
    document = plan(fugu, "--model", chain, "--epsilon", 2, *names, "-o", file)
    model = json.loads(chain.read_text())
    assert document["chains"] == model["chains"]
    assert model["stretches"]["covered"] >= 0.98
    assert "covers 98.1 % of the stretches of 500 to 2000 ticks" in document["notes"][0]
    assert "leaks" in document["warnings"][0]
    policy = Policy.from_json(file.read_bytes())
    assert policy.clock.period_us == round(model["period_seconds"] * 1e6)
    assert policy.discretiser.kind == "thresholds"
    assert policy.discretiser.edges == tuple(model["streams"][0]["discretiser"]["edges"])


def test_more_states_get_randomised_response_with_the_universal_bound(fugu: Fugu, tmp_path: Path) -> None:
    recording, chain, file = tmp_path / "three.csv", tmp_path / "chain.json", tmp_path / "policy.json"
    recording.write_text("state\n" + "0\n0\n1\n1\n2\n2\n1\n0\n2\n0\n" * 200)
    assert fugu("plan", "model", recording, "-o", chain).code == 0
    edges = ("--for", "f/d/s", "--period", 60, "--threshold", "1,2")
    document = plan(fugu, "--model", chain, "--epsilon", 3, *edges, "-o", file)
    assert (document["rho0"], document["threshold0"]) == (None, None)
    assert json.loads(fugu("check", "policy", file, "--json").out)["flips"] == {}
    weights = document["weights"]
    assert [sum(row) for row in weights] == [2**32] * 3
    assert weights[0][1] == weights[0][2] == weights[2][0] < weights[0][0]
    assert 2.9 < document["epsilon"] <= 3.0
    assert fugu("check", "policy", file, "--ceiling", 3).code == 0
    assert "Pr(each wrong symbol)" in fugu("plan", "stream", "--model", chain, "--epsilon", 3).out


@pytest.mark.long
def test_a_few_known_chains_are_declared_by_their_odds_ratios(fugu: Fugu, tmp_path: Path) -> None:
    """Streams and windows declare the same; a step that never happens has no odds ratio."""
    file, policy = tmp_path / "chains.json", tmp_path / "policy.json"
    chains = [[[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], [[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.2, 0.7]]]
    file.write_text(json.dumps({"chains": [{"transition": rows} for rows in chains]}))
    header = ("--for", "f/d/s", "--period", 60, "--threshold", "1,2", "-o", policy)
    document = plan(fugu, "--model", file, "--epsilon", 2, "--adversary", "ignorant", *header)
    assert document["chains"]["kind"] == "bounded"
    assert "by these chains, to whoever knows no state" in document["notes"][1]
    assert fugu("check", "policy", policy, "--ceiling", 2).code == 0
    written = Policy.from_json(policy.read_bytes())
    assert written.verify(2.0).epsilon <= 2.0
    windows = ("plan", "window", "--model", file, "--epsilon", 2, "--adversary", "ignorant", "--window", "60")
    assert fugu(*windows, "--query", "histogram", *header).code == 0
    assert Policy.from_json(policy.read_bytes()).chains == written.chains
    chains[0][0] = [0.7, 0.3, 0.0]
    file.write_text(json.dumps({"chains": [{"transition": rows} for rows in chains]}))
    refused = fugu("plan", "stream", "--model", file, "--epsilon", 2)
    reason = "no stream can be planned for such a chain: transition row 0 has an entry that is not positive"
    assert reason in refused.refusal()


FLU = RECORDINGS / "flu.toml"


def test_the_shipped_example(fugu: Fugu) -> None:
    table = fugu("plan", "network", FLU)
    assert table.code == 0, table.err
    rows = [line.split() for line in table.out.splitlines() if line.startswith(" ")]
    order = [row[0] for row in rows if row and row[0] in ("entry", "exact", "wasserstein", "mqm", "group")]
    assert order == ["entry", "exact", "wasserstein", "mqm", "group"]
    assert "exact (least) 1.15453" in " ".join(table.out.split())
    document = fugu("plan", "network", FLU, "--json").json()
    scales = {each["mechanism"]: each["scale"] for each in document["mechanisms"]}
    assert (document["least"], document["epsilon"]) == ("exact", 1)
    assert scales["wasserstein"] == pytest.approx(2.0)
    assert document["secrets"]["joe"] == [["well", "ill"]]


def test_bad_files_get_one_line(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    for text, reason in (
        ("epsilon = ", "is not TOML"),
        ("epsilon = 1\nvariables = 3\n", "variables must be a list"),
        (FLU.read_text().replace("31/60", "3/60"), "'bob': the row 3/60, 29/60 must be probabilities that sum to 1"),
        (FLU.read_text().replace("[0, 1]", "[1e400, 1]"), "must be a number"),
    ):
        file.write_text(text)
        done = fugu("plan", "network", file)
        assert reason in done.refusal()
