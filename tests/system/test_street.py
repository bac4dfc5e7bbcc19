"""Homes, a helper and a leader at one broker: a sum opens, and nothing else does."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter, defaultdict
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
from tests.support.clocks import WallClock
from tests.support.processes import GatewayProcess
from tests.support.street import HelperProgram, Home, Leader, opened, street

FAULTS = 40
"""Of a run; ten runs have four hundred."""
READINGS = [0.0, 1.0, 1.0, 0.0, 1.0]


@pytest.mark.long
def test_a_window_of_three_homes_opens_as_the_sum_of_their_counts(tmp_path: Path) -> None:
    with Mosquitto() as server:
        document, homes = street(tmp_path, server.broker, [0.0, 1.0, 1.0])
        members = {home.name: home.digits for home in homes}
        helper = HelperProgram(tmp_path / "helper", server.broker, document, members=members)
        with Leader(server.broker, document) as leader:
            for home in homes:
                home.start()
            wait_until(lambda: any(len(report) == 3 for report in leader.reports.values()), "three reports of a window")
            number, window = next((n, report) for n, report in leader.reports.items() if len(report) == 3)
            reports = [window[home.name] for home in homes]
            leader.ask(number, reports)
            answer = leader.answered()
            assert (answer.reason, answer.report_indices) == ("", [0, 1, 2])
            assert opened(answer, reports) == [sum(report.observed[0] for report in reports[1:])]
            kinds = {parse_topic(topic).kind for topic, _ in leader.heard}
            assert kinds >= {"report", "group_document", "group_key", "group_request", "group_answer"}
            for home in homes:
                home.stop()
        helper.kill()


class Faults:
    """A street of which anything is killed at any moment, and of whose machines any clock is set.

    `gateway` is the site's own, which is killed as well; without it somebody else asks for sums.
    """

    def __init__(self, folder: Path, server: Mosquitto, seed: int, *, gateway: bool) -> None:
        self.generator = random.Random(seed)
        self.server = server
        self.counts = Counter[str]()
        terms = {"honest": 2, "colluding": 1, "length": 25, "deadline": 1}
        self.document, self.homes = street(folder, server.broker, READINGS, **terms)
        members = {home.name: home.digits for home in self.homes}
        self.helper = HelperProgram(folder / "helper", server.broker, self.document, members=members, starts=False)
        names = ["helper", *(home.name for home in self.homes), *(["gateway"] if gateway else [])]
        self.clocks = {name: WallClock(folder / f"{name}.clock") for name in names}
        for program in (self.helper, *self.homes):
            name = program.name if isinstance(program, Home) else "helper"
            program.environment |= self.clocks[name].environment
        for home in self.homes:
            home.config.write_text(home.config.read_text() + "[clock]\ntrusted = true\nconfirm_seconds = 1\n")
        (folder / "policies").mkdir()
        for home in self.homes:
            (folder / "policies" / f"{home.name}.json").write_bytes((home.config.parent / "policy.json").read_bytes())
        (folder / "releases.toml").touch()
        self._folder = folder
        self.gateway = self._gateway() if gateway else None

    def _gateway(self) -> GatewayProcess:
        environment = self.clocks["gateway"].environment
        return GatewayProcess(
            self._folder, self.server.broker, environment=environment, releases=self._folder / "releases.toml"
        )

    def start(self) -> None:
        self.helper.start()
        for home in self.homes:
            home.start_program()

    def happen(self) -> None:
        match self.generator.randrange(16):
            case 0:
                self.counts["helper killed"] += 1
                self.helper.kill()
                self.helper.start()
            case 1:
                self.counts["broker killed"] += 1
                self.server.kill()
                self.server.start()
            case 2 | 3 if self.gateway is not None:
                self.counts["gateway killed"] += 1
                self.gateway.kill()
                self.gateway = self._gateway()
            case 4 | 5 | 6 | 7:
                name = self.generator.choice(list(self.clocks))
                self.counts[f"clock of a {name.partition('-')[0]} set"] += 1
                far = 600 if name == "helper" else 20
                self.clocks[name].set(self.generator.randint(-far, far))
            case _:
                self.counts["home killed"] += 1
                home = self.generator.choice(self.homes)
                home.kill()
                home.start_program()

    def right_clocks(self) -> None:
        """Set all clocks right; the helper's far ahead, since homes use no key that is older than one they have."""
        for name, clock in self.clocks.items():
            clock.set(1_000 if name == "helper" else 0)

    def stop(self) -> None:
        for home in self.homes:
            home.kill()
        self.helper.kill()
        if self.gateway is not None:
            self.gateway.stop()

    def count(self, answer: OpeningAnswer, reports: Sequence[Report]) -> int:
        chosen = [reports[i] for i in answer.report_indices]
        assert len(chosen) >= self.document.quorum
        assert len({report.sealed.device for report in chosen}) == len(chosen)
        return sum(report.observed[0] for report in chosen if READINGS[int(report.sealed.device[-1])] == 1.0)

    def __str__(self) -> str:
        return ", ".join(f"{what} {times}" for what, times in sorted(self.counts.items()))


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_fault_opens_two_sets_of_a_window_or_a_count_that_is_none(tmp_path: Path, seed: int) -> None:
    """The leader asks for all sets that it can think of.

    Readings do not change, so that each opened sum has to be that of the ticks its homes have observed.
    """
    with Mosquitto() as server:
        faults = Faults(tmp_path, server, seed, gateway=False)
        document, generator = faults.document, faults.generator
        with Leader(server.broker, document) as leader:
            faults.start()
            opened_of = dict[int, OpeningAnswer]()

            def ask() -> None:
                """Ask for the set of each window that is over, and for others as often as it comes up again."""
                for number in [n for n in list(leader.reports) if n + 1 in leader.reports]:
                    names = sorted(leader.reports[number])
                    whole = generator.random() < 0.7
                    some = names if whole else generator.sample(names, generator.randint(1, len(names)))
                    leader.sets[number].append([leader.reports[number][name] for name in some])
                    with contextlib.suppress(AssertionError):
                        leader.ask(number, leader.sets[number][-1])

            def sums() -> set[int]:
                return {answer.number for answer in list(leader.answers) if not answer.reason}

            for _ in range(FAULTS):
                time.sleep(8 * generator.random())
                faults.happen()
                ask()
            faults.right_clocks()
            before = sums()
            wait_until(
                lambda: ask() or len(sums() - before) >= 2, "two sums after the last fault", patience=3 * PATIENCE
            )
            for answer in list(leader.answers):
                if answer.reason:
                    continue
                first = opened_of.setdefault(answer.number, answer)
                assert answer == first, "two sets of a window were opened"
                reports = next(
                    report
                    for report in leader.sets[answer.number]
                    if set_digest(document.digest, answer.number, [report.sealed for report in report])
                    == answer.request
                )
                assert opened(answer, reports) == [faults.count(answer, reports)]
            no_count_twice(leader.heard)
            print(f"{FAULTS} faults ({faults}), {len(leader.reports)} windows, {len(opened_of)} sums opened")
            faults.stop()


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_whatever_is_killed_each_window_is_asked_for_once_and_released_once(tmp_path: Path, seed: int) -> None:
    heard: list[tuple[str, bytes]] = []
    with Mosquitto() as server:
        faults = Faults(tmp_path, server, seed, gateway=True)
        document = faults.document
        topics = "fugu/2/home/+/report/+", "fugu/2/home/group/+/+", "fugu/2/home/release/#"
        ear = Link(
            server.broker, client_id="ear", subscriptions=topics, on_message=lambda t, p, _: heard.append((t, p))
        )
        ear.start()
        faults.start()
        for _ in range(FAULTS):
            time.sleep(8 * faults.generator.random())
            faults.happen()
        faults.right_clocks()
        before = len(heard)
        wait_until(lambda: len(released(heard[before:])) >= 2, "two sums after the last fault", patience=3 * PATIENCE)
        faults.stop()
        ear.stop()
    no_count_twice(heard)
    reports = {report.sealed.signature: report for report in of(heard, "report", Report.decode)}
    sets = {(page.number, page.request): page for page in of(heard, "group_request", OpeningRequest.decode)}
    assert len({number for number, _ in sets}) == len(sets), "two sets of a window were asked for"
    assert all(len(page.reports) >= document.quorum for page in sets.values()), "too few were asked for"
    sums: dict[int, set[float]] = defaultdict(set)
    for answer in of(heard, "group_answer", lambda payload: OpeningAnswer.decode(Envelope.decode(payload).payload)):
        page = sets.get((answer.number, answer.request))  # of so few homes there is one
        if answer.reason or page is None or not all(report.signature in reports for report in page.reports):
            continue  # one came when the broker had just begun, and this ear was not there yet
        whole = [reports[report.signature] for report in page.reports]
        count = faults.count(answer, whole)
        assert opened(answer, whole) == [count], "a sum that is none of these homes'"
        sums[answer.number].add(float(count))
    frames = released(heard)
    assert sums
    for frame in frames:
        assert frame.values[0] in sums.get(frame.first // document.length, frame.values)
    assert len({frame.entry for frame in frames}) == len({frame.first for frame in frames}), "a window released twice"
    opened_windows = len({frame.first for frame in frames})
    print(f"{FAULTS} faults ({faults}), {len(sets)} windows were asked for, {opened_windows} released")


def no_count_twice(heard: Sequence[tuple[str, bytes]]) -> None:
    """A home's count of a window has one share of noise and one mask, however often its report is sent."""
    first = dict[tuple[str, int], Report]()
    for report in of(heard, "report", Report.decode):
        same = first.setdefault((report.sealed.device, report.number), report)
        assert (report.parts, report.sealed) == (same.parts, same.sealed), "a count with two shares"


def of(heard: Sequence[tuple[str, bytes]], kind: str, decode: Callable[[bytes], Any]) -> list[Any]:
    return [decode(payload) for topic, payload in heard if payload and parse_topic(topic).kind == kind]


def released(heard: Sequence[tuple[str, bytes]]) -> list[ReleaseFrame]:
    return of(heard, "release", ReleaseFrame.decode)
