"""The work of `fugu plan window`: a policy's windows with their errors, or the noise that every mechanism needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

from fugu.cli.commands import arguments
from fugu.cli.commands.plan_options import ChainOptions, DiscretiserOptions, HeaderOptions, WindowOptions
from fugu.cli.commands.plan_values import (
    chain_source,
    chosen_discretiser,
    chosen_segments,
    chosen_start,
    declared_chains,
    policy_header,
)
from fugu.cli.errors import CommandError, CommandLineError
from fugu.cli.view.policy import missing_sentence
from fugu.cli.view.terminal import say, warn, working
from fugu.cli.view.window_plan import joint_document, noise_document, show_joint, show_noise
from fugu.contract.mechanisms import Composing
from fugu.contract.queries import EACH, WINDOW_QUERIES, window_query
from fugu.contract.window_frames import WINDOW_NAME_PATTERN
from fugu.planning.chain_source import ChainSource
from fugu.planning.joint_plan import WantedWindow, joint_plan
from fugu.planning.policy_builder import build_window_policy
from fugu.planning.window_plan import compare_noise, plan_noise
from fugu.privacy.randomised_response import stream_states
from fugu.privacy.window_mechanisms import MECHANISMS, Mechanism, WindowRequest

__all__ = ["plan_window", "wanted_window"]

_SLOW_STATES = 6
_NAMES: tuple[Any, ...] = (*MECHANISMS, "auto")
_COMPOSING: tuple[Composing, ...] = get_args(Composing)
_LONGEST = 1 << 31


def plan_window(
    options: WindowOptions,
    chains: ChainOptions,
    header: HeaderOptions,
    discretiser: DiscretiserOptions,
    *,
    output: Path | None,
    as_json: bool,
) -> None:
    """Plan windows, print what was found, and write their policy if a file is named.

    Raises:
        FuguError: something cannot be read, or there is no such plan.
        OSError: a file cannot be read or written.
    """
    if options.window:
        _plan_policy(options, chains, header, discretiser, output=output, as_json=as_json)
        return
    if output is not None or options.symbols is not None:
        raise CommandLineError("a policy needs --window, with the ticks of a window")
    if options.endless and options.length is not None:
        raise CommandLineError("give either --length or --endless, not both")
    _plan_noise(options, chains, as_json=as_json)


def _plan_policy(
    options: WindowOptions,
    chains: ChainOptions,
    header: HeaderOptions,
    discretiser: DiscretiserOptions,
    *,
    output: Path | None,
    as_json: bool,
) -> None:
    """Windows that a device releases for ever, and symbols beside them, under one epsilon."""
    if options.length is not None or options.endless:
        raise CommandLineError("--window plans for a policy, without --length and --endless")
    if options.segments is not None:
        raise CommandLineError("--segments compares noise: a policy cannot hold it, so plan without --window")
    mechanism = _composing(options)
    source = chain_source(chains)
    made = chosen_discretiser(discretiser, source)
    period = arguments.period(options.period, source.period_seconds)
    wanted = _wanted(options, source, period)
    epsilon = arguments.positive(options.epsilon, "epsilon")
    with working("planning windows"):
        adversary, start = arguments.adversary(options.adversary or "informed"), chosen_start(options.start)
        plan = joint_plan(source.chains, epsilon, adversary, wanted, options.symbols, start=start, mechanism=mechanism)
    if output is not None:
        policy = build_window_policy(plan, policy_header("fugu plan window", header, made, source, period))
        output.write_text(policy.to_json(), encoding="utf-8")
    if as_json:
        print(json.dumps({**joint_document(plan, period, made), "notes": source.notes}, indent=2))
    else:
        show_joint(plan, period, source.notes, made)
        if output is not None:
            say(f"policy written to {output}: {missing_sentence(policy)}")
    for warning in source.warnings:
        warn(warning)


def _composing(options: WindowOptions) -> Composing:
    """The mechanism of a policy's windows, which never end; "auto" is the accountant, which never needs more noise."""
    name = arguments.one_of(options.mechanism or "chain", "mechanism", _NAMES)
    if name == "auto":
        return "chain"
    if name not in _COMPOSING:
        raise CommandError(
            f"mechanism {name} does not compose, and a device releases windows for ever: plan them by "
            f"{', '.join(_COMPOSING)}"
        )
    return _COMPOSING[_COMPOSING.index(name)]


def _wanted(options: WindowOptions, source: ChainSource, period: float | None) -> list[WantedWindow]:
    """The windows that are asked for, all with the same query."""
    try:
        query = window_query(options.query)
    except ValueError as error:
        raise CommandLineError(str(error)) from None
    if query.each:
        if options.count is not None:
            raise CommandLineError("--count is for counts; a histogram has all states")
        states: Any = EACH
    elif options.count is not None:
        states = _states(options)
    elif stream_states(source.chains) == 2:
        states = (1,)
    else:
        raise CommandLineError(f"--count which of the {stream_states(source.chains)} states, or --query histogram?")
    return [wanted_window(text, states, period)._replace(clip=query.clip) for text in options.window or ()]


def wanted_window(text: str, states: Any, period: float | None) -> WantedWindow:
    """Read a window as [NAME=]LENGTH[:SHARE].

    Args:
        text: of the option.
        states: that it counts.
        period: seconds from tick to tick, if that is known.

    Raises:
        CommandError: it is no window.
    """
    rest, colon, share = text.partition(":")
    name, equals, length = rest.rpartition("=")
    number, is_time = arguments.span(length, "window")
    if is_time:
        if period is None:
            raise CommandLineError(f"window {text} is a time: give --period, the seconds from tick to tick")
        number /= period
    if not 1.0 <= number + 1e-9 < _LONGEST or (not is_time and number != int(number)):
        raise CommandError(f"window {text} has {number:g} ticks: it needs a whole number of them, at least 1")
    name = name if equals else length
    if not re.fullmatch(WINDOW_NAME_PATTERN, name):
        raise CommandLineError(f"window {text} needs a name of letters, digits, - and _, as in NAME=LENGTH")
    return WantedWindow(name, round(number), states, share=arguments.number(share, "share") if colon else None)


def _plan_noise(options: WindowOptions, given: ChainOptions, *, as_json: bool) -> None:
    """The noise of the mechanism that was named, or of all."""
    chains, seconds, notes, warnings = declared_chains(given)
    seconds = arguments.period(options.period, seconds)
    period_us = None if seconds is None else max(1, round(seconds * 1_000_000))
    request = WindowRequest(
        chains=chains,
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        length=options.length,
        query=arguments.one_of(options.query, "query", tuple(WINDOW_QUERIES)),
        adversary=arguments.adversary(options.adversary or "ignorant"),
        states=None if options.count is None else _states(options),
        start=chosen_start(options.start),
        segments=chosen_segments(options.segments, given),
    )
    if isinstance(chains, tuple) and request.adversary == "informed" and (states := chains[0].states) >= _SLOW_STATES:
        warn(f"what a device accepts for known chains of {states} states, informed adversary, can take minutes")
    refused: dict[Mechanism, str] | None = None
    if options.mechanism is None:
        with working("planning windows") as told:
            found, best, refused = compare_noise(request, period_us, lambda name: told(f"noise of {name}"))
    else:
        name = arguments.one_of(options.mechanism, "mechanism", _NAMES)
        with working(f"planning windows: noise of {name}"):
            best = plan_noise(request, None if name == "auto" else name, period_us)
        found = (best,)
    if as_json:
        every = [noise_document(request, each) for each in found]
        compared = {} if refused is None else {"mechanisms": every, "refused": refused}
        print(json.dumps({**noise_document(request, best), "notes": notes, **compared}, indent=2))
    else:
        show_noise(request, notes, found, best, refused)
    for warning in warnings:
        warn(warning)


def _states(options: WindowOptions) -> tuple[int, ...]:
    if options.query != "count":
        raise CommandLineError("--count is for counts; a histogram has all states")
    return arguments.states(str(options.count))
