"""Whatever bytes a board is given, it refuses them in an orderly way."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.frames import Committed, Gap, StreamCommit, encode_committed
from contract.guarantee import Guarantee
from contract.watermark import sign_committed
from contract.windows import Window
from firmware_sim.compiled_policy import compile_policy
from tests.support.board_policies import board_policy
from tests.support.boards import SUPPORT, micropython

KEY = bytes(range(32))
TEN = Window(name="ten", length=10, stride=10, states=(1,), scale="20")


@pytest.mark.long
@pytest.mark.parametrize("count", [1_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_mutated_policies_and_watermarks(tmp_path: Path, count: int) -> None:
    promise = Guarantee(epsilon=6.0, adversary="universal")  # the quickest to derive
    policy = board_policy(TEN).model_copy(update={"guarantee": promise, "windows_guarantee": promise})
    (tmp_path / "policy.bin").write_bytes(compile_policy(policy))
    message = Committed((StreamCommit("hr", 900, (Gap(3, 70),)), StreamCommit("hr/ten", 80, ())), 1_795_423_929_926_860)
    (tmp_path / "watermark").write_bytes(encode_committed(sign_committed(KEY, "home", "watch", message)))
    files = tmp_path / "policy.bin", tmp_path / "watermark"
    told = micropython(SUPPORT / "board_fuzz.py", *files, KEY.hex(), 7, count, heap="96k")
    read, proven, _ = map(int, told.split())
    assert count > read > proven > 0
