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
from fugu.audit.exact.chains.claims import known_loss, recompute
from fugu.audit.exact.numbers import ONE, ceil_of, exp_up, log_up
from fugu.contract.losses import Adversary
from fugu.places.composition import measured_loss, round_up
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.policy_builder import build_measure_policy
from tests.support.oracle import enumerated_losses, extreme_chain, symbol_density

ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)


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
                epsilon = log_up(known_loss(rows.tolist(), ticks_of(k, rate + 1e-12), who, begins))
            except (NotRecomputed, ZeroDivisionError):
                continue
            assert truth <= epsilon + Fraction(1, 10**9)


@pytest.mark.long
def test_chains_that_never_forget_are_not_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle tells the state of one tick at all ticks; an absorbing state is never left."""
    monkeypatch.setattr(guesses, "_MAX_DISTANCE", 300)  # no number of them finds a bound
    monkeypatch.setattr(claims, "_MAX_FOLLOWED_TICKS", 300)
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
    generator, draw = np.random.default_rng(3), random.Random(1)
    rows = (0.6 * np.eye(3) + 0.4 * generator.dirichlet(np.ones(3), size=3)).tolist()
    honest = {who: known_loss(rows, ticks_of(3, 0.2), who) for who in ADVERSARIES[:2]}
    monkeypatch.setattr(claims, "_MAX_FOLLOWED_TICKS", 100)  # what a bad guess makes hopeless is given up sooner
    ratio, limit, distances = claims.guessed_ratio, claims.guessed_limit, claims.useful_distances

    def lower(above: Any, below: Any, wide: Any, most: float) -> Any:
        exact, flow = ratio(above, below, wide, most)
        return exact * draw.choice((0.5, 0.999999, 1.0)), [(a, b, f * draw.choice((-1, 0, 1, 2))) for a, b, f in flow]

    def wrong(step: Any, unit: int, size: int, most: int) -> Any:
        return [
            [int(v * draw.choice((1e-9, 0.3, 0.9, 0.999999))) for v in row] for row in limit(step, unit, size, most)
        ]

    def few(*arguments: Any) -> list[int]:
        return [1, *draw.sample(sorted(distances(*arguments)), 1)]

    for name, worse in (("guessed_ratio", lower), ("guessed_limit", wrong), ("useful_distances", few)):
        with monkeypatch.context() as patch:
            patch.setattr(claims, name, worse)
            for who in ADVERSARIES[:2]:
                try:
                    claimed = known_loss(rows, ticks_of(3, 0.2), who)
                except NotRecomputed:
                    continue
                assert claimed >= honest[who] * (1 - Fraction(1, 10**7))


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
        document = json.loads(policy.to_json())
        began = document["stream_loss"]["start"]
        for adversary in ADVERSARIES:
            if rooms == "never twice" and adversary == "universal":
                continue  # a step is impossible: there is no bound
            first = measured_loss(policy.measurement, policy.matrix, policy.initial, began, adversary).epsilon
            document["stream_loss"] = {"epsilon": round_up(first), "adversary": adversary, "start": began}
            claim = recompute(document)[-1]
            assert claim.output == "all points"
            assert 0.97 * first < claim.loss <= claim.stated
            document["stream_loss"]["epsilon"] = float(claim.loss) * (1 - 1e-6)
            less = recompute(document)[-1]
            assert less.loss > less.stated
