"""A power cut after any write to the flash memory loses no sealed frame and no document, and draws no tick twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.compiler import compile_board_policy
from fugu.contract.windows import Window
from tests.support.board_policies import board_policy
from tests.support.boards import SUPPORT, micropython
from tests.support.soak import only

SIX = Window(name="six", length=6, stride=6, states=(1,), scale="20")


@pytest.mark.long
@pytest.mark.parametrize("windows", only([(SIX,)], [(), (SIX,)]))
def test_power_is_cut_at_every_write(windows: tuple[Window, ...], tmp_path: Path) -> None:
    (tmp_path / "policy.bin").write_bytes(compile_board_policy(board_policy(*windows, frame_ticks=4)))
    process = micropython(SUPPORT / "board_power.py", tmp_path / "policy.bin", heap="4M")
    cuts, writes, ticks = map(int, process.splitlines()[-1].split())
    print(f"{cuts} cuts, {writes} writes for {ticks} ticks")
    assert cuts == 2 * (writes + 1)
    assert writes > ticks


@pytest.mark.long
def test_power_is_cut_while_a_document_is_stored() -> None:
    process = micropython(SUPPORT / "board_trust_power.py", heap="1M")
    cuts, old, new = map(int, process.split())
    assert cuts == old + new
    assert old > 2
    assert new > 1


@pytest.mark.long
def test_a_bit_that_turns_takes_away_frames_at_most(tmp_path: Path) -> None:
    (tmp_path / "policy.bin").write_bytes(compile_board_policy(board_policy(SIX, frame_ticks=4)))
    process = micropython(SUPPORT / "board_rot.py", tmp_path / "policy.bin", tmp_path / "outbox", heap="512k")
    size, there = map(int, process.split())
    print(f"{size} bytes")
    assert size // 2 < there < size
