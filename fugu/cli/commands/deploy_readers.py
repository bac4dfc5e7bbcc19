"""`fugu deploy subscriber`, `join` and `leave`: who reads what, and what that tells them in all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fugu.cli.commands import arguments
from fugu.cli.commands.deploy_options import (
    ANEW,
    AccountArgument,
    AddOptions,
    BrokerFolderOption,
    PoliciesOption,
    ReleasesOption,
)
from fugu.cli.commands.options import grouped
from fugu.cli.errors import CommandLineError
from fugu.cli.view.terminal import working
from gateway.deployment.accounts import Account
from gateway.deployment.broker_files import BrokerFolder, check_name, open_broker

if TYPE_CHECKING:
    from gateway.deployment.readers import Promises
    from gateway.releases.readers import Bound

__all__ = ["join", "leave", "subscriber"]

_SITE = "site"


@grouped
def subscriber(
    adding: AddOptions,
    audience: Annotated[
        list[str] | None,
        typer.Option(
            help="site: symbols, estimates and all releases; any other: releases for it only; again for more."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the account (default: that of the audience).")] = None,
    releases: ReleasesOption = None,
    policies: PoliciesOption = None,
    epsilon: Annotated[
        float | None, typer.Option(metavar="E", help="The most it may be told in all (default: its first audience's).")
    ] = None,
    adversary: Annotated[
        str | None, typer.Option(help="Against whom that holds (default: as its first audience's).")
    ] = None,
) -> None:
    """Add a subscriber.

    Every program that connects needs an account of its own.

    One that belongs to several audiences is told what they are told together, and refused if that is above its limit.

    \b
    examples:
      fugu deploy subscriber dashboard --broker broker --audience site --name dashboard
      fugu deploy subscriber news --broker broker --audience street --name news \\
          --releases releases.toml --policies policies
    """
    from gateway.deployment.readers import new_reader

    opened = open_broker(adding.broker)
    if adding.renew:
        if name is None or audience is not None or epsilon is not None or adversary is not None:
            raise CommandLineError("--renew needs --name, and changes neither audiences nor limits: see join and leave")
        adding.add_client(opened, opened.account(name))
        return
    wanted = tuple(audience or ())
    if not wanted:
        raise CommandLineError("say with --audience what it may read; site reads symbols too")
    name = wanted[0] if name is None else name
    check_name(name, "account")
    if _SITE in wanted:
        if set(wanted) != {_SITE}:
            raise CommandLineError("an account of the site reads all releases: it belongs to no other audience")
        adding.add_client(opened, Account(name=name, role="site"))
        return
    with working("adding up what it may be told"):
        account, bounds = new_reader(
            name,
            wanted,
            _promises(releases, policies, opened),
            epsilon=None if epsilon is None else arguments.positive(epsilon, "epsilon"),
            adversary=None if adversary is None else arguments.adversary(adversary),
        )
    adding.add_client(opened, account)
    _show_bounds(account, bounds)


def join(
    broker: BrokerFolderOption,
    name: AccountArgument,
    audience: Annotated[str, typer.Option(help="The audience that it is to belong to as well.")],
    releases: ReleasesOption = None,
    policies: PoliciesOption = None,
) -> None:
    """Let an account read the releases of one more audience.

    It is refused if it would be told more than its limit in all.

    \b
    examples:
      fugu deploy join news --broker broker --audience press --releases releases.toml --policies policies
    """
    from gateway.deployment.readers import joined

    opened = open_broker(broker)
    with working("adding up what it may be told"):
        account, bounds = joined(opened.account(name), audience, _promises(releases, policies, opened))
    opened.change(account)
    _show_bounds(account, bounds)


def leave(
    broker: BrokerFolderOption,
    name: AccountArgument,
    audience: Annotated[str, typer.Option(help="The audience whose releases it is to read no longer.")],
) -> None:
    """Take the releases of an audience from an account.

    What it was told still counts.

    \b
    examples:
      fugu deploy leave news --broker broker --audience press
    """
    from gateway.deployment.readers import left

    opened = open_broker(broker)
    opened.change(left(opened.account(name), audience))
    print(f"{name} reads no more releases for {audience}, {ANEW}; what it was told counts")


def _promises(releases: Path | None, policies: Path | None, broker: BrokerFolder) -> Promises:
    from gateway.deployment.readers import Promises

    if releases is None or policies is None:
        raise CommandLineError("what an account may be told is computed from --releases FILE and --policies DIR")
    return Promises(releases, policies, broker.settings.fleet)


def _show_bounds(account: Account, bounds: list[Bound]) -> None:
    for bound in bounds:
        told = f"at most {bound.epsilon:.6g} of {account.epsilon:g} nats ({account.adversary} adversary)"
        by = f"about a single tick, by {', '.join(account.ever)} together"
        print(f"{account.name}: {bound.device}/{bound.stream}: {told} {by}")
