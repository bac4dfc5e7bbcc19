"""Deliveries of a real broker to an audience's own account, held against the access list that was audited."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.contract.topics import topic_of
from fugu.mqtt import Link
from tests.support.audited import planned
from tests.support.brokers import await_end
from tests.support.command import Fugu
from tests.support.shipped import Shipped, promises
from tests.support.soak import only

TOPIC = topic_of("symbols", "home", "watch", "hr")


@pytest.mark.long
@pytest.mark.parametrize("granted", only([True], [False, True]))
def test_what_is_delivered_and_not_listed_is_found(
    fugu: Fugu, capsys: pytest.CaptureFixture[str], tmp_path: Path, granted: bool
) -> None:
    broker = Shipped(tmp_path)
    broker.add("device", "watch")
    broker.add("subscriber", "screen", *promises(tmp_path / "promised"))
    listed = tmp_path / "listed"
    shutil.copytree(broker.folder, listed)
    if granted:  # somebody has changed what the broker runs with
        with (broker.folder / "access.acl").open("a") as text:
            text.write(f"\nuser screen\ntopic read {TOPIC}\n")
    (tmp_path / "policy.json").write_text(planned().to_json())
    capsys.readouterr()  # what the commands have printed that wrote the broker's files
    over = threading.Event()
    with broker:
        device = Link(broker.address("watch"), "watch")
        device.start()

        def publish() -> None:
            first = 0
            while not over.wait(0.02):
                if device.publish(TOPIC, SymbolFrame(1, first - 1, first, bytes(10)).encode()) is not None:
                    first += 10

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            account = tmp_path / "screen"
            words = ["--broker", account / "broker.toml", "--live", 2, "--trials", 1000, "--json"]
            done = fugu("check", "stream", tmp_path / "policy.json", "--access", listed, *words)
        finally:
            over.set()
            await_end(thread)
            device.stop()
    assert done.err == ""
    findings = [finding for finding in done.json()["findings"] if finding["name"] == "delivered-not-listed"]
    assert [finding["about"] for finding in findings] == [f"screen was told {TOPIC}, which is not granted"][
        : int(granted)
    ]
