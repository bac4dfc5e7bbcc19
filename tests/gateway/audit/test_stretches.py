"""Audits of promises about stretches: likelihoods by enumeration, true promises, and noise that is too small."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from fugu.attackers.mechanisms import Mechanism, Source, paths
from fugu.attackers.outputs import CountOutputs, Outputs, release_counts, release_symbols
from fugu.attackers.stretches import SECRETS
from fugu.attackers.witness import witness
from fugu.chains.arrays import Ints
from fugu.chains.model import simulate
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary, exp_up
from fugu.contract.noise_table import SCALE
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from fugu.planning.recorded_policy import Release, Released
from fugu.privacy.accountant.bounded import stretch_losses
from fugu.privacy.chain_class import MarkovChain
from fugu_cli.view.audit import stream_result
from gateway.audit.access import Audience, planned_audiences
from gateway.audit.attacks import AttackTrial, attack_audiences
from gateway.audit.ledger import stream_loss
from gateway.audit.mechanism import gateway_releases, windows
from gateway.audit.stream import audit_stream, stretch_findings
from gateway.releases.audit import Disclosure
from gateway.releases.charges import PER_NAT, ChargedTicks
from gateway.releases.config import ReleaseConfig
from gateway.releases.entries import AccountKey, Promise
from tests.support.audited import planned

CHAINS = BinaryChains(q=(0.05, 0.05), r=(0.1, 0.1))
CHAIN = MarkovChain.stationary([[0.95, 0.05], [0.1, 0.9]])
HOUR = Window(name="hour", length=60, stride=60, states=(1,), scale="40")
SITE = (Audience("site", True, 0.0, "ignorant", ("watch/hr",), ("watch/hr",), ()),)


def promised(policy: Policy, ticks: int, epsilon: float | None = None) -> Policy:
    """The same outputs, with the promise that they keep about so many ticks, or one of another epsilon."""
    adversary = policy.guarantee.adversary
    update: dict[str, Any] = {}
    for name, bound in (("guarantee", policy.bound()), ("windows_guarantee", policy.windows_bound())):
        if bound is not None and getattr(policy, name) is not None:
            most = epsilon or bound.epsilon(ticks)
            update[name] = Guarantee(epsilon=most, adversary=adversary, stretch_ticks=ticks)
    return policy.model_copy(update=update)


def counting(ticks: int, adversary: Adversary = "universal", epsilon: float | None = None, scale: str = "40") -> Policy:
    """A stream of counts alone."""
    window = HOUR.model_copy(update={"scale": scale})
    beside = exp_up(window.rate)
    guarantee = Guarantee(epsilon=CHAINS.ratio_loss(beside, beside, adversary).epsilon, adversary=adversary)
    update = {
        "table": None,
        "frame_ticks": None,
        "guarantee": guarantee,
        "windows_guarantee": None,
        "windows": (window,),
    }
    alone = planned(CHAINS, adversary, (window,)).model_copy(update=update)
    return promised(alone, ticks, epsilon)


def attacked(policy: Policy, audiences: tuple[Audience, ...] = SITE, trials: int = 1000) -> dict[int, AttackTrial]:
    attacks = attack_audiences([policy], audiences, windows(policy), seed=1, trials=trials)
    return {attacked.ticks: attacked for attacked in attacks}


@pytest.mark.parametrize("stretch", [1, 2, 3])
def test_paths_that_are_drawn_stay_for_the_stretch_and_leave_it_as_the_chain_does(stretch: int) -> None:
    drawn = paths(CHAIN, Mechanism(6, 2, 2, (), (), stretch=stretch), 1, 4000, np.random.default_rng(5))
    assert (drawn[:, 2 : 2 + stretch] == 1).all()
    assert (drawn[:, 1] == 0).mean() == pytest.approx(0.1, abs=0.02)  # a reversible chain: as likely as going there
    assert (drawn[:, 2 + stretch] == 0).mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
@pytest.mark.parametrize("ticks", [4, pytest.param(12, marks=pytest.mark.long)])
def test_the_witness_comes_near_the_certificate_of_a_stretch(adversary: Adversary, ticks: int) -> None:
    emission = np.array(planned(CHAINS, adversary).table.weights()) / SCALE
    policy = promised(planned(CHAINS, adversary), ticks)
    mechanism = Mechanism(241, 120, 2, (Source(emission, (0, 1), heard=True),), (), stretch=ticks)
    shown = witness(mechanism, CHAIN, knows_states=adversary != "ignorant").epsilon
    assert shown <= policy.guarantee.epsilon
    if adversary != "universal":  # whose worst chain is another one
        assert shown > 0.99 * policy.guarantee.epsilon


@pytest.mark.long
def test_a_true_promise_about_a_stretch_is_not_refuted_and_a_smaller_one_is() -> None:
    policy = promised(planned(CHAINS), 10)
    attack = attacked(policy)
    assert set(attack) == {1, 10}
    for result in attack.values():
        assert result.certified <= result.promised * (1 + 1e-9)
        assert 0.99 * result.promised < result.witness <= result.promised
        assert not result.refuted
    weak = attacked(promised(policy, 10, policy.guarantee.epsilon * 0.9))[10]
    assert weak.refuted
    assert weak.certified > weak.promised


@pytest.mark.long
def test_attackers_of_stretches_stay_within_a_true_promise_and_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    audit = audit_stream([counting(10)], SITE, trials=500)
    (trial,) = audit.stretches
    assert not audit.findings
    assert {attack.secret for attack in trial.attacks} <= set(SECRETS)
    assert trial.ticks == 10
    assert all(attack.scored >= 200 and 1 < attack.furthest <= math.exp(trial.epsilon) for attack in trial.attacks)
    print(stream_result(audit))
    assert "Stretches, to who knows all other days" in capsys.readouterr().out


@pytest.mark.long
def test_too_little_noise_for_a_stretch_is_found_by_its_attackers() -> None:
    audit = audit_stream([counting(10, epsilon=0.2)], SITE, trials=500)
    assert [
        finding
        for finding in audit.findings
        if "about any 10 ticks in a row" in finding.about and "hour: " in finding.about
    ]


def states_of(ticks: int) -> Ints:
    assert CHAIN.initial is not None
    return simulate(ticks, CHAIN.initial, CHAIN.transition, np.eye(2), np.random.default_rng(3)).states


@pytest.mark.long
@pytest.mark.parametrize(("scale", "wrong"), [(160.0, False), (0.3, True)])
def test_what_was_published_is_attacked_in_stretches(scale: float, wrong: bool) -> None:
    policy, states = counting(60, scale="160"), states_of(20_000)
    segments, rng = np.zeros_like(states), np.random.default_rng(2)
    drawn = release_counts(states, segments, 60, Fraction(scale), ((1,),), rng, k=2)
    outputs: Outputs = CountOutputs(**{**vars(drawn), "scale": Fraction(160)})  # as the policy states it
    released = Released("truth", states, segments, [Release("window hour", 160.0, 1.0, outputs)])
    trials = released.stretch_trials(policy)
    assert trials[0].attacks
    assert bool(stretch_findings(trials)) == wrong
    assert not released.stretch_trials(promised(policy, 1))


@pytest.mark.long
def test_a_recording_that_is_too_short_is_said_to_be() -> None:
    policy = promised(planned(CHAINS), 10)
    assert policy.table is not None
    states = states_of(150)
    outputs = release_symbols(states, policy.table, np.random.default_rng(2))
    released = Released("truth", states, np.zeros_like(states), [Release("symbols", 0.0, 1.0, outputs)])
    (trial,) = released.stretch_trials(policy)
    assert not trial.attacks
    assert trial.why.startswith("too short: ")


@pytest.mark.long
def test_an_audience_that_is_promised_a_stretch_is_held_against_it() -> None:
    policy = planned(CHAINS, "universal")
    walk = {"name": "walk", "audience": "street", "share": 1.0, "stream": "hr", "query": "count", "length": 6}
    config = ReleaseConfig.model_validate(
        {
            "audiences": {"street": {"epsilon": 0.5, "adversary": "universal", "protect": 5}},
            "releases": ({**walk, "states": ("level 1",)},),
        }
    )
    (_, street) = planned_audiences([policy], config)
    definitions, problems = gateway_releases(policy, config)
    assert not problems
    attacks = {
        attacked.ticks: attacked for attacked in attack_audiences([policy], (street,), definitions, seed=1, trials=500)
    }
    ticks = max(attacks)
    assert ticks > 1
    assert attacks[ticks].certified <= 0.5 * (1 + 1e-9)
    assert not attacks[ticks].refuted
    assert attacks[1].certified < attacks[ticks].certified
    assert attacks[1].witness < attacks[ticks].witness
    half = street._replace(epsilon=0.1)
    wrong = {
        attacked.ticks: attacked for attacked in attack_audiences([policy], (half,), definitions, seed=1, trials=500)
    }
    assert wrong[ticks].refuted


@pytest.mark.long
def test_a_stretch_of_charges_loses_no_more_by_any_output_and_any_evidence() -> None:
    """Seven ticks that tell as much as they are charged: every path, every output, weights of all ticks beside."""
    rng, ticks, step = np.random.default_rng(7), 7, np.array([[0.9, 0.1], [0.1, 0.9]])
    histories = np.array(list(product(range(2), repeat=ticks)))
    chance = np.array([math.prod(step[a, b] for a, b in pairwise(path)) for path in histories])
    reached = []
    for case in range(20):
        rates = np.where(rng.random(ticks) < 0.3, 0.0, rng.uniform(0.0, 1.0, ticks))
        agree = histories[:, None, :] == histories[None, :, :]
        outputs = np.where(agree, 1.0, np.exp(-rates)).prod(axis=2)  # of each path, up to a number: one for each tick
        weights = chance * np.exp(rng.uniform(-4, 4, (ticks, 2)))[np.arange(ticks), histories].prod(axis=1)
        if case == 0:  # nothing known, and most is told: the first example of the page of proofs
            weights, rates[:] = chance, 0.7
            outputs = np.where(agree, 1.0, np.exp(-rates)).prod(axis=2)
        for length in (1, 2, 3, 7, 9):
            bounds = stretch_losses(81.0 * (1 + 1e-12), rates, length)
            assert len(bounds) == max(1, ticks - length + 1)
            for first, bound in enumerate(bounds):
                inside = histories[:, first : first + length] @ (2 ** np.arange(min(length, ticks)))
                probabilities = [
                    weights[inside == count] @ outputs[inside == count] / weights[inside == count].sum()
                    for count in range(2 ** min(length, ticks))
                ]
                logs = np.log(np.array(probabilities))
                lost = float((logs.max(axis=0) - logs.min(axis=0)).max())
                assert lost <= bound + 1e-12
                reached.append(lost / max(bound, 1e-9) if length < ticks else 0.0)
    assert max(reached) > 0.8


def test_charges_far_apart_come_one_after_the_other_where_a_clock_skipped_numbers() -> None:
    """A ledger that charged one tick in ten much and others little; a device that drew for those alone."""
    charges = [Fraction(1, 100)] * 400
    charges[::10] = [Fraction(1, 2)] * 40
    runs = tuple(
        run
        for first in range(0, 400, 10)
        for run in (ChargedTicks(first, first, PER_NAT // 2), ChargedTicks(first + 1, first + 9, PER_NAT // 100))
    )
    chains = f"[{BoundedChains(states=2, odds_ratio=100.0).model_dump_json()}]"
    promise = Promise(20.0, "universal", 9)
    disclosure = Disclosure(
        AccountKey("watch", "hr", "street"), "chain", promise, 1_000_000, chains, 0, PER_NAT // 2, 200, runs
    )
    loss, ticks = stream_loss(disclosure), promise.ticks(1_000_000)
    drawn = np.array([float(charge) for charge in charges if charge == Fraction(1, 2)])
    assert loss.epsilon >= stretch_losses(100.0, drawn, ticks).max()
    assert loss.tick == 200
    endless = stream_loss(disclosure._replace(runs=()))
    assert (endless.by, endless.epsilon is not None and endless.epsilon >= loss.epsilon) == ("constant charge", True)
    lone = stream_loss(disclosure._replace(promise=Promise(20.0, "universal"), runs=runs))
    assert lone.epsilon >= stretch_losses(100.0, drawn, 1).max()
