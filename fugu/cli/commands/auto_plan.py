"""The work of `fugu plan auto`: options to a question, the plan to terminal, JSON and files."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import typer

from fugu.cli.commands import arguments
from fugu.cli.commands.plan_options import AutoOptions
from fugu.cli.connection import broker_of
from fugu.cli.errors import NOTHING, CommandError, CommandLineError
from fugu.cli.view.auto_plan import auto_document, percent, show_auto
from fugu.cli.view.terminal import answer, say, working
from fugu.contract.errors import FuguError
from fugu.contract.policies import read_policy
from fugu.contract.topics import symbols_topic
from fugu.mqtt.broker import FILES
from fugu.planning.auto import AutoPlan, agent_configuration, auto_policy, place_configuration, plan_auto
from fugu.planning.errors import TooShortError
from fugu.planning.grid_model import asks_places
from fugu.planning.policy_builder import Whose, replacing
from fugu.planning.question import Question, Want
from fugu.planning.readings import joined, read_readings

if TYPE_CHECKING:
    from fugu.contract.measure_policy import MeasurePolicy
    from fugu.contract.policies import AnyPolicy
    from fugu.planning.auto_places import PlacePlan

__all__ = ["plan_recordings"]

_WANTS: tuple[Want, ...] = get_args(Want)
_POLICY, _AGENT, _PAGE = "policy.json", "agent.toml", "plan.html"

_Planner = Callable[..., "AutoPlan | PlacePlan"]
"""Of a recording: from a question, randomness and, if anybody looks, where progress is told."""

_BASELINE, _EPSILON = 50, 4.0
"""Settings that a plan which recommends nothing tries instead."""
_HELD_BACK = (
    f"{_AGENT} replays only what was held back: no answer was chosen by it, and the policy has two digits of it, those "
    "of its class. In earnest a sensor takes its place."
)
_STDIN = f"{_AGENT} reads standard input, a reading a line: no recording is replayed. Put a sensor in its place."


def plan_recordings(
    files: Sequence[Path], options: AutoOptions, *, output: Path | None, as_json: bool, force: bool
) -> None:
    """Plan from recordings, one of each donor; print what was found, and write it if a folder is named.

    Raises:
        FuguError: something cannot be read, or the recording cannot answer such a question.
        OSError: a file cannot be read or written.
    """
    if output is not None and not force and any((output / name).exists() for name in (_POLICY, _AGENT, _PAGE)):
        raise CommandError(f"{output} holds a plan already: name another folder, or add --force to overwrite it")
    question, period = _question(options), arguments.period(options.period)
    written = _Written(files[0], _whose(options), _connection(options.broker))
    file, rng = files[0], np.random.default_rng(options.seed)
    places = asks_places(file, question, options.column or options.time)
    if places and len(files) > 1:
        raise CommandLineError("a plan for places takes one recording")
    with working("planning", measured=True) as progress:
        planner: _Planner
        if places:
            from fugu.planning.auto_places import place_policy, plan_places, read_places

            progress("reading", 0.0)
            planner = partial(plan_places, *read_places(file, period))
        else:
            recordings = []
            for number, one in enumerate(files, 1):
                progress(f"reading recording {number} of {len(files)}", (number - 1) / len(files))
                recordings.append(read_readings(one, options.column, options.time, period))
            planner = partial(plan_auto, joined(recordings))
        try:
            plan = planner(question, rng, progress=progress)
        except TooShortError as error:
            found = _too_short(error, _offers(planner, _shorter(error.baseline_ticks, options), files, progress))
        else:
            worth = plan.recommended.kind != "none"
            offers = () if worth else _offers(planner, _others(plan, options), files, progress)
            if isinstance(plan, AutoPlan):
                found = _of_readings(plan, written, offers)
            else:
                found = _of_places(plan, place_policy(plan, written.whose) if worth else None, written, offers)
    texts = {} if output is None else found.texts()
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        if (output / _POLICY).exists() and _POLICY in texts:
            before = (output / _POLICY).read_text(encoding="utf-8")
            texts[_POLICY] = replacing(read_policy(texts[_POLICY]), before).to_json()
        for name, text in texts.items():
            (output / name).write_text(text, encoding="utf-8")
        for name in {_POLICY, _AGENT, _PAGE} - texts.keys():
            (output / name).unlink(missing_ok=True)  # of the plan that is overwritten

    def show() -> None:
        found.show()
        for offer in found.offers:
            print(offer)
        if found.useful and output is not None:
            say(f"written: {', '.join(str(output / name) for name in texts)}")
            say(found.replayed)

    answer(as_json, lambda: found.document() | {"offers": found.offers}, show, indent=2)
    if not found.useful:
        raise typer.Exit(NOTHING)


class _Found(NamedTuple):
    """A plan as files by name, as an object for JSON, how it is printed, and what may be asked instead."""

    texts: Callable[[], dict[str, str]]
    document: Callable[[], dict[str, Any]]
    show: Callable[[], None]
    offers: tuple[str, ...]
    useful: bool = False
    replayed: str = _HELD_BACK


class _Written(NamedTuple):
    """What goes into files beside the plan: the recording, whose policy it is, and the connection of its agent."""

    recording: Path
    whose: Whose
    broker: dict[str, object]


def _whose(options: AutoOptions) -> Whose:
    symbols_topic(options.fleet, options.device, options.stream or "readings")  # a name that no topic has is refused
    return Whose(options.fleet, options.device, options.stream, options.epoch)


def _connection(text: str) -> dict[str, object]:
    """Keys of `[broker]` that are not the default, with files by their absolute names."""
    broker = broker_of(text)
    keys = {one.name: getattr(broker, one.name) for one in fields(broker) if getattr(broker, one.name) != one.default}
    files = {name: str(Path(str(keys[name])).resolve()) for name in FILES if name in keys}
    return {"host": broker.host, "port": broker.port, **keys, **files}


def _offers(
    planner: _Planner, others: Iterable[AutoOptions], files: Sequence[Path], progress: Callable[[str, float], None]
) -> tuple[str, ...]:
    """Other settings that are useful, as commands with what they give on rows that chose nothing.

    A baseline to try depends on no reading; an epsilon on the first two sets only, and its third set is the same.
    """
    offers = []
    named = [str(files[0])] if len(files) == 1 else ["RECORDINGS"]  # of several donors only the number is told
    for number, other in enumerate(others, 1):

        def told(part: str, share: float, number: int = number) -> None:
            progress(f"what else may be useful, {number}: {part}", share)

        try:
            best = planner(_question(other), np.random.default_rng(other.seed), progress=told).recommended
        except FuguError:
            continue
        if best.kind != "none" and best.held_back_error is not None:
            words = [(f"--{field.name}", str(getattr(other, field.name))) for field in fields(other)]
            given = [pair for pair, field in zip(words, fields(other), strict=True) if pair[1] != str(field.default)]
            line = shlex.join(["fugu", "plan", "auto", *named, *(word for pair in given for word in pair)])
            off = f"{best.held_back_error:.0f} m" if best.unit == "metres" else percent(best.held_back_error)
            offers.append(f"{off} off on held-back rows instead: {line}")
    return tuple(offers)


def _others(plan: AutoPlan | PlacePlan, options: AutoOptions) -> Iterator[AutoOptions]:
    """At most three settings to try."""
    if isinstance(plan, AutoPlan):
        yield from _shorter(plan.states.baseline_ticks, options)
    if plan.least_epsilon is not None:
        yield replace(options, epsilon=plan.least_epsilon)
    if isinstance(plan, AutoPlan) and plan.question.protect:
        yield replace(options, protect="tick")
    elif (plan.least_epsilon or 0.0) < _EPSILON:
        yield replace(options, epsilon=max(_EPSILON, 2.0 * options.epsilon))


def _shorter(baseline_ticks: int, options: AutoOptions) -> Iterator[AutoOptions]:
    if baseline_ticks > _BASELINE:
        yield replace(options, baseline=str(_BASELINE))


def _of_readings(plan: AutoPlan, written: _Written, offers: tuple[str, ...]) -> _Found:
    policy = None if plan.recommended.kind == "none" else auto_policy(plan, written.whose)

    def texts() -> dict[str, str]:
        from fugu.cli.view.plan_page import plan_page

        configuration = (
            {}
            if policy is None
            else {_AGENT: agent_configuration(plan, policy, written.recording, _POLICY, written.broker)}
        )
        return _texts(plan_page(plan), policy, configuration)

    replayed = _STDIN if plan.readings.rows is None else _HELD_BACK
    shown = partial(auto_document, plan, policy), partial(show_auto, plan, policy)
    return _Found(texts, *shown, offers, policy is not None, replayed)


def _of_places(plan: PlacePlan, policy: MeasurePolicy | None, written: _Written, offers: tuple[str, ...]) -> _Found:
    from fugu.cli.view.place_plan import place_document, place_page, show_places

    def texts() -> dict[str, str]:
        configuration = (
            {}
            if policy is None
            else {_AGENT: place_configuration(plan, policy, written.recording, _POLICY, written.broker)}
        )
        return _texts(place_page(plan), policy, configuration)

    shown = partial(place_document, plan, policy), partial(show_places, plan, policy)
    return _Found(texts, *shown, offers, policy is not None)


def _texts(page: str, policy: AnyPolicy | None, configuration: dict[str, str]) -> dict[str, str]:
    """Texts of the files to write, by their names."""
    return {_PAGE: page, **({} if policy is None else {_POLICY: policy.to_json()}), **configuration}


def _too_short(error: TooShortError, offers: tuple[str, ...]) -> _Found:
    document = {"recommended": {"kind": "none"}, "candidates": [], "verdict": [str(error)]}
    return _Found(dict, lambda: document, lambda: print(error), offers)


def _question(options: AutoOptions) -> Question:
    baseline, is_time = (None, False) if options.baseline is None else arguments.span(options.baseline, "baseline")
    within = None
    if options.within is not None:
        percent = options.within.endswith("%")
        within = arguments.positive(arguments.number(options.within.removesuffix("%"), "within"), "within")
        within /= 100.0 if percent else 1.0
        if within >= 1.0:
            raise CommandError(f"within is a share, as 5% or 0.05, got {options.within!r}")
    window, window_is_time = (None, False) if options.window is None else arguments.span(options.window, "window")
    latency = None
    if options.latency is not None:
        latency, is_latency_time = arguments.span(options.latency, "latency")
        if not is_latency_time:
            raise CommandLineError("latency is a time, as 30s, 10m or 1h")
    threshold = None if options.threshold is None else arguments.number(str(options.threshold), "threshold")
    return Question(
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        want=None if options.want is None else arguments.one_of(options.want, "want", _WANTS),
        baseline=baseline,
        baseline_is_time=is_time,
        threshold=threshold,
        states=None if options.states is None else tuple(name.strip() for name in options.states.split(",")),
        within=within,
        adversary=arguments.adversary(options.adversary),
        devices=options.devices,
        latency_seconds=latency,
        blocks=options.blocks,
        days=options.days,
        protect=arguments.protected(options.protect),
        window=window,
        window_is_time=window_is_time,
    )
