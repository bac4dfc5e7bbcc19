"""Homes, a helper and a leader at one broker: a sum opens, and nothing else does."""

from __future__ import annotations

import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.envelope import Envelope
from fugu.contract.group_frames import OpeningAnswer, OpeningRequest, Report, set_digest
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import parse_topic
from fugu.mqtt import Link
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import GatewayProcess
from tests.support.street import HelperProgram, Leader, opened, street

FAULTS = 40
"""Of a run; ten runs have four hundred."""


@pytest.mark.long
def test_a_window_of_three_homes_opens_as_the_sum_of_their_counts(tmp_path: Path) -> None:
    with Mosquitto() as server:
        document, homes = street(tmp_path, server.broker, [0.0, 1.0, 1.0])
        members = {home.name: home.digits for home in homes}
        helper = HelperProgram(tmp_path / "helper", server.broker, document, members=members)
        try:
            with Leader(server.broker, document) as leader:
                for home in homes:
                    home.start()
                wait_until(lambda: any(len(one) == 3 for one in leader.reports.values()), "three reports of a window")
                number, window = next((n, one) for n, one in leader.reports.items() if len(one) == 3)
                reports = [window[home.name] for home in homes]
                leader.ask(number, reports)
                answer = leader.answered()
                assert (answer.reason, answer.members) == ("", [0, 1, 2])
                assert opened(answer, reports) == [sum(report.observed[0] for report in reports[1:])]
                kinds = {parse_topic(topic).kind for topic, _ in leader.heard}
                assert kinds >= {"report", "group_document", "group_key", "group_request", "group_answer"}
                for home in homes:
                    home.stop()
        finally:
            helper.kill()


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_fault_opens_two_sets_of_a_window_or_a_count_that_is_none(tmp_path: Path, seed: int) -> None:
    """Homes, helper and broker are killed at any moment; the leader asks for all sets that it can think of.

    Readings do not change, so that each opened sum has to be that of the ticks its homes have observed: a share that
    was counted twice, or a report that is in two sets, would be seen.
    """
    generator = random.Random(seed)
    with Mosquitto() as server:
        document, homes = street(tmp_path, server.broker, [0.0, 1.0, 1.0, 0.0, 1.0], honest=2, colluding=1, length=15)
        members = {home.name: home.digits for home in homes}
        helper = HelperProgram(tmp_path / "helper", server.broker, document, members=members)
        with Leader(server.broker, document) as leader:
            for home in homes:
                home.start_program()
            opened_of, faults = dict[int, OpeningAnswer](), 0

            def ask() -> None:
                """Ask for the set of each window that is over, and for others as often as it comes up again."""
                for number in [n for n in list(leader.reports) if n + 1 in leader.reports]:
                    names = sorted(leader.reports[number])
                    some = (
                        names if generator.random() < 0.7 else generator.sample(names, generator.randint(1, len(names)))
                    )
                    leader.sets[number].append([leader.reports[number][name] for name in some])
                    with contextlib.suppress(AssertionError):
                        leader.ask(number, leader.sets[number][-1])

            while faults < FAULTS:
                time.sleep(4 * generator.random())
                match generator.randrange(12):
                    case 0:
                        helper.kill()
                        helper.start()
                    case 1:
                        server.kill()
                        server.start()
                    case _:
                        home = generator.choice(homes)
                        home.kill()
                        home.start_program()
                faults += 1
                ask()
            wait_until(
                lambda: ask() or len({one.number for one in leader.answers if not one.reason}) >= 3,
                "three sums that opened",
                patience=3 * PATIENCE,
            )
            for answer in list(leader.answers):
                if answer.reason:
                    continue
                assert len(answer.members) >= document.least
                first = opened_of.setdefault(answer.number, answer)
                assert answer == first, "two sets of a window were opened"
                reports = next(
                    one
                    for one in leader.sets[answer.number]
                    if set_digest(document.digest, answer.number, [report.sealed for report in one]) == answer.request
                )
                ticks = [reports[i] for i in answer.members]
                high = sum(r.observed[0] for r in ticks if homes[int(r.sealed.device[-1])].reading == 1.0)
                assert opened(answer, reports) == [high]
            print(f"{faults} faults, {len(leader.reports)} windows, {len(opened_of)} sums opened")
            for home in homes:
                home.kill()
        helper.kill()


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_whatever_is_killed_each_window_is_asked_for_once_and_released_once(tmp_path: Path, seed: int) -> None:
    """Homes, helper, broker and the gateway itself are killed at any moment."""
    generator = random.Random(seed)
    heard: list[tuple[str, bytes]] = []
    with Mosquitto() as server:
        readings = [0.0, 1.0, 1.0, 0.0, 1.0]
        document, homes = street(tmp_path, server.broker, readings, honest=2, colluding=1, length=15, deadline=1)
        (tmp_path / "policies").mkdir()
        for home in homes:
            (tmp_path / "policies" / f"{home.name}.json").write_bytes((home.config.parent / "policy.json").read_bytes())
        (tmp_path / "releases.toml").touch()
        members = {home.name: home.digits for home in homes}
        helper = HelperProgram(tmp_path / "helper", server.broker, document, members=members)
        gateway = GatewayProcess(tmp_path, server.broker, releases=tmp_path / "releases.toml")
        topics = "fugu/2/home/+/report/+", "fugu/2/home/group/+/+", "fugu/2/home/release/#"
        ear = Link(
            server.broker, client_id="ear", subscriptions=topics, on_message=lambda t, p, _: heard.append((t, p))
        )
        ear.start()
        for home in homes:
            home.start_program()
        for _ in range(FAULTS):
            time.sleep(3 * generator.random())
            match generator.randrange(12):
                case 0:
                    helper.kill()
                    helper.start()
                case 1:
                    server.kill()
                    server.start()
                case 2 | 3:
                    gateway.kill()
                    gateway = GatewayProcess(tmp_path, server.broker, releases=tmp_path / "releases.toml")
                case _:
                    home = generator.choice(homes)
                    home.kill()
                    home.start_program()
        before = len(heard)
        wait_until(lambda: len(released(heard[before:])) >= 2, "two sums after the last fault", patience=3 * PATIENCE)
        for home in homes:
            home.kill()
        helper.kill()
        gateway.stop()
        ear.stop()
    reports = {report.sealed.signature: report for report in of(heard, "report", Report.decode)}
    sets: dict[tuple[int, bytes], dict[int, OpeningRequest]] = defaultdict(dict)
    for page in of(heard, "group_request", OpeningRequest.decode):
        sets[page.number, page.request][page.page] = page
    assert len({number for number, _ in sets}) == len(sets), "two sets of a window were asked for"
    sums: dict[int, set[float]] = defaultdict(set)
    for answer in of(heard, "group_answer", lambda payload: OpeningAnswer.decode(Envelope.decode(payload).payload)):
        pages = sets.get((answer.number, answer.request), {})
        if answer.reason or len(pages) < next(iter(pages.values())).pages:
            continue
        if not all(one.signature in reports for one in pages[0].reports):
            continue  # one came when the broker had just begun, and this ear was not there yet
        members = [reports[pages[0].reports[i].signature] for i in answer.members]
        assert len(members) >= document.least
        assert len({report.sealed.device for report in members}) == len(members)
        count = sum(one.observed[0] for one in members if readings[int(one.sealed.device[-1])] == 1.0)
        whole = [reports[one.signature] for one in pages[0].reports]
        assert opened(answer, whole) == [count], "a count with two shares, or a report in two sets"
        sums[answer.number].add(float(count))
    frames = released(heard)
    assert sums
    for frame in frames:
        assert frame.values[0] in sums.get(frame.first // document.length, frame.values)
    assert len({frame.entry for frame in frames}) == len({frame.first for frame in frames}), "a window released twice"
    print(f"{FAULTS} faults, {len(sets)} windows were asked for, {len({frame.first for frame in frames})} released")


def of(heard: Sequence[tuple[str, bytes]], kind: str, decode: Callable[[bytes], Any]) -> list[Any]:
    """The messages of a kind."""
    return [decode(payload) for topic, payload in heard if payload and parse_topic(topic).kind == kind]


def released(heard: Sequence[tuple[str, bytes]]) -> list[ReleaseFrame]:
    """The releases among messages."""
    return of(heard, "release", ReleaseFrame.decode)
