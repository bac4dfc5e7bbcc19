"""A device that says ever new things, all of them valid, on any topic that it may write: nothing grows by it."""

from __future__ import annotations

import gc
import logging
import os
import re
import time
from functools import cache
from itertools import count, islice, pairwise
from pathlib import Path

import pytest

from fugu.contract.frames import Status, StreamStatus
from fugu.contract.topics import topic_of
from gateway.deployment.mosquitto import Account, access_list
from gateway.parts import Part
from gateway.parts.describe import Describer
from tests.support.ever_new import GENERATORS, MESSAGES
from tests.support.loop_driver import DEVICES, Driver, largest_containers

MOST_ENTRIES = 4 * DEVICES
"""More than streams, sequences and versions of the catalogue, and less than any flood."""


def writable() -> set[str]:
    """The topics that a device with a stream may write at the shipped broker."""
    lines = access_list("home", [Account(name="watch", role="device", streams=("hr",))])
    matches = re.findall(r"^(?:pattern|topic) (?:readwrite|write) fugu/2/home/(\S+)$", lines, re.MULTILINE)
    return {re.sub("^(%u|watch)/", "{device}/", topic).replace("/hr", "/{stream}") for topic in matches}


def test_every_topic_that_a_device_may_write_has_its_generator() -> None:
    assert writable() == GENERATORS.keys()


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _endless_caches() -> dict[str, int]:
    """Caches of functions without a limit that have many entries."""
    every = [cached for cached in gc.get_objects() if isinstance(cached, type(cache(gc.collect)))]
    return {
        f"{cached.__module__}.{cached.__name__}": cached.cache_info().currsize
        for cached in every
        if cached.cache_info().maxsize is None and cached.cache_info().currsize > MOST_ENTRIES
    }


@pytest.mark.long
def test_ever_new_content_grows_no_dictionary_and_is_reacted_to_once_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On one topic after the other, at one gateway."""
    caplog.set_level(logging.CRITICAL)  # what is logged is not the gateway's memory
    with Driver(tmp_path, monkeypatch) as driver:
        for _ in range(DEVICES + 30):  # until all is described
            driver.round()
            assert len({key[1] for key in driver.made if key[0] == "description"}) <= 1, "one device a look"
        assert driver.gateway.counters["descriptions"] >= DEVICES
        assert driver.gateway.counters["discovery"] == DEVICES + 1
        for topic, generator in GENERATORS.items():
            messages = generator()
            driver.deliver(islice(messages, 2_000))
            taken, sizes = 0, [_resident()]
            while (batch := driver.deliver(islice(messages, MESSAGES // 4))) > 0:
                driver.round()
                taken += batch
                sizes.append(_resident())
            assert taken == MESSAGES - 2_000, topic
            assert driver.most_made == 1, topic
            grown = min(after - before for before, after in pairwise(sizes))  # a test before may still compile, once
            assert grown < 5 << 20, topic
            assert not driver.gateway.failed.is_set(), topic
            print(topic, f"grown {grown / 2**20:.1f} MB", +driver.gateway.counters)
        assert driver.gateway.counters["report_stored"] > 300, "some are kept, and not in memory"
        assert largest_containers(driver.gateway, MOST_ENTRIES) == {}
        assert _endless_caches() == {}


class _Looking(Part):
    """Looks, after messages were heard and before anything is done about them, for what has many entries."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.large: dict[str, int] = {}

    def pump(self, *, idle: bool = False) -> None:
        """Look, in a round of many messages."""
        if not idle:
            self.large |= largest_containers(self._driver.gateway, MOST_ENTRIES)


@pytest.mark.long
def test_many_unknown_devices_fill_nothing_even_until_what_was_heard_is_next_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is of another device, as at a broker without our access list, and all come within one moment."""
    with Driver(tmp_path, monkeypatch) as driver:
        driver.round()
        looking = _Looking(driver)
        driver.gateway._parts_by_call["pump"].insert(0, looking)
        for number, generator in enumerate(GENERATORS.values()):
            messages = [
                (re.sub(r"/home/[^/]+/", f"/home/unknown-{number}-{which}/", topic), payload)
                for which, (topic, payload) in enumerate(islice(generator(), 2 * MOST_ENTRIES))
            ]
            assert driver.deliver(messages, seconds=0.0) == len(messages)
        assert looking.large == {}
        assert driver.gateway.counters["fleet_dropped"] > 0


def test_a_device_whose_description_takes_long_is_not_described_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second for each: another one after 20 seconds, and it is of the newest."""
    with Driver(tmp_path, monkeypatch) as driver:
        for _ in range(DEVICES + 30):
            driver.round()
        before, seconds = driver.gateway.counters["descriptions"], count()
        monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
        for number in range(150):
            streams = (StreamStatus("hr", 1 + number % 2 * 2, 10**9 + number),)
            driver.deliver([(topic_of("status", "home", "d7"), Status(True, "1", 0, (), streams).encode())])
        assert driver.gateway.counters["descriptions"] - before <= 2
        for _ in range(300):
            driver.round()
        described = describing(driver).described()["d7"]
        assert [description.version for description in described] == [3]


def describing(driver: Driver) -> Describer:
    """The gateway's part that describes streams."""
    (part,) = (part for part in driver.gateway._parts if isinstance(part, Describer))
    return part
