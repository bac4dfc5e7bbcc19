"""From readings to a plan, its replay, and a block that runs it on the real sensor."""

from __future__ import annotations

import math
import shlex
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edge_agent.sensors import open_sensor
from fugu.attackers.evaluation import mean_transitions
from fugu.chains.arrays import Floats
from fugu.cli.commands.auto_plan import asked_words, offers_of, other_options, question_asked
from fugu.cli.commands.plan_options import AutoOptions
from fugu.cli.demo.evaluation import Replay, summary
from fugu.cli.demo.page import Page
from fugu.cli.demo.processes import DemoError
from fugu.cli.demo.session import show_replay, stream
from fugu.cli.errors import NOTHING
from fugu.cli.view.auto_plan import verdict
from fugu.cli.view.terminal import say, working
from fugu.contract.policy import Policy
from fugu.library.plans import Plan, whose_of
from fugu.planning.auto import AutoPlan, agent_configuration, auto_policy, plan_auto
from fugu.planning.question import Question
from fugu.planning.readings import Readings
from fugu.planning.recording import states_of

__all__ = ["plan_and_replay"]

_DAY = 86_400.0
_SENSOR = """\
[streams.sensor]
kind = "mqtt"
port = 1884  # of the broker that has the readings, which is not the fleet's
topic = "zigbee2mqtt/sensor"
"""
_INSTEAD = "What would do", "Each was planned as well, and tried on the part of the recording that was held back."
_SENSOR_WORDS = "On your sensor", "Paste this block where the sensor is. Change its broker and its topic."
_HELD_BACK = "The part that was held back: no answer was chosen by it"
_BROKER = {"host": "127.0.0.1", "port": 1883}
_LONGER = "A recording of more days may do."


def plan_and_replay(page: Page, path: Path, readings: Readings, options: AutoOptions) -> int:
    """Plan, replay and attack, on the page and in the terminal; returns the exit code."""
    whose, offers = whose_of(options.fleet, options.device, options.stream), tuple[str, ...]()

    def find(question: Question, seed: int, progress: Callable[[str, float], None]) -> Plan:
        return Plan(plan_auto(readings, question, np.random.default_rng(seed), progress), path, whose)

    with working("planning", measured=True) as progress:

        def tell(part: str, share: float) -> None:
            progress(part, share)
            page.show(stage=f"planning: {part}", done=share)

        plan = plan_auto(readings, question_asked(options), np.random.default_rng(options.seed), tell)
        first, *details = verdict(plan)
        page.show(verdict=first)
        page.show_replay(0, details=details)
        if why := _not_replayed(plan):
            page.show_replay(0, said=["", why, ""])
            offers = offers_of(find, other_options(plan, options), [path], tell)
    say(first, style="bold")
    for sentence in details:
        say(sentence)
    if why:
        lines = [line.replace("fugu plan auto", "fugu try", 1) for line in offers] or [_LONGER]
        page.show(stage="there is no answer to this question", ended=True, paste=[*_INSTEAD, "\n".join(lines)])
        say("\n".join([why, *lines]))
        page.stay()
        return NOTHING
    policy = auto_policy(plan, whose._replace(epoch=_epoch(plan)))
    show_replay(page, [replay := _replay(plan, policy, path)])
    with tempfile.TemporaryDirectory(prefix="fugu-try-") as logs:
        try:
            _, _, [results], missing = stream(page, [replay], Path(logs), "auto")
        except DemoError as error:  # the logs are deleted
            last = [line for log in Path(logs).glob("*.log") for line in log.read_text().splitlines()[-1:]]
            raise DemoError("; ".join([str(error), *last])) from None
    block = _block(plan, policy, path, asked_words(options))
    page.show(stage="all of it has been sent and attacked", ended=True, paste=[*_SENSOR_WORDS, block])
    for sentence in summary(results):
        say(sentence)
    say(f"\non your sensor:\n\n{block}")
    for sentence in missing:
        say(f"missing: {sentence}")
    page.stay()
    return 1 if missing else 0


def _not_replayed(plan: AutoPlan) -> str:
    """Why nothing is replayed, in a sentence; empty if something is."""
    if plan.recommended.kind == "none":
        return "Nothing would leave: no answer to this question is of use."
    if plan.recommended.kind != "windows" or plan.recommended.devices > 1:
        return "Nothing is replayed: only counts of windows of one device are."
    return ""


def _epoch(plan: AutoPlan) -> float:
    """Unix time of the first tick that is replayed: the recording's, so many whole days later that all is past."""
    moments, seconds = plan.readings.moments, plan.readings.period * plan.recommended.every
    newest = time.time() - len(plan.held_back) * seconds
    first = newest if moments is None else float(moments[plan.held_back[0]])
    return math.floor(first + (newest - first) // _DAY * _DAY)


def _replay(plan: AutoPlan, policy: Policy, path: Path) -> Replay:
    """The replay of an agent with the configuration of the plan, read as it reads it."""
    [stream] = tomllib.loads(agent_configuration(plan, policy, path, "policy.json", _BROKER))["streams"]
    sensor = stream["sensor"] | {"loop": False}
    source, read = open_sensor({"silence": "samples", **sensor}), list[float | str | None]()
    while not source.finished(len(read)):
        reading = source.read(len(read))
        read.append(None if reading is None else reading.reveal())
    segments = np.zeros(len(read), dtype=np.int64)
    states = states_of(policy.discretiser, read, segments)
    transition = mean_transitions(states, segments, len(policy.discretiser.states))
    words = {"of": plan.states.share_of, "tick": "tick", "recorded": plan.readings.column}
    return Replay(_HELD_BACK, policy, sensor, _values(read), states, transition, None, **words)


def _values(read: list[float | str | None]) -> Floats | list[str | None]:
    try:
        return np.array([math.nan if one is None else float(one) for one in read])
    except ValueError:
        return [None if one is None else str(one) for one in read]


def _block(plan: AutoPlan, policy: Policy, path: Path, asked: list[str]) -> str:
    """Commands that plan the same, put a real sensor in place of the recording, and run its agent."""
    configuration = agent_configuration(plan, policy, path, "policy.json", _BROKER).partition("[streams.sensor]\n")[0]
    command = shlex.join(["fugu", "plan", "auto", str(path.resolve()), *asked, "-o", "plan"])
    return f"{command}\ncat > plan/agent.toml <<'END'\n{configuration}{_SENSOR}END\nfugu agent run plan/agent.toml\n"
