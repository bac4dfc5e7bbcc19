"""Attackers on the page, from what came; and their process, which begins, ends and dies."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass
from fugu.contract.descriptions import DescribedPromise, DescribedWindow, Description, describe
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.windows import Blocks
from gateway.page import attackers
from gateway.page.attackers import MOST_TICKS, AttackProcess, AttackView, answer
from tests.support.brokers import has_ended, wait_until
from tests.support.processes import policy

LENGTH = 40
BINARY = BinaryChains(q=(0.05, 0.1), r=(0.06, 0.2))
STICKY = ((0.9, 0.06, 0.04), (0.1, 0.8, 0.1), (0.02, 0.08, 0.9))


def symbols(chains: ChainClass | None = None, epsilon: float | None = None, **fields: Any) -> Description:
    description = describe(policy(epoch_us=0, period_us=1_000_000))
    update = {**fields, **({} if chains is None else {"chains": chains})}
    if epsilon is not None:
        update["guarantee"] = DescribedPromise(epsilon=epsilon, adversary="universal", stretch_ticks=1, stretches=())
    return description.model_copy(update=update)


def counts(
    states: tuple[str, ...] | Literal["histogram"] = ("s1",), epsilon: float = 5.0, blocks: Blocks | None = None
) -> Description:
    """A stream of counts, of two states."""
    window = DescribedWindow(
        name="some", length=LENGTH, stride=LENGTH, start=0, states=states, scale="7/2", blocks=blocks
    )
    return symbols(BINARY, epsilon, kind="windows", table=None, states=("s0", "s1"), windows=(window,))


def frame(first: int, digits: str, version: int = 1, shift: int = 0) -> SymbolFrame:
    return SymbolFrame(version, -1, first, bytes(map(int, digits)), shift=shift)


def update(view: AttackView) -> dict[str, Any]:
    """Updates for the page; attackers answer in this process."""
    due_attack = view.due_attack()
    assert view.due_attack() is None
    return due_attack(answer)


@pytest.mark.parametrize(
    ("words", "description"),
    [
        ("reads points", symbols(kind="points", table=None)),
        ("names no chain", symbols(BoundedChains(states=2, odds_ratio=3.0))),
        ("do not fit", symbols(BoundedChains(states=3, odds_ratio=1e4, transition=STICKY))),
        ("counts by parts of the day", counts(blocks=Blocks(zone="UTC", seconds=14_400, offsets=((0, 0),)))),
        ("reads such counts", counts(("s0", "s1"))),
    ],
)
def test_where_no_attacker_applies_it_is_said_why(words: str, description: Description) -> None:
    view = AttackView()
    view.describe(description)
    view.take(frame(0, "010"))
    view.take_window(WindowFrame(1, "some", -1, 0, 0, LENGTH, LENGTH, (5,)))
    assert words in update(view)["none"]


@pytest.mark.parametrize(
    ("description", "beyond"),
    [
        (symbols(epsilon=1.0), False),
        (symbols(epsilon=0.1), True),
        (counts(epsilon=5.0), False),
        (counts(epsilon=0.5), True),
    ],
)
def test_what_is_beyond_the_promise_of_a_description_is_found(description: Description, beyond: bool) -> None:
    view = AttackView()
    view.describe(description)
    view.take(frame(0, "1" * 60))
    view.take_window(WindowFrame(1, "some", -1, 0, 0, LENGTH, LENGTH, (40,)))
    assert update(view)["beyond"] is beyond


def test_exactly_the_symbols_that_came_are_weighed_whenever_they_came() -> None:
    view = AttackView()
    view.take(frame(14, "01", shift=2))  # before it is described, and after the clock was set by two ticks
    assert view.due_attack() is None
    description = symbols()
    view.describe(description)
    view.take(frame(5, "1"))  # late
    view.take(frame(9, "1111", version=2))
    picture = update(view)
    expected = answer("read_symbols", description, [1, *[-1] * 8, 0, 1])
    assert picture["low"] == [[round(low, 4) for _, low in expected["low"]]]
    assert "the 3 newest symbols" in picture["read"]
    assert (picture["times"][0], picture["times"][-1]) == (5.0, 13.0)
    view.take(frame(14 + MOST_TICKS, "0" * MOST_TICKS))
    assert len(update(view)["times"]) == MOST_TICKS


@pytest.mark.parametrize(("states", "extra"), [(("s1",), ()), ("histogram", (0,))])
def test_whole_windows_of_this_policy_are_read_in_their_order(
    states: tuple[str, ...] | Literal["histogram"], extra: tuple[int, ...]
) -> None:
    view = AttackView()
    view.describe(counts(states))
    for index, count, observed, version in ((2, 30, LENGTH, 1), (0, 5, LENGTH, 1), (1, 9, 39, 1), (3, 9, LENGTH, 2)):
        first, histogram = index * LENGTH, (*(LENGTH - count for _ in extra), count)
        view.take_window(WindowFrame(version, "some", index - 1, index, first, LENGTH, observed, histogram))
    view.take_window(WindowFrame(1, "other", -1, 0, 0, LENGTH, LENGTH, (5,)))
    picture = update(view)
    assert picture["times"] == [40.0, 120.0]
    assert (picture["states"], picture["guesses"], picture["beyond"]) == (["s1"], ["s1"], False)
    assert picture["low"][0][1] > 0.5 > picture["high"][0][0]


@pytest.fixture
def process() -> Iterator[AttackProcess]:
    process = AttackProcess()
    yield process
    process.close()


def pid_of(process: AttackProcess) -> int | None:
    return None if process._process is None else process._process.pid


@pytest.mark.long
def test_the_process_begins_when_asked_dies_without_harm_and_ends_for_good(
    process: AttackProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = ("read_symbols", symbols(), [0, 1, 1])
    assert pid_of(process) is None
    assert process.ask(*question) == answer(*question)
    first = pid_of(process)
    assert first is not None
    process.end_if_idle()
    assert pid_of(process) == first  # it has just been asked
    os.kill(first, 9)
    assert "has ended" in process.ask(*question)["none"]
    assert "in a minute" in process.ask(*question)["none"]
    assert pid_of(process) is None
    monkeypatch.setattr(attackers, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(process, "_not_before", 0.0)
    monkeypatch.setattr(attackers, "_PATIENCE_SECONDS", 0.0)
    assert "took too long" in process.ask(*question)["none"]
    assert pid_of(process) is None
    monkeypatch.setattr(attackers, "_PATIENCE_SECONDS", 60.0)
    assert process.ask(*question) == answer(*question)
    assert pid_of(process) not in (None, first)
    monkeypatch.setattr(attackers, "_IDLE_SECONDS", -1.0)
    process.end_if_idle()
    assert pid_of(process) is None
    process.close()
    assert "has ended" in process.ask(*question)["none"]
    assert pid_of(process) is None


@pytest.mark.long
def test_it_ends_with_the_page_which_has_no_numerical_library_by_asking() -> None:
    script = (
        "import os, pickle, sys; from gateway.page.attackers import AttackProcess\n"
        "import gateway.page.application, gateway.page.ledger_view, gateway.page.server\n"
        "process, description = AttackProcess(), pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "found = process.ask('read_symbols', description, [0, 1])\n"
        "heavy = {'numpy', 'numba', 'scipy', 'pyarrow', 'psycopg'} & set(sys.modules)\n"
        "print(process._process.pid, sorted(heavy), found['chains'], flush=True); os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", script, pickle.dumps(symbols(BINARY)).hex()]
    done = subprocess.run(command, capture_output=True, text=True)
    number, rest = done.stdout.split(maxsplit=1)
    assert rest == "[] 16\n"
    wait_until(lambda: has_ended(int(number)))
