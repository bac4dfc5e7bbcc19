"""`fugu check loss` and `fugu check windows`."""

from __future__ import annotations

from fugu.cli.commands.options import JsonOption, command, command_group
from fugu.cli.commands.plan_options import AdversaryOption, ChainOptions, StartOption

app = command_group("What given noise really loses.")


@command(app, "stream")
def stream(
    *, rho0: str, rho1: str, chains: ChainOptions, adversary: AdversaryOption = "informed", as_json: JsonOption = False
) -> None:
    """The real epsilon of randomised bits, from their noise.

    rho0 and rho1 are taken as the exact decimal numbers (or fractions) that are written; the result is rounded up.

    \b
    examples:
      fugu check loss --q 0.2 --r 0.35 --rho0 0.3 --rho1 0.3
      fugu check loss --q 0.08:0.1 --r 0.1:0.12 --rho0 0.45 --rho1 0.45 --adversary universal
      fugu check loss --model chain.json --rho0 1/3 --rho1 1/3 --json

    Args:
        rho0 (P): Pr(symbol 1 | state 0), read exactly.
        rho1 (P): Pr(symbol 0 | state 1), read exactly.
    """
    from fugu.cli.commands.plan_work import stream_loss

    stream_loss(rho0, rho1, chains, adversary, as_json=as_json)


@command(app, "windows")
def windows(
    *,
    release: list[str],
    chains: ChainOptions,
    start: StartOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the loss of several releases about windows.

    By the accountants, for every adversary.

    \b
    examples:
      fugu check windows --q 0.1 --r 0.4 --release 1:8:4 --release 11:8:13
      fugu check windows --q 0.01 --r 0.4 --release 1:6:2 --release 1:6:2 --json
      fugu check windows --model chain.json --start any --release 1:30:20:histogram

    Args:
        release (FIRST:LENGTH:SCALE[:QUERY]): A window's first tick (from 1) and its ticks, the Laplace scale of every
            number, count or histogram (default: count). Several may be given.
    """
    from fugu.cli.commands.plan_work import window_loss

    window_loss(release, chains, start, as_json=as_json)
