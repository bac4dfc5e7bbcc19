"""The work of `fugu check loss` and `fugu check windows`."""

from __future__ import annotations

import json

from fugu.cli.commands import arguments
from fugu.cli.commands.plan_options import ChainOptions
from fugu.cli.commands.plan_work import chain_source, chosen_start, declared_chains
from fugu.cli.errors import CommandLineError
from fugu.cli.view.stream_plan import show_together, together_document
from fugu.cli.view.terminal import warn, working
from fugu.contract.windows import WINDOW_QUERIES
from fugu.privacy.accountant.accountant import covered_start
from fugu.privacy.utility import real_loss
from fugu.privacy.window_mechanisms import WindowRequest
from fugu.privacy.window_releases import WindowRelease, lost_together

__all__ = ["stream_loss", "window_loss"]


def stream_loss(rho0: str, rho1: str, chains: ChainOptions, adversary: str, *, as_json: bool) -> None:
    """Print the real epsilon of a stream of randomised bits; errors as `window_loss`."""
    notion = arguments.adversary(adversary)
    flips = arguments.exact_probability(rho0, "rho0"), arguments.exact_probability(rho1, "rho1")
    source = chain_source(chains)
    loss = real_loss(source.chains, *flips, notion)
    if as_json:
        print(json.dumps({**loss._asdict(), "rho0": float(flips[0]), "rho1": float(flips[1])}))
        return
    for note in source.notes:
        print(note)
    print(f"epsilon {loss.epsilon:.10g} ({loss.adversary} adversary; {loss.bound})")
    print(f"  state 0 rather than 1: {loss.epsilon_01:.10g}")
    print(f"  state 1 rather than 0: {loss.epsilon_10:.10g}")


def window_loss(texts: list[str], chains: ChainOptions, start: str | None, *, as_json: bool) -> None:
    """Print what releases lose together.

    Raises:
        FuguError: something cannot be read or is out of range.
        OSError: a file cannot be read.
    """
    made = [_release(text) for text in texts]
    declared, _, notes, warnings = declared_chains(chains)
    request = WindowRequest(declared, 1.0, None, "count", "ignorant", start=chosen_start(start))
    covered = covered_start(request.accounted)
    with working("adding up"):
        rows = lost_together(request, made)
    if as_json:
        print(json.dumps({**together_document(made, covered, rows), "notes": notes}, indent=2))
    else:
        show_together(made, covered, rows, notes)
    for warning in warnings:
        warn(warning)


def _release(text: str) -> WindowRelease:
    parts = text.split(":")
    if not 3 <= len(parts) <= 4:
        raise CommandLineError(f"a release is FIRST:LENGTH:SCALE[:QUERY], got {text!r:.60}")
    ticks = [arguments.number(part, name) for part, name in zip(parts, ("first tick", "length"), strict=False)]
    if any(not 1.0 <= tick < 1e6 or tick != int(tick) for tick in ticks):
        raise CommandLineError(
            f"the first tick and the length of a release are whole numbers from 1 on, got {text!r:.60}"
        )
    return WindowRelease(
        first=int(ticks[0]),
        length=int(ticks[1]),
        scale=arguments.positive(arguments.number(parts[2], "scale"), "scale"),
        query=arguments.one_of(parts[3], "query", tuple(WINDOW_QUERIES)) if len(parts) == 4 else "count",
    )
