"""Error of averages over homes: hourly shares of N of them, an hour protected, by a real broker and gateway.

Usage: python benchmarks/groups.py [--json] [--devices 60,400] [--seed N]      (make bench installs a broker)

Each home is a recording whose days are drawn at random, so that homes have the hours of the day in common, and nothing
else. `plan auto` makes the policy of a device. Each device counts with the edge's own windows and their noise, by a
seeded source. Mosquitto brings frames to a gateway, whose reports a subscriber averages, hour by hour. The error of
that is judged for a day beside two guesses from other homes and days: the best constant, and the mean of each hour.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.contract.compiled import read_policy
from fugu.contract.compiler import compile_policy
from fugu.contract.errors import FuguError
from fugu.contract.frames import WindowFrame
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.core.noise import uniform_below
from fugu.core.windows import Counter
from fugu.mqtt import Broker, Link
from fugu.mqtt.readings import CountReading
from fugu.mqtt.subscription import Subscription
from fugu.planning.auto import AutoPlan, auto_policy, plan_auto
from fugu.planning.candidates import Candidate
from fugu.planning.policy_builder import Target
from fugu.planning.question import Question
from fugu.planning.states import states_of
from fugu.recordings.readings import read_readings

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from figures import command_line, say_machine, table_head, table_row
from gateways import write_policies

from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import GatewayProcess

DATA = Path(__file__).parents[1] / "tests" / "data"
RECORDINGS = (
    ("water runs", "ampds2_water_on_30d", 0.5),
    ("power above 1 kW", "power_uci_90d", 1000.0),
    ("somebody moves", "activity4_nhanes", 0.5),
    ("office occupied", "occupancy_office", 0.5),
)
EPSILON, HOUR, DAY = 1.0, 60, 1440
EPOCH = 1_700_006_400  # a midnight
OTHERS = 200


class Judged(NamedTuple):
    """Mean absolute errors of the average of N homes, by the plan and as it ran; of a constant; of each hour's mean.

    `enough` homes are those whose error would be half of the constant's.
    """

    recording: str
    homes: int
    scale: float
    recommended: str
    planned: float
    guess: float
    off: float
    more_or_less: float
    constant: float
    habit: float
    enough: int


def days_of(states: Ints, moments: Floats) -> Ints:
    """(d, 1440) the whole days of a recording of minutes, from midnight to midnight of its times."""
    begins = np.flatnonzero(moments % 86_400 == 0)
    whole = [
        first for first in begins if first + DAY <= len(moments) and moments[first + DAY - 1] - moments[first] < 86_400
    ]
    return np.array([states[first : first + DAY] for first in whole])


def planned(file: Path, threshold: float, homes: int, seed: int) -> tuple[AutoPlan, Candidate, Policy, Ints]:
    """The plan of a group, its hourly candidate, the policy of a device by that, and the days of the recording."""
    readings = read_readings(file)
    question = Question(EPSILON, "share", threshold=threshold, devices=homes, latency_seconds=3600.0, protect=3600)
    plan = plan_auto(readings, question, np.random.default_rng(seed))
    hourly = next(
        candidate for candidate in plan.candidates if candidate.devices == homes and candidate.window_ticks == HOUR
    )
    policy = auto_policy(plan._replace(recommended=hourly), Target(epoch=EPOCH))
    assert readings.moments is not None
    states = states_of(plan.states.discretiser, readings.values, readings.segments)
    return plan, hourly, policy, days_of(states, readings.moments)


def released(policy: Policy, states: Ints, seed: int) -> Iterator[WindowFrame]:
    """The frames of one device on a day, as the edge counts."""
    chance = random.Random(seed)

    def entropy(buffer: memoryview) -> None:
        buffer[:] = chance.randbytes(len(buffer))

    compiled = read_policy(compile_policy(policy))
    (window,), previous = compiled.windows, -1
    counter = Counter(window, uniform_below(entropy), -1, 0)
    for tick, state in enumerate(states.tolist()):
        counter.observe(tick, state if state >= 0 else None)
        for index, observed, counts in counter.close(tick):
            place = previous, index, window.first(index), window.length
            yield WindowFrame(policy.version, window.name, *place, observed, tuple(counts))
            previous = index


def released_shares(policy: Policy, states: Ints, seed: int) -> Floats:
    """(h,) the averages over all homes, (n, 1440) states, that a subscriber has of the gateway's reports."""
    names = [f"home-{number}" for number in range(len(states))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_policies(folder, (policy.model_copy(update={"device": name}) for name in names))
        with Mosquitto(folder) as mosquitto:
            broker = Broker(port=mosquitto.port)
            gateway = GatewayProcess(folder, broker)
            wait_until(gateway.hears, "the gateway")
            crowd = Link(broker, client_id="crowd")
            crowd.start()
            with Subscription(broker, fleet=policy.fleet, windows=False) as subscriber:
                wait_until(lambda: subscriber.link.connected and crowd.connected, "the subscriber")
                days = [[*released(policy, home, seed + number)] for number, home in enumerate(states)]
                averages = [
                    _hour(policy, crowd, subscriber, dict(zip(names, hour, strict=True)))
                    for hour in zip(*days, strict=True)
                ]
            crowd.stop()
            assert gateway.stop() == 0
    return np.array(averages)


def _hour(policy: Policy, crowd: Link, subscriber: Subscription, frames: dict[str, WindowFrame]) -> float:
    """Send a window of each home, and average the reports of them all."""
    for name, frame in frames.items():
        topic = topic_of("window", policy.fleet, name, policy.stream)
        wait_until(partial(crowd.publish, topic, frame.encode()), "the broker")
    released_counts: dict[str, float] = {}
    while len(released_counts) < len(frames):
        reading = subscriber.wait(PATIENCE)
        assert reading is not None, "the gateway has reported nothing"
        if isinstance(reading, CountReading):
            released_counts[reading.device] = reading.window.values[0] / reading.window.observed
    return float(np.clip(np.mean([*released_counts.values()]), 0.0, 1.0))


def shares(days: Ints) -> Floats:
    """(n, 24) hourly shares of days (n, 1440) of which every minute is stated or missing."""
    return np.asarray((days > 0).reshape(len(days), -1, HOUR).mean(axis=2))


def judged(name: str, file: Path, threshold: float, homes: int, seed: int) -> Judged:
    """Plan, run and judge."""
    plan, hourly, policy, days = planned(file, threshold, homes, seed)
    rng = np.random.default_rng(seed)
    states = days[rng.integers(len(days), size=homes)]
    known_days = shares(days)[rng.integers(len(days), size=(OTHERS, homes))].mean(axis=1)
    truth = shares(states).mean(axis=0)
    errors = np.abs(released_shares(policy, states, seed) - truth)
    constant, habit = (float(np.abs(some - truth).mean()) for some in (np.median(known_days), known_days.mean(axis=0)))
    enough = math.ceil(homes * (2.0 * hourly.expected_error / constant) ** 2)
    return Judged(
        recording=name,
        homes=homes,
        scale=float(Fraction(policy.windows[0].scale)),
        recommended="yes" if plan.recommended.kind != "none" else "no",
        planned=hourly.expected_error,
        guess=hourly.guess_error,
        off=float(errors.mean()),
        more_or_less=float(errors.std() / math.sqrt(errors.size)),
        constant=constant,
        habit=habit,
        enough=enough,
    )


def main() -> None:
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--devices", default="60,400")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="recordings whose name begins so")
    options = parser.parse_args()
    say_machine()
    rows = []
    for name, file, threshold in RECORDINGS:
        for homes in map(int, options.devices.split(",")):
            if not name.startswith(options.only or ""):
                continue
            try:
                rows.append(judged(name, DATA / f"{file}.csv.gz", threshold, homes, options.seed))
            except FuguError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            print(rows[-1], file=sys.stderr)
    if options.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    columns = "hourly share, homes, noise of a count, recommended, planned, guessing, off by, a constant"
    print(table_head([*columns.split(", "), "the hour's habit", "homes needed"]))
    for row in rows:
        shown = [f"{each:.1%}" for each in (row.planned, row.guess, row.off, row.constant, row.habit)]
        shown[2] += f" +- {row.more_or_less:.1%}"
        cells = [row.recording, str(row.homes), f"{row.scale:.0f}", row.recommended, *shown, f"{row.enough:,}"]
        print(table_row(cells))


if __name__ == "__main__":
    main()
