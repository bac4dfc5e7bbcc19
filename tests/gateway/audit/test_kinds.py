"""Every kind of release is attacked, and how near attackers come to what is certified is what the page says."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.attackers.events import pick_event
from fugu.attackers.mechanisms import Counted, Mechanism, Source
from fugu.attackers.witness import witness
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream
from fugu.contract.groups import largest_noise
from fugu.contract.guarantee import Guarantee, tick_ratios
from fugu.contract.losses import Adversary
from fugu.contract.measure_policy import StreamLoss
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from fugu.places.composition import measured_loss
from fugu.privacy.chain_class import MarkovChain
from gateway.audit.access import planned_audiences
from gateway.audit.attacks import AttackTrial, attack_audiences
from gateway.audit.mechanism import gateway_releases, windows
from gateway.audit.stream import attack_points, audit_stream
from gateway.releases.config import ReleaseConfig
from tests.support.audited import planned
from tests.support.command import Fugu
from tests.support.groups import member_policy, shared
from tests.support.measured import measure_policy
from tests.support.scenes import policy as scene
from tests.support.soak import only

PAGE = Path(__file__).parents[3] / "docs" / "audit.md"
BRISK = BinaryChains(q=(0.2, 0.2), r=(0.3, 0.3))
STICKY = BinaryChains(q=(0.005, 0.005), r=(0.008, 0.008))
STICKIEST = BinaryChains(q=(0.001, 0.001), r=(0.002, 0.002))
ONE = Window(name="high", length=6, stride=6, states=(1,), scale="20")
THREE = ((0.9, 0.08, 0.02), (0.05, 0.9, 0.05), (0.02, 0.08, 0.9))


def site(*policies: Policy, trials: int = 2000) -> AttackTrial:
    """Reach of attackers with all that the site hears of some streams."""
    counts = [window._replace(source=n) for n, policy in enumerate(policies) for window in windows(policy)]
    (pick_event,) = attack_audiences(policies, planned_audiences(policies), counts, seed=1, trials=trials)
    return pick_event


def refutation(policy: Policy, epsilon: float, adversary: Adversary, **plan: Any) -> AttackTrial:
    config = ReleaseConfig.model_validate(
        {
            "audiences": {"street": {"epsilon": epsilon, "adversary": adversary}},
            "releases": ({"name": "walk", "stream": "hr", "audience": "street", **plan},),
        }
    )
    definitions, problems = gateway_releases(policy, config)
    assert not problems
    (pick_event,) = attack_audiences(
        [policy], planned_audiences([policy], config)[1:], definitions, seed=1, trials=4000
    )
    return pick_event


def claimed(chains: ChainClass, adversary: Adversary, table: NoiseTable) -> Policy:
    """A policy that promises what its table loses."""
    loss = chains.ratio_loss(*tick_ratios(table), adversary).epsilon
    guarantee = Guarantee(epsilon=loss, adversary=adversary)
    return scene(table=table, chains=chains).model_copy(update={"guarantee": guarantee})


def moving(adversary: Adversary) -> list[Policy]:
    """Two streams that move together, each with a table of its own."""
    table = NoiseTable.binary(SCALE * 2 // 5, SCALE * 2 // 5)
    rate = math.nextafter(math.log(1.5), 1)
    chains = JointChains(
        streams=tuple(JointStream(name=name, states=2, rate=rate) for name in ("hr", "steps")),
        period_us=1_000_000,
        shows=((0, 0), (0, 1), (1, 0), (1, 1)),
        odds_ratio=300.0,
    )
    guarantee = Guarantee(epsilon=chains.joint_loss(adversary).epsilon, adversary=adversary)
    update = {"chains": chains, "guarantee": guarantee}
    return [scene(stream=name, table=table).model_copy(update=update) for name in ("hr", "steps")]


COUNT = {"query": "count", "states": ("level 1",), "length": 6}


def home(honest: int = 3) -> Policy:
    """A home that promises what a sum with the noise of three homes loses; `honest` are in it."""
    window = shared(noise=largest_noise(Fraction(20), 3), honest=honest, length=6)
    return member_policy("watch", window, chains=BRISK, guarantee=Guarantee(epsilon=0.1509, adversary="informed"))


KINDS = {
    "symbols of two states, q = 0.2, r = 0.3, `ignorant`": lambda: site(planned(BRISK, "ignorant"), trials=20_000),
    "the same, `informed`": lambda: site(planned(BRISK), trials=20_000),
    "the same, `universal`": lambda: site(planned(BRISK, "universal")),
    "symbols, q = 0.005, r = 0.008, `informed`": lambda: site(planned(STICKY)),
    "symbols, q = 0.001, r = 0.002, `informed`": lambda: site(planned(STICKIEST)),
    "symbols and a window": lambda: site(planned(BRISK, windows=(ONE,))),
    "symbols of three states, odds ratio 9": lambda: site(
        claimed(BoundedChains(states=3, odds_ratio=9.0), "universal", NoiseTable.randomised_response(3, 900_000_000))
    ),
    "two streams that move together, odds ratio 300": lambda: site(*moving("universal")),
    "readers: a count of symbols": lambda: refutation(planned(BRISK), 0.5, "informed", **COUNT, share=1.0),
    "readers: a mean dwell time": lambda: refutation(
        planned(BRISK), 0.5, "informed", **{**COUNT, "query": "dwell"}, share=1.0
    ),
    "readers: one count by `wasserstein`": lambda: refutation(
        planned(BRISK), 0.5, "ignorant", **COUNT, mechanism="wasserstein", once=60
    ),
    "readers: one count by `group`": lambda: refutation(
        planned(BRISK), 0.5, "universal", **COUNT, mechanism="group", once=60
    ),
    "a sum of homes, all others known, `informed`": lambda: site(home()),
    "a measured point, four places": lambda: placed(1),
    "all points of that stream": lambda: placed(0),
}


def placed(number: int) -> AttackTrial:
    """Reach of attackers with a point, or all points, of a walk on four places that must all be alike."""
    places = measure_policy(side=2, graph={"complete": True})
    bound = measured_loss(places.measurement, places.matrix, None, "stationary", "ignorant").epsilon
    loss = StreamLoss(epsilon=bound, adversary="ignorant", start="stationary")
    policy = places.model_copy(update={"stream_loss": loss})
    return list(attack_points(policy, planned_audiences([policy]), seed=1, trials=4000))[number]


SHOWN = [[*KINDS][number] for number in (2, 3, 5, 7, 8, 11, 12)]
"""One of each way that is taken; the first two have ten times as many trials."""


@pytest.mark.long
@pytest.mark.parametrize("words", only(SHOWN, KINDS))
def test_every_kind_is_attacked_and_bounds_are_what_the_page_says(words: str) -> None:
    """No bound is above what is certified."""
    result = KINDS[words]()
    assert not result.refuted
    assert 0 < result.witness <= result.certified
    bounds = (result.least, result.extended, result.witness)
    shares = ["-" if bound is None else f"{bound / result.certified:.2f}" for bound in bounds]
    assert f"| {words} | {' | '.join(shares)} |" in PAGE.read_text()


def test_a_sum_is_attacked_for_those_who_are_told_it_and_one_home_fewer_breaks_its_promise() -> None:
    limit = {"epsilon": 0.5, "adversary": "informed"}
    config = ReleaseConfig.model_validate({"audiences": {"street": {**limit, "sums": ("street",)}, "town": limit}})
    policy = home()
    audit = audit_stream([policy], planned_audiences([policy], config), config, trials=1000)
    assert [result[:2] for result in audit.audiences] == [("site", "sum street"), ("street", "sum street")]
    assert not audit.findings
    assert audit.conditions == (policy.sums[0].condition,)
    (finding,) = audit_stream([home(2)], planned_audiences([home(2)]), trials=1000).findings
    assert finding.name == "epsilon-refuted"


def exact(chain: MarkovChain, emission: np.ndarray, tilt: np.ndarray, n: int, secret: int, is_known: bool) -> float:
    """The largest log-likelihood ratio of a stream of n ticks, by enumeration of outputs, paths and known states."""
    k, m = emission.shape
    worst = 0.0
    sides: list[list[tuple[int, int | None]]] = [[(0, None)], [(0, None)]]
    for side, ticks in zip(sides, (range(secret), range(secret + 1, n)), strict=True):
        side += [(tick, state) for tick in ticks for state in range(k)] if is_known else []
    for past, future in product(*sides):
        weights: dict[tuple[int, ...], float] = {}
        for path in product(range(k), repeat=n):
            if any(state not in (None, path[tick]) for tick, state in (past, future)):
                continue
            distribution = chain.initial[path[0]] * math.prod(chain.transition[a, b] for a, b in pairwise(path))
            weights[path] = float(distribution)
        prior = [sum(w for path, w in weights.items() if path[secret] == x) for x in range(k)]
        for symbols in product(range(m), repeat=n):
            like = [0.0] * k
            for path, weight in weights.items():
                like[path[secret]] += weight * math.prod(
                    emission[x, z] * tilt[x] for x, z in zip(path, symbols, strict=True)
                )
            for x, z in product(range(k), repeat=2):
                if x != z and min(prior[x], prior[z]) > 0:
                    worst = max(worst, math.log(like[x] / prior[x]) - math.log(like[z] / prior[z]))
    return worst


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize(
    ("transition", "emission"),
    [
        ([[0.8, 0.2], [0.3, 0.7]], [[0.7, 0.3], [0.4, 0.6]]),
        ([[0.2, 0.8], [0.7, 0.3]], [[0.6, 0.4], [0.3, 0.7]]),
        (THREE, [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]]),
    ],
)
def test_the_witness_is_the_largest_ratio_of_all_outputs(transition: Any, emission: Any, knows: bool) -> None:
    chain, distribution = MarkovChain.stationary(transition), np.array(emission)
    n, secret, scale = (5, 2, 4) if len(distribution) == 2 else (3, 1, 4)
    counts = (Counted("w 0", 0, n, (1,), None, Fraction(scale)),)
    plain = Mechanism(n, secret, len(distribution), (Source(distribution, tuple(range(len(distribution))), True),), ())
    true = exact(chain, distribution, np.ones(len(distribution)), n, secret, knows)
    epsilon = witness(plain, chain, knows_states=knows).epsilon
    assert true - 1e-6 < epsilon <= true
    if not knows:  # counts beyond what can be, above and below
        beyond = [np.exp(sign * np.isin(np.arange(len(distribution)), (1,)) / scale) for sign in (1, -1)]
        true = max(exact(chain, distribution, tilt, n, secret, knows) for tilt in beyond)
        epsilon = witness(plain._replace(counts=counts), chain).epsilon
        assert true - 1e-6 < epsilon <= true


def test_streams_that_move_together_are_told_apart_by_all_their_symbols() -> None:
    """Two sources on one chain are one whose symbols are pairs."""
    chain = MarkovChain.stationary(
        [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.1, 0.2], [0.3, 0.1, 0.5, 0.1], [0.1, 0.2, 0.1, 0.6]]
    )
    first, other = np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[0.8, 0.2], [0.3, 0.7]])
    shows = (0, 0, 1, 1), (0, 1, 0, 1)
    distributions = [distribution[list(shown)] for distribution, shown in zip((first, other), shows, strict=True)]
    sources = tuple(Source(distribution, shown, True) for distribution, shown in zip(distributions, shows, strict=True))
    both = (distributions[0][:, :, None] * distributions[1][:, None, :]).reshape(4, 4)
    true = exact(chain, both, np.ones(4), 3, 1, is_known=False)
    assert true - 1e-6 < witness(Mechanism(3, 1, 4, sources, ()), chain).epsilon <= true


def test_counts_of_pairs_beyond_what_can_be_have_the_likelihood_of_every_path() -> None:
    chain, distribution, n, secret, scale = (
        MarkovChain.stationary([[0.8, 0.2], [0.3, 0.7]]),
        np.array([[0.7, 0.3], [0.4, 0.6]]),
        4,
        1,
        3,
    )
    counts = tuple(Counted(f"d {z}", 0, n, (z,), 0, Fraction(scale), consecutive=True) for z in range(4))
    epsilon = witness(Mechanism(n, secret, 2, (Source(distribution, (0, 1), False),), counts), chain).epsilon
    true = []
    for signs in product((1, -1), repeat=4):
        like = [0.0, 0.0]
        for path, symbols in product(product(range(2), repeat=n), repeat=2):
            weight = math.prod(chain.transition[a, b] for a, b in pairwise(path))
            weight *= math.prod(distribution[x, z] for x, z in zip(path, symbols, strict=True))
            symbol_pairs = [2 * a + b for a, b in pairwise(symbols)]
            noise = math.exp(-sum(abs(60 * sign - symbol_pairs.count(z)) - 60 for z, sign in enumerate(signs)) / scale)
            like[path[secret]] += float(chain.initial[path[0]] / chain.initial[path[secret]]) * weight * noise
        true.append(abs(math.log(like[0] / like[1])))
    assert min(abs(enumerated - epsilon) for enumerated in true) < 1e-6
    assert 0.8 * max(true) < epsilon <= max(true)


@pytest.mark.long
def test_bounds_are_above_the_enumerated_epsilon_in_no_more_runs_than_stated() -> None:
    n = 1
    chain, distribution = MarkovChain.stationary([[0.8, 0.2], [0.3, 0.7]]), np.array([[0.7, 0.3], [0.4, 0.6]])
    mechanism = Mechanism(n, n // 2, 2, (Source(distribution, (0, 1), True),), ())
    true = exact(chain, distribution, np.ones(2), n, n // 2, is_known=False)
    assert witness(mechanism, chain).epsilon == pytest.approx(true, abs=1e-6)
    runs = [
        pick_event(lambda _: mechanism, [chain], np.random.default_rng(seed), 500, None, 0.2).epsilon_low
        for seed in range(100)
    ]
    assert sum(least > true for least in runs) <= 20
    assert np.mean(runs) > 0.5 * true


NAMED = ("--for", "home/room", "--epoch", "1700000000")


@pytest.mark.long
def test_a_policy_of_every_kind_that_can_be_planned_is_attacked_as_a_whole(fugu: Fugu, tmp_path: Path) -> None:
    """None is said not to be attacked, nobody's outputs are left out, and no honest promise is refuted."""
    generator, a, b, rows = np.random.default_rng(4), 0, 0, ["t,light,motion"]
    for tick, (light, motion, other) in enumerate(generator.random((1000, 3))):
        a ^= int(light < 0.4)
        b = a if motion < 0.5 else b ^ int(other < 0.4)
        rows.append(f"{60 * tick},{a},{b}")
    (tmp_path / "room.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "place.toml").write_text(
        'grid = "2x2"\nepsilon = 1.0\ngraph = {complete = true}\nfleet = "home"\ndevice = "room"\n'
        'stream = "place"\nperiod = 60\nepoch = 1700000000\n'
    )
    named = ("--for", "home/room/s", *NAMED[2:])
    options = ("--threshold", ".5", "--states", "off,on", *named, "--epsilon", "1", "--period", "60")
    two, q, tick = (
        (*options, "-o"),
        ("--q", ".1:.2", "--r", ".2:.3"),
        ("--protect", "tick"),
    )  # what is attacked are ticks
    fugu("plan", "stream", *q, *tick, *two, tmp_path / "symbols.json")
    fugu("plan", "window", *q, *tick, *two, tmp_path / "windows.json", "--window", "5m", "--window", "day=20m:.3")
    fugu("plan", "window", *q, *tick, *two, tmp_path / "both.json", "--window", "5m", "--symbols", ".5")
    quilts = ("--mechanism", "mqm-exact", "--adversary", "ignorant")
    fugu("plan", "window", *q, *tick, *two, tmp_path / "quilts.json", "--window", "5m", *quilts)
    fit = ("plan", "model", tmp_path / "room.csv", "--column")
    fugu(*fit, "light,motion", "-o", tmp_path / "room.model")
    fugu(*fit, "light", "--order", "2", "-o", tmp_path / "order.model")
    known_words = ("--known", "--adversary", "ignorant")
    for name, more in (("odds", ()), ("known", known_words), ("counted", ("--window", "10m"))):
        fugu("plan", "joint", tmp_path / "room.model", "--epsilon", "1", *tick, *more, "-o", tmp_path / name, *NAMED)
    fugu("plan", "joint", tmp_path / "order.model", "--epsilon", "1", *tick, "-o", tmp_path / "order", *NAMED)
    fugu("plan", "measure", tmp_path / "place.toml", "-o", tmp_path / "place.json")
    planned_kinds = [[file] for file in sorted(tmp_path.glob("*.json"))]
    planned_kinds += [sorted((tmp_path / name).glob("*.json")) for name in ("odds", "known", "counted", "order")]
    assert [len(files) for files in planned_kinds] == [1] * 5 + [2, 2, 2, 1]
    for first, *others in planned_kinds:
        beside = (word for other in others for word in ("--with", other))
        done = fugu("check", "stream", first, *beside, "--trials", 1000, "--json")
        document = done.json()
        assert (done.code, document["not_attacked"], document["findings"]) == (0, [], []), first
        assert document["audiences"]
        for row in document["audiences"]:
            assert row["promised"] is None or 0.2 * row["promised"] < row["witness"] <= row["promised"], row
        if first.parent.name == "odds":
            alone = fugu("check", "stream", first, "--trials", 1000, "--json").json()
            assert "moves together" in alone["not_attacked"][0]
            assert alone["audiences"][0]["witness"] < document["audiences"][0]["witness"]
