"""Plans from a recording and a question: what is recommended is worth it and holds, and a plain no is one."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.attackers.evaluation import Attack
from fugu.chains.model import simulate
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.library.auto_words import candidate_document, percent, verdict
from fugu.planning.answers import noisy_shares, true_shares
from fugu.planning.auto import AutoPlan, auto_policy, least_epsilon, plan_auto, scarce_answer
from fugu.planning.candidates import LEAST_JUDGED, assess_now
from fugu.planning.errors import PlanningError
from fugu.planning.question import Cut, Question
from fugu.planning.true_class import strongest_attack
from fugu.privacy.randomised_response import calibrate
from fugu.recordings.readings import Readings, read_readings
from fugu_cli.demo.evaluation import RECORDINGS

pytestmark = pytest.mark.usefixtures("planned_once")

DATA = Path(__file__).parents[1] / "data"
OTHERS = ["pir_room_S6", "occupancy_office"]


def simulated(seed: int, ticks: int = 9_000, q: float = 0.2, r: float = 0.3, slow: float = 0.0) -> Readings:
    """On and off by a chain; with `slow` its states become so much stickier for long stretches."""
    rng = np.random.default_rng(seed)
    parts = []
    for part in range(ticks // 500):
        low = 1.0 - slow * (part // 3 % 2)
        chain = np.array([[1.0 - q * low, q * low], [r * low, 1.0 - r * low]])
        parts.append(simulate(500, np.array([0.5, 0.5]), chain, np.eye(2), rng)[0])
    values = np.concatenate(parts).astype(np.float64)
    segments = np.zeros(len(values), dtype=np.int64)
    return Readings(values, segments, 60.0, True, False, "on/off", "value", "simulated.csv", 0.0, ())


def levels(seed: int, ticks: int = 9_000) -> Readings:
    """A slow random level with noise, above and below its running mean."""
    rng = np.random.default_rng(seed)
    slow = np.cumsum(rng.normal(0.0, 0.4, ticks))
    fast = np.zeros(ticks)
    for tick, shock in enumerate(rng.normal(0.0, 1.0, ticks - 1), start=1):
        fast[tick] = 0.6 * fast[tick - 1] + shock
    values = 60.0 + 0.3 * slow + 3.0 * fast
    return simulated(seed)._replace(values=values, segments=np.zeros(ticks, dtype=np.int64), kind="numbers")


def planned(readings: Readings, seed: int = 1, **question: Any) -> AutoPlan:
    return plan_auto(readings, Question(**question), np.random.default_rng(seed))


def check(plan: AutoPlan) -> None:
    """A recommendation is worth it and holds, and its policy passes a device's check; or there is none, and why."""
    recommended = plan.recommended
    if recommended.kind == "none":
        assert recommended.attack is None
        assert recommended.scale is None
        assert plan.reasons or not any(
            2.0 * other.expected_error <= other.guess_error and other.expected_error <= (plan.question.within or 1.0)
            for other in plan.candidates
            if other.judged >= 4 and other.devices == plan.question.devices
        )
        return
    assert 2.0 * recommended.expected_error <= recommended.guess_error
    assert recommended.held_back_error <= recommended.error_95
    assert recommended.attack.low <= recommended.attack.success <= recommended.attack.high <= recommended.attack.ceiling
    policy = auto_policy(plan)
    assert policy.verify(recommended.epsilon).epsilon <= recommended.epsilon
    assert policy.guarantee.adversary == recommended.adversary
    if recommended.kind == "windows":
        [window] = policy.windows
        assert (Fraction(window.scale), window.length) == (recommended.scale, recommended.window_ticks)
        assert policy.table is None


@pytest.fixture(scope="module")
def chain_plan() -> AutoPlan:
    return planned(simulated(1))


@pytest.mark.long
def test_a_true_chain_gets_windows_that_are_worth_it(chain_plan: AutoPlan) -> None:
    check(chain_plan)
    recommended = chain_plan.recommended
    assert (recommended.kind, recommended.answers, recommended.every, recommended.devices) == ("windows", "share", 1, 1)
    assert recommended.expected_error <= 0.05
    assert isinstance(recommended.chains, BinaryChains | BoundedChains)
    assert replace(recommended, expected_error=recommended.guess_error).useful_for is None
    assert auto_policy(chain_plan).useful_for == "share"


@pytest.mark.long
def test_a_plan_of_some_readings_says_that_a_tick_is_one_of_them(chain_plan: AutoPlan) -> None:
    fifth = next(
        candidate for candidate in chain_plan.candidates if (candidate.kind, candidate.every) == ("symbols", 5)
    )
    for recommended, is_symbols in ((fifth, True), (chain_plan.recommended, False)):
        words = " ".join(verdict(chain_plan._replace(recommended=recommended)))
        assert ("One reading every 5 min is taken." in words) is is_symbols


@pytest.mark.long
def test_every_kind_is_compared_at_the_same_epsilon(chain_plan: AutoPlan) -> None:
    kinds = {(candidate.kind, candidate.every) for candidate in chain_plan.candidates}
    assert {("windows", 1), ("symbols", 1), ("symbols", 5)} <= kinds
    assert {candidate.epsilon for candidate in chain_plan.candidates} == {1.0}
    assert sum(candidate == chain_plan.recommended for candidate in chain_plan.candidates) == 1
    windows = sorted(
        (candidate for candidate in chain_plan.candidates if candidate.kind == "windows"),
        key=lambda candidate: candidate.window_ticks or 0,
    )
    assert len(windows) >= 4
    assert len({window.scale for window in windows}) == 1, (
        "the noise of tumbling windows does not depend on their length"
    )
    errors = [window.expected_error for window in windows]
    assert errors == sorted(errors, reverse=True)
    for window in windows:
        assert window.latency_seconds == 60.0 * (window.window_ticks or 0)
        assert (window.messages_per_day or 0.0) * (window.latency_seconds or 0.0) == pytest.approx(86_400.0)


@pytest.mark.long
def test_nothing_useful_at_an_epsilon_is_not_contradicted_by_a_curve_at_it(chain_plan: AutoPlan) -> None:
    """A curve is drawn with other noise, and falls on the other side of a tie."""
    assert dict(chain_plan.curves[-1].points).keys() >= {1.0, 1.5}
    assert least_epsilon(chain_plan.curves, chain_plan.question) == 1.5
    assert least_epsilon(chain_plan.curves, replace(chain_plan.question, epsilon=1.5)) == 2.0
    assert chain_plan.least_epsilon == 1.0, "where something is recommended"


@pytest.mark.long
def test_a_symbol_stream_that_is_useful_is_not_called_useless(chain_plan: AutoPlan) -> None:
    def verdict_at(error: float) -> str:
        ones = (
            replace(candidate, expected_error=error, guess_error=0.05, judged=9) for candidate in chain_plan.candidates
        )
        some = tuple(candidate for candidate in ones if candidate.kind == "symbols")
        return " ".join(verdict(chain_plan._replace(candidates=some)))

    assert "The best symbol stream is useful too, over " in verdict_at(0.011)
    assert ": off by 1.1 points on average; guessing is off by 5." in verdict_at(0.011)
    assert "No symbol stream" not in verdict_at(0.011)
    assert "No symbol stream is useful at epsilon 1: the best is off by 2.6 points" in verdict_at(0.026)


@pytest.mark.long
def test_the_state_now_is_not_useful_at_epsilon_1_and_the_plan_says_what_would_be() -> None:
    plan = planned(simulated(2, 6_000), want="now")
    assert plan.candidates
    assert {candidate.answers for candidate in plan.candidates} == {"now"}
    assert all(2.0 * candidate.expected_error > candidate.guess_error for candidate in plan.candidates)
    assert plan.recommended.kind == "none"
    words = " ".join(verdict(plan))
    best = min(plan.candidates, key=lambda candidate: candidate.expected_error / candidate.guess_error)
    majority = 1.0 - best.guess_error
    assert f"naming the likelier state is right {percent(majority)} of the time" in words
    assert "At epsilon 1 nobody can be right more often than 73 %" in words
    assert f"at which an answer may be useful is {plan.least_epsilon:g}: a randomised symbol" in words


@pytest.mark.long
def test_the_state_now_is_told_by_symbols_at_an_epsilon_that_allows_it() -> None:
    plan = planned(simulated(3, 6_000, q=0.45, r=0.45), want="now", epsilon=3.0, within=0.2)
    check(plan)
    assert (plan.recommended.kind, plan.recommended.window_ticks) == ("symbols", None)
    assert plan.recommended.expected_error < 0.2
    policy = auto_policy(plan)
    assert policy.table is not None
    assert policy.useful_for == "state"


@pytest.mark.long
def test_a_group_is_off_by_less_than_its_devices() -> None:
    plan = planned(simulated(4, 6_000), devices=25)
    check(plan)
    assert auto_policy(plan).useful_for is None, "their average is useful, none of them alone is"
    alone = {
        candidate.window_ticks: candidate
        for candidate in plan.candidates
        if candidate.kind == "windows" and candidate.devices == 1
    }
    group = {candidate.window_ticks: candidate for candidate in plan.candidates if candidate.devices == 25}
    assert alone.keys() == group.keys()
    for length, candidate in group.items():
        assert candidate.expected_error < alone[length].expected_error
        assert candidate.messages_per_day == pytest.approx(25 * (alone[length].messages_per_day or 0.0))


@pytest.mark.long
def test_a_histogram_counts_every_state() -> None:
    rng = np.random.default_rng(5)
    rooms = ["bath", "hall", "kitchen"]
    weights = [np.roll([0.5, 0.3, 0.2], part % 3) for part in range(6_000 // 300)]
    names = np.array([name for some in weights for name in rng.choice(rooms, 300, p=some)], dtype=object)
    plan = planned(simulated(5, 6_000)._replace(values=names, kind="names"), epsilon=3.0)
    check(plan)
    assert plan.recommended.answers == "histogram"
    assert auto_policy(plan).windows[0].states == "histogram"


@pytest.mark.long
def test_latency_limits_what_is_compared(chain_plan: AutoPlan) -> None:
    plan = planned(simulated(1), latency_seconds=2_000.0)
    assert max(candidate.window_ticks or 0 for candidate in plan.candidates) == 33
    assert max(candidate.window_ticks or 0 for candidate in chain_plan.candidates) > 33


def test_a_latency_that_no_window_meets_is_told() -> None:
    plan = planned(simulated(1), latency_seconds=60.0)
    assert (plan.recommended.kind, plan.candidates, plan.least_epsilon) == ("none", (), None)
    assert plan.reasons == ("no window of 10 ticks or more is known within the latency that is asked for",)


@pytest.mark.long
def test_an_attacker_who_gained_nothing_on_few_blocks_is_not_the_strongest(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval up to 1 that only says how little was judged is not printed as what was reached."""
    common = {"ceiling": 0.77, "guess": 0.77, "epsilon_low": 0.0}
    idle = Attack("single window", success=0.77, low=0.77, high=0.77, **common)
    unsure = Attack("supervised", success=0.66, low=0.23, high=1.0, **common)
    calls = []

    def attacked(states: np.ndarray, *_: object, attackers: dict[str, object] | None = None) -> tuple[Attack, ...]:
        calls.append((len(states), set(attackers or ())))
        learned = replace(unsure, furthest=3.0 + len(calls) % 5)
        return (idle, unsure) if attackers is None else (idle, learned)

    monkeypatch.setattr("fugu.planning.auto.attack", attacked)
    plan = planned(simulated(1, 6_000))
    assert plan.recommended.attack == idle
    assert calls[-1] == (6_000, {"learned levels", "2 learned regimes", "supervised"}), "all of it, by all who learn"
    ways = [learned.furthest for learned in plan.recommended.learners]
    assert (len(ways), set(ways)) == (6, {3.0, 4.0, 5.0, 6.0, 7.0}), "each draw has its own"
    assert plan.recommended.learner.furthest == 7.0


def test_the_strongest_attacker_is_right_most_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may decide about the class, since he may be farther beyond his ceiling."""
    common = {"ceiling": 0.8, "epsilon_low": 0.0, "beyond": 0.0, "furthest": 1.5}
    best = Attack("forward-backward", success=0.7, low=0.69, high=0.71, guess=0.6, **common)
    unsure = Attack("learned levels", success=0.62, low=0.5, high=0.79, guess=0.6, **common)
    monkeypatch.setattr("fugu.planning.auto.attack", lambda *_, **__: (best, unsure))
    assert strongest_attack((best, unsure)) is unsure
    plan = planned(simulated(1, 6_000))
    assert plan.recommended.attack is best
    [sentence] = [sentence for sentence in verdict(plan) if "the strongest attacker" in sentence]
    assert "(forward-backward) guessed 70.0% right (69.0% to 71.0%) with the release and 60.0% without" in sentence


@pytest.mark.long
def test_too_few_answers_are_no_verdict_on_every_epsilon(chain_plan: AutoPlan) -> None:
    few = [curve._replace(candidate=replace(curve.candidate, judged=3)) for curve in chain_plan.curves]
    assert least_epsilon(few, chain_plan.question) is None
    too_small = scarce_answer(few, chain_plan.question)
    assert too_small[1] == chain_plan.question.epsilon
    enough = [curve for curve in chain_plan.curves if curve.candidate.judged >= LEAST_JUDGED]
    assert enough
    assert scarce_answer(enough, chain_plan.question) is None
    none = replace(chain_plan.recommended, kind="none")
    refused = chain_plan._replace(recommended=none, least_epsilon=None, scarce_answer=too_small)
    words = " ".join(verdict(refused))
    assert "The recording is too short to tell. By its 3 answers, the share of 'on' over " in words
    assert f"may be useful at epsilon {too_small[1]:g}. A verdict needs 4 answers." in words
    assert "Nothing useful up to epsilon" not in words
    assert "Nothing useful up to epsilon 20." in " ".join(verdict(refused._replace(scarce_answer=None)))


@pytest.mark.long
def test_a_plan_says_how_far_odds_move_of_who_knows_the_habits_and_of_who_learns_them(chain_plan: AutoPlan) -> None:
    chosen = (plan := chain_plan).recommended
    assert 1.0 < chosen.known_chain.furthest < math.exp(chosen.epsilon)
    [sentence] = [sentence for sentence in verdict(plan) if "already knows the habits" in sentence]
    assert f"by a factor of at most {chosen.known_chain.furthest:.2g}." in sentence
    assert sentence.endswith(f"Epsilon {chosen.epsilon:g} allows 2.7.") is (chosen.learner is None)
    least = replace(chosen.known_chain, attacker="learned levels", furthest=3.0, beyond=0.125)
    learned = (replace(least, attacker="supervised", furthest=9.0, beyond=0.0), least, replace(least, furthest=4.0))
    sentences = verdict(plan._replace(recommended=replace(chosen, learners=learned)))
    habits = (
        "Habits are not protected. For an attacker who learns them from the whole recording (supervised) the largest "
        "factor is 3 to 9, in 3 draws of the noise. The factor is above 2.7 for 0.0% to 12.5% of ticks."
    )
    assert any(habits in sentence for sentence in sentences)
    sentences = verdict(plan._replace(recommended=replace(chosen, learners=(least, least))))
    assert any(
        "factor is 3, in 2 draws of the noise. The factor is above 2.7 for 12.5% of ticks" in sentence
        for sentence in sentences
    )
    assert candidate_document(chosen)["known_chain"]["furthest"] == chosen.known_chain.furthest


def test_a_guess_of_the_state_now_is_never_worse_than_one_of_two() -> None:
    """Rates that drift turn the usual state of the first set into the unusual one: that makes no symbols useful."""
    fit, judged = (Cut(np.repeat(states, [600, 400]), np.zeros(1_000, dtype=np.int64)) for states in ([0, 1], [1, 0]))
    table = calibrate(BinaryChains(q=(0.1, 0.3), r=(0.1, 0.3)), 1.0, "universal").table
    assert assess_now(table, fit, judged, 500, np.random.default_rng(1)).guess_error == pytest.approx(0.4)


@pytest.mark.long
def test_a_wish_that_cannot_be_met_is_a_plain_no() -> None:
    plan = planned(simulated(1, 6_000), within=0.0001)
    assert plan.recommended.kind == "none"
    check(plan)
    assert plan.least_epsilon is None or plan.least_epsilon > 1.0


def test_a_state_that_never_changes_says_so() -> None:
    with pytest.raises(PlanningError, match="never changes in the first set"):
        planned(levels(1), threshold=1e9)


@pytest.mark.long
def test_slow_regimes_are_covered(chain_plan: AutoPlan) -> None:
    """A class for the average would let attackers in; the one that is declared needs more noise."""
    plan = planned(simulated(1, slow=0.8))
    check(plan)
    scales = [
        next(candidate.scale for candidate in each.candidates if candidate.kind == "windows")
        for each in (chain_plan, plan)
    ]
    assert scales[1] > 2 * scales[0]


def covered(seed: int) -> tuple[bool, bool] | None:
    """True if a plan's bound covers its held-back error, and an answer of a fresh device; none without a plan."""
    plan = planned(simulated(seed, q=0.15 + 0.1 * (seed % 3), r=0.2 + 0.1 * (seed % 2)), seed)
    recommended = plan.recommended
    if recommended.kind == "none":
        return None
    assert recommended.held_back_error is not None
    assert recommended.scale is not None
    assert recommended.window_ticks is not None
    fresh = simulated(seed + 10_000, 1_000, q=0.15 + 0.1 * (seed % 3), r=0.2 + 0.1 * (seed % 2))
    shares = true_shares(np.asarray(fresh.values, dtype=np.int64), fresh.segments, recommended.window_ticks, plan.bins)
    noisy = noisy_shares(shares, recommended.scale, 1, np.random.default_rng(seed), 1)[0]
    return recommended.held_back_error <= recommended.error_95, bool(
        abs(noisy - shares.truth)[0, 0] <= recommended.error_95
    )


def check_coverage(seeds: range, least: float) -> None:
    classes = [chains for seed in seeds if (chains := covered(seed)) is not None]
    assert len(classes) >= 0.8 * len(seeds)
    for each in zip(*classes, strict=True):
        assert sum(each) >= least * len(classes)


@pytest.mark.long
def test_the_bound_covers_in_a_simulated_recording() -> None:
    check_coverage(range(1), 1.0)


@pytest.mark.soak
def test_the_bound_covers_in_twelve_simulated_recordings() -> None:
    check_coverage(range(12), 0.9)


@pytest.mark.long
def test_a_share_of_some_minutes_of_heartbeats_is_within_5_percent() -> None:
    plan = planned(read_readings(RECORDINGS / "hr_sleep_N05.csv.gz"), baseline=300, within=0.05)
    check(plan)
    recommended = plan.recommended
    assert recommended.kind == "windows"
    assert (recommended.window_ticks or 0) <= 300
    assert recommended.expected_error <= 0.05
    assert recommended.held_back_error <= 0.05


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_other_recordings_get_a_plan_that_holds_or_a_plain_no(name: str) -> None:
    plan = planned(read_readings(DATA / f"{name}.csv.gz"))
    check(plan)
    if name == "occupancy_office":
        assert plan.recommended.kind == "none"
        day = next(candidate for candidate in plan.candidates if candidate.window_ticks == 1_440)
        assert 0.2 < day.expected_error < 0.31
        assert day.expected_error == min(candidate.expected_error for candidate in plan.candidates)
    if name == "pir_room_S6":
        assert any(sentence.startswith("Over a day the noise alone is off by 3.1 points") for sentence in verdict(plan))
