"""A board's ticks come when an agent's do, whatever is done to the wall clock."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from fugu.contract.compiler import compile_board_policy
from fugu.contract.windows import Window
from tests.support.agents import stream_plan, window_plan
from tests.support.board_policies import board_policy
from tests.support.boards import SUPPORT, micropython
from tests.support.clocked_device import Device, check
from tests.support.clocks import SECOND, TwoClocks

NOW = 1_800_000_000
MINUTE = Window(name="minute", length=60, stride=60, states=(1,), scale="20")
MORE = Window(name="more", length=90, stride=90, states=(1,), scale="20")
SENSOR = {"kind": "call", "target": "time:time", "silence": "samples", "keep_alive_ticks": None}


def test_a_switch_between_fast_ticks_loses_none_and_draws_none_again(tmp_path: Path) -> None:
    generator = random.Random(4)
    moves: list[tuple[int, int] | None] = [(SECOND, NOW * SECOND), *[(7_000, 0)] * 600]
    for _ in range(20):
        moves.insert(generator.randrange(20, len(moves)), None)
    drawn = _same(tmp_path, moves, 20_000)
    assert [tick for tick, _, _ in drawn] == list(range(drawn[0][0], drawn[-1][0] + 1))


def _same(folder: Path, moves: list[tuple[int, int] | None], period: int) -> list[tuple[int, int, int]]:
    """Draws of the agent, and of the board: tick, shift and elapsed time of each."""
    plan = stream_plan(period_us=period, windows=(window_plan(name="minute", length=60),), sensor=SENSOR)
    plans = [plan, replace(plan, version=2, windows=(window_plan(name="more", length=90),))]
    device = Device(folder, TwoClocks(0.5, synchronised=False), plan)
    for move in moves:
        if move is None:
            plans.reverse()
            device.ticks.switch(plans[:1], lambda: None)
            continue
        passed, moved = move
        device.clocks.pass_us(passed)
        device.clocks.wall += moved
        device.clocks.known = device.clocks.wall >= (NOW - 1) * SECOND
        device.ticks.catch_up()
    device.crash()
    (folder / "first").write_bytes(compile_board_policy(board_policy(MINUTE, period_us=period)))
    (folder / "second").write_bytes(compile_board_policy(board_policy(MORE, version=2, period_us=period)))
    lines = ["switch" if move is None else "{} {}".format(*move) for move in moves]
    (folder / "moves").write_text("\n".join(lines) + "\n")
    files = folder / "first", folder / "second", (NOW - 1) * SECOND, folder / "outbox", folder / "moves"
    process = micropython(SUPPORT / "board_clock.py", *files, heap="200k")
    drawn = [tuple(map(int, line.split())) for line in process.splitlines()]
    assert drawn == device.drawn
    check(device.drawn, period)
    return device.drawn
