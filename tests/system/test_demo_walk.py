"""The walk, as a new user runs it: a private way, with a device and a gateway that are stopped on it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fugu.contract.measure_frames import Released
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.reports import ValueEstimate, decode_estimate
from fugu.lanes import Plot, levels_width
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.policy_builder import build_measure_policy
from fugu_cli.demo import walk
from fugu_cli.demo.page import Page
from tests.support.brokers import PATIENCE, await_end, wait_until
from tests.support.browser import Browser
from tests.support.replays import check_first_screen, check_layout, check_points

TOPS = "return [...document.querySelectorAll('.plot')].map((one) => one.getBoundingClientRect().top)"


@pytest.mark.soak
def test_the_walk_is_followed_through_restarts_and_losses(tmp_path: Path) -> None:
    kind = "embedded"
    command = [sys.executable, "-m", "fugu", "demo", "walk", "--seconds", "20", "--broker-kind", kind]
    done = subprocess.run([*command, "--out", "walk"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("walk.svg", "walk-dark.svg"):
        picture = ElementTree.fromstring((tmp_path / "walk" / name).read_text())
        looks = [element.get("class") for element in picture.iter() if "shape" in element.get("class", "")]
        assert looks.count("shape cell") == 3
        assert {"shape raw", "shape point", "shape guess"} <= {*looks}
    numbers = {name: float(number) for name, number in re.findall(r"^(\w.*?) {2,}([\d.]+)", done.stdout, re.MULTILINE)}
    assert numbers["points that arrived"] >= 400
    assert numbers["ticks while the device was down"] >= 10
    assert numbers["ticks of the walk"] >= 410
    assert numbers["drawn from tables that the gateway sent"] > 0
    assert numbers["a possible cell is hidden among at least"] >= 2
    released, estimated, later = (numbers[name] for name in numbers if name.startswith("error of"))
    assert 250 < released < 550
    assert estimated < 0.75 * released
    assert later < estimated
    assert numbers["truth inside the 95 % ranges"] > 80


def test_a_walk_that_stands_still_ends_with_a_picture_of_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    walks: list[walk._Course] = []
    began = walk._Course.run

    def run(course: walk._Course, *arguments: object) -> None:
        walks.append(course)
        began(course, *arguments)

    def stop() -> None:
        wait_until(lambda: walks, "the walk")
        wait_until(lambda: len(walks[0].listener._walk.released) >= 40, "forty points")
        walks[0].device.process.send_signal(signal.SIGSTOP)

    monkeypatch.setattr(walk._Course, "run", run)
    monkeypatch.setattr(walk, "_STILL_SECONDS", 1.5)
    monkeypatch.setattr(walk, "_GIVEN_UP_SECONDS", 5.0)
    stopper = threading.Thread(target=stop)
    stopper.start()
    assert walk.run(tmp_path / "walk", 60.0, "mosquitto", browser=False) == 1
    assert (tmp_path / "walk" / "walk.svg").exists()
    await_end(stopper)
    [course] = walks
    assert course.device.process.wait(PATIENCE) == -signal.SIGKILL
    output = capsys.readouterr().out.replace("\n", " ")
    assert f"points have arrived, the device is process {course.device.process.pid}" in output
    assert "missing: the walk stood still" in output


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> MeasurePolicy:
    file = tmp_path_factory.mktemp("walk") / "place.toml"
    file.write_text(walk.SPECIFICATION)
    return build_measure_policy(make_measure_plan(read_spec(file), "ignorant", quick=True), epoch=0.0)


def a_walk(policy: MeasurePolicy) -> walk.Walk:
    """Three steps east from cell (2, 3), each with a point; the estimate of the last is one cell off."""
    estimate = ValueEstimate(
        time=datetime(2026, 1, 1, tzinfo=UTC), tick=2, values=(400.0, 400.0), low=(300.0, 200.0), high=(600.0, 500.0),
        unit="m", protection=6, epsilon=1.0, adversary="ignorant", useful=True,
    )  # fmt: skip
    truth = np.array([[200.0, 300.0], [300.0, 300.0], [400.0, 300.0]])
    points = [(2, 7), (3, 3), (9, 3)]
    released = {tick: Released(0, point) for tick, point in enumerate(points)}
    return walk.Walk(policy, truth, released, {2: decode_estimate(estimate.encode())}, {})


def test_errors_of_a_walk_are_distances_in_its_unit(policy: MeasurePolicy) -> None:
    seen = a_walk(policy)
    released, estimated, later = seen.errors
    assert (released, estimated) == (500.0, 100.0), "of ticks that have both"
    assert np.isnan(later)
    assert seen.share_inside == 1.0
    [estimate] = seen.estimates.values()
    outside = replace(estimate, low=(300.0, 301.0))
    assert seen._replace(estimates={2: outside}).share_inside == 0.0


@pytest.mark.long
def test_a_map_is_drawn_alike_in_a_browser_and_a_file_and_lies_well_at_every_width(
    browser: Browser, policy: MeasurePolicy
) -> None:
    seen = a_walk(policy)
    lanes = walk._lanes(seen, 400)
    assert [lane.number for lane in lanes] == ["3", "3", "73 %"]
    [point] = [shape.points for shape in lanes[1].shapes if shape.look == "point"]
    assert point == [(200.0, 700.0), (300.0, 300.0), (900.0, 300.0)]
    assert [(200.0, 300.0), (300.0, 300.0), (400.0, 300.0)] in [shape.points for shape in lanes[0].shapes]
    with Page(browser=False) as page:
        page.show(title=walk._TITLE, sub=walk._SUB, stage="here", unhidden=walk._NOT_HIDDEN)
        page.draw(0, lanes)
        browser.look(1100, dark=False)
        browser.open(page.address)
        wait_until(lambda: browser.count("path.shape") > 8, "a picture")
        assert browser.text("#hidden") == f"Not hidden: {walk._NOT_HIDDEN}"
        for width, dark in ((390, True), (800, False), (1920, True), (1100, False)):
            browser.look(width, dark=dark)
            check_layout(browser, width)
            assert browser.violations() == []
            tops = browser.run(TOPS)
            assert width < 721 or max(tops) - min(tops) < 1, "three maps side by side are at one height"
        check_first_screen(browser)
        check_points(browser, lanes)
        assert browser.complaints() == []
    plot = Plot(lanes[0], 400, levels_width(lanes))
    assert plot.y(0.0) - plot.y(100.0) == pytest.approx(plot.x(100.0) - plot.x(0.0)), "a map has one scale"
