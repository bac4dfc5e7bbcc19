"""The core on a board, whatever happens to its machine: silence, late ticks, means; no word of randomness stays."""

from __future__ import annotations

import os
import runpy
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firmware_sim.build import BOARD
from fugu.contract.compiler import compile_board_policy
from fugu.core import clocks, noise, ticks
from fugu.core.compiled import read_policy
from fugu.core.stream import Stream
from tests.support.board_modules import board_module
from tests.support.device_net import CASES
from tests.support.entropy import seeded

PERIOD = 1_000_000
HOUR = 3600 * PERIOD


class Clock:
    """Time passes with every step."""

    anchors, offset_us, patience_us, elapsed, step = 1, 0, 0, HOUR, PERIOD

    def elapsed_us(self) -> int:
        return self.elapsed

    def now_us(self) -> int:
        return self.elapsed

    def follow(self) -> None:
        self.elapsed += self.step


def test_a_board_draws_nothing_while_it_is_to_be_silent() -> None:
    policy = SimpleNamespace(
        period_us=PERIOD, frame_ticks=4, valid_from=0, valid_until=0, windows=(), repeats=(), symbols=False
    )
    sealed: list[tuple[str, int]] = []
    outbox = SimpleNamespace(
        **{"reserved": -1, "clock": (0, PERIOD), "shift": 0, "since": 0},
        set_shift=lambda *_: None,
        reserve=lambda _last_tick: None,
        seal=lambda *sealing: sealed.append(sealing),
    )
    drawn: list[int] = []
    stream = SimpleNamespace(
        memory=None, is_empty=True, close_gap=lambda _: None, tick=lambda tick, _: drawn.append(tick)
    )
    silent: list[str] = []
    read = iter(range(1000))
    ticker = ticks.Ticker(
        policy, Clock(), outbox, lambda *_: stream, lambda: next(read), lambda _: silent[0] if silent else None
    )
    for _ in range(10):
        ticker.step()
    before = len(drawn)
    silent.append("stopped")
    stream.is_empty = False

    def close() -> str:
        stream.is_empty = True
        return "the frame under way"

    stream.close = close
    for _ in range(10):
        ticker.step()
    assert (len(drawn), ticker.trouble, next(read)) == (before, "stopped", before)
    assert sealed == [("the frame under way", drawn[-1])]
    silent.clear()
    for _ in range(10):
        ticker.step()
    assert drawn[before:] == list(range(drawn[before - 1] + 11, drawn[before - 1] + 21))
    assert ticker.trouble is None


def test_after_a_restart_a_board_keeps_its_distance_and_its_shift_which_other_windows_lift() -> None:
    clock, drawn, expected = Clock(), list[tuple[int, int]](), list[Any]()
    clock.step, clock.elapsed = PERIOD // 4, HOUR + PERIOD // 2
    start = HOUR // PERIOD + 7
    outbox = SimpleNamespace(reserved=start - 20, clock=(0, PERIOD), shift=7, since=0, expect=expected.append)
    outbox.set_shift = lambda shift, since: vars(outbox).update(shift=shift, since=since)
    stream = SimpleNamespace(
        **{"memory": None, "is_empty": True, "close_gap": lambda _: None},
        tick=lambda tick, _: drawn.append((tick, clock.elapsed)),
    )
    terms = {"period_us": PERIOD, "frame_ticks": 4, "valid_from": 0, "valid_until": 0, "symbols": False}
    policies = [SimpleNamespace(**terms, repeats=repeats) for repeats in ((), (10,))]
    ticker = ticks.Ticker(policies[0], clock, outbox, lambda *_: stream, lambda: 70)
    for policy in policies:
        if policy is not ticker.policy:
            ticker.switch(policy)
        for _ in range(12):
            ticker.step()
    assert [tick for tick, _ in drawn] == [*range(start + 2, start + 4), *range(start + 7, start + 10)]
    assert drawn[0][1] >= HOUR + PERIOD // 2 + PERIOD
    assert (outbox.shift, expected) == (10, policies[1:])


def test_a_frame_that_a_gap_ends_is_stored_although_no_other_fits() -> None:
    """Its symbols were lost: the gateway waited for ticks that the next frame called drawn."""
    sealed: list[str] = []
    outbox = SimpleNamespace(reserved=-1, fits=lambda: False, seal=lambda frames, _last: sealed.extend(frames))
    ticker = object.__new__(ticks.Ticker)
    ticker.policy = SimpleNamespace(frame_ticks=4, symbols=2)
    ticker.begin = lambda _anchored: 20
    ticker._stream = SimpleNamespace(is_empty=True, close_gap=lambda _tick: ["the frame before the gap"])
    ticker._anchored, ticker._outbox, ticker._read = None, outbox, lambda: 70
    assert not ticker._tick()
    assert (sealed, ticker.trouble) == (["the frame before the gap"], "storage-full")


def test_no_stream_waits_for_ever_for_one_that_the_machine_made_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of recordings waits for the slowest stream; the first ran alone, and was 20 periods late."""
    machine, period, drawn = SimpleNamespace(now=HOUR), 1000, list[str]()
    both = SimpleNamespace(now_us=lambda _: machine.now, elapsed_us=lambda _: machine.now)
    monkeypatch.setattr(board_module("clock"), "SystemClock", type("Machine", (), vars(both)))
    monkeypatch.setattr(ticks.Ticker, "_tick", ticks.Ticker._tick)
    playing = runpy.run_path(str(BOARD / "play.py"))
    clock = playing["patient_clock"](2)
    playing["Playing"](clock)
    anchored = clocks.Anchored(clock, lambda _: True)

    def ticker(name: str) -> Any:
        policy = {"stream": name, "period_us": period, "frame_ticks": 4, "valid_from": 0, "valid_until": 0}
        outbox = SimpleNamespace(reserved=-1, clock=(0, period), shift=0, since=0, set_shift=lambda *_: None)
        stream = SimpleNamespace(
            memory=None, is_empty=True, close_gap=lambda _: None, tick=lambda *_: drawn.append(name)
        )
        namespace = SimpleNamespace(**policy, repeats=(), symbols=False)
        return ticks.Ticker(namespace, anchored, outbox, lambda *_: stream, lambda: 70)

    first, second = ticker("first"), ticker("second")
    for passed in (0, period, 20 * period):
        machine.now += passed
        first.step()
    assert drawn == ["first"] * 2
    for _ in range(100):
        second.step()
        first.step()
        machine.now += period
    assert min(drawn.count("first"), drawn.count("second")) > 90


def drawing(rows: Sequence[Sequence[int]], entropy: Callable[[memoryview], None]) -> Callable[[int | None], int]:
    return noise.randomiser(rows, *noise.word_block(entropy))[0]


@pytest.mark.parametrize(("word", "symbol"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (2**32 - 1, 2)])
def test_a_symbol_of_a_board_changes_exactly_at_its_threshold(word: int, symbol: int) -> None:
    def fill(block: memoryview) -> None:
        block[:] = array("I", [word] * noise.BLOCK_WORDS).tobytes()

    assert drawing(((5, 6), (10, 20)), fill)(1) == symbol


def test_every_word_of_a_board_is_used_once_and_no_byte_of_it_stays() -> None:
    blocks: list[memoryview] = []

    def fill(block: memoryview) -> None:
        blocks.append(block)
        block[:] = bytes(range(1, len(block) + 1))

    words, refill = noise.word_block(fill)
    draw, discard = noise.randomiser(((1,), (1,)), words, refill)
    for number in range(1, noise.BLOCK_WORDS + 1):
        draw(0)
        assert [word == 0 for word in words] == [False] * (noise.BLOCK_WORDS - number) + [True] * number
        assert blocks == [bytes(4 * noise.BLOCK_WORDS)], "nothing of a block stays where it came from"
    draw(0)
    assert len(blocks) == 2
    discard()
    draw(0)
    assert len(blocks) == 3, "after a fork no word is used that was there before"
    for below in (3, 2**16, 2**31):
        noise.uniform_below(fill)(below)
        assert blocks.pop() == bytes((below - 1).bit_length() + 7 >> 3)


def test_a_frame_that_waits_for_the_disk_comes_before_those_of_the_next_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next policy's first frame said that the ticks of the frame before were lost."""
    module, clock = board_module("outbox"), Clock()
    monkeypatch.setattr(os, "ilistdir", lambda folder: [(file.name,) for file in Path(folder).iterdir()], raising=False)
    first, second = (
        read_policy(compile_board_policy(CASES["running mean"].policy.model_copy(update={"version": version})))
        for version in (1, 2)
    )
    clock.step = first.period_us
    outbox = module.Outbox(str(tmp_path / "outbox"), first)

    def stream(policy: Any, outbox: Any) -> Stream:
        return Stream(policy, seeded(1), outbox)

    ticker = ticks.Ticker(first, clock, outbox, stream, lambda: 70)
    while ticker._stream is None or len(ticker._stream._symbols) < first.frame_ticks - 1:
        ticker.step()

    def fail(*_: object) -> None:
        raise OSError(5, "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(module, "open", fail, raising=False)
        assert not ticker.step()
    ticker.close()
    ticker.switch(second)
    for _ in range(3 * second.frame_ticks):
        ticker.step()
    sent, segment = list[tuple[int, int]](), outbox.next(0)
    while segment is not None:
        sent += [(previous, last) for name, previous, last, _ in segment[1] if "/" not in name]
        segment = outbox.next(segment[0])
    assert [previous for previous, _ in sent] == [-1, *(last for _, last in sent[:-1])]
    assert len(sent) > 1


class JumpingMachine:
    """A board's clock and outbox, as far as ticks need them; the wall clock can be set."""

    reserved, clock, shift, since, last_framed = -1, (0, PERIOD), 0, 0, -1

    def __init__(self) -> None:
        self.elapsed, self.offset = HOUR, 0
        self.indices: dict[str, int] = {}

    def elapsed_us(self) -> int:
        return self.elapsed

    def now_us(self) -> int:
        return self.elapsed + self.offset

    def set_shift(self, shift: int, since: int) -> None:
        self.shift, self.since = shift, since

    def reserve(self, through: int) -> None:
        self.reserved = through

    def fits(self) -> bool:
        return True

    def seal(self, *_: object) -> None: ...

    def expect(self, _policy: object) -> None: ...


@pytest.mark.parametrize("happens", ["a shift", "another version"])
def test_a_mean_outlasts_a_wall_clock_that_is_set_and_a_new_version(happens: str) -> None:
    """As an agent's does: else a board would be without states for as long as its mean looks back."""
    policy = read_policy(compile_board_policy(CASES["running mean"].policy))
    machine, states = JumpingMachine(), list[int | None]()

    def stream(policy: Any, outbox: Any) -> Stream:
        stream = Stream(policy, seeded(1), outbox)
        tick = stream.tick

        def noted(number: int, reading: object) -> list[Any]:
            done = tick(number, reading)
            states.append(stream._classifier.observe(number, reading))
            return done

        stream.tick = noted
        return stream

    ticker = ticks.Ticker(policy, clocks.Anchored(machine, lambda _: True), machine, stream, lambda: 70)

    def pass_by(count: int) -> list[int | None]:
        before = len(states)
        for _ in range(count):
            machine.elapsed += policy.period_us
            ticker.step()
        return states[before:]

    warm_up = policy.patience
    pass_by(warm_up + 20)
    assert None in states[:warm_up]
    if happens == "a shift":
        machine.offset = -HOUR // 2
        while not machine.shift:
            assert None not in pass_by(1)
            assert machine.elapsed < 3 * HOUR, "the clock is never followed"
    else:
        ticker.close()
        ticker.switch(read_policy(compile_board_policy(CASES["running mean"].policy.model_copy(update={"version": 2}))))
    after = pass_by(20)
    assert len(after) >= 19
    assert None not in after
