"""A board takes the documents that an agent with its enrolment takes, and refuses the others for the same reasons."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from firmware_sim.build import Burnt, build, enrolled
from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.envelope import encode_roots, sign
from fugu.contract.fleet_documents import Address, write_document
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock
from fugu.core.trust import load
from tests.support.board_modules import board_module
from tests.support.board_policies import board_policy, quick
from tests.support.board_trust import Two, board_document
from tests.support.boards import BOARD_HEAP, SUPPORT, micropython
from tests.support.signing import NOW, Keys, policy_document

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
def test_a_board_judges_policies_as_an_agent_does(tmp_path: Path) -> None:
    keys = Keys()
    two = Two(tmp_path, keys, FIRST)
    later = board_policy(version=2, frame_ticks=20)
    document = board_document(later, version=2)

    def judged(changes: dict[str, object], version: int = 2, **fields: object) -> str:
        policy = later.model_copy(update={"version": version, **changes})
        return two.judge("policy", keys.signed(board_document(policy, version=version, **fields)))

    assert two.judge("policy", keys.signed(document, keys.policy[:1])) == "threshold"
    assert two.judge("policy", keys.signed(document, keys.root[:2])) == "wrong_role"
    forged = keys.signed(document)
    assert two.judge("policy", forged[:-1] + bytes([forged[-1] ^ 1])) == "bad_signature"
    assert two.judge("policy", _flipped(forged, 300)) == "bad_signature"
    assert two.judge("policy", forged + b"\0") == "malformed"
    assert two.judge("policy", b"") == "malformed"
    assert two.judge("policy", keys.signed_stop(1)) == "malformed"
    assert judged({}, to=Address(device="ring")) == "not_addressed"
    assert judged({}, to=Address(group="ankles")) == "not_addressed"
    assert judged({}, valid_from=NOW + 1) == "not_yet_valid"
    assert judged({}, valid_until=NOW) == "expired"
    assert judged({"guarantee": Guarantee(epsilon=0.5, adversary="informed")}) == "guarantee"
    assert judged({"guarantee": Guarantee(epsilon=5.1, adversary="informed")}) == "ceiling"
    assert judged({"guarantee": Guarantee(epsilon=4.0, adversary="ignorant")}) == "pinned"
    assert judged({"chains": BinaryChains(q=(0.25, 0.3), r=(0.3, 0.4))}) == "pinned"
    assert judged({"discretiser": Thresholds(edges=(80.0,), states=("low", "high"))}) == "pinned"
    assert judged({"clock": Clock(epoch_us=0, period_us=500_000)}) == "pinned"
    assert two.judge("policy", keys.signed(document)) == ""
    assert two.judge("policy", keys.signed(document)) == ""
    assert two.judge("policy", keys.signed(document, keys.policy[1:])) == ""
    assert judged({"frame_ticks": 30}) == "same_version"
    assert judged({}, version=1) == "replayed"
    assert judged({}, version=3, to=Address(group="wrists"), on_expiry="stop", valid_until=NOW + 9) == ""
    assert judged({}, version=4, to=Address(everyone=True)) == ""
    assert judged({"table": NoiseTable.binary(1_600_000_000, 1_600_000_000)}, version=5) == ""
    assert judged({}, version=4) == "replayed"


@pytest.mark.long
def test_a_board_follows_roots_stops_and_the_time_as_an_agent_does(tmp_path: Path) -> None:
    keys, new, stranger = Keys(), Keys(), Keys()
    two = Two(tmp_path, keys, FIRST)
    second = new.root_envelope(2, *keys.root[:2])
    third = new.root_envelope(3)
    assert two.judge("time", keys.signed_time(NOW)) == ""
    assert two.judge("time", keys.signed_time(NOW - 1)) == "replayed"
    assert two.judge("time", stranger.signed_time(NOW + 9)) == "wrong_role"
    assert two.judge("time", keys.signed_time(NOW + 9, fleet="away")) == "not_addressed"
    assert two.judge("stop", keys.signed_stop(1)) == ""
    assert two.judge("stop", keys.signed_stop(1, device="ring")) == "not_addressed"
    assert two.trusted.stopped == 1
    late = board_document(board_policy(version=2), version=2, valid_until=NOW + 5)
    assert two.judge("policy", keys.signed(late), now=0) == ""
    assert two.judge("stop", keys.signed_stop(1)) == ""
    assert two.judge("root", encode_roots([stranger.root_envelope(2)])) == "root"
    assert two.judge("root", encode_roots([new.root_envelope(2)])) == "root"
    assert two.judge("root", encode_roots([third])) == "root"
    not_its_own = sign("root", write_document(new.root_document(2)), keys.root[:2]).encode()
    assert two.judge("root", encode_roots([not_its_own])) == "root"
    assert two.judge("root", encode_roots([new.root_envelope(2, *keys.root[:2], fleet="away")])) == "not_addressed"
    assert two.judge("root", b"\x0c\x91\x90") == "malformed"
    assert two.judge("root", encode_roots([keys.root_envelope()])) == ""
    assert two.judge("root", encode_roots([keys.root_envelope(), second, third])) == ""
    assert two.trusted.time == two.trusted.stopped == 0
    assert two.judge("root", encode_roots([keys.root_envelope(), second, third])) == ""
    assert two.judge("root", encode_roots([second])) in ("replayed", "root")
    after = board_document(board_policy(version=3), version=3)
    assert two.judge("policy", keys.signed(after)) == "wrong_role"
    assert two.judge("policy", new.signed(after)) == ""


@pytest.mark.long
def test_replayed_policies_in_any_order_never_go_back(tmp_path: Path) -> None:
    keys, generator = Keys(), random.Random(3)
    two, sent, versions = Two(tmp_path, keys, quick(FIRST)), [], []
    for version in range(1, 7):
        policy = quick(board_policy(version=version, frame_ticks=10 + version))
        sent.append(keys.signed(board_document(policy, version=version)))
    for _ in range(18):
        two.judge("policy", generator.choice(sent[: 1 + len(versions) // 3]))
        versions.append(two.trusted.version)
    assert versions == sorted(versions)
    assert versions[-1] > 3


@pytest.mark.long
def test_what_was_accepted_outlasts_a_restart_on_micropython(tmp_path: Path) -> None:
    keys = Keys()
    build(FIRST, tmp_path, enrolled(Burnt(), keys.enrolment(ceiling=5.0), FIRST))
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
