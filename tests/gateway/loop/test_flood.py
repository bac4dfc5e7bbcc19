"""A device that floods the gateway, or repeats itself, holds nobody up, is named, and grows nothing."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.reports import AlarmCode, Health
from fugu.contract.topics import topic_of
from gateway.loop.gateway import Gateway
from gateway.loop.inbox import Inbox
from gateway.parts import Message
from gateway.store.symbols import Tail
from tests.support.brokers import Mosquitto, wait_until
from tests.support.containers import held
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import Device, GatewayProcess
from tests.support.processes import Recorder
from tests.support.scenes import Scene, frames, write_policies

PATIENCE = 60.0


def message(device: str, number: int = 0) -> Message:
    return Message(topic_of("symbols", "home", device, "hr"), number.to_bytes(4, "big"))


def test_who_floods_has_half_the_room_and_no_more_of_a_round_than_others() -> None:
    inbox = Inbox(1_000, 1 << 20, 0.0, pause_seconds=3_600.0)
    assert inbox.deliver([message("loud", number) for number in range(5_000)]) == 4_500
    assert inbox.deliver([message("quiet", number) for number in range(40)]) == 0
    assert (inbox.take_refused(), inbox.take_refused()) == (({}, {"loud": 4_500}), ({}, {}))
    taken = inbox.take(60, 0.0)
    assert Counter(message.topic for message in taken if isinstance(message, Message)) == {
        message("loud").topic: 30,
        message("quiet").topic: 30,
    }
    assert inbox.take(1_000, 0.0) == [message("quiet", number) for number in range(30, 40)], "loud has few turns"
    assert inbox.deliver([message("quiet")]) == 0
    assert inbox.take(1_000, PATIENCE) == [message("quiet")], "nobody waits for its turn"
    inbox.close()
    assert inbox.take(1_000, PATIENCE) == [message("loud", number) for number in range(30, 286)], "a round is short"
    assert inbox.take(1_000, PATIENCE) == [message("loud", number) for number in range(286, 500)], "the rest"
    assert inbox.drained


def test_who_has_flooded_has_its_turn_after_a_pause_and_all_of_them_when_nothing_waits() -> None:
    inbox = Inbox(1_000, 1 << 20, 0.0, pause_seconds=0.01)
    inbox.deliver([message("loud", number) for number in range(5_000)])
    rounds = [inbox.take(1_000, PATIENCE) for _ in range(2)]
    assert rounds == [[message("loud", n) for n in range(256)], [message("loud", n) for n in range(256, 500)]]
    assert inbox.deliver([message("loud"), message("quiet")]) == 0
    assert len(inbox.take(1_000, 0.0)) == 2


def test_room_in_bytes_is_shared_likewise_and_a_few_messages_are_always_taken() -> None:
    inbox = Inbox(1_000, 4 << 20, 0.0)
    large = Message(topic_of("symbols", "home", "loud", "hr"), bytes([MeasureFrame.SCHEMA]) + bytes(9_999))
    taken = 1_000 - inbox.deliver([large] * 1_000)
    assert taken == -(-(4 << 20) // (2 * (10_000 + len(large.topic) + 200)))
    assert inbox.deliver([message("quiet")] * 64) == 0
    crowded = Inbox(100, 1 << 20, 0.0)
    assert crowded.deliver([message(f"device-{number}") for number in range(60)]) == 0
    assert crowded.deliver([message("busy", number) for number in range(40)]) == 0, (
        "there is room, and it has its least"
    )
    assert crowded.deliver([message("late")]) == 1, "it waits for room, in vain"
    assert crowded.take_refused() == ({}, {})


def test_more_devices_than_a_round_takes_are_served_in_turns_and_each_in_its_order() -> None:
    inbox, taken = Inbox(10_000, 1 << 20, 0.0), []
    devices = [f"device-{number}" for number in range(300)]
    inbox.deliver([message(device, number) for number in range(3) for device in devices])
    for _ in range(9):
        some = inbox.take(100, 0.0)
        assert len({message.topic for message in some if isinstance(message, Message)}) == 100
        taken += some
    each = {message(device).topic: [message(device, n) for n in range(3)] for device in devices}
    by_topic: dict[str, list[object]] = {topic: [] for topic in each}
    for taken_frame in taken:
        by_topic[taken_frame.topic].append(taken_frame)
    assert by_topic == each
    assert inbox.take(100, 0.0) == []


@pytest.mark.long
def test_a_repeat_and_a_contradiction_cost_the_same_however_much_waits_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    take = Tail._columns_at
    monkeypatch.setattr(Tail, "_columns_at", lambda tail, places: rows.append(len(places)) or take(tail, places))

    def cost(journal: int) -> tuple[int, int]:
        """Calls of functions for 20 repeats and 20 contradictions, and the most rows that were read for one."""
        scene = Scene(tmp_path / f"{journal}.sqlite")
        some = [SymbolFrame(1, tick - 1, tick, bytes([tick & 1]), bits=1, padding=0) for tick in range(journal)]
        for first in range(0, journal, 500):
            scene.record(*some[first : first + 500])
        scene.record(some[0])
        rows.clear()
        calls = 0

        def count(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            for frame in some[40:60]:
                scene.record(frame)
                scene.record(SymbolFrame(1, frame.previous, frame.first, bytes([1 - frame.symbols[0]]), bits=1))
        finally:
            sys.setprofile(None)
        assert (scene.counters["duplicate"], scene.counters["conflict"]) == (21, 20)
        assert scene.usage.now.repeats == Counter(watch=41)
        return calls, max(rows)

    assert cost(5_000) == cost(100)


@pytest.mark.long
def test_beside_one_who_repeats_itself_others_are_served_and_the_alarm_names_it(
    broker: Mosquitto, tmp_path: Path
) -> None:
    write_policies(tmp_path / "policies")
    gateway = GatewayProcess(broker, tmp_path)
    loud, quiet = Device(broker, "watch"), Device(broker, "ring")
    health = Recorder(broker.broker, topic_of("health", "home"))
    loud.say_birth()
    wait_until(loud.answered_after(0), "the gateway")
    loud.send(frames([20] * 50))
    wait_until(lambda: not loud.outbox, "the first frames")
    again = frames([20] * 50)
    for number, frame in enumerate(frames([20] * 8)):
        for _ in range(2):
            loud.send(again)
        quiet.send([frame])
        wait_until(lambda: not quiet.outbox, f"frame {number} of the other device")

    def named() -> set[tuple[AlarmCode, tuple[str, ...]]]:
        return {
            (alarm.code, alarm.names) for payload in list(health.payloads) for alarm in Health.decode(payload).alarms
        }

    wait_until(lambda: (AlarmCode.REPEATS, ("watch",)) in named(), "the alarm")
    assert gateway.stop() == 0
    for device in (loud, quiet):
        device.stop()
    health.link.stop()


@pytest.mark.long
def test_what_is_beyond_a_device_s_share_is_an_alarm_with_its_name(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.loop.gateway._INBOX_MESSAGES", 2_000)
    write_policies(tmp_path / "policies")
    gateway = Gateway(gateway_config("home", broker.broker, tmp_path / "s.sqlite", tmp_path / "policies"))
    payload = frames([20])[0].encode()
    gateway._deliver([(topic_of("symbols", "home", "watch", "hr"), payload, False)] * 1_500)
    gateway.start()
    try:
        wait_until(lambda: gateway._monitor.latest.alarms, "the alarm")
        (alarm, *_) = gateway._monitor.latest.alarms
        assert (alarm.code, alarm.names, alarm.count) == (AlarmCode.FLOOD, ("watch",), 500)
        assert gateway.counters["not_taken"] == 500
    finally:
        gateway.stop()


def test_a_stream_that_is_sent_for_long_grows_nothing_in_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the journal is sealed when it is large enough, as it is between rounds."""
    monkeypatch.setattr("gateway.loop.recorder.SEAL_BYTES", 30_000)
    monkeypatch.setattr("gateway.loop.recorder.STREAM_BYTES", 0)
    scene = Scene(tmp_path / "s.sqlite")
    sequence = frames([10] * 1_500, gaps=[0, 0, 3])
    largest, sealed = 0, []
    for begin in range(0, 1_500, 20):
        scene.record(*sequence[begin : begin + 20])
        scene.committed()
        scene.recorder.symbols.reports.take(9)
        scene.recorder.seal()
        tail = scene.store.symbols.tail
        largest = max(largest, tail.byte_count)
        if not tail.row_count:
            sealed.append(held(scene.recorder))
    assert largest <= 30_000
    assert len(sealed) > 5
    assert all(body == sealed[0] for body in sealed)


def test_a_device_that_scatters_its_frames_makes_no_endless_list_of_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.loop.recorder.MAX_INTERVALS", 50)
    scene = Scene(tmp_path / "s.sqlite")
    scattered = [SymbolFrame(1, 10 * i - 1, 10 * i, b"\x01") for i in range(200)]
    scene.record(*scattered)
    assert (scene.counters["stored"], scene.counters["scattered"]) == (50, 150)
    scene.recorder.seal(now=True)
    assert len(scene.store.aged.coverage(1)) == 50
    through = scene.committed().streams[0].through
    assert through <= 490  # what was not taken is not said to be safe
    filling = [SymbolFrame(1, 10 * i, 10 * i + 1, bytes(9)) for i in range(49)]
    scene.record(*filling)  # gaps are filled, and there is room again
    assert scene.counters["stored"] == 99
    scene.record(*scattered)
    assert scene.counters["stored"] == 99 + 49
    assert scene.counters["duplicate"] == 50
