"""Replays: processes started, watched and stopped in order, a page that grows with what comes, and the attackers."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from firmware_sim.devices import write_config
from fugu.contract.errors import FuguError
from fugu.contract.frames import Status
from fugu.contract.stretches import Stretch
from fugu.contract.topics import parse_topic, topic_of
from fugu.library.auto_words import time_words
from fugu.mqtt import Broker, Link
from fugu_cli.demo.evaluation import AnyFrame, Replay, Results, load_night, read_night, summary
from fugu_cli.demo.page import Page
from fugu_cli.demo.pictures import html_report, private_picture, reading_picture, useful_picture
from fugu_cli.demo.processes import DemoError, gateway, start_broker
from fugu_cli.view.terminal import say, working

__all__ = ["run", "show_replay", "stream"]


NIGHTS = ("N10", "N05", "N07")
"""The most restless one first."""
_TICK_SECONDS, _REPLAY_SECONDS = 0.001, 20.0
"""From tick to tick of a replay, unless it would then take longer than that."""
_MOST_SECONDS = 600.0
_STILL_SECONDS, _GIVEN_UP_SECONDS = 15.0, 60.0
"""A device of which nothing changes for so long is named, and then left out."""


def run(out: Path, broker: str, *, browser: bool) -> int:
    """Run the demo until the nights are over, and write its report; returns 1 if something is missing in it.

    Args:
        out: folder for `report.html`, its first two pictures, `useful.svg` and `private.svg`, and the processes' logs.
        broker: "auto", "mosquitto" or "embedded".
        browser: open the page.

    Raises:
        FuguError: if a process does not start or ends early, or nothing has come of any device.
    """
    out.mkdir(parents=True, exist_ok=True)
    with Page(browser=browser) as page:
        page.show(title="Three nights of heartbeats, useful and private", stage="reading three nights")
        say("reading three nights, and fitting a class of chains to each ...")
        for at, name in enumerate(NIGHTS):
            _, period, values = read_night(name)
            page.show_replay(at, name=f"Sleeper {name}", live=f"{len(values)} heartbeats.")
            page.draw(**{f"reading-{at}": reading_picture(values, period / 3600.0, 0, "heart rate")})
        replays = []
        for name in NIGHTS:
            replays.append(load_night(name))
            show_replay(page, replays)
        name, seconds, nights, missing = stream(page, replays, out, broker)
        report = html_report(nights, name, seconds, missing)
        (out / "report.html").write_text(report)
        (out / "useful.svg").write_text(useful_picture(nights[0]))
        (out / "private.svg").write_text(private_picture(nights[0]))
        for sentence in summary(nights[0])[:2]:
            say(f"\n{sentence}")
        say(f"\nthe other nights, and what attackers reached: {out / 'report.html'}")
        for sentence in missing:
            say(f"missing: {sentence}")
        page.link(report)
        page.show(stage="all three nights have been sent and attacked", ended=True)
        page.stay()
    return 1 if missing else 0


def show_replay(page: Page, replays: Sequence[Replay]) -> None:
    """Show what is recorded, the first windows as they were prepared, and what is promised."""
    at = len(replays) - 1
    replay = replays[at]
    bound = replay.policy.bound(replay.policy.verify())
    promise = _stretch_odds(bound.rows(replay.policy.clock.period_us), replay.tick, bound.epsilon(1))
    page.show_replay(at, name=replay.name, promise=promise)
    _draw(page, at, replay, _Device())


def _stretch_odds(stretches: Sequence[Stretch], tick: str, epsilon: float) -> list[str]:
    """A sentence in odds for each of a tick, ten minutes and an hour; epsilon is that of a tick."""
    told = [f"Any single {tick}: an attacker's odds on it change by a factor of at most {math.exp(epsilon):.2g}."]
    for stretch in stretches:
        if stretch.name in ("10 minutes", "1 hour"):
            odds = f"an attacker's odds on how they were change by a factor of at most {math.exp(stretch.epsilon):.2g}"
            told.append(f"Any {stretch.name}: {odds if stretch.protected else 'nothing is promised'}.")
    return told


@dataclass
class _Device:
    """State of one device as it was heard, and when its progress was last another than before."""

    moved: float = 0.0
    ticks: int = 0
    outbox_depth: int = 0
    error: str = ""
    bytes: int = 0
    frames: dict[int, AnyFrame] = field(default_factory=dict)


class Subscriber:
    """Subscribes to all that the devices of some replays publish."""

    def __init__(self, broker: Broker, replays: Sequence[Replay]) -> None:
        self.devices = {replay.device: _Device() for replay in replays}
        self._replays = {replay.device: replay for replay in replays}
        self._lock = Lock()
        fleet = replays[0].policy.fleet
        topics = (
            topic_of("status", fleet, "+"),
            *(topic_of(kind, fleet, "+", "+") for kind in sorted({replay.topic for replay in replays})),
        )
        self.link = Link(broker, client_id="replay", subscriptions=topics, on_message=self._received)

    def _received(self, topic: str, payload: bytes, _retained: bool) -> None:
        try:
            parsed = parse_topic(topic)
            with self._lock:
                device = self.devices[parsed.device]
                before = device.ticks, device.outbox_depth, len(device.frames)
                if parsed.kind == "status":
                    status = Status.decode(payload)
                    device.error = " ".join(status.codes)
                    if status.online:  # a will is the broker's
                        device.outbox_depth = status.outbox_depth
                        device.ticks = max([device.ticks, *(stream.next_tick for stream in status.streams)])
                else:
                    first, end, frame = self._replays[parsed.device].decode(payload)
                    device.frames[first] = frame
                    device.bytes = len(payload)
                    device.ticks = max(device.ticks, end)
                if (device.ticks, device.outbox_depth, len(device.frames)) != before:
                    device.moved = time.monotonic()
        except (FuguError, KeyError):
            return

    def heard(self, device: str) -> _Device:
        """State of a device until now."""
        with self._lock:
            one = self.devices[device]
            return _Device(one.moved, one.ticks, one.outbox_depth, one.error, one.bytes, dict(one.frames))

    def stands(self, device: str, since: float) -> tuple[float, str]:
        """How many seconds nothing of a device has changed, of those since a moment, and where it stands."""
        one, length = self.heard(device), self._replays[device].states.size
        where = f"tick {min(one.ticks, length)} of {length}, {one.outbox_depth} messages waiting"
        return time.monotonic() - max(one.moved, since), where


def stream(page: Page, replays: Sequence[Replay], out: Path, kind: str) -> tuple[str, float, list[Results], list[str]]:
    """Replay recordings through a broker, a gateway and devices; the broker's name, seconds, results, what is missing.

    Args:
        page: shows what comes.
        replays: a device each, all of one fleet.
        out: folder for logs.
        kind: of the broker.
    """
    with tempfile.TemporaryDirectory(prefix="fugu-replay-") as folder, ExitStack() as stack:
        port, name = stack.enter_context(start_broker(kind, out))
        subscriber = Subscriber(Broker(port=port), replays)
        subscriber.link.start()
        stack.callback(subscriber.link.stop)
        say(f"{name} on port {port}; {len(replays)} device(s) and a gateway")
        began = time.monotonic()
        serving, devices = _start(stack, replays, Path(folder), out, port)
        missing = _watch(page, subscriber, serving, devices, replays)
        seconds = time.monotonic() - began
    page.show(stage="attacking what was released", left=None)
    say("attacking what was released ...")
    results = []
    for at, replay in enumerate(replays):
        found = replay.results(subscriber.heard(replay.device).frames, attacked=True)
        if found is None:
            missing.append(f"nothing of {replay.device} reached the subscriber")
        else:
            results.append(found)
            _draw(page, at, replay, subscriber.heard(replay.device), found)
    if not results:
        raise DemoError(f"nothing of {replays[0].device} reached the subscriber")
    return name, seconds, results, missing


def _start(
    stack: ExitStack, replays: Sequence[Replay], folder: Path, out: Path, port: int
) -> tuple[subprocess.Popen[bytes], dict[str, subprocess.Popen[bytes]]]:
    """Start a gateway and the devices, which keep what they send until the gateway has it."""
    (folder / "policies").mkdir()
    for replay in replays:
        (folder / "policies" / f"{replay.device}.json").write_text(replay.policy.to_json())
    fleet, store = replays[0].policy.fleet, folder / "gateway.sqlite"
    serving = stack.enter_context(gateway(port, fleet, folder, store, out / "gateway.log", wait=False))
    devices, broker = dict[str, subprocess.Popen[bytes]](), Broker(port=port)
    for replay in replays:
        place, policy = folder / replay.device, replay.policy
        place.mkdir()
        (place / "policy.json").write_text(policy.to_json())
        options = {
            **{"fleet": fleet, "device": replay.device, "outbox": "outbox.sqlite"},
            **{"ceiling": policy.guarantee.epsilon, "status_seconds": 0.5, "drain_seconds": _MOST_SECONDS},
        }
        config = write_config(place, options, broker, {"policy.json": dict(replay.sensor)})
        pace = min(_TICK_SECONDS, _REPLAY_SECONDS / replay.states.size)
        command = [sys.executable, "-m", "fugu_cli.demo.device", str(config), str(pace)]
        with (out / f"{replay.device}.log").open("wb") as log:
            devices[replay.device] = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(_kill, devices[replay.device])
    return serving, devices


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _watch(
    page: Page,
    subscriber: Subscriber,
    serving: subprocess.Popen[bytes],
    devices: dict[str, subprocess.Popen[bytes]],
    replays: Sequence[Replay],
) -> list[str]:
    """Show what has come until the recordings are over, and all that was released is durable.

    A device that stands still is named, and after a while killed; returns a sentence for each.
    """
    began = time.monotonic()
    named, missing, drawn = dict[str, str](), list[str](), dict[str, int]()
    ticks = sum(replay.states.size for replay in replays)
    with working("replaying", measured=True) as progress:
        while not _over(subscriber, serving, devices):
            subscriber.link.maintain()
            late = time.monotonic() - began > _MOST_SECONDS
            for device, process in [*devices.items()]:
                still, where = subscriber.stands(device, began)
                if process.poll() is not None or not (late or still > _STILL_SECONDS):
                    named.pop(device, None)
                    continue
                if device not in named:
                    named[device] = f"{device} (process {process.pid}) has stood still for {still:.0f} s: {where}"
                    say(named[device])
                if late or still > _GIVEN_UP_SECONDS:
                    missing.append(f"{device} stood still for {still:.0f} s and was ended: {where}")
                    _kill(devices.pop(device))
            heard = [subscriber.heard(replay.device) for replay in replays]
            done = sum(min(one.ticks, replay.states.size) for one, replay in zip(heard, replays, strict=True)) / ticks
            left = (time.monotonic() - began) * (1.0 - done) / done if done else None
            came = sum(replay.came(one.frames) for one, replay in zip(heard, replays, strict=True))
            stage = f"replaying: {came} of {sum(replay.expected for replay in replays)} values have come"
            page.show(stage=stage, done=done, left=left, stalled="; ".join(named.values()))
            progress(stage.partition(": ")[2], done)
            for at, (one, replay) in enumerate(zip(heard, replays, strict=True)):
                if len(one.frames) > drawn.get(replay.device, 0):
                    drawn[replay.device] = len(one.frames)
                    _draw(page, at, replay, one)
            time.sleep(0.1)
    page.show(stalled="")
    return missing


def _over(
    subscriber: Subscriber, serving: subprocess.Popen[bytes], devices: Mapping[str, subprocess.Popen[bytes]]
) -> bool:
    """True if all devices are through with their recordings."""
    codes = [process.poll() for process in devices.values()]
    if any(codes):
        errors = {name: one.error for name, one in subscriber.devices.items() if one.error}
        raise DemoError(f"a device has stopped: {errors or 'see its log'}")
    if serving.poll() is not None:
        raise DemoError("the gateway has ended: see gateway.log")
    return None not in codes


def _draw(page: Page, at: int, replay: Replay, heard: _Device, results: Results | None = None) -> None:
    """Show what has come of a replay; where nothing has come yet, what was prepared."""
    if results is None:
        results = replay.results(heard.frames, replay.prepared)
    pictures = {f"reading-{at}": reading_picture(replay.values, replay.hours, heard.ticks, replay.recorded)}
    said: tuple[str, ...] = ()
    if results is not None:
        pictures[f"useful-{at}"] = useful_picture(results, results.axis_hours)
        if results.ours is not None:
            pictures[f"private-{at}"] = private_picture(results)
        said = summary(results)
    leaves = f"What leaves: {heard.bytes} bytes every {time_words(replay.every)}, measured. " if heard.bytes else ""
    live = f"{replay.came(heard.frames)} of {replay.expected} values have come from the device."
    if results is not None and replay.prepared and results.live < results.truth.size:
        live += " The others in the picture were prepared: the same noise, drawn beforehand on this machine."
    shown = f"{min(heard.ticks, replay.states.size)} of {replay.states.size} {replay.tick}s have been read."
    page.draw(**pictures)
    page.show_replay(at, live=live, said=[shown, leaves + "".join(said[:1]), " ".join(said[1:])])
