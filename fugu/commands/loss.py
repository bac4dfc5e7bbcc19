"""`fugu loss stream`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fugu.commands.arguments import adversary as named
from fugu.commands.arguments import exact_probability
from fugu.commands.options import JsonOption, command_group, grouped
from fugu.commands.plan_options import AdversaryOption, ChainOptions

__all__ = ["app"]

app = command_group("What given noise really loses.")


@app.command("stream")
@grouped
def stream(
    rho0: Annotated[str, typer.Option(metavar="P", help="Pr(symbol 1 | state 0), read exactly.")],
    rho1: Annotated[str, typer.Option(metavar="P", help="Pr(symbol 0 | state 1), read exactly.")],
    chains: ChainOptions,
    adversary: AdversaryOption = "informed",
    as_json: JsonOption = False,
) -> None:
    """The real epsilon of a stream of randomised bits, from its noise.

    rho0 and rho1 are taken as the exact decimal numbers (or fractions) that are written; the result is rounded up.

    \b
    examples:
      fugu loss stream --q .2 --r .35 --rho0 .3 --rho1 .3
      fugu loss stream --q .08:.1 --r .1:.12 --rho0 .45 --rho1 .45 --adversary universal
      fugu loss stream --model chain.json --rho0 1/3 --rho1 1/3 --json
    """
    from fugu.commands.plan_values import chain_source
    from gateway.privacy.baselines import real_loss

    notion = named(adversary)
    flips = exact_probability(rho0, "rho0"), exact_probability(rho1, "rho1")
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
