"""The numbers of watermarks go up, whatever the clock does and whatever becomes of a gateway."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from fugu.contract.frames import Committed, SymbolFrame
from fugu.contract.topics import topic_of
from gateway.loop.publisher import RESERVED_US, Publisher, WatermarkCounter
from gateway.store.store import Store
from tests.support.scenes import Scene, loop_of, policy
from tests.support.wires import Wire

YEAR_US = 365 * 86_400 * 1_000_000
NOW_US = 55 * YEAR_US


class Elapsed:
    """A monotonic clock that stands still until it is told."""

    def __init__(self) -> None:
        self.us = 5

    def __call__(self) -> int:
        return self.us


@contextmanager
def counting(path: Path, now_us: int) -> Iterator[tuple[WatermarkCounter, Elapsed]]:
    """A gateway that starts with a store at some time."""
    elapsed = Elapsed()
    with closing(Store(path)) as store:
        yield WatermarkCounter(store, lambda: now_us, elapsed), elapsed


def test_a_clock_that_goes_back_makes_no_device_deaf(tmp_path: Path) -> None:
    numbers: list[int] = []
    for now_us in (NOW_US, NOW_US - YEAR_US, 0, NOW_US - 1, NOW_US + 3600_000_000, NOW_US):
        with counting(tmp_path / "s.sqlite", now_us) as (counter, elapsed):
            for _ in range(3):
                numbers.append(counter.next())
                elapsed.us += 2 * RESERVED_US
            numbers += [counter.next() for _ in range(1000)]
    assert numbers == sorted(set(numbers))


def test_two_gateways_that_take_turns_are_above_each_other(tmp_path: Path) -> None:
    """Neither is started anew: each counts on with the time that goes by."""
    with (
        counting(tmp_path / "a.sqlite", NOW_US) as (first, first_elapsed),
        counting(tmp_path / "b.sqlite", NOW_US + 60_000_000) as (second, second_elapsed),
    ):
        first_elapsed.us += 60_000_000
        numbers = []
        for _ in range(20):
            for counter in (first, second):
                numbers.append(counter.next())
                first_elapsed.us += 1_000
                second_elapsed.us += 1_000
    assert numbers == sorted(set(numbers))


def test_a_number_that_cannot_be_reserved_is_not_said(tmp_path: Path) -> None:
    with counting(tmp_path / "s.sqlite", NOW_US) as (counter, _):
        counter._store._db.execute("PRAGMA query_only=1")
        with pytest.raises(sqlite3.OperationalError):
            counter.next()
        counter._store._db.execute("PRAGMA query_only=0")
        number = counter.next()
    with counting(tmp_path / "s.sqlite", 0) as (counter, _):
        assert counter.next() > number


def test_each_device_s_watermark_has_a_tag_under_its_own_key(tmp_path: Path) -> None:
    keys = {"watch": bytes(range(32)), "ring": bytes(32)}
    names = (*keys, "pen")
    scene = Scene(tmp_path / "s.sqlite", policies=tuple(policy(1, device=name) for name in names))
    link = Wire()
    registered = Mock(key=keys.get)
    publisher = Publisher(loop_of(link=link, store=scene.store, registered=registered), scene.recorder)
    for name in names:
        scene.record(SymbolFrame(1, -1, 0, b"\1"), device=name)
        publisher.born(name)
    publisher.pump(idle=False)
    messages = {
        topic: Committed.decode(payload)
        for topic, payload in link.sent
        if topic in {topic_of("committed", "home", name) for name in names}
    }
    for name in names:
        message = messages[topic_of("committed", "home", name)]
        assert message.streams[0].through == 0
        taken = {holder for holder, key in keys.items() if message.is_authentic(key, "home", name)}
        assert taken == {name} & keys.keys()
    assert messages[topic_of("committed", "home", "pen")].tag == b""
    assert len({message.counter for message in messages.values()}) == 3
