"""`fugu policy check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fugu.options import JsonOption

__all__ = ["app"]

app = typer.Typer(help="Policies: what a device does with a stream.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Policies: what a device does with a stream."""


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy in its JSON form.")],
    ceiling: Annotated[float | None, typer.Option(metavar="E", help="Largest epsilon that is accepted.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a policy as a device does: derive the guarantee from its table anew.

    \b
    examples:
      fugu policy check policy.json
      fugu policy check policy.json --ceiling 1
    """
    import math

    from contract.errors import PolicyError
    from contract.policy import Policy
    from fugu.arguments import positive

    accepted = math.inf if ceiling is None else positive(ceiling, "ceiling")
    try:
        policy = Policy.from_json(file.read_bytes())
    except PolicyError as error:
        raise PolicyError(f"{file}: {error}") from None
    loss = policy.verify(accepted)
    if as_json:
        import json

        claim = {"claimed": policy.guarantee.epsilon, "weights": policy.table.weights()}
        print(json.dumps({**loss._asdict(), **claim}))
        return
    print(f"{policy.fleet}/{policy.device}/{policy.stream} version {policy.version}: the guarantee holds")
    print(f"  claimed  epsilon {policy.guarantee.epsilon:.10g}, {policy.guarantee.adversary} adversary")
    print(f"  derived  epsilon {loss.epsilon:.10g} ({loss.bound})")
    for state, (name, weights) in enumerate(zip(policy.discretiser.states, policy.table.weights(), strict=True)):
        print(f"  state {state} ({name}): symbol weights {' '.join(map(str, weights))} of 2^32")
