"""The work of `fugu plan window`: options to noise, noise to a table or JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from contract.errors import FuguError
from fugu import arguments
from fugu.chain_source import bare_chains, chain_source
from fugu.errors import CommandLineError
from fugu.stretch_view import STRETCH_COLUMNS, STRETCH_TITLE, stretch_documents, stretch_rows
from fugu.terminal import say, show_table, warn
from gateway.privacy.accountant import Chains
from gateway.privacy.chain_class import ChainClassError
from gateway.privacy.window_mechanisms import (
    COMPOSING,
    MECHANISMS,
    Query,
    WindowNoise,
    WindowRequest,
    least_noise,
    window_noise,
)
from gateway.privacy.window_scale import PlannedScale, planned_scale

__all__ = ["WindowOptions", "plan_window"]

_NAMES: tuple[Any, ...] = (*MECHANISMS, "auto")
_QUERIES: tuple[Query, ...] = ("count", "histogram")


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """The options of a plan as they were written."""

    chain: Path | None
    q: str | None
    r: str | None
    confidence: float
    epsilon: float
    mechanism: str | None
    length: int | None
    endless: bool
    query: str
    adversary: str
    period: float | None


class _Plan(NamedTuple):
    """What is planned, and what is to be said about its class of chains."""

    request: WindowRequest
    period_us: int | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


class _Noise(NamedTuple):
    """A mechanism's noise, and its scale as a policy holds it."""

    noise: WindowNoise
    planned: PlannedScale


def plan_window(options: WindowOptions, *, as_json: bool) -> None:
    """Plan a window, and print the noise of the mechanism that was named, or of all.

    Raises:
        FuguError: something cannot be read, or the mechanism cannot be had.
        OSError: the chain file cannot be read.
    """
    if options.endless and options.length is not None:
        raise CommandLineError("give either --length or --endless, not both")
    plan = _plan(options)
    if options.mechanism is None:
        _compare(plan, as_json=as_json)
    else:
        request = plan.request
        if options.mechanism == "auto":
            noise = least_noise(request)
        else:
            noise = window_noise(request, arguments.one_of(options.mechanism, "mechanism", _NAMES))
        found = _Noise(noise, planned_scale(request, noise, plan.period_us))
        if as_json:
            print(json.dumps({**_document(plan, found), "notes": plan.notes}, indent=2))
        else:
            _show(plan, [found], found)
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
    )
    return _Plan(request, None if seconds is None else max(1, round(seconds * 1_000_000)), notes, warnings)


def _chains(options: WindowOptions) -> tuple[Chains, float | None, tuple[str, ...], tuple[str, ...]]:
    """The class of chains, the length of its tick, and what is to be said about it."""
    if options.chain is not None:
        if options.q is not None or options.r is not None:
            raise CommandLineError("give either --chain or --q and --r, not both")
        bare = bare_chains(options.chain)
        if bare is not None:
            what = "the chain" if len(bare) == 1 else f"the {len(bare)} chains"
            return bare, None, (f"class of chains: {what} of {options.chain}, taken as it is",), ()
        source = chain_source(None, None, str(options.chain), options.confidence)
        return source.chains, source.period_seconds, source.notes, source.warnings
    if options.q is None or options.r is None:
        raise CommandLineError("give --q and --r, or --chain")
    return chain_source(options.q, options.r, None, options.confidence).chains, None, (), ()


def _compare(plan: _Plan, *, as_json: bool) -> None:
    found: list[_Noise] = []
    refused: dict[str, str] = {}
    for name in MECHANISMS:
        try:
            noise = window_noise(plan.request, name)
            found.append(_Noise(noise, planned_scale(plan.request, noise, plan.period_us)))
        except FuguError as error:
            refused[name] = str(error)
    composing = [each for each in found if each.noise.mechanism in COMPOSING]
    if not composing:
        raise ChainClassError(refused.get("chain", "no mechanism protects this class of chains"))
    best = min(composing, key=lambda each: each.planned.scale)
    if as_json:
        every = [_document(plan, each) for each in found]
        document = {**_document(plan, best), "notes": plan.notes, "mechanisms": every, "refused": refused}
        print(json.dumps(document, indent=2))
        return
    _show(plan, found, best, refused)


_COLUMNS = ("mechanism", "scale", "about", "further windows", "determined by")


def _show(plan: _Plan, found: list[_Noise], best: _Noise, refused: dict[str, str] | None = None) -> None:
    request = plan.request
    for note in plan.notes:
        say(note)
    span = "windows without end" if request.length is None else f"one window of {request.length} ticks"
    title = f"Noise for a {request.query} at epsilon {request.epsilon:g}, {request.adversary} adversary, {span}"
    show_table(title, _COLUMNS, [_row(each, least=refused is not None and each is best) for each in found])
    for other, why in (refused or {}).items():
        say(f"{other}: {why}", style="dim")
    show_table(f"{STRETCH_TITLE} ({best.noise.mechanism})", STRETCH_COLUMNS, stretch_rows(best.planned.stretches))
    say(
        "scale: of the Laplace noise on every number, in ticks, as a policy writes it. further windows: whether the "
        "same epsilon covers a stream of such windows that do not overlap."
    )
    if request.length is not None:
        say("with --endless instead of --length, chain and quilts compose, and a device's policy takes their scale.")
    elif best.planned.device is None:
        say("no policy can declare these chains with their start: a device cannot check this noise.")


def _row(each: _Noise, *, least: bool = False) -> tuple[str, ...]:
    noise, planned = each
    name = f"{noise.mechanism} (least)" if least else noise.mechanism
    reason = noise.reason
    if planned.raised:
        reason += f"; raised from {noise.scale:.6g} to what a device accepts"
    return name, str(planned.scale), f"{float(planned.scale):.6g}", "yes" if noise.composes else "no", reason


def _document(plan: _Plan, each: _Noise) -> dict[str, Any]:
    noise, planned = each
    return {
        "mechanism": noise.mechanism,
        "scale": str(planned.scale),
        "epsilon": noise.epsilon,
        "adversary": noise.adversary,
        "query": plan.request.query,
        "length": plan.request.length,
        "composes": noise.composes,
        "protects_correlated": noise.mechanism != "entry",
        "chains": None if planned.device is None else planned.device.model_dump(mode="json"),
        "stretches": stretch_documents(planned.stretches),
        "reason": noise.reason,
    }
