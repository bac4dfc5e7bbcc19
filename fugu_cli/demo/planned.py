"""Plan from a recording, replay the plan, and print the commands that run it on the real sensor."""

from __future__ import annotations

import math
import re
import shlex
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.config_schema import Mqtt
from edge_agent.sensors.opening import open_sensor
from fugu.attackers.evaluation import mean_transitions
from fugu.contract.errors import FuguError
from fugu.contract.policy import Policy
from fugu.contract.sentences import sure_words
from fugu.host.files import write_secret
from fugu.library.plans import Plan, Planner, planner, target_of
from fugu.library.report import NOTHING, JsonObject
from fugu.planning.auto import AutoPlan, plan_auto
from fugu.planning.policy_builder import Target
from fugu.planning.states import states_of
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Readings, read_readings
from fugu.recordings.rules import RULES
from fugu.recordings.summary import plain_csv
from fugu.recordings.values import Cells
from fugu_cli.commands.auto_plan import (
    Offer,
    is_answer,
    offer_line,
    offers_of,
    option_words,
    other_options,
    question_asked,
    reading_options,
)
from fugu_cli.commands.plan_options import AutoOptions, TrialOptions
from fugu_cli.demo.evaluation import Replay, Results, summary
from fugu_cli.demo.page import Page
from fugu_cli.demo.session import draw_replay, run_replays
from fugu_cli.demo.symbols import SymbolReplay
from fugu_cli.demo.topic_sensor import topic_of_recording, topic_sensor
from fugu_cli.demo.trial_numbers import TrialNumbers
from fugu_cli.view.terminal import say, working

__all__ = ["plan_and_draw", "plan_and_replay", "replay_of", "show_stretches"]

_DAY = 86_400.0
_MESSAGES = 90  # of a replay of symbols, at most
_TICKS = {1_000_000: "second", 60_000_000: "minute", 3_600_000_000: "hour"}
"""By microseconds: the word for a tick; any other tick is a reading."""
_PLANNED = "The plan is below."
_PREPARED = "What would leave"
_NEAREST = "What would be nearest to useful"
_NO_ANSWER = "there is no answer to this question"
_STRETCHES = {"10m": "Any 10 minutes", "1h": "Any hour", "8h": "Any 8 hours"}
"""By option: the name of a protected stretch that is planned beside the one that was asked for."""
_PORT = 1884
"""The port of the broker of readings, which is not the fleet's."""
_INSTEAD = "Try instead", "Each was planned as well, and tried on the part of the recording that was held back."
_SENSOR_WORDS = "On your sensor", "Paste this block where the sensor is. Change its broker, topic and path."
_HELD_BACK = "The part that was held back: no answer was chosen by it"
_LONGER = "A recording of more days may do."
_NOTHING = "Nothing would leave: no answer to this question is of use."
_NOT_PRIVATE = "Not replayed, since it is not private: ask for a smaller epsilon, or add --not-private."
_NOT_REPLAYED = (
    "Not replayed: only one device's counts, or symbols of two states for the state now, are; no averages of groups or "
    "points of places. The verdict is of the part of the recording that was held back."
)

_TOO_SHORT = (
    "Not replayed: the part that was held back is shorter than a window. The verdict is of the recording before it. A "
    "longer recording can be replayed."
)


def plan_and_replay(
    page: Page,
    path: Path,
    readings: Readings | None,
    options: AutoOptions,
    *,
    not_private: bool,
    trial: TrialNumbers | None = None,
) -> tuple[int, list[AutoOptions]]:
    """Plan, replay and attack a recording. Return the exit code, and the other choices of options that are offered."""
    plan, offers = _plan_on_page(page, path, readings, options)
    use_sentence, privacy_text, *reasons = plan.verdict
    say(use_sentence, style="bold")
    say(privacy_text, style="bold")
    for sentence in reasons:
        say(sentence)
    if not (is_answer(plan) or (plan.useful and not_private)):
        command = ["fugu", "try", str(path)]
        lines = [offer_line(offer, command, TrialOptions) for offer in offers] or [_LONGER]
        buttons = [
            {**_offer_button(offer, options), "options": {"offer": str(index)}} for index, offer in enumerate(offers)
        ]
        block = "\n".join(shlex.join([*command, *option_words(new_options, TrialOptions)]) for _, new_options in offers)
        paste_lines = [*_INSTEAD, block] if offers else [_INSTEAD[0], _LONGER, ""]
        page.show(stage=_no_answer_words(offers), ended=True, offers=buttons, paste=paste_lines)
        say("\n".join([_NOT_PRIVATE if plan.useful else _NOTHING, *lines]))
        return NOTHING, [new_options for _, new_options in offers]
    failures, stage = list[str](), _TOO_SHORT if _is_short(plan) else _NOT_REPLAYED
    with tempfile.TemporaryDirectory(prefix="fugu-try-") as folder:
        if (replay := replay_of(plan, Path(folder))) is None:
            say(stage)
        else:
            draw_replay(page, 0, replay, 0)
            results, failures = _replay_results(page, replay, trial)
            stage = "the replay is over, and what left was attacked"
            for sentence in summary(results):
                say(sentence)
    if trial is None:
        block = _sensor_block(plan, path, option_words(options))
        page.show(paste=[*_SENSOR_WORDS, block])
        say(f"\non your sensor:\n\n{block}")
    page.show(stage=stage, ended=True)
    for sentence in failures:
        say(f"missing: {sentence}")
    if trial is not None and trial.drawn:
        trial.publish()
    return 1 if failures else 0 if is_answer(plan) else NOTHING, []


def plan_and_draw(page: Page, path: Path, readings: Readings | None, options: AutoOptions, form: Sequence[str]) -> Plan:
    """Plan, and draw the values that would leave, without any replay. Without an answer, show buttons with offers.

    `form` are the fields of the form that a button fills in.
    """
    plan, offers = _plan_on_page(page, path, readings, options)
    if plan.useful:
        _draw_plan(page, 0, plan, _PREPARED)
    buttons = [
        {**_offer_button(offer, options), "options": {name: _field_text(offer[1], name) for name in form}}
        for offer in offers
    ]
    page.show(stage=_PLANNED if is_answer(plan) else _no_answer_words(offers), done=0.0, ended=True, offers=buttons)
    return plan


def _draw_plan(page: Page, index: int, plan: Plan, name: str) -> bool:
    """Draw the values that a plan would release. Return False if the plan cannot be replayed."""
    with tempfile.TemporaryDirectory(prefix="fugu-try-") as folder:
        if (replay := replay_of(plan, Path(folder))) is None:
            return False
        draw_replay(page, index, replay, replay.states.size, replay.results(replay.simulated_frames(), attack_all=True))
        page.show_replay(index, name=name)
    return True


class _AskedElseError(Exception):
    """The user has sent another request."""


def show_stretches(
    page: Page, path: Path, readings: Readings, options: AutoOptions, plan: Plan, is_stale: Callable[[], bool]
) -> None:
    """Plan for other protected stretches, and show each plan beside the first plan as soon as it is made.

    `options` are the question of the first plan. Stop as soon as `is_stale` returns True.
    """

    def stop_if_stale(_part: str, _share: float) -> None:
        if is_stale():
            raise _AskedElseError("something else is asked for")

    cards: list[JsonObject] = [{"name": "As you asked", "words": [], "at": 0, "options": {}}]
    seconds = question_asked(options).protect or 0
    with suppress(_AskedElseError):
        for protect, name in _STRETCHES.items():
            index = len(cards)
            with suppress(FuguError):  # a recording may be too short for one of them
                question = question_asked(replace(options, protect=protect))
                other_plan = _planner(readings, path, plan.target)(question, progress=stop_if_stale)
                if other_plan.verdict == plan.verdict:
                    continue
                is_drawn = other_plan.useful and _draw_plan(page, index, other_plan, name)
                button = {"protect": protect} if other_plan.useful else {}
                title = f"Hide {name.lower()}: protects {'more' if (question.protect or 0) > seconds else 'less'}"
                verdict = [_plain_words(other_plan.verdict[0])]
                card = {"name": title, "words": verdict, "at": index if is_drawn else None, "options": button}
                page.show(stretches=(cards := [*cards, card]))


def _field_text(options: AutoOptions, name: str) -> str:
    """Return the value of an option as text for the form."""
    value = getattr(options, name)
    return "" if value is None else ",".join(value) if isinstance(value, list) else str(value)


def _plan_on_page(page: Page, path: Path, readings: Readings | None, options: AutoOptions) -> tuple[Plan, list[Offer]]:
    """Plan, and show progress and the verdict on the page; return the plan, and offers if it is no answer.

    `readings` are those of the recording, None for places. FuguError: the recording cannot answer the question.
    """
    question = question_asked(options)
    target = target_of(options.fleet, options.device, options.stream, options.epoch)
    if readings is None:
        make_plan = planner([path], question, target, reading_options(options, question))
    else:
        make_plan = _planner(readings, path, target)
    with working("planning", measured=True) as progress:

        def show_progress(part: str, share: float) -> None:
            progress(part, share)
            page.show(stage=f"planning: {part}", done=share)

        plan = make_plan(question, progress=show_progress)
        page.show(verdicts=_verdicts(plan), details=plan.verdict[2:])
        page.link(plan.page())
        if is_answer(plan):
            return plan, []
        _show_nearest(page, plan)
        return plan, offers_of(make_plan, other_options(plan.details, options), show_progress)


def _show_nearest(page: Page, plan: Plan) -> None:
    """Draw the plan with the smallest error relative to guessing, with its noise."""
    details = plan.details
    if not isinstance(details, AutoPlan):
        return
    near_rivals = [details.recommended]
    if not plan.useful:
        rivals = [rival for rival in details.candidates if rival.kind in ("windows", "symbols") and rival.devices == 1]
        near_rivals = [rival for rival in rivals if math.isfinite(rival.expected_error)]
    for nearest in sorted(near_rivals, key=attrgetter("relative_error")):
        with suppress(FuguError):
            plan_of_nearest = replace(plan, details=details._replace(recommended=nearest))
            if _draw_plan(page, 0, plan_of_nearest, _PREPARED if plan.useful else _NEAREST):
                return


def _verdicts(plan: Plan) -> list[list[str]]:
    """Return the verdicts on use and on privacy for the page: each as "yes" or "no", a headline and the reason."""
    good_flags = plan.useful, plan.privacy != "none"
    sentences = [_plain_words(sentence).partition(": ") for sentence in plan.verdict[:2]]
    return [
        ["yes" if is_good else "no", headline, f"{reason[:1].upper()}{reason[1:]}"]
        for is_good, (headline, _, reason) in zip(good_flags, sentences, strict=True)
    ]


def _plain_words(sentence: str) -> str:
    """Rewrite a sentence of a plan for newcomers: without ticks, and with units spelled out.

    Its error is called expected, because the page shows the error of one run beside it.
    """
    plain_text = re.sub(r"\btick(s?)\b", r"reading\1", sentence)
    plain_text = re.sub(r"(?<=\d) points?\b", " percentage points", plain_text)
    return re.sub("off by (.*?) on (?:average|held-back rows)", r"expected to be off by \1", plain_text)


def _no_answer_words(offers: Sequence[Offer]) -> str:
    return f"{_NO_ANSWER}; below is what would do" if offers else _NO_ANSWER


def _offer_button(offer: Offer, options: AutoOptions) -> dict[str, str]:
    """Return an offer as a button of the page, with its cost in words."""
    offer_words, new_options = offer
    current_options = asdict(options)
    changes = {name: value for name, value in asdict(new_options).items() if value != current_options[name]}
    change_words = ", ".join(_setting_words(name, value) for name, value in changes.items())
    cost_words = _plain_words(offer_words).partition(": ")[2]
    cost_words = f"{cost_words[:1].upper()}{cost_words[1:].removesuffix('.')}."
    if new_options.epsilon > options.epsilon:
        chance_before = sure_words(options.epsilon).removeprefix("from 50 % to at most ").removesuffix(" sure")
        cost_words += f" What that gives up: {sure_words(new_options.epsilon)}, instead of {chance_before}."
    if "protect" in changes:
        hidden_words = _setting_words("protect", new_options.protect)
        cost_words += f" What that gives up: only {hidden_words}, {sure_words(new_options.epsilon)}."
    return {"words": f"Plan with {change_words} instead", "more": cost_words}


def _setting_words(name: str, value: Any) -> str:
    """Describe the value of an option that the user might choose instead."""
    if name == "protect":
        return f"{_STRETCHES.get(str(value), 'Any single reading').lower()} hidden"
    if name == "epsilon":
        return sure_words(value).removeprefix("from 50 % to ")
    if value is None:
        return f"any {name}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _planner(readings: Readings, path: Path, target: Target) -> Planner:
    """Return a planner for readings; `path` is their file."""
    return lambda query, progress: Plan(plan_auto(readings, query, np.random.default_rng(1), progress), path, target)


def replay_of(plan: Plan, folder: Path) -> Replay | None:
    """Return the replay of a plan's held-back part; None if only the verdict can be shown.

    Tick 0 keeps its recorded time of day, if there is one, and all ticks are past. If no agent can read the recording's
    file, the folder gets a plain copy of it.
    """
    details = plan.details
    if not isinstance(details, AutoPlan) or details.recommended.kind == "none" or details.recommended.devices > 1:
        return None
    if _is_short(plan):
        return None
    is_symbols = details.recommended.kind == "symbols"
    if is_symbols and (details.recommended.answers != "now" or len(details.states.discretiser.states) > 2):
        return None
    plan = replace(plan, target=plan.target._replace(epoch=_replay_epoch(details)))
    if details.readings.rows is None:  # no agent can read the file as it is
        file = folder / "plain.csv"
        plan = replace(plan, details=details._replace(readings=_plain_readings(details.readings, file)), file=file)
    policy = plan.policy
    assert isinstance(policy, Policy)
    [stream] = tomllib.loads(plan.configuration())["streams"]
    sensor = {"silence": "samples", **stream["sensor"]}
    replay_source, values_read = open_sensor(sensor), list[float | str | None]()
    while not replay_source.finished(len(values_read)):
        reading = replay_source.read(len(values_read))
        values_read.append(None if reading is None else reading.reveal())
    try:
        readings: Cells = np.array(values_read, dtype=np.float64)  # NaN for None
    except ValueError:
        readings = np.array([None if reading is None else str(reading) for reading in values_read], dtype=object)
    segments = np.zeros(len(values_read), dtype=np.int64)
    states = states_of(policy.discretiser, values_read, segments)
    transition = mean_transitions(states, segments, len(policy.discretiser.states))
    if is_symbols:  # a replay has at most `_MESSAGES` frames
        policy = policy.model_copy(update={"frame_ticks": max(policy.frame_ticks, -(-len(values_read) // _MESSAGES))})
    tick = _TICKS.get(policy.clock.period_us, "reading")
    share_of, quantity = _plain_words(details.states.share_of), details.readings.column
    replay_type = SymbolReplay if is_symbols else Replay
    return replay_type(_HELD_BACK, policy, sensor, readings, states, transition, share_of, tick, quantity)


def _is_short(plan: Plan) -> bool:
    """Return whether the held-back part is shorter than a window of the plan."""
    details, length = plan.details, plan.recommended.window_ticks or 0
    has_windows = isinstance(details, AutoPlan) and details.recommended.kind == "windows"
    return has_windows and len(plan.details.held_back) // plan.recommended.every < length


def _plain_readings(readings: Readings, file: Path) -> Readings:
    """Write readings to a plain file that only its owner may read, and read the same ticks from it."""
    write_secret(file, plain_csv(readings))
    period = readings.period_seconds if readings.changes or readings.moments is None else None
    copy = read_readings(file, ReadOptions(rows=readings.facts[0].row_kind, period=period, as_it_is=frozenset(RULES)))
    if len(copy.segments) != len(readings.segments):
        raise FuguError(f"{readings.source} does not become a plain file of the same ticks: please report it")
    return copy._replace(column=readings.column)


def _replay_results(page: Page, replay: Replay, trial: TrialNumbers | None) -> tuple[Results, list[str]]:
    """Run a replay with real processes; return its results, and a sentence for each process that failed."""
    with tempfile.TemporaryDirectory(prefix="fugu-try-") as logs:
        try:
            _, _, [results], failures = run_replays(page, [replay], Path(logs), "auto", trial)
        except FuguError as error:  # the logs are deleted
            last_lines = [line for log in Path(logs).glob("*.log") for line in log.read_text().splitlines()[-1:]]
            raise FuguError("; ".join([str(error), *last_lines])) from None
    return results, failures


def _replay_epoch(plan: AutoPlan) -> float:
    """Return the Unix time of a replay's first tick: the recorded time plus whole days, so that all ticks are past."""
    moments, seconds = plan.readings.moments, plan.readings.period * plan.recommended.every
    latest_start = time.time() - len(plan.held_back) * seconds
    recorded_start = latest_start if moments is None else float(moments[plan.held_back[0]])
    return math.floor(recorded_start + (latest_start - recorded_start) // _DAY * _DAY)


def _sensor_block(plan: Plan, path: Path, options: list[str]) -> str:
    """Return commands that make the same plan, replace the recording by a real sensor, and run the agent."""
    topic, payload_path = topic_of_recording(plan)
    sensor = Mqtt(kind="mqtt", port=_PORT, topic=topic, path=payload_path)
    configuration = plan.configuration(sensor=topic_sensor(plan, sensor))
    extra_options = ["--not-private"] if plan.privacy == "none" else []
    command = shlex.join(["fugu", "plan", "auto", str(path.resolve()), *options, *extra_options, "-o", "plan"])
    return f"{command}\ncat > plan/agent.toml <<'END'\n{configuration}END\nfugu agent run plan/agent.toml\n"
