"""A board that is out runs a later policy only if its owner's signers say so, and if it is no weaker than the first."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contract.guarantee import Guarantee
from contract.policy import Clock, Policy
from firmware_sim.board_code import board_module
from firmware_sim.build import Burnt, build, enrolled, signed
from firmware_sim.compiled_policy import compile_policy
from tests.support.board_policies import board_policy
from tests.support.boards import BOARD_HEAP, SUPPORT, micropython
from tests.support.signing import Keys

REFUSED = "policy.signed is refused: "


def test_signatures_are_those_of_the_library() -> None:
    board, generator = board_module("ed25519"), random.Random(1)
    for size in (0, 1, 111, 112, 127, 128, 300):
        message = generator.randbytes(size)
        assert board.sha512(message) == hashlib.sha512(message).digest()
        key = Ed25519PrivateKey.from_private_bytes(generator.randbytes(32))
        public, signature = key.public_key().public_bytes_raw(), key.sign(message)
        assert board.verify(public, message, signature)
        for place in (0, 31, 32, 63):
            assert not board.verify(public, message, _flipped(signature, place))
        assert not board.verify(public, message + b"x", signature)
        assert not board.verify(_flipped(public, 3), message, signature)
        order = (1 << 252) + 27742317777372353535851937790883648493
        large = int.from_bytes(signature[32:], "little") + order
        assert not board.verify(public, message, signature[:32] + large.to_bytes(32, "little"))


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.long
def test_later_policies(tmp_path: Path) -> None:
    keys = Keys()
    first = board_policy()
    build(first, tmp_path, enrolled(Burnt(), keys.enrolment(ceiling=5.0), first))

    def judged(policy: Policy, signers: list[Ed25519PrivateKey]) -> list[str]:
        (tmp_path / "policy.signed").write_bytes(signed(compile_policy(policy), signers))
        return micropython(SUPPORT / "board_judge.py", tmp_path, heap=BOARD_HEAP).splitlines()

    later, two = board_policy(version=2, frame_ticks=20), keys.policy[:2]
    assert judged(later, two) == ["2"]
    few = REFUSED + "too few of those who may sign have signed it"
    assert judged(later, two[:1]) == [few, "1"]
    assert judged(later, two[:1] * 2) == [few, "1"]
    assert judged(later, keys.root[:2]) == [few, "1"]
    assert judged(first, two) == [REFUSED + "no newer than the image's own", "1"]
    faster = later.model_copy(update={"clock": Clock(epoch_us=0, period_us=500_000)})
    assert judged(faster, two) == [REFUSED + "another clock", "1"]
    false = later.model_copy(update={"guarantee": Guarantee(epsilon=0.5, adversary="informed")})
    assert judged(false, two) == [REFUSED + "the stream loses more than is claimed", "1"]
    loud = later.model_copy(update={"guarantee": Guarantee(epsilon=5.1, adversary="informed")})
    assert judged(loud, two) == [REFUSED + "above the ceiling", "1"]
    (tmp_path / "policy.signed").write_bytes(_flipped(signed(compile_policy(later), two), 300))
    assert micropython(SUPPORT / "board_judge.py", tmp_path, heap=BOARD_HEAP).splitlines() == [few, "1"]
    (tmp_path / "policy.signed").write_bytes(b"")
    assert micropython(SUPPORT / "board_judge.py", tmp_path, heap=BOARD_HEAP).splitlines() == [few, "1"]
