"""Streams of different sensors that name one another in a class of joint chains, as a device checks them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.__main__ import main
from edge_agent.config import load
from edge_agent.sensors.source import ConfigError
from fugu.chains.inference import filter_beliefs, fixed_lag_marginals
from fugu.contract.chains import BinaryChains, JointChains, JointStream
from fugu.contract.discretisers import Categories
from fugu.contract.errors import GuaranteeError, PolicyError
from fugu.contract.guarantee import Guarantee
from fugu.contract.joint import NoJointBoundError, joint_epsilon
from fugu.contract.pins import pins_of, violations
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from gateway.estimates.beliefs import SymbolModel, stream_beliefs
from tests.support.command import runner
from tests.support.gateway_files import toml
from tests.support.processes import policy

PULSE = policy(epoch_us=0, period_us=1_000_000)
RATE = float(PULSE.outputs.rate)
SHOWS = ((0, 0), (0, 1), (1, 0), (1, 1))
MOVES = tuple(tuple(0.7 if a == b else 0.1 for b in range(4)) for a in range(4))


def chains(rates: tuple[float, float] = (RATE, RATE), **changes: Any) -> JointChains:
    streams = tuple(
        JointStream(name=name, states=2, rate=rate) for name, rate in zip(("hr", "steps"), rates, strict=True)
    )
    fields = {"streams": streams, "period_us": 1_000_000, "shows": SHOWS, "odds_ratio": 49.0, **changes}
    return JointChains(**fields)


def stream(name: str, declared: JointChains, **changes: Any) -> Policy:
    """A policy that promises what all streams of its class lose."""
    epsilon = declared.joint_loss("universal").epsilon
    promise = Guarantee(epsilon=epsilon, adversary="universal")
    return Policy.model_validate(dict(PULSE) | {"stream": name, "chains": declared, "guarantee": promise} | changes)


PAIR = [stream(name, chains()) for name in ("hr", "steps")]
EPSILON = PAIR[0].guarantee.epsilon


def device(folder: Path, policies: list[Policy], ceiling: float, total: float) -> Path:
    lines = ['fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"']
    lines.append(f"ceiling = {ceiling}\ntotal_ceiling = {total}")
    for number, own in enumerate(policies):
        (folder / f"{own.stream}.json").write_text(own.to_json())
        sensor = f'{{kind = "replay", file = "{number}.csv"}}'
        lines.append(f'[[streams]]\npolicy = "{own.stream}.json"\nsensor = {sensor}')
        lines.append(f'pins = {{kind = "symbols", period_us = 1000000, adversary = "universal", {pins(own)}}}')
    (folder / "agent.toml").write_text("\n".join(lines) + "\n")
    return folder / "agent.toml"


def pins(policy: Policy) -> str:
    fields = json.loads(pins_of(policy).model_dump_json(exclude_none=True))
    return ", ".join(f"{key} = {toml(fields[key])}" for key in ("discretiser", "chains"))


def test_streams_of_different_sensors_are_limited_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert joint_epsilon(PAIR, {"hr": "a", "steps": "b"}) == EPSILON
    config = device(tmp_path, PAIR, EPSILON, EPSILON)
    assert len(load(config).streams) == 2
    main([str(config), "--check"])
    assert "joint chains, 4 states, odds ratio up to 49 (hr at most" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="of all streams together is above this device's total ceiling"):
        load(device(tmp_path, PAIR, EPSILON, EPSILON * 0.999))


def test_a_stream_that_tells_more_than_its_share_does_not_run(tmp_path: Path) -> None:
    greedy = chains((RATE * (1.0 - 1e-9), RATE))
    with pytest.raises(GuaranteeError, match=r"the table tells .* nats in a tick, above the .* allows stream hr"):
        load(device(tmp_path, [stream("hr", greedy)], 100.0, 100.0))
    with pytest.raises(GuaranteeError, match=r"above the .* of its guarantee"):
        stream("hr", chains(), guarantee=Guarantee(epsilon=EPSILON * 0.999, adversary="universal")).verify()
    assert PAIR[0].verify().epsilon == EPSILON


THEM = chains().streams[1]


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (stream("steps", chains((RATE * 0.9, RATE * 2))), r"stream hr tells .* above the .* that the class of others"),
        (PULSE.model_copy(update={"stream": "steps"}), "is not of all of them together"),
        (stream("else", chains(streams=(JointStream(name="else", states=2, rate=RATE), THEM))), "not of watch/else"),
    ],
)
def test_streams_that_do_not_name_one_another_have_no_joint_bound(other: Policy, complaint: str) -> None:
    with pytest.raises(NoJointBoundError, match=complaint):
        joint_epsilon([PAIR[0], other], None)


def test_streams_of_one_sensor_have_the_same_states_in_their_class() -> None:
    with pytest.raises(NoJointBoundError, match="has the states of another, but not in its class"):
        joint_epsilon(PAIR, {"hr": "a", "steps": "a"})
    same = chains(shows=((0, 0), (0, 0), (1, 1), (1, 1)))
    twins = [stream(name, same) for name in ("hr", "steps")]
    assert joint_epsilon(twins, {"hr": "a", "steps": "a"}) == twins[0].guarantee.epsilon


def test_streams_of_one_sensor_of_words_are_compared_too() -> None:
    words = Categories(categories={"on": 0, "off": 1}, states=("on", "off"))
    pair = [stream(name, chains(), discretiser=words) for name in ("hr", "steps")]
    assert joint_epsilon(pair, {"hr": "a", "steps": "b"}) == EPSILON
    with pytest.raises(NoJointBoundError, match="has the states of another, but not in its class"):
        joint_epsilon(pair, {"hr": "a", "steps": "a"})


def test_of_different_classes_the_largest_bound_counts() -> None:
    room = stream("steps", chains((RATE * 2, RATE)))
    assert joint_epsilon([PAIR[0], room], None) == room.guarantee.epsilon > EPSILON


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"stream": "other"}, "not of watch/other"),
        ({"clock": {"epoch_us": 0, "period_us": 500_000}}, "period is not the 1000000"),
        ({"chains": {"streams": [{"name": "hr", "states": 3, "rate": 1.0}]}}, "chains"),
        ({"chains": {"shows": [[0, 0]] * 4}}, "must be shown"),
    ],
)
def test_policies_that_do_not_fit_their_class_are_refused_in_one_line(changes: dict[str, Any], complaint: str) -> None:
    document = json.loads(PAIR[0].to_json())
    for key, value in changes.items():
        document[key] = document[key] | value if isinstance(value, dict) else value
    with pytest.raises(PolicyError, match=complaint) as refusal:
        read_policy(json.dumps(document).encode())
    assert "\n" not in str(refusal.value)


def test_what_the_others_may_tell_is_pinned() -> None:
    pinned = pins_of(PAIR[0])
    assert violations(PAIR[0], pinned) == ()
    assert violations(stream("hr", chains(shows=SHOWS[::-1])), pinned) == ("another class of chains than is pinned",)
    wider = chains(odds_ratio=49.1)
    for declared, inside in (
        (chains((RATE, RATE / 2)), False),
        (chains((RATE, RATE * 2)), False),
        (chains(transition=MOVES, odds_ratio=49.1), True),
        (wider, True),
        (chains(odds_ratio=48.9), False),
    ):
        assert declared.covers(chains()) is inside
    assert not chains().covers(wider)
    assert not BinaryChains(q=(0.1, 0.2), r=(0.1, 0.2)).covers(chains())
    assert not chains().covers(BinaryChains(q=(0.1, 0.2), r=(0.1, 0.2)))


@pytest.mark.long
def test_the_gateway_estimates_a_stream_along_the_joint_chain() -> None:
    """Of a chain of order 2: against the sum over all paths of pairs."""
    distributions = {(0, 0): 0.9, (0, 1): 0.3, (1, 0): 0.6, (1, 1): 0.1}  # Pr(next is 0 | before, present)
    moves = [[0.0] * 4 for _ in range(4)]
    for (a, b), zero in distributions.items():
        moves[2 * a + b][2 * b], moves[2 * a + b][2 * b + 1] = zero, 1.0 - zero
    streams = (JointStream(name="hr", states=2, rate=RATE),)
    shows, transition = ((0,), (1,), (0,), (1,)), tuple(map(tuple, moves))
    pairs = chains(streams=streams, shows=shows, odds_ratio=900.0, steps=2, transition=transition)
    model = SymbolModel.of(stream("hr", pairs)).chain_model
    symbols, lag = np.array([0, 1, 1, 0, 1, 0, 0]), 2
    chain = model.initial, model.transition, model.emission
    beliefs = stream_beliefs(model, fixed_lag_marginals(symbols, *chain, lag))[: len(symbols) - lag]
    table = np.array(PULSE.table.weights()) / 2**32 if PULSE.table else np.empty(0)
    for tick in range(len(symbols) - lag):
        mass = np.zeros(2)
        for path in itertools.product(range(4), repeat=tick + lag + 1):
            steps = math.prod(moves[a][b] for a, b in itertools.pairwise(path))
            seen = math.prod(table[x % 2, z] for x, z in zip(path, symbols, strict=False))
            mass[path[tick] % 2] += model.initial[path[0]] * steps * seen
        assert beliefs[tick] == pytest.approx(mass / mass.sum(), abs=1e-12)
    distribution = stream_beliefs(
        model, filter_beliefs(symbols, model.initial, model.transition, model.emission).beliefs
    )
    assert distribution.shape == (7, 2)
    assert distribution.sum(axis=1) == pytest.approx(np.ones(7))
    bounded = stream("hr", chains(odds_ratio=9.0))
    assert SymbolModel.of(bounded).chain_model.transition.shape == (2, 2)


def test_names_with_a_device_are_of_that_device() -> None:
    streams = tuple(JointStream(name=name, states=2, rate=RATE) for name in ("watch/hr", "belt/hr"))
    room = chains(streams=streams)
    assert [room.stream_index(device, "hr") for device in ("watch", "belt")] == [0, 1]
    with pytest.raises(ValueError, match="not of ring/hr"):
        room.stream_index("ring", "hr")


def test_a_check_says_of_which_streams_epsilon_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    promise = Guarantee(epsilon=chains().joint_loss("ignorant").epsilon, adversary="ignorant")
    (tmp_path / "policy.json").write_text(stream("hr", chains(), guarantee=promise).to_json())
    fugu = runner(capsys)
    lines = fugu("check", "policy", tmp_path / "policy.json").out
    assert "hr at most 0.0908512 nats a tick, steps at most 0.0908512 nats a tick" in lines
    document = fugu("check", "policy", tmp_path / "policy.json", "--json").json()
    assert document["together"] == {"hr": RATE, "steps": RATE}
    assert document["epsilon"] > RATE
