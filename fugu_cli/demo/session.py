"""Run replays with real processes, show on the page what arrives, and attack it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import FuguError
from fugu.contract.frames import Status
from fugu.contract.topics import Topic, topic_of
from fugu.lanes import Lane, certainty_lane, shares_lane, time_marks
from fugu.mqtt import Broker
from fugu.recordings.values import Cells
from fugu_cli.demo.evaluation import HEART, Frames, Replay, Results, load_home, load_night, read_night, summary
from fugu_cli.demo.page import Page, write_pictures
from fugu_cli.demo.processes import Device, Listener, Process, Site, kill, start_site
from fugu_cli.demo.replay_lanes import readings_lane, replay_lanes
from fugu_cli.demo.trial_numbers import TrialNumbers
from fugu_cli.view.terminal import say, working

__all__ = ["draw_replay", "run", "run_replays", "show_recording"]

NIGHTS = ("N10", "N05", "N07")
"""The nights of the demo, the most restless first."""
_OTHERS = {"learns": "Attacker, learning", "ordinary": "With ordinary noise"}
_TITLE = "The night is shared. Every heartbeat stays in doubt."
_SUB = (
    "Of its readings, only the green numbers leave this watch. An attacker who knows the sleeper's habits, and is 50 % "
    "sure that one given heartbeat was fast, gets at most 73 % sure."
)
_TICK_SECONDS, _REPLAY_SECONDS = 0.001, 20.0
"""Real seconds of a tick, and of the longest replay, into which many ticks are shortened."""
_MOST_SECONDS = 600.0
_TOLD_FROM = 0.03
"""The share of a replay after which the remaining time is shown."""
_STILL_SECONDS, _GIVEN_UP_SECONDS = 15.0, 60.0
"""Seconds without progress after which a device is named, and after which it is killed."""

_HOME_TITLE = "The week is shared. Every hour stays in doubt."
_HOME_SUB = (
    "Once a week this water meter tells how often water ran in each four hours of the day. About any hour, an attacker "
    "who knows the household's habits gets from 50 % to at most 73 % sure."
)


def run(folder: Path, broker: str, *, browser: bool) -> int:
    """Run the demo until the recordings end, and write pictures of each; return 1 if a device failed.

    The folder gets two pictures of each recording, light and dark, and logs. FuguError: a process does not start or
    ends early, or nothing arrives from any device.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with Page(browser=browser) as page:
        page.show(title=_TITLE, sub=_SUB, about="real recordings, replayed", stage="reading three nights")
        say("reading three nights and a month, and fitting a class of chains to each ...")
        for index, name in enumerate(NIGHTS):
            _, period, readings = read_night(name)
            page.show_replay(index, name=f"Night {index + 1}")
            show_recording(page, index, readings, period / 3600.0, HEART)
        replays = list[Replay]()
        for index, name in enumerate(NIGHTS):
            page.show(stage=f"planning the noise of night {index + 1}")
            replays.append(load_night(name))
            draw_replay(page, index, replays[-1], 0)
        page.show(stage="planning the noise of a household's month")
        replays.append(load_home())
        page.show_replay(len(NIGHTS), name="A home", title=_HOME_TITLE, sub=_HOME_SUB)
        draw_replay(page, len(NIGHTS), replays[-1], 0)
        name, seconds, results, failures = run_replays(page, replays, folder, broker)
        for result in results:
            title = f"{result.replay.name}: what stays, what leaves, and what attackers can say"
            write_pictures(folder, result.replay.device, title, _night_lanes(result))
            say(f"\n{result.replay.name}", style="bold")
            for sentence in summary(result):
                say(sentence)
        arrivals = sum(result.arrivals for result in results)
        expected = sum(result.replay.expected_count for result in results)
        say(f"\n{arrivals} of {expected} numbers came in {seconds:.0f} s by {name}; pictures of all are in {folder}")
        for sentence in failures:
            say(f"missing: {sentence}")
        page.show(stage="the replay is over, and what left was attacked", ended=True)
        page.stay()
    return 1 if failures else 0


def _night_lanes(results: Results) -> list[Lane]:
    """Return the lanes of a whole replay: the readings, the released values, and every attacker with results."""
    lanes, attackers = replay_lanes(results.replay, results.replay.states.size, results)
    for name, lane in attackers.items():
        lanes[-1] = lanes[-1]._replace(marks=())
        lanes.append(lane._replace(title=_OTHERS[name], height=140))
    return lanes


def show_recording(page: Page, index: int, readings: Cells, hours: float, quantity: str) -> None:
    """Draw a recording before its replay, with empty lanes below it."""
    device_lane = readings_lane(readings, hours, 0, quantity)._replace(number=f"{len(readings):,}")
    released_lane = shares_lane("0", "nothing yet", "", 174, device_lane.span)
    attacker_lane = certainty_lane("–", "nothing yet", "", 190, device_lane.span, marks=time_marks(device_lane.span[1]))
    page.draw(index, [device_lane, released_lane, attacker_lane], waiting=True)


def draw_replay(page: Page, index: int, replay: Replay, ticks: int, results: Results | None = None) -> None:
    """Draw a replay: the readings of its first `ticks` ticks, and the values that have arrived."""
    is_waiting = not replay.day_parts and (results is None or results.attack is None)
    use_sentence = "" if results is None else results.use_sentence()
    page.draw(index, *replay_lanes(replay, ticks, results), summary=use_sentence, waiting=is_waiting)


class _DeviceState(NamedTuple):
    """The state of a device from its messages; `moved_at` is the monotonic time of its last progress."""

    moved_at: float
    ticks: int
    outbox_depth: int
    error: str
    frames: Frames


class Subscriber(Listener):
    """A subscriber to the status and the values of the devices of some replays."""

    def __init__(self, broker: Broker, replays: Sequence[Replay]) -> None:
        self.devices = {replay.device: _DeviceState(0.0, 0, 0, "", {}) for replay in replays}
        self._replays = {replay.device: replay for replay in replays}
        fleet = replays[0].policy.fleet
        kinds = sorted({replay.topic for replay in replays})
        super().__init__(broker, topic_of("status", fleet, "+"), *(topic_of(kind, fleet, "+", "+") for kind in kinds))

    def handle(self, topic: Topic, payload: bytes) -> None:
        """Handle a status or a frame of a device of the replays."""
        if (state := self.devices.get(topic.device)) is None:
            return
        if topic.kind == "status":
            status = Status.decode(payload)
            state = state._replace(error=" ".join(status.codes))
            if status.online:  # a will is the broker's
                ticks = max([state.ticks, *(stream.next_tick for stream in status.streams)])
                state = state._replace(outbox_depth=status.outbox_depth, ticks=ticks)
        else:
            first_tick, end_tick, frame = self._replays[topic.device].decode(payload)
            state = state._replace(frames={**state.frames, first_tick: frame}, ticks=max(state.ticks, end_tick))
        if state._replace(error="") != self.devices[topic.device]._replace(error=""):
            state = state._replace(moved_at=time.monotonic())
        self.devices[topic.device] = state

    def standstill_of(self, device: str, start_time: float) -> tuple[float, str]:
        """Return the seconds since a device's last progress, or since the start, and its position in words."""
        state, length = self.devices[device], self._replays[device].states.size
        position = f"tick {min(state.ticks, length)} of {length}, {state.outbox_depth} messages waiting"
        return time.monotonic() - max(state.moved_at, start_time), position


def run_replays(
    page: Page, replays: Sequence[Replay], out: Path, broker_kind: str, trial: TrialNumbers | None = None
) -> tuple[str, float, list[Results], list[str]]:
    """Replay recordings, one for each device of a fleet, through a broker and a gateway, and attack what arrives.

    `out` is the folder for logs. `trial` keeps what the gateway publishes. Return the name of the broker, the seconds
    of the replay, results, and a sentence for each device that failed.
    """
    with start_site(replays[0].policy.fleet, broker_kind, out) as site:
        subscriber = site.stack.enter_context(Subscriber(site.broker, replays))
        say(f"{site.broker_name} on port {site.broker.port}; {len(replays)} device(s) and a gateway")
        page.show(stage="starting a gateway and what it hears of")
        start_time = time.monotonic()
        if trial is not None:
            site.stack.enter_context(trial.listen(site.broker))
        devices = [_device(site, replay) for replay in replays]
        gateway = site.stack.enter_context(site.gateway(wait=False, home_assistant=trial is not None))
        for device in devices:
            device.start()
        processes = {device.name: device.process for device in devices}
        failures = _watch_replays(page, subscriber, gateway, processes, replays)
        seconds = time.monotonic() - start_time
    page.show(stage="attacking what was released", seconds_left=None)
    say("attacking what was released ...")
    results = []
    for index, replay in enumerate(replays):
        replay_results = replay.results(subscriber.devices[replay.device].frames, attack_all=True)
        if replay_results is None:
            failures.append(f"nothing of {replay.device} reached the subscriber")
        else:
            results.append(replay_results)
            draw_replay(page, index, replay, replay.states.size, replay_results)
    if not results:
        raise FuguError(f"nothing of {replays[0].device} reached the subscriber")
    return site.broker_name, seconds, results, failures


def _device(site: Site, replay: Replay) -> Device:
    """Write the files of a device that replays a recording."""
    return site.device(
        replay.policy,
        replay.sensor,
        site.logs / f"{replay.device}.log",
        ["fugu_cli.demo.device", str(min(_TICK_SECONDS, _REPLAY_SECONDS / replay.states.size))],
        status_seconds=0.5,
        ceiling=replay.policy.guarantee.epsilon,
        drain_seconds=_MOST_SECONDS,
    )


def _watch_replays(
    page: Page, subscriber: Subscriber, gateway_process: Process, devices: dict[str, Process], replays: Sequence[Replay]
) -> list[str]:
    """Show arrivals until all devices have ended. Name devices without progress, and kill them after a minute.

    After ten minutes kill every device that still runs. Return a sentence for each killed device.
    """
    start_time = replay_start = time.monotonic()
    standstills, failures, drawn_ticks = dict[str, str](), list[str](), dict[str, int]()
    ticks = sum(replay.states.size for replay in replays)
    with working("replaying", measured=True) as progress:
        while not _are_done(subscriber, gateway_process, devices):
            subscriber.link.maintain()
            is_late = time.monotonic() - start_time > _MOST_SECONDS
            for device, process in [*devices.items()]:
                silence, position = subscriber.standstill_of(device, start_time)
                if process.poll() is not None or not (is_late or silence > _STILL_SECONDS):
                    standstills.pop(device, None)
                    continue
                if device not in standstills:
                    still_words = f"has stood still for {silence:.0f} s: {position}"
                    say(still_line := f"{device} (process {process.pid}) {still_words}")
                    standstills[device] = still_line
                if is_late or silence > _GIVEN_UP_SECONDS:
                    failures.append(f"{device} stood still for {silence:.0f} s and was ended: {position}")
                    kill(devices.pop(device))
            device_replays = [(subscriber.devices[replay.device], replay) for replay in replays]
            if not any(state.ticks for state, _ in device_replays):
                replay_start = time.monotonic()
            done_share = sum(min(state.ticks, replay.states.size) for state, replay in device_replays) / ticks
            elapsed = time.monotonic() - replay_start
            seconds_left = elapsed * (1.0 - done_share) / done_share if done_share >= _TOLD_FROM else None
            arrivals = sum(replay.count_values(state.frames) for state, replay in device_replays)
            stage = f"replaying: {arrivals} of {sum(replay.expected_count for replay in replays)} numbers sent"
            page.show(stage=stage, done=done_share, seconds_left=seconds_left, stalled="; ".join(standstills.values()))
            progress(stage.partition(": ")[2], done_share)
            for index, (state, replay) in enumerate(device_replays):
                if state.ticks > drawn_ticks.get(replay.device, 0):
                    drawn_ticks[replay.device] = state.ticks
                    draw_replay(page, index, replay, state.ticks, replay.results(state.frames))
            time.sleep(0.1)
    page.show(stalled="")
    return failures


def _are_done(subscriber: Subscriber, gateway_process: Process, devices: Mapping[str, Process]) -> bool:
    """Return whether all devices have ended; FuguError if a device or the gateway has failed."""
    codes = [process.poll() for process in devices.values()]
    if any(codes):
        errors = {name: device.error for name, device in subscriber.devices.items() if device.error}
        raise FuguError(f"a device has stopped: {errors or 'see its log'}")
    if gateway_process.poll() is not None:
        raise FuguError("the gateway has ended: see gateway.log")
    return None not in codes
