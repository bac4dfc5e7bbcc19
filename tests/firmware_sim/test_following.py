"""A board does what its fleet says over MQTT, says so as an agent does, and checks signatures itself."""

from __future__ import annotations

import hashlib
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from firmware_sim.build import Burnt, build, enrol
from fugu.contract.envelope import encode_roots
from fugu.contract.errors import StatusCode
from fugu.contract.frames import Status, SymbolFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.core.trust import load
from gateway.fleet.registry import Registry
from tests.support.board_modules import board_module
from tests.support.board_policies import board_policy, quick
from tests.support.board_trust import board_document
from tests.support.boards import BOARD_HEAP, SUPPORT, BoardProcess, micropython
from tests.support.brokers import Mosquitto, wait_until
from tests.support.command import runner
from tests.support.enrolled import Gateway, Operator, add, write_gateway_files
from tests.support.processes import Recorder, by_tick
from tests.support.signing import NOW, Keys, policy_document
from tests.support.whole_fleet import Everything

STREAMS = ("hr", "motion")
TEN = Window(name="ten", length=10, stride=10, states=(1,), scale="20")


def _policies(version: int, *, begin: int) -> list[Policy]:
    """Two streams of one device, that tick fifty times a second."""
    policies = []
    for stream in STREAMS:
        policy = quick(board_policy(TEN, frame_ticks=5, period_us=20_000, version=version))
        clock = policy.clock.model_copy(update={"epoch_us": begin})
        policies.append(policy.model_copy(update={"stream": stream, "clock": clock}))
    return policies


class _Heard:
    """A device's status, as the broker has it."""

    def __init__(self, broker: Mosquitto) -> None:
        self._recorder = Recorder(broker.broker, topic_of("status", "home", "watch"))

    def until(self, *codes: StatusCode, version: int = 0) -> Status:
        """Wait for a status with these codes, and with this version of every stream if one is given."""

        def statuses() -> list[Status]:
            some = [Status.decode(payload) for payload in self._recorder.payloads[-1:]]
            return [
                status
                for status in some
                if status.online and status.codes == codes and (not version or _only(status, version))
            ]

        wait_until(statuses, f"a status with {codes}")
        return statuses()[0]


def _only(status: Status, version: int) -> bool:
    return {stream.policy_version for stream in status.streams} == {version}


@pytest.mark.long
def test_two_streams_follow_the_fleet(broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys, new, begin = Keys(), Keys(), time.time_ns() // 10**12 * 10**9
    write_gateway_files(tmp_path, keys)
    first = _policies(1, begin=begin)
    second = [policy.model_copy(update={"frame_ticks": 4}) for policy in _policies(2, begin=begin)]
    with closing(Registry(tmp_path / "fleet.sqlite", fleet="home")) as registry:
        key = registry.enrol("watch", ["wrists"], actor="me", time_us=1)
        image = tmp_path / "image"
        build(first, image, enrol(Burnt(port=broker.port), keys.enrolment(key=key.hex(), ceiling=5.0), first))
        every, operator, heard = Everything(broker), Operator(broker.broker), _Heard(broker)
        board, gateway = BoardProcess(image, *STREAMS), Gateway(tmp_path, broker.port)
        heard.until(version=1)
        assert len(heard.until(version=1).streams) == 2
        add(registry, keys, board_document(*second, version=2))
    operator.until(lambda status: status.version == 2 and not status.reason)
    heard.until(version=2)
    fugu = runner(capsys)

    def entry() -> Any:
        (device,) = fugu("fleet", "status", "--registry", tmp_path / "fleet.sqlite", "--json").json()["devices"]
        return device

    wait_until(lambda: entry()["state"] == "up to date", "a registry that knows")
    operator.say(bytes(40_000))
    operator.until(lambda status: status.detail == "larger than a board has room for")
    replayed = keys.signed(board_document(*first, version=1))
    operator.say(replayed)
    operator.until(lambda status: status.reason == "replayed")
    operator.say(keys.signed_stop(2), topic_of("stop", "home", "watch"))
    heard.until(StatusCode.STOPPED)
    board.kill()
    board = BoardProcess(image, *STREAMS)
    heard.until(StatusCode.STOPPED, version=2)
    operator.say(encode_roots([keys.root_envelope(), new.root_envelope(2, *keys.root[:2])]), topic_of("root", "home"))
    heard.until(version=2)  # a new root ends a stop
    third = [policy.model_copy(update={"frame_ticks": 3}) for policy in _policies(3, begin=begin)]
    operator.say(new.signed(board_document(third[0], version=3)), topic_of("policy_set", "home", "watch"))
    operator.until(lambda status: status.version == 3)
    assert [stream.stream for stream in heard.until(version=3).streams] == ["hr"]
    count = len(operator.frames())
    wait_until(lambda: len(operator.frames()) > count + 2, "frames of the third")
    assert board.stop() == 0
    assert board.log == ""
    gateway.stop()
    for stream, versions in (("hr", {1, 2, 3}), ("motion", {1, 2})):
        topic = topic_of("symbols", "home", "watch", stream)
        frames = [SymbolFrame.decode(payload) for name, payload in every.messages if name == topic]
        by_tick(frames)  # asserts that no tick has two symbols
        assert {frame.policy_version for frame in frames} == versions
    switched = [min(frame.first for frame in operator.frames() if frame.policy_version == n) for n in (1, 2)]
    assert switched[0] < switched[1]


@pytest.mark.long
def test_what_was_judged_is_not_judged_again_unless_it_may_be_judged_otherwise(tmp_path: Path) -> None:
    keys, new, policy = Keys(), Keys(), quick(board_policy())
    build([policy], tmp_path, enrol(Burnt(), keys.enrolment(ceiling=5.0), [policy]))
    later = board_document(quick(board_policy(version=2)), version=2, valid_from=NOW + 9)
    chain = encode_roots([keys.root_envelope(), new.root_envelope(2, *keys.root[:2])])
    files = []
    for payload in (keys.signed(later), keys.signed_time(NOW), keys.signed_time(NOW + 1), chain):
        files.append(tmp_path / str(len(files)))
        files[-1].write_bytes(payload)
    process = micropython(SUPPORT / "board_follows.py", tmp_path, *files, heap=BOARD_HEAP)
    assert process.splitlines() == [
        *("policy policy:not_yet_valid", "policy policy:not_yet_valid", "asked again", "time time:not_yet_valid"),
        *("root root:not_yet_valid", "asked again", "stop stop:malformed", "policy policy:wrong_role"),
    ]


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
    build([FIRST], tmp_path, enrol(Burnt(), keys.enrolment(ceiling=5.0), [FIRST]))
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
