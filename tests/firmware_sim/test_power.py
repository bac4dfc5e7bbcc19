"""No power cut after a write loses a sealed frame or document, or draws a tick twice; nor do bytes crash a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.compiler import compile_board_policy
from fugu.contract.frames import Committed, Gap, StreamCommit
from fugu.contract.guarantee import Guarantee
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


KEY = bytes(range(32))
TEN = Window(name="ten", length=10, stride=10, states=(1,), scale="20")


@pytest.mark.long
@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_mutated_policies_and_watermarks(tmp_path: Path, count: int) -> None:
    promise = Guarantee(epsilon=6.0, adversary="universal")  # the quickest to derive
    policy = board_policy(TEN).model_copy(update={"guarantee": promise, "windows_guarantee": promise})
    (tmp_path / "policy.bin").write_bytes(compile_board_policy(policy))
    message = Committed((StreamCommit("hr", 900, (Gap(3, 70),)), StreamCommit("hr/ten", 80, ())), 1_795_423_929_926_860)
    (tmp_path / "watermark").write_bytes(message.with_tag(KEY, "home", "watch").encode())
    files = tmp_path / "policy.bin", tmp_path / "watermark"
    process = micropython(SUPPORT / "board_fuzz.py", *files, KEY.hex(), 7, count, heap="96k")
    read, proven, _ = map(int, process.split())
    assert count > read > proven > 0
