"""Which rooms may import which; the tests of a room and of those above it, for `make quick ROOM=gateway.releases`."""

from __future__ import annotations

import sys

__all__ = ["FOLDERS", "ROOMS", "TOPS", "above", "folders", "room_of"]

_EDGE = {"fugu.contract", "fugu.host", "fugu.mqtt"}
_NUMBERS = {"fugu.contract", "fugu.chains", "fugu.privacy"}
_EXACT = {"fugu.audit.exact", "fugu.audit.exact.chains"}
_SITE = {
    *("gateway.audit", "gateway.cluster", "gateway.config", "gateway.deployment", "gateway.fleet"),
    "gateway.history",
    *("gateway.health", "gateway.location", "gateway.metrics", "gateway.page", "gateway.releases", "gateway.service"),
}
ROOMS: dict[str, set[str]] = {
    "fugu.contract": set(),
    "fugu.host": {"fugu.contract"},
    "fugu.mqtt": {"fugu.contract"},
    "fugu.chains": set(),
    "fugu.svg": set(),
    "fugu.privacy": {"fugu.contract", "fugu.chains"},
    "fugu.places": {*_NUMBERS, "fugu.svg"},
    "fugu.attack": {"fugu.contract", "fugu.chains"},
    "fugu.planning": {*_NUMBERS, "fugu.host", "fugu.places", "fugu.attack"},
    "fugu.audit.exact": set(),
    "fugu.audit.exact.guesses": set(),
    "fugu.audit.exact.chains": {"fugu.audit.exact", "fugu.audit.exact.guesses"},
    "fugu.audit": {*_NUMBERS, *_EXACT},
    "edge_agent": _EDGE,
    "firmware_sim": {*_EDGE, "edge_agent"},
    "gateway.location": {"fugu.contract"},
    "gateway.shard_accounts": {"fugu.contract", "fugu.mqtt"},
    "gateway.findings": {"fugu.contract"},
    "gateway.health": {*_EDGE, "gateway.describe", "gateway.findings", "gateway.location", "gateway.service"},
    "gateway.metrics": {"fugu.contract"},
    "gateway.describe": {"fugu.contract", "fugu.mqtt", "gateway.service"},
    "gateway.home_assistant": {"fugu.contract", "fugu.mqtt", "gateway.service"},
    "gateway.database": {"fugu.contract", "fugu.host", "gateway.location"},
    "gateway.releases": {*(_EDGE | _NUMBERS), "gateway.database", "gateway.location", "gateway.service"},
    "gateway.fleet": {"fugu.contract", "fugu.host", "fugu.planning", "fugu.places", "fugu.privacy"},
    "gateway.service": {
        *(_EDGE | _NUMBERS),
        *("fugu.places", "gateway.database", "gateway.fleet", "gateway.location", "gateway.releases"),
        *("gateway.describe", "gateway.health", "gateway.home_assistant", "gateway.metrics", "gateway.shard_accounts"),
        "gateway.findings",
    },
    "gateway.page": {*_EDGE, "gateway.findings", "gateway.location", "gateway.releases"},
    "gateway.deployment": {
        *_EDGE,
        *("gateway.config", "gateway.findings", "gateway.health", "gateway.location"),
        *("gateway.releases", "gateway.service", "gateway.shard_accounts"),
    },
    "gateway.config": {
        *_EDGE,
        *("gateway.location", "gateway.metrics", "gateway.page", "gateway.releases", "gateway.service"),
    },
    "gateway.cluster": {"fugu.contract", "fugu.host", "gateway.database", "gateway.location", "gateway.service"},
    "gateway.history": {*_NUMBERS, "gateway.database", "gateway.location", "gateway.releases", "gateway.service"},
    "gateway.audit": {
        *(_NUMBERS | _EXACT),
        *("fugu.attack", "fugu.audit", "fugu.host", "fugu.planning"),
        *("gateway.deployment", "gateway.releases", "gateway.service"),
    },
    "fugu.cli": {
        *(_EDGE | _NUMBERS | _SITE),
        *("edge_agent", "firmware_sim", "fugu.attack", "fugu.audit", "fugu.places", "fugu.planning", "fugu.svg"),
    },
    "papers": {*_NUMBERS, "fugu.attack", "fugu.places", "fugu.planning", "fugu.cli", "fugu.svg"},
}
"""By full name: what a room may import; a name that goes on is a room of its own."""
TOPS = ("edge_agent", "firmware_sim", "fugu", "gateway", "papers")
# Only where the folder has another name than the room's last part.
FOLDERS = {
    "edge_agent": "edge",
    "firmware_sim": "firmware",
    "fugu.audit.exact": "audit",
    "fugu.audit.exact.chains": "audit",
    "fugu.audit.exact.guesses": "audit",
    "fugu.chains": "chain",
    "fugu.mqtt": "link",
    "fugu.places": "dphmm",
    "fugu.svg": "cli",
    "gateway.config": "service",
    "gateway.database": "service",
    "gateway.deployment": "deploy",
    "gateway.describe": "service",
    "gateway.findings": "service",
    "gateway.health": "service",
    "gateway.home_assistant": "service",
    "gateway.location": "service",
    "gateway.metrics": "service",
    "gateway.page": "dashboard",
    "gateway.releases": "release",
    "gateway.shard_accounts": "service",
}
_EVERYWHERE = ("tests/test_structure.py", "tests/system", "tests/foreign")


def room_of(module: str) -> str | None:
    """The room of a module, or of a name in it: the longest that its name begins with."""
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len, default=None)


def above(room: str) -> set[str]:
    """A room and all that may import it, or what imports it."""
    if room not in ROOMS:
        raise SystemExit(f"{room} is no room: there are {', '.join(sorted(ROOMS))}")
    found = {room}
    while more := {name for name, allowed in ROOMS.items() if allowed & found} - found:
        found |= more
    return found


def folders(room: str) -> list[str]:
    """What to give to pytest; tests of the whole are of every room."""
    found = {f"tests/{FOLDERS.get(name, name.rpartition('.')[2])}" for name in above(room)}
    return [*sorted(found), *_EVERYWHERE]


if __name__ == "__main__":
    print(*folders(sys.argv[1]))
