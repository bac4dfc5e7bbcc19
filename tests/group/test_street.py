"""Homes, a helper and a leader at one broker: a sum opens, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers import Mosquitto, wait_until
from tests.support.street import HelperProgram, Leader, opened, street


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
                for home in homes:
                    home.stop()
        finally:
            helper.kill()
