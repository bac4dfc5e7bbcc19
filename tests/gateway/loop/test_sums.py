"""The gateway's part in sums of homes: real processes, one set of each window, and nothing of a part anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.envelope import key_digits
from fugu.contract.group_frames import OpeningRequest, Report, unpack_numbers
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import parse_topic
from tests.support.brokers import Mosquitto, wait_until
from tests.support.groups import PUBLIC
from tests.support.processes import GatewayProcess, Recorder
from tests.support.street import HelperProgram, street
from tests.support.wiretap import CANARIES, traces

CANARY = CANARIES[0]


@pytest.mark.long
def test_a_window_opens_once_and_is_released_with_its_helper(tmp_path: Path) -> None:
    with Mosquitto() as server:
        ear = Recorder(server.broker, "#")
        document, homes = street(tmp_path, server.broker, [0.0, *[float(CANARY)] * 2], deadline=1, noise=4_288_000_000)
        (tmp_path / "policies").mkdir()
        for home in homes:
            (tmp_path / "policies" / f"{home.name}.json").write_bytes((home.config.parent / "policy.json").read_bytes())
        press = '[audiences.press]\nepsilon = 1e5\nadversary = "informed"\nsums = ["street"]\n'
        (tmp_path / "releases.toml").write_text(press)
        helper = HelperProgram(
            tmp_path / "helper", server.broker, document, members={home.name: home.digits for home in homes}
        )
        gateway = GatewayProcess(tmp_path, server.broker, releases=tmp_path / "releases.toml")
        try:
            wait_until(gateway.hears, "the gateway")
            for home in homes:
                home.start()
            topic = "fugu/2/home/release/site/street"
            wait_until(lambda: len(ear.on(topic)) >= 2, "two sums")
            gateway.kill()
            gateway = GatewayProcess(tmp_path, server.broker, releases=tmp_path / "releases.toml")
            wait_until(
                lambda: len({frame.first for frame in frames(ear, topic)}) >= 3, "a sum after the gateway's death"
            )
            for home in homes:
                home.stop()
        finally:
            helper.kill()
            gateway.stop()
        for frame in frames(ear, topic):
            assert (frame.audience, frame.query, frame.states) == ("site", "count", ("high",))
            assert (frame.helper, frame.honest) == (key_digits(PUBLIC), 2)
            if frame.devices == 3:  # of two, a report was late
                assert abs(frame.values[0] - 2 / 3 * frame.observed) < 4  # more noise has a chance of 1 in 10^9
        assert max(frame.devices for frame in frames(ear, topic)) == 3
        values = {frame.first: frame.values for frame in frames(ear, topic)}
        released = frames(ear, "fugu/2/home/release/press/street")
        assert len(released) >= 2
        assert all((frame.epsilon, frame.values) == (1e5, values.get(frame.first, frame.values)) for frame in released)
        requested: dict[int, set[bytes]] = {}
        for payload in ear.on("fugu/2/home/group/street/request"):
            page = OpeningRequest.decode(payload)
            requested.setdefault(page.number, set()).add(page.request)
        assert requested
        search_for_parts(ear, tmp_path)
        assert all(len(sets) == 1 for sets in requested.values()), "one set of a window, ever"


def frames(ear: Recorder, topic: str) -> list[ReleaseFrame]:
    """The releases that were heard on a topic."""
    return [ReleaseFrame.decode(payload) for payload in ear.on(topic) if payload]


def search_for_parts(ear: Recorder, folder: Path) -> None:
    """Look for each part that was reported, as bytes and as text, everywhere but in its own report and its outbox."""
    reports = [Report.decode(payload) for topic, payload in ear.messages if parse_topic(topic).kind == "report"]
    parts = {number for report in reports for number in unpack_numbers(report.parts)}
    assert len(parts) >= 9
    hidden = {form for part in parts for form in (part.to_bytes(8, "big"), str(part).encode(), f"{part:016x}".encode())}
    every = [*ear.messages, *((str(file), file.read_bytes()) for file in folder.rglob("*") if file.is_file())]
    assert [place for place, data in every if any(trace in data for trace in traces(CANARY))] == [
        str(file) for file in folder.rglob("readings.csv") if CANARY in file.read_text()
    ]
    elsewhere = [(topic, payload) for topic, payload in ear.messages if parse_topic(topic).kind != "report"]
    assert {parse_topic(topic).kind for topic, _ in elsewhere} >= {"group_request", "group_answer", "release", "health"}
    files = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert any(file.name == "gateway-reports.sqlite" for file in files)
    own = [file for file in files if file.name.startswith(("outbox.sqlite", "gateway-reports.sqlite"))]
    places = [*elsewhere, *((str(file), data) for file, data in files.items() if file not in own)]
    assert [place for place, data in places if any(trace in data for trace in hidden)] == []
    settled = min(report.number for report in reports)
    first = {number for report in reports if report.number == settled for number in unpack_numbers(report.parts)}
    beside = b"".join(data for file, data in files.items() if file.name.startswith("gateway-reports.sqlite"))
    assert not any(part.to_bytes(8, "big") in beside for part in first), "a window that is over leaves nothing"
