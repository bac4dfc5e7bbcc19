"""A board refuses any bytes in an orderly way."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.compiler import compile_board_policy
from fugu.contract.frames import Committed, Gap, StreamCommit
from fugu.contract.guarantee import Guarantee
from fugu.contract.windows import Window
from tests.support.board_policies import board_policy
from tests.support.boards import SUPPORT, micropython

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
