"""A board against a real broker and a real gateway: killed at any moment, it loses nothing and draws no tick twice."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from firmware_sim.build import Burnt, build, enrol
from fugu.contract.errors import StatusCode
from fugu.contract.frames import Committed, Status, StreamCommit
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from gateway.fleet.registry import Registry
from tests.support.board_policies import board_policy, quick
from tests.support.boards import BoardProcess
from tests.support.brokers import Mosquitto, wait_until
from tests.support.enrolled import Gateway, add, write_gateway_files
from tests.support.processes import Recorder, by_tick
from tests.support.signing import Keys, policy_document
from tests.support.stored import stored_symbols
from tests.support.whole_fleet import Everything

TEN = Window(name="ten", length=10, stride=10, states=(1,), scale="20")
FOUR = Window(name="four", length=4, stride=8, states="histogram", scale="40")
TOPIC = topic_of("committed", "home", "watch")


def _symbols(store: Path) -> dict[int, int]:
    some = [frame for frames in stored_symbols(store).values() for frame in frames]
    return {tick: symbol for frame in some for tick, symbol in enumerate(frame.symbols, frame.first)}


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.soak)])
def test_a_board_that_is_killed_loses_nothing_and_the_gateway_gets_what_was_sent(
    broker: Mosquitto, tmp_path: Path, kills: int
) -> None:
    keys = Keys()
    write_gateway_files(tmp_path, keys)
    policy = quick(board_policy(TEN, FOUR, frame_ticks=5, period_us=20_000))
    policy = policy.model_copy(
        update={"clock": policy.clock.model_copy(update={"epoch_us": time.time_ns() // 1000 // 10**6 * 10**6})}
    )
    with closing(Registry(tmp_path / "fleet.sqlite", fleet="home")) as registry:
        key = registry.enrol("watch", ["wrists"], actor="me", time_us=1)
        add(registry, keys, policy_document(policy, version=1))
    image = tmp_path / "image"
    build([policy], image, enrol(Burnt(port=broker.port), keys.enrolment(key=key.hex(), ceiling=20.0), [policy]))
    heard, recorder = Everything(broker), Recorder(broker.broker)
    for _ in range(kills):
        board, count = BoardProcess(image), len(recorder.payloads)
        wait_until(lambda count=count: len(recorder.payloads) > count + 3, "frames")
        board.kill()
    board, count = BoardProcess(image), len(recorder.payloads)
    wait_until(lambda: len(recorder.payloads) > count, "frames")
    forged = Committed((StreamCommit("hr", 2**40, ()),), 2**63).encode()
    for _ in range(5):
        assert heard.link.publish(TOPIC, forged) is not None
    wait_until(lambda: len(recorder.payloads) > count + 8, "frames that nobody has")
    assert len(list((image / "outbox/hr").iterdir())) >= 8
    gateway = Gateway(tmp_path, broker.port)
    wait_until(lambda: len(list((image / "outbox/hr").iterdir())) < 5, "watermarks that let the board forget")
    genuine = Committed.decode([payload for topic, payload in heard.messages if topic == TOPIC][-1])
    assert genuine.is_authentic(key, "home", "watch")
    sent = by_tick(recorder.frames())  # also asserts that no tick has two symbols
    wait_until(lambda: _symbols(tmp_path / "gateway.sqlite").keys() >= sent.keys(), "all that was sent")
    assert board.stop() == 0
    assert board.log == ""
    gateway.stop()
    stored = _symbols(tmp_path / "gateway.sqlite")
    assert all(stored[tick] == symbol for tick, symbol in sent.items())
    statuses = [Status.decode(p) for topic, p in heard.messages if topic == "fugu/2/home/watch/status"]
    assert {status.online for status in statuses} == {True, False}
    assert {code for status in statuses for code in status.codes} <= {StatusCode.CONNECTION_LOST}


@pytest.mark.long
def test_a_board_that_hangs_is_ended_and_goes_on_when_it_is_started_again(broker: Mosquitto, tmp_path: Path) -> None:
    policy = board_policy(frame_ticks=5, period_us=20_000)
    now = time.time_ns() // 10**9 * 10**6
    policy = policy.model_copy(update={"clock": policy.clock.model_copy(update={"epoch_us": now})})
    build([policy], tmp_path, Burnt(port=broker.port))
    recorder = Recorder(broker.broker)
    board = BoardProcess(tmp_path, watchdog=5)
    wait_until(lambda: recorder.payloads, "frames")
    (tmp_path / "hang").touch()
    wait_until(lambda: board.process.poll() is not None, "the watchdog")
    assert board.process.returncode == -signal.SIGKILL
    board, count = BoardProcess(tmp_path), len(recorder.payloads)
    wait_until(lambda: len(recorder.payloads) > count + 1, "frames")
    assert board.stop() == 0
    by_tick(recorder.frames())  # asserts that no tick has two symbols
