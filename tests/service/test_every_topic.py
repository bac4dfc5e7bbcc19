"""A device that says ever new things, all of them valid, on any topic that it may write: nothing grows by it."""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper
from itertools import islice
from pathlib import Path

import pytest

from fugu.contract.errors import StatusCode
from fugu.contract.frames import PolicyStatus, Status, StreamStatus, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.topics import topic_of
from gateway.deployment.mosquitto import Account, access_list
from tests.support.loop_driver import DEVICES, START, Driver, largest_containers

MESSAGES = 20_000
MOST_ENTRIES = 4 * DEVICES
"""More than streams, sequences and versions of the catalogue, and less than any flood."""
Messages = Iterator[tuple[str, bytes]]


def _device(number: int) -> str:
    """A device of the fleet; of a few messages, one that nobody knows, as at a broker without an access list."""
    return f"stranger-{number}" if number % 20 == 19 else f"d{number % DEVICES}"


def statuses() -> Messages:
    """New streams, versions in turn, new numbers, codes in turn; of some as many streams as there is room for."""
    codes = tuple(StatusCode)
    for number in range(MESSAGES):
        version = 1 if number % 10 else 1 + number // DEVICES % 2 * 2
        streams = [StreamStatus("hr", version, 10**9 + number)]
        streams += [StreamStatus(f"made-up-{number}-{part}", 1 + number, number) for part in range(1 + number % 3)]
        if number % 500 == 0:
            streams = [StreamStatus(f"{number:032d}{part:032d}", 1, number) for part in range(64)]
        some = (codes[number % len(codes)],)
        online = number % 7 > 0
        said = Status(online, f"1.{number}", number, some, tuple(streams))
        yield topic_of("status", "home", _device(number)), said.encode()


def answers() -> Messages:
    """New versions, documents, reasons and sentences."""
    for number in range(MESSAGES):
        answer = PolicyStatus(number, number.to_bytes(8, "big"), f"r{number}", f"said {number}", number, number % 2 > 0)
        yield topic_of("policy_status", "home", _device(number)), answer.encode()


def symbols() -> Messages:
    """Frames in order, late and scattered ones, of new streams, versions and times, contradictions; and points."""
    last = START
    for number in range(MESSAGES):
        device, stream, version = _device(number), "hr", 2 if number % DEVICES < 3 else 1
        first = {0: last - 10**6 + number, 1: number * 7, 2: 2**50 + number}.get(number % 5, number // DEVICES * 10)
        if number % 17 == 16:
            first = number % 340  # again, and it may say something else
        if number % 11 == 10:
            stream = f"made-up-{number}"
        version = 10 + number if number % 13 == 12 else version
        payload = SymbolFrame(version, first - 1, first, bytes([number & 1]) * 4).encode()
        if number % 50 < 3:
            device, stream = f"d{number % 50}", "place"
            point = Released(0, (number % 7, number // 7 % 5))
            payload = MeasureFrame(2, first - 1, first, 2, (point,)).encode()
        yield topic_of("symbols", "home", device, stream), payload


def counts() -> Messages:
    """Windows in any order, of new names, streams, versions and times; contradictions."""
    for number in range(MESSAGES):
        index = number * 37 % 10**6 if number % 3 else number // DEVICES
        window = f"made-up-{number}" if number % 11 == 10 else "high"
        stream = f"made-up-{number}" if number % 7 == 6 else "hr"
        version = 10 + number if number % 13 == 12 else 2 if number % DEVICES < 3 else 1
        frame = WindowFrame(version, window, index - 1, index, 20 * index, 20, 20, (number,))
        yield topic_of("window", "home", _device(number), stream), frame.encode()


GENERATORS: dict[str, Callable[[], Messages]] = {
    "{device}/status": statuses,
    "{device}/policy/status": answers,
    "{device}/symbols/{stream}": symbols,
    "{device}/window/{stream}": counts,
}


def writable() -> set[str]:
    """The topics that a device with a stream may write at the shipped broker."""
    lines = access_list("home", [Account(name="watch", role="device", streams=("hr",))])
    found = re.findall(r"^(?:pattern|topic) (?:readwrite|write) fugu/2/home/(\S+)$", lines, re.MULTILINE)
    return {re.sub("^(%u|watch)/", "{device}/", topic).replace("/hr", "/{stream}") for topic in found}


def test_every_topic_that_a_device_may_write_has_its_generator() -> None:
    assert writable() == GENERATORS.keys()


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _endless_caches() -> dict[str, int]:
    """Caches of functions without a limit that have many entries."""
    every = [one for one in gc.get_objects() if isinstance(one, _lru_cache_wrapper)]
    return {
        f"{one.__module__}.{one.__name__}": one.cache_info().currsize
        for one in every
        if one.cache_info().maxsize is None and one.cache_info().currsize > MOST_ENTRIES
    }


@pytest.mark.long
@pytest.mark.parametrize("topic", GENERATORS)
def test_ever_new_content_grows_no_dictionary_and_is_reacted_to_once_a_round(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # what is logged is not the gateway's memory
    with Driver(tmp_path, monkeypatch) as driver:
        for _ in range(15):
            driver.round()  # until all is described
        assert driver.gateway.counters["descriptions"] >= DEVICES
        assert driver.gateway.counters["discovery"] == DEVICES + 1
        messages = GENERATORS[topic]()
        driver.deliver(islice(messages, 2_000))
        before = _resident()
        taken = driver.deliver(messages)
        driver.round()
        grown = _resident() - before
        assert taken == MESSAGES - 2_000
        assert driver.most_made == 1
        assert largest_containers(driver.gateway, MOST_ENTRIES) == {}
        assert _endless_caches() == {}
        assert grown < 20 << 20
        assert not driver.gateway.failed.is_set()
        print(topic, f"grown {grown / 2**20:.1f} MB", +driver.gateway.counters)
