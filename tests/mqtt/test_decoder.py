"""From messages to readings: times and names by the description of the right version, each message once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fugu.contract.descriptions import DescribedVersion, Description, describe
from fugu.contract.frames import MAX_TICK, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.topics import topic_of
from fugu.mqtt import (
    CountReading,
    Decoder,
    DescriptionReading,
    EstimateReading,
    PointReading,
    ReleaseReading,
    SymbolReading,
    WindowReading,
)
from fugu.mqtt import readings as remembered
from tests.support.example_frames import COUNT, PLACE_ESTIMATE, RELEASE_FRAME, REPORTS, STATE_ESTIMATE
from tests.support.measured import measure_policy
from tests.support.scenes import policy

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SYMBOLS = topic_of("symbols", "home", "watch", "hr")
WINDOWS = topic_of("window", "home", "watch", "hr")
DESCRIBED = topic_of("description", "home", "watch", "hr")


def described(version: int = 1, **changes: object) -> Description:
    """A stream with two states, a tick a second from an hour that is easy to read."""
    description = describe(policy(version))
    shape = {"epoch": "2026-03-01T00:00:00Z", "period_seconds": 1.0, "states": ("low", "high")}
    return Description.model_validate({**description.model_dump(), **shape, **changes}, strict=False)


def symbols(version: int, first: int = 100, shift: int = 40) -> bytes:
    return SymbolFrame(version, first - 1, first, b"\0\1", shift=shift).encode()


def take_description(decoder: Decoder, description: Description) -> None:
    """Let a decoder hear a description, which must be taken."""
    decoder.decode(DESCRIBED, description.encode())
    assert not decoder.rejected


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


def test_symbols_have_the_wall_clock_s_time_and_names_by_their_description(decoder: Decoder) -> None:
    take_description(decoder, described())
    assert decoder.decode(SYMBOLS, symbols(1)) == [
        SymbolReading("watch", "hr", 100, 0, 40, EPOCH + 60 * SECOND, "low"),
        SymbolReading("watch", "hr", 101, 1, 40, EPOCH + 61 * SECOND, "high"),
    ]


def test_without_their_description_they_have_neither(decoder: Decoder) -> None:
    assert decoder.decode(SYMBOLS, symbols(1)) == [
        SymbolReading("watch", "hr", 100, 0, 40),
        SymbolReading("watch", "hr", 101, 1, 40),
    ]


def test_a_changed_description_counts_from_its_version_on(decoder: Decoder) -> None:
    take_description(decoder, described(1))
    take_description(decoder, described(2, epoch="2026-03-02T00:00:00Z", states=("away", "there")))
    times = [decoder.decode(SYMBOLS, symbols(version, first))[0] for version, first in ((2, 300), (1, 100), (3, 500))]
    assert [(time.time, time.label) for time in times if isinstance(time, SymbolReading)] == [
        (datetime(2026, 3, 2, tzinfo=UTC) + 260 * SECOND, "away"),
        (EPOCH + 60 * SECOND, "low"),
        (None, None),
    ]
    assert [description.version for description in decoder.descriptions] == [2]


def test_after_a_rollback_the_description_that_came_last_is_in_force() -> None:
    decoder = Decoder(descriptions=True)
    for version in (1, 2, 1):
        assert len(decoder.decode(DESCRIBED, described(version).encode())) == 1
    assert [description.version for description in decoder.descriptions] == [1]
    for version in (6, 5, 4, 3):
        take_description(decoder, described(version))
    assert [description.version for description in decoder.descriptions] == [3]
    assert decoder.descriptions.find("watch", "hr", 1) is None


def test_one_description_names_and_times_what_comes_under_the_other_versions_that_are_in_use() -> None:
    earlier = {**dict(described(1)), "others": ...}
    versions = [DescribedVersion(**{name: value for name, value in earlier.items() if value is not ...})]
    newest = described(2, epoch="2026-03-02T00:00:00Z", states=("away", "there"), others=versions)
    decoder = Decoder()
    take_description(decoder, newest)
    late = decoder.decode(SYMBOLS, symbols(1))[0]
    assert (late.time, late.label) == (EPOCH + 60 * SECOND, "low")
    assert [*decoder.descriptions] == [newest]
    for version in (6, 5, 4):
        take_description(decoder, described(version))
    assert [decoder.descriptions.find("watch", "hr", version) is not None for version in (1, 2)] == [False, True]


def test_a_table_of_more_symbols_than_states_gives_no_names(decoder: Decoder) -> None:
    take_description(decoder, described(table=((2**30, 2**31), (2**29, 2**30))))
    frame = SymbolFrame(1, -1, 0, b"\2\0", bits=2)
    assert [reading[-2:] for reading in decoder.decode(SYMBOLS, frame.encode())] == [
        (EPOCH, None),
        (EPOCH + SECOND, None),
    ]


def test_windows_have_their_two_ends_and_their_states() -> None:
    window = {"name": "hour", "length": 3600, "stride": 3600, "start": 0, "states": ("high",), "scale": "20"}
    histogram = {**window, "name": "all", "states": "histogram"}
    decoder = Decoder()
    take_description(decoder, described(windows=(window, histogram)))
    ends = (EPOCH, EPOCH + 3600 * SECOND)
    for name, counts, states in (
        ("hour", (1800,), ("high",)),
        ("all", (1, 2), ("low", "high")),
        ("hour", (1, 2), None),
    ):
        frame = WindowFrame(1, name, -1, 0, 64, 3600, 3600, counts, 64)
        place = ("watch", "hr", name, 64, 3600, 3600, counts, 64)
        assert decoder.decode(WINDOWS, frame.encode()) == [WindowReading(*place, *ends, states)]
    unknown = WindowFrame(9, "hour", 0, 1, 64, 3600, 3600, (7,), 64)
    assert decoder.decode(WINDOWS, unknown.encode())[0][-3:] == (None, None, None)


def test_points_of_places_have_latitude_and_longitude() -> None:
    description = describe(measure_policy())
    grid = {"origin": (46.0, 14.0), "step": (0.01, 0.02), "cell_size": (100.0, 100.0), "cells": ((0, 0), (1, 0))}
    place = Description.model_validate(
        {**description.model_dump(), "epoch": "2026-03-01T00:00:00Z", "place": grid}, strict=False
    )
    frame = MeasureFrame(1, -1, 0, 2, (Released(3, (4, -1)),)).encode()
    topic = topic_of("symbols", "home", description.device, description.stream)
    decoder = Decoder()
    (bare,) = decoder.decode(topic, frame)
    assert bare == PointReading(description.device, description.stream, 0, 3, (4, -1))
    decoder.decode(topic_of("description", "home", description.device, description.stream), place.encode())
    (point,) = Decoder.decode(decoder, topic, MeasureFrame(1, 0, 1, 2, (Released(3, (4, -1)),)).encode())
    assert point.time == EPOCH + timedelta(seconds=place.period_seconds)
    assert (point.latitude, point.longitude) == pytest.approx((46.0 - 0.005, 14.0 + 0.09))
    assert not decoder.rejected


def test_what_is_sent_again_and_accounts_for_more_is_told_once(decoder: Decoder) -> None:
    """Its device has dropped the frames before it; whoever adds counts up would have them twice."""
    place = topic_of("symbols", "home", "watch", "place")
    frame = SymbolFrame(1, 99, 100, b"\0\1", shift=40)
    points = MeasureFrame(1, 19, 20, 2, (Released(0, (1, -2)), Released(0, (3, 4))))
    counts = WindowFrame(1, "high", 1, 2, 20, 10, 10, (7,))
    assert len(decoder.decode(SYMBOLS, frame.encode())) == 2
    assert len(decoder.decode(place, points.encode())) == 2
    assert len(decoder.decode(WINDOWS, counts.encode())) == 1
    assert decoder.decode(SYMBOLS, replace(frame, previous=-1, padding=3).encode()) == []
    assert decoder.decode(place, replace(points, previous=-1).encode()) == []
    assert decoder.decode(WINDOWS, replace(counts, previous=-1).encode()) == []
    contradiction = replace(points, released=(Released(0, (1, -1)), Released(0, (3, 4))))
    assert len(decoder.decode(place, contradiction.encode())) == 2
    assert not decoder.rejected


def test_what_the_gateway_says_comes_once_each(decoder: Decoder) -> None:
    estimates, counts = topic_of("estimate", "home", "watch", "hr"), topic_of("count", "home", "watch", "hr")
    later = replace(STATE_ESTIMATE, tick=27_001, time=STATE_ESTIMATE.time + SECOND)
    for estimate in (STATE_ESTIMATE, later, PLACE_ESTIMATE):
        payload = estimate.encode()
        assert decoder.decode(estimates, payload) == [EstimateReading("watch", "hr", estimate)]
        assert decoder.decode(estimates, payload) == []
    assert decoder.decode(counts, COUNT.encode()) == [CountReading("watch", "hr", COUNT)]
    assert decoder.decode(counts, COUNT.encode()) == []
    assert not decoder.rejected


@pytest.mark.parametrize("name", REPORTS)
def test_no_message_is_taken_under_another_topic(name: str) -> None:
    payload = REPORTS[name].encode()
    topics = {
        topic_of("estimate", "home", "watch", "hr"): EstimateReading,
        topic_of("count", "home", "watch", "hr"): CountReading,
        SYMBOLS: None,
        WINDOWS: None,
        DESCRIBED: None,
        topic_of("release", "home", "public", "active"): None,
        topic_of("status", "home", "watch"): None,
        "something/else": None,
    }
    decoder = Decoder()
    taken = [decoder.decode(topic, payload) for topic in topics]
    (only,) = [readings for readings in taken if readings]
    assert len(only) == 1
    assert sum(decoder.rejected.values()) == len(topics) - 1


def test_releases_of_other_streams_are_left_out_and_others_names_are_refused() -> None:
    topic, payload = topic_of("release", "home", "public", "active"), RELEASE_FRAME.encode()
    assert Decoder(stream="steps").decode(topic, payload) == []
    decoder = Decoder(stream="hr")
    assert decoder.decode(topic, payload) == [ReleaseReading("active", RELEASE_FRAME)]
    assert decoder.decode(topic, payload) == []
    following = replace(RELEASE_FRAME, first=10_800, entry=13)
    assert decoder.decode(topic, following.encode()) == [ReleaseReading("active", following)]
    assert not decoder.rejected
    assert decoder.decode(topic_of("release", "home", "public", "other"), payload) == []
    assert decoder.decode(topic_of("release", "home", "other", "active"), payload) == []
    assert decoder.decode(topic, payload[:-1]) == []
    assert decoder.rejected == {"topic": 2, "malformed": 1}


def test_descriptions_are_readings_if_asked_for_and_each_once() -> None:
    decoder = Decoder(descriptions=True)
    payload = described().encode()
    assert decoder.decode(DESCRIBED, payload) == [DescriptionReading("watch", "hr", described())]
    assert decoder.decode(DESCRIBED, payload) == []
    assert Decoder().decode(DESCRIBED, payload) == []


def test_a_description_of_another_stream_is_refused(decoder: Decoder) -> None:
    for topic in (topic_of("description", "home", "ring", "hr"), topic_of("description", "away", "watch", "hr")):
        assert decoder.decode(topic, described().encode()) == []
    assert decoder.rejected == {"topic": 2}
    assert list(decoder.descriptions) == []


def test_a_description_that_is_withdrawn_is_forgotten(decoder: Decoder) -> None:
    take_description(decoder, described(1))
    take_description(decoder, described(2))
    decoder.decode(DESCRIBED, b"")
    assert list(decoder.descriptions) == []
    assert decoder.decode(SYMBOLS, symbols(1))[0][-2:] == (None, None)
    assert not decoder.rejected


def test_only_the_versions_of_a_stream_that_came_last_are_remembered(decoder: Decoder) -> None:
    for version in (5, 9, 6, 8, 7, 4):
        take_description(decoder, described(version))
    versions = [version for version in range(1, 12) if decoder.descriptions.find("watch", "hr", version)]
    assert versions == [4, 6, 7, 8]


def test_a_broker_cannot_fill_the_memory_with_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(described().encode())
    for limit, value in (("MOST_STREAMS", 2), ("MOST_BYTES", 3 * size + 100)):
        with monkeypatch.context() as patch:
            patch.setattr(remembered, limit, value)
            decoder = Decoder()
            for number in range(10):
                description = described(stream=f"s{number}")
                decoder.decode(topic_of("description", "home", "watch", description.stream), description.encode())
            streams = [description.stream for description in decoder.descriptions]
            assert streams == [f"s{number}" for number in range(len(streams))]
            assert 2 <= len(streams) <= 3
            assert decoder.rejected == {"wrong_length": 10 - len(streams)}
            again = described(stream="s0", unit="C")
            decoder.decode(topic_of("description", "home", "watch", "s0"), again.encode())
            assert next(iter(decoder.descriptions)) == again, "what is known may still change"
            decoder.decode(topic_of("description", "home", "watch", "s0"), b"")
            decoder.decode(topic_of("description", "home", "watch", "s9"), described(stream="s9").encode())
            assert "s9" in [description.stream for description in decoder.descriptions], (
                "and what is withdrawn makes room"
            )


@pytest.mark.parametrize("first", [MAX_TICK - 1, 10**12])
def test_ticks_beyond_all_calendars_are_refused(decoder: Decoder, first: int) -> None:
    take_description(decoder, described())
    assert decoder.decode(SYMBOLS, symbols(1, first, 0)) == []
    window = WindowFrame(1, "hour", -1, 0, first - 2**31, 2**31, 1, (1,))
    assert decoder.decode(WINDOWS, window.encode()) == []
    decoder.decode(DESCRIBED, described(period_seconds=31_622_400.0).encode())
    assert decoder.decode(WINDOWS, WindowFrame(1, "hour", 0, 1, 0, 2**31, 1, (1,)).encode()) == []
    assert decoder.rejected == {"out_of_range": 3}


def test_what_is_remembered_of_messages_is_bounded(decoder: Decoder) -> None:
    for first in range(2000):
        decoder.decode(SYMBOLS, symbols(1, 1 + 2 * first, 0))
    assert len(decoder._seen) == 1024
    assert decoder.decode(SYMBOLS, symbols(1, 3999, 0)) == []
    assert len(decoder.decode(SYMBOLS, symbols(1, 1, 0))) == 2
