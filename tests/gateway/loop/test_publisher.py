"""Publications of a gateway when more waits than the connection takes: shares, turns, and losses."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.reports import Estimate, StateEstimate, WindowCount, decode_estimate
from fugu.contract.sentences import unix_us
from fugu.contract.topics import parse_topic
from fugu.contract.windows import Window
from fugu.host.database import AwayError
from gateway.loop.publisher import MOST_WAITING, Publisher, WaitingFrames
from gateway.store.coverage import Place
from gateway.store.journal import ReceivedFrame
from gateway.store.store import Outgoing
from tests.support.measured import measure_policy
from tests.support.scenes import Scene, frames, loop_of, policy
from tests.support.wires import Wire

DEVICES = tuple(f"d{number:03d}" for number in range(40))
POLICIES = tuple(policy(1, device=device) for device in DEVICES)


class SlowLink(Wire):
    """A connection whose broker answers when a test says so."""

    answered = 0

    def answers(self, most: int) -> list[int]:
        """The messages that the broker has acknowledged by now, and had not before."""
        begun, self.answered = self.answered, min(self.answered + most, len(self.sent))
        return list(range(begun + 1, self.answered + 1))


@cache
def _read(topic: str, payload: bytes) -> tuple[str | None, StateEstimate | None]:
    """A device, and the estimate of it if it is one."""
    parsed = parse_topic(topic)
    estimate = decode_estimate(payload) if parsed.kind == "estimate" else None
    return parsed.device, estimate if isinstance(estimate, StateEstimate) else None


class Service:
    """A store with its recorder and publisher; opened anew, it has nothing in memory."""

    def __init__(self, folder: Path, scene: Scene | None = None, lag: int = 2) -> None:
        self.scene = scene or Scene(folder / "s.sqlite", lag=lag, policies=POLICIES)
        self.open()

    def open(self) -> None:
        self.link = SlowLink()
        here = self.scene
        self.publisher = Publisher(loop_of(link=self.link, store=here.store, counters=here.counters), here.recorder)

    def crash(self) -> None:
        self.scene.reopen()
        self.open()

    def pump(self, answered: int = 1_000_000) -> None:
        """A round of the worker, and so many acknowledgements."""
        self.publisher.pump(idle=False)
        for message_id in self.link.answers(answered):
            self.publisher.acknowledged(message_id)

    def drain(self) -> None:
        while not self.publisher.finished or self.publisher.details()["estimates_waiting"] or self.waiting:
            self.publisher.pump(idle=True)
            for message_id in self.link.answers(1_000_000):
                self.publisher.acknowledged(message_id)

    @property
    def waiting(self) -> int:
        """Rows of the outbox, where points and windows wait."""
        return len(self.scene.store.outbox(0, 1_000_000))

    def heard(self, device: str) -> list[StateEstimate]:
        """The estimates of a device, in the order in which they were published."""
        read = (_read(*sent) for sent in self.link.sent)
        return [estimate for of, estimate in read if of == device and estimate is not None]

    def ticks_told(self, device: str) -> set[int]:
        """The ticks of a device that estimates were published of."""
        return {
            tick
            for estimate in self.heard(device)
            for tick in range(estimate.tick - estimate.ticks + 1, estimate.tick + 1)
        }


def send(service: Service, devices: Sequence[str], *some: SymbolFrame) -> None:
    """Devices send the same frames, in one batch."""
    service.scene.receive([ReceivedFrame(device, "hr", frame) for device in devices for frame in some])


def flood(service: Service, rounds: int, size: int = 25) -> int:
    """Every device sends frames of one tick, many a round, and the broker answers for 5 messages a round."""
    sent = 0
    for begin in range(0, rounds * size, size):
        some = [SymbolFrame(1, tick - 1, tick, bytes([tick % 2])) for tick in range(begin, begin + size)]
        send(service, DEVICES, *some)
        for device in DEVICES:
            service.publisher.born(device)
            sent += len(some)
        service.pump(answered=5)
    return sent


@pytest.mark.long
def test_estimates_starved_by_load_every_stream_is_told_of_its_newest_and_what_waits_is_bounded(tmp_path: Path) -> None:
    service = Service(tmp_path)
    sent = flood(service, rounds=12)
    assert sent == 12_000
    assert service.waiting == 0
    assert service.publisher.details()["estimates_waiting"] <= len(DEVICES)
    newest = sent // len(DEVICES) - 1
    service.drain()
    for device in DEVICES:
        assert newest in service.ticks_told(device)
        times = [estimate.time for estimate in service.heard(device)]
        assert times == sorted(times)
        assert len(times) == len(set(times))
    counters = service.scene.counters
    assert counters["coalesced"] + counters["estimates"] == sent  # one message for each frame, or none
    assert counters["estimates"] <= Publisher.MAX_IN_FLIGHT + 12 * 5 + len(DEVICES)


def news_without_answers(service: Service) -> int:
    """More news than may be under way, a frame of each device a round; the newest tick. The broker does not answer."""
    rounds = Publisher.MAX_IN_FLIGHT // len(DEVICES) + 2
    for tick in range(rounds):
        send(service, DEVICES, SymbolFrame(1, tick - 1, tick, b"\1"))
        service.publisher.pump(idle=False)
    return rounds - 1


@pytest.mark.long
def test_watermarks_without_end_leave_estimates_their_share_and_the_other_way_round(tmp_path: Path) -> None:
    service = Service(tmp_path)
    send(service, DEVICES[:30], *frames([1] * 3))
    for _ in range(Publisher.MAX_IN_FLIGHT + 50):  # nobody acknowledges any of them
        service.publisher.born(DEVICES[1])
        service.publisher.pump(idle=False)
    kinds = Counter(parse_topic(topic).kind for topic, _ in service.link.sent)
    assert kinds == {"committed": Publisher.MAX_IN_FLIGHT, "estimate": 30}
    service = Service(tmp_path, Scene(tmp_path / "t.sqlite", lag=0, policies=service.scene.policies))
    news_without_answers(service)
    for device in DEVICES:
        service.publisher.born(device)
        service.publisher.pump(idle=False)
    kinds = Counter(parse_topic(topic).kind for topic, _ in service.link.sent)
    assert kinds == {"committed": len(DEVICES), "estimate": Publisher.MAX_IN_FLIGHT}


@pytest.mark.long
def test_a_device_that_sends_much_does_not_hold_up_another(tmp_path: Path) -> None:
    """Also where there is room for one message at a time."""
    service = Service(tmp_path)
    news_without_answers(service)
    sequence = frames([1] * 200)[50:]
    for i, frame in enumerate(sequence):
        service.scene.record(frame, device=DEVICES[0])
        if i == 3:
            send(service, DEVICES[1:], *sequence[:4])
        service.pump(answered=1)
    for device in DEVICES[1:]:
        assert sequence[3].last in service.ticks_told(device)
    assert len(service.heard(DEVICES[0])) > 2
    service.drain()
    assert sequence[-1].last in service.ticks_told(DEVICES[0])


@pytest.mark.parametrize("sealed", [False, True])
def test_a_crash_in_a_backlog_loses_no_newest_estimate(tmp_path: Path, sealed: bool) -> None:
    service = Service(tmp_path)
    service.link.connected = False
    send(service, DEVICES[:5], *frames([2] * 100))
    service.publisher.pump(idle=True)
    assert service.publisher.details()["estimates_waiting"] == 5
    if sealed:
        service.scene.recorder.seal(now=True)
    service.crash()
    assert service.publisher.details()["estimates_waiting"] == 5
    service.pump(answered=0)  # published, and nobody has acknowledged it
    for device in DEVICES[:5]:
        assert [estimate.tick for estimate in service.heard(device)] == [199]
    if sealed:
        service.scene.recorder.seal(now=True)
    service.crash()
    service.drain()
    for device in DEVICES[:5]:
        assert [estimate.tick for estimate in service.heard(device)] == [199]
        if not sealed:
            assert service.ticks_told(device) == {198, 199}, "how its symbols came is in the journal"
    service.scene.recorder.seal(now=True)
    service.crash()
    service.publisher.pump(idle=True)
    assert service.link.sent == []


def test_what_is_told_after_a_crash_is_what_would_have_been_told(tmp_path: Path) -> None:
    undisturbed, service = Service(tmp_path), Service(tmp_path, Scene(tmp_path / "t.sqlite", lag=2, policies=POLICIES))
    arguments = frames([10, 10, 10])  # as many ticks as the policy says
    for each in (undisturbed, service):
        each.scene.record(*arguments, device=DEVICES[0])
    undisturbed.drain()
    (estimate,) = undisturbed.heard(DEVICES[0])
    for sealed in (False, True):
        if sealed:
            service.scene.recorder.seal(now=True)
        service.crash()
        service.pump(answered=0)
        assert service.heard(DEVICES[0]) == [estimate]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_connection_that_breaks_in_the_middle_loses_no_newest(tmp_path: Path, sealed: bool) -> None:
    service = Service(tmp_path)
    send(service, DEVICES[:20], *frames([1] * 3))
    service.link.breaks_after = 7
    service.pump(answered=0)
    assert len(service.link.sent) == 7
    service.scene.record(*frames([1] * 5)[3:], device=DEVICES[19])  # newer than what was not sent
    if sealed:
        service.scene.recorder.seal(now=True)
    service.link.mend()
    service.drain()
    for device in DEVICES[:19]:
        assert [estimate.tick for estimate in service.heard(device)] == [2]
    assert [estimate.tick for estimate in service.heard(DEVICES[19])] == [4]


@pytest.mark.long
def test_what_was_under_way_with_a_client_that_is_gone_is_published_again_and_takes_no_room(tmp_path: Path) -> None:
    service = Service(tmp_path)
    for device in DEVICES:
        service.publisher.born(device)
    newest = news_without_answers(service)  # nobody will ever answer
    assert len(service.link.sent) == Publisher.MAX_IN_FLIGHT + len(DEVICES)
    assert not service.publisher.finished
    service.publisher.connected(begun_anew=True)
    before = len(service.link.sent)
    service.drain()
    again = [parse_topic(topic).device for topic, _ in service.link.sent[before:]]
    assert sorted(again) == sorted(DEVICES)
    for device in DEVICES:
        assert service.heard(device)[-1].tick == newest
    send(service, DEVICES, SymbolFrame(1, newest, newest + 1, b"\1"))
    service.publisher.pump(idle=False)  # all is under way, and nothing waits
    service.publisher.connected(begun_anew=True)
    service.drain()
    for device in DEVICES:
        assert [estimate.tick for estimate in service.heard(device)[-2:]] == [newest + 1] * 2


def test_a_late_frame_changes_what_is_known_now_and_nothing_older_is_told_again(tmp_path: Path) -> None:
    service = Service(tmp_path)
    sequence = frames([5, 5, 5])
    service.scene.record(sequence[0], sequence[2], device=DEVICES[0])
    service.pump(answered=0)
    before = service.heard(DEVICES[0])
    service.scene.record(sequence[1], device=DEVICES[0])
    service.drain()
    assert service.waiting == 0
    (again,) = service.heard(DEVICES[0])[len(before) :]
    assert again.tick == before[-1].tick == 14
    assert again != before[-1], "three frames tell more of the newest tick than two"
    assert service.scene.counters["coalesced"] == 1, "the late one itself"
    whole = Service(tmp_path, Scene(tmp_path / "whole.sqlite", lag=2, policies=service.scene.policies))
    whole.scene.record(*sequence, device=DEVICES[0])
    whole.drain()
    assert whole.heard(DEVICES[0])[-1] == again


def test_a_device_whose_clock_is_set_back_is_told_of_when_its_time_has_come_again(tmp_path: Path) -> None:
    service = Service(tmp_path)
    late = [SymbolFrame(1, tick - 1, tick, b"\1", shift=0 if tick < 20 else 10) for tick in range(40)]
    for frame in late:
        service.scene.record(frame, device=DEVICES[0])
        service.pump()
    assert [estimate.tick for estimate in service.heard(DEVICES[0])] == [*range(20), *range(29, 40)]
    assert service.scene.counters["coalesced"] == 9


def test_each_window_is_reported_once_beside_the_symbols_of_its_stream(tmp_path: Path) -> None:
    window = Window(name="high", length=5, stride=5, start=0, states=(1,), scale="2")
    scene = Scene(tmp_path / "w.sqlite", lag=2, policies=(policy(1, device=DEVICES[0], windows=(window,)),))
    service = Service(tmp_path, scene)
    scene.record(*frames([5] * 20), device=DEVICES[0])
    counts = [WindowFrame(1, "high", index - 1, index, 5 * index, 5, 4, (index - 3,)) for index in range(20)]
    scene.receive([ReceivedFrame(DEVICES[0], "hr", count) for count in counts])
    service.drain()
    topics = Counter(parse_topic(topic).kind for topic, _ in service.link.sent)
    assert (
        topics
        == {"estimate": 1, "count": 20}
        == {"estimate": scene.counters["estimates"], "count": scene.counters["counts"]}
    )
    reports = [WindowCount.decode(payload) for topic, payload in service.link.sent if "/count/" in topic]
    assert [(report.window, report.states, report.values, report.observed) for report in reports] == [
        ("high", ("level 1",), (float(index - 3),), 4) for index in range(20)
    ]
    assert [(unix_us(report.since), unix_us(report.time)) for report in reports] == [
        (5_000_000 * index, 5_000_000 * (index + 1)) for index in range(20)
    ]


def test_a_store_that_is_away_after_a_restart_lets_no_older_window_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = Window(name="high", length=5, stride=5, start=0, states=(1,), scale="2")
    scene = Scene(tmp_path / "w.sqlite", lag=2, policies=(policy(1, device=DEVICES[0], windows=(window,)),))
    service = Service(tmp_path, scene)
    counts = [WindowFrame(1, "high", index - 1, index, 5 * index, 5, 4, (index,)) for index in (0, 1, 2)]
    scene.receive([ReceivedFrame(DEVICES[0], "hr", count) for count in (counts[0], counts[2])])
    service.drain()
    service.crash()
    scene.receive([ReceivedFrame(DEVICES[0], "hr", counts[1])])
    report, rows = scene.recorder.report, list[Outgoing]()

    def report_once(outgoing: Outgoing) -> Estimate | WindowCount | None:
        rows.append(outgoing)
        if len(rows) == 2:
            raise AwayError("no connection")
        return report(outgoing)

    monkeypatch.setattr(scene.recorder, "report", report_once)
    with pytest.raises(AwayError):
        service.publisher.pump()
    assert [row.frame for row in rows] == [1, 2]
    service.drain()
    assert service.link.sent == []


@pytest.mark.long
def test_points_are_told_once_for_each_frame_also_where_the_connection_breaks(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "p.sqlite", lag=2, policies=(measure_policy(device="d000"),))
    service = Service(tmp_path, scene)
    for begin in range(0, 500, 100):
        some = [MeasureFrame(1, t - 1, t, 2, (Released(0, (t % 3, 1)),)) for t in range(begin, begin + 100)]
        scene.receive([ReceivedFrame("d000", "place", frame) for frame in some])
    service.link.breaks_after = 3
    service.pump()
    service.link.mend()
    service.drain()
    assert [decode_estimate(payload).tick for _, payload in service.link.sent] == [*range(500 - MOST_WAITING, 500)]
    assert scene.counters["coalesced"] == 500 - MOST_WAITING
    assert service.waiting == 0


def outgoing(serial: int, stream: int, frame: int) -> Outgoing:
    return Outgoing(serial, Place(stream, f"d{stream}", "hr"), frame)


@pytest.mark.long
def test_whatever_is_put_and_taken_the_newest_of_each_stream_is_never_left_out() -> None:
    generator = random.Random(3)
    waiting, held = WaitingFrames(), {}
    for serial in range(1, 20_000):
        stream, frame = generator.randrange(7), generator.randrange(500)
        left_out = waiting.put(outgoing(serial, stream, frame))
        held[stream, frame] = serial
        if left_out is not None:
            of = {number: key for key, number in held.items()}[left_out]
            assert of[1] < max(other for number, other in held if number == of[0])
            del held[of]
        assert len(waiting) == len(held) <= 7 * MOST_WAITING
        if generator.random() < 0.1:
            room = generator.choice([0, 1, 3, 50, 400])
            taken, overtaken = waiting.take(room)
            assert len(taken) <= room
            assert len(taken) + len(overtaken) <= len(held)
            newest = {stream: max(f for s, f in held if s == stream) for stream in {s for s, _ in held}}
            for entry in taken:
                assert held.pop((entry.place.number, entry.frame)) == entry.serial
            for (stream, frame), serial in list(held.items()):
                if serial in overtaken:
                    assert frame < min(o.frame for o in taken if o.place.number == stream)
                    del held[stream, frame]
            frames = {entry.place.number: entry.frame for entry in taken}  # the last one of each
            if room >= len(newest):
                assert {stream: max(o.frame for o in taken if o.place.number == stream) for stream in frames} == newest


def test_another_thread_may_ask_how_much_waits() -> None:
    """That of the monitor, while the worker puts and takes; what waits changes at each turn of this thread."""
    waiting, sizes = WaitingFrames(), list[int]()
    for stream in range(100):
        waiting.put(outgoing(stream, stream, 0))

    def work(_frame: object, event: str, _argument: object) -> None:
        if event == "call" and len(sizes) < 100:
            sizes.append(0)
            waiting.put(outgoing(0, 1000 + len(sizes), 0))

    sys.setprofile(work)
    try:
        assert len(waiting) >= 100
    finally:
        sys.setprofile(None)


def test_streams_take_turns_also_when_there_is_room_for_one_message_at_a_time() -> None:
    waiting = WaitingFrames()
    for serial, (stream, frame) in enumerate((stream, frame) for stream in range(3) for frame in range(2)):
        waiting.put(outgoing(serial, stream, frame))
    batches = [waiting.take(1) for _ in range(4)]
    assert [[(entry.place.number, entry.frame) for entry in taken] for taken, _ in batches] == [
        [(0, 1)],
        [(1, 1)],
        [(2, 1)],
        [],
    ]
    assert [overtaken for _, overtaken in batches] == [[0], [2], [4], []]
