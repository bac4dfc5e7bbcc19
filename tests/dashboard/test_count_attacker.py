"""The attackers of counts on the page against those of `fugu.attackers`, window by window."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
import pytest

from fugu.attackers.learning import COUNT_ATTACKERS
from fugu.attackers.outputs import CountOutputs, Knowledge
from fugu.contract.chains import BinaryChains, ChainClass, FiniteChains
from fugu.contract.descriptions import Described, DescribedWindow, Description, describe
from fugu.contract.frames import WindowFrame
from fugu.contract.windows import Blocks
from gateway.page.attackers import EVERYTHING, ONE_WINDOW, AttackerError, AttackView, CountAttack, chains_of
from tests.support.processes import policy

LENGTH, SCALE = 40, "7/2"
ROUND = ((0.0, 0.7, 0.3), (0.2, 0.0, 0.8), (0.9, 0.1, 0.0))
STICKY = ((0.9, 0.06, 0.04), (0.1, 0.8, 0.1), (0.02, 0.08, 0.9))
BINARY = BinaryChains(q=(0.05, 0.1), r=(0.06, 0.2))


def told(
    chains: ChainClass = BINARY,
    states: tuple[str, ...] | Literal["histogram"] = ("s1",),
    k: int = 2,
    length: int = LENGTH,
    epsilon: float = 5.0,
) -> Description:
    """A stream of counts."""
    found = describe(policy(epoch_us=0, period_us=1_000_000))
    window = DescribedWindow(name="some", length=length, stride=length, start=0, states=states, scale=SCALE)
    return found.model_copy(
        update={
            **{"kind": "windows", "table": None, "chains": chains, "states": tuple(f"s{x}" for x in range(k))},
            **{
                "windows": (window,),
                "guarantee": Described(epsilon=epsilon, adversary="informed", stretch_ticks=1, stretches=()),
            },
        }
    )


@pytest.mark.long
@pytest.mark.parametrize("counts", [(0,), (13,), (36,), (-9,), (60,)])
@pytest.mark.parametrize(
    ("given", "groups"),
    [
        (told(), ((1,),)),
        (told(FiniteChains(transitions=(ROUND, STICKY)), ("s0", "s2"), 3), ((0, 2),)),
        (told(BINARY, "histogram"), ((0,), (1,))),
    ],
)
def test_each_attacker_finds_on_average_over_a_window_what_its_namesake_does(
    given: Description, groups: tuple[tuple[int, ...], ...], counts: tuple[int, ...]
) -> None:
    if len(groups) == 2:
        counts = (LENGTH - 3 - counts[0], counts[0])
    found = CountAttack(given).shares(counts)
    k = len(given.states)
    outputs = CountOutputs(
        *(np.array([counts]), np.array([0]), LENGTH, Fraction(SCALE), groups, LENGTH, k),
        present=np.ones(LENGTH, dtype=np.int64),
    )
    shares: dict[str, list[float]] = {EVERYTHING: [], ONE_WINDOW: []}
    for chain in chains_of(given):
        knowledge = Knowledge(np.array(chain.transition), np.zeros(LENGTH, dtype=np.int64))
        for name, all_shares in shares.items():
            all_shares.append(COUNT_ATTACKERS[name](outputs, knowledge)[:, groups[-1]].sum(axis=1).mean())
    expected = [(min(one), max(one)) for one in shares.values()]
    assert [(found.low, found.high), (found.low_alone, found.high_alone)] == [
        pytest.approx(x, abs=1e-9) for x in expected
    ]


@pytest.mark.long
def test_where_none_can_read_a_count_it_is_said_why() -> None:
    parts = told()
    [window] = parts.windows
    blocks = Blocks(zone="UTC", seconds=14_400, offsets=((0, 0),))
    for words, one in {
        "histograms of several states": told(FiniteChains(transitions=(STICKY,)), "histogram", 3),
        "counts by parts of the day": parts.model_copy(
            update={"windows": (window.model_copy(update={"blocks": blocks}),)}
        ),
        "Windows of 4000 ticks are too long": told(length=4000),
    }.items():
        with pytest.raises(AttackerError, match=words):
            CountAttack(one)
        view = AttackView()
        view.describe(one)
        update = view.due()
        assert update is not None
        assert words in update()["none"]


def test_whole_windows_of_this_policy_are_read_in_their_order() -> None:
    view = AttackView()
    view.describe(told())
    for index, count, observed, version in ((2, 30, LENGTH, 1), (0, 5, LENGTH, 1), (1, 9, 39, 1), (3, 9, LENGTH, 2)):
        first = index * LENGTH
        view.take_window(WindowFrame(version, "some", index - 1, index, first, LENGTH, observed, (count,)))
    view.take_window(WindowFrame(1, "other", -1, 0, 0, LENGTH, LENGTH, (5,)))
    update = view.due()
    assert update is not None
    assert view.due() is None
    found, attack = update(), CountAttack(told())
    assert found["low"] == [[round(attack.shares((count,)).low, 4) for count in (5, 30)]]
    assert found["times"] == [40.0, 120.0]
    assert (found["states"], found["guesses"], found["beyond"]) == (["s1"], ["s1"], False)
    assert found["low"][0][1] > 0.5 > found["high"][0][0]


def test_a_description_that_promises_more_than_its_noise_keeps_is_found() -> None:
    view = AttackView()
    view.describe(told(epsilon=0.5))
    view.take_window(WindowFrame(1, "some", -1, 0, 0, LENGTH, LENGTH, (40,)))
    update = view.due()
    assert update is not None
    assert update()["beyond"]
