"""Boards with faults of every kind: nothing that was sealed is lost, and no tick is drawn twice."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.contract.windows import Window
from tests.support.board_faults import FAULTS, BoardDevice, Heard, Stored, outcome, schedule
from tests.support.board_policies import board_policy, quick
from tests.support.board_simulation import simulate
from tests.support.boards import MICROPYTHON
from tests.support.faulty_boards import Life, Sealed
from tests.support.simulated_states import simulate_states

assert MICROPYTHON  # where MicroPython is not packaged, importing it skips this file
TEN = Window(name="ten", length=10, stride=10, states=(1,), scale="20")


@pytest.mark.long
@pytest.mark.parametrize(("seconds", "rounds", "seed"), [(8, 1, 5), pytest.param(60, 3, 6, marks=pytest.mark.soak)])
def test_a_fault_of_every_kind(seconds: int, rounds: int, seed: int, tmp_path: Path) -> None:
    policy = quick(board_policy(TEN, frame_ticks=5, period_us=100_000))
    result = simulate(policy, tmp_path, boards=3, seconds=seconds, seed=seed, rounds=rounds, broker="auto")
    print(*result.faults, *result.outcomes, result.counted, sep="\n")
    assert result.sound
    assert {fault.kind for fault in result.faults} == set(FAULTS)
    boards = result.outcomes
    assert [board.version for board in boards] == ["micropython-1", "micropython-1 (computational)", "micropython-1"]
    for board in boards:
        arrived = board.received + board.windows_received
        assert board.ticks + board.windows == arrived + board.unsent + board.rotten
        assert board.received > 0
        assert board.windows_received > 0
    assert sum(board.starts for board in boards) > 3
    assert sum(board.rotten for board in boards) <= 10 * rounds


class _Told:
    """A board's process that has a life already."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def life(self) -> Life:
        return self._life


def _frame(first: int, symbols: bytes, previous: int = -1) -> SymbolFrame:
    return SymbolFrame(1, previous, first, symbols)


def test_what_is_lost_or_drawn_twice_is_counted() -> None:
    first, two, three = _frame(0, b"\0\1\0"), _frame(3, b"\1\1\1", 2), _frame(6, b"\0\0\0", 5)
    sealed = [Sealed(frame.last, "hr", frame.last, frame.encode()) for frame in (first, two, three)]
    life = Life(drawn=[("hr", tick) for tick in range(9)], sealed=sealed, starts=1)
    heard = Heard.__new__(Heard)
    heard.versions = {"b": "micropython-1"}
    heard.published = [("b", "hr", frame.payload) for frame in sealed]

    def state_of(stored: list[SymbolFrame], **changes: object) -> tuple[int, ...]:
        board = BoardDevice("b", _Told(life), None, **changes)
        verdict = outcome(board, heard, Stored(symbols={"hr": stored}))
        assert verdict.sound == (not verdict.lost and not verdict.twice)
        return verdict.received, verdict.unsent, verdict.rotten, verdict.lost, verdict.twice

    assert state_of([first, two, three]) == (9, 0, 0, 0, 0)
    assert state_of([first, three]) == (6, 0, 0, 3, 0)
    assert state_of([first, three], rotten=[sealed[1]]) == (6, 0, 3, 0, 0)
    assert state_of([first, _frame(3, b"\1\0\1", 2), three]) == (8, 0, 0, 1, 0)
    life.unsent.add(("hr", 5))
    assert state_of([first, three]) == (6, 3, 0, 0, 0)
    life.drawn.append(("hr", 4))
    assert state_of([first, two, three]) == (9, 0, 0, 0, 1)
    heard.published.append(("b", "hr", _frame(3, b"\1\0\0", 2).encode()))
    assert state_of([first, two, three]) == (9, 0, 0, 0, 3)
    assert SymbolFrame.decode(sealed[0].payload) == first


def test_a_schedule_has_every_kind_and_comes_again() -> None:
    faults = schedule(["a", "b", "c"], 60.0, 3, rounds=2)
    assert faults == schedule(["a", "b", "c"], 60.0, 3, rounds=2)
    assert faults != schedule(["a", "b", "c"], 60.0, 4, rounds=2)
    assert sorted(fault.kind for fault in faults) == sorted([*FAULTS] * 2)
    for name in "abc":
        ends = [(fault.at, fault.at + fault.seconds) for fault in faults if fault.device == name]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
        assert 0 <= ends[0][0] <= ends[-1][1] <= 60.0


def test_chains_start_from_their_stationary_distribution() -> None:
    starts = [simulate_states(((0.98, 0.02), (0.06, 0.94)), 1, random.Random(i))[0] for i in range(2000)]
    assert abs(sum(starts) / 2000 - 0.25) < 5 * (0.25 * 0.75 / 2000) ** 0.5
