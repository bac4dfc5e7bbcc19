"""Promises of the demo's devices, and its pictures and sentences, without its processes."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fugu.attackers.evaluation import Attack
from fugu.contract.errors import FuguError, GuaranteeError, StatusCode
from fugu.contract.frames import Status, StreamStatus, WindowFrame
from fugu.contract.sentences import largest_posterior
from fugu.contract.topics import topic_of
from fugu.lanes import Lane, lanes_svg
from fugu.mqtt import Broker
from fugu_cli.demo import processes, session
from fugu_cli.demo.evaluation import BEATS, EPSILON, Replay, Results, load_home, load_night, summary
from fugu_cli.demo.page import Page
from fugu_cli.demo.replay_lanes import attacker_lanes, readings_lane, replay_lanes, stretches_lane
from fugu_cli.demo.session import Subscriber

FLEET = "demo"
PROMISE = math.exp(EPSILON)
OFF = (-10, 20, 30, 0)


@pytest.fixture(scope="module")
def replay() -> Replay:
    return load_night("N05", epoch=0.0)


def window(replay: Replay, index: int, off: int, observed: int = BEATS) -> WindowFrame:
    """A window whose count is off the truth by a number."""
    first = index * BEATS
    [true], _ = replay.true_counts(first)
    return WindowFrame(1, "above", index - 1, index, first, BEATS, observed, (int(true) + off,))


def frames(*some: WindowFrame) -> dict[int, WindowFrame]:
    return {frame.first: frame for frame in some}


@pytest.fixture(scope="module")
def night(replay: Replay) -> Results:
    """A night of which a few windows arrived: one before there was a baseline, one with ticks missing."""
    came = [window(replay, index, off) for index, off in enumerate((7, *OFF))]
    results = replay.results(frames(*came, window(replay, 9, 10_000, observed=BEATS - 1)), attack_all=True)
    assert results is not None
    return results


def test_a_device_sends_windows_only_and_uses_up_what_it_promises(replay: Replay) -> None:
    policy = replay.policy
    assert policy.table is None
    assert (policy.guarantee.epsilon, policy.guarantee.adversary) == (EPSILON, "universal")
    spare = EPSILON / 1024  # what a plan leaves to changes of policy
    assert policy.verify(EPSILON).epsilon == pytest.approx(EPSILON - spare, rel=1e-4)
    [window] = policy.windows
    assert (window.length, window.stride, window.states) == (BEATS, BEATS, ("above",))
    eager = policy.model_copy(update={"windows": (window.model_copy(update={"scale": "5"}),)})
    with pytest.raises(GuaranteeError):
        eager.verify(EPSILON)


def test_a_policy_has_the_period_of_the_heart_so_that_its_stretches_are_true(replay: Replay) -> None:
    seconds = replay.policy.clock.period_us / 1e6
    assert 0.5 < seconds < 1.5
    ten_minutes = next(row for row in replay.policy.bound().rows(replay.policy.clock.period_us) if "10" in row.name)
    assert 600 / seconds <= ten_minutes.ticks < 1.15 * 600 / seconds


def test_windows_are_held_against_the_recording(replay: Replay, night: Results) -> None:
    assert (len(night.hours), night.arrivals, len(replay.window_starts)) == (
        len(OFF),
        len(OFF),
        len(replay.states) // BEATS - 1,
    )
    assert (BEATS * (night.released - night.truth)).round(9).tolist() == list(OFF)
    assert night.error == pytest.approx(sum(map(abs, OFF)) / len(OFF) / BEATS)
    assert night.band == pytest.approx(3 * float(Fraction(replay.policy.windows[0].scale)) / BEATS, rel=0.1)
    assert night.share_inside == 0.75
    assert night.ordinary_changes is not None
    assert night.own_changes is not None
    assert len(night.ordinary_changes) == len(night.own_changes) == len(night.ticks) == len(replay.states) - BEATS


def test_ordinary_randomised_response_breaks_its_promise_and_windows_keep_it(night: Results) -> None:
    assert night.ordinary_changes is not None
    assert night.own_changes is not None
    assert night.learner is not None
    assert night.attack is not None
    assert 0.5 < night.share_beyond(night.ordinary_changes) < 0.58
    assert 6.0 < math.exp(night.ordinary_changes.max()) < 10.0
    assert 0.0 < night.own_changes.max() <= EPSILON
    assert night.learner.shape == night.own_changes.shape
    assert night.learner.max() > night.own_changes.max()
    assert len({learner.max() for learner in night.learners}) == 6, (
        "each draw of the noise moves odds by another factor"
    )
    factors = sorted(math.exp(learner.max()) for learner in night.learners)
    assert f"over 6 draws of the noise by x {factors[0]:.1f} to x {factors[-1]:.1f}." in summary(night)[2]
    assert night.attack.low <= night.attack.success <= night.attack.high


def test_no_whole_window_is_no_result(replay: Replay) -> None:
    assert replay.results(frames(window(replay, 0, 0), window(replay, 3, 0, observed=299))) is None


def test_what_would_leave_is_simulated_with_the_noise_of_the_policy(replay: Replay) -> None:
    ready = replay.simulated_frames()
    assert list(ready) == list(replay.window_starts)
    counts = [frame.counts[0] for frame in ready.values() if isinstance(frame, WindowFrame)]
    off = [count - int(replay.true_counts(first)[0][0]) for first, count in zip(ready, counts, strict=True)]
    scale = float(Fraction(replay.policy.windows[0].scale))
    assert 0.4 * scale < np.abs(off).mean() < 2.0 * scale  # of 55 draws, whose mean is the scale


def test_only_values_that_are_to_come_are_counted(replay: Replay) -> None:
    came = {
        first: window(replay, first // BEATS, 0)
        for first in (0, *replay.window_starts, replay.window_starts[-1] + BEATS)
    }
    assert replay.count_values(came) == replay.expected_count == len(replay.window_starts)


def drawn(night: Results) -> Results:
    """A night with numbers that are easy to find again in a picture."""
    return replace(
        night,
        hours=np.array([0.0, 2.0, 4.0]),
        truth=np.array([0.25, 0.5, 1.0]),
        released=np.array([0.2, 0.6, 0.9]),
        band=0.1,
        arrivals=3,
        ticks=np.arange(5) * 300,
        ordinary_changes=np.log([1.0, 2.0, 5.0, 10.0, 20.0]),
        own_changes=np.log([1.0, 1.1, 1.3, 1.3, 1.4]),
        learners=(np.log([1.0, 1.2, 1.5, 3.0, 9.0]), np.log([1.0, 1.0, 2.8, 1.0, 1.0])),
        attack=Attack("supervised", 0.6, 0.55, 0.65, 0.731, 0.5, 0.0),
    )


def shapes(lane: Lane, look: str) -> list[tuple[float, ...]]:
    """The numbers of a shape of a lane."""
    return [point for shape in lane.shapes if shape.look == look for point in shape.points]


def test_the_lanes_show_the_numbers_of_the_night(replay: Replay, night: Results) -> None:
    (stays, leaves, attacker), _ = replay_lanes(replay, 5000, drawn(night))
    assert (stays.number, leaves.number, attacker.number) == ("5,000", "3", "58 %")
    assert stays.span == leaves.span == attacker.span == (0.0, replay.states.size * replay.hours)
    read, later = ([at for at, _, _ in shapes(stays, look)] for look in ("raw", "later"))
    assert max(read) < 5000 * replay.hours <= min(later)
    assert stays.range == (np.min(replay.values), np.max(replay.values))
    assert shapes(leaves, "truth") == [(0.0, 0.25), (2.0, 0.5), (4.0, 1.0)]
    assert shapes(leaves, "got") == shapes(leaves, "point") == [(0.0, 0.2), (2.0, 0.6), (4.0, 0.9)]
    assert shapes(leaves, "within") == [(0.0, pytest.approx(0.1), pytest.approx(0.3)), (2.0, 0.5, 0.7), (4.0, 0.8, 1.0)]
    assert leaves.words == "of 55 numbers, here off by 8 percentage points on average"
    assert attacker.words == "the surest an attacker got, from 50 %, of any one heartbeat being “above” or not"
    assert shapes(attacker, "promise") == [(pytest.approx(PROMISE / (1 + PROMISE)),)]
    assert [sure for _, sure in shapes(attacker, "sure")] == pytest.approx(
        [x / (1 + x) for x in (1, 1.1, 1.3, 1.3, 1.4)]
    )
    assert shapes(attacker, "beyond") == []


def test_the_promise_is_to_one_who_knows_the_habits_and_the_others_get_beyond_it(
    replay: Replay, night: Results
) -> None:
    lanes = attacker_lanes(replay, drawn(night))
    assert [*lanes] == ["knows", "learns", "ordinary"]
    for name, share, share_beyond in (("learns", "90 %", 2), ("ordinary", "95 %", 3)):
        lane = lanes[name]
        assert (lane.number, len(shapes(lane, "beyond")), shapes(lane, "promise")) == (share, share_beyond, [])
        assert lane.words.endswith(f"above the line for {20 * share_beyond} %")
        [(words,)] = [(shape.words,) for shape in lane.shapes if shape.look == "nobody"]
        assert words == "the promise to one who knows the habits: 73 %"
    assert [*attacker_lanes(replay, replace(drawn(night), learners=()))] == ["knows", "ordinary"]
    assert [*attacker_lanes(replay, None)] == ["knows"]


def test_what_a_profile_lets_anybody_say_is_drawn_for_each_stretch(replay: Replay) -> None:
    lane = stretches_lane(replay.stretches, replay.promised_stretch)
    assert lane.number == "73 %"
    bars = shapes(lane, "most") + shapes(lane, "bare")
    assert [high for _, _, _, high in bars] == pytest.approx(
        [largest_posterior(stretch.epsilon) for stretch in replay.stretches[:6]]
    )
    assert [words for _, words in lane.marks][:3] == ["heartbeat", "10 min", "1 h"]
    assert lane.words.endswith("if 50 % sure before; not protected: 10 min, 1 h, 8 h")


@pytest.mark.long
def test_a_household_shares_a_profile_of_the_day_and_any_hour_is_protected() -> None:
    home = load_home(epoch=0.0)
    assert (home.promised_stretch, home.expected_count, home.policy.guarantee.epsilon) == ("1 hour", 4, EPSILON)
    assert home.policy.verify(EPSILON).epsilon <= EPSILON
    frames = dict(home.simulated_frames())
    results = home.results({first: frames[first] for first in list(frames)[:3]}, attack_all=True)
    assert (results.arrivals, results.own_changes, len(results.released)) == (3, None, 3 * 6)
    assert summary(results)[1:] == (
        "Private: about any hour, from 50 % to at most 73 % sure. Not private: 8 hours or longer.",
    )
    (stays, leaves, attacker), _ = replay_lanes(home, home.states.size, results)
    assert "upright lines: 95 %" in leaves.head
    assert attacker == replay_lanes(home, 0, None)[0][2], "one promise, before anything has come and after"
    assert leaves.number == "3"
    assert leaves.words.startswith("of 4 profiles of the day, here off by ")
    assert [words for _, words in leaves.marks][0::5] == ["00–04", "20–24"]
    assert [words for _, words in stays.marks][:2] == ["7 d", "14 d"]
    newest = results.truth.reshape(3, 6)[-1]
    assert [level for _, _, level, _ in shapes(leaves, "truth")] == newest.tolist()
    assert [high for _, _, _, high in shapes(leaves, "bar")] == results.released.reshape(3, 6)[-1].tolist()
    assert attacker.number == "73 %"
    assert attacker.words == "at most sure of what went on in any hour, if 50 % sure before; not protected: 8 h"


@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_of_a_long_night_is_small_and_needs_nothing_else(replay: Replay, night: Results, dark: bool) -> None:
    many = np.linspace(0.0, 3.0, 30_000)
    long = replace(night, ordinary_changes=many, own_changes=many, ticks=np.arange(30_000) // 2)
    picture = lanes_svg("a & b", replay_lanes(replay, 20_000, long)[0], dark=dark)
    assert len(picture) < 100_000
    root = ElementTree.fromstring(picture)
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "a & b"
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-reduced-motion:no-preference" in picture


def test_the_sentences_say_the_same(night: Results) -> None:
    lanes = drawn(night)
    useful, private, habits, attacker = summary(lanes)
    assert "off by 8.3 points on average, and 100 % of them by at most 10" in useful
    assert "for an attacker who already knows the habits behind it" in private
    assert habits.startswith("Habits are not protected: for an attacker who learns them, odds change by up to x 9.0, ")
    assert habits.endswith(
        "over 2 draws of the noise by x 2.8 to x 9.0. They change by more than x 2.7 on 20 to 40 % of the heartbeats."
    )
    assert len(summary(replace(lanes, attack=None, learners=()))) == 2
    assert "at most x 1.4" in private
    assert "on 60 % of the heartbeats, up to x 20" in private
    assert "(supervised) is right on 60.0 % of the heartbeats (55.0 to 65.0), always guessing on 50.0 %" in attacker
    assert attacker.endswith("The promise allows 73.1 %, if the readings are in the class.")


def heard(subscriber: Subscriber, status: Status) -> None:
    """Let it hear a status of the device, as the broker would."""
    subscriber.link.on_message(topic_of("status", FLEET, "watch-N05"), status.encode(), False)


def moving(ticks: int) -> Status:
    return Status(True, "1", 3, (), (StreamStatus("heart-rate", 1, ticks),))


def test_only_frames_of_the_device_are_kept_and_each_once(replay: Replay) -> None:
    """The subscriber is fed as the broker would feed it, without one."""
    subscriber, frame = Subscriber(Broker(port=1), [replay]), window(replay, 4, 0)
    heard(subscriber, moving(1234))
    for payload in (frame.encode(), frame.encode(), b"\x05"):
        subscriber.link.on_message(topic_of("window", FLEET, "watch-N05", "heart-rate"), payload, False)
    device_state = subscriber.devices["watch-N05"]
    assert (device_state.frames, device_state.ticks) == ({1200: frame}, 1500)


def test_a_device_stands_where_it_was_heard_last_whatever_its_will_says(
    monkeypatch: pytest.MonkeyPatch, replay: Replay
) -> None:
    now = [100.0]
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    subscriber = Subscriber(Broker(), [replay])
    assert subscriber.standstill_of("watch-N05", 95.0) == (5.0, "tick 0 of 16859, 0 messages waiting")

    def hear(status: Status) -> float:
        now[0] += 1.0
        heard(subscriber, status)
        return subscriber.standstill_of("watch-N05", 95.0)[0]

    assert [hear(moving(ticks)) for ticks in (1, 1, 2)] == [0.0, 1.0, 0.0]
    assert hear(Status(False, "1", 0, (StatusCode.CONNECTION_LOST,), ())) == 1.0


def test_a_recording_is_drawn_whatever_its_readings_are() -> None:
    numbers = readings_lane(np.array([1.0, np.nan, 3.0, 2.0]), 0.5, 2, "a & b")
    names = readings_lane(np.array(["on", None, "off", "on"], dtype=object), 24.0, 4, "door")
    empty = readings_lane(np.array([np.nan, np.nan]), 1.0, 0, "nothing")
    assert shapes(numbers, "raw") == [(0.0, 1.0, 1.0)]
    assert shapes(numbers, "later") == [(1.0, 3.0, 3.0), (1.5, 2.0, 2.0)]
    assert numbers.levels == [(1.0, "1"), (3.0, "3")]
    assert (shapes(names, "later"), names.levels) == ([], [(0.0, "off"), (1.0, "on")])
    assert shapes(empty, "later") == []


def test_a_gateway_that_ends_ends_the_demo(replay: Replay) -> None:
    subscriber = Subscriber(Broker(), [replay])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as serving:
        assert session._are_done(subscriber, serving, {})
    with pytest.raises(FuguError, match="the gateway has ended"):
        session._are_done(subscriber, serving, {})


@pytest.mark.long
@pytest.mark.parametrize("ends", ["stands still", "never ends"])
def test_a_device_that_stands_still_is_named_and_the_demo_goes_on_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], replay: Replay, ends: str
) -> None:
    """The other one moves, and ends in order once the first has been left out."""
    monkeypatch.setattr(session, "_STILL_SECONDS", 0.2)
    monkeypatch.setattr(session, "_GIVEN_UP_SECONDS", 0.4 if ends == "stands still" else 600.0)
    monkeypatch.setattr(session, "_MOST_SECONDS", 600.0 if ends == "stands still" else 0.4)
    other = load_night("N07", epoch=0.0)
    subscriber, ticks = Subscriber(Broker(), [replay, other]), count(1200)
    heard(subscriber, moving(next(ticks)))
    page = Page(browser=False)
    alarms: list[str] = []
    monkeypatch.setattr(page, "show", lambda **fields: alarms.append(fields.get("stalled", "")))
    monkeypatch.setattr(page, "draw", lambda *_, **_fields: None)
    with ExitStack() as stack:
        serving, stopped, goes_on = (
            stack.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
            for _ in range(3)
        )
        stopped.send_signal(signal.SIGSTOP)
        devices: dict[str, Any] = {"watch-N05": stopped, "watch-N07": goes_on}

        def maintain() -> None:
            subscriber.link.on_message(topic_of("status", FLEET, "watch-N07"), moving(next(ticks)).encode(), False)
            if "watch-N05" not in devices and not goes_on.stdin.closed:
                goes_on.communicate(b"\n")

        monkeypatch.setattr(subscriber.link, "maintain", maintain)
        missing = session._watch_replays(page, subscriber, serving, devices, [replay, other])
        page._server.server_close()
        assert stopped.returncode == -signal.SIGKILL
        serving.kill()
    named, *_ = capsys.readouterr().out.splitlines()
    assert re.match(rf"watch-N05 \(process {stopped.pid}\) has stood still for \d+ s: tick 1200 of 16859, 3 ", named)
    assert named in "; ".join(alarms)
    assert alarms[-1] == ""
    assert [line.split(" for ")[0] for line in missing][:1] == ["watch-N05 stood still"]
    assert len(missing) == (1 if ends == "stands still" else 2)


@pytest.mark.long
def test_a_process_that_does_not_end_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); input()"
    with subprocess.Popen([sys.executable, "-c", deaf], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as still:
        still.stdout.readline()
        assert processes.end(still, "gateway", tmp_path / "gateway.log") == 0
        assert still.returncode == -signal.SIGKILL
    assert capsys.readouterr().out.startswith("gateway did not end within 0 s and was killed: see ")


def test_where_there_is_no_broker_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name, path="": None)
    for kind, wanted in (("auto", "fugu-edge"), ("embedded", "fugu-edge"), ("mosquitto", "apt-get install mosquitto")):
        with pytest.raises(FuguError, match=wanted):
            processes.find_mosquitto(kind)
