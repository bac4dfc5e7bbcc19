"""The work of `fugu plan auto`: options to a question, the plan to terminal, JSON and files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import typer

from fugu.cli.commands import arguments
from fugu.cli.commands.plan_options import AutoOptions
from fugu.cli.errors import NOTHING, CommandError, CommandLineError
from fugu.cli.view.auto_plan import auto_document, percent, place_document, show_auto, show_places
from fugu.cli.view.plan_page import place_page, plan_page
from fugu.cli.view.terminal import say, working
from fugu.contract.errors import FuguError
from fugu.planning.auto import AutoPlan, agent_configuration, auto_policy, place_configuration, plan_auto
from fugu.planning.auto_places import PlacePlan, asks_places, place_policy, plan_places, read_places
from fugu.planning.errors import TooShortError
from fugu.planning.question import Question, Want
from fugu.planning.readings import joined, read_readings

__all__ = ["plan_recordings"]

_WANTS: tuple[Want, ...] = get_args(Want)
_POLICY, _AGENT, _PAGE = "policy.json", "agent.toml", "plan.html"

_Planner = Callable[..., AutoPlan | PlacePlan]
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
    file, rng = files[0], np.random.default_rng(options.seed)
    places = asks_places(file, question, options.column or options.time)
    if places and len(files) > 1:
        raise CommandLineError("a plan for places takes one recording")
    with working("planning", measured=True) as progress:
        planner: _Planner
        if places:
            planner = partial(plan_places, *read_places(file, period))
        else:
            planner = partial(
                plan_auto, joined([read_readings(one, options.column, options.time, period) for one in files])
            )
        try:
            plan = planner(question, rng, progress=progress)
        except TooShortError as error:
            found = _too_short(error, _offers(planner, _shorter(error.baseline_ticks, options), files))
        else:
            offers = () if plan.recommended.kind != "none" else _offers(planner, _others(plan, options), files)
            found = _of_readings(plan, file, offers) if isinstance(plan, AutoPlan) else _of_places(plan, file, offers)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in found.texts.items():
            (output / name).write_text(text, encoding="utf-8")
        for name in {_POLICY, _AGENT, _PAGE} - found.texts.keys():
            (output / name).unlink(missing_ok=True)  # of the plan that is overwritten
    if as_json:
        print(json.dumps(found.document | {"offers": found.offers}, indent=2))
    else:
        found.show()
        for offer in found.offers:
            print(offer)
    if _AGENT not in found.texts:
        raise typer.Exit(NOTHING)
    if as_json:
        return
    if output is not None:
        say(f"written: {', '.join(str(output / name) for name in found.texts)}")
        say(found.replayed)


class _Found(NamedTuple):
    """A plan as files by name, as an object for JSON, how it is printed, and what may be asked instead."""

    texts: dict[str, str]
    document: dict[str, Any]
    show: Callable[[], None]
    offers: tuple[str, ...]
    replayed: str = _HELD_BACK


def _offers(planner: _Planner, others: Iterable[AutoOptions], files: Sequence[Path]) -> tuple[str, ...]:
    """Other settings that are useful, as commands with what they give on rows that chose nothing.

    A baseline to try depends on no reading; an epsilon on the first two sets only, and its third set is the same.
    """
    offers = []
    named = [str(files[0])] if len(files) == 1 else ["RECORDINGS"]  # of several donors only the number is told
    for other in others:
        try:
            best = planner(_question(other), np.random.default_rng(other.seed)).recommended
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
    if (plan.least_epsilon or 0.0) < _EPSILON:
        yield replace(options, epsilon=max(_EPSILON, 2.0 * options.epsilon))


def _shorter(baseline_ticks: int, options: AutoOptions) -> Iterator[AutoOptions]:
    if baseline_ticks > _BASELINE:
        yield replace(options, baseline=str(_BASELINE))


def _of_readings(plan: AutoPlan, file: Path, offers: tuple[str, ...]) -> _Found:
    policy, texts = None, {_PAGE: plan_page(plan)}
    if plan.recommended.kind != "none":
        policy = auto_policy(plan)
        texts |= {_POLICY: policy.to_json(), _AGENT: agent_configuration(plan, policy, file, _POLICY)}
    replayed = _STDIN if plan.readings.rows is None else _HELD_BACK
    return _Found(texts, auto_document(plan, policy), lambda: show_auto(plan, policy), offers, replayed)


def _of_places(plan: PlacePlan, file: Path, offers: tuple[str, ...]) -> _Found:
    policy, texts = None, {_PAGE: place_page(plan)}
    if plan.recommended.kind != "none":
        policy = place_policy(plan)
        texts |= {_POLICY: policy.to_json(), _AGENT: place_configuration(plan, policy, file, _POLICY)}
    return _Found(texts, place_document(plan, policy), lambda: show_places(plan, policy), offers)


def _too_short(error: TooShortError, offers: tuple[str, ...]) -> _Found:
    document = {"recommended": {"kind": "none"}, "candidates": [], "verdict": [str(error)]}
    return _Found({}, document, lambda: print(error), offers)


def _question(options: AutoOptions) -> Question:
    baseline, is_time = (None, False) if options.baseline is None else arguments.span(options.baseline, "baseline")
    within = None
    if options.within is not None:
        percent = options.within.endswith("%")
        within = arguments.positive(arguments.number(options.within.removesuffix("%"), "within"), "within")
        within /= 100.0 if percent else 1.0
        if within >= 1.0:
            raise CommandError(f"within is a share, as 5% or .05, got {options.within!r}")
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
    )
