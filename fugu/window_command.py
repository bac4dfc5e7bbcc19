"""The work of `fugu plan window`: options to noise, noise to a table or JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.chains import BinaryChains
from contract.errors import FuguError
from fugu import arguments
from fugu.errors import CommandLineError
from fugu.terminal import say, show_table
from gateway.privacy.accountant import Chains
from gateway.privacy.chain_class import ChainClassError, read_chains
from gateway.privacy.window_mechanisms import (
    COMPOSING,
    MECHANISMS,
    Query,
    WindowNoise,
    WindowRequest,
    least_noise,
    window_noise,
)

__all__ = ["WindowOptions", "plan_window"]

_NAMES: tuple[Any, ...] = (*MECHANISMS, "auto")
_QUERIES: tuple[Query, ...] = ("count", "histogram")


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """The options of a plan as they were written."""

    chain: Path | None
    q: str | None
    r: str | None
    epsilon: float
    mechanism: str | None
    length: int | None
    endless: bool
    query: str
    adversary: str


def plan_window(options: WindowOptions, *, as_json: bool) -> None:
    """Plan a window, and print the noise of the mechanism that was named, or of all.

    Raises:
        FuguError: something cannot be read, or the mechanism cannot be had.
        OSError: the chain file cannot be read.
    """
    if options.endless and options.length is not None:
        raise CommandLineError("give either --length or --endless, not both")
    request = WindowRequest(
        chains=_chains(options),
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        length=options.length,
        query=arguments.one_of(options.query, "query", _QUERIES),
        adversary=arguments.adversary(options.adversary),
    )
    if options.mechanism is None:
        _compare(request, as_json=as_json)
        return
    if options.mechanism == "auto":
        noise = least_noise(request)
    else:
        noise = window_noise(request, arguments.one_of(options.mechanism, "mechanism", _NAMES))
    if as_json:
        print(json.dumps(_document(request, noise), indent=2))
    else:
        show_table(_title(request), _COLUMNS, [_row(noise)])
        _explain(request)


def _chains(options: WindowOptions) -> Chains:
    if options.chain is not None:
        if options.q is not None or options.r is not None:
            raise CommandLineError("give either --chain or --q and --r, not both")
        try:
            return read_chains(options.chain.read_bytes())
        except ChainClassError as error:
            raise ChainClassError(f"{options.chain}: {error}") from None
    if options.q is None or options.r is None:
        raise CommandLineError("give --q and --r, or --chain")
    return BinaryChains(q=arguments.interval(options.q, "q"), r=arguments.interval(options.r, "r"))


def _compare(request: WindowRequest, *, as_json: bool) -> None:
    found: list[WindowNoise] = []
    refused: dict[str, str] = {}
    for name in MECHANISMS:
        try:
            found.append(window_noise(request, name))
        except FuguError as error:
            refused[name] = str(error)
    composing = [noise for noise in found if noise.mechanism in COMPOSING]
    if not composing:
        raise ChainClassError(refused.get("chain", "no mechanism protects this class of chains"))
    best = min(composing, key=lambda noise: noise.scale)
    if as_json:
        every = [_document(request, noise) for noise in found]
        print(json.dumps({**_document(request, best), "mechanisms": every, "refused": refused}, indent=2))
        return
    show_table(_title(request), _COLUMNS, [_row(noise, least=noise is best) for noise in found])
    for other, why in refused.items():
        say(f"{other}: {why}", style="dim")
    _explain(request)


_COLUMNS = ("mechanism", "scale", "further windows", "determined by")


def _title(request: WindowRequest) -> str:
    span = "windows without end" if request.length is None else f"one window of {request.length} ticks"
    return f"Noise for a {request.query} at epsilon {request.epsilon:g}, {request.adversary} adversary, {span}"


def _row(noise: WindowNoise, *, least: bool = False) -> tuple[str, ...]:
    name = f"{noise.mechanism} (least)" if least else noise.mechanism
    return name, f"{noise.scale:.6g}", "yes" if noise.composes else "no", noise.reason


def _explain(request: WindowRequest) -> None:
    say(
        "scale: of the Laplace noise on every number, in ticks. further windows: whether the same epsilon covers a "
        "stream of such windows that do not overlap."
    )
    if request.length is not None:
        say("with --endless instead of --length, chain and quilts compose.")


def _document(request: WindowRequest, noise: WindowNoise) -> dict[str, Any]:
    return {
        "mechanism": noise.mechanism,
        "scale": noise.scale,
        "epsilon": noise.epsilon,
        "adversary": noise.adversary,
        "query": request.query,
        "length": request.length,
        "composes": noise.composes,
        "protects_correlated": noise.mechanism != "entry",
        "reason": noise.reason,
    }
