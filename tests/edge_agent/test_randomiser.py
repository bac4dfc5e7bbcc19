"""The randomiser: exact thresholds, one word a draw, wiped, never shared with a child."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import pytest

from edge_agent.randomiser import BLOCK_WORDS, randomiser, system_entropy
from fugu.contract.noise_table import NoiseTable

T0, T1 = 1_000_000_007, 3_000_000_001


def words_source(*words: int) -> Callable[[memoryview], None]:
    """Entropy that hands out given words first; draws take a block from its end."""

    def fill(buffer: memoryview) -> None:
        view = buffer.cast("I")
        for place, word in enumerate(words):
            view[BLOCK_WORDS - 1 - place] = word

    return fill


@pytest.mark.parametrize(
    ("state", "word", "symbol"),
    [
        (0, 0, 0),
        (0, 2**32 - T0 - 1, 0),
        (0, 2**32 - T0, 1),
        (0, 2**32 - 1, 1),
        (1, 0, 0),
        (1, T1 - 1, 0),
        (1, T1, 1),
        (1, 2**32 - 1, 1),
    ],
)
def test_a_symbol_changes_exactly_at_its_threshold(state: int, word: int, symbol: int) -> None:
    assert randomiser(NoiseTable(((2**32 - T0,), (T1,))), words_source(word))(state) == symbol


def test_a_wide_row_gives_each_symbol_its_own_words() -> None:
    rows = ((10, 20, 30), (1, 2, 3))
    draw = randomiser(NoiseTable(rows), words_source(9, 10, 19, 20, 29, 30, 2**32 - 1))
    assert [draw(0) for _ in range(7)] == [0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("state", [2, 3])
def test_a_state_without_a_row_is_not_drawn_for(state: int) -> None:
    with pytest.raises(IndexError):
        randomiser(NoiseTable(((1 << 31,), (1 << 31,))), words_source(9))(state)


def test_every_word_is_used_once_and_wiped() -> None:
    block: list[memoryview] = []

    def fill(buffer: memoryview) -> None:
        block.append(buffer)
        view = buffer.cast("I")
        for place in range(BLOCK_WORDS):
            view[place] = 2**32 - 1

    draw = randomiser(NoiseTable(((1 << 31,), (1 << 31,))), fill)
    for used in range(1, BLOCK_WORDS + 1):
        assert draw(0) == 1
        view = block[0].cast("I")
        assert sum(1 for word in view if word) == BLOCK_WORDS - used
    assert len(block) == 1
    draw(0)
    assert len(block) == 2


def test_a_child_process_never_uses_its_parents_words() -> None:
    """Without the precaution, both would draw the same symbols for the next thousand ticks."""
    draw = randomiser(NoiseTable(((1 << 31,), (1 << 31,))), system_entropy())
    draw(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, bytes(draw(0) for _ in range(400)))
        os._exit(0)
    os.close(writer)
    theirs = b""
    while chunk := os.read(reader, 4096):
        theirs += chunk
    os.close(reader)
    os.waitpid(child, 0)
    assert len(theirs) == 400
    assert theirs != bytes(draw(0) for _ in range(400))


def test_without_randomness_there_is_no_symbol() -> None:
    def broken(buffer: memoryview) -> None:
        raise OSError("no entropy")

    with pytest.raises(OSError, match="no entropy"):
        randomiser(NoiseTable(((1 << 31,), (1 << 31,))), broken)(0)


def test_the_systems_words_have_the_tables_frequencies() -> None:
    """400,000 draws; the bound is six standard deviations."""
    draw = randomiser(NoiseTable(((1 << 30,), (3 << 30,))), system_entropy())
    ones = [sum(draw(state) for _ in range(200_000)) for state in (0, 1)]
    assert abs(ones[0] - 150_000) < 6 * 194
    assert abs(ones[1] - 50_000) < 6 * 194


def test_a_buffer_is_filled_also_if_the_generator_gives_few_bytes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Few(io.FileIO):
        def readinto(self, buffer: Any) -> int:
            buffer[:3] = b"\xff" * len(buffer[:3])
            return len(buffer[:3])

    monkeypatch.setattr("edge_agent.randomiser.io.FileIO", Few)
    buffer = bytearray(10)
    system_entropy()(memoryview(buffer))
    assert buffer == b"\xff" * 10
