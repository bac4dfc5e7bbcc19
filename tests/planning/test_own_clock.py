"""Checks, attacks and models read a recording at a clock: a policy's own, or that of its steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fugu.contract.chains import BoundedChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee, loss
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.planning.errors import PlanningError
from fugu.planning.joint_recording import StreamRule, read_stream
from fugu.planning.recorded_policy import draw_released, states_at_clock, true_states
from fugu.recordings.errors import QuestionError
from fugu.recordings.readings import AS_FOUND
from tests.support.recorded_person import START, UNEVEN, minutes

CLASS = BoundedChains(states=2, odds_ratio=20.0)
TABLE = NoiseTable.binary(1_500_000_000, 1_500_000_000)


def policy_of(seconds: int) -> Policy:
    """Two states, and a symbol every so many seconds."""
    epsilon = loss(CLASS, TABLE, "universal").epsilon * (1.0 + 1e-9)
    return Policy(
        **{"fleet": "home", "device": "ring", "stream": "hall", "version": 1, "frame_ticks": 10},
        clock=Clock(epoch_us=0, period_us=seconds * 1_000_000),
        discretiser=Thresholds(edges=(0.5,), states=("out", "in")),
        table=TABLE,
        chains=CLASS,
        guarantee=Guarantee(epsilon=epsilon, adversary="universal"),
    )


def write(path: Path, rows: list[str], head: str = "time,value") -> Path:
    path.write_text("\n".join([head, *rows, ""]))
    return path


def test_a_recording_of_seconds_is_taken_every_minute_for_a_policy_of_minutes(tmp_path: Path) -> None:
    """Rows are no ticks: an attack on rows would be on another chain than what a device releases."""
    states = minutes(1)[:600]
    rows = [f"{START + second},{states[second // 60]}" for second in range(60 * len(states))]
    seconds = write(tmp_path / "seconds.csv", rows)
    policy = policy_of(60)
    _, states_read, segments = states_at_clock(policy, seconds, AS_FOUND)
    assert states_read.tolist() == states
    assert not np.diff(segments).any()
    whole = write(tmp_path / "minutes.csv", [f"{START + 60 * place},{state}" for place, state in enumerate(states)])
    [by_second], [by_minute] = (list(draw_released(policy, file, AS_FOUND).trials()) for file in (seconds, whole))
    assert by_second.attacks == by_minute.attacks
    with pytest.raises(PlanningError, match=r"a reading every 60 s, and the policy a tick every 90 s"):
        states_at_clock(policy_of(90), whole, AS_FOUND)


def test_a_log_of_changes_is_looked_at_once_a_tick_of_the_policy(tmp_path: Path) -> None:
    rows = [f"{START + at},{place % 2}" for place, at in enumerate(np.cumsum([0, *[100, 250, 170] * 50]).tolist())]
    log = write(tmp_path / "log.csv", rows, "last_changed,value")
    for seconds in (10, 30, 120):
        readings, states, _ = states_at_clock(policy_of(seconds), log, AS_FOUND)
        assert (readings.period_seconds, len(states)) == (float(seconds), 50 * 520 // seconds + 1)
        assert states[: 100 // seconds].tolist() == [0] * (100 // seconds)


def test_a_model_counts_steps_of_the_clock_and_not_of_rows(tmp_path: Path) -> None:
    """Where rows are absent no transition is counted; rows in no order are a question."""
    states = minutes(9)
    file = UNEVEN["absent"](tmp_path / "u.csv", states).path
    readings, _, states_read, _ = read_stream(StreamRule(file, "value", 75.0), AS_FOUND)
    stated = states_read >= 0
    places = np.round((readings.moments[stated] - START) / 60.0).astype(int)
    inside = np.diff((readings.segments + np.cumsum(~stated))[stated]) == 0
    assert readings.period_seconds == 60.0
    assert states_read[stated].tolist() == [states[place] for place in places]
    assert (np.diff(places)[inside] == 1).all()
    assert inside.sum() == (np.diff(places) == 1).sum()
    with pytest.raises(QuestionError, match="earlier than the row before"):
        read_stream(StreamRule(UNEVEN["shuffled"](tmp_path / "s.csv", states).path, "value", 75.0), AS_FOUND)


def test_the_truth_is_placed_by_its_times_or_as_an_agent_replays_it(tmp_path: Path) -> None:
    """A row a second is a tick a minute; a row that is absent moves those of a replay, and not those by time."""
    states = minutes(1)[:600]
    rows = [f"{START + second},{states[second // 60]}" for second in range(60 * len(states))]
    policy = policy_of(60)
    policy = policy.model_copy(update={"clock": Clock(epoch_us=(START - 300) * 10**6, period_us=60 * 10**6)})
    truth = true_states(policy, write(tmp_path / "seconds.csv", rows), AS_FOUND)
    heard = truth.between(0, 100)
    assert (heard.first, heard.states.tolist()) == (5, states)
    assert truth.between(10_000, 10_100) == truth.replayed
    assert truth.replayed.states.tolist() == states
    ticks = np.array([4, 5, 604, 605])
    assert heard.at(ticks, loop=False)[0].tolist() == [-1, states[0], states[-1], -1]
    assert heard.at(ticks, loop=True)[0].tolist() == [states[-1], states[0], states[-1], states[0]]
    assert len(set(heard.at(ticks, loop=True)[1].tolist())) == 3, "what begins anew is another stretch"
    absent = {40, 41, 300}
    whole = [f"{START + 60 * place},{state}" for place, state in enumerate(states) if place not in absent]
    truth = true_states(policy, write(tmp_path / "absent.csv", whole), AS_FOUND)
    assert truth.replayed.states.tolist() == [state for place, state in enumerate(states) if place not in absent]
    assert truth.dated.states.tolist() == [-1 if place in absent else state for place, state in enumerate(states)]
