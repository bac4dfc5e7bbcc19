"""The work of `fugu plan window`: options to noise, noise to a table or JSON."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from fugu.commands import arguments
from fugu.commands.chain_options import chain_source
from fugu.commands.plan_options import ChainOptions, WindowOptions
from fugu.errors import CommandLineError
from fugu.view.terminal import warn, working
from fugu.view.window_plan import noise_document, show_noise
from gateway.planning.chain_source import bare_chains
from gateway.planning.window_plan import compare_noise, plan_noise
from gateway.privacy.accountant import Chains
from gateway.privacy.window_mechanisms import MECHANISMS, Query, WindowRequest

__all__ = ["plan_window"]

_SLOW_STATES = 6
_NAMES: tuple[Any, ...] = (*MECHANISMS, "auto")
_QUERIES: tuple[Query, ...] = ("count", "histogram")


class _Plan(NamedTuple):
    """What is planned, and what is to be said about its class of chains."""

    request: WindowRequest
    period_us: int | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def plan_window(options: WindowOptions, *, as_json: bool) -> None:
    """Plan a window, and print the noise of the mechanism that was named, or of all.

    Raises:
        FuguError: something cannot be read, or the mechanism cannot be had.
        OSError: the chain file cannot be read.
    """
    if options.endless and options.length is not None:
        raise CommandLineError("give either --length or --endless, not both")
    plan = _plan(options)
    if isinstance(plan.request.chains, tuple) and plan.request.adversary == "informed":
        states = plan.request.chains[0].states
        if states >= _SLOW_STATES:
            warn(f"what a device accepts for known chains of {states} states, informed adversary, can take minutes")
    if options.mechanism is None:
        _compare(plan, as_json=as_json)
    else:
        name = arguments.one_of(options.mechanism, "mechanism", _NAMES)
        with working(f"planning windows: noise of {name}"):
            noise = plan_noise(plan.request, None if name == "auto" else name, plan.period_us)
        if as_json:
            print(json.dumps({**noise_document(plan.request, noise), "notes": plan.notes}, indent=2))
        else:
            show_noise(plan.request, plan.notes, [noise], noise)
    for warning in plan.warnings:
        warn(warning)


def _plan(options: WindowOptions) -> _Plan:
    chains, seconds, notes, warnings = _chains(options)
    if options.period is not None:
        seconds = arguments.positive(options.period, "period")
    request = WindowRequest(
        chains=chains,
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        length=options.length,
        query=arguments.one_of(options.query, "query", _QUERIES),
        adversary=arguments.adversary(options.adversary),
        states=None if options.states is None else _states(options),
    )
    return _Plan(request, None if seconds is None else max(1, round(seconds * 1_000_000)), notes, warnings)


def _states(options: WindowOptions) -> tuple[int, ...]:
    if options.query != "count":
        raise CommandLineError("--states are those of a count; a histogram has them all")
    words = [word.strip() for word in str(options.states).split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        raise CommandLineError(f"states are numbers from 0 on, with commas between them, got {options.states!r}")
    return tuple(map(int, words))


def _chains(options: WindowOptions) -> tuple[Chains, float | None, tuple[str, ...], tuple[str, ...]]:
    """The class of chains, the length of its tick, and what is to be said about it."""
    if options.chain is not None:
        if options.q is not None or options.r is not None:
            raise CommandLineError("give either --chain or --q and --r, not both")
        bare = bare_chains(options.chain)
        if bare is not None:
            what = "the chain" if len(bare) == 1 else f"the {len(bare)} chains"
            return bare, None, (f"class of chains: {what} of {options.chain}, taken as it is",), ()
        source = chain_source(ChainOptions(model=options.chain, confidence=options.confidence))
        return source.chains, source.period_seconds, source.notes, source.warnings
    if options.q is None or options.r is None:
        raise CommandLineError("give --q and --r, or --chain")
    return chain_source(ChainOptions(options.q, options.r)).chains, None, (), ()


def _compare(plan: _Plan, *, as_json: bool) -> None:
    with working("planning windows") as told:
        found, best, refused = compare_noise(plan.request, plan.period_us, lambda name: told(f"noise of {name}"))
    if not as_json:
        show_noise(plan.request, plan.notes, found, best, refused)
        return
    every = [noise_document(plan.request, each) for each in found]
    document = {**noise_document(plan.request, best), "notes": plan.notes, "mechanisms": every, "refused": refused}
    print(json.dumps(document, indent=2))
