"""The street of the demo: sixty homes, one of them killed, and the sum of an hour beside the truth."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from firmware_sim.homes import SimulatedHomes
from tests.support.brokers import Mosquitto, wait_until
from tests.support.command import runner
from tests.support.groups import group
from tests.support.street import HelperProgram, Leader, opened


@pytest.mark.soak
@pytest.mark.long
def test_a_street_runs_from_one_command_and_ends_with_what_it_was_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = runner(capsys)("demo", "street", "--hours", "1", "--out", tmp_path)
    assert done.code == 0, done
    text = re.search(r"of (\d+) homes, water ran ([\d.]+)% .*in truth ([\d.]+)%", done.out)
    assert text is not None
    assert 36 <= int(text[1]) < 60
    assert abs(float(text[2]) - float(text[3])) < 30
    assert "That is so if the helper keeps its word and 30 of the homes" in done.out


@pytest.mark.long
def test_simulated_homes_report_what_agents_would_and_the_helper_opens_their_sum(tmp_path: Path) -> None:
    document = group(
        noise=4_294_900_000, honest=20, colluding=4, period_us=100_000, length=20,
        epoch_us=int(time.time() * 1e6) // 100_000 * 100_000,
    )  # fmt: skip
    chance = random.Random(1)
    states = {f"home-{i}": [chance.randrange(2) for _ in range(2000)] for i in range(40)}
    with Mosquitto() as server:
        homes = SimulatedHomes(server.broker, document, states, away=0.2)
        helper = HelperProgram(tmp_path / "helper", server.broker, document, members=homes.digits)
        try:
            with Leader(server.broker, document) as leader:
                homes.start()
                wait_until(lambda: any(number + 1 in leader.reports for number in leader.reports), "a whole window")
                number = min(leader.reports)
                reports = list(leader.reports[number].values())
                assert 24 <= len(reports) < 40
                leader.ask(number, reports)
                answer = leader.answered()
                noise = sum(homes.shares[number][report.sealed.device] for report in reports)
                counts = [sum(states[one.sealed.device][20 * number : 20 * number + 20]) for one in reports]
                assert opened(answer, reports) == [sum(counts) + noise]
        finally:
            homes.stop()
            helper.kill()
