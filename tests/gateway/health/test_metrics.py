"""Metrics for Prometheus: the numbers, no name of anybody, nothing of a reading; and nobody who asks can do harm."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from fugu.contract.errors import FuguError, Reason, UsageError
from fugu.contract.reports import AlarmCode, Health, HealthAlarm
from gateway.config import Listen
from gateway.health import metrics
from gateway.health.metrics import Metrics, Reading
from tests.support.brokers import PATIENCE, free_port, wait_until
from tests.support.command import runner
from tests.support.gateway_files import gateway_file
from tests.support.scenes import Scene, frames, write_policies

HEALTH = Health(
    *(True, 20, 1_700_000_000, 5, 4, 100, 7),
    (
        HealthAlarm(AlarmCode.SILENT, 5, 2, ("watch", "ring"), 3, "see whether it runs"),
        HealthAlarm(AlarmCode.STORE, 6, 1, (), 0, "look at the disk"),
    ),
)
COUNTERS = Counter({"received": 9, "stored": 6, "windows_stored": 2, Reason.MALFORMED: 1, "releases_refused": 4})
READING = Reading(HEALTH, COUNTERS, True, 0.25, 3, 4096)


@contextmanager
def served(reading: Reading = READING) -> Iterator[int]:
    """The port of metrics that say this."""
    port = free_port()
    serving = Metrics(Listen("127.0.0.1", port), lambda: reading)
    try:
        yield port
    finally:
        serving.stop()


def scraped(port: int) -> list[Metric]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def sample(families: list[Metric], name: str, **labels: str) -> float:
    (sample,) = (
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    )
    return sample


@pytest.mark.long
def test_what_is_told_are_the_numbers_of_the_health_and_of_the_counters() -> None:
    with served() as port:
        metrics = scraped(port)
    assert sample(metrics, "fugu_gateway_start_time_seconds") == 1_700_000_000
    assert sample(metrics, "fugu_gateway_devices") == 5
    assert sample(metrics, "fugu_gateway_devices_heard") == 4
    assert sample(metrics, "fugu_gateway_connected") == 1
    assert sample(metrics, "fugu_gateway_round_age_seconds") == 0.25
    assert sample(metrics, "fugu_gateway_store_bytes") == 4096
    assert sample(metrics, "fugu_gateway_messages_received_total") == 9
    assert sample(metrics, "fugu_gateway_frames_stored_total", kind="ticks") == 6
    assert sample(metrics, "fugu_gateway_frames_stored_total", kind="windows") == 2
    assert sample(metrics, "fugu_gateway_messages_refused_total", reason="malformed") == 1
    assert sample(metrics, "fugu_gateway_releases_refused_total") == 4
    assert sample(metrics, "fugu_gateway_alarms", code="silent") == 5
    assert sample(metrics, "fugu_gateway_alarms", code="store") == 1
    assert sample(metrics, "fugu_gateway_alarms", code="conflict") == 0
    with pytest.raises(OSError, match="refused"):  # it has ended
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.long
def test_labels_are_known_beforehand_and_names_are_those_of_the_gateway() -> None:
    """The same series in any event: none comes with a device, and no text is from anybody's message."""
    loud = Counter({**COUNTERS, "watch": 3, "unheard of": 5})
    with served() as port, served(replace_health(loud)) as other:
        metrics, after = scraped(port), scraped(other)
    allowed = {"code": set(AlarmCode), "reason": set(Reason), "kind": {"ticks", "windows"}}
    for family in metrics:
        assert re.fullmatch("fugu_gateway_[a-z_]+", family.name)
        assert family.documentation
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert all(value in allowed[label] for label, value in sample.labels.items())
    series = [
        {(sample.name, *sample.labels.items()) for family in of for sample in family.samples} for of in (metrics, after)
    ]
    assert series[0] == series[1]
    units = ("_seconds", "_bytes", "_total", "_messages", "_alarms", "_devices", "_heard", "_connected")
    assert all(name[0].endswith(units) for name in series[0])


def replace_health(counters: Counter[str]) -> Reading:
    return READING._replace(counters=counters, health=replace(HEALTH, alarms=(), heard=0))


@pytest.mark.long
def test_what_is_counted_is_the_same_whatever_the_symbols_are(tmp_path: Path) -> None:
    counted = []
    for name, seed in (("a", 1), ("b", 2)):
        scene = Scene(tmp_path / f"{name}.sqlite", lag=4)
        sent = frames([10, 3, 7, 10], gaps=[0, 2], seed=seed)
        scene.record(*sent[1:])
        scene.record(sent[0], sent[2])
        scene.store.close()
        with served(READING._replace(counters=scene.counters)) as port:
            counted.append((sent, [family.samples for family in scraped(port)]))
    assert counted[0][0] != counted[1][0]
    assert counted[0][1] == counted[1][1]


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("9464", Listen("127.0.0.1", 9464)),
        ("127.0.0.1:9464", Listen("127.0.0.1", 9464)),
        ("0.0.0.0:1", Listen("0.0.0.0", 1)),
        ("[::1]:65535", Listen("::1", 65535)),
        ("gateway.example:9464", Listen("gateway.example", 9464)),
    ],
)
def test_addresses(text: str, listen: Listen) -> None:
    assert Listen.parse(text) == listen


@pytest.mark.parametrize(
    "text", ["", ":", ":9464", "host", "host:", "0", "65536", "1e3", "-1", "host:99999999999", "٣"]
)
def test_what_is_no_address_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        Listen.parse(text)
    file = gateway_file(tmp_path / "gateway.toml", 1, policies=".", store="s", metrics=text)
    done = runner(capsys)("gateway", "run", file)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "gateway.toml: metrics: " in done.err


def test_a_port_that_is_taken_ends_the_start_with_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    policies = write_policies(tmp_path / "policies")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = gateway_file(tmp_path / "gateway.toml", 1, policies=policies, store="s", metrics=port)
        done = runner(capsys)("gateway", "run", file)
    assert (done.code, done.out) == (1, "")
    why = "another program listens there: stop it, or name another port"
    assert done.err == f"fugu: metrics cannot be served at 127.0.0.1:{port}: {why}\n"
    running = [thread.name for thread in threading.enumerate()]
    assert not [name for name in running if name.startswith("paho")], "a session of another gateway goes on"


def test_an_address_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(FuguError, match=r"cannot be served at 192\.0\.2\.1:"):
        Metrics(Listen("192.0.2.1", 9464), lambda: READING)


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(FuguError, match=r"pip install 'fugu-edge\[metrics\]'"):
        Metrics(Listen("127.0.0.1", free_port()), lambda: READING)


@pytest.mark.long
def test_a_silent_client_keeps_nobody_waiting_and_is_ended_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_PATIENCE_SECONDS", 0.5)
    with served() as port, socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert sample(scraped(port), "fugu_gateway_devices") == 5
        silent.settimeout(PATIENCE)
        assert silent.recv(1) == b""


@pytest.mark.long
def test_a_scrape_that_fails_prints_nothing(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """By an error of ours, whose traceback may say what it must not, or because the client goes away."""
    caplog.set_level("INFO")
    with served(None) as port:
        with pytest.raises(HTTPError):
            scraped(port)
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(b"GET")
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing is a reset
        wait_until(lambda: "a scrape of the metrics has failed" in caplog.text)
    assert capfd.readouterr() == ("", "")
