"""Which accounts may read a topic, by the broker's access list, interpreted as Mosquitto does.

An audience is the set of accounts that may read the same topics and have the same promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from paho.mqtt.client import topic_matches_sub

from fugu.contract.losses import Adversary
from fugu.contract.policy import Policy, PolicyHeader
from fugu.contract.topics import Kind, topic_of
from fugu.host.files import read_text
from gateway.deployment.broker_files import BrokerFolder
from gateway.releases.config import ReleaseConfig
from gateway.releases.entries import SITE, Promise

__all__ = ["AccessList", "Audience", "output_topics", "planned_audiences"]

_ANONYMOUS = ""
_SITE_ROLES = ("gateway", "shard", "site", "home-assistant")
"""Roles of accounts that may read all that the site reads."""
_PERMITS = ("read", "readwrite")
_ACCESS_WORDS = ("read", "write", "readwrite", "deny")
_SYMBOL_KINDS: tuple[Kind, ...] = ("symbols", "estimate")
_WINDOW_KINDS: tuple[Kind, ...] = ("window", "count")


class Rule(NamedTuple):
    """A rule of an access list; `access` is read, write, readwrite or deny, `user` is `None` in patterns (%u)."""

    user: str | None
    access: str
    filter: str

    def matches(self, user: str, topic: str) -> bool:
        """Return True if the rule is about a topic for an account."""
        filter_text = self.filter if self.user is not None else self.filter.replace("%u", user).replace("%c", "+")
        return topic_matches_sub(filter_text, topic)


class AccessList(NamedTuple):
    """The access list of a broker.

    `roles` has every account's role, '' if `fugu deploy` does not know the account. `limits` has readers' limits.
    """

    rules: tuple[Rule, ...]
    roles: dict[str, str]
    limits: dict[str, Promise]

    def may_read(self, user: str, topic: str) -> bool:
        """Return True if some rule lets an account read a topic, and no rule denies the topic."""
        rules = [rule for rule in self.rules if rule.user in (user, None) and rule.matches(user, topic)]
        return any(rule.access in _PERMITS for rule in rules) and not any(rule.access == "deny" for rule in rules)

    def readers(self, topic: str) -> tuple[str, ...]:
        """Return the names of the accounts that may read a topic."""
        return tuple(account_name or "(anybody)" for account_name in self.roles if self.may_read(account_name, topic))

    def strangers(self, topic: str) -> list[str]:
        """Describe in words each account that may read a topic and has no role of the site."""
        names = [name for name, role in self.roles.items() if role not in _SITE_ROLES and self.may_read(name, topic)]
        role_words = {name: self.roles[name] or "not known to fugu deploy" for name in names}
        return [f"account {name} ({role_words[name]})" if name else "whoever gives no name" for name in names]

    @classmethod
    def of(cls, broker: Path) -> Self:
        """Read the access list in a broker's folder. FuguError if the folder is no broker's, or cannot be read."""
        accounts = BrokerFolder.open(broker).settings.accounts
        rules = read_access(read_text(broker / "access.acl", "the access list"))
        users = [rule.user for rule in rules if rule.user is not None]
        roles = dict.fromkeys(sorted({_ANONYMOUS, *users}), "") | {account.name: account.role for account in accounts}
        limits = {
            account.name: Promise(account.epsilon, account.adversary, account.seconds)
            for account in accounts
            if account.epsilon is not None and account.adversary is not None
        }
        return cls(rules, roles, limits)

    def audiences(self, policies: Sequence[PolicyHeader], config: ReleaseConfig | None = None) -> tuple[Audience, ...]:
        """Group the accounts by their readable topics about some streams, without accounts that may read none."""
        readers = _release_readers(policies, config)
        accounts: dict[Audience, list[str]] = {}
        for account, role in self.roles.items():
            symbols, windows = (
                tuple(
                    f"{policy.device}/{policy.stream}"
                    for policy in policies
                    if any(self.may_read(account, topic) for topic in output_topics(policy, kinds))
                )
                for kinds in (_SYMBOL_KINDS, _WINDOW_KINDS)
            )
            topics = ((release, topic_of("release", policies[0].fleet, reader, release)) for release, reader in readers)
            releases = tuple(dict.fromkeys(release for release, topic in topics if self.may_read(account, topic)))
            if symbols or windows or releases:
                limit = self.limits.get(account, Promise(0.0, "ignorant"))
                promise = (limit.epsilon, limit.adversary, symbols, windows, releases, limit.seconds)
                accounts.setdefault(Audience("", role in _SITE_ROLES, *promise), []).append(account or "(anybody)")
        return tuple(audience._replace(name=" ".join(accounts)) for audience, accounts in accounts.items())


class Audience(NamedTuple):
    """Accounts that may read the same about some streams.

    Attributes:
        name: the names of the accounts, or of the audience in a configuration.
        site: whether the audience has the site's promise, which is the stream's own guarantee.
        epsilon, adversary, seconds: the promise to any other audience; epsilon is 0 if it may learn nothing.
        symbols: streams, as device/stream, whose symbols or estimates the audience may read.
        windows: streams whose counts, by the device or the gateway, the audience may read.
        releases: names of the releases that the audience may read.
    """

    name: str
    site: bool
    epsilon: float
    adversary: Adversary
    symbols: tuple[str, ...]
    windows: tuple[str, ...]
    releases: tuple[str, ...]
    seconds: int = 0


def output_topics(
    policy: PolicyHeader, kinds: Iterable[Kind] = ("symbols", "window", "estimate", "count")
) -> list[str]:
    """Return the topics about a stream, except the topics of releases."""
    return [topic_of(kind, policy.fleet, policy.device, policy.stream) for kind in kinds]


def planned_audiences(policies: Sequence[PolicyHeader], config: ReleaseConfig | None = None) -> tuple[Audience, ...]:
    """Return the site and each audience that releases are configured for, with the outputs that each may read."""
    streams = tuple(f"{policy.device}/{policy.stream}" for policy in policies)
    release_readers = _release_readers(policies, config)
    audiences = [Audience("site", True, 0.0, "ignorant", streams, streams, tuple(dict(release_readers)))]
    for name, promise in config.audiences.items() if config is not None else ():
        releases = tuple(release_name for release_name, audience in release_readers if audience == name)
        audiences.append(Audience(name, False, promise.epsilon, promise.adversary, (), (), releases, promise.protect))
    return tuple(audiences)


def _release_readers(policies: Sequence[PolicyHeader], config: ReleaseConfig | None) -> list[tuple[str, str]]:
    """Return pairs of a release's name and an audience that may read it, also for sums of homes."""
    config = config or ReleaseConfig()
    release_readers: list[tuple[str, str]] = []
    for release in config.releases:
        names = dict.fromkeys(release.name_for(policy.device) for policy in policies)
        release_readers += [(name, release.audience) for name in names]
    sums = (window.group for policy in policies if isinstance(policy, Policy) for window in policy.sums)
    for group in dict.fromkeys(sums):
        readers = [SITE, *(name for name, audience in config.audiences.items() if group.name in audience.sums)]
        release_readers += [(name, audience) for audience in readers for name in group.release_names]
    return release_readers


def read_access(text: str) -> tuple[Rule, ...]:
    """Parse the rules of an access list, in their order."""
    rules, user = [], _ANONYMOUS
    for line in text.splitlines():
        keyword, _, remainder = line.strip().partition(" ")
        if keyword == "user":
            user = remainder.strip()
        elif keyword in ("topic", "pattern"):
            access, _, topic = remainder.strip().partition(" ")
            if access not in _ACCESS_WORDS:
                access, topic = "readwrite", remainder.strip()
            rules.append(Rule(user if keyword == "topic" else None, access, topic.strip()))
    return tuple(rules)
