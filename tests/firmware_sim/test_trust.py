"""Trust of a board, and its own check of signatures."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from firmware_sim.build import Burnt, build, enrolled
from fugu.contract.guarantee import Guarantee
from fugu.core.trust import load
from tests.support.board_modules import board_module
from tests.support.board_policies import board_policy
from tests.support.board_trust import board_document
from tests.support.boards import BOARD_HEAP, SUPPORT, micropython
from tests.support.signing import Keys, policy_document

FIRST = board_policy()


def test_only_a_file_that_is_not_there_begins_anew(tmp_path: Path) -> None:
    assert load(str(tmp_path / "trust"), b"root").version == 0
    with pytest.raises(IsADirectoryError):  # stands for whatever else keeps it from being read
        load(str(tmp_path), b"root")
    (tmp_path / "trust").write_bytes(b"")
    with pytest.raises(OSError, match="damaged"):
        load(str(tmp_path / "trust"), b"root")


def test_signatures_are_those_of_the_library() -> None:
    board, generator = board_module("ed25519"), random.Random(1)

    def verify(public: bytes, message: bytes, signature: bytes) -> bool:
        return bool(board.verify(public, (message[:70], message[70:]), signature, lambda: None))

    for size in (0, 1, 111, 112, 127, 128, 300):
        message = generator.randbytes(size)
        assert board.sha512((message[:5], message[5:]), lambda: None) == hashlib.sha512(message).digest()
        key = Ed25519PrivateKey.from_private_bytes(generator.randbytes(32))
        public, signature = key.public_key().public_bytes_raw(), key.sign(message)
        assert verify(public, message, signature)
        for place in (0, 31, 32, 63):
            assert not verify(public, message, _flipped(signature, place))
        assert not verify(public, message + b"x", signature)
        assert not verify(_flipped(public, 3), message, signature)
        order = (1 << 252) + 27742317777372353535851937790883648493
        large = int.from_bytes(signature[32:], "little") + order
        assert not verify(public, message, signature[:32] + large.to_bytes(32, "little"))


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.long
def test_what_was_accepted_outlasts_a_restart_on_micropython(tmp_path: Path) -> None:
    keys = Keys()
    build([FIRST], tmp_path, enrolled(Burnt(), keys.enrolment(ceiling=5.0), [FIRST]))
    second, third = (board_policy(version=version, frame_ticks=20) for version in (2, 3))
    files = {
        "first": keys.signed(board_document(FIRST, version=1)),
        "second": keys.signed(board_document(second, version=2)),
        "third": keys.signed(board_document(third, version=3)),
        "agents": keys.signed(policy_document(third, version=3)),
        "stop": keys.signed_stop(2),
        "weak": keys.signed(
            board_document(
                third.model_copy(update={"guarantee": Guarantee(epsilon=5.1, adversary="informed")}), version=3
            )
        ),
    }
    for name, payload in files.items():
        (tmp_path / name).write_bytes(payload)

    def judged(*names: str) -> list[str]:
        words = [word for name in names for word in ("stop" if name == "stop" else "policy", tmp_path / name)]
        return micropython(SUPPORT / "board_judge.py", tmp_path, *words, heap=BOARD_HEAP).splitlines()

    assert judged("second", "first", "weak") == ["start 1 0", "2 accepted", "2 replayed", "2 ceiling"]
    (tmp_path / "trust.new").write_bytes(b"half of a fi")  # a power cut while it was written
    assert judged("first", "agents", "stop") == ["start 2 0", "2 replayed", "2 guarantee", "2 guarantee"]
    assert judged("third", "second") == ["start 2 2", "3 accepted", "3 replayed"]
    assert judged() == ["start 3 2"]
