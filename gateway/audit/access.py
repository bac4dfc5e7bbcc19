"""Who may read a topic at the broker, by its access list as Mosquitto takes it: what is denied, and what is granted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gateway.deployment.broker_files import open_broker
from gateway.files import read_text

__all__ = ["Listed", "Rule", "listed", "matches", "may_read", "read_access"]

_ANONYMOUS = ""
_SITE = ("gateway", "site", "home-assistant")
"""Roles that are told what the site is told."""
_PERMITS = ("read", "readwrite")
_WORDS = ("read", "write", "readwrite", "deny")


class Rule(NamedTuple):
    """A line of an access list.

    Attributes:
        user: the account that it is for; none for a pattern, which is for all.
        access: read, write, readwrite or deny.
        filter: of topics; in a pattern %u stands for the account.
    """

    user: str | None
    access: str
    filter: str


class Listed(NamedTuple):
    """The access list of a broker.

    Attributes:
        roles: of accounts, by name; of those that `fugu deploy` does not know, empty.
    """

    rules: tuple[Rule, ...]
    roles: dict[str, str]

    def readers(self, topic: str) -> tuple[str, ...]:
        """The accounts that may read a topic."""
        return tuple(name or "(anybody)" for name in self.roles if may_read(self.rules, name, topic))

    def strangers(self, topic: str) -> list[str]:
        """In words, those who may read a topic and have no role of the site."""
        told = [name for name, role in self.roles.items() if role not in _SITE and may_read(self.rules, name, topic)]
        unknown = "not known to fugu deploy"
        return [f"account {n} ({self.roles[n] or unknown})" if n else "whoever gives no name" for n in told]


def listed(broker: Path) -> Listed:
    """The access list in a broker's folder.

    Raises:
        DeploymentError: it is none, or cannot be read.
    """
    accounts = open_broker(broker).settings.accounts
    rules = read_access(read_text(broker / "access.acl", "the access list"))
    named = [rule.user for rule in rules if rule.user is not None]
    return Listed(rules, dict.fromkeys(sorted({_ANONYMOUS, *named}), "") | {one.name: one.role for one in accounts})


def read_access(text: str) -> tuple[Rule, ...]:
    """The rules of an access list, in their order."""
    found, user = [], _ANONYMOUS
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "user":
            user = rest.strip()
        elif word in ("topic", "pattern"):
            access, _, topic = rest.strip().partition(" ")
            if access not in _WORDS:
                access, topic = "readwrite", rest.strip()
            found.append(Rule(user if word == "topic" else None, access, topic.strip()))
    return tuple(found)


def may_read(rules: Iterable[Rule], user: str, topic: str) -> bool:
    """Whether an account may read a topic: if something grants it, and nothing denies it."""
    mine = [rule for rule in rules if rule.user in (user, None) and matches(_of(rule, user), topic)]
    return any(rule.access in _PERMITS for rule in mine) and not any(rule.access == "deny" for rule in mine)


def _of(rule: Rule, user: str) -> str:
    return rule.filter if rule.user is not None else rule.filter.replace("%u", user).replace("%c", "+")


def matches(wanted: str, topic: str) -> bool:
    """Whether a filter with + and # has a topic without them."""
    parts, names = wanted.split("/"), topic.split("/")
    if parts[-1] == "#":
        parts, names = parts[:-1], names[: len(parts) - 1]
    return len(parts) == len(names) and all(part in ("+", name) for part, name in zip(parts, names, strict=True))
