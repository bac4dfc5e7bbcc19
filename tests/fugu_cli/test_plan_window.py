"""`fugu plan window`: scales, the comparison, chain files, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, odds_ratio
from fugu.contract.discretisers import Thresholds
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window, policy_scale
from fugu.privacy.chain_model import ChainModel
from fugu_cli.demo.evaluation import RECORDINGS
from tests.support.brokers import PATIENCE
from tests.support.command import Fugu

TWO = {
    "chains": [
        {"transition": [[0.9, 0.1], [0.4, 0.6]], "initial": [1, 0]},
        {"transition": [[0.8, 0.2], [0.3, 0.7]], "initial": [0.9, 0.1]},
    ]
}


@pytest.fixture
def two_chains(tmp_path: Path) -> Path:
    file = tmp_path / "chains.json"
    file.write_text(json.dumps(TWO))
    return file


@pytest.mark.long
@pytest.mark.parametrize(
    ("mechanism", "more", "scale"),
    [
        ("chain", (), 3.336408922083244),
        ("auto", (), 3.336408922083244),
        ("mqm-exact", (), 12.839964231247),
        ("mqm-approx", ("--length", 100), 23.505955223167),
        ("group", ("--length", 100), 100.0),
        ("entry", (), 1.0),
        ("chain", ("--query", "histogram"), 6.672817844166488),
    ],
)
def test_scales(fugu: Fugu, mechanism: str, more: tuple[object, ...], scale: float) -> None:
    words = ("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--mechanism", mechanism, *more)
    document, shown = fugu(*words, "--json").json(), fugu(*words).out
    assert float(Fraction(document["scale"])) == pytest.approx(scale, rel=2e-7)
    assert Fraction(document["scale"]) >= scale * (1 - 1e-12)
    assert document["scale"] in shown
    assert (document["epsilon"], document["adversary"]) == (1.0, "ignorant")
    assert document["mechanism"] == ("chain" if mechanism == "auto" else mechanism)
    assert f"{scale:.6g}" in shown


def test_a_count_of_named_states_has_the_noise_that_it_needs(fugu: Fugu, tmp_path: Path) -> None:
    """States 0 and 2 stick; state 1 is drawn anew at every tick."""
    file = tmp_path / "chain.json"
    rows = [[0.94, 0.05, 0.01], [0.475, 0.05, 0.475], [0.01, 0.05, 0.94]]
    file.write_text(json.dumps({"transition": rows, "initial": "stationary"}))
    words = ("plan", "window", "--model", file, "--epsilon", 1, "--length", 6, "--mechanism", "wasserstein")
    needed = {named: fugu(*words, "--count", named, "--json").json() for named in ("1", "0", "0, 2")}
    assert [round(float(Fraction(noise["scale"])), 6) for noise in needed.values()] == [1.0, 6.0, 1.0]
    assert "a count of states 0, 2:" in needed["0, 2"]["reason"]
    assert "the worst set" in fugu(*words, "--json").json()["reason"]
    for named, reason in (
        ("0,1,2", "a count of states 0, 1, 2 tells nothing of any tick: it needs no noise"),
        ("3", "states to count are some of 0 to 2, got [3]"),
        ("-1", "states are numbers from 0 on, with commas between them, got '-1'"),
    ):
        done = fugu(*words, "--count", named)
        assert done.code != 0
        assert done.err == f"fugu: {reason}\n"
    assert fugu("plan", "window", "--model", file, "--epsilon", 1, "--count", "3").code == 1
    assert fugu(*words, "--query", "histogram", "--count", "0").code == 2


def test_a_class_of_two_chains(fugu: Fugu, two_chains: Path) -> None:
    words = ("plan", "window", "--model", two_chains, "--epsilon", 1, "--length", 100)
    document = fugu(*words, "--json").json()
    scales = {entry["mechanism"]: float(Fraction(entry["scale"])) for entry in document["mechanisms"]}
    assert scales["mqm-exact"] == pytest.approx(13.021923496180, rel=2e-7)
    assert scales["wasserstein"] == pytest.approx(4.0, rel=2e-7)
    assert scales["chain"] == pytest.approx(3.336408922012534, rel=2e-7)
    assert document["mechanism"] == "chain"
    table = fugu(*words[:-1], 20).out
    assert all(name in table for name in ("chain (least)", "mqm-exact", "wasserstein", "group", "entry"))
    assert "does not protect" in table


@pytest.mark.long
def test_a_fitted_chain_is_its_class_in_both_plans_and_a_bare_one_itself(fugu: Fugu, tmp_path: Path) -> None:
    """One rule: a file of a fit stands for what covers its recording, a bare chain for that chain; both say so."""
    data = RECORDINGS / "hr_sleep_N10.csv.gz"
    fitted, bare = tmp_path / "fitted.json", tmp_path / "bare.json"
    assert fugu("plan", "model", data, "--column", "state", "-o", fitted).code == 0
    bare.write_text(json.dumps({"transition": ChainModel.from_json(fitted.read_text()).transition.tolist()}))
    window = ("plan", "window", "--epsilon", 1, "--mechanism", "chain", "--model")
    stream = ("plan", "stream", "--epsilon", 1, "--adversary", "ignorant", "--model")
    wide, narrow = fugu(*window, fitted, "--json").json(), fugu(*window, bare, "--json").json()
    assert wide["chains"] == fugu(*stream, fitted, "--json").json()["chains"]
    assert narrow["chains"] == fugu(*stream, bare, "--json").json()["chains"]
    assert wide["chains"]["kind"] == "bounded", "the chain changes over the night"
    assert narrow["chains"]["q"][0] == narrow["chains"]["q"][1]
    assert 5 < Fraction(narrow["scale"]) < 15 < Fraction(wide["scale"]) < 150
    for words in (window, stream):
        assert "it covers 98.1 % of the stretches of 500 to 2000 ticks" in " ".join(fugu(*words, fitted).out.split())
        assert "taken as it is" in " ".join(fugu(*words, bare).out.split())
    assert "leaks" in fugu(*window, fitted).err


ADVERSARIES = ("ignorant", "informed", "universal")


def accepts(chains: ChainClass, scale: str, epsilon: float, adversary: Any, states: Any) -> bool:
    """True if a device takes a policy with such a window, whose symbols say nothing."""
    count = chains.states
    promise = Guarantee(epsilon=epsilon, adversary=adversary)
    policy = Policy(
        **{"fleet": "home", "device": "watch", "stream": "hr", "version": 1, "frame_ticks": 10},
        clock=Clock(epoch_us=0, period_us=1_000_000),
        discretiser=Thresholds(edges=tuple(range(count - 1)), states=tuple(f"s{x}" for x in range(count))),
        table=NoiseTable(rows=((1 << 31,),) * count),
        chains=chains,
        guarantee=promise,
        windows=(Window(name="w", length=60, stride=60, states=states, scale=scale),),
        windows_guarantee=promise,
    )
    try:
        policy.verify(epsilon)
    except GuaranteeError:
        return False
    return True


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("seed", range(6))  # two of each kind of chain, one for each query
def test_a_printed_scale_is_accepted_by_a_device_and_hardly_less_is(fugu: Fugu, seed: int, adversary: str) -> None:
    """Copied by hand into a policy, whatever the chain, from scales below 1 to large ones."""
    generator = np.random.default_rng(seed)
    q, r = (f"{p:.6g}" for p in generator.uniform(0.01, 0.99 if seed % 3 == 0 else 0.5, 2))
    epsilon = float(f"{generator.choice([0.05, 0.3, 1.0, 4.0]) * generator.uniform(0.5, 2.0):.4g}")
    query = ("count", "histogram")[seed % 2]
    words = ("plan", "window", "--q", q, "--r", r, "--epsilon", epsilon, "--query", query, "--adversary", adversary)
    done = fugu(*words, "--json")
    assert done.code == 0, done.err
    document = done.json()
    chains = BinaryChains(q=(float(q), float(q)), r=(float(r), float(r)))
    assert document["chains"] == chains.model_dump(mode="json")
    states = "histogram" if query == "histogram" else (1,)
    shown = next(line for line in fugu(*words).out.splitlines() if line.strip().startswith("chain (least)"))
    assert document["scale"] in shown.split()
    for each in document["mechanisms"]:
        if each["chains"] is not None:
            assert accepts(chains, each["scale"], epsilon, adversary, states), each["mechanism"]
    less = Fraction(document["scale"]) * (1 - Fraction(1, 10**6))
    assert not accepts(chains, str(policy_scale(less)), epsilon, adversary, states)
    single = document["stretches"][0]
    assert single["ticks"] == 1
    assert single["epsilon"] <= epsilon


@pytest.mark.long
def test_windows_of_a_policy_are_planned_for_the_odds_ratios_of_a_chain(fugu: Fugu, tmp_path: Path) -> None:
    """Against every adversary as much noise, and it is printed what the chain itself would lose with it."""
    file, output = tmp_path / "chain.json", tmp_path / "policy.json"
    rows = ((0.8, 0.15, 0.05), (0.1, 0.7, 0.2), (0.05, 0.25, 0.7))
    file.write_text(json.dumps({"transition": rows}))
    header = ("--for", "home/d/s", "--period", 1, "--threshold", "1,2", "-o", output)
    words = ("plan", "window", "--model", file, "--epsilon", 1, "--window", 60, "--query", "histogram", *header)
    scales = set()
    for adversary in ADVERSARIES:
        done = fugu(*words, "--adversary", adversary)
        assert "a device takes no chain as it is: noise for epsilon 1" in " ".join(done.out.split())
        policy = Policy.from_json(output.read_bytes())
        assert policy.chains == BoundedChains(states=3, odds_ratio=odds_ratio(rows), transition=rows)
        assert policy.verify(1.0).epsilon <= 1.0
        scales.add(policy.windows[0].scale)
    assert len(scales) == 1


def test_a_start_that_no_policy_declares_is_said_to_be_none(fugu: Fugu, two_chains: Path) -> None:
    words = ("plan", "window", "--model", two_chains, "--epsilon", 1, "--mechanism", "chain")
    assert fugu(*words, "--json").json()["chains"] is None
    assert "No policy can declare these chains" in " ".join(fugu(*words).out.split())


def test_lawful_scales_are_close_from_above() -> None:
    for least in np.exp(np.random.default_rng(3).uniform(-18, 22.9, 500)).tolist():
        fraction = policy_scale(least)
        assert Fraction(least) <= fraction <= Fraction(least) * (1 + Fraction(1, 10**6))
        Window(name="w", length=1, stride=1, states=(1,), scale=str(fraction))
    with pytest.raises(GuaranteeError, match="more than a policy can hold"):
        policy_scale(1e10)


def test_the_stretches_of_a_plan_follow_the_period(fugu: Fugu) -> None:
    words = ("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--mechanism", "chain")
    document = fugu(*words, "--period", 60, "--json").json()
    assert [each["ticks"] for each in document["stretches"]] == [1, 11, 61, 481, 854]
    rate = 1 / Fraction(document["scale"])
    assert document["stretches"][2]["epsilon"] == pytest.approx(1 + 60 * float(rate), rel=1e-6)
    assert [(each["epsilon"] or 99.0) <= 6.0 for each in document["stretches"]] == [True, True, False, False, False]
    assert "not protected" in fugu(*words, "--period", 60).out
    ended = fugu(*words, "--length", 6, "--json").json()
    assert [each["ticks"] for each in ended["stretches"]] == [1, 6, 6, 6]
    assert ended["stretches"][0]["epsilon"] <= 1.0
    assert document["error"].keys() == {"count_mean", "count_95"}
    assert ended["error"]["share_mean"] == ended["error"]["count_mean"] / 6
    assert "a number is off by" in fugu(*words, "--length", 6).out


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--q", 0.1), 2, "give --q and --r, or --model"),
        (("--q", 0.1, "--r", 0.4, "--mechanism", "magic"), 2, "mechanism must be one of chain"),
        (("--q", 0.1, "--r", 0.4, "--query", "mean"), 2, "query must be one of count, histogram"),
        (("--q", 0.1, "--r", 0.4, "--mechanism", "group"), 1, "needs a length"),
        (("--q", 0.1, "--r", 0.4, "--mechanism", "mqm-exact", "--adversary", "informed"), 1, "ignorant adversary only"),
    ],
)
def test_refusals(fugu: Fugu, words: tuple[object, ...], code: int, reason: str) -> None:
    done = fugu("plan", "window", "--epsilon", 1, *words)
    assert reason in done.refusal(code)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "must be JSON"),
        ("[]", "needs"),
        ('{"chains": []}', "needs"),
        ('{"transition": [[0.5, 0.5], [0.5, 0.4]]}', "sum to 1"),
        ('{"transition": [[0.5, 0.5]]}', "square"),
        ('{"transition": [[1.5, -0.5], [0, 1]]}', "probabilities"),
        ('{"transition": [["a", 1], [0, 1]]}', "numbers"),
        ('{"transition": [[0.5, 0.5], [0.5, 0.5]], "initial": "soon"}', "stationary"),
        ('{"transition": [[1, 0], [0, 1]]}', "stationary"),
    ],
)
def test_broken_chain_files(fugu: Fugu, tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "chain.json"
    file.write_text(text)
    done = fugu("plan", "window", "--model", file, "--epsilon", 1)
    assert str(file) in done.refusal()
    assert reason in done.err


def test_at_a_terminal_work_that_takes_long_shows_that_it_goes_on() -> None:
    """Stderr is a terminal of its own, so that what is printed on stdout can be read by a program all the same."""
    master, slave = os.openpty()
    words = ("plan", "window", "--q", "0.1", "--r", "0.4", "--epsilon", "1", "--json")
    shown = b""
    command, terminal = [sys.executable, "-m", "fugu", *words], os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=terminal) as child:
        os.close(slave)
        with suppress(OSError):  # the end of what a terminal that was closed has got
            while part := os.read(master, 4096):
                shown += part
        document = json.loads(child.communicate(timeout=PATIENCE)[0])
    os.close(master)
    assert (child.returncode, document["mechanism"]) == (0, "chain")
    assert b"planning windows" in shown
    assert b"0:00:0" in shown


@pytest.mark.parametrize(("states", "is_long"), [(3, True), (2, False)])
def test_known_chains_of_many_states_say_that_they_take_long(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: int, is_long: bool
) -> None:
    monkeypatch.setattr("fugu_cli.commands.plan_work._SLOW_STATES", 3)
    file = tmp_path / "chain.json"
    uniform = [[1.0 / states] * states] * states
    file.write_text(json.dumps({"transition": uniform, "initial": "stationary"}))
    done = fugu("plan", "window", "--model", file, "--epsilon", 1, "--adversary", "informed", "--mechanism", "chain")
    assert done.code == 0
    assert ("can take minutes" in done.err) == is_long


PAIR = ("plan", "window", "--epsilon", 1, "--q", 0.1, "--r", 0.4)
NAMES = ("--for", "home/watch/hr", "--threshold", 61.5)


def test_a_policy_of_windows_says_how_far_off_an_answer_is(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    words = (*PAIR, "--period", 1, "--adversary", "universal", "--window", "5m", "--window", "day=24h:.2")
    done = fugu(*words, *NAMES, "-o", file)
    assert done.code == 0
    assert "The share over 5 minutes is off by at most " in done.out
    assert "The share over 1 day is off by at most " in done.out
    document = fugu(*words, "--json").json()
    policy = Policy.from_json(file.read_text())
    assert policy.table is None
    assert [(w.name, w.length, w.stride, w.scale) for w in policy.windows] == [
        (w["name"], w["length"], w["stride"], w["scale"]) for w in document["windows"]
    ]
    assert [w.length for w in policy.windows] == [300, 86_400]
    assert 0.9989 < policy.verify(1.0).epsilon <= 1.0
    five = document["windows"][0]
    assert five["seconds"] == 300
    assert five["error"]["share_mean"] < five["error"]["share_95"] < 0.05
    checked = fugu("check", "policy", file)
    assert "the guarantee holds" in checked.out
    assert checked.out.count("claimed") == 1
    shown = fugu("check", "policy", file, "--json").json()
    assert shown["weights"] is None
    assert shown["windows"]["errors"]["5m"] == five["error"]
    assert shown["windows"].keys() == {"rates", "errors", "mechanisms"}


@pytest.mark.parametrize(("mechanism", "scale"), [("mqm-exact", 12.8399643), ("mqm-approx", 23.5059553)])
def test_a_window_names_the_mechanism_that_planned_it(fugu: Fugu, tmp_path: Path, mechanism: str, scale: float) -> None:
    file = tmp_path / "policy.json"
    words = (*PAIR, "--period", 1, "--adversary", "ignorant", "--window", "5m", "--mechanism", mechanism)
    done = fugu(*words, *NAMES, "-o", file)
    reason = "which is for single ticks. The chain accountant, and so the device, computes epsilon 0."
    assert f"Planned by {mechanism}, {reason}" in done.out
    policy = Policy.from_json(file.read_text())
    assert [window.mechanism for window in policy.windows] == [mechanism]
    assert float(Fraction(policy.windows[0].scale)) == pytest.approx(scale, rel=1e-7)
    assert policy.verify(1.0).epsilon < 0.3, "the device's own check"
    assert f"by {mechanism}, adds" in fugu("check", "policy", file).out
    assert fugu("check", "policy", file, "--json").json()["windows"]["mechanisms"] == {"5m": mechanism}


def test_windows_and_symbols_share_one_epsilon(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    words = (*PAIR, "--period", 300, "--window", 12, "--query", "histogram", "--symbols", 0.5, "--protect", "tick")
    assert fugu(*words, *NAMES, "-o", file).code == 0
    policy = Policy.from_json(file.read_text())
    assert policy.table is not None
    assert 0.9989 < policy.verify(1.0).epsilon <= 1.0
    assert policy.guarantee == Guarantee(epsilon=1.0, adversary="informed")
    assert policy.frame_ticks == 1, "ticks of five minutes wait for no others"
    later = fugu(*words, *NAMES, "--latency", 3600, "-o", file)
    assert (later.code, Policy.from_json(file.read_text()).frame_ticks) == (0, 12)


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--window", "5m"), 2, "give --period"),
        (("--window", "soon"), 2, "window: 'soon' is no length of time"),
        (("--window", "0.5"), 1, "0.5 ticks"),
        (("--window", "1e300"), 2, "window: '1e300' is no length of time"),
        (("--window", "-5"), 2, "window: '-5' is no length of time"),
        (("--window", "a b=5"), 2, "needs a name"),
        (("--window", "5", "--window", "5:.5"), 1, "two windows have the same name"),
        (("--window", "5", "--window", "half=5:.5"), 0, ""),
        (("--window", "5:2"), 1, "not more than 1 in all"),
        (("--window", "5", "--symbols", "1"), 1, "between 0 and 1"),
        (("--window", "5", "--length", "5"), 2, "without --length"),
        (
            ("--window", "5", "--query", "mean"),
            2,
            "query must be one of count, histogram, profile:TIME/ZONE, got 'mean'",
        ),
        (("--window", "5", "--query", "histogram", "--count", "1"), 2, "--count is for counts"),
        (("--window", "5", "--count", "2"), 1, "states to count are some of 0 to 1, got [2]"),
        (("--window", "5", "--mechanism", "mqm-exact"), 1, "mqm-exact protects against the ignorant adversary only"),
        (
            ("--window", "5", "--mechanism", "wasserstein"),
            1,
            "does not compose, and a device releases windows for ever",
        ),
        (("--window", "5", "--mechanism", "group"), 1, "plan them by chain, mqm-exact, mqm-approx"),
        (("--window", "5", "--mechanism", "auto"), 0, ""),
        (
            ("--window", "5", "--mechanism", "mqm-exact", "--adversary", "ignorant", "--symbols", ".2"),
            1,
            "symbols beside windows are planned by the chain accountant",
        ),
        (("-o", "policy.json"), 2, "a policy needs --window"),
        (("--symbols", ".5"), 2, "a policy needs --window"),
        (("--window", "5", "-o", "policy.json"), 2, "a policy needs --for, --period, --threshold"),
    ],
)
def test_windows_of_a_policy_that_are_refused(fugu: Fugu, words: tuple[object, ...], code: int, reason: str) -> None:
    done = fugu(*PAIR, *words)
    assert done.code == code, done.err
    assert reason in done.err
    assert done.err.count("\n") == bool(code)


def test_the_start_is_stated_and_can_be_chosen(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "chain.json"
    file.write_text(json.dumps({"transition": [[0.9, 0.1], [0.4, 0.6]], "initial": [1, 0]}))
    words = ("plan", "window", "--epsilon", 1, "--length", 100, "--model", file)
    for start, expected, scale in (
        (None, "as given", 13.0219235),
        ("any", "any", 13.0219235),
        ("stationary",) * 2 + (12.8399643,),
    ):
        done = fugu(*words, *(("--start", start) if start else ()), "--json").json()
        rows = {row["mechanism"]: row for row in done["mechanisms"]}
        assert rows["mqm-exact"]["start"] == rows["chain"]["start"] == expected
        assert rows["mqm-approx"]["start"] == rows["group"]["start"] == "any"
        assert float(Fraction(rows["mqm-exact"]["scale"])) == pytest.approx(scale, rel=2e-7)
        assert ("wasserstein" in done["refused"]) == (start == "any")
    assert fugu("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--json").json()["start"] == "stationary"
    assert fugu(*words, "--start", "now").code == 2


def test_a_policy_for_any_start_has_a_class_that_the_device_checks_for_any_start(fugu: Fugu, tmp_path: Path) -> None:
    words = ("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--period", 1, "--window", "5m")
    assert fugu(*words, "--json").json()["start"] == "stationary"
    assert "informed adversary, stationary start" in fugu(*words).out
    refused = fugu(*words, "--start", "any", "-o", tmp_path / "policy.json")
    assert refused.code == 1
    assert refused.err.startswith("fugu: a device checks such chains started stationary for the informed adversary: ")
    assert not (tmp_path / "policy.json").exists()
    done = fugu(*words, "--start", "any", "--adversary", "universal", "--json").json()
    assert (done["start"], done["chains"]["kind"]) == ("any", "binary")
    file = tmp_path / "chain.json"
    file.write_text(json.dumps({"transition": [[0.9, 0.1], [0.4, 0.6]], "initial": "any"}))
    words = ("plan", "window", "--model", file, "--epsilon", 1, "--period", 1, "--window", "5m", "--json")
    done = fugu(*words, "--start", "any").json()
    assert (done["start"], done["chains"]["kind"]) == ("any", "bounded")


@pytest.mark.long
def test_what_segments_would_be_worth(fugu: Fugu, tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    rows, state, tick = ["t,value,seg"], 0, 0
    for segment in range(60):
        for _ in range(int(generator.integers(50, 80)) if segment else 80):
            state ^= int(generator.random() < (0.15, 0.25)[state])
            rows.append(f"{tick},{state},{segment}")
            tick += 30
        tick += 3000
    recording, model = tmp_path / "gaps.csv", tmp_path / "chain.json"
    recording.write_text("\n".join(rows) + "\n")
    fitted = fugu("plan", "model", recording, "--column", "value", "-o", model)
    assert fitted.code == 0
    assert "the longest segment without a gap has 80;" in " ".join(fitted.out.split())
    words = ("plan", "window", "--model", model, "--epsilon", 1, "--adversary", "universal", "--mechanism", "chain")
    alone, cut = fugu(*words, "--json").json(), fugu(*words, "--segments", "fitted", "--json").json()
    assert (alone["segments"], cut["segments"], cut["chains"]) == (None, 80, None)
    assert "goes into no policy" in fugu(*words, "--segments", 12).out
    refused = fugu(*words[:-2], "--segments", 12, "--window", "5m")
    assert "a policy cannot hold it" in refused.refusal(2)
    for text in ("0", "1.5", "x"):
        assert fugu(*words, "--segments", text).code == 2
    assert fugu("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--segments", "fitted").code == 2
