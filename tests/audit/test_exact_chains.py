"""The second certificate of known chains and points: enumerated, from both sides of a claim, with bad guesses."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from fugu.audit.exact import NotRecomputed, guesses
from fugu.audit.exact.chains import claims
from fugu.audit.exact.chains.claims import known_loss, recompute, stream_loss
from fugu.audit.exact.numbers import ONE, ceil_of, exp_up, log_up
from fugu.contract.chains import JointChains
from fugu.contract.class_of_chains import Shown
from fugu.contract.leakage import Adversary
from fugu.places.composition import measured_loss, rounded_up
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.policy_builder import build_measure_policy
from tests.support.oracle import enumerated_losses, extreme_chain, symbol_density

ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)
NOTHING = (Fraction(1), Fraction(1))
RATES = {"hr": 0.3, "steps": 0.2}


def joint(seed: int, keep: float, chains: int = 1) -> JointChains:
    generator = np.random.default_rng(seed)
    rows = [keep * np.eye(4) + (1 - keep) * generator.dirichlet(np.ones(4), size=4) for _ in range(chains)]
    return JointChains(
        streams=tuple(Shown(name=name, states=2, rate=rate) for name, rate in RATES.items()),
        period_us=1_000_000,
        shows=((0, 0), (0, 1), (1, 0), (1, 1)),
        transitions=tuple(tuple(tuple(map(float, row)) for row in one) for one in rows),
    )


PAIRS = JointChains(
    streams=(Shown(name="hr", states=2, rate=0.3),),
    period_us=1_000_000,
    shows=((0,), (1,), (0,), (1,)),
    transitions=(((0.7, 0.3, 0.0, 0.0), (0.0, 0.0, 0.4, 0.6), (0.6, 0.4, 0.0, 0.0), (0.0, 0.0, 0.3, 0.7)),),
)
"""Order 2: half of the steps are impossible."""


@pytest.mark.long
def test_joint_chains_are_what_devices_derive_and_a_millionth_less_is_not() -> None:
    chains = PAIRS
    given = json.loads(chains.model_dump_json())
    for adversary in ADVERSARIES:
        first, second = chains.joint_loss(adversary).epsilon, stream_loss(given, NOTHING, adversary)
        assert second <= first
        assert first * (1 - 1e-6) < second


def evidence(chains: JointChains, ticks: int, seed: int) -> float:
    """The most that one draw of symbols, and of evidence on every other tick, tells of a tick, by plain vectors."""
    draw, rows = random.Random(seed), np.array(chains.transitions[0])
    distribution = np.linalg.matrix_power(rows, 500)[0]
    shows, best = chains.shows, 0.0
    for tick in range(ticks):
        weights = []
        for _ in range(ticks):
            one = {name: draw.choice((-1, 1)) * rate / 2 for name, rate in RATES.items()}
            told = [
                math.exp(sum((1 if a else -1) * one[name] for a, name in zip(state, one, strict=True)))
                for state in shows
            ]
            known = [math.exp(draw.choice((0.0, 0.0, 3.0, -3.0, 30.0))) for _ in shows]
            weights.append((np.array(told), np.array(known)))
        sums = []
        for loud in (True, False):
            left, right = distribution.copy(), np.ones(4)
            for told, known in weights[:tick]:
                left = (left * known * (told if loud else 1.0)) @ rows
            for told, known in reversed(weights[tick + 1 :]):
                right = rows @ (right * known * (told if loud else 1.0))
            sums.append(left * right)
        ratio = np.log(sums[0] * weights[tick][0]) - np.log(sums[1])
        best = max(best, float(ratio.max() - ratio.min()))
    return best


@pytest.mark.long
def test_no_evidence_tells_more_than_the_universal_are_said_to_learn() -> None:
    for seed in range(3):
        chains = joint(seed, 0.5)
        most = stream_loss(json.loads(chains.model_dump_json()), NOTHING, "universal")
        found = max(evidence(chains, 6, number) for number in range(40))
        assert 0.5 < found < most


def ticks_of(k: int, rate: float) -> list[list[int]]:
    ratio = ceil_of(exp_up(Fraction(rate)))
    return [[ratio if x != y else ONE for y in range(k)] for x in range(k)]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 4])
def test_no_enumerated_stream_loses_more_from_any_start(seed: int) -> None:
    """Chains with zeros, periodic, absorbing and all but impossible steps; who has no bound says so."""
    generator = np.random.default_rng(seed)
    k, rate = int(generator.integers(2, 4)), float(generator.choice([0.2, 1.0, 5.0]))
    rows = extreme_chain(generator, k)
    keep = math.exp(rate) / (math.exp(rate) + k - 1)
    emission = np.full((k, k), (1 - keep) / (k - 1)) + np.eye(k) * (keep - (1 - keep) / (k - 1))
    start = generator.dirichlet(np.ones(k))
    for begins, distributions in (
        (start.tolist(), start[None]),
        ("any", np.vstack([np.eye(k), generator.dirichlet(np.ones(k), 8)])),
    ):
        for informed in (False, True):
            truth = enumerated_losses(distributions, rows, 5, symbol_density(emission, 5), informed=informed).max()
            try:
                who = ADVERSARIES[informed]
                found = log_up(known_loss(rows.tolist(), ticks_of(k, rate + 1e-12), who, begins))
            except (NotRecomputed, ZeroDivisionError):
                continue
            assert truth <= found + Fraction(1, 10**9)


@pytest.mark.long
def test_chains_that_never_forget_are_not_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle tells the state of one tick at all ticks; an absorbing state is never left."""
    monkeypatch.setattr(guesses, "_MOST_DISTANCE", 300)  # no number of them finds a bound
    monkeypatch.setattr(claims, "_MOST_FOLLOWED", 300)
    cycle, trap = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]
    for chain, start in ((cycle, None), (cycle, "any"), (trap, "any"), (trap, [0.5, 0.5]), ([[1, 0], [0, 1]], None)):
        with pytest.raises(NotRecomputed):
            known_loss(chain, ticks_of(len(chain), 0.1), "ignorant", start)
    assert known_loss(trap, ticks_of(2, 0.1), "ignorant") == 1, (
        "in the long run there is one state, and nothing to hide"
    )


@pytest.mark.long
def test_bad_guesses_never_make_a_bound_that_is_too_low(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios that are too small, amounts that prove nothing, limits and distances out of thin air."""
    chains = joint(3, 0.6)
    given, draw = json.loads(chains.model_dump_json()), random.Random(1)
    honest = {who: stream_loss(given, NOTHING, who) for who in ADVERSARIES[::2]}
    ratio, limit, distances = claims.guessed_ratio, claims.guessed_limit, claims.useful_distances

    def lower(above: Any, below: Any, wide: Any, most: float) -> Any:
        found, flow = ratio(above, below, wide, most)
        return found * draw.choice((0.5, 0.999999, 1.0)), [(a, b, f * draw.choice((-1, 0, 1, 2))) for a, b, f in flow]

    def wrong(step: Any, one: int, size: int, most: int) -> Any:
        return [[int(v * draw.choice((1e-9, 0.3, 0.9, 0.999999))) for v in row] for row in limit(step, one, size, most)]

    def few(*arguments: Any) -> list[int]:
        return [1, *draw.sample(sorted(distances(*arguments)), 1)]

    for name, worse in (("guessed_ratio", lower), ("guessed_limit", wrong), ("useful_distances", few)):
        with monkeypatch.context() as patch:
            patch.setattr(claims, name, worse)
            for who in ADVERSARIES[::2]:
                try:
                    found = stream_loss(given, NOTHING, who)
                except NotRecomputed:
                    continue
                assert found >= honest[who] * (1 - Fraction(1, 10**7))


ROOMS = {
    "in a row": ("[[0, 0], [1, 0], [2, 0]]", "{radius = 1.0}", "[[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]"),
    "never twice": ("[[0], [1]]", "{complete = true}", "[[0.4, 0.6], [1.0, 0.0]]"),
}


@pytest.mark.soak
@pytest.mark.parametrize("rooms", ["in a row", "never twice"])
def test_all_points_are_what_the_planner_claims_and_less_is_found(rooms: str, tmp_path: Path) -> None:
    """From every start, for every adversary; the planner rounds up to eight digits, or has a looser bound."""
    at, graph, rows = ROOMS[rooms]
    distribution = "[0.9, 0.1]" if rooms in ("two", "never twice") else "[0.2, 0.3, 0.5]"
    for start in ("any", "stationary", None):
        spec = tmp_path / "places.toml"
        initial = f'"{start}"' if start else distribution
        spec.write_text(
            f"coordinates = {at}\ngraph = {graph}\nepsilon = 0.3\ntransition = {rows}\ninitial = {initial}\n"
            'fleet = "home"\ndevice = "d"\nstream = "place"\nperiod = 60.0\n'
        )
        plan = make_measure_plan(read_spec(spec), "ignorant", quick=True)
        policy = build_measure_policy(plan)
        given = json.loads(policy.to_json())
        began = given["stream_loss"]["start"]
        for adversary in ADVERSARIES:
            if rooms == "never twice" and adversary == "universal":
                continue  # a step is impossible: there is no bound
            first = measured_loss(policy.measurement, policy.matrix, policy.initial, began, adversary).epsilon
            given["stream_loss"] = {"epsilon": rounded_up(first), "adversary": adversary, "start": began}
            claim = recompute(given)[-1]
            assert claim.of == "all points"
            assert claim.loss is not None
            assert 0.97 * first < claim.loss <= claim.stated
            given["stream_loss"]["epsilon"] = float(claim.loss) * (1 - 1e-6)
            less = recompute(given)[-1]
            assert less.loss is not None
            assert less.loss > less.stated
