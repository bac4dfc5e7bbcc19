"""The second certificate: against the first, against enumeration, and from both sides of a claim."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

from fugu.audit.exact import NotRecomputed, binary, points, stream_loss
from fugu.audit.exact.chains.claims import known_loss, recompute
from fugu.audit.exact.numbers import ONE, ceil_of, exp_up, log_up, sqrt_of
from fugu.contract.chains import BinaryChains, BoundedChains, JointChains, JointStream
from fugu.contract.losses import Adversary
from fugu.contract.measure_table import StaircaseNoise, TimedTable
from fugu.contract.noise_table import NoiseTable
from fugu.contract.windows import Window
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import MarkovChain
from tests.support.audited import CHAINS, WINDOWS, planned
from tests.support.measured import measure_policy
from tests.support.scenes import policy

ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)
PRECISE = Context(prec=90)


def root_up(x: Fraction) -> Fraction:
    return Fraction(sqrt_of(ceil_of(x)), ONE)


def read(document: Any) -> Any:
    """A document as the second implementation gets it."""
    return json.loads(document.model_dump_json())


def excess_of_devices(chains: Any, ratios: tuple[Fraction, Fraction], adversary: Adversary) -> Fraction:
    """How much more a device derives than the second implementation."""
    first = chains.ratio_loss(*chains.lasting_ratios(*ratios), adversary).epsilon
    return Fraction(first) - stream_loss(read(chains), ratios, adversary)


def true_value(text: str, x: Fraction) -> Fraction:
    """A function of a fraction, to 80 digits."""
    quotient = PRECISE.divide(Decimal(x.numerator), Decimal(x.denominator))
    return Fraction(getattr(PRECISE, text)(quotient))


@pytest.mark.parametrize("x", [Fraction(1), Fraction(9, 8), Fraction(10, 7), Fraction(2), Fraction(10**30, 7)])
def test_numbers_are_rounded_outward_and_hardly(x: Fraction) -> None:
    for rounded, name, most in ((log_up, "ln", 20), (exp_up, "exp", 3), (root_up, "sqrt", 10**40)):
        at = min(x, Fraction(most)) if name == "exp" else x
        above = rounded(at) - true_value(name, at)
        assert -Fraction(1, 10**80) * rounded(at) <= above <= Fraction(1, 10**48) * rounded(at) + Fraction(1, 10**48)
    assert 0 <= ceil_of(x) - x * ONE < 1


def test_a_loss_that_no_tick_has_is_not_recomputed() -> None:
    with pytest.raises(NotRecomputed):
        exp_up(Fraction(10_001))


@pytest.mark.parametrize("highest", [0.6, 0.98])
@pytest.mark.parametrize("seed", range(12))
def test_two_states_are_what_devices_derive(seed: int, highest: float) -> None:
    """Never above the first implementation, whose rounding is the coarser, and no more than 1e-12 below."""
    generator = np.random.default_rng(seed)
    q, r = generator.uniform(highest - 0.598, highest, 2).tolist()
    wider = 1.0 + 0.3 * float(generator.integers(2))
    chains = BinaryChains(q=(q, min(q * wider, 0.99)), r=(r, min(r * wider, 0.99)))
    ratios = (Fraction(1 + 3 * generator.random()), Fraction(1 + 3 * generator.random()))
    for adversary in ADVERSARIES:
        assert 0 <= excess_of_devices(chains, ratios, adversary) < 1e-12


@pytest.mark.parametrize("ratios", [(Fraction(3), Fraction(6, 5)), (Fraction(6, 5), Fraction(3))])
def test_where_chains_may_alternate_both_directions_are_held_to_the_larger_ratio(
    ratios: tuple[Fraction, Fraction],
) -> None:
    assert 0 <= excess_of_devices(BinaryChains(q=(0.02, 0.7), r=(0.4, 0.4)), ratios, "informed") < 1e-12


def test_a_known_state_counts_as_in_the_smallest_counterexample() -> None:
    """q = r = 7/20, flips 1/10: five ticks with both ends known lose log(106929/3721); a stream loses no less."""
    chains = BinaryChains(q=(0.35, 0.35), r=(0.35, 0.35))
    ignorant, informed = (stream_loss(read(chains), (Fraction(9), Fraction(9)), who) for who in ADVERSARIES[:2])
    assert float(ignorant) == pytest.approx(3.276704055359, abs=1e-12)
    assert informed > math.log(Fraction(106929, 3721)) > ignorant


@pytest.mark.long
@pytest.mark.parametrize(("q", "r", "ratio"), [(1e-6, 3e-6, 1.0001), (1 - 1e-6, 1 - 2e-6, 1.0001), (1e-12, 1e-9, 1.5)])
def test_chains_that_remember_for_millions_of_ticks_are_what_devices_derive(q: float, r: float, ratio: float) -> None:
    chains, ratios = BinaryChains(q=(q, q), r=(r, r)), (Fraction(ratio),) * 2
    first = chains.ratio_loss(*ratios, "informed").epsilon
    second = stream_loss(read(chains), ratios, "informed")
    assert 0 <= first - second < 1e-12 * first


def test_a_search_that_is_cut_short_still_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    chains, ratios = {"kind": "binary", "q": [1e-3] * 2, "r": [1e-3] * 2}, (Fraction(1.001),) * 2
    truth, most = (stream_loss(chains, ratios, who) for who in ADVERSARIES[1:])
    monkeypatch.setattr(binary, "_MAX_INTERVALS", 10)
    assert truth < stream_loss(chains, ratios, "informed") <= most


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_bounded_classes_are_what_devices_derive(adversary: Adversary) -> None:
    chains = BoundedChains(states=4, odds_ratio=9.7)
    assert 0 <= excess_of_devices(chains, (Fraction(7, 4), Fraction(7, 4)), adversary) < 1e-12


def random_chain(seed: int, k: int) -> list[list[float]]:
    generator = np.random.default_rng(seed)
    rows = 0.6 * np.eye(k) + 0.4 * generator.dirichlet(np.ones(k), size=k)
    return [[float(p) for p in row] for row in rows]


def known_of(rows: Any, ratio: Fraction, adversary: Adversary) -> Fraction:
    """Loss of a known chain, in nats, as the claim about all points of a stream has it."""
    bound = ceil_of(ratio)
    ticks = [[bound if x != y else ONE for y in range(len(rows))] for x in range(len(rows))]
    return log_up(known_loss(rows, ticks, adversary))


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("adversary", ADVERSARIES[:2])
def test_known_chains_are_what_the_accountant_derives(k: int, adversary: Adversary) -> None:
    rows, ratio = random_chain(1, k), Fraction(5, 4)
    first = ChainAccountant((MarkovChain.stationary(rows),)).loss(math.log(ratio), adversary).epsilon
    assert abs(known_of(rows, ratio, adversary) - Fraction(first)) < 2e-6 * first


CLASSES = (
    (CHAINS, "informed"),
    (CHAINS, "ignorant"),
    (BoundedChains(states=2, odds_ratio=13.5), "universal"),
    (BoundedChains(states=3, odds_ratio=9.0), "universal"),
)


@pytest.mark.long
@pytest.mark.parametrize(("chains", "adversary"), CLASSES)
@pytest.mark.parametrize("windows", [(), WINDOWS])
def test_what_is_planned_is_confirmed_and_a_millionth_less_is_not(
    chains: Any, adversary: Adversary, windows: tuple[Window, ...]
) -> None:
    plan = planned(chains, adversary, windows)
    for claim in recompute(json.loads(plan.to_json())):
        assert 0 <= claim.stated - claim.loss < 1e-6
    for name in ("guarantee", *(["windows_guarantee"] if windows else [])):
        document = json.loads(plan.to_json())
        document[name]["epsilon"] -= 1e-6
        assert sum(claim.loss > claim.stated for claim in recompute(document)) == 1


@pytest.mark.long
def test_windows_alone_are_counted_with_all_that_overlap() -> None:
    document = json.loads(planned(windows=WINDOWS).to_json())
    del document["table"]
    document["windows"][0]["stride"] = 7
    claims = recompute(document)
    assert [claim.output for claim in claims] == ["windows"]
    rate = Fraction(3, 400) + 2 * Fraction(3, 700)
    want = stream_loss(document["chains"], (exp_up(rate),) * 2, "informed")
    assert claims[0].loss == want


JOINT: Mapping[str, Any] = {
    "streams": (JointStream(name="hr", states=2, rate=0.3), JointStream(name="steps", states=2, rate=0.2)),
    "period_us": 1_000_000,
    "shows": ((0, 0), (0, 1), (1, 0), (1, 1)),
}


PAIRS: Mapping[str, Any] = {
    "streams": (JointStream(name="hr", states=2, rate=0.3),),
    "period_us": 1_000_000,
    "shows": ((0,), (1,), (0,), (1,)),
    "steps": 2,
    "transition": ((0.7, 0.3, 0.0, 0.0), (0.0, 0.0, 0.4, 0.6), (0.6, 0.4, 0.0, 0.0), (0.0, 0.0, 0.3, 0.7)),
}
"""Order 2: half of the steps are impossible."""


@pytest.mark.parametrize("fields", [JOINT, PAIRS])
def test_streams_that_move_together_are_what_devices_derive(fields: Mapping[str, Any]) -> None:
    chains = JointChains(**fields, odds_ratio=11.0)
    for adversary in ADVERSARIES:
        first = chains.joint_loss(adversary).epsilon
        second = stream_loss(read(chains), (Fraction(1), Fraction(1)), adversary)
        assert 0 <= first - second < 1e-12 * first


def test_a_stream_that_tells_more_than_its_joint_class_allows_is_found() -> None:
    content = read(policy(chains=JointChains(**JOINT, odds_ratio=2.0)))
    (_, tick) = recompute(content)
    assert tick.output == "a tick of the stream"
    assert tick.loss > tick.stated == Fraction(0.3)


GRAPHS: tuple[Mapping[str, Any], ...] = (
    {"radius": 1.0},
    {"complete": True},
    {"transition": True},
    {"categories": [x // 3 for x in range(9)]},
    {"edges": [(0, 1), (4, 5)]},
)


@pytest.mark.long
@pytest.mark.parametrize("graph", GRAPHS)
def test_points_are_confirmed_and_a_millionth_less_is_not(graph: dict[str, Any]) -> None:
    policy = measure_policy(3, graph=graph)
    policy.verify()
    near, far = recompute(json.loads(policy.to_json()))
    assert 0 <= near.stated - near.loss < 1e-6
    assert far.loss <= far.stated == 4
    document = json.loads(policy.to_json())
    document["epsilon"] -= 1e-6
    near, _ = recompute(document)
    assert near.loss > near.stated


def changed(text: str, row: int) -> str:
    """A table as a policy carries it, with a threshold moved so far that a cell is nearly empty."""
    table = TimedTable.of_text(text)
    assert isinstance(table.noise, NoiseTable)
    rows = [list(row) for row in table.noise.rows]
    rows[row][3] = rows[row][4] - 1
    noise = NoiseTable(tuple(map(tuple, rows)), table.noise.points)
    return TimedTable(table.policy_version, table.number, table.constraint, 0, table.until, noise).text


@pytest.mark.parametrize(("number", "state"), [(0, 4), (1, 4), (1, 8)])
def test_a_threshold_that_was_moved_is_found(number: int, state: int) -> None:
    """Also of a state without neighbours in the graph, which is hidden together with another."""
    document = json.loads(measure_policy(3, graph={"edges": [(0, 1), (3, 4)]}).to_json())
    tables = [document["fallback"], *document["tables"]]
    tables[number] = changed(tables[number], state)
    document["fallback"], document["tables"] = tables[0], tables[1:]
    near, _ = recompute(document)
    assert near.loss > near.stated


def test_a_fallback_hides_every_pair_whatever_the_graph_joins() -> None:
    """Two groups of states, alike inside and not with each other: every state has a partner, and the table is wrong."""
    document = json.loads(measure_policy(3, graph={"edges": [(0, 1)]}, tables=False).to_json())
    near, _ = recompute(document)
    assert 0 <= near.stated - near.loss < 1e-6
    table = TimedTable.of_text(document["fallback"])
    rows = [(1 << 30,)] * 4 + [(3 << 30,)] * 5
    noise = NoiseTable(tuple(rows), ((0, 0), (2, 2)))
    document["fallback"] = TimedTable(table.policy_version, 0, 0, 0, table.until, noise).text
    near, _ = recompute(document)
    assert float(near.loss) == pytest.approx(math.log(3))
    assert near.loss > near.stated


@pytest.mark.long
def test_a_staircase_is_as_steep_as_its_hull_says() -> None:
    """The likelihoods of points around two centres, by the sampler's own facets, against the gauge."""
    document = json.loads(measure_policy(11, tables=False).to_json())
    table = TimedTable.of_text(document["fallback"])
    assert isinstance(table.noise, StaircaseNoise)
    noise, at = table.noise.staircase, document["coordinates"]
    facets, likely = noise.facets(), (1 << len(at)) - 1
    kept_bytes = likely.to_bytes(-(-len(at) // 8), "little")
    ratio = points._staircase_ratio(
        at, [kept_bytes, [list(v) for v in noise.vertices], *noise.ratio.as_integer_ratio()]
    )

    @cache
    def shell(x: int, y: int) -> int:
        return max(-(-(a * x + b * y) // offset) for (a, b), offset in facets)

    around = list(product(range(-14, 15), repeat=2))
    for other in (1, 12, 40, 60, 120):
        dx, dy = at[other][0] - at[0][0], at[other][1] - at[0][1]
        cells = max(abs(shell(x, y) - shell(x - dx, y - dy)) for x, y in around)
        assert ratio(0, other) == (1 / noise.ratio) ** cells
    near, far = recompute(document)
    assert near.loss == far.loss <= near.stated
    document["epsilon"] -= 1e-6
    assert recompute(document)[0].loss > Fraction(document["epsilon"])


def test_a_hull_that_is_none_is_not_recomputed() -> None:
    for corners in ([[1, 0], [-1, 1]], [[2, 0], [1, 0], [-2, 0], [-1, 0]], [[1, 0], [0, -1], [-1, 0], [0, 1]]):
        with pytest.raises(NotRecomputed, match="hull"):
            points._gauges(corners, (1, 1))
    with pytest.raises(NotRecomputed, match="flat"):
        points._gauges([[1, 0], [-1, 0]], (1, 1))


def test_all_points_from_a_start_that_the_policy_excludes_are_not_recomputed() -> None:
    """Tables may tell a state that is taken for impossible from all others."""
    document = json.loads(measure_policy(3, start=0).to_json())
    for start in ("any", "stationary"):
        document["stream_loss"] = {"epsilon": 9.0, "adversary": "ignorant", "start": start}
        claim = recompute(document)[-1]
        assert (claim.output, claim.loss) == ("all points", None)
        assert "impossible" in claim.reason
