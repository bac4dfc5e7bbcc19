"""What the demo's devices promise, and what its pictures and sentences say, without its processes."""

from __future__ import annotations

import io
import json
import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from fugu.attackers.evaluation import Attack
from fugu.cli.demo import processes, session
from fugu.cli.demo.evaluation import (
    BEATS,
    EPSILON,
    FLEET,
    PROMISE,
    DemoError,
    Night,
    Person,
    evaluate,
    load_person,
    policy_for,
    summary,
)
from fugu.cli.demo.page import Observer
from fugu.cli.demo.pictures import FACTORS, LEFT, RIGHT, html_report, private_picture, useful_picture
from fugu.contract.errors import GuaranteeError, StatusCode
from fugu.contract.frames import Status, StreamStatus, WindowFrame
from fugu.contract.policy import Policy
from fugu.contract.topics import status_topic, window_topic
from fugu.mqtt import Broker

OFF = (-10, 20, 30, 0)


@pytest.fixture(scope="module")
def person() -> Person:
    """One of the sleepers."""
    return load_person("N05")


@pytest.fixture(scope="module")
def policy(person: Person) -> Policy:
    """What that sleeper's device does."""
    return policy_for(person, epoch=0.0, period_seconds=0.001)


def window(person: Person, index: int, off: int, observed: int = BEATS) -> str:
    """A subscriber's line of a window whose count is off the truth by a number."""
    first = index * BEATS
    count = int((person.states[first : first + BEATS] == 1).sum()) + off
    place = {"window": "above", "first": first, "length": BEATS, "observed": observed}
    return json.dumps({"kind": "window", "device": person.device, "stream": "heart-rate", **place, "counts": [count]})


@pytest.fixture(scope="module")
def night(person: Person, policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A night of which a few windows arrived: one twice, one before there was a baseline, one with ticks missing."""
    lines = [window(person, index, off) for index, off in enumerate((7, *OFF))]
    lines += [lines[1], window(person, 9, 10_000, observed=BEATS - 1)]
    readings = tmp_path_factory.mktemp("night") / "readings.jsonl"
    readings.write_text("\n".join(lines) + "\n")
    return evaluate([person], {person.device: policy}, readings)[0]


def test_a_device_sends_windows_only_and_uses_up_what_it_promises(policy: Policy) -> None:
    assert policy.table is None
    assert (policy.guarantee.epsilon, policy.guarantee.adversary) == (EPSILON, "universal")
    assert policy.verify(EPSILON).epsilon == pytest.approx(EPSILON, rel=1e-6)
    [one] = policy.windows
    assert (one.length, one.stride, one.states) == (BEATS, BEATS, ("above",))
    eager = policy.model_copy(update={"windows": (one.model_copy(update={"scale": "5"}),)})
    with pytest.raises(GuaranteeError):
        eager.verify(EPSILON)


def test_windows_are_held_against_the_recording(person: Person, policy: Policy, night: Night) -> None:
    assert (len(night.hours), night.expected) == (len(OFF), len(person.states) // BEATS - 1)
    assert (BEATS * (night.released - night.truth)).round(9).tolist() == list(OFF)
    assert night.error == pytest.approx(sum(map(abs, OFF)) / len(OFF) / BEATS)
    scale = float(policy.windows[0].scale.partition("/")[0]) / float(policy.windows[0].scale.partition("/")[2])
    assert night.band == pytest.approx(3 * scale / BEATS, rel=0.1)
    assert night.band < night.quilts < night.group == pytest.approx(math.log(20))
    assert night.inside == 0.75
    assert len(night.ordinary) == len(night.ours) == len(person.states) - BEATS


def test_ordinary_randomised_response_breaks_its_promise_and_windows_keep_it(night: Night) -> None:
    assert 0.5 < night.broken < 0.58
    assert 6.0 < math.exp(night.ordinary.max()) < 10.0
    assert 0.0 < night.ours.max() <= EPSILON
    assert night.learner.shape == night.ours.shape
    assert night.learner.max() > night.ours.max()
    assert night.attack.low <= night.attack.success <= night.attack.high


def test_no_window_is_an_error(person: Person, policy: Policy, tmp_path: Path) -> None:
    (tmp_path / "readings.jsonl").write_text(window(person, 0, 0) + "\n" + window(person, 3, 0, observed=299) + "\n")
    with pytest.raises(DemoError, match="no window of watch-N05"):
        evaluate([person], {person.device: policy}, tmp_path / "readings.jsonl")


def drawn(night: Night) -> Night:
    """A night with numbers that are easy to find again in a picture."""
    return replace(
        night,
        hours=np.array([0.0, 2.0, 4.0]),
        truth=np.array([0.25, 0.5, 1.0]),
        released=np.array([0.2, 0.6, 0.9]),
        band=0.1,
        quilts=0.4,
        group=3.0,
        ordinary=np.log([1.0, 2.0, 5.0, 10.0, 20.0]),
        ours=np.log([1.0, 1.1, 1.3, 1.3, 1.4]),
        learner=np.log([1.0, 1.2, 1.5, 3.0, 9.0]),
        attack=Attack("supervised", 0.6, 0.55, 0.65, 0.731, 0.5, 0.0),
    )


def paths(picture: str, kind: str) -> Iterator[list[tuple[float, float]]]:
    """The points of all paths of a kind."""
    for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}path"):
        if element.get("class", "") == kind:
            yield [(float(x), float(y)) for x, y in re.findall(r"([\d.]+)[ ,]([\d.]+)", element.get("d", ""))]


def words(picture: str) -> str:
    """What a picture says."""
    root = ElementTree.fromstring(picture)
    return " | ".join(element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text"))


def test_the_useful_picture_shows_the_numbers_of_the_night(night: Night) -> None:
    picture = useful_picture(drawn(night))
    [truth], [released] = ([p for p in paths(picture, kind) if len(p) == 3] for kind in ("", "got"))
    for points, shares in ((truth, (0.25, 0.5, 1.0)), (released, (0.2, 0.6, 0.9))):
        assert [x for x, _ in points] == pytest.approx([LEFT, (LEFT + RIGHT) / 2, RIGHT], abs=0.1)
        assert [(318 - y) / 208 for _, y in points] == pytest.approx(shares, abs=0.001)
    [band] = [points for points in paths(picture, "band") if len(points) == 6]
    assert [(318 - y) / 208 for _, y in band] == pytest.approx([0.3, 0.7, 1.0, 0.8, 0.5, 0.1], abs=0.001)
    for said in ("± 10 %", "± 40 %", "± 300 %"):
        assert said in words(picture)
    ends = [float(end) for end in re.findall(r'class="bar.*?H([\d.]+)', picture)]
    assert [(end - 146) / 290 for end in ends] == pytest.approx([0.1, 0.4, 1.0], abs=0.001)


def test_the_private_picture_shows_the_numbers_of_the_night(night: Night) -> None:
    picture = private_picture(drawn(night))
    unit = (RIGHT - 20) / math.log(40)
    for kind, factors in (
        ("dots bad", (1, 2, 5, 10, 20)),
        ("dots good", (1, 1.1, 1.3, 1.3, 1.4)),
        ("dots learner", (1, 1.2, 1.5, 3, 9)),
    ):
        [dots] = paths(picture, kind)
        assert [math.exp((x - 20) / unit) for x, _ in dots] == pytest.approx(factors, rel=0.002)
    [[(promise, _)]] = paths(picture, "promise")
    assert math.exp((promise - 20) / unit) == pytest.approx(PROMISE, rel=0.002)
    said = words(picture)
    assert "the promise, habits known: at most × 2.7" in said
    assert "60 % of heartbeats beyond × 2.7, up to × 20" in said
    assert "knows the habits: | no heartbeat beyond × 2.7, at most × 1.4" in said
    assert "learns the habits (no promise): | 40 % of heartbeats beyond × 2.7, up to × 9.0" in said
    assert "learns the habits" not in words(private_picture(replace(drawn(night), learner=None)))
    assert [f"× {factor} " in said for factor in FACTORS] == [True] * 5 + [False] * 3
    broken = private_picture(replace(drawn(night), ours=np.log([1.0, 1.0, 1.0, 1.0, 200.0])))
    assert "20 % of heartbeats beyond × 2.7, up to × 200" in words(broken)


def test_a_picture_of_a_long_night_is_small(night: Night) -> None:
    many = np.linspace(0.0, 3.0, 30_000)
    assert len(private_picture(replace(night, ordinary=many, ours=many))) < 100_000


def test_the_sentences_and_the_report_say_the_same(night: Night) -> None:
    one = drawn(night)
    useful, private, habits, attacker = summary(one)
    assert "off by 8.3 points on average (a share of 40 % reads 32 to 48 %), and 100 % of them by at most 10" in useful
    assert "for an attacker who already knows the sleeper's habits" in private
    assert habits.startswith("Habits are not protected: for an attacker who learns them, odds change by up to x 9.0,")
    assert "by more than x 2.7 on 40 % of the heartbeats" in habits
    assert len(summary(replace(one, attack=None))) == len(summary(replace(one, learner=None))) == 2
    assert "at most x 1.4" in private
    assert "on 60 % of the heartbeats, up to x 20" in private
    assert "(supervised) is right on 60.0 % of the heartbeats (55.0 to 65.0), always guessing on 50.0 %" in attacker
    assert attacker.endswith("epsilon allows 73.1 %, if the readings are in the class.")
    report = html_report([one, night], "broker", 1.0)
    assert report.count("<svg") == 4
    assert report.index("<svg") < 1500, "pictures first"
    assert useful in report
    assert f"received {3 + len(OFF)} of {2 * night.expected}" in report
    assert "http://" not in report.replace("http://www.w3.org/2000/svg", "")


def printed(console_part: Any) -> str:
    """What the terminal shows, 80 columns wide."""
    text = io.StringIO()
    Console(file=text, width=80).print(console_part)
    return text.getvalue()


def test_the_live_table_shows_how_far_the_nights_are_and_the_newest_share() -> None:
    """The observer is fed as the broker would feed it, without one."""
    devices = ["watch-N05", "watch-N07"]
    observer = Observer(Broker(port=1), FLEET, dict.fromkeys(devices, 16859))
    assert not observer.online(1)
    for device in devices:
        status = Status(True, "1", 3, (), (StreamStatus("heart-rate", 1, 1234),))
        observer.link.on_message(status_topic(FLEET, device), status.encode(), False)
    assert observer.online(1)
    assert not observer.online(2)
    counted = WindowFrame(1, "above", previous=3, index=4, first=1200, length=300, observed=300, counts=(150,))
    for _ in range(2):
        observer.link.on_message(window_topic(FLEET, devices[0], "heart-rate"), counted.encode(), False)
    observer.link.on_message(window_topic(FLEET, devices[0], "heart-rate"), b"\x05", False)
    shown = printed(observer.table("title"))
    assert "watch-N05 1234 of 16859 5 50 % ██████······ 3" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_a_device_stands_where_it_was_heard_last_whatever_its_will_says(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("fugu.cli.demo.page.time", SimpleNamespace(monotonic=lambda: now[0]))
    observer = Observer(Broker(), FLEET, {"watch-N05": 16859})
    assert observer.stands("watch-N05", 95.0) == (5.0, "heartbeat 0 of 16859, 0 messages waiting")

    def hear(status: Status) -> float:
        now[0] += 1.0
        observer.link.on_message(status_topic(FLEET, "watch-N05"), status.encode(), False)
        return observer.stands("watch-N05", 95.0)[0]

    moving = [Status(True, "1", 3, (), (StreamStatus("heart-rate", 1, ticks),)) for ticks in (1, 1, 2)]
    assert [hear(one) for one in moving] == [0.0, 1.0, 0.0]
    assert hear(Status(False, "1", 0, (StatusCode.CONNECTION_LOST,), ())) == 1.0


def test_a_gateway_that_ends_ends_the_demo() -> None:
    observer = Observer(Broker(), FLEET, {})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as serving:
        assert session._over(observer, serving, {})
    with pytest.raises(DemoError, match="the gateway has ended"):
        session._over(observer, serving, {})


@pytest.mark.long
@pytest.mark.parametrize("ends", ["stands still", "never ends"])
def test_a_device_that_stands_still_is_named_and_the_demo_goes_on_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ends: str
) -> None:
    """The other one moves, and ends in order once the first has been left out."""
    monkeypatch.setattr(session, "_STILL_SECONDS", 0.2)
    monkeypatch.setattr(session, "_GIVEN_UP_SECONDS", 0.4 if ends == "stands still" else 600.0)
    monkeypatch.setattr(session, "_MOST_SECONDS", 600.0 if ends == "stands still" else 0.4)
    observer = Observer(Broker(), FLEET, {"watch-N05": 16859, "watch-N07": 19812})
    ticks = count(1200)

    def hear(device: str) -> None:
        status = Status(True, "1", 3, (), (StreamStatus("heart-rate", 1, next(ticks)),))
        observer.link.on_message(status_topic(FLEET, device), status.encode(), False)

    hear("watch-N05")
    with ExitStack() as stack:
        serving, stopped, moving = (
            stack.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
            for _ in range(3)
        )
        stopped.send_signal(signal.SIGSTOP)
        agents = {"watch-N05": Agent(stopped), "watch-N07": Agent(moving)}

        def maintain() -> None:
            hear("watch-N07")
            if "watch-N05" not in agents and not moving.stdin.closed:  # type: ignore[union-attr]
                moving.communicate(b"\n")

        monkeypatch.setattr(observer.link, "maintain", maintain)
        missing = session._watch(observer, serving, agents, False, "title", time.time())  # type: ignore[arg-type]
        assert stopped.returncode == -signal.SIGKILL
        serving.kill()
    named, *_ = capsys.readouterr().out.splitlines()
    assert re.match(
        rf"watch-N05 \(process {stopped.pid}\) has stood still for \d+ s: heartbeat 1200 of 16859, 3 ", named
    )
    assert [one.split(" for ")[0] for one in missing][:1] == ["watch-N05 stood still"]
    assert len(missing) == (1 if ends == "stands still" else 2)


class Agent(NamedTuple):
    """A process that stands for a device's."""

    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.long
def test_a_process_that_does_not_end_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); input()"
    with subprocess.Popen([sys.executable, "-c", deaf], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as still:
        still.stdout.readline()  # type: ignore[union-attr]
        assert processes._end(still, "gateway", tmp_path / "gateway.log") == 0
        assert still.returncode == -signal.SIGKILL
    assert capsys.readouterr().out.startswith("gateway did not end within 0 s and was killed: see ")


def test_a_night_of_which_nothing_came_is_left_out_and_half_a_line_too(
    person: Person, policy: Policy, tmp_path: Path
) -> None:
    other = load_person("N07")
    readings = tmp_path / "readings.jsonl"
    readings.write_text(window(person, 1, 0) + "\n" + window(other, 0, 0) + "\n" + window(other, 2, 0)[:50])
    policies = {person.device: policy, other.device: policy_for(other, epoch=0.0, period_seconds=0.001)}
    [night] = evaluate([other, person], policies, readings)
    assert (night.name, len(night.hours)) == ("N05", 1)
    report = html_report([night], "broker", 1.0, ["watch-N07 stood still for 60 s & was ended"])
    assert "<li>Missing: watch-N07 stood still for 60 s &amp; was ended.</li>" in report


def test_without_a_web_server_the_demo_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    monkeypatch.delitem(sys.modules, "fugu.cli.demo.page", raising=False)
    with ExitStack() as stack:
        session._show(stack, [], {}, Broker(port=1))
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("no page: ")
