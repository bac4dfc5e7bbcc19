"""The street: sixty homes, a helper, a gateway and a broker; an hour of the recording takes a minute.

Six homes are agents, each a program with a folder of its own; one of them is killed in each hour, and starts again. The
others are simulated by one process. All use the clock of this machine: a tick lasts a second, and stands for a minute
of the recording.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge_agent.shares import device_key
from firmware_sim.devices import simulate_recording
from firmware_sim.homes import SimulatedHomes
from fugu.chains.arrays import Floats, Ints
from fugu.contract.envelope import Envelope, key_digits
from fugu.contract.errors import FuguError
from fugu.contract.group_frames import Report
from fugu.contract.groups import SharedWindow
from fugu.contract.policy import Policy
from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import largest_posterior
from fugu.contract.topics import Topic, topic_of
from fugu.host.files import write_secret
from fugu.host.toml_file import toml_lines
from fugu.lanes import Lane, Shape, certainty_lane, share_scale, shares_lane
from fugu.library.auto_words import error_words
from fugu.library.streets import Street, street
from fugu.mqtt import Broker
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import read_readings
from fugu_cli.demo.evaluation import RECORDINGS
from fugu_cli.demo.page import Page, write_pictures
from fugu_cli.demo.processes import Device, Listener, Site, kill, program, start_site
from fugu_cli.view.terminal import say
from fugu_helper.config import read_config, read_root_key, signed_documents
from fugu_helper.members import Members

__all__ = ["Hour", "run", "street_lanes"]

_GROUP = "street"
_MONDAY = 1_772_409_600
_HOMES, _AGENTS = 60, 6
_DAY, _HOUR = 1440, 60
_FIRST_HOUR = 6
_AWAY = 0.2
_READY_SECONDS, _READY_PLANS = 30, 10
"""The seconds until the first hour, in which all programs start; on a slow machine a multiple of the planning time."""
_DEADLINE = 6
_PATIENCE_SECONDS = 45.0
_TITLE = "The street's sum is shared. Every home stays in doubt."
_SUB = (
    "Sixty homes send numbers that look random, and only their sum for an hour can be read. Somebody who is 50 % "
    "sure of any hour of a home gets at most 73 % sure."
)
_NOT_HIDDEN = "the sum; and some homes' exact counts, if the two who add up, site and helper, work together."


class Hour(NamedTuple):
    """A released hour: its number, the number of homes, and the released, true and usual share of time with water."""

    number: int
    homes: int
    released: float
    truth: float
    habit: float


def run(out: Path, broker: str, hours: int, *, browser: bool) -> int:
    """Run the demo of a street for some hours of the recording; return 1 if a sum is missing.

    Each hour takes a minute. `out` is the folder for the pictures and the processes' logs. FuguError: a process does
    not start or ends early.
    """
    out.mkdir(parents=True, exist_ok=True)
    if find_spec("cryptography.hazmat.primitives.asymmetric.mlkem") is None:
        raise FuguError("the installed cryptography has no MLKEM768_X25519: install 50 or newer")
    recording = read_readings(RECORDINGS / "water_states.csv.gz", ReadOptions(period=60.0))
    days = np.array(recording.values, dtype=np.int64).reshape(-1, _DAY)
    with Page(browser=browser) as page:
        page.show(title=_TITLE, sub=_SUB, about="a simulated street", stage="planning the noise", unhidden=_NOT_HIDDEN)
        say(f"planning: {_HOMES} homes, an hour of each protected, from {len(days)} days of a household's water ...")
        start_time = time.monotonic()
        plan = _street_plan(days)
        lead_seconds = max(_READY_SECONDS, round(_READY_PLANS * (time.monotonic() - start_time)))
        for sentence in plan.verdict[:4]:
            say(sentence)
        with start_site("home", broker, out) as site:
            say(f"starting: {site.broker_name}, helper, gateway and {_AGENTS} agents")
            say(f"hour 1 of {hours} begins in {lead_seconds} s, and each takes a minute")
            page.show(stage="starting a helper, a gateway and homes")
            scene = _Scene(site, plan, days, hours, lead_seconds)
            site.stack.enter_context(program("fugu_helper", ["run", str(scene.helper)], out / "helper.log"))
            watcher = site.stack.enter_context(_Watcher(site.broker, scene, page))
            watcher.draw()
            for device, _ in scene.agents:
                device.start()
            site.stack.callback(scene.simulated.stop)
            scene.simulated.start()
            site.stack.enter_context(site.gateway(releases="releases.toml"))
            failures = _watch_hours(scene, watcher)
        title = "A street: what stays, what leaves, and what others can say"
        write_pictures(out, "street", title, watcher.lanes())
        code = _summary(scene, plan, watcher.hours)
        page.show(stage="the replay is over", ended=True, stalled="; ".join(failures))
        page.stay()
    return code


def _street_plan(days: Ints) -> Street:
    """Plan the street by the recording, which has no times: its days begin with a Monday."""
    with TemporaryDirectory(prefix="fugu-street-") as folder:
        file = Path(folder) / "water.csv"
        rows = (f"{_MONDAY + 60 * minute},{state}\n" for minute, state in enumerate(days.ravel()))
        write_secret(file, "time,state\n" + "".join(rows))
        return street(file, _HOMES, protect="1h", stream="water", rows="samples")


def _home_device(site: Site, policy: Policy, states: Ints, group: SharedWindow) -> tuple[Device, str]:
    """Write the files of a home whose agent is a program; return its device, and the digits of its key."""
    folder, ceiling = site.folder / policy.device, {"epsilon": policy.guarantee.epsilon, "seconds": _HOUR}
    sensor, clock = {"kind": "replay", "file": "readings.csv", "loop": False}, {"trusted": True}
    device = site.device(policy, sensor, folder / "agent.log", ceiling=ceiling, clock=clock)
    simulate_recording(folder / "readings.csv", policy, states.tolist())
    helper = group.group.helper_digits
    pin = {"name": group.group.name, "helper": helper, "honest": group.group.honest, "most": ceiling}
    with device.config.open("a") as config:
        config.write("\n".join(["[[groups]]", *toml_lines(pin), ""]))
    signing_key = Ed25519PrivateKey.from_private_bytes(device_key(folder / "outbox.sqlite"))
    return device, key_digits(signing_key.public_key().public_bytes_raw())


class _Scene:
    """The files of helper, gateway and agents, and all homes with their true states."""

    def __init__(self, site: Site, plan: Street, days: Ints, hours: int, lead_seconds: int) -> None:
        self.hours, self.epsilon = hours, plan.details.question.epsilon
        self._rng = random.Random(1)
        first_second = _FIRST_HOUR * _HOUR
        hour_shares = days.reshape(len(days), -1, _HOUR).mean(axis=2)
        self.habit: Floats = np.resize(hour_shares.mean(axis=0), _FIRST_HOUR + hours)[_FIRST_HOUR:]
        self.median_share = float(np.median(hour_shares.mean(axis=0)))
        names = [f"home-{number}" for number in range(1, _HOMES + 1)]
        day_count = -(-(first_second + hours * _HOUR + _DAY) // _DAY)
        self.states = {
            name: np.concatenate([days[self._rng.randrange(len(days))] for _ in range(day_count)])[first_second:]
            for name in names
        }
        self.helper = site.folder / "helper" / "helper.toml"
        self.group = self._sign_group(plan, site.broker, int(time.time()) + lead_seconds)
        # On this clock a minute lasts a second, and so does a minute of the protected stretch.
        minute_plan = plan.details._replace(period=1.0, question=replace(plan.details.question, protect=_HOUR))
        policies = dict(zip(names, minute_plan.policies(self.group, names), strict=True))
        (site.folder / "releases.toml").touch()
        self.agents = [_home_device(site, policies[name], self.states[name], self.group) for name in names[:_AGENTS]]
        for name in names[_AGENTS:]:
            (site.folder / "policies" / f"{name}.json").write_text(policies[name].to_json())
        simulated_states = {name: self.states[name].tolist() for name in names[_AGENTS:]}
        self.simulated = SimulatedHomes(site.broker, self.group.group, simulated_states, away_probability=_AWAY)
        members = Members(self.helper.parent / "members")
        agent_digits = {device.name: home_digits for device, home_digits in self.agents}
        for name, home_digits in (agent_digits | self.simulated.digits).items():
            members.admit(name, home_digits)

    def victim(self) -> Device:
        """Return a random agent."""
        return self._rng.choice(self.agents)[0]

    def begin_of(self, hour_number: int) -> float:
        """Return the Unix time at which an hour begins."""
        return self.group.group.begins_us(hour_number) / 1e6

    def _sign_group(self, plan: Street, broker: Broker, epoch: int) -> SharedWindow:
        """Write the helper's folder, and return the group's document, signed by the helper."""
        group_fields = plan.details.fields(_GROUP, "water", epoch) | {"period_us": 1_000_000, "deadline": _DEADLINE}
        self.helper.parent.mkdir(mode=0o700)
        write_secret(self.helper.parent / "root.key", os.urandom(32))
        lines = ['fleet = "home"', "[broker]", *toml_lines({"port": broker.port}), "[[groups]]"]
        self.helper.write_text("\n".join([*lines, *toml_lines(group_fields), ""]))
        config = read_config(self.helper)
        documents = signed_documents(config, read_root_key(self.helper.parent / config.root))[_GROUP]
        return SharedWindow.of(Envelope.decode(documents[0][1]))


class _Watcher(Listener):
    """A subscriber that draws the homes' reports and the released sums."""

    def __init__(self, broker: Broker, scene: _Scene, page: Page) -> None:
        self._scene, self._page = scene, page
        self.hours = list[Hour]()
        self.reports: dict[int, set[str]] = defaultdict(set)
        self.sums: dict[int, ReleaseFrame] = {}
        super().__init__(broker, topic_of("report", "home", "+", "+"), topic_of("release", "home", "site", _GROUP))

    def handle(self, topic: Topic, payload: bytes) -> None:
        """Handle a report or a sum."""
        if topic.kind == "report":
            self.reports[Report.decode(payload).number].add(topic.device)
        elif payload:
            frame = ReleaseFrame.decode(payload)
            self.sums[frame.first // frame.length] = frame

    def wait(self, stage: str, patience: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Draw arrivals until a condition holds, for at most `patience` seconds."""
        deadline = time.monotonic() + patience
        while not is_done() and time.monotonic() < deadline:
            hours_passed = (time.time() - self._scene.begin_of(0)) / _HOUR
            self._page.show(stage=stage, done=min(max(hours_passed / self._scene.hours, 0.0), 1.0))
            self.draw()
            time.sleep(0.5)

    def draw(self) -> None:
        """Draw the present lanes on the page."""
        self._page.draw(0, self.lanes())

    def lanes(self) -> list[Lane]:
        """Return the lanes of the hours that have passed."""
        scene = self._scene
        seconds_passed = min(max(0, int(time.time() - scene.begin_of(0))), scene.hours * _HOUR)
        homes = [states[:seconds_passed] for states in scene.states.values()]
        return street_lanes(homes, self.hours, scene.habit.tolist(), scene.epsilon)


def street_lanes(homes: Sequence[Ints], hours: Sequence[Hour], habit: Sequence[float], epsilon: float) -> list[Lane]:
    """Return three lanes: the homes' water until now, the released sums, and the promise. `habit` is by hour."""
    hour_count = len(habit)
    span = (0.0, float(hour_count))
    marks = [(float(hour_number), _clock_text(hour_number)) for hour_number in range(hour_count + 1)]
    runs = [run for home, states in enumerate(homes) for run in _running_bars(states, home)]
    points = [(hour.number + 0.5, hour.released) for hour in hours]
    truth = [(hour.number + edge, hour.truth) for hour in hours for edge in (0.0, 1.0)]
    top = share_scale([*(hour.released for hour in hours), *habit])
    errors = [abs(hour.released - hour.truth) for hour in hours]
    error = f", off by {error_words(float(np.mean(errors)))} on average" if errors else ""
    error = error.replace("point", "percentage point")
    words = "at most sure of what went on in any hour of a home, if 50 % sure before; the helper must keep its word"
    limit = largest_posterior(epsilon)
    sum_words = f"of {hour_count} hourly sum{'s' * (hour_count > 1)} of all homes{error}"
    home_words, row_words = "homes, each with its readings", "a row for each home: when water ran"
    bar_shapes, height = [Shape("bars", "ran", runs)], (0.0, float(len(homes)))
    shapes = [Shape("line", "truth", truth), Shape("dots", "point", points), Shape("dots", "point newest", points[-1:])]
    header = "share of time that water ran, in all homes · dashes: the truth, which does not leave"
    level = Shape("level", "promise", [(limit,)], f"the promise: at most {100 * limit:.0f} %")
    promise_shapes = [Shape("zone", "allowed", [(0.5, limit)]), level]
    return [
        Lane("stays", "Stays", f"{len(homes)}", home_words, row_words, 170, span, (), height, (), bar_shapes),
        shares_lane(f"{len(hours)}", sum_words, header, 174, span, shapes, top),
        certainty_lane(f"{100 * limit:.0f} %", words, "50 %: a coin flip", 150, span, promise_shapes, marks),
    ]


def _running_bars(states: Ints, home: int) -> Iterator[tuple[float, ...]]:
    """Yield a bar, in hours, for each run of water in a home's row."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], states, [0]])))
    for run_start, run_end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield run_start / _HOUR, run_end / _HOUR, home + 0.1, home + 0.9


def _watch_hours(scene: _Scene, watcher: _Watcher) -> list[str]:
    """Kill an agent in each hour, and print each sum. Return a sentence for each missing or partial sum."""
    failures = list[str]()
    for hour_number in range(scene.hours):
        kill_time = scene.begin_of(hour_number) + _HOUR / 4
        watcher.wait(f"{_clock_text(hour_number)} in the street", kill_time - time.time())
        victim = scene.victim()
        kill(victim.process)
        say(f"{_clock_text(hour_number, 15)} {victim.name} is killed, and begins anew")
        victim.start()
        if hour_number:
            failures += _print_hour(scene, watcher, hour_number - 1)
    last_deadline = scene.begin_of(scene.hours) + _DEADLINE
    watcher.wait("the last hour", last_deadline - time.time())
    return failures + _print_hour(scene, watcher, scene.hours - 1)


def _print_hour(scene: _Scene, watcher: _Watcher, hour_number: int) -> list[str]:
    """Wait for the sum of an hour, and print it beside the true sum. Return a sentence if it is missing or partial."""
    hours = f"{_clock_text(hour_number)} to {_clock_text(hour_number + 1)}"
    watcher.wait(f"waiting for the sum of {hours}", _PATIENCE_SECONDS, lambda: hour_number in watcher.sums)
    frame, homes = watcher.sums.get(hour_number), watcher.reports[hour_number]
    if frame is None:
        sentence = f"{hours}: no sum; {len(homes)} homes have reported, and {scene.group.group.quorum} are needed"
    elif frame.devices != len(homes):
        sentence = f"{hours}: a sum of {frame.devices} homes; {len(homes)} have reported, some of them too late"
    else:
        minutes = slice(hour_number * _HOUR, (hour_number + 1) * _HOUR)
        true_share = float(sum(scene.states[name][minutes].sum() for name in homes) / frame.observed)
        share, habit = frame.values[0] / frame.observed, float(scene.habit[hour_number])
        hour = Hour(hour_number, len(homes), share, true_share, habit)
        watcher.hours.append(hour)
        watcher.draw()
        noise = ", below 0 by its noise" if hour.released < 0 else ""
        say(
            f"{hours}: of {hour.homes} homes, water ran {hour.released:.1%} of the time{noise} (in truth "
            f"{hour.truth:.1%}: off by {error_words(abs(hour.released - hour.truth))}; habit says {hour.habit:.1%})"
        )
        return []
    say(sentence)
    return [sentence]


def _summary(scene: _Scene, plan: Street, hours: Sequence[Hour]) -> int:
    """Print the verdicts, and the numbers that site and helper saw; return 1 if a sum is missing."""
    if not hours:
        raise FuguError("no sum has come")
    _, _, released, truth, habit = np.array(hours).T
    guesses = released, scene.median_share, habit
    sum_error, guess_error, habit_error = (float(np.abs(shares - truth).mean()) for shares in guesses)
    verdict = "Useful" if 2 * sum_error <= guess_error else "Not useful in these hours"
    plural = "s" if len(hours) > 1 else ""
    say(
        f"\n{verdict}: {len(hours)} sum{plural}, off by {error_words(sum_error)} on average (planned over many: "
        f"{error_words(plan.details.size.off)}); guessing is off by "
        f"{error_words(guess_error)}, and habit by {error_words(habit_error)}.",
        style="bold",
    )
    say(plan.verdict[1], style="bold")
    shares = [share for hour in hours for share in scene.simulated.shares.get(hour.number, {}).values()]
    noiseless_reports = sum(not share for share in shares)
    say(
        f"The site saw random numbers of each home, and so did the helper. Had both worked together, they would have "
        f"seen the exact count in {noiseless_reports} of {len(shares)} reports: those whose share of noise is 0."
    )
    if missing_sums := scene.hours - len(hours):
        say(f"missing: {missing_sums} of {scene.hours} sums")
    return 1 if missing_sums else 0


def _clock_text(hour_number: int, minute: int = 0) -> str:
    return f"{(_FIRST_HOUR + hour_number) % 24:02}:{minute:02}"
