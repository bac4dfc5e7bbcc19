"""The street of the demo: sixty homes, one of them killed, and the sum of an hour beside the truth."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import numpy as np
import pytest

from firmware_sim.homes import SimulatedHomes
from fugu_cli.demo import street
from fugu_cli.demo.page import Page
from fugu_cli.demo.street import Hour, street_lanes
from tests.support.brokers import Mosquitto, wait_until
from tests.support.browser import Browser
from tests.support.command import runner
from tests.support.groups import group
from tests.support.replays import check_first_screen, check_layout, check_points
from tests.support.street import HelperProgram, Leader, opened


@pytest.mark.soak
@pytest.mark.long
def test_a_street_runs_from_one_command_and_ends_with_what_it_was_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = runner(capsys)("demo", "street", "--hours", "1", "--out", tmp_path)
    assert done.code == 0, done
    text = re.search(r"of (\d+) homes, water ran (-?[\d.]+)% .*in truth ([\d.]+)%", done.out)
    assert 36 <= int(text[1]) < 60
    assert abs(float(text[2]) - float(text[3])) < 30
    assert "That is so if the helper keeps its word and 30 of the homes" in done.out


@pytest.mark.long
def test_a_street_is_drawn_with_its_sums_and_lies_well_at_every_width(browser: Browser) -> None:
    """Two homes until half of the second hour, and the sum of the first."""
    homes = [np.array([1] * 30 + [0] * 60), np.array([0] * 45 + [1] * 45)]
    hours = [Hour(0, homes=2, released=0.4, truth=0.375, habit=0.2)]
    lanes = street_lanes(homes, hours, [0.2, 0.3], epsilon=1.0)
    assert [lane.number for lane in lanes] == ["2", "1", "73 %"]
    assert lanes[1].words == "of 2 hourly sums of all homes, off by 2.5 percentage points on average"
    assert lanes[0].shapes[0].points == [(0.0, 0.5, 0.1, 0.9), (0.75, 1.5, 1.1, 1.9)]
    assert {shape.look: shape.points for shape in lanes[1].shapes} == {
        "truth": [(0.0, 0.375), (1.0, 0.375)], "point": [(0.5, 0.4)], "point newest": [(0.5, 0.4)]
    }  # fmt: skip
    assert [words for _, words in lanes[2].marks] == ["06:00", "07:00", "08:00"]
    with Page(browser=False) as page:
        page.show(title=street._TITLE, sub=street._SUB, stage="here", unhidden=street._NOT_HIDDEN)
        page.draw(0, lanes)
        browser.look(1100, dark=False)
        browser.open(page.address)
        wait_until(lambda: browser.count("path.shape") > 5, "a picture")
        for width, dark in ((390, True), (800, False), (1920, True), (1100, False)):
            browser.look(width, dark=dark)
            check_layout(browser, width)
            assert browser.violations() == []
        check_first_screen(browser)
        check_points(browser, lanes)


@pytest.mark.long
def test_simulated_homes_report_what_agents_would_and_the_helper_opens_their_sum(tmp_path: Path) -> None:
    document = group(
        noise=4_294_900_000, honest=20, colluding=4, period_us=100_000, length=40,
        epoch_us=int(time.time() * 1e6) // 100_000 * 100_000,
    )  # fmt: skip
    chance = random.Random(1)
    states = {f"home-{i}": [chance.randrange(2) for _ in range(2000)] for i in range(40)}
    with Mosquitto() as server:
        homes = SimulatedHomes(server.broker, document, states, away_probability=0.2)
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
                counts = [sum(states[report.sealed.device][40 * number : 40 * number + 40]) for report in reports]
                assert opened(answer, reports) == [sum(counts) + noise]
        finally:
            homes.stop()
            helper.kill()
