"""Every way in which a message can be wrong, as bytes, and the counter under which it ends."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from fugu.contract.chains import BoundedChains
from fugu.contract.errors import FrameError, StatusCode
from fugu.contract.frames import MAX_FRAME_TICKS, Status, StreamStatus, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock
from fugu.contract.windows import Window
from gateway.loop.inbox import MAX_PAYLOAD_BYTES, MAX_POINTS_BYTES, Acknowledged, Inbox, Ingest
from gateway.parts import Message
from gateway.store.journal import Arrivals, ReceivedFrame, Streams
from tests.support.measured import measure_frames, measure_policy
from tests.support.scenes import catalogue, policy

SECOND = 1_000_000
TOPIC = "fugu/2/home/watch/symbols/hr"
GOOD = SymbolFrame(1, -1, 0, bytes([0, 1, 1])).encode()
BIRTH = Status(True, "1.0", 0, (), ()).encode()
WILL = Status(False, "1.0", 0, (), ()).encode()

WRONG = [
    ("empty", TOPIC, b""),
    ("malformed", TOPIC, GOOD[:-1]),
    ("malformed", TOPIC, GOOD[:1] + b"\xc1"),
    ("malformed", TOPIC, GOOD[:1] + b"\x91" * 2000),
    ("unknown_schema", TOPIC, b"\x02" + GOOD[1:]),
    ("unknown_schema", TOPIC, b"\xff"),
    ("trailing_bytes", TOPIC, GOOD + b"\x00"),
    ("wrong_length", TOPIC, GOOD[:1] + b"\x90"),
    ("wrong_type", TOPIC, GOOD[:1] + b"\x80"),
    ("wrong_type", TOPIC, GOOD[:1] + GOOD[1:].replace(b"\xce\x00\x00\x00\x01", b"\xca\x00\x00\x00\x01")),
    ("out_of_range", TOPIC, GOOD.replace(b"\xce\x00\x00\x00\x01", b"\xce\x00\x00\x00\x00")),
    ("unknown_device", "fugu/2/home/clock/symbols/hr", GOOD),
    ("unknown_device", "fugu/2/home/clock/status", BIRTH),
    ("unknown_stream", "fugu/2/home/watch/symbols/gait", GOOD),
    ("unknown_policy_version", TOPIC, SymbolFrame(9, -1, 0, b"\x00").encode()),
    ("symbol_out_of_range", TOPIC, SymbolFrame(1, -1, 0, b"\x00\x01", bits=2).encode()),
    ("symbol_out_of_range", TOPIC, SymbolFrame(1, -1, 0, b"\xfe", bits=8).encode()),
    ("wrong_fleet", "fugu/2/away/watch/symbols/hr", GOOD),
    ("wrong_fleet", "fugu/2/away/watch/status", BIRTH),
    ("oversized", TOPIC, bytes(MAX_PAYLOAD_BYTES + 1)),
    ("topic", "fugu/1/home/watch/symbols/hr", GOOD),
    ("topic", "fugu/2/home/wa tch/symbols/hr", GOOD),
    ("empty", "fugu/2/home/watch/status", b""),
    ("unknown_schema", "fugu/2/home/watch/status", GOOD),
]


@pytest.mark.parametrize(("reason", "topic", "payload"), WRONG)
def test_what_is_wrong_is_counted_under_its_reason(reason: str, topic: str, payload: bytes) -> None:
    counters: Counter[str] = Counter()
    assert Ingest(catalogue(), counters).read(Message(topic, payload)) is None
    assert counters == {"received": 1, reason: 1}


def test_an_error_that_nobody_thought_of_is_counted_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_device: str) -> list[str]:
        raise KeyError

    counters, policies = Counter[str](), catalogue()
    monkeypatch.setattr(policies, "streams", broken)
    assert Ingest(policies, counters).read(Message("fugu/2/home/watch/status", BIRTH)) is None
    assert counters == {"received": 1, "unexpected": 1}


def received(arrivals: Arrivals, streams: Streams) -> list[tuple[str, str, object]]:
    """The frames of arrivals, those of symbols first."""
    slots = enumerate(arrivals.slots.tolist())
    symbols: list[tuple[str, str, object]] = [(*streams.names[s], arrivals.symbols.frame(row)) for row, s in slots]
    return symbols + [(device, stream, frame) for device, stream, frame in arrivals.other_frames]


def random_messages(generator: random.Random) -> list[Message]:
    """Good frames on two topics, some of them under another policy or with other bits, and what is wrong."""
    messages = []
    for tick in range(0, 400, 4):
        device, version = generator.choice(["watch", "ring"]), generator.choice([1, 1, 1, 1, 2, 3])
        bits = 2 if version == 3 else 1
        held = generator.choices(range(1 << generator.choice([1, bits])), k=generator.choice([1, 3, 4]))
        later = generator.choice([0, 0, 0, 0, 10_000])
        frame = SymbolFrame(version, tick - 1, tick + later, bytes(held), bits=bits, shift=generator.choice([0, 0, 4]))
        if frame.shift <= frame.first:
            messages.append(Message(f"fugu/2/home/{device}/symbols/hr", frame.encode()))
    messages += [Message(topic, payload) for _, topic, payload in WRONG]
    messages += [Message("fugu/2/home/watch/status", status) for status in (BIRTH, WILL)]
    generator.shuffle(messages)
    return messages


@pytest.mark.parametrize("seed", range(8))
def test_messages_by_the_batch_are_taken_and_refused_as_they_are_one_by_one(seed: int) -> None:
    generator = random.Random(seed)
    messages = random_messages(generator)
    one_by_one, by_batch = Counter[str](), Counter[str]()
    single = Ingest(catalogue(), one_by_one, lambda: 5_000 * SECOND)
    meanings = [single.read(message) for message in messages]
    wanted = [meaning for meaning in meanings if isinstance(meaning, ReceivedFrame)]
    streams = Streams()
    ingest = Ingest(catalogue(), by_batch, lambda: 5_000 * SECOND, streams=streams)
    arrived, births = [], []
    while messages:
        size = generator.randint(1, 60)
        arrivals, born = ingest.take(messages[:size])
        arrived += received(arrivals, streams)
        births += born
        messages = messages[size:]
    assert arrived == [(*received[:2], received.frame) for received in wanted]
    assert births == [meaning for meaning in meanings if isinstance(meaning, str)] == ["watch"]
    assert by_batch == one_by_one
    assert {"from_the_future", "symbol_out_of_range", "unknown_policy_version"} <= set(by_batch)


def test_every_reason_of_the_contract_is_met() -> None:
    assert {error.reason for error in FrameError.__subclasses__()} <= {reason for reason, _, _ in WRONG}


def test_the_largest_frame_is_not_oversized() -> None:
    table, chains = NoiseTable.randomised_response(17, 200_000_000), BoundedChains(states=17, odds_ratio=9.0)
    frame = SymbolFrame(1, -1, 0, bytes(MAX_FRAME_TICKS), bits=8)
    assert len(frame.encode()) == MAX_PAYLOAD_BYTES
    ingest = Ingest(catalogue([policy(table=table, chains=chains)]), Counter())
    assert ingest.read(Message(TOPIC, frame.encode())) == ReceivedFrame("watch", "hr", frame)


@pytest.mark.long
@pytest.mark.parametrize("period_us", [1000, SECOND, 7 * SECOND, 60 * SECOND, 3600 * SECOND])
def test_a_frame_may_be_as_far_ahead_as_clocks_may_differ_and_no_tick_further(period_us: int) -> None:
    clock = Clock(epoch_us=10**15, period_us=period_us)
    window = Window(name="level", length=1, stride=1, states=(1,), scale="20")
    counted = policy(windows=(window,)).model_copy(update={"clock": clock})
    moved = measure_policy(clock=clock)
    points = measure_frames(moved, [2])[0]
    last = 10**6
    begins = clock.epoch_us + last * period_us - max(60 * SECOND, 2 * period_us)  # from here on, it is near enough
    for now, refused in ((begins - 1, 1), (begins, 0)):
        ingest = Ingest(catalogue([counted, moved]), counters := Counter[str](), lambda now=now: now)
        for topic, payload in (
            ("symbols/hr", SymbolFrame(1, -1, last - 1, bytes(2)).encode()),
            ("window/hr", WindowFrame(1, "level", -1, last, last, 1, 1, (1,)).encode()),
            ("symbols/place", replace(points, first=last - 1).encode()),
        ):
            assert (ingest.read(Message(f"fugu/2/home/watch/{topic}", payload)) is None) == bool(refused), topic
        assert counters["from_the_future"] == 3 * refused


def test_a_gateway_whose_clock_is_not_set_says_so_and_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ingest = Ingest(catalogue(), counters := Counter[str](), lambda: 0)
    for first in (10**9, 10**9 + 3):
        assert ingest.read(Message(TOPIC, SymbolFrame(1, first - 1, first, bytes(3)).encode())) is None
    assert counters == {"received": 2, "from_the_future": 2}
    (line,) = [record.getMessage() for record in caplog.records]
    assert "1000000002 s after this machine's clock, which says 1970-01-01 00:00:00 UTC" in line
    assert "\n" not in line


def test_an_inbox_is_full_when_its_bytes_are_and_takes_again_when_they_are_read() -> None:
    inbox = Inbox(1_000, 10_000, 0.0)
    payload = bytes(4_000)
    taken = [not inbox.deliver([Message(TOPIC, payload)]) for _ in range(5)]
    assert taken == [True, True, True, False, False]
    assert len(inbox.take(1, 0.0)) == 1
    assert inbox.deliver([Message(TOPIC, payload)] * 2) == 1
    assert len(inbox.take(1_000, 0.0)) == 3
    assert not inbox.deliver([Message(TOPIC, payload)])
    inbox.close()
    assert inbox.deliver([Message(TOPIC, b"")]) == 1
    assert len(inbox.take_after_close(0.0)) == 1


LARGEST_STATUS = Status(
    *(True, "v" * 64, 2**53, tuple(StatusCode)), tuple(StreamStatus("s" * 64, 2**32 - 1, 2**53) for _ in range(64))
).encode()


@pytest.mark.parametrize(
    ("topic", "largest"),
    [
        (TOPIC, b"\x01" + bytes(MAX_PAYLOAD_BYTES - 1)),
        (TOPIC, bytes([MeasureFrame.SCHEMA]) + bytes(MAX_POINTS_BYTES - 1)),
        ("fugu/2/home/watch/status", LARGEST_STATUS),
        ("fugu/2/home/watch/window/hr", bytes(MAX_PAYLOAD_BYTES)),
        (f"fugu/2/{'f' * 64}/description/{'watch' * 12}/{'s' * 64}", bytes(MAX_PAYLOAD_BYTES)),
        (f"fugu/2/home/watch/{'x' * 238}", b""),
    ],
)
def test_a_message_larger_than_any_valid_one_never_enters_the_inbox_and_is_counted(topic: str, largest: bytes) -> None:
    inbox = Inbox(10, 1 << 20, 0.0, knows=lambda name: name == "watch")
    longer = Message(topic + "x" * (not largest), largest + b"\x00" * bool(largest))
    assert not inbox.deliver([Message(topic, largest)])
    for _ in range(100):
        assert not inbox.deliver([longer])
    assert inbox.take(1_000, 0.0) == [Message(topic, largest)]
    name = "watch" if "/watch/" in topic else ""
    assert (inbox.take_refused(), inbox.take_refused()) == (({name: 100}, {}), ({}, {}))


def test_names_that_nobody_knows_share_a_queue_and_what_is_counted() -> None:
    inbox = Inbox(1_000, 1 << 20, 0.0, knows=lambda name: name == "watch")
    strangers = [Message(f"fugu/2/home/stranger-{number}/status", BIRTH) for number in range(2_000)]
    large = [Message(f"fugu/2/home/large-{number}/status", bytes(6_000)) for number in range(2_000)]
    assert inbox.deliver([*strangers, *large]) == 1_500
    assert inbox.take_refused() == ({"": 2_000}, {"": 1_500})
    assert inbox.deliver([Message(TOPIC, GOOD)]) == 0
    assert Message(TOPIC, GOOD) in inbox.take(100, 0.0)


def test_a_device_whose_messages_take_long_has_fewer_of_them_in_a_round() -> None:
    inbox = Inbox(10_000, 1 << 24, 0.0)
    status = Message("fugu/2/home/watch/status", BIRTH)
    inbox.deliver([status] * 2_000)
    sizes = []
    for seconds in (2.56, 0.02, 0.01, 0.0, 0.0, 0.0, 0.0):
        sizes.append(len(inbox.take(2_000, 0.0)))
        inbox.note_costs({"watch": seconds})
    assert sizes == [256, 2, 2, 4, 8, 16, 32], "10 ms each, then 10, then 5, and then none"
    inbox.deliver([Message(TOPIC.replace("watch", "ring"), BIRTH)] * 256)
    assert len(inbox.take(2_000, 0.0)) == 256 + 64, "that is not another device's"


def test_what_the_broker_answers_is_taken_first_and_takes_no_room() -> None:
    inbox = Inbox(3, 1 << 20, 0.0)
    assert inbox.deliver([Message(TOPIC, GOOD)] * 4) == 1
    for message_id in range(10):
        inbox.notify(Acknowledged(message_id))
    assert inbox.waiting == 13
    assert inbox.take(2, 0.0) == [*(Acknowledged(message_id) for message_id in range(10)), *[Message(TOPIC, GOOD)] * 2]
    inbox.close()
    inbox.notify(Acknowledged(10))
    assert (inbox.drained, inbox.take_after_close(0.0)) == (False, [Acknowledged(10), Message(TOPIC, GOOD)])
    assert inbox.drained
