"""The attackers of the page against those of `fugu.attackers`, number by number, and against what is promised."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from fugu.attackers.learning import ATTACKERS
from fugu.attackers.outputs import Knowledge, SymbolOutputs
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, FiniteChains, JointChains
from fugu.contract.class_of_chains import Shown
from fugu.contract.descriptions import Described, Description, describe
from fugu.contract.frames import SymbolFrame
from fugu.contract.noise_table import NoiseTable
from gateway.page import attackers
from gateway.page.attackers import EVERYTHING, MOST_TICKS, ONE_SYMBOL, AttackerError, AttackView, attacked, chains_of
from tests.support.processes import policy

TERNARY = NoiseTable(((2_000_000_000, 3_000_000_000), (900_000_000, 3_300_000_000), (1_100_000_000, 2_100_000_000)))
ROUND = ((0.0, 0.7, 0.3), (0.2, 0.0, 0.8), (0.9, 0.1, 0.0))
STICKY = ((0.9, 0.06, 0.04), (0.1, 0.8, 0.1), (0.02, 0.08, 0.9))


def told(chains: ChainClass | None = None, table: NoiseTable | None = None, epsilon: float = 1.0) -> Description:
    """A stream of symbols, of as many states as its table."""
    found = describe(policy(epoch_us=0, period_us=1_000_000))
    chains = chains or found.chains
    rows = found.table if table is None else table.rows
    assert rows is not None
    states = tuple(f"s{x}" for x in range(len(rows)))
    promise = Described(epsilon=epsilon, adversary="informed", stretch_ticks=1, stretches=())
    return found.model_copy(update={"chains": chains, "table": rows, "states": states, "guarantee": promise})


def some(symbols: int, seed: int, ticks: int = 150) -> list[int]:
    """Symbols, every seventh of them absent."""
    generator = random.Random(seed)
    return [-1 if t % 7 == 3 else generator.randrange(symbols) for t in range(ticks)]


def theirs(name: str, given: Description, transition: Sequence[Sequence[float]], symbols: list[int]) -> np.ndarray:
    """What an attacker of `fugu.attackers` makes of it, which believes one chain."""
    assert given.table is not None
    weights = np.array(NoiseTable(given.table).weights(), dtype=float)
    outputs = SymbolOutputs(np.array(symbols), weights / weights.sum(axis=1, keepdims=True))
    return ATTACKERS[name](outputs, Knowledge(np.array(transition), np.zeros(len(symbols), dtype=np.int64)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("chains", "table"),
    [
        (BinaryChains(q=(0.05, 0.1), r=(0.06, 0.2)), NoiseTable.binary(1_500_000_000, 1_100_000_000)),
        (BinaryChains(q=(0.3, 0.7), r=(0.9, 0.9)), NoiseTable.binary(900_000_000, 400_000_000)),
        (FiniteChains(transitions=(ROUND, STICKY)), TERNARY),
        (BoundedChains(states=3, odds_ratio=1e4, transition=STICKY), TERNARY),
    ],
)
@pytest.mark.parametrize("gap", [False, True])
def test_each_attacker_finds_what_its_namesake_does(chains: ChainClass, table: NoiseTable, gap: bool) -> None:
    given, symbols = told(chains, table), some(len(table.rows), 1)
    if gap:
        symbols[20:90] = [-1] * 70
        symbols[-1] = -1
    believed = chains_of(given)
    for chain in believed:
        found = attacked(given, [chain], symbols)
        everything = theirs(EVERYTHING, given, chain.transition, symbols)
        assert found.low == found.high == pytest.approx(everything, abs=1e-9)
        assert found.guesses == [everything[-1].argmax()]
        newest = max(t for t, symbol in enumerate(symbols) if symbol >= 0)
        single = theirs(ONE_SYMBOL, given, chain.transition, symbols)[newest]
        assert found.low_alone == pytest.approx(single, abs=1e-9)
    together = attacked(given, believed, symbols)
    each = np.array([theirs(EVERYTHING, given, chain.transition, symbols) for chain in believed])
    assert together.low == pytest.approx(each.min(axis=0), abs=1e-9)
    assert together.high == pytest.approx(each.max(axis=0), abs=1e-9)
    assert together.chains == len(believed)


def test_a_joint_chain_is_attacked_by_the_state_that_it_shows() -> None:
    order_2 = ((0.9, 0.1, 0.0, 0.0), (0.0, 0.0, 0.4, 0.6), (0.7, 0.3, 0.0, 0.0), (0.0, 0.0, 0.2, 0.8))
    shows = ((0,), (1,), (0,), (1,))
    joint = JointChains(
        streams=(Shown(name="hr", states=2, rate=1.0),), period_us=1_000_000, shows=shows, transitions=(order_2,)
    )
    given, symbols = told(joint), some(2, 3)
    assert given.table is not None
    wide = given.model_copy(update={"table": tuple(given.table[x] for (x,) in shows)})
    hidden = theirs(EVERYTHING, wide, order_2, symbols)
    expected = np.stack([hidden[:, [0, 2]].sum(axis=1), hidden[:, [1, 3]].sum(axis=1)], axis=1)
    assert attacked(given, chains_of(given), symbols).low == pytest.approx(expected, abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("ends", [((0.05, 0.1), (0.06, 0.2)), ((0.2, 0.5), (0.1, 0.4)), ((0.3, 0.7), (0.3, 0.8))])
def test_no_other_chain_of_the_class_is_far_outside_the_band(
    ends: tuple[tuple[float, float], tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside the class something may be a little beyond what 16 of its chains reach: less than a point in a hundred."""
    given, symbols = told(BinaryChains(q=ends[0], r=ends[1])), some(2, 5, 60)
    found = attacked(given, chains_of(given), symbols)
    monkeypatch.setattr(attackers, "_EACH_WAY", 13)
    dense = attacked(given, chains_of(given), symbols)
    assert (found.chains, dense.chains) == (16, 169)
    assert (np.array(found.low) - np.array(dense.low)).max() < 0.01
    assert (np.array(dense.high) - np.array(found.high)).max() < 0.01
    assert (np.array(found.high) - np.array(found.low)).max() > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_nobody_gets_beyond_what_the_promise_allows(seed: int) -> None:
    """Of a policy whose guarantee devices have checked; a narrower one would be broken by the same symbols."""
    given = describe(policy(epoch_us=0, period_us=1_000_000))
    symbols = [1] * 60 if seed == 0 else some(2, seed)
    found = attacked(given, chains_of(given), symbols)
    assert (np.array(found.low) >= np.array(found.least)).all()
    assert (np.array(found.high) <= np.array(found.most)).all()
    if seed == 0:
        promise = Described(epsilon=0.1, adversary="universal", stretch_ticks=1, stretches=())
        narrow = attacked(given.model_copy(update={"guarantee": promise}), chains_of(given), symbols)
        assert (np.array(narrow.high) > np.array(narrow.most)).any()


def test_where_no_attacker_applies_it_is_said_why() -> None:
    given = told()
    refused = {
        "reads points": given.model_copy(update={"kind": "points", "table": None}),
        "names no chain": given.model_copy(update={"chains": BoundedChains(states=2, odds_ratio=3.0)}),
        "up to 12 states": given.model_copy(
            update={"chains": BoundedChains(states=13, odds_ratio=1.0, transition=((1 / 13,) * 13,) * 13)}
        ),
    }
    for words, one in refused.items():
        with pytest.raises(AttackerError, match=words):
            chains_of(one)
        view = AttackView()
        view.describe(one)
        update = view.due()
        assert update is not None
        assert words in update()["none"]


def test_what_does_not_fit_together_is_said_and_stops_nobody() -> None:
    view = AttackView()
    view.describe(told(FiniteChains(transitions=(STICKY,))))
    view.take(SymbolFrame(1, -1, 0, bytes([0, 1, 0])))
    update = view.due()
    assert update is not None
    assert "does not fit together" in update()["none"]


def test_a_description_that_promises_more_than_its_table_keeps_is_found() -> None:
    for epsilon, beyond in ((1.0, False), (0.1, True)):
        given = describe(policy(epoch_us=0, period_us=1_000_000))
        promise = Described(epsilon=epsilon, adversary="universal", stretch_ticks=1, stretches=())
        view = AttackView()
        view.describe(given.model_copy(update={"guarantee": promise}))
        view.take(frame(0, "1" * 60))
        update = view.due()
        assert update is not None
        assert update()["beyond"] is beyond


def frame(first: int, symbols: str, version: int = 1, shift: int = 0) -> SymbolFrame:
    return SymbolFrame(version, -1, first, bytes(map(int, symbols)), shift=shift)


def test_exactly_the_symbols_that_came_are_weighed_whenever_they_came() -> None:
    given = describe(policy(epoch_us=0, period_us=1_000_000))
    view = AttackView()
    view.take(frame(14, "01", shift=2))  # before it is described, and after the clock was set by two ticks
    assert view.due() is None
    view.describe(given)
    view.take(frame(5, "1"))  # late
    view.take(frame(9, "1111", version=2))
    update = view.due()
    assert update is not None
    assert view.due() is None
    told_of = update()
    expected = attacked(given, chains_of(given), [1, *[-1] * 8, 0, 1])
    assert told_of["low"] == [[round(low, 4) for _, low in expected.low]]
    assert "the 3 newest symbols" in told_of["read"]
    assert told_of["times"][0] == 5.0
    assert told_of["times"][-1] == 13.0
    view.take(frame(14 + MOST_TICKS, "0" * MOST_TICKS))
    update = view.due()
    assert update is not None
    assert len(update()["times"]) == MOST_TICKS
