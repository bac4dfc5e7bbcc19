"""Homes, a helper and a leader at one broker: a sum opens, and nothing else does."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest

from fugu.contract.group_frames import OpeningAnswer, set_digest
from fugu.contract.topics import parse_topic
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.street import HelperProgram, Leader, opened, street

FAULTS = 400


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
@pytest.mark.parametrize("seed", [1])
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
