"""Accounts that read releases: joining and leaving audiences, within the limit of what one reader may be told."""

from __future__ import annotations

from pathlib import Path

from fugu.contract.leakage import Adversary
from fugu.contract.stretches import Ceiling
from gateway.deployment.mosquitto import Account
from gateway.deployment.units import DeploymentError
from gateway.estimates.catalogue import Catalogue
from gateway.releases.config import Bound, Reader, audience_of, check_reader, load_releases

__all__ = ["joined", "left", "new_reader"]


def new_reader(
    name: str,
    audiences: tuple[str, ...],
    releases: Path,
    policies: Path,
    fleet: str,
    *,
    limit: Ceiling | None = None,
    adversary: Adversary | None = None,
) -> tuple[Account, list[Bound]]:
    """An account of audiences, and what it may be told about each stream, by files of releases and policies.

    Its limit, where not stated, is that of the first audience. Raises FuguError if it would be told more, or that
    cannot be computed.
    """
    first = audience_of(load_releases(releases), name, audiences[0])
    account = Account(
        name=name,
        role="reader",
        audiences=tuple(dict.fromkeys(audiences)),
        epsilon=first.epsilon if limit is None else limit.epsilon,
        adversary=adversary or first.adversary,
        seconds=first.protect if limit is None else limit.seconds,
    )
    return account, _checked(account, releases, policies, fleet)


def joined(account: Account, audience: str, releases: Path, policies: Path, fleet: str) -> tuple[Account, list[Bound]]:
    """An account with one audience more, and what it may be told then.

    Raises FuguError if it is no reader, or as for `new_reader`.
    """
    _refuse_others(account)
    if audience in account.audiences:
        raise DeploymentError(f"the account {account.name} belongs to audience {audience}")
    left = tuple(one for one in account.left if one != audience)
    changed = account.model_copy(update={"audiences": (*account.audiences, audience), "left": left})
    return changed, _checked(changed, releases, policies, fleet)


def left(account: Account, audience: str) -> Account:
    """An account that leaves an audience; what it was told still counts. DeploymentError if it is not in it."""
    _refuse_others(account)
    if audience not in account.audiences:
        raise DeploymentError(f"the account {account.name} does not belong to audience {audience}")
    others = tuple(one for one in account.audiences if one != audience)
    return account.model_copy(update={"audiences": others, "left": (*account.left, audience)})


def _refuse_others(account: Account) -> None:
    if account.role != "reader":
        reads = "; the site reads symbols and all releases" if account.role == "site" else ""
        raise DeploymentError(f"the account {account.name} is no reader of audiences, but {account.role}{reads}")


def _checked(account: Account, releases: Path, policies: Path, fleet: str) -> list[Bound]:
    assert account.epsilon is not None
    assert account.adversary is not None
    limit = {"epsilon": account.epsilon, "adversary": account.adversary, "seconds": account.seconds}
    reader = Reader.model_validate({"name": account.name, "audiences": account.ever, **limit})
    return check_reader(reader, load_releases(releases), Catalogue.load(policies, fleet))
