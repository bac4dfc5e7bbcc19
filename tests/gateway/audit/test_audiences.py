"""Attacks on all that an audience may read: exact likelihoods, claims that are false by construction, and true ones."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from fugu.attackers.events import least_epsilon
from fugu.attackers.mechanisms import Counted, Heard, Mechanism, Recorded, Source, log_likelihoods
from fugu.contract.chains import BinaryChains
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import exp_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.privacy.chain_class import MarkovChain
from gateway.audit.access import AccessList, Audience, Rule, planned_audiences, read_access
from gateway.audit.attacks import AttackTrial, attack_audiences, largest_scale, symbol_bounds
from gateway.audit.mechanism import gateway_releases, windows
from gateway.audit.recordings import release_noise, stream_topics, window_noise
from gateway.audit.stream import audit_stream, distribution_problems
from gateway.deployment.mosquitto import Account, access_list
from gateway.releases.config import ReleaseConfig
from gateway.releases.entries import Promise
from gateway.releases.statistics import two_valued_weights
from tests.support.audited import planned
from tests.support.example_frames import RELEASE_FRAME
from tests.support.scenes import policy as scene

CHAINS = BinaryChains(q=(0.2, 0.2), r=(0.3, 0.3))
ONE = Window(name="high", length=6, stride=6, states=(1,), scale="20")
SITE = (Audience("site", True, 0.0, "ignorant", ("watch/hr",), ("watch/hr",), ()),)


def attacked(policy: Policy, who: tuple[Audience, ...] = SITE, seed: int = 1, trials: int = 3000) -> list[AttackTrial]:
    return list(attack_audiences([policy], who, windows(policy), seed=seed, trials=trials))


def promised(policy: Policy, epsilon: float) -> Policy:
    """The same mechanism, with another promise."""
    return policy.model_copy(update={"guarantee": Guarantee(epsilon=epsilon, adversary=policy.guarantee.adversary)})


def releases() -> ReleaseConfig:
    """A count of symbols for an audience of epsilon .5, and one of the site."""
    walk = {"name": "walk", "audience": "street", "share": 1.0}
    common = {"stream": "hr", "query": "count", "states": ("level 1",), "length": 6}
    own = {"name": "plain", "audience": "site", "scale": "1/10"}
    return ReleaseConfig.model_validate(
        {
            "audiences": {"street": {"epsilon": 0.5, "adversary": "informed"}},
            "releases": ({**common, **walk}, {**common, **own}),
        }
    )


@pytest.mark.parametrize(("heard", "stretch"), [(False, 1), (True, 1), (False, 2), (True, 3)])
def test_the_likelihood_is_that_of_every_path_that_stays_and_every_symbol(heard: bool, stretch: int) -> None:
    table = NoiseTable.binary(1_200_000_000, 900_000_000)
    chain = MarkovChain.stationary([[0.7, 0.3], [0.2, 0.8]])
    counts = (
        Counted("a", 0, 3, (1,), None, Fraction(2)),
        Counted("a", 2, 3, (1,), None, Fraction(3, 2)),
        Counted("b", 1, 3, (0,), 0, Fraction(1)),
        Counted("c", 1, 2, (0,), 0, Fraction(1, 2), terms=2),
    )
    emission = np.array(table.weights()) / SCALE
    mechanism = Mechanism(5, 2, 2, (Source(emission, (0, 1), heard),), counts, stretch=stretch)
    generator = np.random.default_rng(5)
    outputs = Heard({0: generator.integers(0, 2, (3, 5))}, generator.integers(-2, 6, (3, 4)))
    logs = log_likelihoods(mechanism, chain, outputs)
    distribution = chain.initial

    @cache
    def noise(counted: Counted, distance: int) -> float:
        def single(n: int) -> float:
            return math.exp(-abs(n) / float(counted.scale))

        return single(distance) if counted.terms == 1 else sum(single(n) * single(distance - n) for n in range(-40, 41))

    for trial in range(3):
        total, prior = [0.0, 0.0], [0.0, 0.0]
        for path in product((0, 1), repeat=5):
            if len(set(path[2 : 2 + stretch])) > 1:
                continue
            weight = distribution[path[0]] * math.prod(chain.transition[a, b] for a, b in pairwise(path))
            prior[path[2]] += weight
            for symbols in [tuple(outputs.symbols[0][trial])] if heard else product((0, 1), repeat=5):
                each = weight * math.prod(emission[x, z] for x, z in zip(path, symbols, strict=True))
                for n, count in enumerate(counts):
                    of = (path if count.source is None else symbols)[count.first : count.first + count.length]
                    if not (heard and count.source is not None):
                        each *= noise(count, int(outputs.counts[trial, n]) - sum(z in count.members for z in of))
                total[path[2]] += each
        exact = math.log(total[1] / prior[1]) - math.log(total[0] / prior[0])
        assert logs[trial, 1] - logs[trial, 0] == pytest.approx(exact, abs=1e-9)


@pytest.mark.long
def test_bounds_are_wrong_no_more_often_than_they_say() -> None:
    generator, level, runs = np.random.default_rng(1), 0.05, 400
    hits, alarms = generator.binomial(500, 0.4, runs), generator.binomial(500, 0.4 / math.e, runs)
    wrong = sum(least_epsilon(int(a), int(b), 500, level) > 1 for a, b in zip(hits, alarms, strict=True))
    assert wrong <= runs * level
    assert np.mean([least_epsilon(int(a), int(b), 500, level) for a, b in zip(hits, alarms, strict=True)]) > 0.6
    for scale in (0.7, 5.0, 90.0):
        up, down = generator.geometric(-math.expm1(-1 / scale), (2, runs, 100))
        scales = np.array([largest_scale(own, level) for own in up - down])
        assert (scales < scale).mean() <= level
        assert np.median(scales) < 1.5 * scale
    drawn = [(generator.random((200, 300)) < share).astype(np.int64) for share in (0.2, 0.6)]
    outside = 0
    for own in zip(*drawn, strict=True):
        low, high = symbol_bounds(own, level)
        outside += not (low[0, 1] <= 0.2 <= high[0, 1] and low[1, 1] <= 0.6 <= high[1, 1])
    assert outside <= 200 * level


@pytest.mark.long
def test_a_table_weaker_than_its_statement_and_windows_beyond_the_allowance_are_found() -> None:
    honest = planned(CHAINS, epsilon=2.0)
    (result,) = attacked(honest, trials=4000)
    assert not result.refuted
    assert result.certified == pytest.approx(2.0, rel=1e-6)
    (weak,) = attacked(promised(honest, 1.0), trials=4000)
    assert weak.least > 1.0
    assert weak.refuted
    apart = planned(CHAINS, windows=(ONE,))
    assert not attacked(apart, trials=1000)[0].refuted
    overlapping = apart.model_copy(update={"windows": (ONE.model_copy(update={"stride": 2}),)})
    (audience,) = attacked(overlapping, trials=1000)
    assert audience.certified > 1.0
    assert audience.refuted


@pytest.mark.long
def test_a_public_account_that_reads_the_site_is_found_and_agrees_with_the_policy_audit() -> None:
    policy, config = planned(CHAINS), releases()
    rules = read_access(
        access_list(
            "home",
            [
                Account(name="site", role="site"),
                Account(name="shard", role="shard"),
                Account(name="street", role="reader", audiences=("street",), epsilon=0.5, adversary="informed"),
            ],
        )
    )
    roles = {"": "", "site": "site", "shard": "shard", "street": "reader"}
    right = AccessList(rules, roles, {"street": Promise(0.5, "informed")})
    assert right.audiences([policy], config) == (
        Audience("site", True, 0.0, "ignorant", ("watch/hr",), ("watch/hr",), ("walk", "plain")),
        Audience("shard", True, 0.0, "ignorant", ("watch/hr",), ("watch/hr",), ()),
        Audience("street", False, 0.5, "informed", (), (), ("walk",)),
    )
    assert right.strangers(topic_of("symbols", "home", "watch", "hr")) == []
    audit = audit_stream([policy], right.audiences([policy], config), config, trials=1000)
    assert not audit.findings
    readable = right._replace(rules=(*rules, Rule("street", "read", "fugu/2/home/release/site/+")))
    audit = audit_stream([policy], readable.audiences([policy], config), config, trials=1000)
    assert [finding.name for finding in audit.findings] == ["epsilon-refuted"]
    assert audit.findings[0].about.startswith(
        "street: release walk, release plain (simulated draws): epsilon 0.5 is promised"
    )
    assert readable.strangers("fugu/2/home/release/site/plain") == ["account street (reader)"]
    everybody = right._replace(rules=(*rules, Rule("", "read", topic_of("symbols", "home", "watch", "hr"))))
    audit = audit_stream([policy], everybody.audiences([policy], config), config, trials=1000)
    assert "(anybody): symbols (simulated draws): nothing should be told" in audit.findings[0].about
    heard = [topic.replace("+", "x") for topic in stream_topics(policy)]
    assert all(right.may_read("site", topic) for topic in heard)
    assert not any(right.may_read("street", topic) for topic in heard)
    assert right.may_read("street", "fugu/2/home/release/street/walk")


@pytest.mark.long
@pytest.mark.parametrize(("scale", "wrong"), [(5.0, False), (2.5, True)])
def test_noise_that_was_halved_is_found_in_what_was_published(scale: float, wrong: bool) -> None:
    window = Window(name="high", length=4, stride=2, states=(1,), scale="5")
    beside = exp_up(window.rate)
    loss = CHAINS.ratio_loss(beside, beside, "informed").epsilon
    policy = Policy.model_validate(
        {
            **scene(table=NoiseTable.binary(1, 1), chains=CHAINS, windows=(window,)).model_dump(),
            **{"table": None, "frame_ticks": 1, "windows_guarantee": None},
            "guarantee": {"epsilon": loss, "adversary": "informed"},
        }
    )
    generator = np.random.default_rng(2)
    states = (generator.random(4004) < 0.4).astype(np.int64)
    up, down = generator.geometric(-math.expm1(-1 / scale), (2, 2000))
    frames = [
        WindowFrame(1, "high", n - 1, n, 2 * n, 4, 4, (int(states[2 * n : 2 * n + 4].sum() + up[n] - down[n]),))
        for n in range(2000)
    ]
    (definition,) = windows(policy)
    noise = window_noise(definition, frames, states, 0)
    assert np.array_equal(noise["window high 0"], up - down)
    assert bool(distribution_problems(noise, [definition])) is wrong
    recorded = Recorded([np.zeros(0, np.int64)] * 2, noise)
    (result,) = attack_audiences([policy], SITE, windows(policy), seed=1, trials=10**9, draws=recorded)
    assert result.draws == "recorded"
    assert result.refuted is wrong
    assert 0 < result.trials <= 1000


@pytest.mark.parametrize("states", [("elsewhere",), ("level 0", "level 1")])
def test_a_release_of_states_that_no_count_of_the_policy_has_shows_no_noise(states: tuple[str, ...]) -> None:
    policy = planned(CHAINS)
    (walk, _), _ = gateway_releases(policy, releases())
    fields: dict[str, Any] = {"query": "count", "states": states, "devices": 1, "first": 0, "length": 6, "observed": 6}
    numbers: dict[str, Any] = dict.fromkeys(("values", "low", "high", "standard_errors"), (1.0,))
    frame = replace(RELEASE_FRAME, **fields, **numbers)
    assert release_noise(policy, walk, [frame], np.zeros(6, dtype=np.int64), 0) == {}


@pytest.mark.long
@pytest.mark.parametrize("part", [1.0, 0.5])
def test_the_gateways_noise_is_known_where_symbols_are_heard(part: float) -> None:
    policy, config = planned(CHAINS), releases()
    assert policy.table is not None
    (walk, _), _ = gateway_releases(policy, config)
    rule = two_valued_weights(policy.table, (1,))
    assert rule is not None
    generator = np.random.default_rng(4)
    symbols = generator.integers(0, 2, 3000).astype(np.uint8)
    up, down = generator.geometric(-math.expm1(-1 / (part * float(walk.scale))), (2, 500))
    heard = [(topic_of("symbols", "home", "watch", "hr"), SymbolFrame(1, -1, 0, symbols.tobytes()).encode())]
    for n in range(500):
        count = int(symbols[6 * n : 6 * n + 6].sum() + up[n] - down[n])
        values = (rule.a * count + rule.b * 6,)
        fields: dict[str, Any] = {
            "query": "count",
            "states": ("level 1",),
            "devices": 1,
            "first": 6 * n,
            "length": 6,
            "observed": 6,
        }
        numbers: dict[str, Any] = {"values": values, "low": values, "high": values, "standard_errors": (1.0,)}
        frame = replace(RELEASE_FRAME, name="walk", entry=n + 1, **fields, **numbers)
        heard.append((topic_of("release", "home", "street", "walk"), frame.encode()))
    audit = audit_stream([policy], planned_audiences([policy], config)[1:], config, messages=heard, trials=1000)
    about = [finding.about for finding in audit.findings if finding.name == "noise-not-as-stated"]
    assert len(about) == (part < 1)
    assert all(line.startswith("release walk: noise of scale") for line in about)
